// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat of single pages. Where hot pages lie scattered, chunks are mixtures and all look alike: a close look tells how often each page of
//! a chunk is used, and hot pages below change places with cold pages of the same tenant in the top tier. How much of the top tier a
//! tenant has stays the chunks' affair.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::{CHUNK, Cause, Memory, Move, ProcessId, Tiering, Way};

/// Pages of a chunk at most; where base pages are larger a chunk has fewer.
const MOST: usize = CHUNK / 4096;
/// Chunks whose pages are known at most, half a kilobyte each. The one that was looked at longest ago makes room.
const KNOWN: usize = 4096;
/// Levels of heat for each doubling of how often a page is used.
const DOUBLING: f64 = 8.0;
/// The level of a page that is used once a second.
const ONCE_A_SECOND: f64 = 64.0;
/// Looks that a level is the average of: the latest one counts a quarter, or more while there were fewer.
const LOOKS: u8 = 4;
/// Levels that are taken off a hot page and added to a cold one after one look, two, and so on. A look has few samples: without these, pages
/// used alike change places by chance (`pages_used_alike_or_rarely_stay`).
const UNSURE: [u8; LOOKS as usize] = [8, 6, 5, 4];
/// Accesses a second by which two pages that change places differ at least. Taking a pair of moves for 20 us and an access to slow memory
/// for 0.1 us more (neither was measured here), the difference pays within a minute.
const PAYS: f64 = 3.0;

/// Some of the pages of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSet([u64; MOST / 64]);

impl PageSet {
    /// Adds a page, by its number in the chunk.
    pub fn insert(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    /// Whether a page is one of them.
    pub fn contains(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 != 0
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; MOST / 64]
    }

    /// Their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MOST).filter(|page| self.contains(*page))
    }

    fn without(mut self, other: &PageSet) -> Self {
        let bits = self.0.iter_mut().zip(other.0);
        bits.for_each(|(bits, other)| *bits &= !other);
        self
    }

    fn with(mut self, other: &PageSet) -> Self {
        let bits = self.0.iter_mut().zip(other.0);
        bits.for_each(|(bits, other)| *bits |= other);
        self
    }
}

impl FromIterator<usize> for PageSet {
    fn from_iter<T: IntoIterator<Item = usize>>(pages: T) -> Self {
        let mut set = Self::default();
        pages.into_iter().for_each(|page| set.insert(page));
        set
    }
}

/// Where the pages of a chunk lie that may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePlaces {
    /// The node of the top tier that most of those there are on.
    pub node: u32,
    /// On that node.
    pub top: PageSet,
    /// In lower tiers.
    pub below: PageSet,
}

/// What a close look saw of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseLook {
    /// Its address by [`CHUNK`].
    pub number: usize,
    /// Samples in which each of its pages was in use.
    pub counts: Vec<u8>,
    /// Samples.
    pub of: u8,
    /// From sample to sample.
    pub interval: Duration,
}

/// The pages of a chunk.
#[derive(Debug)]
struct Pages {
    group: usize,
    levels: Box<[u8]>,
    places: PagePlaces,
    /// The number of the look.
    looked: u64,
    /// How many were averaged.
    looks: u8,
}

impl Pages {
    /// The level of a page less, or plus, what a look may be wrong by.
    fn cautious_level(&self, page: usize, way: Way) -> u8 {
        let unsure = UNSURE[usize::from(self.looks.min(LOOKS)) - 1];
        match way {
            Way::Up => self.levels[page].saturating_sub(unsure),
            Way::Down => self.levels[page].saturating_add(unsure),
        }
    }

    /// Pages below that are so hot, or pages above that are so cold.
    fn beyond(&self, way: Way, border: u8) -> PageSet {
        let pages = match way {
            Way::Up => &self.places.below,
            Way::Down => &self.places.top,
        };
        let is_beyond = |page: &usize| match way {
            Way::Up => self.cautious_level(*page, way) >= border,
            Way::Down => self.cautious_level(*page, way) <= border,
        };
        pages.iter().filter(is_beyond).collect()
    }

