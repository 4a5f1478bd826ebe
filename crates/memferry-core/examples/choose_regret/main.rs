// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much more time batches take that [`Choose`](memferry_core::choose::Choose) decides on than with the best option from
//! the beginning: per made-up machine and kind of work, while it learns and once it has learnt.
//!
//! `cargo run --release -p memferry-core --example choose_regret [BATCHES]`

mod machines;

use machines::{Cost, Machine, WORK};
use memferry_core::choose::{CHOOSE_OPTIONS, ChooseOption};

/// A made-up machine: `core_gbps` is what one CPU copies, `memory_gbps` what all can. A helper takes `wake_ns` to begin, a
/// channel copies 8 GB/s, less what mapping each folio takes.
pub fn made_up(
    cpus: u16,
    channels: u16,
    core_gbps: f64,
    memory_gbps: f64,
    wake_ns: f64,
    folio_bytes: u64,
) -> Machine {
    const MAP_NS: f64 = 300.0;
    let lane = |lanes: u16| memory_gbps.min(core_gbps * f64::from(lanes).powf(0.95));
    let channel = |nr: u16| {
        let bytes = folio_bytes as f64;
        memory_gbps.min(bytes / (MAP_NS + bytes / (8.0 * f64::from(nr))))
    };
    // Known to a half: what a caller measures once, when it makes its lanes.
    let option = |start: f64, cpus, channels| ChooseOption {
        start_ns: (1.5 * start) as u32,
        cpus,
        channels,
    };
    let mut costs = vec![Cost::line(
        "plain".into(),
        ChooseOption::default(),
        500.0,
        core_gbps,
    )];
    for lanes in [2, 4, 8, 16, 32].into_iter().filter(|&lanes| lanes <= cpus) {
        let start = wake_ns * (1.0 + f64::from(lanes) / 32.0);
        costs.push(Cost::line(
            format!("mtcopy {lanes}"),
            option(start, lanes - 1, 0),
            start,
            lane(lanes),
        ));
    }
    for nr in [1, 2, 4, 8, 16].into_iter().filter(|&nr| nr <= channels) {
        costs.push(Cost::line(
            format!("dcbm {nr}"),
            option(25e3, 0, nr),
            25e3,
            channel(nr),
        ));
    }
    let mut machine = Machine {
        name: format!(
            "{cpus} CPUs, {channels} channels, {core_gbps} of {memory_gbps} GB/s, wake {} us",
            wake_ns / 1e3
        ),
        cpus: cpus - 1,
        channels,
        costs,
    };
    // As the kernel does: each number of lanes with all channels.
    let all_channels = machine.costs.len() - 1;
    for lanes in 1..all_channels {
        let is_lanes = channels > 0 && machine.costs[lanes].option.cpus > 0;
        if is_lanes && machine.costs.len() < CHOOSE_OPTIONS {
            machine.split([lanes, all_channels], memory_gbps);
        }
    }
    machine
}

fn main() {
    let nr = std::env::args().nth(1);
    let nr = nr.map_or(1 << 20, |nr| nr.parse().expect("a number of batches"));
    println!(
        "A machine's CPUs, DMA channels, GB/s of one CPU and of all, and time to wake a helper;"
    );
    println!(
        "time against the best option's: of {nr} batches, and of a quarter as many after them;"
    );
    println!(
        "the worst 64 batches in a row against the plain copy; its time against the choice's."
    );
    println!("| machine | work | best | all | after | worst 64 | trials | gain |");
    println!("|---|---|---|---|---|---|---|---|");
    for (cpus, channels) in [(2, 0), (8, 0), (8, 4), (32, 8), (128, 16)] {
        for (core, memory, wake) in [(4.0, 12.0, 30e3), (10.0, 40.0, 10e3), (12.0, 200.0, 5e3)] {
            for work in &WORK {
                let machine = made_up(cpus, channels, core, memory, wake, work.folio_bytes);
                let mut random = fastrand::Rng::with_seed(1);
                let mut class = machine.class();
                let all = machine.run(&mut class, work, nr, &mut random);
                let after = machine.run(&mut class, work, nr / 4, &mut random);
                println!(
                    "| {} | {} | {} | {:.3} | {:.3} | {:.3} | {} | {:.2} |",
                    machine.name,
                    work.name,
                    machine.costs[after.best()].name,
                    all.regret(),
                    after.regret(),
                    all.worst(64),
                    all.trials,
                    after.plain.iter().sum::<f64>() / after.chosen.iter().sum::<f64>(),
                );
            }
        }
    }
}
