// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reports which memory is hot. Either the daemon gets reports and moves pages itself, or the kernel does both and the
//! daemon sets its pace.

mod aggregated;
mod damon;
mod kernel;
mod perf;

use crate::config::{Config, SourceChoice};
use crate::error::DaemonError;
use crate::knobs::{BALANCING, Knobs, PGHOT};
use crate::machine::Machine;
use crate::status::SampleStatus;
use crate::tiering::{CloseLook, ProcessId, Seen};

pub use damon::absence as damon_absence;
#[cfg(test)]
pub(crate) use damon::{Damon, tests::damon as damon_tree};

/// What a source knows since the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Accesses, by process; the daemon moves. A process that is not named was not looked at.
    Accesses(Vec<(ProcessId, Vec<Seen>)>),
    /// Bytes that the kernel promoted and demoted since boot; the daemon sets its pace.
    Kernel {
        /// Up.
        promoted: u64,
        /// Down.
        demoted: u64,
    },
}

/// What a close look saw of chunks of a process.
pub type CloseLooks = (ProcessId, Vec<CloseLook>);

/// What reports heat.
pub trait Source {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Whether the kernel moves pages, and not the daemon.
    fn kernel_moves(&self) -> bool {
        false
    }

    /// Whether there is none yet, and one is to be looked for again.
    fn is_absent(&self) -> bool {
        false
    }

    /// Reports in a row that must see memory in use before it goes up: one may be the end of a scan.
    fn reports(&self) -> u8 {
        2
    }

    /// These processes count from now on, the most important first. Returns how many of them it watches.
    ///
    /// # Errors
    /// The kernel refuses.
    fn watch(&mut self, knobs: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError>;

    /// What it saw since the last time.
    ///
    /// # Errors
    /// The kernel refuses.
    fn report(&mut self, knobs: &mut Knobs) -> Result<Report, DaemonError>;

    /// Looks for a while at each page of some chunks, of which `next` gives so many at most. Returns what the look before saw, once it is
    /// over.
    ///
    /// # Errors
    /// The kernel refuses.
    fn look_closely(
        &mut self,
        _knobs: &mut Knobs,
        _next: &mut dyn FnMut(usize) -> Option<(ProcessId, Vec<usize>)>,
    ) -> Result<Option<CloseLooks>, DaemonError> {
        Ok(None)
    }

    /// How many bytes per second may go up; for sources with which the kernel moves.
    ///
    /// # Errors
    /// The kernel refuses.
    fn pace(&mut self, _knobs: &mut Knobs, _bytes_per_second: u64) -> Result<(), DaemonError> {
        Ok(())
    }

    /// CPU seconds that it took so far, if that can be told.
    fn cpu_seconds(&self, _knobs: &Knobs) -> Option<f64> {
        None
    }

    /// Regions at most of a source that has them.
    fn regions(&self) -> Option<u64> {
        None
    }

    /// The samples of a source that takes them.
    fn samples(&self) -> Option<SampleStatus> {
        None
    }
}

/// Stands for DAMON while somebody else has it. Nothing is known of any process meanwhile.
struct Absent;

impl Source for Absent {
    fn name(&self) -> &'static str {
        "none"
    }

    fn is_absent(&self) -> bool {
        true
    }

    fn watch(&mut self, _: &mut Knobs, _: &[ProcessId]) -> Result<usize, DaemonError> {
        Ok(0)
    }

    fn report(&mut self, _: &mut Knobs) -> Result<Report, DaemonError> {
        Ok(Report::Accesses(Vec::new()))
    }
}

/// A source that can be had, and of which nothing is set yet.
enum Available {
    Pghot,
    Damon,
    Perf(Box<perf::Perf>),
    Balancing,
    /// DAMON is somebody else's yet.
    None,
}

/// The name of the source that a daemon would take, and why. Nothing is set, and what perf opens for it is closed again.
///
/// # Errors
/// The wanted one cannot be had.
pub fn available(
    config: &Config,
    machine: &Machine,
) -> Result<(&'static str, String), DaemonError> {
    let (found, why) = find(config, machine)?;
    let name = match found {
        Available::Pghot => "pghot",
        Available::Damon => "damon",
        Available::Perf(_) => "perf",
        Available::Balancing => "numa-balancing",
        Available::None => Absent.name(),
    };
    Ok((name, why))
}

/// Takes the source that is wanted, or the best that is there: where groups divide the tier, one with which the daemon moves. NUMA
/// balancing is taken if it is wanted alone: it moves pages of the whole host, whatever the groups are.
/// Returns it and why it is the one. Nothing is set where `act` is false, but DAMON, which has no other way to watch.
///
/// # Errors
/// The wanted one cannot be had.
pub fn choose(
    config: &Config,
    machine: &Machine,
    knobs: &mut Knobs,
    act: bool,
) -> Result<(Box<dyn Source>, String), DaemonError> {
    let (found, mut why) = find(config, machine)?;
    let source: Box<dyn Source> = match found {
        Available::Pghot => Box::new(kernel::Kernel::pghot(knobs, act)?),
        Available::Damon => Box::new(damon::Damon::new(knobs, config.source_cpu)?),
        Available::Perf(source) => source,
        Available::Balancing => Box::new(kernel::Kernel::balancing(knobs, act)?),
        Available::None => Box::new(Absent),
    };
    for (setting, name) in [(BALANCING, "NUMA balancing"), (PGHOT, "pghot")] {
        let is_on = knobs.read(setting).is_some_and(|mode| mode != "0");
        if act && is_on && !source.kernel_moves() {
            why.push_str("; ");
            why.push_str(name);
            why.push_str(" is on, too");
        }
    }
    Ok((source, why))
}

