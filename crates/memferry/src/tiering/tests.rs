// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds over memory that exists nowhere: what is hot comes up, what is cold makes room, and what will not move is left alone.

use super::*;
use crate::result::MoveResult;
use part::{Part, REFUSALS_SEEN, SEARCHED, Tier};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

const UNIT: usize = 16 << 10;
const START: usize = 1 << 30;

/// A machine that keeps a node per unit, -ENOENT for one that was never touched, and moves all but the `stuck`.
#[derive(Clone, Default)]
struct Fake {
    nodes: Arc<Mutex<Vec<i32>>>,
    stuck: Arc<Mutex<Vec<usize>>>,
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Fake {
    fn of(nodes: Vec<i32>) -> Fake {
        Fake {
            nodes: Arc::new(Mutex::new(nodes)),
            ..Fake::default()
        }
    }

    fn on(&self, node: i32) -> Vec<usize> {
        let nodes = self.nodes.lock().unwrap();
        (0..nodes.len())
            .filter(|&unit| nodes[unit] == node)
            .collect()
    }
}

impl Places for Fake {
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        let nodes = self.nodes.lock().unwrap();
        for (page, status) in pages.iter().zip(status) {
            *status = nodes[(page - START) / UNIT];
        }
        Ok(())
    }

    fn carry(&self, ranges: &[Range<usize>], to: u32) -> Result<ListResult, MoveError> {
        let mut nodes = self.nodes.lock().unwrap();
        let mut result = ListResult::default();
        for range in ranges {
            assert_eq!(range.len(), UNIT);
            let unit = (range.start - START) / UNIT;
            self.asked.lock().unwrap().push(unit);
            let mut of = MoveResult::default();
            if self.stuck.lock().unwrap().contains(&unit) {
                of.busy.add(4, UNIT as u64);
            } else {
                assert_ne!(nodes[unit], to as i32, "it lies there");
                nodes[unit] = to as i32;
                of.moved.add(4, UNIT as u64);
            }
            result.ranges.push(of);
        }
        Ok(result)
    }
}

fn tiering(fake: &Fake, top_units: usize) -> Tiering {
    let units = fake.nodes.lock().unwrap().len();
    let tiering = empty(fake, top_units);
    tiering.add(of(0..units)).unwrap();
    tiering
}

/// Of no range yet.
fn empty(fake: &Fake, top_units: usize) -> Tiering {
    let options = TieringOptions::new(0, 1, top_units * UNIT);
    Tiering::on(Box::new(fake.clone()), options).unwrap()
}

fn of(units: Range<usize>) -> Range<usize> {
    START + units.start * UNIT..START + units.end * UNIT
}

/// Bytes that `tiering` keeps for each unit and range.
fn bytes(tiering: &Tiering) -> usize {
    let state = tiering.state.lock().unwrap();
    let parts: usize = state.parts().iter().map(Part::bytes).sum();
    parts + tiering.used.bytes()
}

/// Rounds, each after a use of these units.
fn rounds(tiering: &Tiering, count: usize, used: impl Iterator<Item = usize> + Clone) -> Round {
    let mut sum = Round::default();
    for _ in 0..count {
        used.clone()
            .for_each(|unit| tiering.record(START + unit * UNIT + 5));
        let round = tiering.round().unwrap();
        sum.promoted_bytes += round.promoted_bytes;
        sum.demoted_bytes += round.demoted_bytes;
        sum.stayed_bytes += round.stayed_bytes;
        sum.top_bytes = round.top_bytes;
    }
    sum
}

#[test]
fn the_hot_units_come_up_and_what_is_cold_makes_room() {
    // 100 units in the top tier, all cold, and the hot ones below.
    let fake = Fake::of((0..1000).map(|unit| i32::from(unit >= 100)).collect());
    let tiering = tiering(&fake, 100);
    let hot = 500..600;
    let sum = rounds(&tiering, 20, hot.clone());
    assert_eq!(fake.on(0), hot.clone().collect::<Vec<_>>());
    assert_eq!(sum.promoted_bytes, (100 * UNIT) as u64);
    assert_eq!(sum.demoted_bytes, sum.promoted_bytes);
    assert_eq!(sum.top_bytes, (100 * UNIT) as u64);
    assert_eq!(
        rounds(&tiering, 50, hot),
        Round {
            top_bytes: sum.top_bytes,
            ..Round::default()
        }
    );
}

