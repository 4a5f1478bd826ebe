// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel` on invented machines: folders with the files that a kernel would show.

mod command;

use std::fs;
use std::path::Path;
use std::process::Output;

use command::{memferry, status, stderr, stdout};
use serde_json::Value;

const FOLDER: &str = "sys/kernel/mm/migration";

/// A kernel with the series; `kernel` and `mtcopy` are registered, nothing is active.
fn machine() -> tempfile::TempDir {
    let root = stock();
    for (file, text) in [
        ("migrator", "[none] kernel mtcopy\n"),
        ("reasons", "all\n"),
        ("min_batch_bytes", "262144\n"),
        ("max_batch_bytes", "4194304\n"),
        ("mtcopy/lanes", "2\n"),
        ("mtcopy/priority", "[normal] high\n"),
        ("mtcopy/placement", "[spread] fill\n"),
        ("mtcopy/nontemporal", "0\n"),
        ("mtcopy/idle_only", "1\n"),
        ("stats/mtcopy/reset", ""),
        ("stats/mtcopy/demotion/batches", "3\n"),
        ("stats/mtcopy/demotion/folios", "1536\n"),
        ("stats/mtcopy/demotion/bytes", "6291456\n"),
        ("stats/mtcopy/demotion/fallbacks", "1\n"),
        ("stats/mtcopy/demotion/declined", "0\n"),
        ("stats/mtcopy/damon/batches", "0\n"),
    ] {
        put(root.path(), file, text);
    }
    root
}

/// A stock kernel.
fn stock() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("folder");
    let release = root.path().join("proc/sys/kernel");
    fs::create_dir_all(&release).expect("folder");
    fs::write(release.join("osrelease"), "6.12.57\n").expect("file");
    fs::create_dir_all(root.path().join("sys/kernel/mm")).expect("folder");
    root
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(FOLDER).join(file);
    fs::create_dir_all(path.parent().expect("folder")).expect("folder");
    fs::write(path, text).expect("file");
}

fn text(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(FOLDER).join(file)).expect("file")
}

fn kernel(root: &Path, line: &str) -> Output {
    let mut arguments = vec!["kernel"];
    arguments.extend(line.split(' '));
    arguments.extend(["--root", root.to_str().expect("path")]);
    memferry(&arguments)
}