fn find(config: &Config, machine: &Machine) -> Result<(Available, String), DaemonError> {
    let (found, mut why) = find_any(config, machine)?;
    if config.divides() && matches!(found, Available::Pghot | Available::Balancing) {
        why.push_str("; the kernel moves, so protections and weights have no effect");
    }
    Ok((found, why))
}

fn find_any(config: &Config, machine: &Machine) -> Result<(Available, String), DaemonError> {
    let choice = config.source;
    let is_auto = choice == SourceChoice::Auto;
    let wants = |of| is_auto || choice == of;
    let reason = |why: &str| if is_auto { why } else { "it is configured" }.to_owned();
    let no = |source_name, why| DaemonError::NoSource { source_name, why };
    // Why those before it cannot be had.
    let mut others = Vec::new();
    let pghot_absence = kernel::pghot_absence(machine);
    match &pghot_absence {
        None if choice == SourceChoice::Pghot || is_auto && !config.divides() => {
            let why = reason("this kernel tracks hot pages itself");
            return Ok((Available::Pghot, why));
        }
        Some(why) if choice == SourceChoice::Pghot => return Err(no("pghot", why.clone())),
        // Few kernels have it: no reason to name.
        _ => {}
    }
    if wants(SourceChoice::Damon) {
        match damon::absence(&machine.root) {
            None => return Ok((Available::Damon, reason("DAMON is there and free"))),
            Some(why) if is_auto => others.push(why),
            Some(why) if damon::is_taken(&machine.root) => return Ok(absent(&why)),
            Some(why) => return Err(no("damon", why)),
        }
    }
    if choice == SourceChoice::Perf {
        let source =
            perf::Perf::new(&machine.root, config.source_cpu).map_err(|why| no("perf", why))?;
        let why = source.what().to_owned();
        return Ok((Available::Perf(Box::new(source)), why));
    }
    if let Some(sampled) = perf::hardware(&machine.root).filter(|_| is_auto) {
        match perf::Perf::open(&machine.root, sampled, config.source_cpu) {
            Ok(source) => {
                others.push(source.what().to_owned());
                return Ok((Available::Perf(Box::new(source)), others.join("; ")));
            }
            Err(why) => others.push(format!("perf: {why}")),
        }
    }
    if is_auto && pghot_absence.is_none() {
        return Ok((Available::Pghot, others.join("; ")));
    }
    if is_auto {
        let why = others.join("; ");
        if damon::is_taken(&machine.root) {
            return Ok(absent(&why));
        }
        return Err(no("auto", why));
    }
    if let Some(why) = kernel::balancing_absence(machine) {
        return Err(no("numa-balancing", why));
    }
    Ok((Available::Balancing, reason("")))
}

fn absent(why: &str) -> (Available, String) {
    let why = format!("nothing moves until DAMON is free: {why}");
    (Available::None, why)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine::tests::{put, tree};

    /// A configuration that wants a source, and may divide the tier.
    pub(crate) fn config(source: SourceChoice, group: &str) -> Config {
        let text = format!("[[group]]\nname = \"a\"\nprocesses = [\"a\"]\n{group}\n");
        let config = Config::parse(&text, Path::new("")).unwrap();
        Config { source, ..config }
    }

    /// A kernel with DAMON, which somebody else may have.
    pub(crate) fn taken_damon(root: &Path, is_taken: bool) {
        if is_taken {
            damon::tests::damon(root);
        }
        let [count, state] = if is_taken { ["1", "on"] } else { ["0", "off"] };
        let kdamonds = crate::knobs::KDAMONDS;
        put(root, &format!("{kdamonds}/nr_kdamonds"), count);
        put(root, &format!("{kdamonds}/0/state"), state);
    }

    /// As [`choose`], where nothing is divided.
    pub(crate) fn choose(
        source: SourceChoice,
        machine: &Machine,
        knobs: &mut Knobs,
        act: bool,
    ) -> Result<(Box<dyn Source>, String), DaemonError> {
        super::choose(&config(source, ""), machine, knobs, act)
    }

    #[test]
    fn where_the_tier_is_divided_the_daemon_moves_if_it_can() {
        let root = tree();
        put(root.path(), "proc/sys/vm/pghot_enabled_sources", "0");
        let machine = Machine::read(root.path()).unwrap();
        let taken = |source, group| {
            let mut knobs = Knobs::open(root.path()).unwrap();
            let config = config(source, group);
            let (source, why) = super::choose(&config, &machine, &mut knobs, false).unwrap();
            (source.name(), why.contains("no effect"))
        };
        let other = "[[group]]\nname = \"b\"\nprocesses = [\"b\"]\nweight = 200";
        // Without DAMON the kernel's tracking is all there is.
        for group in ["protect = \"40%\"", other] {
            assert_eq!(taken(SourceChoice::Auto, group), ("pghot", true));
        }
        damon::tests::damon(root.path());
        for group in ["protect = \"40%\"", other] {
            assert_eq!(taken(SourceChoice::Auto, group), ("damon", false));
            assert_eq!(taken(SourceChoice::Pghot, group), ("pghot", true));
        }
        for group in ["", "protect = 0", "weight = 200", "limit = \"40%\""] {
            assert_eq!(
                taken(SourceChoice::Auto, group),
                ("pghot", false),
                "{group}"
            );
        }
    }
}
