// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy on a made-up machine: tenants with chunks, of which some are used, and a top tier of some size.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CHUNK_BYTES: u64 = CHUNK as u64;

/// The truth: where each chunk is and how often it is used, in thousandths of the samples.
struct Machine {
    capacity: u64,
    budget: u64,
    chunks: BTreeMap<(usize, usize), (bool, u32)>,
    claims: Vec<Tenant>,
    tiering: Tiering,
    moves: u64,
    random: fastrand::Rng,
}

fn process(group: usize) -> ProcessId {
    ProcessId {
        pid: group as u32 + 1,
        start: 7,
    }
}

/// All memory is near node 0, which is the top tier.
const NEAR: &[Near] = &[Near {
    node: 0,
    distance: 10,
}];

fn room(free: u64, budget: u64) -> Room {
    Room {
        free: BTreeMap::from([(0, free)]),
        budget,
        waste: 50,
        reports: 2,
        kernel_moves: false,
    }
}

/// What is told of memory is what was chosen of it.
fn keeps_to(state: &MemoryState) {
    let below: u64 = state.below.values().sum();
    let above: u64 = state.above.values().sum();
    assert_eq!([below, above], [state.resident - state.top, state.top]);
    let waiting = [Below::Waiting, Below::Limit];
    let waiting = waiting.iter().filter_map(|of| state.below.get(of));
    assert!(state.chosen_up <= waiting.sum::<u64>(), "{state:?}");
    let stays = [Above::NotWatched, Above::LeftAlone, Above::Unknown];
    let stays = stays.iter().filter_map(|of| state.above.get(of));
    assert!(state.chosen_down + stays.sum::<u64>() <= above, "{state:?}");
}

impl Machine {
    fn new(capacity_chunks: u64, claims: &[(u64, u64, u32)]) -> Machine {
        let claims: Vec<Tenant> = claims
            .iter()
            .map(|&(protect, limit, weight)| Tenant {
                protect,
                limit,
                weight,
                ..Tenant::default()
            })
            .collect();
        Machine {
            capacity: capacity_chunks * CHUNK_BYTES,
            budget: 32 * CHUNK_BYTES,
            chunks: BTreeMap::new(),
            tiering: Tiering::new(claims.len()),
            claims,
            moves: 0,
            random: fastrand::Rng::with_seed(3),
        }
    }

    fn give(&mut self, group: usize, numbers: Range<usize>, top: bool, use_per_mille: u32) {
        for number in numbers {
            self.chunks.insert((group, number), (top, use_per_mille));
        }
    }

    fn used(&self, group: usize) -> u64 {
        let of = self
            .chunks
            .iter()
            .filter(|(key, (top, _))| key.0 == group && *top);
        of.count() as u64 * CHUNK_BYTES
    }

    fn all_used(&self) -> u64 {
        (0..self.claims.len()).map(|group| self.used(group)).sum()
    }

    /// One round; every move is checked.
    fn round(&mut self) {
        for group in 0..self.claims.len() {
            let of = || self.chunks.iter().filter(move |(key, _)| key.0 == group);
            let places: Vec<Placed> = of()
                .map(|((_, number), (top, _))| Placed {
                    number: *number,
                    resident: CHUNK_BYTES,
                    top: if *top { CHUNK_BYTES } else { 0 },
                    node: 0,
                })
                .collect();
            let report: Vec<Seen> = of()
                .map(|((_, number), (_, used))| Seen {
                    range: number * CHUNK..(number + 1) * CHUNK,
                    accesses: (0..20).filter(|_| self.random.u32(..1000) < *used).count() as u32,
                    of: 20,
                })
                .collect();
            self.tiering.place(process(group), group, NEAR, &places);
            self.tiering.seen(process(group), &report, None);
        }
        let room = room(self.capacity - self.all_used(), self.budget);
        let moves = self.tiering.decide(&self.claims, &room);
        for group in 0..self.claims.len() {
            let state = self.tiering.state(process(group).into(), &room, &moves);
            keeps_to(&state.unwrap());
        }
        let up = moves.iter().filter(|of| of.way == Way::Up);
        let up: u64 = up.map(|of| of.bytes).sum();
        assert!(up <= self.budget, "{up} of {}", self.budget);
        let mut free = room.free[&0];
        for of in &moves {
            let Memory::Process(of_group) = of.memory else {
                panic!("{of:?}")
            };
            let key = (of_group.pid as usize - 1, of.number);
            let chunk = self.chunks.get_mut(&key).expect("a chunk that is there");
            assert_ne!(chunk.0, of.way == Way::Up, "it is there already");
            chunk.0 = of.way == Way::Up;
            free = match of.way {
                Way::Up => free.checked_sub(of.bytes).expect("room is made first"),
                Way::Down => free + of.bytes,
            };
            self.tiering.done(of, of.bytes, 0);
        }
        self.moves += moves.len() as u64;
    }

