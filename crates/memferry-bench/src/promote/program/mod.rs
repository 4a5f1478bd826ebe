// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench promote --program`: what each mode gains of what the best placement would, for programs that nobody here wrote.
//!
//! The way is plan -> run -> the arithmetic of `workload`. The process of a run: `process`, which starts a `server` and is its `client`, in
//! the `words` of the program.

mod client;
pub mod process;
pub mod server;
pub mod spec;
mod words;

use std::path::Path;

use memferry_linux::affinity;
use memferry_linux::kernel::pghot::Pghot;
use memferry_linux::topology::Topology;

use super::mode::{self, Mode};
use super::place::{self, Place};
use super::run::{Bench, Measured};
use super::spec::{Job, Message};
use super::workload::spec::Placing;
use super::workload::{self, Round, gain, leave_out, room_of_best, turns};
use super::{Machine, not_available};
use crate::Stopped;
use crate::args::program::Program;
use crate::args::promote::PromoteArgs;
use crate::args::workload::name_of;
use crate::failure::{Failure, OrFail};
use crate::region::PAGE;
use crate::schema::gain::GainRow;
use crate::schema::{BenchFile, FromTo, Rows};
use crate::timed;
use crate::ui::Ui;
use crate::units::{Size, about};
use spec::{ProgramSeen, ProgramSpec, Room};

/// Bytes of all values unless told: several times the caches of a timed machine, which stores them in a few seconds of its time.
const USUAL: u64 = 160 << 20;
/// Keys have eight digits.
const MOST_KEYS: u64 = 100_000_000;

/// All programs.
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
    modes: Vec<Mode>,
    keys: usize,
    notes: Vec<String>,
}

impl Plan {
    fn new(topology: &Topology, args: &PromoteArgs) -> Result<Self, Failure> {
        let usable = affinity::allowed().unwrap_or_default();
        let place = Place::choose(topology)?.with_usable(&usable);
        let root = Path::new("/");
        let pghot = Pghot::read_from(root).or_fail(
            "cannot read the settings of pghot",
            "run it as root, with /proc and /sys mounted",
        )?;
        let (mut modes, mut missing) = mode::choose(args, root, &place, &pghot)?;
        let bytes = args.size.map_or(USUAL, |size| size.0);
        // Twice: what a program needs beside its values.
        let free = place::free(topology, place.lower).saturating_sub(place::LEFT_BELOW);
        let keys = bytes / words::VALUE_BYTES as u64;
        if bytes * 2 > free || !(1..=MOST_KEYS).contains(&keys) {
            return Err(Failure::new(
                format!("cannot give a program {} of values", Size(bytes)),
                format!(
                    "node {} has {} free, of which half may be values",
                    place.lower,
                    about(free)
                ),
                "give another --size, from 1K on",
            ));
        }
        mode::fit_daemon(bytes, &mut modes, &mut missing)?;
        if !timed::is_here() {
            let why = "only a timed machine of the lab tells the misses of another process";
            leave_out(
                "oracle",
                why,
                "run cargo xtask programs",
                &mut modes,
                &mut missing,
            );
        }
        mode::need_one(&modes, &missing)?;
        workload::sort(&mut modes);
        Ok(Self {
            place,
            modes,
            keys: keys as usize,
            notes: not_available(&missing),
        })
    }