#[test]
fn a_scan_of_all_memory_moves_nothing() {
    let fake = Fake::of((0..1000).map(|unit| i32::from(unit >= 100)).collect());
    let tiering = tiering(&fake, 100);
    rounds(&tiering, 20, 0..100);
    for first in (100..1000).step_by(100) {
        rounds(&tiering, 1, (0..100).chain(first..first + 100));
    }
    assert_eq!(fake.on(0), (0..100).collect::<Vec<_>>());
    assert!(fake.asked.lock().unwrap().is_empty());
}

#[test]
fn free_space_is_filled_and_never_more() {
    let fake = Fake::of(vec![1; 300]);
    let tiering = tiering(&fake, 50);
    rounds(&tiering, 30, 0..200);
    assert_eq!(fake.on(0).len(), 50);
    // Others have filled the tier beyond its share.
    fake.nodes.lock().unwrap()[200..].fill(0);
    rounds(&tiering, 3, 0..0);
    assert_eq!(fake.on(0).len(), 50);
}

#[test]
fn what_will_not_move_is_asked_less_and_less_and_holds_nobody_up() {
    let fake = Fake::of((0..200).map(|unit| i32::from(unit >= 10)).collect());
    *fake.stuck.lock().unwrap() = vec![100, 101, 102];
    let tiering = tiering(&fake, 10);
    let sum = rounds(&tiering, 200, 100..110);
    let up = fake.on(0);
    assert!((103..110).all(|unit| up.contains(&unit)), "{up:?}");
    let asked = fake
        .asked
        .lock()
        .unwrap()
        .iter()
        .filter(|unit| **unit == 100)
        .count();
    assert!((2..10).contains(&asked), "{asked} times in 200 rounds");
    assert!(sum.stayed_bytes >= (3 * UNIT) as u64);
    // It can move again.
    fake.stuck.lock().unwrap().clear();
    rounds(&tiering, 1100, 100..110);
    assert!(fake.on(0).contains(&100));
}

#[test]
fn what_will_not_move_takes_no_place_in_a_decision() {
    // Idle units above that stay, more than there are hot ones, hide none that are in use less.
    let fake = Fake::of((0..200).map(|unit| i32::from(unit >= 30)).collect());
    *fake.stuck.lock().unwrap() = (0..20).collect();
    let above = tiering(&fake, 30);
    let seldom = |round: usize| (20..30).filter(move |_| round % 4 == 0);
    for round in 0..60 {
        rounds(&above, 1, (100..110).chain(seldom(round)));
    }
    assert_eq!(fake.on(0), Vec::from_iter((0..20).chain(100..110)));
    // Hot units below that stay leave the room to others.
    let fake = Fake::of(vec![1; 200]);
    *fake.stuck.lock().unwrap() = (0..20).collect();
    let below = tiering(&fake, 10);
    for round in 0..60 {
        rounds(&below, 1, (0..20).chain(seldom(round)));
    }
    assert_eq!(fake.on(0), Vec::from_iter(20..30));
}

#[test]
fn new_memory_is_found_and_the_rate_holds() {
    let fake = Fake::of(vec![-libc::ENOENT; 1000]);
    let of_rate = |rate: usize| {
        let options = TieringOptions::new(0, 1, 500 * UNIT).bytes_per_second(rate as u64);
        let tiering = Tiering::on(Box::new(fake.clone()), options).unwrap();
        tiering.add(of(0..1000)).unwrap();
        tiering
    };
    let tiering = tiering(&fake, 500);
    fake.nodes.lock().unwrap()[..400].fill(1);
    // A unit is more than the rate gives in hours; it is paid for afterwards.
    let promoted = |of: &Tiering| rounds(of, 10, 0..400).promoted_bytes as usize / UNIT;
    assert_eq!(promoted(&of_rate(1)), 1);
    // Of two rounds, as the second may be late, and what the rate gives while the test runs.
    let begun = Instant::now();
    let two_rounds = promoted(&of_rate(100 * UNIT));
    let most = 51 + begun.elapsed().as_millis() as usize / 10;
    assert!((50..=most).contains(&two_rounds), "{two_rounds}");
    assert_eq!(promoted(&tiering), 400 - 1 - two_rounds);
}