#[test]
fn a_stock_kernel_is_told_what_it_lacks_and_what_works() {
    let root = stock();
    let output = kernel(root.path(), "status");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let shown = stdout(&output);
    for part in [
        "6.12.57",
        "CONFIG_MIGRATION_COPY_OFFLOAD",
        "memferry move --pid",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = kernel(root.path(), "status --json");
    let json: Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!(json["available"], false);
    assert!(json["migrators"].is_null() && json["next"].is_string());
    let output = kernel(root.path(), "set --migrator kernel");
    assert_eq!(status(&output), 1);
    assert!(
        stderr(&output).contains("nothing to set"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn status_shows_settings_and_rows_that_are_not_zero() {
    let root = machine();
    let output = kernel(root.path(), "status");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let shown = stdout(&output);
    for part in [
        "[none] kernel mtcopy",
        "256K",
        "4M",
        "mtcopy, demotion",
        "1536",
        "6 MiB",
        "kernel set --migrator kernel",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("mtcopy, damon"), "{shown}");
    assert!(!shown.contains("modprobe"), "{shown}");
    let json = kernel(root.path(), "status --json");
    let json: Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!(json["schema"], "memferry-kernel/1");
    assert_eq!(json["migrators"]["active"], "none");
    assert_eq!(json["mtcopy"]["lanes"], 2);
    assert_eq!(json["statistics"][0]["fallbacks"], 1);
    assert_eq!(json["statistics"].as_array().map(Vec::len), Some(1));
    put(root.path(), "migrator", "none [kernel]\n");
    fs::remove_dir_all(root.path().join(FOLDER).join("mtcopy")).expect("remove");
    let shown = stdout(&kernel(root.path(), "status"));
    assert!(shown.contains("modprobe mtcopy"), "{shown}");
}

#[test]
fn a_file_that_cannot_be_understood_is_named() {
    let root = machine();
    put(root.path(), "max_batch_bytes", "much\n");
    for line in ["status", "set --lanes 3"] {
        let output = kernel(root.path(), line);
        assert_eq!(status(&output), 1);
        let told = stderr(&output);
        assert!(
            told.contains("max_batch_bytes") && told.contains("much"),
            "{told}"
        );
    }
}

#[test]
fn set_writes_what_was_asked_for_and_says_it() {
    let root = machine();
    let line = "set --migrator mtcopy --lanes 4 --reasons demotion,compaction --min-batch-bytes 0 --max-batch-bytes 8M \
                --priority high --placement fill --nontemporal on --idle-only off --reset-stats";
    let dry = kernel(root.path(), &format!("{line} --dry-run"));
    assert_eq!(status(&dry), 0, "{}", stderr(&dry));
    assert!(
        stdout(&dry).contains("would set migrator: none -> mtcopy"),
        "{}",
        stdout(&dry)
    );
    assert!(
        stdout(&dry).contains("would clear stats/mtcopy/reset"),
        "{}",
        stdout(&dry)
    );
    assert_eq!(text(root.path(), "migrator"), "[none] kernel mtcopy\n");
    put(root.path(), "stats/kernel/reset", "");
    let output = kernel(root.path(), line);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    for (file, expected) in [
        ("migrator", "mtcopy\n"),
        ("mtcopy/lanes", "4\n"),
        ("reasons", "demotion compaction\n"),
        ("min_batch_bytes", "0\n"),
        ("max_batch_bytes", "8388608\n"),
        ("mtcopy/idle_only", "0\n"),
        ("stats/mtcopy/reset", "0\n"),
    ] {
        assert_eq!(text(root.path(), file), expected, "{file}");
    }
    assert!(
        stdout(&output).contains("mtcopy/lanes: 2 -> 4"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn set_in_json_lists_its_steps() {
    let root = machine();
    let output = kernel(
        root.path(),
        "set --lanes 3 --migrator none --dry-run --json",
    );
    let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(
        json["steps"].as_array().map(Vec::len),
        Some(1),
        "none is active already"
    );
    assert_eq!(json["steps"][0]["after"], "3");
}

#[test]
fn what_this_kernel_refuses_is_status_1_and_changes_nothing() {
    let root = machine();
    for (line, part) in [
        ("set --migrator dcbm --lanes 4", "none, kernel, mtcopy"),
        ("set --reasons sunday --lanes 4", "longterm_pin"),
        (
            "set --min-batch-bytes 5M --lanes 4",
            "largest batch, 4194304",
        ),
        (
            "set --max-batch-bytes 1M --lanes 4",
            "from 2097152 to 67108864",
        ),
        (
            "set --max-batch-bytes 65M --lanes 4",
            "from 2097152 to 67108864",
        ),
    ] {
        let output = kernel(root.path(), line);
        assert_eq!(status(&output), 1, "{line}");
        let told = stderr(&output);
        assert!(
            told.contains(part) && told.contains("try: "),
            "{part}: {told}"
        );
        assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    }
    fs::remove_dir_all(root.path().join(FOLDER).join("mtcopy")).expect("remove");
    put(root.path(), "migrator", "[none] kernel\n");
    for line in ["set --migrator mtcopy", "set --idle-only on"] {
        let output = kernel(root.path(), line);
        assert_eq!(status(&output), 1, "{line}");
        assert!(
            stderr(&output).contains("modprobe mtcopy"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_write_that_fails_leaves_everything_as_it_was() {
    let root = machine();
    // The statistics of `kernel` have no such file here, so the last step fails.
    let output = kernel(root.path(), "set --lanes 4 --priority high --reset-stats");
    assert_eq!(status(&output), 1);
    let told = stderr(&output);
    assert!(told.contains("stats/kernel/reset"), "{told}");
    assert!(told.contains("everything else is as it was"), "{told}");
    assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    assert_eq!(text(root.path(), "mtcopy/priority"), "normal\n");
}

#[test]
fn wrong_usage_is_status_2() {
    for (arguments, part) in [
        (&["kernel"][..], "Usage"),
        (&["kernel", "set"], "--migrator"),
        (&["kernel", "set", "--lanes", "0"], "1..=64"),
        (&["kernel", "set", "--lanes", "65"], "1..=64"),
        (&["kernel", "set", "--priority", "low"], "normal, high"),
        (&["kernel", "set", "--nontemporal", "maybe"], "on, off"),
        (&["kernel", "set", "--max-batch-bytes", "4MB"], "64KiB"),
        (
            &["kernel", "set", "--reasons", "all,damon"],
            "between commas",
        ),
    ] {
        let output = memferry(arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(
            stderr(&output).contains(part),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
