// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry topology`: what the library found out about the machine, as text or as JSON.
//!
//! The way is library -> `description` (the JSON's shape) -> `text`. Nothing here reads sysfs.

mod abilities;
mod copies;
pub mod description;
mod text;

pub use memferry_output::host::{read, read_from};

use crate::cli::TopologyArgs;
use crate::failure::Failure;
use crate::results::Results;
use crate::ui::Ui;
use description::Description;

/// Prints the machine.
pub fn run(args: &TopologyArgs) -> Result<(), Failure> {
    let results = Results::open(&args.shown.json, &[])?;
    let topology = read_from(&args.shown.root)?;
    let abilities = abilities::of(&topology);
    let copy = (args.copy)
        .then(|| copies::measure(&topology, &Ui::new()))
        .transpose()?;
    let description = Description {
        copy,
        ..Description::new(topology, abilities)
    };
    results.tell(&args.shown.root, &description, || {
        text::machine(&description, Ui::columns())
    })
}
