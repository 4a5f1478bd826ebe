// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the real `memferry` on a machine with two memory nodes or more, stock kernel or ours, as TAP 13 on stdout.
//!
//! `commands` runs every case but those of the daemon, of promotion and of published tables, which `commands daemon`, `commands
//! promote` and `commands reproduce` run, and `commands NAME…` runs the ones with these names. The command is `$MEMFERRY`, else the one beside this program or
//! in the folder above, else the PATH's. It needs root on a machine that nobody else uses: it moves, kills and sets kernel
//! settings, which it sets back. Exit status 1 when a case failed, or when the machine cannot run them.

#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod bench;
mod daemon;
mod dcbm;
mod doctor;
mod kernel;
mod process;
mod program;
mod promote;
mod reproduce;
mod victim;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// A check: its name and what it does. It fails by panicking; `Err` says why it cannot run here.
pub type Case = (&'static str, fn() -> Result<(), String>);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [victim::SERVE, rest @ ..] = &arguments[..] {
        return victim::serve(rest);
    }
    let most = [
        kernel::CASES,
        dcbm::CASES,
        doctor::CASES,
        process::CASES,
        bench::CASES,
    ]
    .concat();
    let chosen: Vec<Case> = match &arguments[..] {
        [] => most,
        ["daemon"] => daemon::CASES.to_vec(),
        ["promote"] => promote::CASES.to_vec(),
        ["reproduce"] => reproduce::CASES.to_vec(),
        names => [
            &most[..],
            daemon::CASES,
            daemon::LONG,
            promote::CASES,
            reproduce::CASES,
        ]
        .concat()
        .into_iter()
        .filter(|(name, _)| names.contains(name))
        .collect(),
    };
    run(&chosen)
}

fn run(cases: &[Case]) -> ExitCode {
    println!("TAP version 13");
    let nodes = program::nodes();
    if nodes.len() < 2 || cases.is_empty() {
        println!(
            "Bail out! not run: this needs two memory nodes and a case to run; the nodes are {nodes:?}"
        );
        return ExitCode::FAILURE;
    }
    println!("1..{}", cases.len());
    println!(
        "# {}, memory nodes {nodes:?}, batch migration {}",
        program::path().display(),
        if kernel::is_there() { "yes" } else { "no" }
    );
    let mut failed = 0;
    for (index, (name, case)) in cases.iter().enumerate() {
        let (number, started) = (index + 1, Instant::now());
        match catch_unwind(case) {
            Ok(Ok(())) => {
                println!(
                    "ok {number} - {name} # {:.1} s",
                    started.elapsed().as_secs_f64()
                );
            }
            Ok(Err(why)) => println!("ok {number} - {name} # SKIP {why}"),
            Err(_) => {
                failed += 1;
                println!("not ok {number} - {name}");
            }
        }
    }
    println!("# {failed} of {} failed", cases.len());
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
