// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of one run: puts its memory in place, makes the accesses when it is told to, and compares every byte
//! afterwards. It changes no setting of the kernel.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memferry_linux::affinity;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::access::Work;
use super::filling::{Filling, Want, on, reserve};
use super::program;
use super::run::NAME;
use super::spec::{Job, Message, Seen, Spec};
use super::wakers;
use super::watch::Watch;
use super::workload::process;
use crate::cpu_time::of_thread;
use crate::failure::{Failure, OrFail};
use crate::nodes::{bring, call_failed};
use crate::region::{PAGE, Region};
use crate::threads;

/// Serves one run to the process at the other end of stdin and stdout, or wakes often on a CPU.
pub fn serve(spec: &str) -> Result<(), Failure> {
    if let Some(cpu) = spec.strip_prefix(wakers::ARGUMENT) {
        return wakers::wake_on(cpu);
    }
    // It ends with the command, whatever ends that, and is the first that the kernel takes when memory is short.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // The daemon knows it by this name.
    let _ = std::fs::write("/proc/self/comm", NAME);
    let job: Job = serde_json::from_str(spec)
        .or_fail("not a run of bench promote", "run `memferry bench promote`")?;
    let ran = match &job {
        Job::Program(spec) => program::process::run(spec),
        Job::Workload(spec) => process::run(spec),
        Job::Scenario(spec) => run(spec),
    };
    match ran {
        Ok(()) => Ok(()),
        Err(Failure::Told(told)) => say(&Message::Failed([told.what, told.why, told.next])),
        Err(other) => Err(other),
    }
}

fn run(spec: &Spec) -> Result<(), Failure> {
    let memory = Memory::new(spec)?;
    say(&Message::Ready {
        filled: memory.filling.bytes(),
        locked: memory.filling.locked_bytes(),
    })?;
    await_word()?;
    let (seen, stores) = memory.access(spec)?;
    say(&Message::Done(Box::new(seen)))?;
    await_word()?;
    say(&Message::Checked(memory.check(&stores, spec.threads)?))
}

pub fn say(message: &Message) -> Result<(), Failure> {
    let line =
        serde_json::to_string(message).or_fail("cannot say it as JSON", "report this as a bug")?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(Failure::stdout)
}

/// Waits for a line; the command that has gone is told as a broken pipe.
pub fn await_word() -> Result<(), Failure> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => Err(Failure::BrokenPipe),
        Ok(_) => Ok(()),
    }
}

/// The memory of a run.
struct Memory {
    regions: Vec<Region>,
    /// What fills the top tier.
    filling: Filling,
}

impl Memory {
    /// Puts the regions on the lower node, and fills the top tier if that is wanted.
    fn new(spec: &Spec) -> Result<Self, Failure> {
        let threads = spec.threads;
        let above = spec.fill.then(|| reserve(&spec.top)).transpose()?;
        let region = |_| on(spec.lower, spec.region_bytes, threads);
        let regions: Vec<Region> = (0..spec.regions).map(region).collect::<Result<_, _>>()?;
        drop(above);
        for region in &regions {
            let pages = Vec::from_iter(region.range().step_by(PAGE));
            bring(&pages, spec.lower)?;
            if spec.even {
                bring(&pages[pages.len() / 2..], spec.top[0])?;
            }
        }
        let mut filling = Filling::default();
        if spec.fill {
            let want = Want {
                top: &spec.top,
                threads,
                idle_bytes: spec.idle_bytes,
                left_bytes: 0,
            };
            filling = Filling::new(&want)?;
            filling.check_full(&want, spec.region_bytes.max(64 << 20))?;
        }
        Ok(Self { regions, filling })
    }

