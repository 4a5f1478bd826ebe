// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of made-up processes, of which each is used as often as is said, half of them in the top tier.

use super::*;
use crate::tenants::Tenant;
use crate::tiering::{Near, Placed, Room, Seen};

const PAGE: usize = 4096;
const NEAR: &[Near] = &[Near {
    node: 0,
    distance: 10,
}];

struct World {
    /// Of each process, a group of its own: how often each page is used in a second, and whether it is in the top tier.
    pages: Vec<Vec<(f64, bool)>>,
    claims: Vec<Tenant>,
    tiering: Tiering,
    budget: u64,
    interval: Duration,
    random: fastrand::Rng,
    moves: u64,
    /// Samples of ten that see a chunk in use, at least.
    least_seen: u32,
    /// Chunks in the order of looks.
    looked: Vec<(ProcessId, usize)>,
}

fn process(group: usize) -> ProcessId {
    ProcessId {
        pid: group as u32 + 1,
        start: 7,
    }
}

impl World {
    /// Processes of so many chunks; the first half of each is in the top tier.
    fn new(chunks: usize, rates: &[&dyn Fn(&mut fastrand::Rng) -> f64]) -> World {
        let mut random = fastrand::Rng::with_seed(11);
        let count = chunks * MOST;
        let of = |rate: &&dyn Fn(&mut fastrand::Rng) -> f64| {
            (0..count)
                .map(|page| (rate(&mut random), page < count / 2))
                .collect()
        };
        let pages: Vec<Vec<(f64, bool)>> = rates.iter().map(of).collect();
        let claim = Tenant {
            limit: u64::MAX,
            weight: 100,
            ..Tenant::default()
        };
        World {
            claims: vec![claim; pages.len()],
            tiering: Tiering::new(pages.len()),
            pages,
            budget: 16 << 20,
            interval: Duration::from_millis(20),
            random,
            moves: 0,
            least_seen: 10,
            looked: Vec::new(),
        }
    }

    /// A round in which all chunks are in use, and a look, of which every move is checked.
    fn round(&mut self) {
        for (group, pages) in self.pages.iter().enumerate() {
            let chunks = pages.chunks(MOST).enumerate();
            let place = |(number, pages): (usize, &[(f64, bool)])| Placed {
                number,
                resident: CHUNK as u64,
                top: (pages.iter().filter(|of| of.1).count() * PAGE) as u64,
                node: 0,
            };
            let places: Vec<Placed> = chunks.map(place).collect();
            self.tiering.place(process(group), group, NEAR, &places);
            // What a few samples of a chunk see differs by chance.
            let random = &mut self.random;
            let chunk = |number: usize| Seen {
                range: number * CHUNK..(number + 1) * CHUNK,
                accesses: random.u32(self.least_seen..=10),
                of: 10,
            };
            let report: Vec<Seen> = (0..pages.len() / MOST).map(chunk).collect();
            self.tiering.seen(process(group), &report, None);
        }
        self.look();
        let room = Room {
            free: [(0, 0)].into(),
            budget: self.budget,
            waste: 50,
            reports: 2,
            kernel_moves: false,
        };
        let before: Vec<u64> = (0..self.pages.len()).map(|group| self.top(group)).collect();
        let (mut up, mut free) = (0, 0_i64);
        for of in self.tiering.decide(&self.claims, &room) {
            let Memory::Process(ProcessId { pid, .. }) = of.memory else {
                panic!("{of:?}")
            };
            let all = &mut self.pages[pid as usize - 1][of.number * MOST..][..MOST];
            let elsewhere = (0..MOST).filter(|page| all[*page].1 != (of.way == Way::Up));
            let pages = of.pages.unwrap_or_else(|| elsewhere.collect());
            assert_eq!((of.node, of.bytes), (0, (pages.len() * PAGE) as u64));
            for page in pages.iter() {
                let (_, is_top) = &mut all[page];
                assert_ne!(*is_top, of.way == Way::Up, "it is there already");
                *is_top = of.way == Way::Up;
            }
            match of.way {
                Way::Up => (up, free) = (up + of.bytes, free - of.bytes as i64),
                Way::Down => free += of.bytes as i64,
            }
            assert!(free >= 0, "room is made first");
            self.moves += pages.len() as u64;
            self.tiering.done(&of, of.bytes, 0);
        }
        assert!(up <= self.budget);
        let after: Vec<u64> = (0..self.pages.len()).map(|group| self.top(group)).collect();
        assert_eq!(before, after, "each tenant has what it had");
    }

