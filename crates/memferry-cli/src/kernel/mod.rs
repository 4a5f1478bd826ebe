// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel`: the kernel's own batch migration, shown and set.
//!
//! The library reads and writes; this parses, calls and prints. Nothing is loaded into the kernel.

mod description;
mod text;

use std::path::Path;

use memferry::kernel::{Migration, Plan, SettingError};
use memferry::topology::TopologyError;
use serde::Serialize;

use crate::cli::kernel::{Kernel, SetArgs, StatusArgs};
use crate::failure::Failure;
use crate::output::Target;
use crate::ui::Ui;
use description::{Changes, Status};

/// Runs one of the commands.
pub fn run(command: &Kernel) -> Result<(), Failure> {
    match command {
        Kernel::Status(args) => status(args),
        Kernel::Set(args) => set(args),
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let release = Migration::release(&args.place.root).map_err(|error| unreadable(&error))?;
    let found = Migration::read_from(&args.place.root).map_err(|error| unreadable(&error))?;
    let status = Status::new(release, &found);
    if args.json {
        return print_json(&status);
    }
    print(&match &found {
        Ok(migration) => text::status(&status, migration, Ui::columns()),
        Err(absence) => text::absence(&status, *absence, Ui::columns()),
    })
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let root = &args.place.root;
    let now = Migration::read_from(root)
        .map_err(|error| unreadable(&error))?
        .map_err(|absence| {
            Failure::new(
                "there is nothing to set in this kernel",
                absence,
                absence.hint(),
            )
        })?;
    let plan = Plan::new(root, &now, &args.change()).map_err(|error| refused(&error))?;
    if !args.dry_run {
        plan.apply().map_err(|error| refused(&error))?;
    }
    if args.json {
        print_json(&Changes::new(&plan, args.dry_run))
    } else {
        print(&text::changes(&plan, args.dry_run))
    }
}

fn print(text: &str) -> Result<(), Failure> {
    Target::open(Path::new("-"))?.write(text)
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new("cannot write JSON", error, "report this as a bug"))?;
    print(&(json + "\n"))
}

fn unreadable(error: &TopologyError) -> Failure {
    Failure::new(
        "cannot read the kernel's settings",
        error,
        "try again: a module may have been loaded or unloaded meanwhile",
    )
}

/// A setting that could not be made.
pub fn refused(error: &SettingError) -> Failure {
    Failure::new(
        "the kernel's settings were not changed",
        error,
        error.hint(),
    )
}
