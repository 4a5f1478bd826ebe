// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry replay`: traces under several policies, in parallel; tables, JSON and a page of what came of them.
//!
//! The library replays; this reads traces, deals the work to threads and shows it.

pub mod description;
mod page;
mod picture;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use memferry_replay::event::{Clock, Trace};
use memferry_replay::machine::{Machine, Top};
use memferry_replay::outcome::Outcome;
use memferry_replay::policy::{Kind, ParamError};
use memferry_replay::replay::replay;
use memferry_replay::trace::{Limits, Reader};
use memferry_replay::truth::Truth;

use crate::cli::replay::ReplayArgs;
use crate::failure::{Failure, OrFail, worst};
use crate::results::{Results, Target, file_name};
use crate::ui::{Bar, Ui};

/// One trace with what is known of it.
pub struct Loaded {
    /// The file's name without its folder.
    pub file: String,
    pub trace: Trace,
    pub truth: Truth,
    /// The machine that it is replayed on.
    pub machine: Machine,
}

/// What came of one trace with a top tier of one size.
pub struct Case<'a> {
    pub loaded: &'a Loaded,
    /// By policy, in the order of [`Kind::ALL`].
    pub outcomes: Vec<Outcome>,
}

/// One replay.
struct Job {
    trace: usize,
    top_pages: u32,
    kind: Kind,
}

/// Replays the traces and shows what came of it.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let ui = Ui::new();
    ui.catch_interrupts()?;
    // A file that cannot be written is told before the work.
    let results = Results::open(&args.json, &args.traces)?;
    let others: Vec<PathBuf> = (args.traces.iter().chain(args.json.file()))
        .cloned()
        .collect();
    let html = (args.html.as_deref())
        .map(|path| Target::open_beside(path, &others))
        .transpose()?;
    let kinds = args.kinds();
    let loaded = load_all(args, &ui)?;
    let cases = replay_all(args, &loaded, &kinds, &ui)?;
    let save = |target: Target| {
        let page = page::render(&cases).or_fail("cannot write the page", "report this as a bug")?;
        target.write(&page)
    };
    let drawn = html.map_or(Ok(()), save);
    let shown = results.tell(Path::new("/"), &description::of(&cases), || {
        text::tables(&cases, Ui::columns())
    });
    worst([drawn, shown])
}

fn refused(error: &dyn std::error::Error) -> Failure {
    Failure::new(
        "nothing was replayed",
        error,
        "give a value in the allowed range; `memferry replay --help` lists the options",
    )
}

fn load_all(args: &ReplayArgs, ui: &Ui) -> Result<Vec<Loaded>, Failure> {
    let bar = ui.bar("reading", args.traces.len() as u64);
    let load = |path: &PathBuf| {
        bar.now(&file_name(path));
        let loaded = load(path, args);
        bar.step();
        loaded
    };
    args.traces.iter().map(load).collect()
}

fn load(path: &Path, args: &ReplayArgs) -> Result<Loaded, Failure> {
    let failed = |why: String| {
        let advice = match path.extension() {
            Some(extension) if extension == "json" => {
                format!("for results in this file: --json={}", path.display())
            }
            _ => "give files that `memferry trace` wrote, whole and unchanged".to_owned(),
        };
        Failure::new(format!("cannot replay {}", path.display()), why, advice)
    };
    let input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(|error| failed(error.to_string()))?),
    };
    let read = Reader::new(input, Limits::default()).and_then(Reader::trace);
    let (header, trace, _) = read.map_err(|error| failed(error.to_string()))?;
    if trace.events.is_empty() {
        return Err(failed("the trace has no access".to_owned()));
    }
    let usual = Machine::default();
    let per_miss = match (header.cache, trace.clock) {
        (None, Clock::Accesses) => usual.accesses_per_miss,
        // What passed a cache, or what a sampler of misses saw.
        _ => 1,
    };
    let machine = Machine {
        seed: args.seed,
        accesses_per_miss: per_miss,
        sample_period: args.sample.unwrap_or(usual.sample_period),
        walk_ms: args.walk.unwrap_or(usual.walk_ms),
        ..usual
    };
    Ok(Loaded {
        file: file_name(path),
        truth: Truth::of(&trace),
        trace,
        machine,
    })
}

