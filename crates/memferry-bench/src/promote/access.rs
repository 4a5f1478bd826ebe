// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accesses: threads that load from and store to random pages of a region, in the same order in every run.
//!
//! A store counts up the first word of a cache line, so that a lost store shows in the sum of all counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::region::{LINE, PAGE};

/// Accesses between two looks at the clock.
const PART: u64 = 2048;

/// The same sequence in every run.
fn sequence(region: usize, thread: usize) -> fastrand::Rng {
    fastrand::Rng::with_seed((region as u64) << 32 | thread as u64)
}

/// One access: which line of which page, and whether it is a store.
fn choose(random: u64, pages: u64) -> (usize, bool) {
    // The upper half of the product of two numbers below 2^32 lies below the second.
    let page = (((random >> 32) * pages) >> 32) as usize;
    let line = (random >> 8) as usize % (PAGE / LINE);
    (page * PAGE + line * LINE, random & 1 == 1)
}

/// A region, and how far its accesses are.
pub struct Work<'a> {
    /// The address of the region.
    pub start: usize,
    /// Its pages, fewer than 2^32.
    pub pages: usize,
    /// Its number, which the sequence depends on.
    pub region: usize,
    /// Accesses of one thread.
    pub accesses: u64,
    /// When they end, made or not.
    pub deadline: Option<Duration>,
    /// Accesses made, of all threads.
    pub made: &'a AtomicU64,
    /// Stores among them.
    pub stores: &'a AtomicU64,
    /// Ends all threads early.
    pub stop: &'a AtomicBool,
}

impl Work<'_> {
    /// Makes the accesses of one thread.
    pub fn run(&self, thread: usize) {
        let mut random = sequence(self.region, thread);
        let started = Instant::now();
        let mut left = self.accesses;
        while left > 0 && !self.stop.load(Ordering::Relaxed) {
            let part = left.min(PART);
            let mut stores = 0;
            for _ in 0..part {
                let (at, store) = choose(random.u64(..), self.pages as u64);
                let line = (self.start + at) as *mut u64;
                if store {
                    // SAFETY: `at` lies in the region, at an aligned word that all threads use as an atomic.
                    unsafe { AtomicU64::from_ptr(line) }.fetch_add(1, Ordering::Relaxed);
                    stores += 1;
                } else {
                    // SAFETY: `at` lies in the region, and nobody writes a line's second word. Volatile: it must happen.
                    unsafe { line.add(1).read_volatile() };
                }
            }
            left -= part;
            self.stores.fetch_add(stores, Ordering::Relaxed);
            self.made.fetch_add(part, Ordering::Relaxed);
            if self.deadline.is_some_and(|of| started.elapsed() >= of) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    #[test]
    fn the_sequence_is_the_same_each_time_and_reaches_every_page() {
        let sequence = |region, thread| -> Vec<(usize, bool)> {
            let mut random = sequence(region, thread);
            (0..40_000).map(|_| choose(random.u64(..), 512)).collect()
        };
        assert_eq!(sequence(3, 1), sequence(3, 1));
        assert_ne!(sequence(3, 1), sequence(3, 0));
        assert_ne!(sequence(3, 1), sequence(2, 1));
        let of = sequence(0, 0);
        let mut pages = [0; 512];
        of.iter().for_each(|(at, _)| pages[at / PAGE] += 1);
        // 78 each on average; a page that no sequence reaches would never become hot.
        assert!(
            pages.iter().all(|&count| (30..140).contains(&count)),
            "{pages:?}"
        );
        let stores = of.iter().filter(|(_, store)| *store).count();
        assert!((19_000..21_000).contains(&stores), "{stores}");
    }

    /// Makes the accesses of so many threads to a region; it, the accesses, and the stores among them.
    fn accessed(threads: usize, accesses: u64, deadline: Option<Duration>) -> (Region, u64, u64) {
        let region = Region::new(2 << 20, false, 1).expect("memory");
        let (made, stores, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let work = Work {
            start: region.range().start,
            pages: 512,
            region: 0,
            accesses,
            deadline,
            made: &made,
            stores: &stores,
            stop: &stop,
        };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let work = &work;
                scope.spawn(move || work.run(thread));
            }
        });
        (region, made.into_inner(), stores.into_inner())
    }

    #[test]
    fn every_store_is_counted_in_the_memory() {
        let (region, made, stores) = accessed(2, 50_000, None);
        assert_eq!((made, region.added(1, 2)), (100_000, Ok(stores)));
        // SAFETY: inside the region, which nobody uses now.
        unsafe { ((region.range().start + 8) as *mut u64).write(1) };
        assert_eq!(region.added(1, 2), Err(8));
    }

    #[test]
    fn a_deadline_ends_it() {
        let (_, made, _) = accessed(1, u64::MAX, Some(Duration::from_millis(1)));
        assert!(made >= PART);
    }
}
