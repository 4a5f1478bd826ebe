// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds kernels with the series, boots them in virtual machines and runs the
//! guest tests. lab/README.md tells how to use it.

mod apt;
mod base;
mod build;
mod busybox;
mod cache;
mod check;
mod checkpatch;
mod cli;
mod command;
mod compare;
mod deb;
mod debian;
mod emulator;
mod gains;
mod guest;
mod host;
mod kvm;
mod lab;
mod lint;
mod linux_tests;
mod machine;
mod mail;
mod mailbox;
mod matrix;
mod model;
mod packages;
mod profile;
mod qemu;
mod report;
mod run;
mod self_test;
mod series;
mod session;
mod source;
mod splat;
mod suite;
mod tap;
mod timed;
mod tree;
mod ui;
mod verdict;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fs_err as fs;

use base::Base;
use cli::{Cli, LabArgs, Task, Usage};
use guest::Programs;
use lab::Lab;
use machine::{Feature, Machine};
use model::Model;
use profile::Profile;
use qemu::Accelerator;
use run::{Kind, Place, Run};
use suite::Entry;
use verdict::Verdict;

fn main() -> ExitCode {
    // Wrong usage ends here, with status 2.
    let cli = Cli::parse();
    match command::catch_interrupts().and_then(|()| run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            if error.is::<Usage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Does what the user asked. Returns whether all went well.
fn run(cli: Cli) -> Result<bool> {
    ui::show_steps(cli.verbose);
    let root = &checkout()?;
    let base = Base::read(root, &cli.base)?;
    let source = cli.source.as_deref();
    match cli.task {
        Task::Kernel { machine, profile } => {
            let machine = Machine::read(root, &machine)?;
            profile.require(&machine)?;
            let image = build::image(&Lab::open(root, machine, base, source)?, profile)?;
            println!("{}", image.kernel().display());
            Ok(true)
        }
        Task::Lab(args) => tests(root, &args, base, source),
        Task::Timed(args) => matrix::run(root, &args, source),
        Task::Programs(args) => matrix::run_programs(root, &args, source),
        Task::Compare => {
            let machine = Machine::read(root, series::MACHINE)?;
            compare::run(&Lab::open(root, machine, base, source)?)
        }
        Task::Series(args) => series::run(root, &args, base, source),
        Task::Deb { quick } => deb::run(root, quick, base, source),
    }
}

/// Boots kernels for what `args` ask. Returns whether everything passed.
fn tests(root: &Path, args: &LabArgs, base: Base, source: Option<&Path>) -> Result<bool> {
    let mut machine = Machine::read(root, &args.machine)?;
    if let Some(words) = &args.append {
        machine.guest.append.push(' ');
        machine.guest.append.push_str(words);
    }
    machine.set(&args.sets)?;
    if args.steady_clock && machine.timed.is_some() {
        bail!(Usage(format!(
            "--steady-clock: the clock of {} follows modelled time already; leave the option out",
            machine.name
        )));
    }
    if args.self_test {
        machine.guest.append.push_str(self_test::APPEND);
    }
    if args.profiles.len() > 1 && (args.shell || args.self_test || !args.command.is_empty()) {
        bail!(Usage(
            "one --profile at a time, unless it is for the guest tests".to_owned()
        ));
    }
    if let Some(folder) = args.programs.iter().find(|folder| !folder.is_dir()) {
        bail!(Usage(format!("--programs: no folder {}", folder.display())));
    }
    // Before anything that takes minutes.
    for profile in &args.profiles {
        profile.require(&machine)?;
        chosen(root, args, &machine, *profile)?;
    }
    let lab = Lab::open(root, machine, base, source)?;
    let model = Model::find(&lab)?;
    let mut good = true;
    for profile in &args.profiles {
        let image = build::image(&lab, *profile)?;
        let mut programs = Programs::build(&lab)?;
        if args.linux_tests {
            programs.add(linux_tests::build(&lab)?, "tests");
        }
        if let Some(folder) = &args.programs {
            programs.add(folder.clone(), "programs");
        }
        if args.self_test {
            programs.add(root.join(self_test::PROGRAMS), "programs");
        }
        let run = Run {
            lab: &lab,
            profile: *profile,
            place: place(&lab, args, *profile)?,
            accelerator: if args.steady_clock {
                Accelerator::Counting
            } else {
                kvm::accelerator(&lab, &image, &programs)?
            },
            model: model.as_ref(),
            image,
            programs,
            patience: args.patience,
            guests: args.guests.into(),
            short: args.short,
        };
        good &= boot(&run, args)?;
    }
    Ok(good)
}

/// The folder for what `args` ask. That of the guest tests is for nothing else.
fn place(lab: &Lab, args: &LabArgs, profile: Profile) -> Result<Place> {
    if args.self_test {
        Place::take(lab, profile, "-self-test")
    } else if args.linux_tests {
        Place::take(lab, profile, "-linux-tests")
    } else if args.shell {
        Place::take_free(lab, profile, "-shell")
    } else if !args.command.is_empty() {
        Place::take_free(lab, profile, "-command")
    } else if args.append.is_some() || !args.sets.is_empty() {
        Place::take(lab, profile, "-appended")
    } else {
        Place::take(lab, profile, "")
    }
}

/// Does in `run` what `args` ask. Returns whether everything passed.
fn boot(run: &Run, args: &LabArgs) -> Result<bool> {
    if args.shell {
        run.shell()?;
        return Ok(true);
    }
    if args.self_test {
        let (text, good) = self_test::run(run)?;
        print!("{text}");
        return Ok(good);
    }
    let entries = chosen(&run.lab.root, args, &run.lab.machine, run.profile)?;
    let command = !args.command.is_empty();
    let kind = if command { Kind::Command } else { Kind::Tests };
    let verdicts = run.all(&entries, kind)?;
    let text = report::text(&run.title(), &verdicts);
    let good = !verdicts.iter().any(Verdict::is_failure);
    if !command {
        print!("{text}");
        println!("console, output and files: {}", run.folder("").display());
    } else if !good || verdicts.iter().any(|verdict| verdict.again > 0) {
        eprint!("{text}");
    }
    fs::write(run.folder("report.txt"), text)?;
    Ok(good)
}

/// What `args` want to be run on a kernel of `profile`.
fn chosen(root: &Path, args: &LabArgs, machine: &Machine, profile: Profile) -> Result<Vec<Entry>> {
    if !args.command.is_empty() {
        return Ok(vec![Entry::new(
            "command",
            args.seconds,
            &args.command.join(" "),
        )]);
    }
    let list = if args.linux_tests {
        linux_tests::SUITE
    } else {
        suite::OURS
    };
    let mut entries = suite::read(&root.join(list))?;
    entries.push(suite::kmemleak());
    if let Some(name) = args
        .tests
        .iter()
        .find(|name| !entries.iter().any(|e| e.name == **name))
    {
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        bail!(Usage(format!(
            "no test {name}; there are: {}",
            names.join(", ")
        )));
    }
    if args.tests.is_empty() && !args.linux_tests && machine.timed.is_some() {
        // The others take long there, and find nothing that they do not find on other machines.
        entries.retain(|entry| entry.needs(Feature::Timed));
        if entries.is_empty() {
            bail!("{list} has no test that needs a timed machine");
        }
    }
    entries.retain(|entry| args.tests.is_empty() || args.tests.contains(&entry.name));
    if !args.tests.is_empty() {
        for entry in &entries {
            if let Some(what) = entry.lacks(profile, &machine.guest.has) {
                bail!(Usage(format!(
                    "{} needs {what}; this is {}, profile {profile}",
                    entry.name, machine.name
                )));
            }
        }
    }
    Ok(entries)
}

/// The checkout that we were built from.
fn checkout() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest.join("../..");
    root.canonicalize()
        .with_context(|| format!("find the checkout at {}", root.display()))
}
