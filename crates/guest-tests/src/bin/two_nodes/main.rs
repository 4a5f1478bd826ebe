// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the mover that need two memory nodes or more, as TAP 13 on stdout.
//!
//! `two_nodes` runs every case, each in a process of its own; `two_nodes NAME…` runs these. It needs root on a machine
//! that nobody else uses: some cases fill a node. Exit status 1 when a case failed, or when the machine cannot run
//! them: nothing is ever skipped in silence, only what a kernel without UFFDIO_MOVE cannot do says `# SKIP`.

#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod backends;
mod fallback;
mod lanes;
mod machine;
mod memory;
mod move_pages;
mod userfaultfd;

use memferry::Backend;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What a case needs of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// move_pages(2) alone.
    MovePages,
    /// UFFDIO_MOVE, Linux 6.8.
    Userfaultfd,
}

/// A check. It fails by panicking.
struct Case {
    name: String,
    needs: Needs,
    run: Box<dyn Fn()>,
}

/// A case that takes longer hangs: the slowest takes 10 s on an emulated machine, and ten times that where its host is busy.
const PATIENCE: Duration = Duration::from_secs(300);

/// The hidden argument that runs one case in this process.
const INSIDE: &str = "--inside";

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, needs, run| cases.push(Case { name, needs, run });
    for (backend, by, needs, own) in [
        (
            Backend::Userfaultfd,
            "userfaultfd",
            Needs::Userfaultfd,
            userfaultfd::CASES,
        ),
        (
            Backend::MovePages,
            "move_pages",
            Needs::MovePages,
            move_pages::CASES,
        ),
    ] {
        for &(name, run) in own {
            add(format!("{by}: {name}"), needs, Box::new(run) as Box<_>);
        }
        for &(name, run) in backends::BOTH {
            add(
                format!("{by}: {name}"),
                needs,
                Box::new(move || run(backend)),
            );
        }
    }
    for &(name, needs, run) in [backends::CASES, fallback::CASES, lanes::CASES]
        .concat()
        .iter()
    {
        add(name.to_owned(), needs, Box::new(run));
    }
    cases
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = cases();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [INSIDE, name] => {
            (all.iter().find(|case| case.name == name).unwrap().run)();
            ExitCode::SUCCESS
        }
        [move_pages::SERVE, bytes] => move_pages::serve(bytes.parse().unwrap()),
        ref names => {
            let chosen: Vec<Case> = all
                .into_iter()
                .filter(|case| names.is_empty() || names.contains(&case.name.as_str()))
                .collect();
            run(&chosen)
        }
    }
}

fn run(cases: &[Case]) -> ExitCode {
    println!("TAP version 13");
    let nodes = machine::nodes();
    if nodes.len() < 2 || cases.is_empty() {
        println!(
            "Bail out! not run: this needs two memory nodes and a case to run; the nodes are {nodes:?}"
        );
        return ExitCode::FAILURE;
    }
    // khugepaged makes THPs of base pages and of up to so many holes, at any moment, and cases count holes.
    let holes = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
    if let Err(error) = std::fs::write(holes, "0") {
        println!("# {holes}: {error}; holes may be filled");
    }
    let can_uffd = machine::has_uffdio_move();
    println!("1..{}", cases.len());
    println!(
        "# Linux {}, memory nodes {nodes:?}, UFFDIO_MOVE {}",
        machine::release(),
        if can_uffd { "yes" } else { "no" }
    );
    let _balancing = machine::NoBalancing::begin();
    let mut failed = 0;
    for (index, Case { name, needs, .. }) in cases.iter().enumerate() {
        let number = index + 1;
        if *needs == Needs::Userfaultfd && !can_uffd {
            println!("ok {number} - {name} # SKIP this kernel has no UFFDIO_MOVE");
            continue;
        }
        match run_inside(name) {
            Ok(took) => println!("ok {number} - {name} # {:.1} s", took.as_secs_f64()),
            Err(why) => {
                failed += 1;
                println!("not ok {number} - {name}");
                println!("# {why}");
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

/// One case in a process of its own: the kernel may kill it, and its memory is gone afterwards.
fn run_inside(name: &str) -> Result<Duration, String> {
    let started = Instant::now();
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(me)
        .args([INSIDE, name])
        .spawn()
        .map_err(|e| e.to_string())?;
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(started.elapsed()),
            Some(status) => {
                return Err(match status.signal() {
                    Some(signal) => format!("killed by signal {signal}"),
                    None => "failed, see above".to_owned(),
                });
            }
            None if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("hangs: not done after {PATIENCE:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
