// SPDX-License-Identifier: MIT OR Apache-2.0
//! One batch on its way: which pages are away from which places, where they are staged, and where they go.

use super::away::{AwayRun, AwayRuns};
use super::cursor::Run;
use crate::copy::Routine;
use crate::forkgate::Away;
use crate::pool::{Piece, SEGMENT};
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages of the largest batch, at the smallest page size that the library supports.
const MAX_PAGES: usize = SEGMENT / 4096;

/// The pages of one slot.
pub(crate) struct Batch {
    /// What is planned and not away, from its end backwards.
    pub planned: List<Run>,
    pub away: AwayRuns,
    /// Where the pages are staged.
    pub staged: Piece,
    /// Free pages that take the contents; `None`: the kernel allocates them place by place (`Kernel::fill`).
    pub dest: Option<Piece>,
    /// The free pages were there before.
    pub warm: bool,
    /// Lanes that have a share of it, and what copies instead of the migrator; set as it leaves its place.
    pub lanes: usize,
    pub routine: Option<Routine>,
    /// The span that it belongs to.
    pub span: u32,
    /// It was a THP and is one no longer: the kernel split it on its way out.
    pub split: bool,
    /// A copy failed: the batch goes back as it was.
    pub failed: AtomicBool,
    /// Pages that are back in their place.
    pub placed: PageSet,
    /// Pages among them that `Kernel::fill` copied there in the copy step.
    pub filled: PageSet,
    /// Keeps fork waiting.
    pub gate: Option<Away>,
}

impl Batch {
    /// With room for whatever becomes of it: each page of it is in one run, and a run has a page at least.
    pub(crate) fn new() -> Batch {
        let runs = SEGMENT / page_size();
        Batch {
            planned: List::with_capacity_in(runs, Pages),
            away: AwayRuns::with_room(runs),
            staged: Piece::default(),
            dest: None,
            warm: false,
            lanes: 1,
            routine: None,
            span: 0,
            split: false,
            failed: AtomicBool::new(false),
            placed: PageSet::default(),
            filled: PageSet::default(),
            gate: None,
        }
    }

    /// Starts over.
    pub(crate) fn clear(&mut self) {
        self.planned.clear();
        self.away.clear();
        self.staged = Piece::default();
        self.dest = None;
        self.split = false;
        self.failed = AtomicBool::new(false);
        self.placed = PageSet::default();
        self.filled = PageSet::default();
        self.gate = None;
    }

    /// Goes on after the first `len` bytes of the run that is next.
    pub(crate) fn skip(&mut self, len: usize) {
        if let Some(run) = self.planned.last_mut() {
            run.start += len;
            if run.start == run.end {
                self.planned.pop();
            }
        }
    }

    /// Whether nothing of it still has to come back.
    pub(crate) fn is_back(&self) -> bool {
        let is_back = |r: &AwayRun| r.gone || self.unplaced(r).is_none();
        self.away.runs().iter().all(is_back)
    }

    /// The first stretch that still has to be filled: place, offset, length, and whether its place is in doubt.
    pub(crate) fn to_fill(&self) -> Option<(usize, usize, usize, bool)> {
        self.away.there().find_map(|run| {
            let (at, len) = self.unplaced(run)?;
            Some((run.place + (at - run.offset), at, len, run.is_in_doubt()))
        })
    }

    /// The first stretch of a run that still has to come back: offset in the batch and length.
    pub(crate) fn unplaced(&self, run: &AwayRun) -> Option<(usize, usize)> {
        let end = run.offset + run.len;
        let first = self.placed.next(run.offset, end, false)?;
        let stop = self.placed.next(first, end, true).unwrap_or(end);
        Some((first, stop - first))
    }
}

/// A set of the batch's pages, named by their offset in it. Lanes add to it at the same time.
#[derive(Default)]
pub(crate) struct PageSet([AtomicU64; MAX_PAGES / 64]);

impl PageSet {
    /// Adds the whole pages of `len` bytes from `offset` on.
    pub(crate) fn add(&self, offset: usize, len: usize) {
        let (mut page, end) = (offset / page_size(), (offset + len) / page_size());
        while page < end {
            let (bit, count) = (page % 64, (end - page).min(64 - page % 64));
            self.0[page / 64].fetch_or(u64::MAX >> (64 - count) << bit, Ordering::Relaxed);
            page += count;
        }
    }

    /// Whether the page at `offset` is in it.
    pub(crate) fn has(&self, offset: usize) -> bool {
        let page = offset / page_size();
        self.0[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    /// Offset of the first page of `from .. end` that is in the set (`member`) or is not.
    fn next(&self, from: usize, end: usize, member: bool) -> Option<usize> {
        let (mut page, end) = (from / page_size(), end / page_size());
        while page < end {
            let word = self.0[page / 64].load(Ordering::Relaxed);
            let found = (if member { word } else { !word }) >> (page % 64);
            if found != 0 {
                page += found.trailing_zeros() as usize;
                return (page < end).then_some(page * page_size());
            }
            page = (page / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_set_agrees_with_one_page_at_a_time() {
        let page = page_size();
        for (from, count) in [
            (0, 1),
            (0, 64),
            (1, 63),
            (60, 10),
            (63, 130),
            (448, 64),
            (0, 512),
        ] {
            let set = PageSet::default();
            set.add(from * page, count * page);
            for at in 0..MAX_PAGES {
                assert_eq!(
                    set.has(at * page),
                    (from..from + count).contains(&at),
                    "{from} {count} {at}"
                );
            }
            assert_eq!(set.next(0, MAX_PAGES * page, true), Some(from * page));
            let after = (from + count < MAX_PAGES).then_some((from + count) * page);
            assert_eq!(set.next(from * page, MAX_PAGES * page, false), after);
            assert_eq!(set.next(from * page, (from + count) * page, false), None);
        }
    }

    #[test]
    fn what_is_placed_need_not_come_back() {
        let mut batch = Batch::new();
        batch.away.add(0x10000, 0x4000);
        let run = batch.away.runs()[0];
        batch.placed.add(0x1000, 0x1000);
        assert_eq!(batch.unplaced(&run), Some((0, 0x1000)));
        batch.placed.add(0, 0x1000);
        assert_eq!(batch.unplaced(&run), Some((0x2000, 0x2000)));
        batch.placed.add(0x2000, 0x2000);
        assert_eq!(batch.unplaced(&run), None);
    }
}
