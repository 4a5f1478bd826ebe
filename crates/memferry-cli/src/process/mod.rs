// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry move`: the pages of a running process, brought to another node.
//!
//! The library moves; this checks the nodes, shows progress and prints the account.

mod description;
mod text;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use memferry::MoveError;
use memferry::process::{
    Census, End, Kinds, Process, ProcessMove, ProcessResult, Progress, Reason, Survey,
};
use memferry_linux::topology::Topology;

use crate::cli::process::ProcessArgs;
use crate::failure::{Failure, worst};
use crate::output::Results;
use crate::ui::Ui;
use crate::units::about;
use description::Description;

/// How often the progress bar is drawn: what an eye follows.
const FRAME: Duration = Duration::from_millis(100);

/// Moves the pages, or says where they lie.
pub fn run(args: &ProcessArgs) -> Result<(), Failure> {
    let results = Results::open(&args.json, &[])?;
    let topology = crate::topology::read()?;
    for node in args.from.iter().chain([&args.to]) {
        check_node(&topology, *node)?;
    }
    let cannot = |error| refused(args, &error);
    let process = Process::open(args.pid).map_err(cannot)?;
    let kinds = match args.anonymous {
        true => Kinds::Anonymous,
        false => Kinds::All,
    };
    let ui = Ui::new();
    ui.catch_interrupts()?;
    let survey = process.survey(kinds).map_err(cannot)?;
    let mut description = Description::new(args, &survey);
    if args.dry_run {
        let census = process
            .census(&survey, args.callers, ui.stop())
            .map_err(cannot)?;
        if ui.stopped() {
            return Err(Failure::new(
                "stopped before all pages were found",
                "interrupted",
                "run it again",
            ));
        }
        description.count(&census);
        return show(results, &description);
    }
    let result = carry(args, &process, &survey, &ui).map_err(cannot)?;
    description.account(&result);
    let shown = show(results, &description);
    worst([verdict(args, &survey, &result), shown])
}

fn show(results: Results, description: &Description) -> Result<(), Failure> {
    results.write(description, || text::account(description, Ui::columns()))
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
    options.callers = args.callers;
    options.bytes_per_second = args.rate;
    options.shared = args.all;
    let progress = Progress::default();
    let bar = ui.bytes_bar(&format!("move {}", args.pid), survey.resident_bytes);
    let (done, waiting) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The receiver lives until this thread has sent.
            let _ = done.send(process.move_pages(survey, &options, &progress, ui.stop()));
        });
        loop {
            match waiting.recv_timeout(FRAME) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    bar.at(progress.looked_bytes.load(Ordering::Relaxed));
                    let moved = progress.moved_bytes.load(Ordering::Relaxed);
                    bar.now(&format!("{} moved", about(moved)));
                }
                // The thread panicked, which the scope passes on.
                Err(RecvTimeoutError::Disconnected) => unreachable!("the sender outlives the loop"),
            }
        }
    })
}

/// Whether everything is where it should be.
fn verdict(args: &ProcessArgs, survey: &Survey, result: &ProcessResult) -> Result<(), Failure> {
    let (left, of) = (about(result.left_bytes), about(survey.resident_bytes));
    match &result.end {
        Some(End::Cancelled) => {
            return Err(Failure::new(
                format!("stopped: {left} of {of} were not looked at"),
                "interrupted",
                "run it again for the rest",
            ));
        }
        Some(End::ProcessEnded) => {
            return Err(Failure::new(
                format!("process {} ended while its pages moved", args.pid),
                format!("{left} of {of} were not looked at, and are gone now"),
                "nothing: there is nothing left to move",
            ));
        }
        Some(End::Failed(error)) => {
            return Err(Failure::new(
                format!("the kernel ended the move: {left} of {of} were not looked at"),
                error,
                "see `memferry topology`, then run it again",
            ));
        }
        Some(_) => {
            return Err(Failure::new(
                format!("the move ended early: {left} of {of} were not looked at"),
                "no reason that this command knows",
                "run it again for the rest",
            ));
        }
        None => {}
    }
    let worst = result.stayed.iter().max_by_key(|(_, count)| count.bytes);
    let Some((&reason, _)) = worst else {
        return Ok(());
    };
    let pages: u64 = result.stayed.values().map(|count| count.folios).sum();
    Err(Failure::new(
        format!(
            "{pages} pages ({}) stayed on a wrong node",
            about(result.stayed_bytes())
        ),
        format!("most of them: {}", reason.why()),
        advice(reason),
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

fn refused(args: &ProcessArgs, error: &MoveError) -> Failure {
    let what = format!("the pages of process {} were not moved", args.pid);
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

/// How many pages lie on which node, as the description wants it.
fn by_node(census: &Census) -> impl Iterator<Item = (u32, u64, u64)> {
    let nodes = census.nodes.iter();
    nodes.map(|(&node, count)| (node, count.folios, count.bytes))
}
