// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and completions come from the same definitions as the help.

mod command;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use command::{done, fails, has, memferry};

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().join("share/man1");
    done(&memferry(&format!("generate man --out {}", out.display())));
    let entries = fs::read_dir(&out).expect("list");
    let made = entries.map(|entry| entry.expect("entry").file_name().into_string());
    let made: BTreeSet<String> = made.map(|name| name.expect("UTF-8")).collect();
    let pages = |commands: &'static str, section| {
        let commands = commands
            .lines()
            .filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'));
        commands.map(move |command| format!("{}.{section}", command.replace(' ', "-")))
    };
    let expected = pages(include_str!("../../../docs/command.md"), 1);
    let of_daemon = pages(include_str!("../../../docs/memferryd.md"), 8);
    assert_eq!(made, expected.chain(of_daemon).collect());
    assert!(made.len() > 20);
    let page = fs::read_to_string(out.join("memferry-bench-move.1")).expect("page");
    has(&page, "\\-\\-destination");
    let page = fs::read_to_string(out.join("memferry.1")).expect("page");
    has(&page, "memferry\\-report | Exit status");
    has(&page, env!("CARGO_PKG_VERSION"));
    let page = fs::read_to_string(out.join("memferryd.8")).expect("page");
    has(&page, "\\-\\-dry\\-run | memferryd\\-check | Exit status");
}

#[test]
fn every_shell_has_completions() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().to_str().expect("path");
    done(&memferry(&format!("generate completions --out {out}")));
    for name in ["memferry.bash", "_memferry", "memferry.fish"] {
        let text = fs::read_to_string(folder.path().join(name)).expect(name);
        has(
            &text,
            "topology | stall | published | per-folio | dcbm-lanes | callers | max-accesses | hwhints-event",
        );
        for hidden in ["promote-run", "generate"] {
            assert!(!text.contains(hidden), "{name} offers {hidden}");
        }
    }
}

#[test]
fn the_daemon_has_completions_of_its_own() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().to_str().expect("path");
    done(&memferry(&format!("generate completions --out {out}")));
    for name in ["memferryd.bash", "_memferryd", "memferryd.fish"] {
        let text = fs::read_to_string(folder.path().join(name)).expect(name);
        has(&text, "check | dry-run | config");
    }
}

/// The file is in docs, as it is written now.
fn assert_published(what: &str, file: &str) {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().to_str().expect("path");
    done(&memferry(&format!("generate {what} --out {out}")));
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
    assert_published("markdown", "memferryd.md");
}

#[test]
fn the_page_of_commands_writes_options_as_the_help_does() {
    let page = include_str!("../../../docs/command.md");
    let count = |part: &str| page.matches(part).count();
    assert!(count("* `--json[=<FILE>]` — ") > 10 && count("--json <FILE>") == 0);
    has(page, "**Usage:** `memferry <COMMAND>`");
    let help = done(&memferry("topology --help"));
    has(&help, "--json[=<FILE>]");
    has(&done(&memferry("--help")), "Usage: memferry <COMMAND>");
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    fails(
        &memferry("generate man --out /dev/null/man"),
        "/dev/null/man",
    );
}
