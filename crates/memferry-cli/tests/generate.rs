// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and completions come from the same definitions as the help.

mod command;

use std::fs;
use std::path::Path;

use command::{done, memferry, status, stderr};

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().join("share/man1");
    done(&memferry(&[
        "generate",
        "man",
        "--out",
        out.to_str().expect("path"),
    ]));
    let mut names: Vec<String> = fs::read_dir(&out)
        .expect("list")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "memferry-bench-cache.1",
            "memferry-bench-compaction.1",
            "memferry-bench-count.1",
            "memferry-bench-move.1",
            "memferry-bench-promote.1",
            "memferry-bench-reproduce.1",
            "memferry-bench-stall.1",
            "memferry-bench.1",
            "memferry-daemon.1",
            "memferry-doctor.1",
            "memferry-kernel-heat.1",
            "memferry-kernel-set.1",
            "memferry-kernel-status.1",
            "memferry-kernel.1",
            "memferry-move.1",
            "memferry-replay.1",
            "memferry-report.1",
            "memferry-top.1",
            "memferry-topology.1",
            "memferry-trace-import.1",
            "memferry-trace-info.1",
            "memferry-trace-record.1",
            "memferry-trace-reduce.1",
            "memferry-trace.1",
            "memferry.1"
        ]
    );
    let page = fs::read_to_string(out.join("memferry-bench-move.1")).expect("page");
    assert!(page.contains("\\-\\-destination"), "{page}");
    let page = fs::read_to_string(out.join("memferry.1")).expect("page");
    for part in [
        "memferry\\-report",
        "Exit status",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn every_shell_has_completions() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().to_str().expect("path");
    done(&memferry(&["generate", "completions", "--out", out]));
    for name in ["memferry.bash", "_memferry", "memferry.fish"] {
        let text = fs::read_to_string(folder.path().join(name)).expect(name);
        for word in [
            "topology",
            "stall",
            "published",
            "per-folio",
            "dcbm-lanes",
            "callers",
            "max-accesses",
            "hwhints-event",
        ] {
            assert!(text.contains(word), "{name}: {word}");
        }
        assert!(
            !text.contains("promote-run"),
            "{name} offers a hidden command"
        );
        assert!(!text.contains("generate"), "{name} offers a hidden command");
    }
}

/// The file is in docs, as it is written now.
fn assert_published(what: &str, file: &str) {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().to_str().expect("path");
    done(&memferry(&["generate", what, "--out", out]));
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |folder: &Path| fs::read_to_string(folder.join(file)).expect("file");
    assert!(
        read(folder.path()) == read(&published),
        "docs/{file} is old: run `cargo run -p memferry-cli -- generate {what} --out docs`"
    );
}

#[test]
fn the_published_schema_is_that_of_the_files() {
    assert_published("schema", "schema.json");
}

#[test]
fn the_published_page_of_commands_has_all_options() {
    assert_published("markdown", "command.md");
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let output = memferry(&["generate", "man", "--out", "/dev/null/man"]);
    assert_eq!(status(&output), 1);
    assert!(stderr(&output).contains("/dev/null/man"));
}
