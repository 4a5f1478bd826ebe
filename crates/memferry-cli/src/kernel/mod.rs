// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel`: the kernel's own batch migration and hot-page tracking, shown and set.
//!
//! The library reads and writes; this parses, calls and prints. Nothing is loaded into the kernel.

pub mod description;
mod persist;
pub mod pghot;
mod text;

use std::path::Path;

use memferry_linux::kernel::pghot::{Pghot, PghotAbsence};
use memferry_linux::kernel::{Absence, Change, Migration, PghotChange, Plan, SettingError};
use memferry_linux::topology::TopologyError;

use crate::cli::ShownArgs;
use crate::cli::kernel::{Kernel, SetArgs};
use crate::failure::Failure;
use crate::output::Results;
use crate::restore;
use crate::ui::Ui;
use description::{Changes, Status};
use persist::Files;

/// Runs one of the commands.
pub fn run(command: &Kernel) -> Result<(), Failure> {
    match command {
        Kernel::Status(args) => status(args),
        Kernel::Set(args) => set(args),
        Kernel::Heat(args) => pghot::heat(args),
    }
}

fn status(args: &ShownArgs) -> Result<(), Failure> {
    let results = Results::open(&args.json, &[])?;
    let release = Migration::release(&args.place.root).map_err(|error| unreadable(&error))?;
    let found = Migration::read_from(&args.place.root).map_err(|error| unreadable(&error))?;
    let tracking = Pghot::read_from(&args.place.root).map_err(|error| unreadable(&error))?;
    let left = restore::left(&args.place.root)?;
    let tracked = pghot::Tracking::new(&tracking);
    let persisted = match (found.as_ref().ok(), tracking.as_ref().ok()) {
        (None, None) => None,
        (migration, pghot) => Some(Files::persisted(&args.place.root, migration, pghot)?),
    };
    let status = Status::new(release.clone(), &found, tracked, persisted, left.as_ref());
    results.write(&status, || {
        let migration = match &found {
            Ok(migration) => text::status(&release, migration, Ui::columns()),
            Err(absence) => text::absence(&release, *absence, Ui::columns()),
        };
        let tracking = pghot::text(&tracking, Ui::columns());
        let left = (left.as_ref()).map_or_else(String::new, |left| text::left(left, Ui::columns()));
        let persisted = persisted.map_or(String::new(), |of| text::persisted(of, Ui::columns()));
        format!("{left}{migration}\n{tracking}{persisted}")
    })
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let results = Results::open(&args.json, &[])?;
    if args.restore {
        return set_back(args, results);
    }
    let now = Now::read(&args.place.root)?;
    let files = match (args.persist, args.forget) {
        (true, _) => Some(now.kept(args)?),
        (_, true) => Some(Files::none(&args.place.root)?),
        _ => None,
    };
    let plan = now.plan(args)?;
    if !args.dry_run {
        plan.apply().map_err(|error| refused(&error))?;
        files.as_ref().map_or(Ok(()), Files::write)?;
    }
    let steps = plan.steps.iter();
    let steps = steps.map(|of| (of.file, &*of.before, &*of.after));
    write_changes(args, results, steps, files.as_ref())
}

/// What a benchmark left that was killed.
fn set_back(args: &SetArgs, results: Results) -> Result<(), Failure> {
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
    let steps = steps.iter().map(|of| (&*of.file, &*of.now, &*of.before));
    write_changes(args, results, steps, None)
}

/// Says what was set, or would be: file, before, after.
fn write_changes<'a>(
    args: &SetArgs,
    results: Results,
    steps: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
    files: Option<&'a Files>,
) -> Result<(), Failure> {
    let changes = Changes::new(steps, files, args.dry_run);
    results.write(&changes, || text::changes(&changes))
}

/// What this kernel has.
struct Now<'a> {
    root: &'a Path,
    pghot: Result<Pghot, PghotAbsence>,
    migration: Result<Migration, Absence>,
}

impl<'a> Now<'a> {
    fn read(root: &'a Path) -> Result<Self, Failure> {
        Ok(Self {
            root,
            pghot: Pghot::read_from(root).map_err(|error| unreadable(&error))?,
            migration: Migration::read_from(root).map_err(|error| unreadable(&error))?,
        })
    }

    /// The steps of pghot, then those of the migrators.
    fn plan(&self, args: &SetArgs) -> Result<Plan, Failure> {
        let (change, of_pghot) = (args.change(), args.pghot());
        let mut plan = Plan::empty(self.root);
        if of_pghot != PghotChange::default() {
            let now = self.pghot.as_ref();
            let now = now.map_err(|absence| nothing(absence, absence.hint()))?;
            let of = Plan::of_pghot(self.root, now, &of_pghot);
            plan = plan.and(of.map_err(|error| refused(&error))?);
        }
        if change != Change::default() {
            let now = self.migration.as_ref();
            let now = now.map_err(|absence| nothing(absence, absence.hint()))?;
            let of = Plan::new(self.root, now, &change);
            plan = plan.and(of.map_err(|error| refused(&error))?);
        }
        Ok(plan)
    }

    /// What lets all settings come back at boot.
    fn kept(&self, args: &SetArgs) -> Result<Files, Failure> {
        if let (Err(absence), Err(_)) = (&self.migration, &self.pghot) {
            return Err(nothing(absence, absence.hint()));
        }
        let migration = self.migration.as_ref().ok();
        let pghot = self.pghot.as_ref().ok();
        Files::of(
            self.root,
            migration.zip(Some(&args.change())),
            pghot.zip(Some(&args.pghot())),
        )
    }
}

fn nothing(why: &dyn std::fmt::Display, next: &str) -> Failure {
    Failure::new("there is nothing to set in this kernel", why, next)
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
