// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load of `--busy`: a thread on each CPU that computes all the time, and how much less it does while pages move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memferry_linux::affinity;

use crate::failure::Failure;

/// How long the threads compute with nothing beside them, to know what they can do.
const ALONE: Duration = Duration::from_millis(300);

/// Threads that compute until this value goes.
pub struct Spinners {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
    /// Rounds of all threads in a second while nothing moves.
    alone_per_s: f64,
}

struct Work {
    stop: AtomicBool,
    /// Rounds of each thread.
    rounds: Vec<Padded>,
}

/// On a cache line of its own: no thread waits for another's counter.
#[repr(align(128))]
struct Padded(AtomicU64);

/// A moment, and how far the threads had come.
pub struct Since {
    at: Instant,
    rounds: u64,
}

impl Spinners {
    /// Starts a thread on each CPU that this process may use, and lets them compute alone for a moment.
    ///
    /// # Errors
    /// A thread cannot be started or bound to its CPU.
    pub fn start() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let next = "raise RLIMIT_NPROC, or leave out --busy";
            Failure::new("cannot keep all CPUs busy", error, next)
        };
        let cpus = affinity::allowed().map_err(failed)?;
        let work = Arc::new(Work {
            stop: AtomicBool::new(false),
            rounds: cpus.iter().map(|_| Padded(AtomicU64::new(0))).collect(),
        });
        let mut spinners = Self {
            work,
            threads: Vec::new(),
            alone_per_s: 0.0,
        };
        for (at, cpu) in cpus.into_iter().enumerate() {
            let work = Arc::clone(&spinners.work);
            let (ready, bound) = std::sync::mpsc::channel();
            let thread = thread::Builder::new()
                .name(format!("busy{cpu}"))
                .spawn(move || {
                    let pinned = affinity::pin(&[cpu]);
                    let starts = pinned.is_ok();
                    if ready.send(pinned).is_ok() && starts {
                        work.spin(at);
                    }
                });
            spinners.threads.push(thread.map_err(failed)?);
            bound.recv().unwrap_or(Ok(())).map_err(failed)?;
        }
        let since = spinners.since();
        thread::sleep(ALONE);
        spinners.alone_per_s = spinners.per_s(&since);
        Ok(spinners)
    }

    /// Now.
    pub fn since(&self) -> Since {
        Since {
            at: Instant::now(),
            rounds: self.rounds(),
        }
    }

    /// The part of what the threads do alone that they have not done since then; 0 where they did as much.
    pub fn lost(&self, since: &Since) -> f64 {
        (1.0 - self.per_s(since) / self.alone_per_s).max(0.0)
    }

    fn per_s(&self, since: &Since) -> f64 {
        let rounds = self.rounds() - since.rounds;
        rounds as f64 / since.at.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn rounds(&self) -> u64 {
        let rounds = self.work.rounds.iter();
        rounds.map(|of| of.0.load(Ordering::Relaxed)).sum()
    }
}

impl Work {
    fn spin(&self, at: usize) {
        let own = &self.rounds[at].0;
        let mut value = at as u64;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                value = std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            }
            own.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.work.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a thread that only counts changes no result.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_has_its_thread_and_all_come_on() {
        let spinners = Spinners::start().expect("threads");
        let cpus = affinity::allowed().expect("CPUs").len();
        assert_eq!(spinners.threads.len(), cpus);
        assert!(spinners.alone_per_s > 0.0);
        let before: Vec<u64> = (spinners.work.rounds.iter())
            .map(|of| of.0.load(Ordering::Relaxed))
            .collect();
        // Each comes on, however busy the host is: this waits for it.
        for (of, before) in spinners.work.rounds.iter().zip(before) {
            while of.0.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
        let since = spinners.since();
        assert!((0.0..=1.0).contains(&spinners.lost(&since)));
    }
}
