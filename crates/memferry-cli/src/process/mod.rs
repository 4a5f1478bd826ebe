// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry move`: the pages of running processes, brought to another node.
//!
//! The library moves; this checks the nodes, shows progress and prints the account.

mod cgroup;
pub mod description;
mod text;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use memferry::MoveError;
use memferry_linux::topology::Topology;
use memferry_process::{End, Kinds, Process, ProcessMove, ProcessResult, Progress, Reason, Survey};

use crate::cli::process::ProcessArgs;
use crate::failure::{Failure, worst};
use crate::results::Results;
use crate::ui::Ui;
use crate::units::about;
use cgroup::Cgroup;
use description::Description;

/// How often the progress bar is drawn: what an eye follows.
const FRAME: Duration = Duration::from_millis(100);

/// Moves the pages, or says where they lie.
pub fn run(args: &ProcessArgs) -> Result<(), Failure> {
    let ui = Ui::new();
    ui.catch_interrupts()?;
    let results = Results::open(&args.shown.json, &[])?;
    let topology = crate::topology::read()?;
    for node in args.from.iter().chain([&args.to]) {
        check_node(&topology, *node)?;
    }
    let (root, target) = (&args.shown.root, &args.target);
    let cgroup = match (&target.cgroup, &target.unit) {
        (Some(path), _) => Some(Cgroup::at(root, path)?),
        (None, Some(unit)) => Some(Cgroup::of_unit(root, unit)?),
        (None, None) => None,
    };
    let mut description = Description::new(args, cgroup.as_ref());
    let done = match (&cgroup, target.pid) {
        (Some(cgroup), _) => all_of(args, cgroup, &ui, &mut description),
        (None, Some(pid)) => one(args, pid, &ui, &mut description),
        (None, None) => Ok(()),
    };
    // Pages that were not all found are not shown, and neither is nothing.
    if done.is_err() && (args.dry_run && ui.stopped() || description.processes.is_empty()) {
        return done;
    }
    let shown = show(results, &description);
    worst([done.and_then(|()| verdict(&description)), shown])
}

/// Looks at a cgroup for processes. A build or a shell's loop gains some as long as it runs.
const LOOKS: usize = 16;

/// The processes of a cgroup, and those that it gains meanwhile. One that cannot be moved stops no other; the first such is the
/// failure of all.
fn all_of(
    args: &ProcessArgs,
    cgroup: &Cgroup,
    ui: &Ui,
    description: &mut Description,
) -> Result<(), Failure> {
    let (mut seen, mut failed) = (BTreeSet::new(), None);
    for look in 0.. {
        let mut new = cgroup.processes()?;
        new.retain(|&pid| seen.insert(pid));
        if new.is_empty() {
            break;
        }
        if look == LOOKS {
            failed.get_or_insert(Failure::new(
                format!("the cgroup {} gains processes again and again", cgroup.name),
                format!("{LOOKS} looks in a row found new ones; those of the last are not moved"),
                "run it again, or freeze the cgroup meanwhile (cgroup.freeze)",
            ));
            break;
        }
        for pid in new {
            if let Err(failure) = one(args, pid, ui, description) {
                if ui.stopped() {
                    return Err(failure);
                }
                description.refuse(pid, &failure);
                failed.get_or_insert(failure);
            }
        }
    }
    match (failed, description.processes.is_empty()) {
        (Some(failure), _) => Err(failure),
        (None, false) => Ok(()),
        (None, true) => Err(Failure::new(
            format!("there is nothing to move in the cgroup {}", cgroup.name),
            "it has no process with memory of its own",
            "see systemd-cgls for those that have some",
        )),
    }
}

/// One process. That one of a cgroup has ended, before or meanwhile, or is a kernel thread, is no failure.
fn one(
    args: &ProcessArgs,
    pid: u32,
    ui: &Ui,
    description: &mut Description,
) -> Result<(), Failure> {
    let is_alone = args.target.pid.is_some();
    let kinds = match args.anonymous {
        true => Kinds::Anonymous,
        false => Kinds::All,
    };
    let cannot = |error| match error {
        MoveError::NoProcess { .. } if !is_alone => Ok(()),
        error => Err(refused(pid, &error)),
    };
    let found = Process::open(pid).and_then(|process| Ok((process.survey(kinds)?, process)));
    let (survey, process) = match found {
        Ok(found) => found,
        Err(error) => return cannot(error),
    };
    if args.dry_run {
        let census = match process.census(&survey, args.callers.into(), ui.stop()) {
            Ok(census) => census,
            Err(error) => return cannot(error),
        };
        if ui.stopped() {
            return Err(Failure::new(
                "stopped before all pages were found",
                "interrupted",
                "run it again",
            ));
        }
        description.count(pid, &survey, &census);
        return Ok(());
    }
    let result = match carry(args, &process, &survey, ui) {
        Ok(result) => result,
        Err(error) => return cannot(error),
    };
    description.account(pid, &survey, &result);
    match (ended_early(pid, &survey, &result), &result.end) {
        (_, Some(End::ProcessEnded)) if !is_alone => Ok(()),
        (ended, _) => ended,
    }
}

