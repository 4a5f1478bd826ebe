// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of a run of a workload: places its memory, makes the operations while it looks where the pages are, and compares
//! every byte afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::follow::{Follow, Gate};
use super::load::{Done, Load};
use super::memory::WorkMemory;
use super::oracle;
use super::pattern::Pattern;
use super::spec::{WorkSeen, WorkSpec};
use crate::args::workload::Workload;
use crate::failure::Failure;
use crate::promote::spec::Message;
use crate::promote::worker::{await_word, look_from_elsewhere, pin, say, system_time_us};
use crate::schema::Quantiles;
use crate::stall::quantiles;
use crate::threads;

/// Serves one run to the process at the other end of stdin and stdout.
pub fn run(spec: &WorkSpec) -> Result<(), Failure> {
    let pattern = Pattern::new(spec.workload, spec.memory, spec.bytes, spec.skew, spec.seed);
    let mut memory = WorkMemory::new(spec)?;
    let load = |at: usize| memory.word(at);
    let placements = oracle::placements(spec, &pattern, memory.folio, load)?;
    if let Some(first) = placements.first() {
        memory.place(first)?;
    }
    say(&Message::Ready {
        filled: memory.filling.bytes(),
        locked: memory.filling.locked_bytes(),
    })?;
    await_word()?;
    let (seen, stores) = work(spec, &pattern, &mut memory, &placements)?;
    say(&Message::Worked(Box::new(seen)))?;
    await_word()?;
    say(&Message::Checked(memory.check(stores, spec.threads)?))
}

/// All phases; what was seen, and the stores.
fn work(
    spec: &WorkSpec,
    pattern: &Pattern,
    memory: &mut WorkMemory,
    placements: &[Vec<usize>],
) -> Result<(WorkSeen, u64), Failure> {
    let phases = pattern.phases();
    let length = Duration::from_secs_f64(spec.seconds / phases as f64);
    let load = Load {
        start: memory.range().start,
        threads: spec.threads,
        accesses: match spec.workload {
            Workload::Served => 8,
            // A level of the tree each.
            Workload::Chase => (spec.bytes / 64).ilog2() as usize,
            _ => 1,
        },
        period_ns: spec.rate.map(|rate| 1e9 / rate as f64),
        operations: AtomicU64::new(0),
        busy_ns: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    look_from_elsewhere(&spec.cpus);
    let gate = Gate::new(spec.threads);
    let watcher = std::thread::current();
    let access = |thread, ()| {
        let mut done = Done::new(&load);
        let mut sequence = pattern.sequence(thread, spec.threads, 0);
        for phase in 0..phases {
            if phase > 0 {
                sequence.turn();
            }
            gate.barrier.wait();
            load.run(&mut sequence, thread, length.as_nanos() as u64, &mut done);
            gate.leave(&watcher);
            gate.barrier.wait();
        }
        done.system_us = system_time_us();
        done
    };
    let follow = || Follow::new(spec, pattern, memory, placements).all(&load, &gate);
    let (seen, done) = threads::together(spec.threads, || pin(&spec.cpus), access, follow)
        .map_err(threads::not_started(spec.threads))?;
    let mut seen = seen?;
    seen.system_s = done.iter().map(|of| of.system_us).sum::<u64>() as f64 / 1e6;
    seen.latency = latency(&done);
    let stores = done.iter().map(|of| of.stores).sum();
    Ok((seen, stores))
}

/// Of all threads, of the run and of the last quarters of its phases.
fn latency(done: &[Done]) -> Option<(Quantiles, Quantiles)> {
    let of = done.iter().map(|of| of.latency.as_ref());
    let of: Vec<&(Histogram<u64>, Histogram<u64>)> = of.collect::<Option<_>>()?;
    let (first, rest) = of.split_first()?;
    let (mut all, mut last) = (*first).clone();
    for (more, more_last) in rest {
        // Their bounds are the same.
        all.add(more).ok()?;
        last.add(more_last).ok()?;
    }
    Some((quantiles(&all), quantiles(&last)))
}
