// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench promote`: how soon and how rightly hot pages of the lower tier come to the top tier, in scenarios, with each way of
//! promotion that this kernel has; in `workload` and `program`, what programs gain by that.
//!
//! The way is place (nodes and sizes) -> mode (what is switched on) -> run (one process each: worker, with access and watch)
//! -> rows. `control` sets the kernel and sets it back.

mod access;
mod control;
mod cost;
mod daemon;
mod damos;
mod filling;
pub(crate) mod like;
mod mode;
mod mover;
mod place;
mod program;
mod run;
mod spec;
mod wakers;
mod watch;
mod worker;
mod workload;

use std::path::Path;

use memferry_linux::affinity;
use memferry_linux::kernel::pghot::Pghot;
use memferry_linux::topology::Topology;
use rustix::process::geteuid;

use super::host;
use crate::Stopped;
use crate::args::promote::{PromoteArgs, Scenario, Switch};
use crate::failure::{Failure, OrFail};
use crate::published::promotion::Published;
use crate::schema::promote::PromoteRow;
use crate::schema::{BenchFile, Rows};
use crate::spread::groups;
use crate::timed;
use crate::ui::{Bar, Ui};
use control::Control;
use mode::{Missing, Mode, SCAN_SIZE};
pub use place::Place;
use run::Bench;
use spec::Spec;
use wakers::Wakers;
pub use worker::serve as serve_promote;

/// `bench promote`.
pub fn run_promote(args: &PromoteArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let topology = host::topology()?;
    if !args.of_workload.programs().is_empty() {
        return program::run(args, &topology, ui);
    }
    if args.is_of_workloads() {
        return workload::run(args, &topology, ui);
    }
    let plan = Plan::new(&topology, args)?;
    let mut machine = Machine::start(&topology, &plan.place, &plan.modes, &plan.notes, ui)?;
    let mut rows = Vec::new();
    let failure = plan.measure(&mut machine.bench, args, &mut rows).err();
    machine.finish(args, failure, Rows::Promote(rows), plan.notes)
}

/// The machine while it is measured.
struct Machine<'a> {
    topology: &'a Topology,
    wakers: Option<Wakers>,
    bench: Bench<'a>,
}

impl<'a> Machine<'a> {
    fn start(
        topology: &'a Topology,
        place: &Place,
        modes: &[Mode],
        notes: &[String],
        ui: &'a Ui,
    ) -> Result<Self, Failure> {
        if !geteuid().is_root() {
            return Err(Failure::new(
                "cannot measure promotion as this user",
                "it sets kernel.numa_balancing and other settings of the kernel, and sets them back",
                "run it as root",
            ));
        }
        for note in notes {
            ui.warn(note);
        }
        // A timed machine has a TLB of the size that real ones have.
        let needs_wakers = topology.is_emulated() && !timed::is_here();
        Ok(Self {
            topology,
            wakers: needs_wakers
                .then(|| Wakers::start(&place.cpus))
                .transpose()?,
            bench: Bench {
                root: Path::new("/"),
                place: place.clone(),
                control: Control::new(Path::new("/"), modes)?,
                ui,
            },
        })
    }

    /// Sets everything back, and makes the file.
    fn finish(
        self,
        args: &PromoteArgs,
        failure: Option<Failure>,
        rows: Rows,
        mut notes: Vec<String>,
    ) -> Result<BenchFile, Stopped> {
        let ui = self.bench.ui;
        let restored = self.bench.control.restore();
        notes.extend(host::quota_note(self.topology));
        notes.extend(timed::note(self.topology).or_else(|| host::emulated_note(self.topology)));
        if self.wakers.is_some() {
            notes.push("Beside each accessing thread a process wakes 200 times a second, so that the emulated CPU drops its translations.".to_owned());
        }
        let like = match (&rows, args.like) {
            (Rows::Promote(rows), Some(like)) => Some(like::like(like, args.scale(), rows)),
            _ => None,
        };
        let mut file = BenchFile::new(host::describe(self.topology, None), rows, notes);
        file.like = like;
        file.envelope = (file.envelope)
            .with("demotion", args.demotes())
            .with("sample_ms", args.sample_ms);
        if let Some(mglru) = args.mglru {
            let is_on = mglru == Switch::On;
            file.envelope = file.envelope.with("mglru", is_on);
        }
        if let Some(event) = &args.hwhints_event {
            file.envelope = file.envelope.with("hwhints_event", event);
        }
        crate::finish(file, args.quick, failure, restored, ui)
    }
}

