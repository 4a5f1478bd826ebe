// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry doctor` and its exit statuses.

mod command;

use command::{done, fails, has, json, memferry, status, stderr, stdout};
use memferry_bench::synthetic;

#[test]
fn this_machine_is_checked() {
    let output = memferry("doctor --json");
    let json = json(&output);
    assert_eq!(json["schema"], "memferry-doctor/1");
    let findings = json["findings"].as_array().expect("findings");
    let wrong = findings.iter().any(|of| of["severity"] == "wrong");
    assert_eq!(status(&output), i32::from(wrong), "{json}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn only_what_is_wrong_is_status_1() {
    let root = synthetic::listed("proc/sys/kernel/osrelease = 7.2.0");
    let doctor = || memferry(&format!("doctor --root {}", root.path().display()));
    has(&done(&doctor()), "0 wrong, 2 notes;");
    synthetic::change(root.path(), "sys/bus/dax/devices/dax0.0/size = 32768");
    let wrong = doctor();
    assert_eq!(status(&wrong), 1, "{wrong:?}");
    assert!(stdout(&wrong).starts_with("wrong: dax0.0"), "{wrong:?}");
    assert_eq!(stderr(&wrong), "");
    for usage in ["--fix", "--for x", "--config x", "--for move --config x"] {
        assert_eq!(status(&memferry(&format!("doctor {usage}"))), 2, "{usage}");
    }
    fails(&memferry("doctor --root /nonexistent"), "");
}

#[test]
fn for_the_daemon_the_last_line_is_whether_it_can_start() {
    let root = synthetic::listed("proc/sys/kernel/osrelease = 7.2.0");
    let root = root.path().display();
    let output = memferry(&format!(
        "doctor --for daemon --root {root} --config /nonexistent"
    ));
    assert_eq!(status(&output), 1, "{output:?}");
    let text = stdout(&output);
    let last = text.lines().last().expect("a line");
    has(last, "memferryd cannot start here: /nonexistent");
}