    fn look(&mut self) {
        let Some((of, numbers)) = self.tiering.look_closely_at(8) else {
            return;
        };
        assert!(numbers.len() <= 8 && numbers.is_sorted());
        for number in numbers {
            self.looked.push((of, number));
            let pages = &self.pages[of.pid as usize - 1][number * MOST..][..MOST];
            let seconds = self.interval.as_secs_f64();
            let mut count = |rate: f64| {
                let unused = (-rate * seconds).exp();
                (0..8).filter(|_| self.random.f64() > unused).count() as u8
            };
            let look = CloseLook {
                number,
                counts: pages.iter().map(|(rate, _)| count(*rate)).collect(),
                of: 8,
                interval: self.interval,
            };
            let on = |top| (0..MOST).filter(|page| pages[*page].1 == top).collect();
            let places = PagePlaces {
                node: 0,
                top: on(true),
                below: on(false),
            };
            self.tiering.seen_closely(of.into(), &look, places);
        }
    }

    fn top(&self, group: usize) -> u64 {
        self.pages[group].iter().filter(|of| of.1).count() as u64
    }

    /// Of the accesses of a process the part that comes from the top tier, and what it could be.
    fn served(&self, group: usize) -> (f64, f64) {
        let pages = &self.pages[group];
        let all: f64 = pages.iter().map(|of| of.0).sum();
        let top: f64 = pages.iter().filter(|of| of.1).map(|of| of.0).sum();
        let mut rates: Vec<f64> = pages.iter().map(|of| of.0).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        rates.truncate(self.top(group) as usize);
        (top / all, rates.iter().sum::<f64>() / all)
    }
}

/// As Zipf's law has it: few are used often, and most rarely.
fn skewed(random: &mut fastrand::Rng) -> f64 {
    8.0 / random.f64().max(1e-4)
}

/// Moves at most of 32 chunks, of which each was looked at so many times, where none should be: two pages of a hundred.
fn by_chance(looks: u64) -> u64 {
    2 * looks * 32 * MOST as u64 / 50
}

#[test]
fn hot_pages_that_lie_scattered_come_up_and_cold_ones_make_room() {
    let mut world = World::new(32, &[&skewed]);
    assert!(world.served(0).0 < 0.6);
    (0..20).for_each(|_| world.round());
    let (served, best) = world.served(0);
    assert!(served > 0.95 * best, "{served} of {best}");
    // What is where it belongs stays: looks differ by chance, which takes few of the pages near the border to and fro.
    let before = world.moves;
    (0..20).for_each(|_| world.round());
    assert!(
        world.moves - before < by_chance(5),
        "{}",
        world.moves - before
    );
    let (served, best) = world.served(0);
    assert!(served > 0.97 * best, "{served} of {best}");
}

/// Chunks of which few samples see some in use look hotter and colder than others by chance, and do not change places for that: hot pages
/// would go down, and cold ones come up.
#[test]
fn chunks_whose_pages_are_ranked_stay_as_they_are() {
    let mut world = World::new(32, &[&skewed]);
    world.least_seen = 1;
    (0..40).for_each(|_| world.round());
    let before = world.moves;
    for _ in 0..40 {
        world.round();
        let (served, best) = world.served(0);
        assert!(served > 0.95 * best, "{served} of {best}");
    }
    assert!(
        world.moves - before < by_chance(10),
        "{}",
        world.moves - before
    );
}