/// What is measured here.
struct Plan {
    place: Place,
    modes: Vec<Mode>,
    /// Each scenario with its run, whose number of accesses is still to be found.
    scenarios: Vec<(Scenario, Spec)>,
    /// What NUMA balancing scans in a second, if that is to be set.
    scan_mib: Option<u64>,
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
        mode::need_mglru(args, root)?;
        let scan_mib = args.like.map(|like| like.scan_mib(args.scale()));
        if scan_mib.is_some() && modes.iter().any(Mode::has_hint_faults) {
            mode::need_scan_size(root)?;
        }
        let mut notes = Vec::new();
        if let Some(format) = pghot.as_ref().ok().and_then(Pghot::format) {
            notes.push(format!(
                "The records of pghot have the format {format}, which is fixed at boot: pghot={} on the kernel's command line \
                 brings the other one, for a second file.",
                if format == "precise" { "default" } else { "precise" }
            ));
        }
        let published = args.like.and_then(Published::seconds);
        if let (Some(seconds), Some(published)) = (args.seconds, published) {
            notes.push(format!(
                "The accesses of a run take about {seconds} s while nothing promotes, in place of the published {published} s."
            ));
        }
        let usual = args.threads.unwrap_or(place.cpus.len());
        let threads = args.like.map_or(usual, |like| like.threads);
        let mut scenarios = Vec::new();
        for scenario in args.scenarios() {
            let (regions, region_bytes) = match args.like {
                Some(like) => {
                    let room = place::room_to_fill;
                    let bytes = place.region_like(topology, like, args.scale(), room)?;
                    (like.regions, bytes)
                }
                None => {
                    let (regions, bytes, note) = place.regions(topology, args, scenario)?;
                    notes.extend(note);
                    (regions, bytes)
                }
            };
            let spec = Spec {
                lower: place.lower,
                top: place.top_near_first(),
                cpus: place.cpus.clone(),
                regions,
                region_bytes,
                threads,
                accesses: args.accesses.unwrap_or(0),
                most_ms: None,
                fill: scenario != Scenario::Room,
                // What fills the top tier beside memory that is accessed evenly is locked: no move would gain anything.
                idle_bytes: match scenario {
                    Scenario::Even => Some(0),
                    _ => args.like.map(|like| like.idle_bytes(args.scale())),
                },
                even: scenario == Scenario::Even,
                counter: mover::Counter::default(),
                sample_ms: args.sample_ms,
            };
            if !spec.fill {
                let bytes = (regions * region_bytes) as u64;
                mode::fit_daemon(bytes, &mut modes, &mut missing)?;
            }
            scenarios.push((scenario, spec));
        }
        notes.extend(not_available(&missing));
        Ok(Self {
            place,
            modes,
            scenarios,
            scan_mib,
            notes,
        })
    }

    /// All runs, interleaved: every mode once, and that again.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        args: &PromoteArgs,
        rows: &mut Vec<PromoteRow>,
    ) -> Result<(), Failure> {
        let steps = self.scenarios.len() * self.modes.len() * args.runs();
        let bar = bench.ui.bar("bench promote", steps as u64);
        bench.control.prepare(&self.place, args)?;
        if let Some(mib) = self.scan_mib {
            bench.control.set(SCAN_SIZE, &mib.to_string())?;
        }
        for (scenario, spec) in &self.scenarios {
            let Some(spec) = fixed(bench, args, spec, &bar)? else {
                return Ok(());
            };
            for round in 0..args.runs() {
                for at in 0..self.modes.len() {
                    // Another one is first in each round: none always comes after the same one.
                    let mode = &self.modes[(at + round) % self.modes.len()];
                    bar.now(&format!("scenario {}, {}", scenario.number(), mode.title()));
                    match bench.run(*scenario, mode, round + 1, &spec)? {
                        Some(row) => rows.push(row),
                        None => return Ok(()),
                    }
                    bar.step();
                }
            }
        }
        Ok(())
    }
}

/// The run with its number of accesses: what was asked for, or what takes the wanted time while nothing promotes. It is the
/// same in all modes.
fn fixed(
    bench: &mut Bench<'_>,
    args: &PromoteArgs,
    spec: &Spec,
    bar: &Bar,
) -> Result<Option<Spec>, Failure> {
    if spec.accesses > 0 {
        return Ok(Some(spec.clone()));
    }
    bar.now("finding the number of accesses");
    let Some(rate) = bench.rate(spec)? else {
        return Ok(None);
    };
    let accesses = rate * args.seconds() / spec.regions as f64;
    Ok(Some(Spec {
        accesses: (accesses as u64).max(1),
        ..spec.clone()
    }))
}

/// What cannot be run, one note for each reason.
fn not_available(missing: &[Missing]) -> Vec<String> {
    let reasons = groups(missing, |of| (&of.why, &of.next));
    let note = |((why, next), missing): ((&String, &String), Vec<&Missing>)| {
        let modes: Vec<&str> = missing.iter().map(|of| of.mode.as_str()).collect();
        format!(
            "Not available here: {}; {why}. To have it: {next}.",
            modes.join(", ")
        )
    };
    reasons.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_one_reason_is_one_note() {
        let missing = |mode: &str, why: &str| Missing {
            mode: mode.to_owned(),
            why: why.to_owned(),
            next: "do this".to_owned(),
        };
        let notes = not_available(&[
            missing("a", "no x"),
            missing("b", "no y"),
            missing("c", "no x"),
        ]);
        assert_eq!(
            notes,
            [
                "Not available here: a, c; no x. To have it: do this.",
                "Not available here: b; no y. To have it: do this."
            ]
        );
    }
}
