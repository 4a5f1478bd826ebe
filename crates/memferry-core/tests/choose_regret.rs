// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the choice costs against the plain copy and against the best option, on any machine: made up at random, and
//! published. All costs are true ones, without the noise that the choice has to learn from.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../examples/choose_regret/machines.rs"]
mod machines;

use machines::{Cost, HUGE, Machine, Sizes, WORK, Work};
use memferry_core::choose::{CHOOSE_OPTIONS, CHOOSE_TRIAL, ChooseOption};

/// A number whose logarithm is evenly distributed.
fn log_uniform(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    (low.ln() + (high.ln() - low.ln()) * random.f64()).exp()
}

/// Any costs within the bounds that choose.h names: a start-up of at most what the option says, and at most `slowest` times
/// the plain copy's time per byte; some are up to `fastest` times as fast.
fn any_machine(random: &mut fastrand::Rng, start_ns: f64, slowest: f64, fastest: f64) -> Machine {
    let gbps = log_uniform(random, 1.0, 16.0);
    let mut costs = vec![Cost::line(
        "plain".into(),
        ChooseOption::default(),
        500.0,
        gbps,
    )];
    for k in 1..random.usize(2..=CHOOSE_OPTIONS) {
        let start = start_ns * random.f64();
        let option = ChooseOption {
            start_ns: (start * (1.0 + random.f64())) as u32,
            ..ChooseOption::default()
        };
        let speed = log_uniform(random, 1.0 / slowest, fastest);
        costs.push(Cost::line(
            format!("option {k}"),
            option,
            500.0 + start,
            gbps * speed,
        ));
    }
    Machine {
        name: "any".into(),
        cpus: 0,
        channels: 0,
        costs,
    }
}

/// Of pieces up to 8 times, of folios that can't be divided up to 1.75 times as slow per byte.
fn slowest(work: &Work) -> f64 {
    if work.folio_bytes == HUGE { 1.75 } else { 8.0 }
}

#[test]
fn any_64_batches_stay_within_2_percent_of_plain() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let work = &WORK[random.usize(0..WORK.len())];
        let start_ns = log_uniform(&mut random, 1e3, 200e3);
        let machine = any_machine(&mut random, start_ns, slowest(work), 16.0);
        let run = machine.run(&mut machine.class(), work, 1 << 14, &mut random);
        let worst = run.worst(64);
        assert!(
            worst <= 1.02,
            "{worst} in seed {seed}, {}: {machine:?}",
            work.name
        );
        assert!(run.trials <= (1 << 14) / u64::from(CHOOSE_TRIAL));
    }
}

/// A huge page of 300 us, and an engine that copies four times as fast but may take 100 us to start.
#[test]
fn what_starts_slowly_is_found_for_single_huge_pages() {
    let engine = ChooseOption {
        start_ns: 100_000,
        ..ChooseOption::default()
    };
    let machine = Machine {
        name: "engine".into(),
        cpus: 0,
        channels: 0,
        costs: vec![
            Cost::line("plain".into(), ChooseOption::default(), 500.0, 7.0),
            Cost::line("engine".into(), engine, 40_000.0, 28.0),
        ],
    };
    let work = WORK.iter().find(|work| work.folio_bytes == HUGE).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let run = machine.run(&mut machine.class(), work, 10_000, &mut random);
    assert!(run.away > 8_000, "{} batches", run.away);
    assert!(run.worst(64) <= 1.02);
}

/// Options that are 2 to 6 % slower look faster every now and then, by noise of 20 %.
#[test]
fn noise_is_no_reason_to_leave_plain() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cost = |k: usize| {
            let gbps = if k == 0 {
                10.0
            } else {
                random.f64() * 0.4 + 9.4
            };
            Cost::line(k.to_string(), ChooseOption::default(), 500.0, gbps)
        };
        let machine = Machine {
            name: "noisy".into(),
            cpus: 0,
            channels: 0,
            costs: (0..CHOOSE_OPTIONS).map(cost).collect(),
        };
        let run = machine.run(&mut machine.class(), &WORK[1], 1 << 17, &mut random);
        assert!(run.away <= 4, "{} batches in seed {seed}", run.away);
    }
}

/// After N = 2^20 batches, learning included, at up to ten times plain's speed. A trial in 64 batches makes 2^14 of them; some
/// ten sizes with 15 options want a hundred each at most, so learning takes 2^17 batches or less, at twice the best option's time
/// on average. From then on, what is left is trials.
#[test]
fn the_total_is_within_2_percent_of_the_best_option() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        // A typical batch of compaction can't afford to try a start-up of 30 us.
        let work = &WORK[random.usize(1..WORK.len())];
        let machine = any_machine(&mut random, 30e3, slowest(work), 10.0);
        let mut class = machine.class();
        let total = machine.run(&mut class, work, 1 << 20, &mut random);
        let regret = total.regret();
        assert!(regret <= 1.02, "{regret} in seed {seed}, {}", work.name);
        let learnt = machine.run(&mut class, work, 1 << 14, &mut random);
        let regret = learnt.regret();
        assert!(regret <= 1.01, "{regret} later, seed {seed}, {}", work.name);
    }
}

