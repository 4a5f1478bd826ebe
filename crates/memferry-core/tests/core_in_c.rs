// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the core's own tests, and checks that the core needs nothing from outside.
//! A missing compiler, sanitizer or `nm` fails these tests: nothing is skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core")
}

/// The compiler that built the core, with warnings as errors.
fn compiler() -> Command {
    let target = env!("MEMFERRY_TARGET");
    let mut build = cc::Build::new();
    build
        .target(target)
        .host(target)
        .opt_level(2)
        .std("c11")
        .cargo_metadata(false);
    build
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    let mut command = build.get_compiler().to_command();
    command.arg("-I").arg(core().join("include"));
    command
}

/// Where a test puts what it builds: a name of its own in cargo's folder for that.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What the command printed to its output; fails with all that it printed otherwise.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot start {command:?}: {error}; this test needs it, install it")
    });
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n{printed}{errors}",
        output.status
    );
    printed
}

/// Compiles a test program of the core, runs it and reads its TAP: all planned tests passed.
fn passes(test: &str, sources: &[&str], flags: &[&str]) {
    let program = built(&format!("{test}-{}", flags.len()));
    let files = sources
        .iter()
        .chain([&test])
        .map(|name| core().join(name).with_extension("c"));
    run(compiler().args(flags).args(files).arg("-o").arg(&program));
    let tap = run(&mut Command::new(program));
    let passed = tap.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(
        passed > 0 && tap.ends_with(&format!("1..{passed}\n")),
        "{tap}"
    );
}

const SANITIZERS: &[&str] = &[
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
];

/// The test program of each part, and what it is linked with.
const PARTS: [(&str, &[&str]); 5] = [
    ("share_test", &["share"]),
    ("hotness_test", &["hotness", "hotness_rank", "hotness_time"]),
    ("pace_test", &["pace"]),
    ("choose_test", &["choose"]),
    ("balance_test", &["balance", "hotness_rank", "hotness_time"]),
];

#[test]
fn each_part_passes_its_c_tests() {
    for (test, sources) in PARTS {
        passes(test, sources, &[]);
    }
}

#[test]
fn each_part_passes_its_c_tests_under_sanitizers() {
    for (test, sources) in PARTS {
        passes(test, sources, SANITIZERS);
    }
}

/// The whole core, linked to one object, has no undefined symbol: no C library, no memcpy,
/// no division routine; at any optimisation, and on x86-64 also for its 32-bit sibling.
#[test]
fn the_core_is_freestanding() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(core())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter(|path| !path.to_string_lossy().ends_with("_test.c"))
        .collect();
    files.sort();
    assert!(files.len() >= 2, "{files:?}");

    let words: &[Option<&str>] = match cfg!(target_arch = "x86_64") {
        true => &[Some("-m64"), Some("-m32")],
        false => &[None],
    };
    for word in words {
        for level in ["-O0", "-O2", "-O3", "-Os"] {
            let object = built("core.o");
            let mut link = compiler();
            link.args(word)
                .args([level, "-ffreestanding", "-fno-pic", "-no-pie"]);
            link.args(["-nostdlib", "-r"])
                .args(&files)
                .arg("-o")
                .arg(&object);
            run(&mut link);
            let defined = run(Command::new("nm").arg("--defined-only").arg(&object));
            assert!(defined.contains(" T ferry_share_begin\n"), "{defined}");
            let undefined = run(Command::new("nm").arg("--undefined-only").arg(&object));
            assert_eq!(undefined, "", "undefined symbols with {word:?} {level}");
        }
    }
}