    fn rounds(&mut self, count: usize) {
        (0..count).for_each(|_| self.round());
    }
}

#[test]
fn hot_memory_fills_a_free_tier_and_idle_memory_stays() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100)]);
    machine.give(0, 0..16, false, 900);
    machine.give(0, 16..64, false, 0);
    machine.rounds(6);
    assert_eq!(machine.used(0), 16 * CHUNK_BYTES);
    let moves = machine.moves;
    machine.rounds(40);
    assert_eq!(machine.moves, moves, "nothing goes to and fro");
    assert_eq!(machine.tiering.accounts()[0].wasted, 0);
}

/// Two halves are used in turn, each for 2 s in 40 s; one fits.
#[test]
fn what_is_used_in_bursts_does_not_go_to_and_fro() {
    let mut machine = Machine::new(32, &[(0, u64::MAX, 100)]);
    machine.give(0, 0..64, false, 0);
    let mut periods = Vec::new();
    for _ in 0..14 {
        let before = machine.moves;
        for round in 0..200 {
            let used = |number| match (number < 32, round) {
                (true, 0..10) | (false, 100..110) => 900,
                _ => 0,
            };
            for ((_, number), of) in &mut machine.chunks {
                of.1 = used(*number);
            }
            machine.round();
        }
        periods.push(machine.moves - before);
    }
    // Two trips teach it, for ten minutes.
    assert_eq!(periods[2..].iter().sum::<u64>(), 0, "{periods:?}");
}

/// What went to and fro comes up once more when it stays in use.
#[test]
fn what_went_to_and_fro_and_is_in_use_since_comes_up() {
    let mut machine = Machine::new(32, &[(0, u64::MAX, 100)]);
    machine.give(0, 0..64, false, 0);
    for period in 0..6 {
        for ((_, number), of) in &mut machine.chunks {
            of.1 = if (*number < 32) == (period % 2 == 0) {
                900
            } else {
                0
            };
        }
        machine.rounds(100);
    }
    for ((_, number), of) in &mut machine.chunks {
        of.1 = if *number < 32 { 900 } else { 0 };
    }
    machine.rounds(300);
    let in_use = machine.chunks.range(..(0, 32)).filter(|(_, of)| of.0);
    assert_eq!(in_use.count(), 32);
}

#[test]
fn a_full_tier_exchanges_idle_for_hot() {
    let mut machine = Machine::new(32, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..32, true, 0);
    machine.give(1, 0..32, false, 900);
    machine.rounds(20 + KNOWN_REPORTS as usize);
    assert_eq!((machine.used(0), machine.used(1)), (0, 32 * CHUNK_BYTES));
}

/// Two processes of one tenant fill the top tier and idle; reports come of the first one alone.
fn blind_on_one() -> (Tiering, [Placed; 32]) {
    let mut tiering = Tiering::new(2);
    let placed = |number, top| Placed {
        number,
        resident: CHUNK_BYTES,
        top,
        node: 0,
    };
    let top: [Placed; 32] = std::array::from_fn(|number| placed(number, CHUNK_BYTES));
    let below: [Placed; 32] = std::array::from_fn(|number| placed(number, 0));
    [(0, 0, &top), (1, 0, &top), (2, 1, &below)]
        .into_iter()
        .for_each(|(number, group, places)| tiering.place(process(number), group, NEAR, places));
    (tiering, top)
}