    /// Whether all are used alike: a THP, or each in use in all samples or in none.
    fn are_alike(&self) -> bool {
        let all = self.places.top.with(&self.places.below);
        let mut levels = all.iter().map(|page| self.levels[page]);
        levels
            .next()
            .is_none_or(|first| levels.all(|level| level == first))
    }
}

/// Where the next look goes on: looks take all memory in turn, process by process.
#[derive(Debug, Default)]
struct Cursor {
    memory: Option<Memory>,
    /// The first chunk of it that was not looked at yet, of those mostly in the top tier and of the others.
    above: usize,
    below: usize,
}

/// The pages of chunks that were looked at closely.
#[derive(Debug, Default)]
pub(super) struct PageHeat {
    known: BTreeMap<(Memory, usize), Pages>,
    looks: u64,
    next: Cursor,
    /// Tenants with new looks, or with pages that were to move in the last round.
    due: Vec<usize>,
}

impl PageHeat {
    /// Forgets all of a memory that is no longer there.
    pub(super) fn keep(&mut self, mut is_there: impl FnMut(Memory) -> bool) {
        self.known.retain(|(memory, _), _| is_there(*memory));
    }

    /// Forgets where the pages of a chunk lie, until the next look: the chunk moved whole, or pages did not move.
    pub(super) fn forget_places(&mut self, memory: Memory, number: usize) {
        if let Some(pages) = self.known.get_mut(&(memory, number)) {
            pages.places = PagePlaces::default();
        }
    }

    /// These pages have moved.
    pub(super) fn moved(&mut self, of: &Move, set: &PageSet) {
        if let Some(pages) = self.known.get_mut(&(of.memory, of.number)) {
            let PagePlaces { node, top, below } = &mut pages.places;
            match of.way {
                Way::Up if top.is_empty() || *node == of.node => {
                    (*node, *top, *below) = (of.node, top.with(set), below.without(set));
                }
                Way::Up => *below = below.without(set),
                Way::Down => (*top, *below) = (top.without(set), below.with(set)),
            }
        }
    }

    /// From which level on pages of a tenant go up, and up to which they go down for them: as many as differ by enough, the hottest below
    /// against the coldest above.
    fn borders(&self, group: usize) -> Option<(u8, u8)> {
        let (mut below, mut above) = ([0_usize; 256], [0_usize; 256]);
        let known = self.known.values().filter(|of| of.group == group);
        for pages in known.filter(|of| !of.are_alike()) {
            let PagePlaces {
                top, below: lower, ..
            } = &pages.places;
            for page in lower.iter() {
                below[usize::from(pages.cautious_level(page, Way::Up))] += 1;
            }
            for page in top.iter() {
                above[usize::from(pages.cautious_level(page, Way::Down))] += 1;
            }
        }
        let (mut hot, mut cold, mut borders) = (255, 0, None);
        while hot > cold {
            if below[hot] == 0 {
                hot -= 1;
            } else if above[cold] == 0 {
                cold += 1;
            } else {
                let levels = (hot as u8, cold as u8);
                if rate(levels.0) - rate(levels.1) < PAYS {
                    break;
                }
                let pairs = below[hot].min(above[cold]);
                below[hot] -= pairs;
                above[cold] -= pairs;
                borders = Some(levels);
            }
        }
        borders
    }
}

/// The level of a page that was in use in so many samples. One that was in all may be used ever so often, and one that was in none, so
/// rarely that a third of a use stands for it.
fn level(count: u8, of: u8, interval: Duration) -> u8 {
    let seen = (f64::from(count) + 0.3) / (f64::from(of) + 0.6);
    let rate = -(1.0 - seen).ln() / interval.as_secs_f64();
    (ONCE_A_SECOND + DOUBLING * rate.log2()).clamp(0.0, 255.0) as u8
}

