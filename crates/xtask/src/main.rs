// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds kernels with the series, boots them in virtual machines and runs the
//! guest tests. lab/README.md tells how to use it.

mod build;
mod busybox;
mod cache;
mod check;
mod checkpatch;
mod cli;
mod command;
mod compare;
mod cpio;
mod deb;
mod guest;
mod host;
mod kvm;
mod lab;
mod lint;
mod linux_tests;
mod machine;
mod mail;
mod mailbox;
mod packages;
mod profile;
mod qemu;
mod report;
mod self_test;
mod series;
mod session;
mod source;
mod splat;
mod suite;
mod tap;
mod tree;
mod ui;
mod verdict;
mod wire;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use cache::Cache;
use cli::{BaseArgs, Cli, LabArgs, Task, Usage};
use guest::Programs;
use lab::{Kind, Lab, Place};
use machine::Machine;
use profile::Profile;
use qemu::Accelerator;
use source::Source;
use suite::Entry;
use ui::Ui;
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
    let root = checkout()?;
    match cli.task {
        Task::Kernel(args) => {
            let machine = Machine::read(&root, &args.base.machine)?;
            let ui = Ui::new(args.base.verbose);
            let source = Source::find(&root, args.base.source.as_deref(), &machine)?;
            let cache = Cache::open()?;
            let image = build::image(&cache, &root, &machine, args.profile, &source, &ui)?;
            println!("{}", image.kernel().display());
            Ok(true)
        }
        Task::Lab(args) => lab(&root, &args),
        Task::Compare(args) => compare(&root, &args),
        Task::Series(args) => series::run(&root, &args),
        Task::Deb(args) => deb::run(&root, &args),
    }
}

/// Boots kernels for what `args` ask. Returns whether everything passed.
fn lab(root: &Path, args: &LabArgs) -> Result<bool> {
    let ui = Ui::new(args.base.verbose);
    let mut machine = Machine::read(root, &args.base.machine)?;
    if let Some(words) = &args.append {
        machine.guest.append.push(' ');
        machine.guest.append.push_str(words);
    }
    if args.steady_clock && !machine.qemu.counts() {
        bail!(Usage(format!(
            "--steady-clock: lab/{0}.toml has no qemu.counting; x86_64 has",
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
        chosen(root, args, &machine, *profile)?;
    }
    let source = Source::find(root, args.base.source.as_deref(), &machine)?;
    let cache = Cache::open()?;
    let mut good = true;
    for profile in &args.profiles {
        let image = build::image(&cache, root, &machine, *profile, &source, &ui)?;
        let mut programs = Programs::build(&cache, root, &machine, &ui)?;
        if args.linux_tests {
            programs.add(
                linux_tests::build(&cache, root, &machine, &source, &ui)?,
                "tests",
            );
        }
        if let Some(folder) = &args.programs {
            programs.add(folder.clone(), "programs");
        }
        if args.self_test {
            programs.add(root.join(self_test::PROGRAMS), "programs");
        }
        let lab = Lab {
            root,
            machine: &machine,
            profile: *profile,
            place: place(root, args, &machine, *profile, &ui)?,
            accelerator: if args.steady_clock {
                Accelerator::Counting
            } else {
                kvm::accelerator(&cache, root, &machine, &image, &programs, &ui)?
            },
            image,
            programs,
            patience: args.patience,
            guests: args.guests.into(),
            short: args.short,
            ui: &ui,
        };
        good &= boot(&lab, args)?;
    }
    Ok(good)
}

/// The folder for what `args` ask. That of the guest tests is for nothing else.
fn place(
    root: &Path,
    args: &LabArgs,
    machine: &Machine,
    profile: Profile,
    ui: &Ui,
) -> Result<Place> {
    let purpose = if args.self_test {
        Some("self-test")
    } else if args.linux_tests {
        Some("linux-tests")
    } else if args.shell {
        return Place::take_free(root, machine, profile, "shell");
    } else if !args.command.is_empty() {
        return Place::take_free(root, machine, profile, "command");
    } else if args.append.is_some() {
        Some("appended")
    } else {
        None
    };
    Place::take(root, machine, profile, purpose, ui)
}

/// Does in `lab` what `args` ask. Returns whether everything passed.
fn boot(lab: &Lab, args: &LabArgs) -> Result<bool> {
    if args.shell {
        lab.shell()?;
        return Ok(true);
    }
    if args.self_test {
        let (text, good) = self_test::run(lab)?;
        print!("{text}");
        return Ok(good);
    }
    let entries = chosen(lab.root, args, lab.machine, lab.profile)?;
    if !args.command.is_empty() {
        let verdicts = lab.run(&entries, Kind::Command)?;
        let text = report::text(&lab.title(), &verdicts);
        let good = !verdicts.iter().any(Verdict::is_failure);
        if !good || verdicts.iter().any(|verdict| verdict.again > 0) {
            eprint!("{text}");
        }
        fs::write(lab.folder("report.txt"), text)?;
        return Ok(good);
    }
    let verdicts = lab.run(&entries, Kind::Tests)?;
    let text = report::text(&lab.title(), &verdicts);
    print!("{text}");
    println!("console, output and files: {}", lab.folder("").display());
    fs::write(lab.folder("report.txt"), text)?;
    Ok(!verdicts.iter().any(Verdict::is_failure))
}

/// Compares the kernels with the series and without.
fn compare(root: &Path, args: &BaseArgs) -> Result<bool> {
    let ui = Ui::new(args.verbose);
    let machine = Machine::read(root, &args.machine)?;
    let source = Source::find(root, args.source.as_deref(), &machine)?;
    let cache = Cache::open()?;
    let image = |profile| -> Result<_> {
        let image = build::image(&cache, root, &machine, profile, &source, &ui)?;
        Ok((profile, image))
    };
    let images = [image(Profile::Vanilla)?, image(Profile::Release)?];
    let programs = Programs::build(&cache, root, &machine, &ui)?;
    compare::run(root, &machine, images, &programs, &ui)
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
    let mut entries = suite::read(root, list)?;
    entries.push(suite::kmemleak());
    if let Some(name) = args
        .tests
        .iter()
        .find(|name| !entries.iter().any(|e| e.job.name == **name))
    {
        let names: Vec<_> = entries
            .iter()
            .map(|entry| entry.job.name.as_str())
            .collect();
        bail!(Usage(format!(
            "no test {name}; there are: {}",
            names.join(", ")
        )));
    }
    entries.retain(|entry| args.tests.is_empty() || args.tests.contains(&entry.job.name));
    if !args.tests.is_empty() {
        for entry in &entries {
            if let Some(what) = entry.lacks(profile, &machine.guest.has) {
                bail!(Usage(format!(
                    "{} needs {what}; this is {}, profile {profile}",
                    entry.job.name, machine.name
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