fn claim(limit: u64) -> Tenant {
    Tenant {
        limit,
        weight: 100,
        ..Tenant::default()
    }
}

#[test]
fn memory_that_no_source_looks_at_stays() {
    let (mut tiering, _) = blind_on_one();
    let hot = Seen {
        range: 0..32 * CHUNK,
        accesses: 20,
        of: 20,
    };
    let mut gone = Vec::new();
    let mut came = 0;
    for _ in 0..400 {
        tiering.seen(process(0), &[], None);
        tiering.seen(process(2), std::slice::from_ref(&hot), None);
        // New memory wants room, too.
        tiering.born = 4 * CHUNK_BYTES;
        tiering.born_on.insert(0, tiering.number);
        let claims = [claim(u64::MAX), claim(u64::MAX)];
        for of in tiering.decide(&claims, &room(0, 32 * CHUNK_BYTES)) {
            match of.way {
                Way::Up => came += 1,
                Way::Down => gone.push(of.memory),
            }
            tiering.done(&of, of.bytes, 0);
        }
    }
    assert_eq!((gone.len(), came), (32, 32));
    assert!(gone.iter().all(|of| *of == process(0).into()));
    // A limit holds for all of it.
    let moves = tiering.decide(&[claim(8 * CHUNK_BYTES), claim(u64::MAX)], &room(0, 0));
    assert_eq!(moves.len(), 24);
    assert!(moves.iter().all(|of| of.memory == process(1).into()));
}

#[test]
fn of_a_limited_tenant_what_is_known_to_idle_goes_first() {
    let (mut tiering, _) = blind_on_one();
    for _ in 0..KNOWN_REPORTS {
        tiering.seen(process(0), &[], None);
        tiering.decide(&[claim(u64::MAX); 2], &room(0, 0));
    }
    tiering.seen(process(0), &[], None);
    let moves = tiering.decide(&[claim(40 * CHUNK_BYTES), claim(u64::MAX)], &room(0, 0));
    assert_eq!(moves.len(), 24);
    assert!(moves.iter().all(|of| of.memory == process(0).into()));
}

/// Two sockets: memory goes up to the near node of those that its cpuset allows, as far as that one has room.
#[test]
fn memory_goes_up_where_its_own_node_has_room() {
    let near = |node, distance| Near { node, distance };
    let placed = |number, top, node| Placed {
        number,
        resident: CHUNK_BYTES,
        top,
        node,
    };
    let mut tiering = Tiering::new(1);
    // One that may use both nodes, two that may use node 0 alone, of which the last one idles there.
    let below: Vec<Placed> = (0..8).map(|number| placed(number, 0, 0)).collect();
    let above: Vec<Placed> = (0..4)
        .map(|number| placed(number, CHUNK_BYTES, 0))
        .collect();
    let far: Vec<Placed> = (0..4)
        .map(|number| placed(number, CHUNK_BYTES, 1))
        .collect();
    tiering.place(process(0), 0, &[near(0, 10), near(1, 21)], &below);
    tiering.place(process(1), 0, &[near(0, 10)], &below);
    tiering.place(process(2), 0, &[near(0, 10)], &above);
    tiering.place(process(3), 0, &[near(1, 10)], &far);
    let hot = Seen {
        range: 0..8 * CHUNK,
        accesses: 20,
        of: 20,
    };
    let mut free = BTreeMap::from([(0, 4 * CHUNK_BYTES), (1, 64 * CHUNK_BYTES)]);
    let mut came: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut gone: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for _ in 0..2 * KNOWN_REPORTS {
        tiering.seen(process(0), std::slice::from_ref(&hot), None);
        tiering.seen(process(1), std::slice::from_ref(&hot), None);
        tiering.seen(process(2), &[], None);
        tiering.seen(process(3), &[], None);
        let room = Room {
            free: free.clone(),
            ..room(0, 64 * CHUNK_BYTES)
        };
        for of in tiering.decide(&[claim(u64::MAX)], &room) {
            let Memory::Process(process) = of.memory else {
                panic!("{of:?}")
            };
            let free = free.get_mut(&of.node).unwrap();
            let (moves, left) = match of.way {
                Way::Up => (
                    &mut came,
                    free.checked_sub(of.bytes).expect("that node has room"),
                ),
                Way::Down => (&mut gone, *free + of.bytes),
            };
            *free = left;
            *moves.entry((process.pid, of.node)).or_default() += 1;
            tiering.done(&of, of.bytes, 0);
        }
    }
    let sum = |moves: &BTreeMap<(u32, u32), usize>, is: &dyn Fn(&(u32, u32)) -> bool| {
        let of = moves.iter().filter(|(key, _)| is(key));
        of.map(|(_, count)| *count).sum::<usize>()
    };
    assert_eq!(sum(&came, &|of| of.0 == 1), 8);
    assert_eq!(sum(&came, &|of| *of == (2, 1)), 0);
    // All that was free on node 0, and what idled there; what idles on node 1 is of no use.
    assert_eq!(sum(&came, &|of| of.1 == 0), 8);
    assert_eq!(gone, BTreeMap::from([((3, 0), 4)]));
}