fn show(results: Results, description: &Description) -> Result<(), Failure> {
    results.tell(Path::new("/"), description, || {
        text::account(description, Ui::columns())
    })
}

/// Moves on another thread and draws the bar on this one.
fn carry(
    args: &ProcessArgs,
    process: &Process,
    survey: &Survey,
    ui: &Ui,
) -> Result<ProcessResult, MoveError> {
    let mut options = ProcessMove::new(args.to);
    options.from = args.from;
    options.callers = args.callers.into();
    options.bytes_per_second = args.rate;
    options.shared = args.all;
    let progress = Progress::default();
    let bar = ui.bytes_bar(&format!("move {}", process.pid()), survey.resident_bytes);
    let (moves, ended) = channel::<()>();
    let work = || process.move_pages(survey, &options, &progress, ui.stop());
    std::thread::scope(|scope| {
        let moving = std::thread::Builder::new()
            .spawn_scoped(scope, move || {
                let _moves = moves;
                work()
            })
            .map_err(|source| MoveError::System {
                call: "starting a thread",
                hint: "see the limits of threads: ulimit -u, and pids.max of the cgroup",
                source,
            })?;
        // Nothing is ever sent: the thread's end closes the channel.
        while ended.recv_timeout(FRAME) == Err(RecvTimeoutError::Timeout) {
            bar.at(progress.looked_bytes.load(Ordering::Relaxed));
            let moved = progress.moved_bytes.load(Ordering::Relaxed);
            bar.now(&format!("{} moved", about(moved)));
        }
        moving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether all pages of a process were dealt with.
fn ended_early(pid: u32, survey: &Survey, result: &ProcessResult) -> Result<(), Failure> {
    let (left, of) = (about(result.left_bytes), about(survey.resident_bytes));
    Err(match &result.end {
        None => return Ok(()),
        Some(End::Cancelled) => Failure::new(
            format!("stopped: {left} of {of} of process {pid} were not looked at"),
            "interrupted",
            "run it again for the rest",
        ),
        Some(End::ProcessEnded) => Failure::new(
            format!("process {pid} ended while its pages moved"),
            format!("{left} of {of} were not looked at, and are gone now"),
            "nothing: there is nothing left to move",
        ),
        Some(End::Failed(error)) => Failure::new(
            format!(
                "the kernel ended the move of process {pid}: {left} of {of} were not looked at"
            ),
            error,
            "see `memferry topology`, then run it again",
        ),
        Some(_) => Failure::new(
            format!("the move of process {pid} ended early: {left} of {of} were not looked at"),
            "no reason that this command knows",
            "run it again for the rest",
        ),
    })
}

/// Whether everything is where it should be.
fn verdict(of: &Description) -> Result<(), Failure> {
    let Some(most) = of.stayed.first() else {
        return Ok(());
    };
    let pages: u64 = of.stayed.iter().map(|of| of.all.pages).sum();
    let bytes: u64 = of.stayed.iter().map(|of| of.all.bytes).sum();
    Err(Failure::new(
        format!("{pages} pages ({}) stayed on a wrong node", about(bytes)),
        format!("most of them: {}", most.why),
        most.next,
    ))
}

/// What to try about pages that stayed, in this command's words.
fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::Shared => {
            "as root, --all moves them too; --anonymous leaves files out of the account"
        }
        other => other.next(),
    }
}

fn refused(pid: u32, error: &MoveError) -> Failure {
    let what = format!("the pages of process {pid} were not moved");
    match error {
        MoveError::NoProcess { why, hint, .. } => Failure::new(what, why, *hint),
        MoveError::System { call, hint, source } => {
            Failure::new(what, format!("{call}: {source}"), *hint)
        }
        error => Failure::new(
            what,
            error,
            "see `memferry topology` for what this kernel can do",
        ),
    }
}

fn check_node(topology: &Topology, node: u32) -> Result<(), Failure> {
    let with_memory: Vec<u32> = topology.nodes_with_memory().map(|node| node.id).collect();
    if with_memory.contains(&node) {
        return Ok(());
    }
    let nodes = memferry_linux::topology::parse::format_id_list(&with_memory);
    Err(Failure::new(
        format!("there is no memory node {node}"),
        format!("the nodes with memory are {nodes}"),
        "give one of those; `memferry topology` shows them",
    ))
}