/// The average of so many looks, of which all but the last had another.
fn average(before: u8, now: u8, looks: u8) -> u8 {
    let sum = u32::from(before) * u32::from(looks - 1) + u32::from(now);
    ((sum + u32::from(looks) / 2) / u32::from(looks)) as u8
}

/// How often a page of a level is used in a second.
fn rate(level: u8) -> f64 {
    ((f64::from(level) - ONCE_A_SECOND) / DOUBLING).exp2()
}

/// Pages of a chunk that are to change places.
#[derive(Clone, Copy)]
struct Side {
    memory: Memory,
    number: usize,
    node: u32,
    pages: PageSet,
}

impl Tiering {
    /// The process and those of its chunks that a close look is to take next, so many at most: memory in use of a tenant that has some in
    /// both tiers. Pages change places between the tiers, so half of the chunks are from each as long as there are such.
    pub fn look_closely_at(&mut self, most: usize) -> Option<(ProcessId, Vec<usize>)> {
        let mut next = std::mem::take(&mut self.pages.next);
        let first = next.memory;
        // The one where looks go on comes again at the end, from its beginning.
        let from = self.spaces.range((
            first.map_or(Bound::Unbounded, Bound::Included),
            Bound::Unbounded,
        ));
        let before = self
            .spaces
            .iter()
            .take_while(|(memory, _)| Some(**memory) <= first);
        let mut found = None;
        for (index, (memory, space)) in from.chain(before).enumerate() {
            if index > 0 || first != Some(*memory) {
                next = Cursor {
                    memory: Some(*memory),
                    ..Cursor::default()
                };
            }
            let Memory::Process(process) = *memory else {
                continue;
            };
            let tenant = &self.accounts[space.group].tenant;
            if tenant.used == 0 || tenant.used >= tenant.resident {
                continue;
            }
            let of_interest = |chunk: &&super::Chunk| {
                let is_full = chunk.place.resident >= CHUNK as u64 / 2;
                chunk.seen > 0 && is_full && !chunk.is_refused(self.number)
            };
            let is_above = |chunk: &&super::Chunk| chunk.place.top > chunk.place.resident / 2;
            let take = |from: &mut usize, above: bool, count: usize| {
                let at = space
                    .chunks
                    .partition_point(|chunk| chunk.place.number < *from);
                let chunks = space.chunks[at..].iter().filter(of_interest);
                let chunks = chunks.filter(|chunk| is_above(chunk) == above);
                let numbers: Vec<usize> = chunks.take(count).map(|of| of.place.number).collect();
                *from = match numbers.last() {
                    Some(last) if numbers.len() == count => last + 1,
                    _ => usize::MAX,
                };
                numbers
            };
            let mut numbers = take(&mut next.above, true, most / 2);
            numbers.extend(take(&mut next.below, false, most - numbers.len()));
            if numbers.len() < most {
                numbers.extend(take(&mut next.above, true, most - numbers.len()));
            }
            if !numbers.is_empty() {
                numbers.sort_unstable();
                found = Some((process, numbers));
                break;
            }
        }
        self.pages.next = next;
        found
    }