#[test]
fn a_limit_takes_what_idled_in_its_last_turn_before_what_is_in_use() {
    let (mut tiering, _) = blind_on_one();
    let hot = Seen {
        range: 0..32 * CHUNK,
        accesses: 20,
        of: 20,
    };
    for round in 0..2 * IDLE_REPORTS {
        tiering.seen(process(0), std::slice::from_ref(&hot), None);
        // Its turn is over.
        if round < IDLE_REPORTS {
            tiering.seen(process(1), &[], None);
        }
        tiering.decide(&[claim(u64::MAX); 2], &room(0, 0));
    }
    tiering.seen(process(0), &[hot], None);
    let moves = tiering.decide(&[claim(32 * CHUNK_BYTES), claim(u64::MAX)], &room(0, 0));
    assert_eq!(moves.len(), 32);
    assert!(moves.iter().all(|of| of.memory == process(1).into()));
}

/// As while a forked child saves its memory, of which no page is its own then.
#[test]
fn memory_that_was_away_is_not_new_and_as_hot_as_it_was() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..32, true, 900);
    machine.give(1, 0..32, true, 0);
    machine.rounds(2 * IDLE_REPORTS as usize);
    let (moves, all) = (machine.moves, machine.chunks.clone());
    machine.chunks.retain(|(group, _), _| *group == 1);
    machine.rounds(50);
    machine.chunks = all;
    machine.rounds(5);
    assert_eq!(machine.tiering.accounts()[0].hot, 32 * CHUNK_BYTES);
    assert_eq!(machine.moves, moves);
    // At last it is forgotten.
    machine.chunks.retain(|(group, _), _| *group == 1);
    machine.rounds(GONE_ROUNDS as usize + 1);
    assert_eq!(machine.tiering.spaces[&process(0).into()].chunks.len(), 0);
}

