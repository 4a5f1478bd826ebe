// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry replay`, as a shell sees it.

mod command;

use std::path::{Path, PathBuf};

use command::{done, fails, has, json, memferry, stderr, without_head, words};
use memferry_replay::event::Trace;
use memferry_replay::synthetic;
use memferry_replay::trace::{Header, write};

fn file(folder: &Path, name: &str, trace: &Trace) -> PathBuf {
    let path = folder.join(name);
    let header = Header::new(&trace.name, "synthetic", trace.clock);
    let mut bytes = Vec::new();
    write(&mut bytes, &header, trace).expect("write");
    std::fs::write(&path, bytes).expect("save");
    path
}

#[test]
fn traces_and_policies_become_tables_json_and_a_page() {
    let folder = tempfile::tempdir().expect("folder");
    let below = folder.path().display();
    file(
        folder.path(),
        "zipf.trace",
        &synthetic::zipf(300, 40_000, 1),
    );
    let phases = synthetic::phases(300, 40_000, 4, 1);
    file(folder.path(), "phases.trace", &phases);
    let [json, html] = ["out.json", "out.html"].map(|name| folder.path().join(name));
    let line = format!(
        "replay {below}/zipf.trace {below}/phases.trace --json={} --html {} --policy ours,numab2,oracle --top 25%,400K",
        json.display(),
        html.display()
    );
    let output = memferry(&line);
    let text = done(&output);
    assert_eq!(stderr(&output), "", "quiet in a pipe");
    has(
        &text,
        "zipf.trace, top tier 300 KiB of 1.2 MiB (25%) | phases.trace, top tier 400 KiB | numab2 | oracle",
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let read = || -> serde_json::Value {
        let mut value: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&json).expect("read")).expect("JSON");
        for row in value["rows"].as_array_mut().expect("rows") {
            row["tracker_ns_per_access"].take();
        }
        assert!(value["host"].is_object(), "{value}");
        without_head(value, "replay")
    };
    let value = read();
    assert_eq!(value["schema"], "memferry-replay/1");
    assert_eq!(value["rows"].as_array().map(Vec::len), Some(12));
    let row = &value["rows"][1];
    assert_eq!(
        (&row["policy"], &row["trace"]),
        (&"ours".into(), &"zipf.trace".into())
    );
    assert!(
        row["top_share"]
            .as_f64()
            .is_some_and(|share| (0.25..1.0).contains(&share)),
        "{row}"
    );
    let page = std::fs::read_to_string(&html).expect("read");
    has(&page, "Address by time");
    assert!(page.ends_with("</html>"), "{page}");
    done(&memferry(&line));
    assert_eq!(read(), value, "the same figures again");
    let mut first = value;
    first["rows"].as_array_mut().expect("rows").truncate(1);
    insta::assert_json_snapshot!("replay", first);
}

#[test]
fn what_cannot_be_replayed_says_why_and_what_to_try() {
    let folder = tempfile::tempdir().expect("folder");
    let whole = file(folder.path(), "zipf.trace", &synthetic::zipf(30, 4000, 1));
    let mut bytes = std::fs::read(&whole).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.path().join("damaged.trace"), bytes).expect("save");
    for (arguments, part) in [
        ("damaged.trace", "byte"),
        ("none", "cannot replay"),
        ("zipf.trace --json none.json", "--json=none.json"),
        ("zipf.trace --top 100", "allowed: 4096 bytes or more"),
    ] {
        let mut replay = command::command();
        replay.current_dir(folder.path()).arg("replay");
        let output = replay.args(words(arguments)).output().expect("start");
        fails(&output, part);
    }
}

#[test]
fn a_trace_behind_json_is_a_trace() {
    let folder = tempfile::tempdir().expect("folder");
    let made = synthetic::zipf(300, 4000, 1);
    let [a, b] = ["a.trace", "b.trace"].map(|name| file(folder.path(), name, &made));
    let before = std::fs::read(&a).expect("read");
    let (first, second) = (a.display(), b.display());
    let json = json(&memferry(&format!(
        "replay --policy lru --json {first} {second}"
    )));
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
    assert_eq!(std::fs::read(&a).expect("read"), before);
}

#[test]
fn a_trace_is_read_from_stdin() {
    let folder = tempfile::tempdir().expect("folder");
    let path = file(folder.path(), "a.trace", &synthetic::zipf(300, 4000, 1));
    let output = command::command()
        .args(["replay", "-", "--policy", "lru"])
        .stdin(std::fs::File::open(path).expect("open"))
        .output()
        .expect("start");
    has(&done(&output), "lru");
}