/// Deals the replays to threads.
fn replay_all<'a>(
    args: &ReplayArgs,
    loaded: &'a [Loaded],
    kinds: &[Kind],
    ui: &Ui,
) -> Result<Vec<Case<'a>>, Failure> {
    let jobs = jobs(loaded, &args.top, kinds)?;
    let events = |job: &Job| loaded[job.trace].trace.events.len() as u64;
    let bar = ui.bar("replay", jobs.iter().map(events).sum());
    let workers = Workers {
        jobs: &jobs,
        loaded,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        bar: &bar,
        ui,
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let quit = AtomicBool::new(false);
    let (done, results) = channel();
    let work = || {
        while let Some((index, outcome)) = workers.one(&quit) {
            quit.fetch_or(outcome.is_err(), Ordering::Relaxed);
            // The receiver outlives the threads.
            let _ = done.send((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        let mut others = 1..cpus.min(jobs.len());
        // Where no more threads may start, those that run do all.
        others.all(|_| {
            std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .is_ok()
        });
        work();
    });
    drop(done);
    let mut outcomes = vec![None; jobs.len()];
    for (index, outcome) in results {
        outcomes[index] = outcome.map_err(|error| refused(&error))?;
    }
    let mut outcomes = outcomes.into_iter();
    let per_trace = args.top.len();
    let cases = (0..loaded.len() * per_trace).map(|case| {
        let outcomes: Option<Vec<Outcome>> = outcomes.by_ref().take(kinds.len()).collect();
        outcomes.map(|outcomes| Case {
            loaded: &loaded[case / per_trace],
            outcomes,
        })
    });
    let cases: Option<Vec<Case>> = cases.collect();
    cases.ok_or_else(|| {
        Failure::new(
            "stopped: nothing was written",
            "interrupted",
            "run it again",
        )
    })
}

fn jobs(loaded: &[Loaded], tops: &[Top], kinds: &[Kind]) -> Result<Vec<Job>, Failure> {
    let mut jobs = Vec::new();
    for (trace, of) in loaded.iter().enumerate() {
        for top in tops {
            let top_pages = top.pages(&of.trace).map_err(|error| refused(&error))?;
            jobs.extend(kinds.iter().map(|&kind| Job {
                trace,
                top_pages,
                kind,
            }));
        }
    }
    Ok(jobs)
}

/// What the threads share.
struct Workers<'a> {
    jobs: &'a [Job],
    loaded: &'a [Loaded],
    next: AtomicUsize,
    done: AtomicUsize,
    bar: &'a Bar,
    ui: &'a Ui,
}

impl Workers<'_> {
    /// Does the next job; none if there is none, or it is time to stop.
    fn one(&self, quit: &AtomicBool) -> Option<(usize, Result<Option<Outcome>, ParamError>)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let job = self.jobs.get(index)?;
        let stop = || self.ui.stopped() || quit.load(Ordering::Relaxed);
        if stop() {
            return None;
        }
        let of = &self.loaded[job.trace];
        self.bar.now(&format!("{}, {}", job.kind, of.file));
        let mut told = 0;
        let mut tell = |events: usize| {
            let done = self.done.fetch_add(events - told, Ordering::Relaxed) + events - told;
            told = events;
            self.bar.at(done as u64);
            !stop()
        };
        let outcome = replay(
            &of.trace,
            &of.truth,
            &of.machine,
            job.top_pages,
            job.kind,
            &mut tell,
        );
        tell(of.trace.events.len());
        Some((index, outcome))
    }
}
