// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages are hot: the records of many pages, updated by many threads without locks.
//!
//! A [`Tracker`] keeps one record per page, of the type that its parameter says: [`u8`] in default mode, [`u32`] in
//! precision mode. What an access or a sweep makes of a record is the core's decision ([`hotness`](crate::hotness)); how fast
//! pages may go, [`pace`](crate::pace)'s. It moves nothing.
//!
//! ```
//! use memferry_core::tracker::{Source, Tracker, TrackerOptions};
//!
//! # fn main() -> Result<(), memferry_core::tracker::TrackError> {
//! let tracker = Tracker::<u8>::new(TrackerOptions::default(), 0);
//! tracker.record(0x7f00_0000, Some(1), Source::HintFaults, 20)?;
//! let ready = tracker.record(0x7f00_0000, Some(1), Source::HintFaults, 90)?;
//! assert!(ready);
//! let hottest = tracker.hottest(100, 0, 512, |_page| true);
//! assert_eq!(hottest[0].page, 0x7f00_0000);
//! assert_eq!(hottest[0].node, Some(1));
//! # Ok(())
//! # }
//! ```

mod cell;
mod map;
mod pick;
mod sweep;
#[cfg(test)]
mod tests;
mod zeroes;

use std::sync::atomic as sync;

use crate::hotness::{Access, Record};
use map::{Map, Place};
use std::cell::Cell;
use std::io;
use std::sync::Mutex;

pub use crate::hotness::{
    Bounces, Cut, Exchange, Histogram, ParamError, Params, Policy, SECTION_PAGES, View,
};
pub use pick::Candidate;
pub use sweep::Swept;

/// Why an access was not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrackError {
    /// There is no such page.
    #[error("page {page:#x} cannot be tracked: pages are numbered from 0 to {:#x}", map::PAGES - 1)]
    Page {
        /// Its number.
        page: u64,
    },
    /// No memory for the records.
    #[error(
        "no memory for the records of the section of page {page:#x}: {source}; raise the limit of address space \
         (ulimit -v) or of mappings (vm.max_map_count)"
    )]
    Memory {
        /// The first page of the section that was accessed.
        page: u64,
        /// Why.
        source: io::Error,
    },
}

/// What reports accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Faults on pages that were made inaccessible to see who uses them.
    HintFaults,
    /// Accessed bits of page tables.
    PageTableScan,
    /// Samples of the hardware: PEBS, IBS, SPE.
    Samples,
    /// DAMON's regions.
    Damon,
}

impl Source {
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// How a [`Tracker`] counts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TrackerOptions<R> {
    /// The policy's numbers.
    pub policy: Policy<R>,
    /// For how many accesses a report of each [`Source`] stands, in its order; 0 ignores the source, more than
    /// [`WEIGHT_MAX`](crate::hotness::WEIGHT_MAX) counts as so many.
    pub weights: [u32; Source::COUNT],
}

impl<R: Record> Default for TrackerOptions<R> {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            weights: [1; Source::COUNT],
        }
    }
}

impl<R> TrackerOptions<R> {
    /// Sets [`policy`](Self::policy).
    pub fn policy(mut self, policy: Policy<R>) -> Self {
        self.policy = policy;
        self
    }

    /// Sets [`weights`](Self::weights).
    pub fn weights(mut self, weights: [u32; Source::COUNT]) -> Self {
        self.weights = weights;
        self
    }
}

/// Bytes that a tracker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Records, of whole sections. The kernel gives memory to those of which something was stored.
    pub records: u64,
    /// All else.
    pub other: u64,
}

/// The records of many pages.
///
/// Pages are numbers below 2^40: of a physical or virtual page of 4 KiB, or whatever the caller counts. Times are
/// milliseconds of the caller's clock; threads may be up to 128 ms apart (1024 ms in precision mode). Records are only
/// right while somebody calls [`Tracker::sweep`] at least every `sweep_ms`.
pub struct Tracker<R> {
    options: TrackerOptions<R>,
    map: Map<R>,
    /// Time and number of the last sweep. Held throughout a sweep: two at once would age twice.
    swept: Mutex<(u32, u32)>,
}

impl<R: Record> Tracker<R> {
    /// A tracker of no page yet; `time` is now.
    pub fn new(options: TrackerOptions<R>, time: u64) -> Self {
        Self {
            options,
            map: Map::new(),
            swept: Mutex::new((time as u32, 0)),
        }
    }

    /// How it counts.
    pub fn options(&self) -> &TrackerOptions<R> {
        &self.options
    }

    /// Replaces the policy. What was counted with another step or window means a little less for a while.
    pub fn set_policy(&mut self, policy: Policy<R>) {
        self.options.policy = policy;
    }