#[test]
fn room_for_new_memory_is_made_on_the_nodes_where_it_may_be() {
    let near = |node| Near { node, distance: 10 };
    let placed = |number, node| Placed {
        number,
        resident: CHUNK_BYTES,
        top: CHUNK_BYTES,
        node,
    };
    let mut tiering = Tiering::new(1);
    let on = |node| -> Vec<Placed> { (0..32).map(|number| placed(number, node)).collect() };
    for node in 0..2 {
        tiering.place(process(node), 0, &[near(node as u32)], &on(node as u32));
    }
    let mut gone = BTreeSet::new();
    for round in 0..2 * IDLE_REPORTS as usize {
        (0..2).for_each(|node| tiering.seen(process(node), &[], None));
        // A process that may use node 0 alone grows.
        let grown: Vec<Placed> = (0..round / 50).map(|number| placed(number, 0)).collect();
        tiering.place(process(2), 0, &[near(0)], &grown);
        let room = Room {
            free: BTreeMap::from([(0, 0), (1, 64 * CHUNK_BYTES)]),
            ..room(0, 0)
        };
        for of in tiering.decide(&[claim(u64::MAX)], &room) {
            gone.insert(of.node);
            tiering.done(&of, of.bytes, 0);
        }
    }
    assert_eq!(gone, BTreeSet::from([0]));
}

/// Shared memory of which some processes are looked at in turn.
#[test]
fn memory_counts_as_idle_once_all_who_map_it_had_their_turns() {
    let pool = Memory::Shared(Object {
        device: (0, 1),
        inode: 7,
    });
    let (mut tiering, top) = blind_on_one();
    tiering.place(pool, 0, NEAR, &top);
    let mut first = None;
    for round in 0..1000 {
        // A turn of all takes a hundred seconds.
        tiering.seen(pool, &[], Some(round / 500));
        tiering.born = 4 * CHUNK_BYTES;
        tiering.born_on.insert(0, tiering.number);
        let moves = tiering.decide(&[claim(u64::MAX); 2], &room(0, 0));
        if !moves.is_empty() {
            first = first.or(Some(round));
        }
    }
    assert_eq!(first, None);
    tiering.seen(pool, &[], Some(2));
    tiering.born = 4 * CHUNK_BYTES;
    tiering.born_on.insert(0, tiering.number);
    assert!(
        !tiering
            .decide(&[claim(u64::MAX); 2], &room(0, 0))
            .is_empty()
    );
}

/// Without reports nothing becomes older, so what was hot before is so when they come again.
#[test]
fn a_source_that_pauses_makes_nothing_idle() {
    let mut machine = Machine::new(32, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..32, true, 900);
    machine.give(1, 0..32, false, 900);
    machine.rounds(60);
    let (moves, heat) = (machine.moves, machine.tiering.accounts()[0].hot);
    for _ in 0..3000 {
        let chosen = machine
            .tiering
            .decide(&machine.claims, &room(0, machine.budget));
        assert_eq!(chosen, []);
    }
    assert_eq!(machine.tiering.accounts()[0].hot, heat);
    machine.rounds(20);
    assert!(
        machine.moves - moves <= 4,
        "{} moves",
        machine.moves - moves
    );
}

/// Ages go on while no source looks, and end with the memory.
#[test]
fn memory_counts_by_when_it_was_last_seen_in_use() {
    let mut machine = Machine::new(32, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..4, true, 1000);
    machine.give(0, 4..12, true, 0);
    machine.give(1, 0..4, true, 0);
    machine.rounds(5);
    let chunks = |machine: &Machine| {
        let of = |account: &Account| account.used_within.map(|bytes| bytes / CHUNK_BYTES);
        assert_eq!(of(&machine.tiering.accounts()[1]), [0; 5]);
        of(&machine.tiering.accounts()[0])
    };
    assert_eq!(chunks(&machine), [4; 5]);
    machine.give(0, 0..1, true, 0);
    machine.rounds(AGES[0] as usize - 1);
    assert_eq!(chunks(&machine), [4; 5]);
    machine.round();
    assert_eq!(chunks(&machine), [3, 4, 4, 4, 4]);
    machine.chunks.remove(&(0, 1));
    machine.round();
    assert_eq!(chunks(&machine), [2, 3, 3, 3, 3]);
    // From here on nothing is reported. The chunk that idles has aged by one more.
    let unused = AGES[0] + 1;
    for round in 1..=AGES[4] {
        machine.tiering.decide(&machine.claims, &room(0, 0));
        let of = |age: u32| {
            let idle = u64::from(unused + round < age);
            2 * u64::from(round < age) + idle
        };
        assert_eq!(chunks(&machine), AGES.map(of), "{round}");
    }
    assert_eq!(chunks(&machine), [0; 5]);
}

