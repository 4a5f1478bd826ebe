// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole replays: what must hold for every policy on every trace.

use memferry_replay::event::{Clock, Trace};
use memferry_replay::machine::Machine;
use memferry_replay::outcome::Outcome;
use memferry_replay::policy::{Kind, bound};
use memferry_replay::replay::replay;
use memferry_replay::synthetic;
use memferry_replay::truth::Truth;

fn run(trace: &Trace, machine: &Machine, top_pages: u32, kind: Kind) -> Outcome {
    let truth = Truth::of(trace);
    let outcome = replay(trace, &truth, machine, top_pages, kind, &mut |_| true);
    outcome.expect("parameters").expect("not stopped")
}

fn traces() -> [Trace; 4] {
    [
        synthetic::zipf(600, 120_000, 1),
        synthetic::moving_hot_set(600, 120_000, 3, 2),
        synthetic::scan(600, 120_000, 3),
        synthetic::phases(600, 120_000, 6, 4),
    ]
}

#[test]
fn the_top_tier_holds_its_pages_and_no_more_under_every_policy() {
    for trace in traces() {
        for kind in Kind::ALL {
            let outcome = run(&trace, &Machine::default(), 150, kind);
            for slice in &outcome.slices {
                let up: u32 = slice.bands.iter().sum();
                assert!(up <= 150, "{kind} on {}: {up}", trace.name);
                // Whoever is up was put there by a first touch or a promotion, and has not left.
                assert!(u64::from(up) + slice.demoted <= 600 + slice.promoted);
                assert!(slice.top <= slice.accesses);
            }
            let sum: u64 = outcome.slices.iter().map(|slice| slice.accesses).sum();
            assert_eq!((sum, outcome.accesses), (120_600 * 64, 120_600 * 64));
            assert!(outcome.slowdown >= 1.0 && outcome.account.wasted <= outcome.account.promoted);
        }
    }
}

#[test]
fn the_same_replay_gives_the_same_figures() {
    for trace in traces() {
        for kind in Kind::ALL {
            let measured = |seed| {
                let machine = Machine {
                    seed,
                    ..Machine::default()
                };
                // The tracker's time is measured, everything else is computed.
                Outcome {
                    tracker_ns_per_access: 0.0,
                    ..run(&trace, &machine, 150, kind)
                }
            };
            assert_eq!(measured(1), measured(1), "{kind} on {}", trace.name);
        }
    }
}

/// Figures of one machine, that every other has to give as well.
#[test]
fn these_figures_are_the_same_on_every_machine() {
    let trace = synthetic::moving_hot_set(600, 120_000, 3, 2);
    let figures = Kind::ALL.map(|kind| {
        let outcome = run(&trace, &Machine::default(), 150, kind);
        (kind.name(), outcome.top_accesses, outcome.account.promoted)
    });
    println!("{figures:?}");
    assert_eq!(figures, FIGURES);
}

const FIGURES: [(&str, u64, u64); 12] = [
    ("none", 2_022_720, 0),
    ("lru", 2_022_720, 0),
    ("numab2", 2_272_366, 210),
    ("pghot-default", 4_158_720, 1982),
    ("pghot-precise", 4_150_848, 1974),
    ("pghot-default-faults", 2_415_104, 222),
    ("pghot-precise-faults", 2_415_104, 222),
    ("ours-default", 2_345_216, 112),
    ("ours", 4_841_408, 305),
    ("oracle-static", 3_807_168, 0),
    ("oracle-sampled", 6_835_712, 700),
    ("oracle", 7_177_792, 181),
];

#[test]
fn no_policy_wins_more_than_the_bound() {
    for trace in traces() {
        let truth = Truth::of(&trace);
        let machine = Machine::default();
        let price = machine.pays_after();
        let bound = bound(&truth, 150, price);
        assert!(bound.plan <= bound.bound * (1.0 + 1e-9));
        assert!(
            bound.plan >= 0.98 * bound.bound,
            "{}: {bound:?}",
            trace.name
        );
        for kind in Kind::ALL {
            let outcome = run(&trace, &machine, 150, kind);
            let won = outcome.top_accesses as f64 - outcome.account.promoted as f64 * price as f64;
            // A policy may move pages within a slice, which the bound does not cover; none gains by it here.
            assert!(
                won <= bound.bound * 1.001,
                "{kind} on {}: {won} of {}",
                trace.name,
                bound.bound
            );
        }
    }
}

#[test]
fn a_top_tier_for_everything_needs_no_move() {
    let trace = synthetic::zipf(600, 60_000, 1);
    for kind in Kind::ALL {
        let outcome = run(&trace, &Machine::default(), 600, kind);
        assert_eq!(
            (outcome.top_share, outcome.account.promoted),
            (1.0, 0),
            "{kind}"
        );
    }
}

#[test]
fn a_trace_with_a_clock_is_replayed_in_its_own_time() {
    let mut trace = synthetic::zipf(600, 60_000, 1);
    trace.clock = Clock::Nanoseconds;
    for event in &mut trace.events {
        event.time *= 10_000;
    }
    let outcome = run(&trace, &Machine::default(), 150, Kind::Numab2);
    // 39 s in which each scan covers all of it.
    assert!(outcome.account.faults > 600, "{}", outcome.account.faults);
}

#[test]
fn a_replay_can_be_stopped() {
    let long = synthetic::zipf(60, 200_000, 1);
    // Its machine was suspended for 300 years.
    let mut suspended = synthetic::zipf(60, 10, 1);
    suspended.clock = Clock::Nanoseconds;
    suspended.events.last_mut().expect("events").time = 1 << 63;
    for (trace, kind) in [
        (&long, Kind::Lru),
        (&suspended, Kind::Ours),
        (&suspended, Kind::Numab2),
    ] {
        let truth = Truth::of(trace);
        let mut calls = 0;
        let mut stop = |_| {
            calls += 1;
            calls < 2
        };
        let outcome = replay(trace, &truth, &Machine::default(), 15, kind, &mut stop);
        assert_eq!(outcome, Ok(None), "{kind}");
    }
    run(&suspended, &Machine::default(), 15, Kind::OracleSampled);
}