    /// Records an access to `page` from a CPU of `node`, if that is known, 0 to 1022. Returns whether the page became ready.
    ///
    /// Precision mode keeps the node of each page, default mode the one that most accesses to its section come from; a page
    /// that is accessed on and on has one vote per 128 ms.
    ///
    /// # Errors
    /// If there is no such page, or no memory for its record.
    #[inline]
    pub fn record(
        &self,
        page: u64,
        node: Option<u16>,
        source: Source,
        time: u64,
    ) -> Result<bool, TrackError> {
        let place = self.map.get_or_make(page)?;
        // Most accesses end here: they change nothing.
        let seen = cell::record::<R>(place.word.load(sync::Ordering::Relaxed), place.lane);
        if seen.settled(time as u32, node) {
            return Ok(false);
        }
        let access = Access {
            now: time as u32,
            weight: self.options.weights[source as usize],
            random: random(),
            node,
        };
        Ok(self.update(&place, &access))
    }

    /// The same of an access of any weight, and with the caller's random numbers: what is done is then the same each time.
    ///
    /// # Errors
    /// As [`Tracker::record`].
    #[inline]
    pub fn record_access(&self, page: u64, access: &Access) -> Result<bool, TrackError> {
        let place = self.map.get_or_make(page)?;
        Ok(self.update(&place, access))
    }

    /// Records an access where it belongs. Returns whether its page became ready.
    fn update(&self, place: &Place<'_>, access: &Access) -> bool {
        let policy = &self.options.policy;
        let (before, after) = cell::update::<R>(place.word, place.lane, |record| {
            record.accessed(policy, access)
        });
        if after != before {
            place.section.vote::<R>(access.node);
        }
        after.ready() && !before.ready()
    }

    /// Records accesses to many pages, all at one time and of one source: a source's buffer. Returns how many became ready.
    ///
    /// # Errors
    /// As [`Tracker::record`]; what comes before the first bad page is recorded.
    pub fn record_all(
        &self,
        pages: &[u64],
        node: Option<u16>,
        source: Source,
        time: u64,
    ) -> Result<usize, TrackError> {
        let policy = self.options.policy;
        let mut access = Access {
            now: time as u32,
            weight: self.options.weights[source as usize],
            random: random(),
            node,
        };
        let (mut ready, mut at) = (0, 0);
        while let Some(&page) = pages.get(at) {
            // One look for the section, then all that follow in it.
            let section = self.map.get_or_make(page)?.section;
            let words = section.words();
            let first = page - page % SECTION_PAGES as u64;
            let run = pages[at..]
                .iter()
                .take_while(|&&page| page.wrapping_sub(first) < SECTION_PAGES as u64);
            for &page in run {
                let index = (page - first) as usize;
                let (word, lane) = (index / cell::lanes::<R>(), index % cell::lanes::<R>());
                access.random = access.random.wrapping_mul(0x915f_77f5).wrapping_add(1);
                let (before, after) = cell::update::<R>(&words[word], lane, |record| {
                    record.accessed(&policy, &access)
                });
                ready += usize::from(after.ready() && !before.ready());
                if after != before {
                    section.vote::<R>(node);
                }
                at += 1;
            }
        }
        Ok(ready)
    }

    /// What is known of a page.
    pub fn view(&self, page: u64, time: u64) -> View {
        let Some(place) = self.map.get(page) else {
            return R::default().view(time as u32);
        };
        let record = cell::record::<R>(place.word.load(sync::Ordering::Relaxed), place.lane);
        self.with_node(record.view(time as u32), place.section)
    }

    /// A view with the node of its section, if it has none of its own.
    fn with_node(&self, view: View, section: &map::Section) -> View {
        View {
            node: view.node.or_else(|| section.majority()),
            ..view
        }
    }

    /// Takes a ready page out of the queue; false if it was not ready, or another thread took it. All that is known of it is
    /// kept. Call it when a move begins, [`Tracker::unclaim`] if that is refused.
    pub fn claim(&self, page: u64) -> bool {
        self.map.get(page).is_some_and(|place| {
            let (before, after) = cell::update::<R>(place.word, place.lane, R::claimed);
            before.ready() && !after.ready()
        })
    }

    /// Gives a page back to the queue, with the rank that it has: refused is not forgotten.
    pub fn unclaim(&self, page: u64) {
        if let Some(place) = self.map.get(page) {
            cell::update::<R>(place.word, place.lane, R::unclaimed);
        }
    }

    /// Forgets a page: it was freed.
    pub fn forget(&self, page: u64) {
        if let Some(place) = self.map.get(page) {
            cell::update::<R>(place.word, place.lane, |_| R::default());
        }
    }

    /// Bytes that it has.
    pub fn memory(&self) -> Memory {
        let (records, tree) = self.map.bytes();
        Memory {
            records,
            other: tree + size_of::<Self>() as u64,
        }
    }
}

/// 32 random bits, of this thread's own sequence: steps of an odd number, mixed. Only the step waits for the one before.
#[inline]
fn random() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let x = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(x);
        ((x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
    })
}
