// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench promote --workload`: what each mode gains of what the best placement would, for what programs do.
//!
//! The way is plan (sizes and modes) -> run -> `gain`. The process of a run: `process`, which makes `memory`, places what `oracle` says,
//! and lets `load` make the operations of `pattern` while `follow` `looks`.

mod follow;
pub mod gain;
mod load;
mod looks;
mod memory;
mod oracle;
mod pattern;
pub mod process;
mod row;
mod size;
pub mod spec;
pub mod zipf;

use std::path::Path;

use memferry_linux::affinity;
use memferry_linux::kernel::pghot::Pghot;
use memferry_linux::topology::Topology;
use tempfile::TempDir;

use super::mode::{self, Missing, Mode};
use super::place::{self, Place};
use super::run::Bench;
use super::spec::{Job, Message};
use super::{Machine, not_available};
use crate::Stopped;
use crate::args::promote::PromoteArgs;
use crate::args::workload::{Start, Workload, name_of};
use crate::failure::{Failure, OrFail};
use crate::region::PAGE;
use crate::schema::gain::GainRow;
use crate::schema::{BenchFile, Rows};
use crate::timed;
use crate::ui::Ui;
pub use row::timeline;
use size::Sizes;
use spec::{Placing, Sample, WorkSpec};

/// The rows of a round, each with what was seen in its phases.
pub type Round = Vec<(GainRow, Vec<Vec<Sample>>)>;

/// All workloads.
pub fn run(args: &PromoteArgs, topology: &Topology, ui: &Ui) -> Result<BenchFile, Stopped> {
    let plan = Plan::new(topology, args)?;
    let mut machine = Machine::start(topology, &plan.place, &plan.modes, &plan.notes, ui)?;
    let mut rounds = Vec::new();
    let failure = plan.measure(&mut machine.bench, args, &mut rounds).err();
    let rows = rounds.into_iter().flatten().map(|of| of.0).collect();
    machine.finish(args, failure, Rows::Gain(rows), plan.notes)
}

/// What is measured here.
struct Plan {
    place: Place,
    /// `none` first if it is there, the oracle last.
    modes: Vec<Mode>,
    sizes: Sizes,
    /// Whether the machine tells misses.
    is_timed: bool,
    notes: Vec<String>,
}

impl Plan {
    fn new(topology: &Topology, args: &PromoteArgs) -> Result<Self, Failure> {
        let usable = affinity::allowed().unwrap_or_default();
        let threads = args.threads.unwrap_or(1);
        let place = Place::choose(topology)?
            .with_cpus_for(topology, threads, &usable)
            .with_usable(&usable);
        let root = Path::new("/");
        let pghot = Pghot::read_from(root).or_fail(
            "cannot read the settings of pghot",
            "run it as root, with /proc and /sys mounted",
        )?;
        let (mut modes, mut missing) = mode::choose(args, root, &place, &pghot)?;
        mode::need_mglru(args, root)?;
        let is_timed = timed::is_here();
        let tops = place.top.iter().map(|&node| place::room_to_fill(node));
        let top: usize = tops.sum::<Result<_, _>>()?;
        let free = place::free(topology, place.lower).saturating_sub(place::LEFT_BELOW);
        let usual = match topology.is_emulated() && !is_timed {
            true => 64 << 20,
            false if args.quick => 512 << 20,
            false => 1 << 30,
        };
        let (sizes, mut notes) = Sizes::choose(args, usual, free, top as u64)?;
        mode::fit_daemon(sizes.bytes, &mut modes, &mut missing)?;
        if sizes.bytes > top as u64 {
            let why = format!(
                "{} do not fit into the {} of the top tier",
                crate::units::about(sizes.bytes),
                crate::units::about(top as u64)
            );
            leave_out(
                "dram",
                &why,
                "give a smaller --size",
                &mut modes,
                &mut missing,
            );
        }
        if args.of_workload.start == Start::Spread {
            let why = "with --start spread it is mode none";
            leave_out("fill", why, "give --start slow", &mut modes, &mut missing);
        }
        mode::need_one(&modes, &missing)?;
        sort(&mut modes);
        notes.extend(not_available(&missing));
        Ok(Self {
            place,
            modes,
            sizes,
            is_timed,
            notes,
        })
    }

