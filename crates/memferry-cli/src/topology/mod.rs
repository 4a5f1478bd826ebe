// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry topology`: what the library found out about the machine, as text or as JSON.
//!
//! The way is library -> `description` (the JSON's shape) -> `text`. Nothing here reads sysfs.

mod copies;
pub mod description;
mod measure;
mod text;

use memferry_linux::topology::{Topology, TopologyError};

use crate::cli::TopologyArgs;
use crate::failure::Failure;
use crate::output::Results;
use crate::ui::Ui;
use description::Description;

/// Prints the machine.
pub fn run(args: &TopologyArgs) -> Result<(), Failure> {
    let results = Results::open(&args.json, &[])?;
    let topology = read()?;
    let abilities = memferry::probe::abilities(&topology);
    let mut description = Description::new(&topology, &abilities);
    if args.copy {
        description.copy = Some(copies::measure(&topology, &Ui::new())?);
    }
    results.write(&description, || text::machine(&description, Ui::columns()))
}

/// Reads the topology, or says why it cannot be read.
pub fn read() -> Result<Topology, Failure> {
    Topology::read().map_err(unreadable)
}

/// The failure of reading a machine.
pub fn unreadable(error: TopologyError) -> Failure {
    Failure::new(
        "cannot read the machine's topology",
        error,
        "mount /proc and /sys in this container",
    )
}
