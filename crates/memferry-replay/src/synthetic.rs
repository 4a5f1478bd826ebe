// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces made by rule, for tests and examples: the same arguments give the same trace on every machine.

use crate::event::{Clock, Event, Trace};
use crate::random::Random;

/// Bytes of a page.
const PAGE_BYTES: u32 = 4096;

/// Accesses that an event stands for; it takes as long.
const BURST: u32 = 64;

/// A trace of these events. Before them every page is touched once, in order, as programs do that fill their memory before they
/// use it.
fn build(name: &str, pages: u32, draws: impl Iterator<Item = u32>) -> Trace {
    let event = |(index, page): (usize, u32)| Event {
        time: index as u64 * u64::from(BURST),
        page,
        reads: BURST - BURST / 4,
        writes: BURST / 4,
    };
    Trace {
        name: name.to_owned(),
        clock: Clock::Accesses,
        page_bytes: PAGE_BYTES,
        sampling: 1,
        pages: (0..u64::from(pages)).map(|page| 0x5_5555 + page).collect(),
        events: (0..pages).chain(draws).enumerate().map(event).collect(),
    }
}

/// Draws by Zipf's law with exponent 1 from `ranks` ranks.
struct Zipf {
    /// Sum of the weights up to each rank; integers, so that no machine rounds otherwise.
    sums: Vec<u64>,
}

impl Zipf {
    fn new(ranks: u32) -> Self {
        let mut sum = 0;
        let weights = (1..=u64::from(ranks)).map(|rank| (1 << 32) / rank);
        Self {
            sums: weights
                .map(|weight| {
                    sum += weight;
                    sum
                })
                .collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let at = random.below(self.sums.last().copied().unwrap_or(1));
        self.sums.partition_point(|&sum| sum <= at) as u32
    }
}

/// The pages in an order without meaning, so that a hot page's address tells nothing.
fn shuffled(pages: u32, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..pages).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// A key-value store: `events` bursts over `pages` pages by Zipf's law.
pub fn zipf(pages: u32, events: u32, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let order = shuffled(pages, &mut random);
    let zipf = Zipf::new(pages);
    let draws = (0..events).map(|_| order[zipf.draw(&mut random) as usize]);
    build("synthetic zipf", pages, draws)
}

/// A hot set of an eighth of the pages takes nine of ten accesses, and moves to another eighth `moves` times.
pub fn moving_hot_set(pages: u32, events: u32, moves: u32, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let order = shuffled(pages, &mut random);
    let hot = u64::from(pages / 8).max(1);
    let stay = (events / (moves + 1)).max(1);
    let draws = (0..events).map(|event| {
        let first = u64::from(event / stay) * hot;
        let rank = match random.below(10) {
            0 => random.below(pages.into()),
            _ => (first + random.below(hot)) % u64::from(pages),
        };
        order[rank as usize]
    });
    build("synthetic moving hot set", pages, draws)
}

/// A small hot set by Zipf's law, and scans over everything between: three of ten accesses are the scan's.
pub fn scan(pages: u32, events: u32, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let order = shuffled(pages, &mut random);
    let zipf = Zipf::new((pages / 5).max(1));
    let mut next = 0;
    let draws = (0..events).map(|_| {
        if random.below(10) < 3 {
            next = (next + 1) % pages;
            return next;
        }
        order[zipf.draw(&mut random) as usize]
    });
    build("synthetic scan", pages, draws)
}

/// Phases of equal length; each works on a third of the memory, by Zipf's law, and comes back every third time.
pub fn phases(pages: u32, events: u32, phases: u32, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let order = shuffled(pages, &mut random);
    let third = (pages / 3).max(1);
    let zipf = Zipf::new(third);
    let stay = (events / phases.max(1)).max(1);
    let draws = (0..events).map(|event| {
        let rank = (event / stay % 3) * third + zipf.draw(&mut random);
        order[rank as usize % order.len()]
    });
    build("synthetic phases", pages, draws)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::accesses;

    #[test]
    fn every_trace_names_its_pages_and_repeats() {
        type Make = fn(u64) -> Trace;
        let makers: [Make; 4] = [
            |seed| zipf(100, 1000, seed),
            |seed| moving_hot_set(100, 1000, 3, seed),
            |seed| scan(100, 1000, seed),
            |seed| phases(100, 1000, 6, seed),
        ];
        for make in makers {
            let trace = make(7);
            let mut pages = trace.events.iter().map(|event| event.page);
            assert!(pages.all(|page| page < 100), "{}", trace.name);
            assert_eq!(trace, make(7));
            assert_ne!(trace, make(8));
            assert_eq!(trace.events.iter().map(accesses).sum::<u64>(), 1100 * 64);
        }
    }

    #[test]
    fn zipf_has_its_hot_pages() {
        let trace = zipf(100, 100_000, 1);
        let mut counts = [0u32; 100];
        trace
            .events
            .iter()
            .for_each(|event| counts[event.page as usize] += 1);
        counts.sort_unstable();
        let top: u32 = counts[75..].iter().sum();
        // The first 25 of 100 ranks hold H(25)/H(100) = 0.736 of the weight.
        assert!((73_000..74_500).contains(&top), "{top}");
    }
}