/// New memory takes the place of what idled for a minute, not of what was in use since.
#[test]
fn room_for_new_memory_is_made_by_what_idled_for_a_minute() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100)]);
    machine.give(0, 0..32, true, 0);
    machine.give(0, 32..64, true, 0);
    let mut gone = 0;
    for round in 0..2 * IDLE_REPORTS {
        // The second half is used every half minute.
        let used = if round % (IDLE_REPORTS / 2) == 0 {
            1000
        } else {
            0
        };
        machine
            .chunks
            .range_mut((0, 32)..)
            .for_each(|(_, of)| of.1 = used);
        machine.tiering.born = 4 * CHUNK_BYTES;
        machine.tiering.born_on.insert(0, machine.tiering.number);
        machine.rounds(1);
        gone = machine.chunks.values().filter(|(top, _)| !top).count();
        if round + 1 < IDLE_REPORTS {
            assert_eq!(gone, 0, "{round}");
        }
    }
    let of_second = machine.chunks.range((0, 32)..).filter(|(_, (top, _))| !top);
    assert!(gone > 0);
    assert_eq!(of_second.count(), 0);
}

/// A use between two turns is not seen.
#[test]
fn what_is_looked_at_in_turn_makes_no_room_for_new_memory() {
    let (mut tiering, top) = blind_on_one();
    let claims = [claim(u64::MAX), claim(u64::MAX)];
    let all = room(0, 32 * CHUNK_BYTES);
    let mut rounds = |count: u32, is_seen: fn(u32) -> bool| {
        for round in 0..count {
            tiering.place(process(0), 0, NEAR, &top);
            if is_seen(round) {
                tiering.seen(process(0), &[], None);
            }
            tiering.born = 4 * CHUNK_BYTES;
            tiering.born_on.insert(0, tiering.number);
            if !tiering.decide(&claims, &all).is_empty() {
                return true;
            }
        }
        false
    };
    assert!(!rounds(20 * IDLE_REPORTS, |round| round % 250 < 25));
    assert!(!rounds(IDLE_REPORTS - 1, |_| true));
    // That a kdamond is begun again is no gap.
    assert!(rounds(IDLE_REPORTS, |round| round % 25 > 5));
}

