// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the built command. Each test file uses a part of it.
#![allow(
    dead_code,
    reason = "every test file compiles all of it and uses a part"
)]

#[path = "../../../memferry-c/tests/built/mod.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub mod built;
pub mod child;
pub mod daemon;
pub mod machine;
pub mod output;
pub mod tiers;
pub mod waiting;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

pub use output::*;

/// The command with an environment that does not change its output.
pub fn command() -> Command {
    quiet(env!("CARGO_BIN_EXE_memferry"))
}

/// Runs the command with the words of a line.
pub fn memferry(line: &str) -> Output {
    command().args(words(line)).output().expect("start")
}

/// A synthetic benchmark file, measured by nobody. It is written by the first test that asks for it.
pub fn synthetic(bench: &str) -> PathBuf {
    static WRITES: Mutex<()> = Mutex::new(());
    let _alone = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{bench}.json"));
    let text = memferry_bench::synthetic::text(bench);
    if fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return path;
    }
    // Other tests, of another program, may be reading it.
    let mut file = tempfile::NamedTempFile::new_in(folder).expect("file");
    file.write_all(text.as_bytes()).expect("write");
    file.persist(&path).expect("rename");
    path
}
