// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reports which memory is hot. Either the daemon gets reports and moves pages itself, or the kernel does both and the
//! daemon sets its pace.

mod damon;
mod kernel;

use crate::config::SourceChoice;
use crate::error::DaemonError;
use crate::knobs::Knobs;
use crate::machine::Machine;
use crate::tiering::{ProcessId, Seen};

pub use damon::foreign as foreign_damon;

/// What a source knows since the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Accesses, by process; the daemon moves.
    Accesses(Vec<(ProcessId, Vec<Seen>)>),
    /// Bytes that the kernel promoted and demoted since boot; the daemon sets its pace.
    Kernel {
        /// Up.
        promoted: u64,
        /// Down.
        demoted: u64,
    },
}

/// What reports heat.
pub trait Source {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Whether the kernel moves pages, and not the daemon.
    fn kernel_moves(&self) -> bool;

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

    /// How many bytes per second may go up; for sources with which the kernel moves.
    ///
    /// # Errors
    /// The kernel refuses.
    fn pace(&mut self, knobs: &mut Knobs, bytes_per_second: u64) -> Result<(), DaemonError>;

    /// CPU seconds that it took so far, if that can be told.
    fn cpu_seconds(&self, knobs: &Knobs) -> Option<f64>;
}

/// Takes the source that is wanted, or the best that is there. Returns it and why it is the one. Nothing is set where `act` is
/// false, but DAMON, which has no other way to watch.
///
/// # Errors
/// The wanted one cannot be had.
pub fn choose(
    choice: SourceChoice,
    machine: &Machine,
    knobs: &mut Knobs,
    act: bool,
) -> Result<(Box<dyn Source>, String), DaemonError> {
    let pghot = kernel::pghot_absence(knobs);
    let damon = damon::absence(machine, knobs);
    let balancing = kernel::balancing_absence(knobs);
    let no = |source_name, why: &Option<String>| DaemonError::NoSource {
        source_name,
        why: why.clone().unwrap_or_default(),
    };
    let chosen = match (choice, &pghot, &damon, &balancing) {
        (SourceChoice::Pghot | SourceChoice::Auto, None, ..) => (
            SourceChoice::Pghot,
            "this kernel tracks hot pages itself".to_owned(),
        ),
        (SourceChoice::Pghot, ..) => return Err(no("pghot", &pghot)),
        (SourceChoice::Damon, _, Some(_), _) => return Err(no("damon", &damon)),
        (SourceChoice::Damon | SourceChoice::Auto, _, None, _) => {
            (SourceChoice::Damon, "DAMON is there and free".to_owned())
        }
        (SourceChoice::NumaBalancing | SourceChoice::Auto, _, why, None) => {
            let why = why.clone().unwrap_or_else(|| "it is configured".to_owned());
            (SourceChoice::NumaBalancing, why)
        }
        (SourceChoice::NumaBalancing | SourceChoice::Auto, ..) => {
            return Err(no("numa-balancing", &balancing));
        }
    };
    let (source, why) = chosen;
    let source: Box<dyn Source> = match source {
        SourceChoice::Damon => Box::new(damon::Damon::new(knobs)?),
        SourceChoice::Pghot => Box::new(kernel::Kernel::pghot(knobs, act)?),
        _ => Box::new(kernel::Kernel::balancing(knobs, act)?),
    };
    let why = if choice == SourceChoice::Auto {
        why
    } else {
        "it is configured".to_owned()
    };
    Ok((source, why))
}
