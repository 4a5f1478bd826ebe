// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the built daemon, with what the tests of `memferry` have for that.
#![allow(dead_code, reason = "the tests of memferry use the rest")]

#[path = "../../../memferry-cli/tests/command/child.rs"]
pub mod child;
#[path = "../../../memferry-cli/tests/command/output.rs"]
pub mod output;
#[path = "../../../memferry-cli/tests/command/tiers.rs"]
pub mod tiers;

use std::process::{Command, Output};

/// The daemon with an environment that does not change its output.
pub fn command() -> Command {
    output::quiet(env!("CARGO_BIN_EXE_memferryd"))
}

/// Runs the daemon with the words of a line.
pub fn memferryd(line: &str) -> Output {
    let words = output::words(line);
    command().args(words).output().expect("start")
}