#[test]
fn pages_used_alike_or_rarely_stay() {
    for rate in [40.0, 0.5] {
        let mut world = World::new(32, &[&|_| rate]);
        (0..40).for_each(|_| world.round());
        assert!(world.moves < by_chance(10), "{rate}: {}", world.moves);
    }
}

/// All of a huge page is used as its one entry of the page table says.
#[test]
fn a_chunk_that_is_used_alike_stays_whole() {
    let mut world = World::new(16, &[&skewed]);
    for (number, chunk) in world.pages[0].chunks_mut(MOST).enumerate() {
        let rate = if number % 2 == 0 { 1e9 } else { 0.0 };
        chunk.iter_mut().for_each(|page| page.0 = rate);
    }
    (0..20).for_each(|_| world.round());
    assert_eq!(world.moves, 0);
}

/// What a tenant has is left to it, however hot another one's pages are.
#[test]
fn tenants_do_not_change_places() {
    let mut world = World::new(16, &[&skewed, &|random| 1000.0 * skewed(random)]);
    (0..30).for_each(|_| world.round());
    let (served, best) = world.served(0);
    assert!(served > 0.9 * best, "{served} of {best}");
}

#[test]
fn a_budget_bounds_each_round_and_the_rest_comes_later() {
    let mut world = World::new(32, &[&skewed]);
    world.budget = 1 << 20;
    (0..60).for_each(|_| world.round());
    let (served, best) = world.served(0);
    assert!(served > 0.95 * best, "{served} of {best}");
}

/// The kernel says that a page is in use elsewhere, or the process has unmapped it: where the others lie is looked for first.
#[test]
fn what_does_not_move_is_not_tried_before_the_next_look() {
    let mut world = World::new(16, &[&skewed]);
    (0..4).for_each(|_| world.round());
    world.look();
    let room = Room {
        free: [(0, 0)].into(),
        budget: 16 << 20,
        waste: 50,
        reports: 2,
        kernel_moves: false,
    };
    let all = Seen {
        range: 0..16 * CHUNK,
        accesses: 10,
        of: 10,
    };
    world.tiering.seen(process(0), &[all], None);
    let moves = world.tiering.decide(&world.claims, &room);
    assert!(!moves.is_empty());
    for of in &moves {
        world.tiering.done(of, 0, of.bytes);
    }
    let again = world.tiering.decide(&world.claims, &room);
    let is_same = |of: &Move| moves.iter().any(|before| before.number == of.number);
    assert!(!again.iter().any(is_same));
    assert_eq!(
        world.tiering.accounts()[0].stayed,
        moves.iter().map(|of| of.bytes).sum::<u64>()
    );
}

#[test]
fn all_memory_has_its_turn() {
    let mut world = World::new(20, &[&skewed, &skewed]);
    (0..14).for_each(|_| world.round());
    for pass in world.looked.chunks_exact(2 * 20) {
        let mut each = pass.to_vec();
        each.sort_unstable();
        each.dedup();
        assert_eq!(each.len(), 2 * 20);
    }
    assert!(world.looked.len() >= 2 * 2 * 20);
}

#[test]
fn levels_tell_doublings_apart() {
    let of = |rate: f64| {
        let count = (8.0 * (1.0 - (-rate * 0.02).exp())).round() as u8;
        level(count, 8, Duration::from_millis(20))
    };
    assert!(of(10.0) < of(20.0) && of(20.0) < of(40.0) && of(40.0) < of(80.0));
    assert!(rate(of(40.0)) > 30.0 && rate(of(40.0)) < 50.0);
    // One interval or another: the level is that of the page.
    let half = |count, ms| level(count, 8, Duration::from_millis(ms));
    assert!(half(4, 20).abs_diff(half(6, 40)) <= 2);
}