    /// All runs, workload by workload: every mode once, and that again.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        args: &PromoteArgs,
        rounds: &mut Vec<Round>,
    ) -> Result<(), Failure> {
        let workloads = args.of_workload.workloads();
        let steps = workloads.len() * self.modes.len() * args.runs();
        let bar = bench.ui.bar("bench promote", steps as u64);
        bench.control.prepare(&self.place, args)?;
        let folder = tempfile::tempdir().or_fail(
            "cannot make a folder for temporary files",
            "have a /tmp that can be written to, or set TMPDIR",
        )?;
        for workload in workloads {
            for round in 0..args.runs() {
                rounds.push(Vec::new());
                for mode in turns(&self.modes, round) {
                    bar.now(&format!("{}, {}", name_of(workload), mode.title()));
                    let Some(of) = rounds.last_mut() else { break };
                    let spec = self.spec(args, workload, mode, round, of, &folder);
                    let seen = |message| match message {
                        Message::Worked(seen) => Some(*seen),
                        _ => None,
                    };
                    let job = Job::Workload(spec.clone());
                    let Some(measured) = bench.drive(mode, &job, seen)? else {
                        return Ok(());
                    };
                    let row = row::row(args, mode, round + 1, &spec, &self.place, &measured);
                    of.push((row, measured.seen.phases));
                    gain::settle(of);
                    bar.step();
                }
            }
        }
        Ok(())
    }

    fn spec(
        &self,
        args: &PromoteArgs,
        workload: Workload,
        mode: &Mode,
        round: usize,
        before: &Round,
        folder: &TempDir,
    ) -> WorkSpec {
        let of = &args.of_workload;
        let room = match mode.name {
            "oracle" => room_of_best(self.sizes.room, before),
            _ => self.sizes.room,
        };
        let placing = match mode.name {
            "dram" => Placing::All,
            "fill" => Placing::Random,
            "oracle" => Placing::Best(room / PAGE as u64),
            _ if of.start == Start::Spread => Placing::Random,
            _ => Placing::Nothing,
        };
        let of_misses = self.is_timed && ["none", "oracle"].contains(&mode.name);
        WorkSpec {
            workload,
            skew: of.skew,
            rate: (workload == Workload::Served).then_some(of.rate),
            memory: of.memory,
            bytes: self.sizes.bytes as usize,
            room: (mode.name != "dram").then_some(room),
            placing,
            misses: of_misses.then(|| folder.path().join("misses")),
            seed: of.seed + round as u64,
            seconds: args.seconds(),
            lower: self.place.lower,
            top: self.place.top_near_first(),
            cpus: self.place.cpus.clone(),
            threads: args.threads.unwrap_or(1),
            counter: mode.counter(),
            sample_ms: args.sample_ms,
        }
    }
}

/// The room of the oracle: no mode of its round had more. Modes can have more than `room`, since reclaim demotes what other programs left
/// idle in the top tier.
pub fn room_of_best(room: u64, round: &Round) -> u64 {
    let others = round.iter().filter(|of| of.0.mode != "dram");
    let most = others.map(|of| of.0.pages_in_top).max().unwrap_or(0);
    room.max(most * PAGE as u64)
}

/// `none` first, then the baselines, the oracle last.
pub fn sort(modes: &mut [Mode]) {
    modes.sort_by_key(|mode| match mode.name {
        "none" => 0,
        "dram" | "fill" => 1,
        "oracle" => 3,
        _ => 2,
    });
}

/// The modes of a round: `none`, whose misses the oracle places, is first, and the oracle last; the others take turns.
pub fn turns(modes: &[Mode], round: usize) -> Vec<&Mode> {
    let is = |name: &'static str| move |mode: &&Mode| mode.name == name;
    let first = modes.iter().filter(is("none"));
    let last = modes.iter().filter(is("oracle"));
    let others = modes
        .iter()
        .filter(|mode| !["none", "oracle"].contains(&mode.name));
    let mut others: Vec<&Mode> = others.collect();
    let begin = round % others.len().max(1);
    others.rotate_left(begin);
    first.chain(others).chain(last).collect()
}

/// Leaves out a baseline that cannot be.
pub fn leave_out(
    name: &str,
    why: &str,
    next: &str,
    modes: &mut Vec<Mode>,
    missing: &mut Vec<Missing>,
) {
    if modes.iter().any(|mode| mode.name == name) {
        modes.retain(|mode| mode.name != name);
        missing.push(Missing {
            mode: name.to_owned(),
            why: why.to_owned(),
            next: next.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_has_the_room_that_the_best_mode_had() {
        let row = |mode: &str, pages_in_top| {
            let mode = mode.to_owned();
            let row = GainRow {
                mode,
                pages_in_top,
                ..GainRow::default()
            };
            (row, Vec::new())
        };
        let round = vec![row("dram", 1000), row("fill", 100), row("pghot", 120)];
        assert_eq!(room_of_best(100 * 4096, &round), 120 * 4096);
        assert_eq!(room_of_best(130 * 4096, &round), 130 * 4096);
    }

    #[test]
    fn the_others_take_turns_between_none_and_the_oracle() {
        let modes = ["none", "fill", "numab2", "pghot", "oracle"].map(Mode::plain);
        let names = |round| {
            turns(&modes, round)
                .iter()
                .map(|of| of.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["none", "fill", "numab2", "pghot", "oracle"]);
        assert_eq!(names(4), ["none", "numab2", "pghot", "fill", "oracle"]);
        assert_eq!(turns(&modes[..1], 3).len(), 1);
    }
}
