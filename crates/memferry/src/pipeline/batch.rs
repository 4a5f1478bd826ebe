// SPDX-License-Identifier: MIT OR Apache-2.0
//! One batch on its way: which pages are away from which places, where they are staged, and where they go.

use super::cursor::{Kind, Run};
use crate::forkgate::Away;
use crate::pool::{Piece, SEGMENT};
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
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
    /// Its owner threw it away meanwhile (MADV_DONTNEED), or its mapping is gone: it must not come back.
    pub gone: bool,
    /// Something was unmapped at its place, or would have been: the kernel says so when it is over, to whoever it may
    /// concern by then, and also when it failed. Whether the place is there shows when it comes back.
    pub doubtful: bool,
    /// mremap took its mapping to `place`.
    pub moved: bool,
    /// And who did may not have gone on since.
    pub arrived: bool,
    /// Where it belongs if `place` is not there: of two mremaps at the same time, one from where the other one went to,
    /// the messages do not tell which was first.
    pub alternative: Option<usize>,
}

impl AwayRun {
    fn new(place: usize, offset: usize, len: usize) -> AwayRun {
        AwayRun {
            origin: place,
            place,
            offset,
            len,
            gone: false,
            doubtful: false,
            moved: false,
            arrived: false,
            alternative: None,
        }
    }

    /// Whether the mapping at its place may be another one, which somebody else may watch.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful || self.alternative.is_some()
    }

    /// It is not at its place: at the other one, or gone. Says which.
    fn leave(&mut self) -> bool {
        match self.alternative.take() {
            Some(place) => self.place = place,
            None => self.gone = true,
        }
        self.doubtful = false;
        self.gone
    }

    /// Both parts of it, cut after `head` bytes.
    fn cut(self, head: usize) -> [AwayRun; 2] {
        let tail = AwayRun {
            origin: self.origin + head,
            place: self.place + head,
            offset: self.offset + head,
            len: self.len - head,
            alternative: self.alternative.map(|at| at + head),
            ..self
        };
        [AwayRun { len: head, ..self }, tail]
    }
}

