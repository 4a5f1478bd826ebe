// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the time of a move goes: each lane reads the clock once after each step of each batch.

use std::cell::Cell;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// What a lane of a move did, or all of them together. Kept for moves through userfaultfd, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steps {
    /// Outside of the lanes' work, once and in the sum alone: reading the mappings, registering the range and ending that, waking the lanes.
    pub set_up: Duration,
    /// Looking for pages that are there, and on which nodes.
    pub scan: Duration,
    /// Finding free pages, and allocating them where there are none.
    pub populate: Duration,
    /// Registering the addresses that pages are staged at.
    pub register: Duration,
    /// Moving pages out of their places, the TLB flush included.
    pub unmap: Duration,
    /// Copying.
    pub copy: Duration,
    /// Copying by the kernel into pages that it allocates at the place (cold base pages on one node).
    pub fill: Duration,
    /// Moving pages into their places.
    pub remap: Duration,
    /// Giving source pages back, to the kernel or to the pool.
    pub give_back: Duration,
    /// Answering those who change mappings or touch a page that never was.
    pub answer: Duration,
    /// Waiting for other lanes, or for a fork of the process.
    pub wait: Duration,
    /// Batches.
    pub batches: u64,
    /// Bytes that were copied, also for a batch that went back.
    pub copied_bytes: u64,
    /// Refusals with EAGAIN that another attempt followed: a mapping of the range was being changed, or its locks were taken.
    pub eagains: u64,
    /// Other refusals that another attempt followed.
    pub retries: u64,
}

impl AddAssign for Steps {
    fn add_assign(&mut self, other: Steps) {
        self.set_up += other.set_up;
        self.scan += other.scan;
        self.populate += other.populate;
        self.register += other.register;
        self.unmap += other.unmap;
        self.copy += other.copy;
        self.fill += other.fill;
        self.remap += other.remap;
        self.give_back += other.give_back;
        self.answer += other.answer;
        self.wait += other.wait;
        self.batches += other.batches;
        self.copied_bytes += other.copied_bytes;
        self.eagains += other.eagains;
        self.retries += other.retries;
    }
}

/// The clock of one lane.
pub(crate) struct Laps {
    last: Cell<Instant>,
    steps: Cell<Steps>,
}

impl Laps {
    pub(crate) fn begin() -> Laps {
        Laps {
            last: Cell::new(Instant::now()),
            steps: Cell::default(),
        }
    }

    /// The time since the last lap belongs to the step that `of` names.
    pub(crate) fn lap(&self, of: impl FnOnce(&mut Steps) -> &mut Duration) {
        let now = Instant::now();
        let mut steps = self.steps.get();
        *of(&mut steps) += now - self.last.replace(now);
        self.steps.set(steps);
    }

    pub(crate) fn count(&self, of: impl FnOnce(&mut Steps) -> &mut u64) {
        self.add(of, 1);
    }

    pub(crate) fn add(&self, of: impl FnOnce(&mut Steps) -> &mut u64, more: usize) {
        let mut steps = self.steps.get();
        *of(&mut steps) += more as u64;
        self.steps.set(steps);
    }

    /// Another attempt follows what the kernel refused.
    pub(crate) fn refused(&self, errno: i32) {
        self.count(|s| match errno {
            libc::EAGAIN => &mut s.eagains,
            _ => &mut s.retries,
        });
    }

    pub(crate) fn end(self) -> Steps {
        self.steps.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_to_the_time_between_first_and_last() {
        let begun = Instant::now();
        let laps = Laps::begin();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(2));
            laps.lap(|s| &mut s.copy);
            laps.lap(|s| &mut s.wait);
            laps.count(|s| &mut s.batches);
        }
        laps.refused(libc::EAGAIN);
        laps.refused(libc::EINTR);
        let mut steps = laps.end();
        assert_eq!((steps.batches, steps.eagains, steps.retries), (3, 1, 1));
        assert!(steps.copy >= Duration::from_millis(6), "{steps:?}");
        assert!(steps.copy + steps.wait <= begun.elapsed(), "{steps:?}");
        let once = steps.copy;
        steps += steps;
        assert_eq!((steps.copy, steps.batches), (2 * once, 6));
    }
}