#[test]
fn what_is_protected_stays_though_it_idles() {
    let mut machine = Machine::new(32, &[(20 * CHUNK_BYTES, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..32, true, 0);
    machine.give(1, 0..64, false, 900);
    machine.rounds(40);
    assert_eq!(machine.used(0), 20 * CHUNK_BYTES);
    assert_eq!(machine.used(1), 12 * CHUNK_BYTES);
}

#[test]
fn a_flood_leaves_the_other_its_protection() {
    let mut machine = Machine::new(40, &[(20 * CHUNK_BYTES, u64::MAX, 100), (0, u64::MAX, 100)]);
    // The flood was there first.
    machine.give(1, 0..80, false, 950);
    machine.rounds(20);
    assert_eq!(machine.used(1), 40 * CHUNK_BYTES);
    machine.give(0, 0..20, false, 400);
    machine.rounds(60);
    assert_eq!(machine.used(0), 20 * CHUNK_BYTES);
}

#[test]
fn weights_divide_what_all_want() {
    let mut machine = Machine::new(60, &[(0, u64::MAX, 100), (0, u64::MAX, 200)]);
    machine.give(0, 0..60, true, 900);
    machine.give(1, 0..60, false, 900);
    machine.rounds(60);
    let (one, two) = (machine.used(0) / CHUNK_BYTES, machine.used(1) / CHUNK_BYTES);
    assert!(
        one.abs_diff(20) <= 1 && two.abs_diff(40) <= 1,
        "{one} {two}"
    );
}

#[test]
fn a_limit_holds_from_the_first_round() {
    let mut machine = Machine::new(64, &[(0, 10 * CHUNK_BYTES, 100)]);
    machine.give(0, 0..32, true, 900);
    machine.rounds(1);
    assert_eq!(machine.used(0), 10 * CHUNK_BYTES);
    machine.rounds(40);
    assert_eq!(machine.used(0), 10 * CHUNK_BYTES);
}

/// With a search of all chunks for each that goes, this took more than a minute.
#[test]
fn a_terabyte_beyond_its_limit_is_chosen_at_once() {
    const CHUNKS: usize = 1 << 18;
    let claim = |limit| Tenant {
        limit,
        weight: 100,
        ..Tenant::default()
    };
    let mut tiering = Tiering::new(2);
    let places: Vec<Placed> = (0..CHUNKS)
        .map(|number| Placed {
            number,
            resident: CHUNK_BYTES,
            top: CHUNK_BYTES,
            node: 0,
        })
        .collect();
    // Of equals, those of the process with the larger number are looked at first.
    (0..2).for_each(|group| tiering.place(process(group), group, NEAR, &places));
    let began = std::time::Instant::now();
    let moves = tiering.decide(&[claim(0), claim(u64::MAX)], &room(0, 0));
    assert_eq!(moves.len(), CHUNKS);
    assert!(moves.iter().all(|of| of.memory == process(0).into()));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

/// Each chunk is used in two reports, then never again: as a scan.
#[test]
fn promotions_that_do_not_pay_end() {
    let mut machine = Machine::new(4096, &[(0, u64::MAX, 100)]);
    for step in 0..400_usize {
        let numbers = step * 8..step * 8 + 8;
        machine.give(0, numbers.clone(), false, 1000);
        machine.rounds(2);
        numbers.for_each(|number| machine.chunks.get_mut(&(0, number)).expect("given").1 = 0);
    }
    let account = machine.tiering.accounts()[0];
    assert!(account.wasted > 64 * CHUNK_BYTES, "{account:?}");
    assert!(account.promoted < 1600 * CHUNK_BYTES, "{account:?}");
    assert!(machine.tiering.waste_rate().per_mille() <= 62);
}

#[test]
fn a_tenant_at_its_limit_still_changes_cold_for_hot() {
    let mut machine = Machine::new(64, &[(0, 8 * CHUNK_BYTES, 100)]);
    machine.give(0, 0..8, true, 0);
    machine.give(0, 8..16, false, 900);
    machine.rounds(60);
    let up = |number: usize| machine.chunks[&(0, number)].0;
    assert!((8..16).all(up) && !(0..8).any(up));
}

#[test]
fn what_comes_back_at_once_halves_its_tenants_rate() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..8, true, 0);
    machine.rounds(8);
    let down = |number| Move {
        memory: process(0).into(),
        number,
        way: Way::Down,
        cause: crate::tiering::Cause::Exchange,
        node: 0,
        bytes: CHUNK_BYTES,
        pages: None,
    };
    machine.tiering.done(&down(3), CHUNK_BYTES, 0);
    machine.chunks.insert((0, 3), (false, 1000));
    // What reports tell until then may have been before the move.
    machine.rounds(LATE_ROUNDS as usize);
    assert_eq!(machine.tiering.accounts()[0].thrashed, 0);
    machine.rounds(1);
    let [one, other] = machine.tiering.accounts() else {
        panic!()
    };
    assert_eq!((one.thrashed, other.thrashed), (CHUNK_BYTES, 0));
    assert_eq!((one.rate.per_mille(), other.rate.per_mille()), (500, 1000));
}

#[test]
fn a_tenant_under_pressure_of_its_own_waits_alone() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100), (0, u64::MAX, 100)]);
    machine.give(0, 0..16, false, 1000);
    machine.give(1, 0..16, false, 1000);
    (0..6).for_each(|_| machine.claims[0].pressure.halve());
    machine.rounds(20);
    assert_eq!((machine.used(0), machine.used(1)), (0, 16 * CHUNK_BYTES));
    machine.claims[0].pressure = Rate::default();
    machine.rounds(20);
    assert_eq!(machine.used(0), 16 * CHUNK_BYTES);
}

