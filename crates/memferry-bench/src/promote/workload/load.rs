// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of a workload: they make its operations until a phase is over, flat out or at a rate, and count them.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;
use rustix::io::Errno;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::pattern::Sequence;

/// Accesses between two looks at the clock, about.
const PART: usize = 1024;
/// The last part of a phase whose latencies are also counted by themselves.
const LAST: f64 = 0.75;

/// The words of a cache line: loads read the last one, stores count up one of the others.
pub mod words {
    /// The word that loads read.
    pub const READ: usize = 7;

    /// How many words of a line so many threads count in: each has its own, while there are enough.
    pub fn counted(threads: usize) -> usize {
        threads.min(READ)
    }
}

/// What all threads of a run share.
pub struct Load {
    /// The address of the memory.
    pub start: usize,
    pub threads: usize,
    /// Accesses of an operation, about.
    pub accesses: usize,
    /// Nanoseconds from one operation of a thread to the next; none flat out.
    pub period_ns: Option<f64>,
    /// Operations of all threads, in this phase.
    pub operations: AtomicU64,
    /// Time in them.
    pub busy_ns: AtomicU64,
    /// Ends all threads early.
    pub stop: AtomicBool,
}

/// What one thread did.
pub struct Done {
    pub stores: u64,
    /// Latencies of operations with a rate, and those of the last quarters of the phases.
    pub latency: Option<(Histogram<u64>, Histogram<u64>)>,
    pub system_us: u64,
}

impl Done {
    /// Nothing yet.
    pub fn new(load: &Load) -> Self {
        // Two digits, so that the histogram stays in a CPU's own caches.
        let empty = || Histogram::new_with_bounds(1, 600_000_000_000, 2).expect("constant bounds");
        Self {
            stores: 0,
            latency: load.period_ns.map(|_| (empty(), empty())),
            system_us: 0,
        }
    }
}

impl Load {
    /// Makes the operations of one thread for so many nanoseconds.
    pub fn run(&self, sequence: &mut Sequence<'_>, thread: usize, length_ns: u64, done: &mut Done) {
        // With a word of its own in each line a thread needs no locked instruction, which would wait for all earlier loads.
        let (word, alone) = (thread % words::READ, self.threads <= words::READ);
        let (start, mut stores) = (self.start, 0);
        let mut touch = |at: usize, store: bool| {
            let line = (start + at) as *mut u64;
            if store {
                // SAFETY: `at` is the offset of a line of the memory; its words are used as atomics by all threads that write.
                let word = unsafe { AtomicU64::from_ptr(line.add(word)) };
                if alone {
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                } else {
                    word.fetch_add(1, Ordering::Relaxed);
                }
                stores += 1;
                0
            } else {
                // SAFETY: as above, and nobody writes this word. Volatile: it must happen.
                unsafe { line.add(words::READ).read_volatile() }
            }
        };
        match self.period_ns {
            None => self.flat_out(sequence, length_ns, &mut touch),
            Some(period) => self.at_rate(sequence, thread, period, length_ns, &mut touch, done),
        }
        done.stores += stores;
    }

    fn flat_out(
        &self,
        sequence: &mut Sequence<'_>,
        length_ns: u64,
        touch: &mut impl FnMut(usize, bool) -> u64,
    ) {
        let part = (PART / self.accesses).max(1);
        let from = now_ns();
        let mut before = from;
        while before - from < length_ns && !self.stop.load(Ordering::Relaxed) {
            for _ in 0..part {
                sequence.operation(touch);
            }
            let now = now_ns();
            self.count(part as u64, now - before);
            before = now;
        }
    }

    fn at_rate(
        &self,
        sequence: &mut Sequence<'_>,
        thread: usize,
        period_ns: f64,
        length_ns: u64,
        touch: &mut impl FnMut(usize, bool) -> u64,
        done: &mut Done,
    ) {
        // A request does not wait for the slack of timers, 50 us by default.
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        let from = now_ns();
        let last_from = from + (length_ns as f64 * LAST) as u64;
        // Threads begin one after another, so that they do not all wake at one moment.
        let first = from as f64 + period_ns * thread as f64 / self.threads as f64;
        for number in 0_u64.. {
            let due = (first + number as f64 * period_ns) as u64;
            sleep_until(due);
            let began = now_ns();
            if began - from >= length_ns || self.stop.load(Ordering::Relaxed) {
                return;
            }
            sequence.operation(touch);
            let ended = now_ns();
            self.count(1, ended - began);
            if let Some((all, last)) = &mut done.latency {
                all.saturating_record(ended - due);
                if due >= last_from {
                    last.saturating_record(ended - due);
                }
            }
        }
    }

    fn count(&self, operations: u64, busy_ns: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }
}

/// The monotonic clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps as a server waits for its next request; not at all where that has come already.
fn sleep_until(at_ns: u64) {
    if now_ns() >= at_ns {
        return;
    }
    let until = Timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    // A signal ends the sleep early.
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::workload::{Memory, Workload};
    use crate::promote::workload::pattern::Pattern;
    use crate::region::Region;

    fn run(
        threads: usize,
        workload: Workload,
        period_ns: Option<f64>,
        ms: u64,
    ) -> (Region, Load, Vec<Done>) {
        let region = Region::new(16 << 20, false, 1).expect("memory");
        let pattern = Pattern::new(workload, Memory::Base, 16 << 20, 0.99, 1);
        let load = Load {
            start: region.range().start,
            threads,
            accesses: 1,
            period_ns,
            operations: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let work = |thread, ()| {
            let mut done = Done::new(&load);
            let mut sequence = pattern.sequence(thread, threads, 0);
            load.run(&mut sequence, thread, ms * 1_000_000, &mut done);
            done
        };
        let (_, done) = crate::threads::together(threads, || (), work, || ()).expect("threads");
        (region, load, done)
    }

    #[test]
    fn every_store_of_every_thread_is_in_the_memory() {
        for threads in [1, 2, 9] {
            let (region, load, done) = run(threads, Workload::Zipf, None, 20);
            let stores: u64 = done.iter().map(|of| of.stores).sum();
            let operations = load.operations.into_inner();
            assert!(
                stores > operations / 3 && operations > 1000,
                "{stores} of {operations}"
            );
            assert_eq!(region.added(words::counted(threads), 1), Ok(stores));
            assert!(load.busy_ns.into_inner() >= 20_000_000 * threads as u64);
            assert!(done[0].latency.is_none());
        }
    }

    #[test]
    fn operations_come_at_their_rate_and_wait_for_no_other() {
        let (_, load, done) = run(2, Workload::Served, Some(2_000_000.0), 100);
        let operations = load.operations.into_inner();
        // 50 of each thread, fewer only if this machine stood still.
        assert!((10..=100).contains(&operations), "{operations}");
        let (all, last) = done[0].latency.as_ref().expect("latencies");
        let both: u64 = done
            .iter()
            .map(|of| of.latency.as_ref().map_or(0, |of| of.0.len()))
            .sum();
        assert_eq!(both, operations);
        assert!(last.len() < all.len(), "{} of {}", last.len(), all.len());
        assert!(load.busy_ns.into_inner() < 200_000_000);
    }
}
