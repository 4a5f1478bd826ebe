// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry move` on the machine that runs the tests. What moves between nodes is tested where there are two.

mod command;

use std::os::unix::process::CommandExt;
use std::process::Command;

use command::waiting::{Waiting, cgroups, move_below, node, number};
use command::{memferry, status, stderr, stdout};
use serde_json::Value;

#[test]
fn a_dry_run_counts_every_page_by_its_node() {
    let process = Waiting::new();
    let arguments = [
        "move",
        "--pid",
        &process.pid(),
        "--to",
        &node(),
        "--dry-run",
    ];
    let output = memferry(&arguments);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["(cat)", "where its pages lie", "there already"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = memferry(&[&arguments[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
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
            ["no cgroup /gone", "/proc/PID/cgroup"],
        ),
        (&root, "--unit gone", ["gone.service", "does not run"]),
        (
            &root,
            "--unit same.scope",
            ["/a.slice/same.scope", "/b.slice/same.scope"],
        ),
        (
            &root,
            "--unit empty",
            ["nothing to move", "/system.slice/empty.service"],
        ),
        (&none, "--unit empty", ["version 2", "--pid"]),
    ] {
        let output = move_below(root.path(), &format!("move {target} --to {}", node()));
        assert_eq!(status(&output), 1, "{target}");
        for part in parts {
            assert!(
                stderr(&output).contains(part),
                "{part}: {}",
                stderr(&output)
            );
        }
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn what_cannot_be_moved_says_why() {
    let process = Waiting::new();
    let (pid, node) = (process.pid(), node());
    for (arguments, part) in [
        (["move", "--pid", "4194303", "--to", &node], "it has ended"),
        (["move", "--pid", &pid, "--to", "999"], "no memory node 999"),
    ] {
        let output = memferry(&arguments);
        assert_eq!(status(&output), 1, "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(part), "{part}: {text}");
        assert!(text.contains("why: ") && text.contains("try: "), "{text}");
        assert_eq!(stdout(&output), "");
    }
    let output = memferry(&["move", "--pid", &pid, "--from", "999", "--to", &node]);
    assert!(
        stderr(&output).contains("no memory node 999"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn wrong_usage_is_status_2() {
    for (line, part) in [
        ("move", "--pid"),
        ("move --pid 1", "--to"),
        ("move --pid 1 --unit x --to 1", "cannot be used with"),
        ("move --cgroup / --unit x --to 1", "cannot be used with"),
        ("move --pid 0 --to 1", "1.."),
        ("move --pid x --to 1", "invalid"),
        ("move --pid 1 --to 1 --from 1", "moves nothing"),
        ("move --pid 1 --to -1", "unexpected"),
        ("move --pid 1 --to 1 --callers 0", "at least 1"),
        ("move --pid 1 --to 1 --rate 0", "larger than 0"),
        ("move --pid 1 --to 1 --rate fast", "not a rate"),
        (
            "move --pid 1 --to 1 --all --anonymous",
            "cannot be used with",
        ),
    ] {
        let output = memferry(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(status(&output), 2, "{line}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(part),
            "{line}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn every_page_is_accounted_for() {
    let process = Waiting::new();
    for callers in ["1", "3"] {
        let output = memferry(&[
            "move",
            "--pid",
            &process.pid(),
            "--to",
            &node(),
            "--callers",
            callers,
            "--rate",
            "1G/s",
            "--json",
        ]);
        let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let stayed = json["stayed"].as_array().expect("stayed");
        let counted: u64 = ["moved", "already_there", "elsewhere"]
            .iter()
            .map(|name| &json[name])
            .chain(stayed)
            .map(|pages| number(&pages["bytes"]))
            .sum();
        assert_eq!(counted, number(&json["resident_bytes"]), "{json}");
        assert_eq!(
            status(&output),
            i32::from(!stayed.is_empty()),
            "{}",
            stderr(&output)
        );
        assert!(json["end"].is_null());
    }
}

#[test]
fn a_cgroup_or_a_unit_is_all_of_its_processes() {
    let (one, other) = (Waiting::new(), Waiting::new());
    // A process of another PID namespace is 0, and one has ended.
    let own = format!("0\n{}\n4194303\n", one.pid());
    let root = cgroups(&[
        ("system.slice/some.service", &own),
        ("system.slice/some.service/below", &other.pid()),
        ("system.slice/other.service", "1\n"),
    ]);
    let path = "/system.slice/some.service";
    let mut expected = [&one, &other].map(|of| u64::from(of.0.id()));
    expected.sort_unstable();
    for target in [
        "--unit some".to_owned(),
        "--unit some.service".to_owned(),
        format!("--cgroup {path}"),
        "--cgroup system.slice/some.service".to_owned(),
        format!("--cgroup /sys/fs/cgroup{path}"),
    ] {
        let line = format!("move {target} --to {}", node());
        let output = move_below(root.path(), &(line.clone() + " --dry-run --json"));
        assert_eq!(status(&output), 0, "{target}: {}", stderr(&output));
        let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(json["cgroup"], path);
        let processes = json["processes"].as_array().expect("processes");
        let pids: Vec<u64> = processes.iter().map(|of| number(&of["pid"])).collect();
        assert_eq!(pids, expected);
        let bytes = |of: &Value| number(&of["resident_bytes"]);
        assert_eq!(processes.iter().map(bytes).sum::<u64>(), bytes(&json));
        let text = stdout(&move_below(root.path(), &(line + " --anonymous")));
        for part in ["some.service, 2 processes", &one.pid(), &other.pid(), "cat"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn another_users_process_needs_permission() {
    // SAFETY: no memory is touched.
    if unsafe { libc::geteuid() } != 0 {
        return println!("not run: only root has processes that another user may not touch");
    }
    let process = Waiting::new();
    // Another user may not be able to reach the folder that this was built in.
    let folder = tempfile::tempdir().expect("folder");
    let program = folder.path().join("memferry");
    // By a process of its own: a child that another test starts now would inherit the file open for writing, and no kernel
    // starts such a program.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_memferry"))
        .arg(&program)
        .status();
    assert!(copied.expect("cp").success());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("permissions");
    let output = Command::new(&program)
        .args(["move", "--pid", &process.pid(), "--to", &node()])
        .uid(65534)
        .gid(65534)
        .output()
        .expect("start");
    assert_eq!(status(&output), 1, "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("ptrace"), "{text}");
}