#[test]
fn own_idle_memory_makes_room_before_what_another_tenant_uses() {
    let mut machine = Machine::new(
        48,
        &[
            (15 * CHUNK_BYTES, 16 * CHUNK_BYTES, 33),
            (9 * CHUNK_BYTES, u64::MAX, 1),
            (0, 24 * CHUNK_BYTES, 1),
        ],
    );
    machine.give(0, 0..11, false, 1000);
    machine.give(0, 11..33, true, 0);
    machine.give(1, 0..1, false, 1000);
    machine.give(1, 1..10, true, 0);
    machine.give(2, 0..24, false, 1000);
    machine.rounds(20 + KNOWN_REPORTS as usize);
    let moves = machine.moves;
    machine.rounds(60);
    assert_eq!(machine.moves - moves, 0);
    let in_use_below = machine.chunks.values().filter(|of| !of.0 && of.1 > 0);
    assert_eq!(in_use_below.count(), 0);
}

#[test]
fn a_chunk_that_would_not_move_is_left_alone_for_longer_each_time() {
    let mut machine = Machine::new(64, &[(0, u64::MAX, 100)]);
    machine.give(0, 0..1, false, 1000);
    let mut asked = Vec::new();
    for round in 0..80 {
        let place = Placed {
            number: 0,
            resident: CHUNK_BYTES,
            top: 0,
            node: 0,
        };
        machine.tiering.place(process(0), 0, NEAR, &[place]);
        let seen = Seen {
            range: 0..CHUNK,
            accesses: 20,
            of: 20,
        };
        machine.tiering.seen(process(0), &[seen], None);
        let room = room(64 << 20, 64 << 20);
        for of in machine.tiering.decide(&machine.claims, &room) {
            asked.push(round);
            machine.tiering.done(&of, 0, of.bytes);
        }
    }
    assert_eq!(asked, [1, 11, 31, 71]);
}

proptest! {
    /// Whatever tenants want, each round keeps to the budget and to the room, nothing protected is displaced, limits hold, and
    /// once use does not change moves end.
    #[test]
    fn every_round_keeps_the_rules(
        capacity in 8..64_u64,
        tenants in prop::collection::vec((0..16_u64, prop::option::of(8..40_u64), 1..500_u32, 0..48_usize, 0..48_usize), 1..4),
    ) {
        let promised: u64 = tenants.iter().map(|of| of.0).sum();
        prop_assume!(promised <= capacity);
        let claims: Vec<_> = tenants.iter().map(|&(protect, limit, weight, ..)| {
            let limit = limit.map_or(u64::MAX, |limit| limit.max(protect) * CHUNK_BYTES);
            (protect * CHUNK_BYTES, limit, weight)
        }).collect();
        let mut machine = Machine::new(capacity, &claims);
        let mut top = capacity;
        for (group, &(.., hot, idle)) in tenants.iter().enumerate() {
            machine.give(group, 0..hot, false, 1000);
            for number in hot..hot + idle {
                machine.give(group, number..number + 1, top > 0, 0);
                top = top.saturating_sub(1);
            }
        }
        let before: Vec<u64> = (0..tenants.len()).map(|group| machine.used(group)).collect();
        machine.rounds(100);
        for (group, &(protect, limit, ..)) in claims.iter().enumerate() {
            let used = machine.used(group);
            prop_assert!(used <= limit);
            prop_assert!(used >= protect.min(before[group]));
            // Memory in use within the protection came up.
            let hot = tenants[group].3 as u64 * CHUNK_BYTES;
            prop_assert!(used >= protect.min(hot), "{} of {protect}", used);
        }
        let moves = machine.moves;
        machine.rounds(60);
        prop_assert!(machine.moves - moves <= 4, "{} moves", machine.moves - moves);
    }
}