#[test]
fn what_is_outside_is_ignored_and_bad_options_are_refused() {
    let fake = Fake::of(vec![1; 10]);
    let tiering = tiering(&fake, 5);
    for addr in [0, START - 1, START + 10 * UNIT, usize::MAX] {
        tiering.record(addr);
    }
    assert_eq!(tiering.round().unwrap(), Round::default());
    let refused = |options: TieringOptions| {
        let made = Tiering::on(Box::new(fake.clone()), options);
        let added = made.and_then(|tiering| tiering.add(of(0..10)));
        added.unwrap_err().to_string()
    };
    let good = || TieringOptions::new(0, 1, UNIT);
    for (options, why) in [
        (TieringOptions::new(0, 0, UNIT), "the same node"),
        (good().unit_bytes(0), "unit_bytes"),
        (good().unit_bytes(5000), "unit_bytes"),
        (good().unit_bytes(3 * UNIT), "unit_bytes"),
        (good().bytes_per_second(0), "bytes_per_second"),
    ] {
        let said = refused(options);
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn refused_units_cost_a_round_what_they_are_and_not_what_all_units_are() {
    let fake = Fake::of((0..10_000).map(|unit| i32::from(unit >= 10)).collect());
    *fake.stuck.lock().unwrap() = vec![100, 101, 102];
    let tiering = tiering(&fake, 10);
    let refused = || tiering.state.lock().unwrap().parts()[0].refused();
    rounds(&tiering, 10, 100..110);
    assert_eq!(refused(), 3);
    let before = (REFUSALS_SEEN.get(), SEARCHED.get());
    rounds(&tiering, 10, 100..110);
    let seen = REFUSALS_SEEN.get() - before.0;
    assert!(seen <= 10 * 3, "{seen} refusals in 10 rounds");
    // They leave room that nothing else wants, and are asked again once in these rounds.
    let searches = (SEARCHED.get() - before.1) / 10_000;
    assert!((1..=2).contains(&searches), "{searches} in 10 rounds");
    // Nobody wants them any more.
    rounds(&tiering, 300, 103..110);
    assert_eq!(refused(), 0);
}

#[test]
fn a_pool_grows_and_shrinks_and_keeps_what_is_known_of_the_rest() {
    let fake = Fake::of(vec![1; 1000]);
    let tiering = empty(&fake, 1000);
    tiering.add(of(0..400)).unwrap();
    tiering.add(of(500..900)).unwrap();
    let used = [3, 100, 250, 399, 450, 500, 899];
    rounds(&tiering, 1, used.into_iter());
    for unit in used {
        tiering.record(of(unit..unit + 1).start);
    }
    // Units 100 and 250 are within the range, 500 is beside it. What was used is not known to a round yet.
    tiering.forget(of(90..300)).unwrap();
    tiering.forget(of(501..800)).unwrap();
    tiering.round().unwrap();
    assert_eq!(fake.on(0), [3, 399, 500, 899]);
    // Of what comes back nothing is known.
    tiering.add(of(90..300)).unwrap();
    rounds(&tiering, 1, [100].into_iter());
    assert_eq!(fake.on(0), [3, 399, 500, 899]);
    rounds(&tiering, 1, [100].into_iter());
    assert_eq!(fake.on(0), [3, 100, 399, 500, 899]);
    // What is forgotten stays in the top tier and takes no room of it.
    let sum = rounds(&tiering, 1, 0..0);
    assert_eq!(sum.top_bytes, (5 * UNIT) as u64);
    tiering.forget(0..usize::MAX / 2 / UNIT * UNIT).unwrap();
    assert_eq!(rounds(&tiering, 3, used.into_iter()), Round::default());
    assert_eq!(fake.on(0).len(), 5);
}

#[test]
fn memory_that_is_added_later_is_not_new_and_what_is_touched_later_is() {
    let fake = Fake::of((0..300).map(|unit| i32::from(unit >= 100)).collect());
    let tiering = empty(&fake, 100);
    tiering.add(of(0..100)).unwrap();
    rounds(&tiering, 20, 0..0);
    tiering.add(of(100..200)).unwrap();
    assert_eq!(rounds(&tiering, 10, 0..0).demoted_bytes, 0);
    fake.nodes.lock().unwrap()[200..].fill(-libc::ENOENT);
    tiering.add(of(200..300)).unwrap();
    rounds(&tiering, 10, 0..0);
    fake.nodes.lock().unwrap()[200..].fill(1);
    assert!(rounds(&tiering, 1, 0..0).demoted_bytes > 0);
}

#[test]
fn overlaps_and_parts_of_units_are_refused_and_change_nothing() {
    let fake = Fake::of(vec![1; 100]);
    let tiering = empty(&fake, 10);
    tiering.add(of(10..20)).unwrap();
    for range in [of(10..20), of(5..11), of(19..30), of(12..13), of(0..40)] {
        let refused = tiering.add(range.clone());
        assert!(
            matches!(&refused, Err(MoveError::Overlap { range: told }) if *told == range),
            "{refused:?}"
        );
    }
    tiering.add(of(20..21)).unwrap();
    tiering.add(of(9..10)).unwrap();
    let within = START + 15 * UNIT + page_size();
    for range in [within..START + 20 * UNIT, START..within] {
        let said = tiering.forget(range).unwrap_err().to_string();
        assert!(said.contains("within a unit"), "{said}");
    }
    assert!(tiering.forget(of(5..5)).is_err());
    let ranges = |tiering: &Tiering| -> Vec<_> {
        let state = tiering.state.lock().unwrap();
        state
            .parts()
            .iter()
            .map(|part| part.range.clone())
            .collect()
    };
    assert_eq!(ranges(&tiering), [of(9..10), of(10..20), of(20..21)]);
    // Where nothing is tiered an end may lie anywhere.
    tiering
        .forget(START + page_size()..START + 12 * UNIT)
        .unwrap();
    assert_eq!(ranges(&tiering), [of(12..20), of(20..21)]);
}

#[test]
fn a_mover_has_other_uses_too() {
    let mover = Mover::new(crate::MoverOptions::new(crate::Batch::default())).unwrap();
    let mover = Arc::new(mover);
    // On a machine of one node the second one is refused.
    let made = Tiering::new(Arc::clone(&mover), TieringOptions::new(0, 1, UNIT));
    assert!(
        matches!(&made, Ok(_) | Err(MoveError::BadNode { node: 1, .. })),
        "{made:?}"
    );
    let made = Tiering::new(Arc::clone(&mover), TieringOptions::new(0, 0, UNIT));
    assert!(matches!(
        made,
        Err(MoveError::BadOption { name: "lower", .. })
    ));
    assert_eq!(mover.migrator().name(), "batch");
}

#[test]
fn ranges_that_come_and_go_take_memory_for_what_is_there() {
    let fake = Fake::of(Vec::new());
    let tiering = empty(&fake, 10);
    tiering.add(of(0..100_000)).unwrap();
    let most = bytes(&tiering);
    assert!(most <= 6 * 100_000, "{most}");
    for round in 0..100 {
        tiering.forget(of(1000 + round..100_000)).unwrap();
        assert!(bytes(&tiering) < 100_000, "the records are still there");
        tiering.add(of(1000 + round..50_000)).unwrap();
        tiering.add(of(50_000..100_000)).unwrap();
        let now = bytes(&tiering);
        assert!(now <= 6 * 100_000, "{now} in round {round}");
        tiering.forget(of(0..100_000)).unwrap();
        tiering.add(of(0..100_000)).unwrap();
    }
}

#[test]
fn threads_record_while_ranges_come_and_go() {
    let fake = Fake::of(vec![1; 4000]);
    let tiering = empty(&fake, 500);
    tiering.add(of(2000..3000)).unwrap();
    let (over, recorded) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (tiering, over, recorded) = (&tiering, &over, &recorded);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Some units of the range that stays, and all of those that come and go.
                    for unit in (2000..2200).chain(thread..2000).chain(3000..4000) {
                        tiering.record(START + unit * UNIT);
                    }
                    recorded.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..300 {
            // Some thread used all units since the last round.
            let goal = recorded.load(Ordering::Relaxed) + 3;
            while recorded.load(Ordering::Relaxed) < goal {
                std::thread::yield_now();
            }
            for units in [1 + round % 7..500, 501..1999, 3001..4000] {
                tiering.add(of(units)).unwrap();
            }
            tiering.round().unwrap();
            tiering.forget(of(0..2000)).unwrap();
            tiering.forget(of(3000..4000)).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let up = fake.on(0);
    assert!((2000..2200).all(|unit| up.contains(&unit)), "{up:?}");
    let asked = fake.asked.lock().unwrap();
    assert!(!asked.iter().any(|unit| [0, 500, 1999, 3000].contains(unit)));
}

/// What an application does in any order.
#[derive(Clone, Debug)]
enum Act {
    Add(Range<usize>),
    Forget(Range<usize>),
    Use(Range<usize>),
    Stick(Range<usize>),
    Touch(Range<usize>, i32),
    Round,
}

const UNITS: usize = 200;

fn act() -> impl Strategy<Value = Act> {
    let units = || (0..UNITS, 1..60_usize).prop_map(|(from, len)| from..(from + len).min(UNITS));
    prop_oneof![
        2 => units().prop_map(Act::Add),
        2 => units().prop_map(Act::Forget),
        4 => units().prop_map(Act::Use),
        1 => units().prop_map(Act::Stick),
        1 => (units(), prop_oneof![Just(-libc::ENOENT), 0..3]).prop_map(|(units, on)| Act::Touch(units, on)),
        6 => Just(Act::Round),
    ]
}

proptest! {
    #[test]
    fn any_order_keeps_counts_and_ranges_right(
        acts in prop::collection::vec(act(), 1..120),
        capacity in 0..UNITS,
    ) {
        let fake = Fake::of(vec![1; UNITS]);
        let tiering = empty(&fake, capacity);
        // The number of each unit that is tiered, and the first one that was never given.
        let (mut tiered, mut unused) = (HashMap::<usize, u64>::new(), 0);
        let mut was_stuck = false;
        for act in acts {
            match act {
                Act::Add(units) => {
                    let free = !units.clone().any(|unit| tiered.contains_key(&unit));
                    prop_assert_eq!(tiering.add(of(units.clone())).is_ok(), free);
                    if free {
                        tiered.extend(units.zip(unused..));
                        unused = tiered.values().max().unwrap() + 1;
                    }
                }
                Act::Forget(units) => {
                    tiering.forget(of(units.clone())).unwrap();
                    tiered.retain(|unit, _| !units.contains(unit));
                }
                Act::Use(units) => units.for_each(|unit| tiering.record(of(unit..unit + 1).end - 1)),
                Act::Stick(units) => {
                    *fake.stuck.lock().unwrap() = units.collect();
                    was_stuck = true;
                }
                Act::Touch(units, on) => fake.nodes.lock().unwrap()[units].fill(on),
                Act::Round => {
                    let on_top = || fake.on(0).iter().filter(|unit| tiered.contains_key(unit)).count();
                    let before = on_top();
                    let round = tiering.round().unwrap();
                    let asked = std::mem::take(&mut *fake.asked.lock().unwrap());
                    prop_assert!(asked.iter().all(|unit| tiered.contains_key(unit)));
                    prop_assert_eq!(round.top_bytes as usize, on_top() * UNIT);
                    // What would not move down once may still be left alone.
                    let most = if was_stuck { before.max(capacity) } else { capacity };
                    prop_assert!(on_top() <= most);
                }
            }
            let state = tiering.state.lock().unwrap();
            prop_assert!(state.parts().windows(2).all(|two| two[0].range.end <= two[1].range.start));
            let mut there = HashMap::new();
            for part in state.parts() {
                let mut counts = HashMap::<_, u64>::new();
                for unit in 0..part.len() as u32 {
                    there.insert((part.unit(unit).start - START) / UNIT, part.number(unit));
                    *counts.entry(part.tier(unit) as u8).or_default() += 1;
                }
                for tier in [Tier::Unknown, Tier::Absent, Tier::Top, Tier::Lower, Tier::Elsewhere] {
                    prop_assert_eq!(part.count(tier), counts.get(&(tier as u8)).copied().unwrap_or(0));
                }
                prop_assert!(part.bytes() <= 5 * part.len());
            }
            prop_assert_eq!(&there, &tiered);
        }
    }
}
