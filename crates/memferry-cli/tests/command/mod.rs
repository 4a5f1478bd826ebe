// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the built command. Each test file uses a part of it.
#![allow(
    dead_code,
    reason = "every test file compiles all of it and uses a part"
)]

pub mod machine;
pub mod waiting;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command with an environment that does not change its output.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memferry"));
    command.env_clear();
    command
}

/// Runs the command with these arguments.
pub fn memferry(arguments: &[&str]) -> Output {
    command().args(arguments).output().expect("start")
}

/// A synthetic benchmark file, measured by nobody.
pub fn synthetic(bench: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memferry-bench/tests/synthetic");
    folder.join(format!("{bench}.json"))
}

/// Its exit status; a signal is none.
pub fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

/// What it wrote to stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// What it wrote to stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}