/// The pages of one slot.
pub(crate) struct Batch {
    pub kind: Option<Kind>,
    /// What is planned and not away, from its end backwards.
    pub planned: List<Run>,
    /// What is away.
    pub away: List<AwayRun>,
    /// Bytes that are away.
    pub bytes: usize,
    /// Where the pages are staged.
    pub staged: Piece,
    /// Free pages that take the contents; `None`: the kernel allocates them place by place (`Kernel::fill`).
    pub dest: Option<Piece>,
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
            kind: None,
            planned: List::with_capacity_in(runs, Pages),
            away: List::with_capacity_in(runs, Pages),
            bytes: 0,
            staged: Piece::default(),
            dest: None,
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
        match self.away.last_mut() {
            Some(last) if last.cut(last.len)[1] == AwayRun::new(place, offset, 0) => {
                last.len += len
            }
            _ => self.away.push(AwayRun::new(place, offset, len)),
        }
        self.bytes += len;
    }

    /// Whether the page at `addr` is away and will come back.
    pub(crate) fn holds(&self, addr: usize) -> bool {
        let holds = |at: usize, r: &AwayRun| (at..at + r.len).contains(&addr);
        self.away
            .iter()
            .filter(|r| !r.gone)
            .any(|r| holds(r.place, r) || r.alternative.is_some_and(|at| holds(at, r)))
    }

    /// Whether nothing of it still has to come back.
    pub(crate) fn is_back(&self) -> bool {
        let is_back = |r: &AwayRun| r.gone || self.unplaced(r).is_none();
        self.away.iter().all(is_back)
    }

    /// Its owner threw `range` away.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        self.at(range).for_each(|run| run.gone = true);
    }

    /// A mapping went from `range`, if it went.
    pub(crate) fn doubt(&mut self, range: &Range<usize>) {
        self.at(range).for_each(|run| run.doubtful = true);
    }

    /// Its owner moved `range` to `to`.
    pub(crate) fn relocate(&mut self, range: &Range<usize>, to: usize) {
        let target = to..to + range.len();
        // Whoever may have left made room for this one.
        for run in self.at(&target) {
            if (run.doubtful || run.alternative.is_some()) && !range.contains(&run.place) {
                run.leave();
            }
        }
        self.split_alternatives_at(range.start);
        self.split_alternatives_at(range.end);
        for run in self.away.iter_mut().filter(|r| !r.gone) {
            let other = run.alternative.filter(|at| range.contains(at));
            run.alternative = other.map(|at| to + (at - range.start)).or(run.alternative);
        }
        for run in self.at(range) {
            let place = to + (run.place - range.start);
            if run.arrived {
                run.alternative = Some(place);
            } else {
                run.place = place;
            }
            (run.moved, run.arrived) = (true, true);
        }
    }

    /// Nobody is in the middle of an mremap.
    pub(crate) fn settle_arrivals(&mut self) {
        for run in &mut self.away {
            run.arrived = false;
        }
    }

    /// What came from `range` itself is gone: another mapping came there.
    pub(crate) fn remove_originals(&mut self, range: &Range<usize>) {
        self.at(range)
            .filter(|run| !run.moved)
            .for_each(|run| run.gone = true);
    }

    /// The place of a part of run `index`, `len` bytes from `offset` of the batch on, is not there. It has another one to
    /// go to, or is gone; says which.
    pub(crate) fn give_up(&mut self, index: usize, offset: usize, len: usize) -> bool {
        let mut index = index;
        for at in [offset, offset + len] {
            let whole = self.away[index];
            if whole.offset < at && at < whole.offset + whole.len {
                let [head, tail] = whole.cut(at - whole.offset);
                self.away[index] = head;
                self.away.insert(index + 1, tail);
                if at == offset {
                    index += 1;
                }
            }
        }
        self.away[index].leave()
    }

    /// The runs whose places lie in `range`, cut to it.
    fn at(&mut self, range: &Range<usize>) -> impl Iterator<Item = &mut AwayRun> {
        self.split_at(range.start);
        self.split_at(range.end);
        let range = range.clone();
        self.away
            .iter_mut()
            .filter(move |r| !r.gone && range.contains(&r.place))
    }

    /// Makes runs begin at `addr` if they hold it in their middle: two may, one that came there and one that is in doubt.
    fn split_at(&mut self, addr: usize) {
        self.split_where(addr, |run| Some(run.place));
    }

    fn split_alternatives_at(&mut self, addr: usize) {
        self.split_where(addr, |run| run.alternative);
    }

    fn split_where(&mut self, addr: usize, start: impl Fn(&AwayRun) -> Option<usize>) {
        // A run that is gone may have shared its addresses with one that was moved there later.
        let inside = |r: &AwayRun| {
            let head = start(r).filter(|_| !r.gone)?;
            (head < addr && addr < head + r.len).then(|| addr - head)
        };
        while let Some((index, head)) =
            (0..self.away.len()).find_map(|i| Some((i, inside(&self.away[i])?)))
        {
            let [head, tail] = self.away[index].cut(head);
            self.away[index] = head;
            self.away.insert(index + 1, tail);
        }
    }

    /// The first stretch that still has to be filled: place, offset, length, and whether its place is in doubt.
    pub(crate) fn to_fill(&self) -> Option<(usize, usize, usize, bool)> {
        self.away.iter().filter(|r| !r.gone).find_map(|run| {
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

    fn batch() -> Batch {
        let mut batch = Batch::new();
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
    fn who_left_where_another_came_at_the_same_time_has_two_places() {
        let mut batch = batch();
        batch.relocate(&(0x20000..0x22000), 0x50000);
        batch.relocate(&(0x50000..0x51000), 0x70000);
        assert!(
            [0x50000, 0x51000, 0x70000]
                .iter()
                .all(|at| batch.holds(*at))
        );
        assert!(!batch.holds(0x71000));
        // It is not at the one, so it is at the other.
        let index = batch.away.iter().position(|r| r.place == 0x50000).unwrap();
        assert!(!batch.give_up(index, batch.away[index].offset, 0x1000));
        assert!(!batch.holds(0x50000) && batch.holds(0x51000) && batch.holds(0x70000));
        assert!(batch.give_up(index, batch.away[index].offset, 0x1000));
        assert!(!batch.holds(0x70000) && batch.holds(0x51000));
    }

    #[test]
    fn the_other_place_goes_along_and_is_taken_when_another_mapping_comes() {
        let mut batch = batch();
        batch.relocate(&(0x20000..0x22000), 0x50000);
        batch.relocate(&(0x50000..0x52000), 0x70000);
        batch.relocate(&(0x70000..0x71000), 0x90000);
        assert!(
            [0x50000, 0x51000, 0x90000, 0x71000]
                .iter()
                .all(|at| batch.holds(*at))
        );
        assert!(!batch.holds(0x70000));
        // Something else comes to where it was thought to be.
        batch.relocate(&(0xb0000..0xb2000), 0x50000);
        let places: Vec<_> = batch.away[1..].iter().map(|r| (r.place, r.gone)).collect();
        assert_eq!(places, [(0x90000, false), (0x71000, false)]);
    }

    #[test]
    fn who_came_and_went_on_leaves_as_a_whole() {
        let mut batch = batch();
        batch.relocate(&(0x20000..0x22000), 0x50000);
        batch.settle_arrivals();
        batch.relocate(&(0x50000..0x52000), 0x70000);
        assert!(!batch.holds(0x50000) && batch.holds(0x70000) && batch.holds(0x71000));
    }

    #[test]
    fn what_is_in_doubt_is_gone_when_another_mapping_comes() {
        let mut batch = batch();
        batch.doubt(&(0x10000..0x12000));
        assert!(batch.holds(0x10000));
        batch.relocate(&(0x20000..0x22000), 0x11000);
        let places: Vec<_> = batch
            .away
            .iter()
            .filter(|r| !r.gone)
            .map(|r| (r.place, r.len, r.offset))
            .collect();
        assert_eq!(
            places,
            [
                (0x10000, 0x1000, 0),
                (0x12000, 0x1000, 0x2000),
                (0x13000, 0x1000, 0x3000),
                (0x11000, 0x2000, 0x4000)
            ]
        );
    }

    #[test]
    fn what_another_mapping_replaced_is_gone_and_that_one_stays() {
        let mut batch = batch();
        batch.relocate(&(0x20000..0x22000), 0x11000);
        batch.remove_originals(&(0x11000..0x13000));
        let of = |origin: usize| batch.away.iter().filter(move |r| r.origin == origin);
        assert!(of(0x11000).all(|r| r.gone) && of(0x20000).all(|r| !r.gone));
        assert!(batch.holds(0x10000) && batch.holds(0x13000));
    }

    #[test]
    fn a_part_that_is_given_up_leaves_both_ends() {
        let mut batch = batch();
        assert!(batch.give_up(0, 0x1000, 0x1000));
        let runs: Vec<_> = batch
            .away
            .iter()
            .map(|r| (r.offset, r.len, r.gone))
            .collect();
        assert_eq!(
            runs,
            [
                (0, 0x1000, false),
                (0x1000, 0x1000, true),
                (0x2000, 0x2000, false),
                (0x4000, 0x2000, false)
            ]
        );
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