/// Lanes and channels that are up to twice as fast as each other, each up to eight times as fast as the plain copy; together they
/// are faster than either.
#[test]
fn lanes_and_channels_together_are_found() {
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let work = &WORK[[1, 3, 4, 6, 7][random.usize(0..5)]];
        let gbps = log_uniform(&mut random, 1.0, 16.0);
        let lanes = gbps * log_uniform(&mut random, 1.5, 8.0);
        let channels = lanes * log_uniform(&mut random, 0.5, 2.0);
        let side = |name: &str, cpus, channels, gbps| {
            let option = ChooseOption {
                start_ns: 15_000,
                cpus,
                channels,
            };
            Cost::line(name.into(), option, 10e3, gbps)
        };
        let mut machine = Machine {
            name: "split".into(),
            cpus: 3,
            channels: 4,
            costs: vec![
                Cost::line("plain".into(), ChooseOption::default(), 500.0, gbps),
                side("mtcopy 4", 3, 0, lanes),
                side("dcbm 4", 0, 4, channels),
            ],
        };
        machine.split([1, 2], lanes + channels);
        let mut class = machine.class();
        let all = machine.run(&mut class, work, 1 << 18, &mut random);
        let learnt = machine.run(&mut class, work, 1 << 14, &mut random);
        assert_eq!(learnt.best(), 3, "seed {seed}: {machine:?}");
        let (worst, regret) = (all.worst(64), learnt.regret());
        assert!(worst <= 1.02, "{worst} in seed {seed}, {}", work.name);
        assert!(regret <= 1.02, "{regret} in seed {seed}, {}", work.name);
    }
}

/// The regret after the costs of two options, `change` times apart, changed places.
fn after_a_change(seed: u64, change: f64) -> f64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let work = &WORK[1];
    let option = ChooseOption {
        start_ns: 20_000,
        ..ChooseOption::default()
    };
    let machine = |one: f64, two: f64| Machine {
        name: "changing".into(),
        cpus: 0,
        channels: 0,
        costs: vec![
            Cost::line("plain".into(), ChooseOption::default(), 500.0, 5.0),
            Cost::line("one".into(), option, 10e3, one),
            Cost::line("two".into(), option, 10e3, two),
        ],
    };
    let before = machine(20.0, 20.0 / change);
    let after = machine(20.0 / change, 20.0);
    let mut class = before.class();
    before.run(&mut class, work, 1 << 16, &mut random);
    after.run(&mut class, work, 1 << 14, &mut random);
    let followed = after.run(&mut class, work, 1 << 12, &mut random);
    followed.regret()
}

/// Within 2^14 batches, a second or so of moving: 256 trials for three options and three sizes.
#[test]
fn changed_costs_are_followed() {
    for seed in 0..12 {
        for change in [1.5, 4.0, 16.0] {
            let regret = after_a_change(seed, change);
            assert!(regret < 1.05, "{regret} after {change} in seed {seed}");
        }
    }
}

#[derive(serde::Deserialize)]
struct Figure {
    source: String,
    bench: String,
    migrator: String,
    lanes: u16,
    folio_bytes: u64,
    folios: Option<u64>,
    gbps: f64,
    load: String,
}

/// The published tables as machines: one per source, load and batch, whose options have a time per byte.
fn published() -> Vec<(Machine, Work)> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../memferry-bench/data/published.csv"
    );
    let figures = csv::Reader::from_path(file).unwrap();
    let mut machines: Vec<(Machine, Work)> = Vec::new();
    for figure in figures.into_deserialize::<Figure>().map(Result::unwrap) {
        if figure.bench != "count" && figure.bench != "move" {
            continue;
        }
        // The tables over folio sizes are of moves of 1 GB.
        let bytes = figure
            .folios
            .map_or(16 << 20, |folios| folios * figure.folio_bytes);
        let Figure {
            source,
            bench,
            load,
            folio_bytes,
            ..
        } = &figure;
        let name = format!("{source}, {bench}, {load}, folios of {folio_bytes}, {bytes} bytes");
        if machines
            .last()
            .is_none_or(|(machine, _)| machine.name != name)
            && machines.iter().all(|(machine, _)| machine.name != name)
        {
            let work = Work {
                name: "published",
                folio_bytes: *folio_bytes,
                bytes: Sizes::Same(bytes),
            };
            machines.push((
                Machine {
                    name: name.clone(),
                    cpus: 0,
                    channels: 0,
                    costs: Vec::new(),
                },
                work,
            ));
        }
        let machine = machines
            .iter_mut()
            .map(|(machine, _)| machine)
            .find(|machine| machine.name == name);
        let option = ChooseOption {
            start_ns: 50_000,
            ..ChooseOption::default()
        };
        let lanes = format!("{} {}", figure.migrator, figure.lanes);
        machine
            .unwrap()
            .costs
            .push(Cost::line(lanes, option, 0.0, figure.gbps));
    }
    // V2 has no row of the kernel's own copy: one thread comes next to it.
    for (machine, _) in &mut machines {
        let plain = ["kernel 1", "mtcopy 1"]
            .iter()
            .find_map(|plain| machine.costs.iter().position(|cost| cost.name == *plain));
        machine.costs[..=plain.unwrap()].rotate_right(1);
    }
    machines
}

/// Once it has learnt, the choice is within 2 % of the best row on 95 % of the published machines; and within 2 % of the plain
/// copy in any 64 batches, where no row is slower than what an untried option may cost.
#[test]
fn published_machines_get_their_best_row() {
    let machines = published();
    let mut missed = Vec::new();
    for (seed, (machine, work)) in (0..).zip(&machines) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut class = machine.class();
        let learning = machine.run(&mut class, work, 1 << 16, &mut random);
        let learnt = machine.run(&mut class, work, 1 << 13, &mut random);
        if learnt.regret() > 1.02 {
            missed.push((&machine.name, learnt.regret()));
        }
        let plain = learning.fixed[0];
        let slowest_row = learning.fixed.iter().fold(0.0, |a, &b| f64::max(a, b)) / plain;
        let worst = learning.worst(64);
        assert!(
            worst <= 1.02 || slowest_row > 1.75,
            "{worst}, {}",
            machine.name
        );
    }
    assert!(machines.len() > 90, "{}", machines.len());
    assert!(missed.len() * 20 <= machines.len(), "{missed:?}");
}