    /// All runs, program by program: every mode once, and that again.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        args: &PromoteArgs,
        rounds: &mut Vec<Round>,
    ) -> Result<(), Failure> {
        let programs = args.of_workload.programs();
        let steps = programs.len() * self.modes.len() * args.runs();
        let bar = bench.ui.bar("bench promote", steps as u64);
        bench.control.prepare(&self.place, args)?;
        let folder = tempfile::tempdir().or_fail(
            "cannot make a folder for temporary files",
            "have a /tmp that can be written to, or set TMPDIR",
        )?;
        for program in programs {
            for round in 0..args.runs() {
                rounds.push(Vec::new());
                for mode in turns(&self.modes, round) {
                    bar.now(&format!("{}, {}", name_of(program), mode.title()));
                    let Some(of) = rounds.last_mut() else { break };
                    let spec = self.spec(args, program, mode, round, of, folder.path());
                    let seen = |message| match message {
                        Message::Answered(seen) => Some(*seen),
                        _ => None,
                    };
                    let job = Job::Program(spec.clone());
                    let Some(measured) = bench.drive(mode, &job, seen)? else {
                        return Ok(());
                    };
                    let row = row(mode, round + 1, &spec, &self.place, &measured);
                    of.push((row, measured.seen.work.phases));
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
        program: Program,
        mode: &Mode,
        round: usize,
        before: &Round,
        folder: &Path,
    ) -> ProgramSpec {
        let of = &args.of_workload;
        let asked = of.room.map_or(Room::Part, |room| Room::Bytes(room.0));
        let room = match mode.name {
            "dram" => Room::All,
            // As the program had it before, which is known once it has run.
            "oracle" => Room::Bytes(room_of_best(room_before(before), before)),
            _ => asked,
        };
        let placing = match (mode.name, room) {
            ("dram", _) => Placing::All,
            ("fill", _) => Placing::Random,
            ("oracle", Room::Bytes(bytes)) => Placing::Best(bytes / PAGE as u64),
            _ => Placing::Nothing,
        };
        let of_misses = timed::is_here() && ["none", "oracle"].contains(&mode.name);
        ProgramSpec {
            program,
            skew: of.skew,
            keys: self.keys,
            room,
            placing,
            misses: of_misses.then(|| folder.join("misses")),
            seed: of.seed + round as u64,
            seconds: args.seconds(),
            lower: self.place.lower,
            top: self.place.top_near_first(),
            cpus: self.place.cpus.clone(),
            counter: mode.counter(),
            sample_ms: args.sample_ms,
        }
    }
}

/// The room that the modes of a round had.
fn room_before(round: &Round) -> u64 {
    let others = round.iter().filter(|of| of.0.mode != "dram");
    others.map(|of| of.0.room_bytes).max().unwrap_or(0)
}

/// The row of what was measured, but for what follows from the other rows of its round.
fn row(
    mode: &Mode,
    round: usize,
    spec: &ProgramSpec,
    place: &Place,
    measured: &Measured<ProgramSeen>,
) -> GainRow {
    let Measured { seen, cost, .. } = measured;
    let work = &seen.work;
    let mut row = GainRow {
        workload: name_of(spec.program),
        skew: Some(spec.skew),
        memory: "program".to_owned(),
        start: "slow".to_owned(),
        mode: mode.name.to_owned(),
        source: mode.source.map(str::to_owned),
        record: mode.record.clone(),
        run: round,
        seed: spec.seed,
        threads: 1,
        bytes: seen.bytes,
        room_bytes: seen.room,
        locked_bytes: measured.locked,
        nodes: FromTo {
            from: place.lower,
            to: place.near,
        },
        latency_ns: work.latency.map(|of| of.0),
        latency_last_ns: work.latency.map(|of| of.1),
        promoted_pages: measured.promoted(),
        demoted_pages: measured.demoted(),
        top_share: work.top_share,
        pages_in_top: work.pages_in_top,
        oracle_by: matches!(spec.placing, Placing::Best(_)).then(|| "misses".to_owned()),
        placed_pages: work.placed.map(|of| of.0),
        kept_pages: work.placed.map(|of| of.1),
        // The program's own time in the kernel is not what hint faults take alone.
        tracker_cpu_s: measured.tracker_s(mode, 0.0),
        migration_cpu_s: measured.migration_s(mode),
        demotion_cpu_s: cost.demotion_s,
        access_system_s: work.system_s,
        verified_bytes: measured.verified,
        counters: cost.told(),
        truth: work.truth.clone(),
        timeline: workload::timeline(&work.phases),
        ..GainRow::default()
    };
    gain::fill_in(&mut row, &work.phases);
    row.operations_per_s = Some(row.operations as f64 / row.seconds.max(f64::MIN_POSITIVE));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_has_the_room_of_the_other_modes() {
        let row = |mode: &str, room_bytes| {
            let mode = mode.to_owned();
            let row = GainRow {
                mode,
                room_bytes,
                ..GainRow::default()
            };
            (row, Vec::new())
        };
        let round = vec![row("none", 3 << 20), row("dram", 8 << 20)];
        assert_eq!(room_before(&round), 3 << 20);
    }
}
