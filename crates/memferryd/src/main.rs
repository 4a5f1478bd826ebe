// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd`: the daemon.

use std::process::ExitCode;

use memferry_output::exit;
use memferryd::args::Cli;

fn main() -> ExitCode {
    let result = Cli::read(std::env::args_os()).map_err(Into::into);
    exit::of("memferryd", result.and_then(|cli| memferryd::run(&cli)))
}
