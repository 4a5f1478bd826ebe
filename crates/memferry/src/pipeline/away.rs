// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where pages that are away belong, by what the kernel told since: owners empty, unmap and mremap their places meanwhile.
//!
//! It asks nobody. Each word of the kernel changes pages, whichever runs they are in: the test compares with a list of pages.

use crate::sys::list::{List, Pages};
use std::ops::Range;

/// A run of pages that is away from its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            ..AwayRun::default()
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

/// What is away of a batch, by its offset in it.
pub(crate) struct AwayRuns {
    runs: List<AwayRun>,
    bytes: usize,
}

impl AwayRuns {
    /// None, in memory for so many.
    pub(crate) fn with_room(runs: usize) -> AwayRuns {
        AwayRuns {
            runs: List::with_capacity_in(runs, Pages),
            bytes: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.runs.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }

    /// Bytes that came away, gone or not.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn runs(&self) -> &[AwayRun] {
        &self.runs
    }

    /// Those that have to come back.
    pub(crate) fn there(&self) -> impl Iterator<Item = &AwayRun> {
        self.runs.iter().filter(|run| !run.gone)
    }

    /// Whether a page of them may belong into `range`.
    pub(crate) fn belongs(&self, range: &Range<usize>) -> bool {
        self.there().any(|run| {
            let places = [Some(run.place), run.alternative];
            let mut places = places.into_iter().flatten();
            places.any(|place| place < range.end && range.start < place + run.len)
        })
    }

    /// Notes a page that came away.
    pub(crate) fn add(&mut self, place: usize, len: usize) {
        let offset = self.bytes;
        // One that is gone stays gone, and one that mremap took along does not come from there.
        match self.runs.last_mut() {
            Some(last) if last.cut(last.len)[1] == AwayRun::new(place, offset, 0) => {
                last.len += len
            }
            _ => self.runs.push(AwayRun::new(place, offset, len)),
        }
        self.bytes += len;
    }

    /// Whether the page at `addr` is away and will come back.
    pub(crate) fn holds(&self, addr: usize) -> bool {
        let holds = |at: usize, r: &AwayRun| (at..at + r.len).contains(&addr);
        self.there()
            .any(|r| holds(r.place, r) || r.alternative.is_some_and(|at| holds(at, r)))
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
            if run.is_in_doubt() && !range.contains(&run.place) {
                run.leave();
            }
        }
        for addr in [range.start, range.end] {
            self.split_where(addr, |run| run.alternative);
        }
        for run in self.runs.iter_mut().filter(|r| !r.gone) {
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
        for run in &mut self.runs {
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
            let run = &self.runs[index];
            if run.offset < at && at < run.offset + run.len {
                self.cut_run(index, at - run.offset);
                if at == offset {
                    index += 1;
                }
            }
        }
        self.runs[index].leave()
    }

    /// The runs whose places lie in `range`, cut to it.
    fn at(&mut self, range: &Range<usize>) -> impl Iterator<Item = &mut AwayRun> {
        for addr in [range.start, range.end] {
            self.split_where(addr, |run| Some(run.place));
        }
        let range = range.clone();
        self.runs
            .iter_mut()
            .filter(move |r| !r.gone && range.contains(&r.place))
    }

    /// Makes runs that start there begin at `addr` if they hold it in their middle: two may, one that came there and one that is
    /// in doubt.
    fn split_where(&mut self, addr: usize, start: impl Fn(&AwayRun) -> Option<usize>) {
        // A run that is gone may have shared its addresses with one that was moved there later.
        let inside = |r: &AwayRun| {
            let head = start(r).filter(|_| !r.gone)?;
            (head < addr && addr < head + r.len).then(|| addr - head)
        };
        while let Some((index, head)) =
            (0..self.runs.len()).find_map(|i| Some((i, inside(&self.runs[i])?)))
        {
            self.cut_run(index, head);
        }
    }

