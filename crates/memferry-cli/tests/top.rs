// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `memferry top` and `memferry report` show of a daemon, on an invented machine with two tiers.

mod command;

use std::fs;

use command::child::Waiting;
use command::daemon::started;
use command::tiers::{GROUP, configure, tiered};
use command::{check_head, done, fails, has, json, memferry, status, stdout, synthetic};
use serde_json::Value;

const BALANCING: &str = "proc/sys/kernel/numa_balancing";

#[test]
fn a_daemon_is_watched_and_ends_when_asked() {
    let root = tiered();
    configure(root.path(), &format!("act = true\n{GROUP}"));
    let top = |how: &str| memferry(&format!("top {how} --root {}", root.path().display()));
    fails(&top("--once"), "does it run?");
    let mut daemon = started(root.path());
    let json = daemon.until(|_| {
        let output = top("--json");
        (status(&output) == 0).then(|| json(&output))
    });
    assert_eq!(json["schema"], "memferry-daemon/1");
    check_head(&json, "top --json");
    // Another tree than this machine's is only watched.
    assert_eq!(json["act"], false);
    assert_eq!(json["source"]["name"], "numa-balancing");
    let page = stdout(&top("--once"));
    assert!(
        page.contains("only watches") && page.lines().any(|line| line.starts_with("db ")),
        "{page}"
    );
    daemon.interrupt();
    assert_eq!(daemon.0.wait().expect("wait").code(), Some(0));
    assert_eq!(
        fs::read_to_string(root.path().join(BALANCING)).expect("file"),
        "1\n"
    );
    assert_eq!(status(&top("--once")), 1, "its status goes with it");
    let mut daemon = started(root.path());
    daemon.until(|_| (status(&top("--once")) == 0).then_some(()));
    daemon.0.kill().expect("kill");
    daemon.0.wait().expect("wait");
    fails(&top("--once"), "has ended | `memferryd --once --dry-run`");
    // Its number is another process's now; version 0.1.0 wrote no start.
    let file = root.path().join("run/memferry/status.json");
    let left: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("file")).expect("JSON");
    let other = Waiting::new();
    // One tick earlier: both may have begun in the same one.
    let earlier = left["start"].as_u64().expect("ticks") - 1;
    for start in [earlier.into(), Value::Null] {
        let mut left = left.clone();
        left["pid"] = other.0.id().into();
        left["start"] = start;
        fs::write(&file, left.to_string()).expect("write");
        fails(&top("--once"), "has ended");
    }
}

/// A daemon that is killed, one that is asked to end, and what the report draws of both.
#[test]
fn a_report_is_drawn_of_what_daemons_did_killed_or_not() {
    let root = tiered();
    let kept = format!("{GROUP}[history]\nfile = \"/var/lib/memferry/history.jsonl\"\n");
    configure(root.path(), &kept);
    let history = root.path().join("var/lib/memferry/history.jsonl");
    let report = || memferry(&format!("report --text {}", history.display()));
    let lines = || {
        let text = fs::read_to_string(&history).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut killed = started(root.path());
    killed.until(|_| (lines().len() == 2).then_some(()));
    killed.0.kill().expect("kill");
    killed.0.wait().expect("wait");
    let mut ended = started(root.path());
    ended.until(|_| (lines().len() == 4).then_some(()));
    ended.interrupt();
    assert_eq!(ended.0.wait().expect("wait").code(), Some(0));
    let lines: Vec<Value> = (lines().iter())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let schemas = lines.iter().map(|line| line["schema"].as_str());
    let head = Some("memferry-history/1");
    assert_eq!(schemas.collect::<Vec<_>>(), [head, None, head, None, None]);
    assert!(lines[0]["host"]["kernel"] == "6.12.0" && lines[0]["arguments"][0] == "--root");
    assert!(lines[3]["next"].is_number() && lines[4]["next"].is_null());
    has(
        &done(&report()),
        "only watched | starts of the daemon | numa-balancing | db",
    );
    let page = stdout(&memferry(&format!("report {} -o -", history.display())));
    assert!(page.starts_with("<!DOCTYPE html>"));
    has(&page, "Use of the tiers | Groups in the top tier");
    // Cut as a kill cuts it, and of a version that is not known.
    let whole = fs::read_to_string(&history).expect("file");
    fs::write(&history, &whole[..whole.len() - 30]).expect("write");
    done(&report());
    fs::write(&history, whole.replace("history/1", "history/9")).expect("write");
    fails(&report(), "memferry-history/9");
    let (history, file) = (history.display(), synthetic("move"));
    let mixed = memferry(&format!("report --text {history} {}", file.display()));
    fails(&mixed, "give either of them alone");
}