    /// Notes what a close look saw, and where the pages lie now.
    pub fn seen_closely(&mut self, memory: Memory, look: &CloseLook, places: PagePlaces) {
        let Some(group) = self.spaces.get(&memory).map(|of| of.group) else {
            return;
        };
        let heat = &mut self.pages;
        heat.looks += 1;
        let now = (look.counts.iter()).map(|count| level(*count, look.of, look.interval));
        let before = heat.known.get(&(memory, look.number));
        let looks = before.map_or(1, |before| (before.looks + 1).min(LOOKS));
        let levels = match before {
            Some(before) => now
                .zip(&before.levels)
                .map(|(now, before)| average(*before, now, looks))
                .collect(),
            None => now.collect(),
        };
        let pages = Pages {
            group,
            levels,
            places,
            looked: heat.looks,
            looks,
        };
        heat.known.insert((memory, look.number), pages);
        if heat.known.len() > KNOWN {
            let oldest = heat.known.iter().min_by_key(|(_, of)| of.looked);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                heat.known.remove(&key);
            }
        }
        if !heat.due.contains(&group) {
            heat.due.push(group);
        }
    }

    /// Pages that change places, of each tenant that was looked at: those that go down first, as many as go up. `allowed` is what each
    /// tenant may still promote in this round, and `budget` what all may.
    pub(super) fn exchange_pages(&mut self, allowed: &[u64], mut budget: u64) -> Vec<Move> {
        let mut moves = Vec::new();
        for group in std::mem::take(&mut self.pages.due) {
            let found = self.exchange_pages_of(group, allowed[group].min(budget));
            let up = found.iter().filter(|of| of.way == Way::Up);
            budget -= up.map(|of| of.bytes).sum::<u64>();
            // What is left over, or does not move now, is tried in the next round.
            if !found.is_empty() {
                self.pages.due.push(group);
            }
            moves.extend(found);
        }
        moves
    }

    fn exchange_pages_of(&self, group: usize, budget: u64) -> Vec<Move> {
        let mut moves = Vec::new();
        let Some((hot, cold)) = self.pages.borders(group) else {
            return moves;
        };
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        let known = self.pages.known.iter().filter(|(_, of)| of.group == group);
        for ((memory, number), pages) in known.filter(|(_, of)| !of.are_alike()) {
            if self.is_left_alone(*memory, *number) {
                continue;
            }
            let side = |pages: PageSet, node| Side {
                memory: *memory,
                number: *number,
                node,
                pages,
            };
            let up = pages.beyond(Way::Up, hot);
            let down = pages.beyond(Way::Down, cold);
            if !up.is_empty() {
                ups.push(side(up, 0));
            }
            if !down.is_empty() {
                downs.push(side(down, pages.places.node));
            }
        }
        // Few large calls do more than many small ones.
        ups.sort_by_key(|of| of.pages.len());
        downs.sort_by_key(|of| of.pages.len());
        let mut left = budget as usize / rustix::param::page_size();
        while let Some(mut up) = ups.pop().filter(|_| left > 0) {
            let reach = self.spaces.get(&up.memory).map_or(&[][..], |of| &of.nodes);
            let fits = |of: &Side| reach.iter().any(|near| near.node == of.node);
            while left > 0 && !up.pages.is_empty() {
                let Some(at) = downs.iter().rposition(fits) else {
                    break;
                };
                let down = &mut downs[at];
                let count = up.pages.len().min(down.pages.len()).min(left);
                moves.push(down.take(count, Way::Down, down.node));
                moves.push(up.take(count, Way::Up, down.node));
                left -= count;
                if down.pages.is_empty() {
                    downs.remove(at);
                }
            }
        }
        tracing::debug!(group, hot, cold, moves = moves.len(), "pages change places");
        moves
    }

    fn is_left_alone(&self, memory: Memory, number: usize) -> bool {
        let chunks = self.spaces.get(&memory).map_or(&[][..], |of| &of.chunks);
        let at = chunks.binary_search_by_key(&number, |chunk| chunk.place.number);
        at.map_or(true, |at| chunks[at].is_refused(self.number))
    }
}

impl Side {
    /// So many of its pages move.
    fn take(&mut self, count: usize, way: Way, node: u32) -> Move {
        let pages: PageSet = self.pages.iter().take(count).collect();
        self.pages = self.pages.without(&pages);
        Move {
            memory: self.memory,
            number: self.number,
            way,
            cause: Cause::Exchange,
            node,
            bytes: (pages.len() * rustix::param::page_size()) as u64,
            pages: Some(pages),
        }
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
