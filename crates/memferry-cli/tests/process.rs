// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry move` on the machine that runs the tests. What moves between nodes is tested where there are two.

mod command;

use std::os::unix::process::CommandExt;
use std::process::Command;

use command::child::Waiting;
use command::waiting::{cgroups, for_others, move_below, node, number};
use command::{done, fails, has, json, memferry, stdout, words};

#[test]
fn a_dry_run_counts_every_page_by_its_node() {
    let process = Waiting::new();
    let line = format!("move --pid {} --to {} --dry-run", process.pid(), node());
    has(
        &done(&memferry(&line)),
        "(cat) | where its pages lie | there already",
    );
    let json = json(&memferry(&(line + " --json")));
    assert_eq!(json["schema"], "memferry-move/2");
    let nodes = json["nodes"].as_array().expect("nodes");
    let bytes: u64 = nodes.iter().map(|node| number(&node["bytes"])).sum();
    assert!(
        bytes > 0 && bytes <= number(&json["resident_bytes"]),
        "{json}"
    );
    assert!(json["seconds"].is_null() && json["cgroup"].is_null());
    assert_eq!(json["processes"][0]["name"], "cat");
}

#[test]
fn a_cgroup_that_cannot_be_moved_says_why() {
    let root = cgroups(&[
        ("system.slice/empty.service", ""),
        ("a.slice/same.scope", ""),
        ("b.slice/same.scope", ""),
    ]);
    let none = tempfile::tempdir().expect("folder");
    for (root, target, parts) in [
        (
            &root,
            "--cgroup /gone",
            "no cgroup /gone | /proc/PID/cgroup",
        ),
        (&root, "--unit gone", "gone.service | does not run"),
        (
            &root,
            "--unit same.scope",
            "/a.slice/same.scope | /b.slice/same.scope",
        ),
        (
            &root,
            "--unit empty",
            "nothing to move | /system.slice/empty.service",
        ),
        (&none, "--unit empty", "version 2 | --pid"),
    ] {
        let output = move_below(root.path(), &format!("move {target} --to {}", node()));
        fails(&output, parts);
        assert_eq!(stdout(&output), "");
    }
}

/// Of a cgroup with a process of root and one of its own, who may look at the latter alone, sees that and is told of the other.
#[test]
fn a_process_that_cannot_be_moved_stops_no_other_of_its_cgroup() {
    // SAFETY: no memory is touched.
    if unsafe { libc::geteuid() } != 0 {
        return println!("not run: only root has processes that another user may not touch");
    }
    let folder = tempfile::tempdir().expect("folder");
    let (mine, theirs) = (Waiting::of(65534), Waiting::new());
    let root = cgroups(&[("a.slice", &format!("{}\n{}\n", theirs.pid(), mine.pid()))]);
    let program = for_others(folder.path(), root.path());
    let line = format!("move --cgroup /a.slice --to {} --dry-run --json", node());
    let output = Command::new(&program)
        .args(words(&line))
        .args(["--root", root.path().to_str().expect("path")])
        .uid(65534)
        .gid(65534)
        .output()
        .expect("start");
    fails(&output, &theirs.pid());
    let json = json(&output);
    let processes = json["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 1, "{json}");
    assert_eq!(processes[0]["pid"].to_string(), mine.pid());
    assert_eq!(json["refused"][0]["pid"].to_string(), theirs.pid());
    assert_eq!(json["complete"], false);
}

#[test]
fn what_cannot_be_moved_says_why() {
    let process = Waiting::new();
    let (pid, node) = (process.pid(), node());
    for (arguments, part) in [
        (format!("--pid 4194303 --to {node}"), "it has ended"),
        (format!("--pid {pid} --to 999"), "no memory node 999"),
        (
            format!("--pid {pid} --from 999 --to {node}"),
            "no memory node 999",
        ),
    ] {
        let output = memferry(&format!("move {arguments}"));
        fails(&output, part);
        assert_eq!(stdout(&output), "");
    }
}
