// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load of `--busy`: a thread on each CPU that computes all the time, and how much less it does while pages move.

use std::thread;
use std::time::Duration;

use memferry_linux::affinity;

use super::pinned::{PinnedThread, Since};
use crate::failure::Failure;

/// How long the threads compute with nothing beside them, to know what they can do.
const ALONE: Duration = Duration::from_millis(300);

/// Threads that compute until this value goes.
pub struct Spinners {
    threads: Vec<PinnedThread>,
    /// Rounds of all threads in a second while nothing moves.
    alone_per_s: f64,
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
        let spin = |cpu: u32| {
            let mut value = u64::from(cpu);
            PinnedThread::start(format!("busy{cpu}"), cpu, move || {
                for _ in 0..1000 {
                    value = std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                }
                1
            })
        };
        let cpus = affinity::allowed().map_err(failed)?.into_iter();
        let threads = cpus.map(spin).collect::<Result<_, _>>().map_err(failed)?;
        let mut spinners = Self {
            threads,
            alone_per_s: 0.0,
        };
        let since = spinners.since();
        thread::sleep(ALONE);
        spinners.alone_per_s = since.per_s(spinners.rounds());
        Ok(spinners)
    }

    /// Now.
    pub fn since(&self) -> Since {
        Since::now(self.rounds())
    }

    /// The part of what the threads do alone that they have not done since then. Noise can make it negative, and a mean needs that.
    pub fn lost(&self, since: &Since) -> f64 {
        1.0 - since.per_s(self.rounds()) / self.alone_per_s
    }

    fn rounds(&self) -> u64 {
        self.threads.iter().map(PinnedThread::done).sum()
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
        let before: Vec<u64> = spinners.threads.iter().map(PinnedThread::done).collect();
        // Each comes on, however busy the host is: this waits for it.
        for (of, before) in spinners.threads.iter().zip(before) {
            while of.done() == before {
                thread::yield_now();
            }
        }
        // All that they ever did, in no time.
        let more = Since::now(0);
        assert!(spinners.lost(&more) < 0.0);
        assert!(spinners.lost(&spinners.since()) <= 1.0);
    }
}
