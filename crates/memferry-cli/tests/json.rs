// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--json` writes: one envelope for all commands, and the fields of each. Benchmarks have theirs in bench.rs, and in snapshots of
//! memferry-bench.

mod command;

use std::fs;
use std::path::Path;

use command::child::Waiting;
use command::machine::{large, with_pghot};
use command::waiting::node;
use command::{check_head, json, memferry, without_head};
use serde_json::Value;

/// All numbers are 0: they are the machine's.
fn without_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = 0.into(),
        Value::Array(all) => all.iter_mut().for_each(without_numbers),
        Value::Object(all) => all.values_mut().for_each(without_numbers),
        _ => {}
    }
}

#[test]
fn every_file_has_the_envelope_and_the_machine() {
    let root = large(4, "6.12.57");
    let swappiness = root.path().join("proc/sys/vm/swappiness");
    fs::write(&swappiness, "60\n").expect("file");
    let below = root.path().display();
    for line in ["topology --json", "doctor --json", "kernel status --json"] {
        let line = line.replace(
            "packaging",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"),
        );
        let file = json(&memferry(&format!("{line} --root {below}")));
        check_head(&file, &line);
        assert_eq!(file["host"]["cpu"], "Fake CPU 9000", "{line}");
        assert_eq!(file["settings"]["proc/sys/vm/swappiness"], "60", "{line}");
    }
    let list = json(&memferry("bench reproduce --list --json"));
    check_head(&list, "bench reproduce --list");
    assert!(list["rows"].as_array().is_some_and(|rows| rows.len() > 20));
}

#[test]
fn the_fields_of_what_the_kernel_tells() {
    let root = with_pghot();
    for (name, line) in [
        ("kernel-status", "kernel status"),
        (
            "kernel-set",
            "kernel set --mtcopy-lanes 4 --persist --dry-run",
        ),
        ("kernel-heat", "kernel heat --node 3"),
    ] {
        let line_below = format!("{line} --json --root {}", root.path().display());
        let file = json(&memferry(&line_below));
        insta::assert_json_snapshot!(name, without_head(file, line));
    }
}

#[test]
fn the_fields_of_a_trace() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let line = format!("trace info --json {}/scan.trace", traces.display());
    let mut file = without_head(json(&memferry(&line)), "trace info");
    let path = file["file"].take();
    assert!(
        path.as_str()
            .is_some_and(|path| path.ends_with("scan.trace"))
    );
    insta::assert_json_snapshot!("trace-info", file);
}

#[test]
fn the_fields_of_a_move() {
    let process = Waiting::new();
    let line = format!("move --pid {} --to {} --dry-run", process.pid(), node());
    let mut file = without_head(json(&memferry(&(line.clone() + " --json"))), &line);
    file["nodes"].as_array_mut().expect("nodes").truncate(1);
    without_numbers(&mut file);
    insta::assert_json_snapshot!("move", file);
}
