// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that looks where pages are while others access them. Between the phases of a run it changes what was placed.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::load::Load;
use super::looks::Looks;
use super::memory::WorkMemory;
use super::oracle;
use super::pattern::Pattern;
use super::spec::{Placing, WorkSeen, WorkSpec};
use crate::failure::{Failure, OrFail};
use crate::nodes::call_failed;
use crate::promote::watch::every;
use crate::schema::gain::Truth;
use crate::timed;

/// Where the accessing threads and the one that looks meet.
pub struct Gate {
    /// All pass it before and after each phase.
    pub barrier: Barrier,
    /// Threads in the phase.
    running: AtomicUsize,
    /// Whether the last of them has left it.
    over: AtomicBool,
}

impl Gate {
    /// For so many accessing threads.
    pub fn new(threads: usize) -> Self {
        Self {
            barrier: Barrier::new(threads + 1),
            running: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Called by each thread at the end of a phase.
    pub fn leave(&self, watcher: &Thread) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over.store(true, Ordering::Release);
            watcher.unpark();
        }
    }
}

/// The thread that looks.
pub struct Follow<'a> {
    spec: &'a WorkSpec,
    pattern: &'a Pattern,
    memory: &'a mut WorkMemory,
    placements: &'a [Vec<usize>],
    /// The misses of each page by phases, where they are to be written.
    misses: Option<Vec<Vec<u32>>>,
    seen: WorkSeen,
    failure: Option<Failure>,
}

impl<'a> Follow<'a> {
    /// Nothing was seen yet.
    pub fn new(
        spec: &'a WorkSpec,
        pattern: &'a Pattern,
        memory: &'a mut WorkMemory,
        placements: &'a [Vec<usize>],
    ) -> Self {
        let writes = spec.misses.is_some() && !matches!(spec.placing, Placing::Best(_));
        Self {
            spec,
            pattern,
            memory,
            placements,
            misses: writes.then(Vec::new),
            seen: WorkSeen::default(),
            failure: None,
        }
    }

    /// Follows the threads to their end. After a failure it lets them pass at once.
    pub fn all(mut self, load: &Load, gate: &Gate) -> Result<WorkSeen, Failure> {
        let count = self.spec.counter.promoted();
        let (range, spec) = (self.memory.range(), self.spec);
        let mut looks = Looks::new(range.start, range.len(), &spec.top, count);
        if self.misses.is_some() {
            timed::watch(&range);
        }
        let mut run = Duration::ZERO;
        for phase in 0..self.pattern.phases() {
            let begun = self.begin(phase, &mut looks);
            self.noted(load, begun);
            let before = self.truth(load);
            load.operations.store(0, Ordering::Relaxed);
            load.busy_ns.store(0, Ordering::Relaxed);
            gate.running.store(spec.threads, Ordering::Release);
            gate.over.store(false, Ordering::Release);
            gate.barrier.wait();
            let looked = self.during(load, gate, &mut looks, run);
            let looked = looked.map(|length| run += length).map_err(call_failed);
            let after = self.truth(load);
            self.noted(load, looked);
            gate.barrier.wait();
            if let (Some(before), Some(after)) = (before, after) {
                *self.seen.truth.get_or_insert_default() += after.since(before);
            }
            let ended = self.end();
            self.noted(load, ended);
        }
        if self.misses.is_some() {
            timed::watch(&(range.start..range.start));
        }
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let (Some(path), Some(misses)) = (&spec.misses, &self.misses) {
            oracle::write(path, misses)?;
        }
        self.seen.top_share = looks.top_share();
        self.seen.stayed_pages = looks.stayed();
        self.seen.pages_in_top = self.memory.in_top()?;
        Ok(self.seen)
    }

    /// The totals of a timed machine.
    fn truth(&mut self, load: &Load) -> Option<Truth> {
        let truth = timed::truth().or_fail(UNANSWERED.0, UNANSWERED.1);
        self.noted(load, truth).flatten()
    }

    /// The value, or the run ends with its failure.
    fn noted<T>(&mut self, load: &Load, result: Result<T, Failure>) -> Option<T> {
        result
            .map_err(|failure| {
                load.stop.store(true, Ordering::Relaxed);
                self.failure.get_or_insert(failure);
            })
            .ok()
    }

    /// What comes before the clock of a phase begins.
    fn begin(&mut self, phase: usize, looks: &mut Looks<'_>) -> Result<(), Failure> {
        if let (1.., Some(next)) = (phase, self.placements.get(phase)) {
            self.memory.place(next)?;
        }
        if !self.placements.is_empty() {
            self.seen.placed.get_or_insert_default().0 += self.memory.placed_in_top()?;
        }
        let word = |at: usize| self.memory.word(at);
        let first = looks.begin(self.pattern, phase, word);
        self.seen.phases.push(vec![first.map_err(call_failed)?]);
        Ok(())
    }

    /// Looks until the last thread has left the phase; how long that was.
    fn during(
        &mut self,
        load: &Load,
        gate: &Gate,
        looks: &mut Looks<'_>,
        run: Duration,
    ) -> io::Result<Duration> {
        let started = Instant::now();
        let period = Duration::from_millis(self.spec.sample_ms);
        let samples = self.seen.phases.last_mut();
        let samples = samples.ok_or_else(|| io::Error::other("the phase has no begin"))?;
        every(period, &gate.over, |_| {
            let at = started.elapsed();
            let operations = load.operations.load(Ordering::Relaxed);
            let busy_ns = load.busy_ns.load(Ordering::Relaxed);
            let run_s = (run + at).as_secs_f64();
            samples.push(looks.look(at.as_secs_f64(), run_s, operations, busy_ns)?);
            Ok(())
        })?;
        Ok(started.elapsed())
    }

    /// What comes after a phase, outside of its time.
    fn end(&mut self) -> Result<(), Failure> {
        if let Some((_, kept)) = &mut self.seen.placed {
            *kept += self.memory.placed_in_top()?;
        }
        if let Some(phases) = &mut self.misses {
            let misses = timed::misses(&self.memory.range());
            phases.push(misses.or_fail(UNANSWERED.0, UNANSWERED.1)?);
        }
        Ok(())
    }
}

/// What fails when a timed machine does not answer, and what to try.
const UNANSWERED: (&str, &str) = (
    "cannot read what the timed machine counted",
    "run memferry and the lab of one version",
);
