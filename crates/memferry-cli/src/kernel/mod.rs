// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel`: the kernel's own batch migration and hot-page tracking, shown and set.
//!
//! The library reads and writes; this parses, calls and prints. Nothing is loaded into the kernel.

pub mod description;
mod persist;
pub mod pghot;
mod text;

use std::path::Path;

use memferry_linux::kernel::{Interfaces, Learnt, Migration, Plan, Setting, SettingError};
use memferry_linux::topology::TopologyError;

use crate::cli::ShownArgs;
use crate::cli::kernel::{Kernel, SetArgs};
use crate::failure::Failure;
use crate::restore::{self, Restore};
use crate::results::Results;
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
    let (results, root) = (Results::open(&args.json, &[])?, &args.root);
    let release = Migration::release(root).map_err(unreadable)?;
    let now = read(root)?;
    let learnt = Learnt::read_from(root).map_err(unreadable)?;
    let left = restore::left(root)?;
    let tracked = pghot::Tracking::new(&now.pghot);
    let persisted = (now.migration.is_ok() || now.pghot.is_ok())
        .then(|| Files::persisted(root, &now))
        .transpose()?;
    let status = Status::new(
        release.clone(),
        &now.migration,
        &learnt,
        tracked,
        persisted,
        left.as_ref(),
    );
    results.tell(root, &status, || {
        let migration = match &now.migration {
            Ok(migration) => text::status(&release, migration, &learnt, Ui::columns()),
            Err(absence) => text::absence(&release, *absence, Ui::columns()),
        };
        let tracking = pghot::text(&now.pghot, Ui::columns());
        let left = (left.as_ref()).map_or_else(String::new, |left| text::left(left, Ui::columns()));
        let persisted = persisted.map_or(String::new(), |of| text::persisted(of, Ui::columns()));
        format!("{left}{migration}\n{tracking}{persisted}")
    })
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let results = Results::open(&args.shown.json, &[])?;
    if args.restore {
        return set_back(args, results);
    }
    let root = &args.shown.root;
    if !args.dry_run && !args.forget {
        // What a benchmark has set is not to be kept, and its end takes back what is set meanwhile.
        Restore::new(root, &[])?;
    }
    if args.persist && !args.dry_run {
        restore::unless_daemon(root, |changed| changed.contains("pghot"))?;
    }
    let now = read(root)?;
    let wanted = args.wanted();
    let files = match (args.persist, args.forget) {
        (true, _) => Some(kept(root, &now, &wanted)?),
        (_, true) => Some(Files::none(root)?),
        _ => None,
    };
    let plan = Plan::new(root, &now, &wanted).map_err(refused)?;
    if !args.dry_run {
        plan.apply().map_err(refused)?;
        files.as_ref().map_or(Ok(()), Files::write)?;
    }
    let steps = plan.steps.iter();
    let steps = steps.map(|of| (of.setting.file(), &*of.before, &*of.after));
    write_changes(args, results, steps, files.as_ref())
}

/// What a benchmark left that was killed.
fn set_back(args: &SetArgs, results: Results) -> Result<(), Failure> {
    let root = &args.shown.root;
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
    results.tell(&args.shown.root, &changes, || text::changes(&changes))
}

fn read(root: &Path) -> Result<Interfaces, Failure> {
    Interfaces::read_from(root).map_err(unreadable)
}

/// What lets all settings come back at boot.
fn kept(root: &Path, now: &Interfaces, wanted: &[(Setting, String)]) -> Result<Files, Failure> {
    match (&now.migration, &now.pghot) {
        (Err(absence), Err(_)) => Err(refused((*absence).into())),
        _ => Files::of(root, now, wanted),
    }
}

fn unreadable(error: TopologyError) -> Failure {
    Failure::new(
        "cannot read the kernel's settings",
        error,
        "try again: a module may have been loaded or unloaded meanwhile",
    )
}

/// A setting that could not be made.
fn refused(error: SettingError) -> Failure {
    let what = match error {
        SettingError::Absent(_) => "there is nothing to set in this kernel",
        _ => "the kernel's settings were not changed",
    };
    Failure::new(what, &error, error.hint())
}
