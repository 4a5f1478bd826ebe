// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds over memory that exists nowhere: what is hot comes up, what is cold makes room, and what will not move is left alone.

use super::*;
use crate::result::MoveResult;
use std::sync::Arc;
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
    let options = TieringOptions::new(0, 1, top_units * UNIT);
    Tiering::on(Box::new(fake.clone()), START..START + units * UNIT, options).unwrap()
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
        let range = START..START + 1000 * UNIT;
        Tiering::on(Box::new(fake.clone()), range, options).unwrap()
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
        let range = START..START + 10 * UNIT;
        Tiering::on(Box::new(fake.clone()), range, options)
            .unwrap_err()
            .to_string()
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
    let refused = || tiering.state.lock().unwrap().refused.len();
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
