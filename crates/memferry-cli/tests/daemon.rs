// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry daemon` and `memferry top` on an invented machine with two tiers.

mod command;

use std::fs;

use command::machine::tiered;
use command::waiting::Waiting;
use command::{check_head, command, has, memferry, status, stderr, stdout};
use memferry_bench::synthetic::put;
use serde_json::Value;

const BALANCING: &str = "proc/sys/kernel/numa_balancing";

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let root = tiered();
    let config = root.path().join("memferry.toml");
    let path = config.to_str().expect("path");
    let check = || memferry(&["daemon", "check", "--config", path]);
    assert_eq!(status(&check()), 1, "it is missing");
    put(
        root.path(),
        "memferry.toml",
        "[brakes]\nwaste = 10\nhaste = 1\n",
    );
    let wrong = check();
    assert_eq!(status(&wrong), 1);
    let told = stderr(&wrong);
    assert!(
        told.contains("memferry.toml:3:") && told.contains("`waste`"),
        "{told}"
    );
    assert!(told.contains("try: "), "{told}");
    assert_eq!(status(&memferry(&["daemon", "chek"])), 2);
}

#[test]
fn the_packaged_configuration_only_watches() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/memferry.toml");
    let output = memferry(&["daemon", "check", "--config", path]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    has(&stdout(&output), "only watches");
}

#[test]
fn a_daemon_is_watched_and_ends_when_asked() {
    let root = tiered();
    put(
        root.path(),
        "memferry.toml",
        "act = true\n[[group]]\nname = \"db\"\nunits = [\"x\"]\n",
    );
    let (folder, config) = (
        root.path().to_str().expect("path"),
        root.path().join("memferry.toml"),
    );
    let top = |how: &str| memferry(&["top", how, "--root", folder]);
    let nothing = top("--once");
    assert_eq!(status(&nothing), 1);
    has(&stderr(&nothing), "does it run?");
    let mut daemon = command();
    daemon
        .args(["daemon", "--root", folder, "--config"])
        .arg(config);
    let mut daemon = Waiting(daemon.spawn().expect("start"));
    let json = daemon.until(|_| {
        let output = top("--json");
        (status(&output) == 0).then(|| stdout(&output))
    });
    let json: Value = serde_json::from_str(&json).expect("JSON");
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
}