    /// Makes all accesses; gives what was seen, and the stores to each region.
    fn access(&self, spec: &Spec) -> Result<(Seen, Vec<u64>), Failure> {
        let mut book = Seen::default();
        let mut stores = Vec::new();
        look_from_elsewhere(&spec.cpus);
        let started = Instant::now();
        for (number, region) in self.regions.iter().enumerate() {
            let (made, stored, stop) =
                (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
            let work = Work {
                start: region.range().start,
                pages: region.range().len() / PAGE,
                region: number,
                accesses: spec.accesses,
                deadline: spec.most_ms.map(Duration::from_millis),
                made: &made,
                stores: &stored,
                stop: &stop,
            };
            let count = spec.counter.promoted();
            let mut watch = Watch::new(work.start, work.pages, &spec.top, count);
            watch.begin(started, &mut book).map_err(call_failed)?;
            let (seconds, system) = together(spec, &work, &mut watch, started, &mut book)?;
            book.seconds += seconds;
            book.system_s += system;
            stores.push(stored.into_inner());
        }
        Ok((book, stores))
    }

    /// Compares every byte with what it must be; gives their number.
    fn check(&self, stores: &[u64], threads: usize) -> Result<u64, Failure> {
        let mut bytes = 0;
        let changed = |what: &'static str| {
            move |at| lost(format!("byte {at} of {what} is not what was written"))
        };
        for (region, &expected) in self.regions.iter().zip(stores) {
            let counted = region.added(1, threads).map_err(changed("a region"))?;
            if counted != expected {
                let why = format!("{counted} of {expected} stores are in the memory");
                return Err(lost(why));
            }
            bytes += region.range().len() as u64;
        }
        let idle = self.filling.check(threads);
        Ok(bytes + idle.map_err(changed("the idle memory"))?)
    }
}

/// Runs the threads of one region to their end, and looks meanwhile; the time and the system time that they took.
fn together(
    spec: &Spec,
    work: &Work<'_>,
    watch: &mut Watch<'_>,
    started: Instant,
    book: &mut Seen,
) -> Result<(f64, f64), Failure> {
    let (done, running) = (AtomicBool::new(false), AtomicU64::new(spec.threads as u64));
    let system_us = AtomicU64::new(0);
    let end_us = AtomicU64::new(0);
    let watcher = std::thread::current();
    let access = |thread, ()| {
        let from = Instant::now();
        work.run(thread);
        end_us.fetch_max(from.elapsed().as_micros() as u64, Ordering::Relaxed);
        system_us.fetch_add(system_time_us(), Ordering::Relaxed);
        if running.fetch_sub(1, Ordering::AcqRel) == 1 {
            done.store(true, Ordering::Release);
            watcher.unpark();
        }
    };
    let follow = || {
        let period = Duration::from_millis(spec.sample_ms);
        let followed = watch.follow(period, work.made, &done, started, book);
        if followed.is_err() {
            work.stop.store(true, Ordering::Relaxed);
        }
        followed
    };
    let (followed, _) = threads::together(spec.threads, || pin(&spec.cpus), access, follow)
        .map_err(threads::not_started(spec.threads))?;
    followed.map_err(call_failed)?;
    let seconds = |us: AtomicU64| us.into_inner() as f64 / 1e6;
    Ok((seconds(end_us), seconds(system_us)))
}

/// The calling thread runs on these CPUs. Without the permission it runs where it may.
pub fn pin(cpus: &[u32]) {
    let _ = affinity::pin(cpus);
}

/// Who looks leaves the CPUs of those who access, if this process may use others.
pub fn look_from_elsewhere(cpus: &[u32]) {
    let mut others = affinity::allowed().unwrap_or_default();
    others.retain(|cpu| !cpus.contains(cpu));
    if !others.is_empty() {
        pin(&others);
    }
}

/// System time of the calling thread.
pub fn system_time_us() -> u64 {
    let time = of_thread().ru_stime;
    (time.tv_sec * 1_000_000 + time.tv_usec) as u64
}

pub fn lost(why: String) -> Failure {
    Failure::new(
        "memory was changed while its pages were promoted and demoted",
        why,
        "report this with the machine's `memferry topology` and `memferry kernel status`",
    )
}
