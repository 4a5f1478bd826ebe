// SPDX-License-Identifier: MIT OR Apache-2.0
//! One batch on its way: which pages are away from which places, where they are staged, and where they go.

use super::cursor::{Kind, Run};
use crate::forkgate::Away;
use crate::pool::{Piece, SEGMENT};
use crate::sys::page_size;
use memferry_core::Dealt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Pages of the largest batch, at the smallest page size that the library supports.
const MAX_PAGES: usize = SEGMENT / 4096;

/// A run of pages that is away from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AwayRun {
    /// Where it came from.
    pub origin: usize,
    /// Where it belongs: the same, unless mremap moved its mapping meanwhile.
    pub place: usize,
    /// Where it lies in the batch, bytes from its start.
    pub offset: usize,
    pub len: usize,
    /// Its owner threw it away meanwhile (MADV_DONTNEED, munmap): it must not come back.
    pub gone: bool,
}

/// The pages of one slot.
pub(crate) struct Batch {
    pub kind: Option<Kind>,
    /// What is planned and not away, from its end backwards.
    pub planned: Vec<Run>,
    /// What is away.
    pub away: Vec<AwayRun>,
    /// Bytes that are away.
    pub bytes: usize,
    /// Where the pages are staged.
    pub staged: Piece,
    /// Free pages that take the contents; `None`: the kernel allocates them place by place (`Kernel::fill`).
    pub dest: Option<Piece>,
    /// Which lane copies what.
    pub deal: Dealt,
    /// The lanes of `deal` that got something.
    pub shares: Vec<usize>,
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
    pub(crate) fn new(deal: Dealt) -> Batch {
        Batch {
            kind: None,
            planned: Vec::with_capacity(MAX_PAGES),
            away: Vec::with_capacity(2 * MAX_PAGES),
            bytes: 0,
            staged: Piece::default(),
            dest: None,
            shares: Vec::with_capacity(deal.deal().lanes()),
            deal,
            split: false,
            failed: AtomicBool::new(false),
            placed: PageSet::default(),
            filled: PageSet::default(),
            gate: None,
        }
    }

    /// Starts over.
    pub(crate) fn clear(&mut self) {
        self.kind = None;
        self.planned.clear();
        self.away.clear();
        self.bytes = 0;
        self.staged = Piece::default();
        self.dest = None;
        self.split = false;
        self.failed = AtomicBool::new(false);
        self.placed = PageSet::default();
        self.filled = PageSet::default();
        self.gate = None;
    }

    /// Forgets the run that is next, when nothing of it is left.
    pub(crate) fn drop_empty_run(&mut self) {
        if self.planned.last().is_some_and(|run| run.len == 0) {
            self.planned.pop();
        }
    }

    /// Notes a page that came away.
    pub(crate) fn add_away(&mut self, place: usize, len: usize) {
        let offset = self.bytes;
        // One that is gone stays gone, and one that mremap took along does not come from there.
        let continues = |last: &AwayRun| {
            !last.gone
                && [last.place, last.origin].map(|at| at + last.len) == [place; 2]
                && last.offset + last.len == offset
        };
        match self.away.last_mut() {
            Some(last) if continues(last) => last.len += len,
            _ => self.away.push(AwayRun {
                origin: place,
                place,
                offset,
                len,
                gone: false,
            }),
        }
        self.bytes += len;
    }

    /// Whether the page at `addr` is away and will come back.
    pub(crate) fn holds(&self, addr: usize) -> bool {
        self.away
            .iter()
            .any(|r| !r.gone && (r.place..r.place + r.len).contains(&addr))
    }

