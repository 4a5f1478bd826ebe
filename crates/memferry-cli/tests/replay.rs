// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry replay`, as a shell sees it.

mod command;

use std::path::{Path, PathBuf};

use command::{has, memferry, status, stderr, stdout, without_head};
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
    let zipf = file(
        folder.path(),
        "zipf.trace",
        &synthetic::zipf(300, 40_000, 1),
    );
    let phases = file(
        folder.path(),
        "phases.trace",
        &synthetic::phases(300, 40_000, 4, 1),
    );
    let [json, html] = ["out.json", "out.html"].map(|name| folder.path().join(name));
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let arguments = [
        "replay",
        &path(&zipf),
        &path(&phases),
        &format!("--json={}", path(&json)),
        "--html",
        &path(&html),
        "--policy",
        "ours,numab2,oracle",
        "--top",
        "25%,400K",
    ];
    let output = memferry(&arguments);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "quiet in a pipe");
    let text = stdout(&output);
    for part in [
        "zipf.trace, top tier 300 KiB of 1.2 MiB (25%)",
        "phases.trace, top tier 400 KiB",
        "numab2",
        "oracle",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
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
    assert!(
        page.contains("Address by time") && page.ends_with("</html>"),
        "{page}"
    );
    assert_eq!(status(&memferry(&arguments)), 0);
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
    let damaged = folder.path().join("damaged.trace");
    std::fs::write(&damaged, bytes).expect("save");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for (arguments, part) in [
        (vec!["replay".to_owned(), path(&damaged)], "byte"),
        (
            vec!["replay".to_owned(), path(&folder.path().join("none"))],
            "cannot replay",
        ),
        (
            vec![
                "replay".to_owned(),
                path(&whole),
                "--top".into(),
                "100".into(),
            ],
            "allowed: 4096 bytes or more",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = memferry(&arguments);
        let text = stderr(&output);
        assert_eq!(status(&output), 1, "{arguments:?}: {text}");
        assert!(
            text.contains("why: ") && text.contains("try: ") && text.contains(part),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn a_trace_is_never_replaced_by_what_comes_of_it() {
    let folder = tempfile::tempdir().expect("folder");
    let made = synthetic::zipf(300, 4000, 1);
    let [first, second] = ["a.trace", "b.trace"].map(|name| file(folder.path(), name, &made));
    let before = std::fs::read(&first).expect("read");
    let [a, b] = [&first, &second].map(|path| path.to_str().expect("UTF-8"));
    let json = format!("--json={a}");
    for arguments in [
        &["replay", &json, b, a][..],
        &["replay", a, b, "--html", a],
        &["replay", b, a, &json],
    ] {
        let output = memferry(arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        has(&stderr(&output), "name another file");
        assert_eq!(std::fs::read(&first).expect("read"), before);
    }
}

#[test]
fn a_trace_behind_json_is_a_trace() {
    let folder = tempfile::tempdir().expect("folder");
    let made = synthetic::zipf(300, 4000, 1);
    let [first, second] = ["a.trace", "b.trace"].map(|name| file(folder.path(), name, &made));
    let before = std::fs::read(&first).expect("read");
    let [a, b] = [&first, &second].map(|path| path.to_str().expect("UTF-8"));
    let output = memferry(&["replay", "--policy", "lru", "--json", a, b]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(std::fs::read(&first).expect("read"), before);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
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
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("lru"));
}