    /// Makes two runs of one, the first of `head` bytes.
    fn cut_run(&mut self, index: usize, head: usize) {
        let [head, tail] = self.runs[index].cut(head);
        self.runs[index] = head;
        self.runs.insert(index + 1, tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 4096;

    /// What the kernel tells, of pages by number; and what a look at a place tells.
    #[derive(Clone, Debug)]
    enum Word {
        Came(usize, usize),
        Emptied(Range<usize>),
        Unmapped(Range<usize>),
        ReplacedOriginals(Range<usize>),
        Remapped(Range<usize>, usize),
        Settled,
        /// So many pages of the batch, from this one on, are not at their place.
        NotThere(usize, usize),
    }

    fn any_word() -> impl Strategy<Value = Word> {
        let range = || (0usize..48, 1usize..10).prop_map(|(at, len)| at * PAGE..(at + len) * PAGE);
        prop_oneof![
            3 => (0usize..48, 1usize..6).prop_map(|(at, pages)| Word::Came(at * PAGE, pages)),
            1 => range().prop_map(Word::Emptied),
            2 => range().prop_map(Word::Unmapped),
            1 => range().prop_map(Word::ReplacedOriginals),
            4 => (range(), 0usize..48).prop_map(|(from, to)| {
                // mremap refuses two places that overlap.
                let apart = to * PAGE + from.len() <= from.start || from.end <= to * PAGE;
                let to = if apart { to * PAGE } else { from.end + to * PAGE };
                Word::Remapped(from, to)
            }),
            1 => Just(Word::Settled),
            2 => (any::<usize>(), 1usize..6).prop_map(|(page, pages)| Word::NotThere(page, pages)),
        ]
    }

    /// The same of one page.
    fn told(page: &mut AwayRun, word: &Word) {
        let at = |page: &AwayRun, range: &Range<usize>| !page.gone && range.contains(&page.place);
        match word {
            Word::Came(..) | Word::NotThere(..) => {}
            Word::Emptied(range) => page.gone |= at(page, range),
            Word::Unmapped(range) => page.doubtful |= at(page, range),
            Word::ReplacedOriginals(range) => page.gone |= at(page, range) && !page.moved,
            Word::Settled => page.arrived = false,
            Word::Remapped(from, to) => {
                let moved = |place: usize| place - from.start + to;
                let overrun = at(page, &(*to..to + from.len()));
                if overrun && page.is_in_doubt() {
                    not_there(page);
                }
                let other = page.alternative.filter(|_| !page.gone);
                if let Some(other) = other.filter(|other| from.contains(other)) {
                    page.alternative = Some(moved(other));
                }
                if at(page, from) {
                    match page.arrived {
                        true => page.alternative = Some(moved(page.place)),
                        false => page.place = moved(page.place),
                    }
                    (page.moved, page.arrived) = (true, true);
                }
            }
        }
    }

    fn not_there(page: &mut AwayRun) {
        (page.place, page.gone) = match page.alternative {
            Some(other) => (other, page.gone),
            None => (page.place, true),
        };
        (page.alternative, page.doubtful) = (None, false);
    }

    fn pages(away: &AwayRuns) -> Vec<AwayRun> {
        let of = |run: &AwayRun, at: usize| AwayRun {
            origin: run.origin + at,
            place: run.place + at,
            offset: run.offset + at,
            len: PAGE,
            alternative: run.alternative.map(|other| other + at),
            ..*run
        };
        let of_run = |run: &AwayRun| (0..run.len).step_by(PAGE).map(|at| of(run, at)).collect();
        away.runs()
            .iter()
            .flat_map(|run| -> Vec<_> { of_run(run) })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_told_of_ranges_is_true_of_each_page(words in prop::collection::vec(any_word(), 1..24)) {
            let mut away = AwayRuns::with_room(512);
            let (mut model, room) = (Vec::<AwayRun>::new(), away.room());
            for word in &words {
                model.iter_mut().for_each(|page| told(page, word));
                match word.clone() {
                    Word::Came(place, count) => {
                        away.add(place, count * PAGE);
                        for at in (0..count * PAGE).step_by(PAGE) {
                            model.push(AwayRun::new(place + at, model.len() * PAGE, PAGE));
                        }
                    }
                    Word::Emptied(range) => away.remove(&range),
                    Word::Unmapped(range) => away.doubt(&range),
                    Word::ReplacedOriginals(range) => away.remove_originals(&range),
                    Word::Remapped(from, to) => away.relocate(&from, to),
                    Word::Settled => away.settle_arrivals(),
                    Word::NotThere(page, count) => {
                        let first = page % model.len().max(1);
                        let holds = |run: &AwayRun| !run.gone
                            && (run.offset..run.offset + run.len).contains(&(first * PAGE));
                        if let Some(index) = away.runs().iter().position(holds) {
                            let run = away.runs()[index];
                            let len = (count * PAGE).min(run.offset + run.len - first * PAGE);
                            let gone = away.give_up(index, first * PAGE, len);
                            prop_assert_eq!(gone, run.alternative.is_none());
                            model[first..first + len / PAGE].iter_mut().for_each(not_there);
                        }
                    }
                }
                prop_assert_eq!(&pages(&away), &model, "after {:?}", word);
                for addr in (0..100 * PAGE).step_by(PAGE) {
                    let is = |page: &&AwayRun| page.place == addr || page.alternative == Some(addr);
                    let held = model.iter().filter(|page| !page.gone).any(|page| is(&page));
                    prop_assert_eq!(away.holds(addr), held);
                }
            }
            prop_assert_eq!(away.bytes(), model.len() * PAGE);
            prop_assert_eq!(away.room(), room, "the list grew");
        }
    }

    fn away() -> AwayRuns {
        let mut away = AwayRuns::with_room(64);
        away.add(0x10000, 0x4000);
        away.add(0x20000, 0x2000);
        away
    }

    #[test]
    fn neighbours_join_and_offsets_count_on() {
        let mut away = away();
        away.add(0x22000, 0x1000);
        let runs: Vec<_> = away
            .runs
            .iter()
            .map(|r| (r.place, r.offset, r.len))
            .collect();
        assert_eq!(runs, [(0x10000, 0, 0x4000), (0x20000, 0x4000, 0x3000)]);
        assert_eq!(away.bytes(), 0x7000);
    }

    #[test]
    fn who_left_where_another_came_at_the_same_time_has_two_places() {
        let mut away = away();
        away.relocate(&(0x20000..0x22000), 0x50000);
        away.relocate(&(0x50000..0x51000), 0x70000);
        assert!([0x50000, 0x51000, 0x70000].iter().all(|at| away.holds(*at)));
        assert!(!away.holds(0x71000));
        // It is not at the one, so it is at the other.
        let index = away.runs.iter().position(|r| r.place == 0x50000).unwrap();
        assert!(!away.give_up(index, away.runs[index].offset, 0x1000));
        assert!(!away.holds(0x50000) && away.holds(0x51000) && away.holds(0x70000));
        assert!(away.give_up(index, away.runs[index].offset, 0x1000));
        assert!(!away.holds(0x70000) && away.holds(0x51000));
    }

    #[test]
    fn the_other_place_goes_along_and_is_taken_when_another_mapping_comes() {
        let mut away = away();
        away.relocate(&(0x20000..0x22000), 0x50000);
        away.relocate(&(0x50000..0x52000), 0x70000);
        away.relocate(&(0x70000..0x71000), 0x90000);
        assert!(
            [0x50000, 0x51000, 0x90000, 0x71000]
                .iter()
                .all(|at| away.holds(*at))
        );
        assert!(!away.holds(0x70000));
        // Something else comes to where it was thought to be.
        away.relocate(&(0xb0000..0xb2000), 0x50000);
        let places: Vec<_> = away.runs[1..].iter().map(|r| (r.place, r.gone)).collect();
        assert_eq!(places, [(0x90000, false), (0x71000, false)]);
    }

    #[test]
    fn who_came_and_went_on_leaves_as_a_whole() {
        let mut away = away();
        away.relocate(&(0x20000..0x22000), 0x50000);
        away.settle_arrivals();
        away.relocate(&(0x50000..0x52000), 0x70000);
        assert!(!away.holds(0x50000) && away.holds(0x70000) && away.holds(0x71000));
    }

    #[test]
    fn what_is_in_doubt_is_gone_when_another_mapping_comes() {
        let mut away = away();
        away.doubt(&(0x10000..0x12000));
        assert!(away.holds(0x10000));
        away.relocate(&(0x20000..0x22000), 0x11000);
        let places: Vec<_> = away
            .runs
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
        let mut away = away();
        away.relocate(&(0x20000..0x22000), 0x11000);
        away.remove_originals(&(0x11000..0x13000));
        let of = |origin: usize| away.runs.iter().filter(move |r| r.origin == origin);
        assert!(of(0x11000).all(|r| r.gone) && of(0x20000).all(|r| !r.gone));
        assert!(away.holds(0x10000) && away.holds(0x13000));
    }
}