    /// Its owner threw `range` away.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        self.split_at(range.start);
        self.split_at(range.end);
        for run in self.away.iter_mut().filter(|r| range.contains(&r.place)) {
            run.gone = true;
        }
    }

    /// Its owner moved `range` to `to`.
    pub(crate) fn relocate(&mut self, range: &Range<usize>, to: usize) {
        self.split_at(range.start);
        self.split_at(range.end);
        let moved = |r: &&mut AwayRun| !r.gone && range.contains(&r.place);
        for run in self.away.iter_mut().filter(moved) {
            run.place = to + (run.place - range.start);
        }
    }

    /// Makes a run begin at `addr` if one holds it in its middle.
    fn split_at(&mut self, addr: usize) {
        // A run that is gone may have shared its addresses with one that was moved there later.
        let inside = |r: &AwayRun| !r.gone && r.place < addr && addr < r.place + r.len;
        if let Some(index) = self.away.iter().position(inside) {
            let whole = self.away[index];
            let head = addr - whole.place;
            self.away[index].len = head;
            let tail = AwayRun {
                origin: whole.origin + head,
                place: addr,
                offset: whole.offset + head,
                len: whole.len - head,
                ..whole
            };
            self.away.insert(index + 1, tail);
        }
    }

    /// The first stretch that still has to be filled: place, offset and length.
    pub(crate) fn to_fill(&self) -> Option<(usize, usize, usize)> {
        self.away.iter().filter(|r| !r.gone).find_map(|run| {
            let (at, len) = self.unplaced(run)?;
            Some((run.place + (at - run.offset), at, len))
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

    fn batch() -> Batch {
        let mut batch = Batch::new(Dealt::new(memferry_core::Deal::new(1, 1 << 16).unwrap()));
        batch.add_away(0x10000, 0x4000);
        batch.add_away(0x20000, 0x2000);
        batch
    }

    #[test]
    fn neighbours_join_and_offsets_count_on() {
        let mut batch = batch();
        batch.add_away(0x22000, 0x1000);
        let runs: Vec<_> = batch
            .away
            .iter()
            .map(|r| (r.place, r.offset, r.len))
            .collect();
        assert_eq!(runs, [(0x10000, 0, 0x4000), (0x20000, 0x4000, 0x3000)]);
        assert_eq!(batch.bytes, 0x7000);
    }

    #[test]
    fn removing_the_middle_keeps_both_ends() {
        let mut batch = batch();
        batch.remove(&(0x11000..0x12000));
        assert!(
            batch.holds(0x10000)
                && !batch.holds(0x11000)
                && batch.holds(0x12000)
                && batch.holds(0x20000)
        );
        assert_eq!(batch.away.iter().map(|r| r.len).sum::<usize>(), 0x6000);
    }

    #[test]
    fn a_page_that_follows_one_that_is_gone_comes_back() {
        let mut batch = batch();
        batch.remove(&(0x21000..0x22000));
        batch.add_away(0x22000, 0x1000);
        assert!(!batch.holds(0x21000) && batch.holds(0x22000));
        assert_eq!(batch.bytes, 0x7000);
    }

    #[test]
    fn a_page_that_follows_where_mremap_took_another_keeps_its_origin() {
        let mut batch = batch();
        batch.relocate(&(0x20000..0x22000), 0x50000);
        batch.add_away(0x52000, 0x1000);
        let last = *batch.away.last().unwrap();
        assert_eq!(
            (last.origin, last.place, last.len),
            (0x52000, 0x52000, 0x1000)
        );
    }

    #[test]
    fn mremap_changes_the_place_and_keeps_the_offset() {
        let mut batch = batch();
        batch.relocate(&(0x12000..0x14000), 0x90000);
        let moved = batch.away.iter().find(|r| r.place == 0x90000).unwrap();
        assert_eq!((moved.offset, moved.len), (0x2000, 0x2000));
        assert!(!batch.holds(0x12000) && batch.holds(0x91000));
    }

    #[test]
    fn a_run_that_is_gone_does_not_hide_one_that_came_to_its_addresses() {
        let mut batch = batch();
        batch.remove(&(0x10000..0x14000));
        batch.relocate(&(0x20000..0x22000), 0x11000);
        batch.remove(&(0x12000..0x13000));
        assert!(batch.holds(0x11000) && !batch.holds(0x12000));
        batch.relocate(&(0x10000..0x14000), 0x50000);
        assert!(batch.holds(0x51000) && !batch.holds(0x50000));
    }

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
        let batch = batch();
        let run = batch.away[0];
        batch.placed.add(0x1000, 0x1000);
        assert_eq!(batch.unplaced(&run), Some((0, 0x1000)));
        batch.placed.add(0, 0x1000);
        assert_eq!(batch.unplaced(&run), Some((0x2000, 0x2000)));
        batch.placed.add(0x2000, 0x2000);
        assert_eq!(batch.unplaced(&run), None);
    }
}
