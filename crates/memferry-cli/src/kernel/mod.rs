// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel`: the kernel's own batch migration and hot-page tracking, shown and set.
//!
//! The library reads and writes; this parses, calls and prints. Nothing is loaded into the kernel.

mod description;
mod pghot;
mod text;

use std::path::Path;

use memferry_linux::kernel::pghot::Pghot;
use memferry_linux::kernel::{Change, Migration, PghotChange, Plan, SettingError};
use memferry_linux::topology::TopologyError;
use serde::Serialize;

use crate::cli::kernel::{Kernel, SetArgs, StatusArgs};
use crate::failure::Failure;
use crate::output::Target;
use crate::restore;
use crate::ui::Ui;
use description::{Changes, Status};

/// Runs one of the commands.
pub fn run(command: &Kernel) -> Result<(), Failure> {
    match command {
        Kernel::Status(args) => status(args),
        Kernel::Set(args) => set(args),
        Kernel::Heat(args) => pghot::heat(args),
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let release = Migration::release(&args.place.root).map_err(|error| unreadable(&error))?;
    let found = Migration::read_from(&args.place.root).map_err(|error| unreadable(&error))?;
    let tracking = Pghot::read_from(&args.place.root).map_err(|error| unreadable(&error))?;
    let left = restore::left(&args.place.root)?;
    if args.json {
        let tracking = pghot::Tracking::new(&tracking);
        return print_json(&Status::new(release, &found, tracking, left.as_ref()));
    }
    let migration = match &found {
        Ok(migration) => text::status(&release, migration, Ui::columns()),
        Err(absence) => text::absence(&release, *absence, Ui::columns()),
    };
    let tracking = pghot::text(&tracking, Ui::columns());
    let left = left.map_or_else(String::new, |left| text::left(&left, Ui::columns()));
    print(&format!("{left}{migration}\n{tracking}"))
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    if args.restore {
        return set_back(args);
    }
    let plan = plan(args)?;
    if !args.dry_run {
        plan.apply().map_err(|error| refused(&error))?;
    }
    let steps = plan.steps.iter();
    print_changes(args, steps.map(|of| (of.file, &*of.before, &*of.after)))
}

/// What a benchmark left that was killed.
fn set_back(args: &SetArgs) -> Result<(), Failure> {
    let root = &args.place.root;
    let left = restore::left(root)?;
    if let Some(left) = left.as_ref().filter(|left| left.running) {
        return Err(Failure::new(
            "a benchmark that changed settings of the kernel still runs",
            format!("it is `memferry {}`", left.arguments.join(" ")),
            "wait for its end, or interrupt it: it sets them back",
        ));
    }
    let steps = left.as_ref().map_or(&[][..], |left| &left.steps);
    if left.is_some() && !args.dry_run {
        restore::set_back(root, steps)?;
    }
    print_changes(
        args,
        steps.iter().map(|of| (&*of.file, &*of.now, &*of.before)),
    )
}

/// Says what was set, or would be: file, before, after.
fn print_changes<'a>(
    args: &SetArgs,
    steps: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> Result<(), Failure> {
    let changes = Changes::new(steps, args.dry_run);
    match args.json {
        true => print_json(&changes),
        false => print(&text::changes(&changes)),
    }
}

/// The steps of pghot, then those of the migrators.
fn plan(args: &SetArgs) -> Result<Plan, Failure> {
    let root = &args.place.root;
    let (change, of_pghot) = (args.change(), args.pghot());
    let nothing = |why: &dyn std::fmt::Display, next: &str| {
        Failure::new("there is nothing to set in this kernel", why, next)
    };
    let mut plans = Vec::new();
    if of_pghot != PghotChange::default() {
        let now = Pghot::read_from(root)
            .map_err(|error| unreadable(&error))?
            .map_err(|absence| nothing(&absence, absence.hint()))?;
        plans.push(Plan::of_pghot(root, &now, &of_pghot).map_err(|error| refused(&error))?);
    }
    if change != Change::default() {
        let now = Migration::read_from(root)
            .map_err(|error| unreadable(&error))?
            .map_err(|absence| nothing(&absence, absence.hint()))?;
        plans.push(Plan::new(root, &now, &change).map_err(|error| refused(&error))?);
    }
    let all = plans.into_iter().reduce(Plan::and);
    // The command line has one setting at least.
    all.ok_or_else(|| {
        Failure::new(
            "nothing was to be set",
            "no setting was given",
            "see --help",
        )
    })
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
fn refused(error: &SettingError) -> Failure {
    Failure::new(
        "the kernel's settings were not changed",
        error,
        error.hint(),
    )
}
