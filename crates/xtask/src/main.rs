// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds kernels with the series, boots them in virtual machines and runs the
//! guest tests, writes the series as mails and checks it. lab/README.md and docs/kernel.md tell
//! how to use it.

mod build;
mod cache;
mod check;
mod checkpatch;
mod command;
mod compare;
mod cpio;
mod deb;
mod guest;
mod kvm;
mod lab;
mod lint;
mod machine;
mod mail;
mod mailbox;
mod profile;
mod qemu;
mod report;
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
use clap::{Args, Parser, Subcommand};

use build::Image;
use cache::Cache;
use guest::Programs;
use lab::{Kind, Lab};
use machine::Machine;
use profile::Profile;
use source::Source;
use suite::Entry;
use ui::Ui;
use verdict::Verdict;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Builds kernels with the series, boots them, tests them; writes and checks the mails"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build a kernel and print the path of its image
    Kernel(KernelArgs),
    /// Build a kernel, boot it in a virtual machine and run the guest tests, or a command
    Lab(LabArgs),
    /// Count the instructions that a migrated page takes while no migrator is active, with the
    /// series and without
    Compare(KernelArgs),
    /// Write the series as mails, or check it
    Series(series::Args),
    /// Build Debian packages of a kernel with the series
    Deb(deb::Args),
}

#[derive(Args)]
struct LabArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Run this test of kernel/selftests/suite only; can be repeated
    #[arg(long = "test", value_name = "NAME", conflicts_with_all = ["shell", "command"])]
    tests: Vec<String>,
    /// Get a shell in the guest
    #[arg(long, conflicts_with = "command")]
    shell: bool,
    /// Multiply all time limits, on a machine busy with other things
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1000))]
    patience: u64,
    /// How long COMMAND may take
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// Run this in the guest's shell, among the guest programs, instead of the tests
    #[arg(last = true)]
    command: Vec<String>,
}

/// Which kernel.
#[derive(Args)]
struct KernelArgs {
    /// A machine that lab/NAME.toml describes
    #[arg(long, default_value = "x86_64", value_name = "NAME")]
    machine: String,
    /// What kind of kernel
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// Linux's source, instead of Debian's package linux-source-6.12
    #[arg(long, value_name = "TARBALL")]
    source: Option<PathBuf>,
    /// Show the steps also when stderr is not a terminal
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    // Wrong usage ends here, with status 2.
    let cli = Cli::parse();
    match command::catch_interrupts().and_then(|()| run(cli)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does what the user asked. Returns whether all went well.
fn run(cli: Cli) -> Result<bool> {
    match cli.task {
        Task::Kernel(args) => {
            let root = checkout()?;
            let machine = Machine::read(&root, &args.machine)?;
            let ui = Ui::new(args.verbose);
            println!(
                "{}",
                kernel(&root, &machine, &args, &ui)?.kernel().display()
            );
            Ok(true)
        }
        Task::Lab(args) => lab(&args),
        Task::Compare(args) => compare(args),
        Task::Series(args) => series::run(&checkout()?, &args),
        Task::Deb(args) => deb::run(&checkout()?, &args),
    }
}

/// Boots a kernel for what `args` ask. Returns whether everything passed.
fn lab(args: &LabArgs) -> Result<bool> {
    let root = checkout()?;
    let ui = Ui::new(args.kernel.verbose);
    let machine = Machine::read(&root, &args.kernel.machine)?;
    // Before anything that takes minutes.
    let entries = chosen(&root, args)?;
    let image = kernel(&root, &machine, &args.kernel, &ui)?;
    let programs = Programs::build(&root, &machine, &ui)?;
    let accelerator = kvm::accelerator(&Cache::open()?, &root, &machine, &image, &ui)?;
    let lab = Lab {
        root: &root,
        machine: &machine,
        profile: args.kernel.profile,
        image,
        programs,
        accelerator,
        patience: args.patience,
        ui: &ui,
    };
    if args.shell {
        lab.shell()?;
        return Ok(true);
    }
    if !args.command.is_empty() {
        let verdicts = lab.run(&entries, Kind::Command)?;
        let good = !verdicts.iter().any(Verdict::is_failure);
        if !good {
            eprint!("{}", report::text(&lab.title(), &verdicts));
        }
        return Ok(good);
    }
    let verdicts = lab.run(&entries, Kind::Tests)?;
    let text = report::text(&lab.title(), &verdicts);
    print!("{text}");
    println!("console, output and files: {}", lab.folder("").display());
    fs::write(lab.folder("report.txt"), text)?;
    Ok(!verdicts.iter().any(Verdict::is_failure))
}

/// Compares the kernels with and without the series.
fn compare(mut args: KernelArgs) -> Result<bool> {
    let root = checkout()?;
    let ui = Ui::new(args.verbose);
    let machine = Machine::read(&root, &args.machine)?;
    let mut image = |profile| -> Result<_> {
        args.profile = profile;
        Ok((profile, kernel(&root, &machine, &args, &ui)?))
    };
    let images = [image(Profile::Vanilla)?, image(Profile::Release)?];
    let programs = Programs::build(&root, &machine, &ui)?;
    compare::run(&root, &machine, images, &programs, &ui)
}

/// What `args` want to be run.
fn chosen(root: &Path, args: &LabArgs) -> Result<Vec<Entry>> {
    if !args.command.is_empty() {
        return Ok(vec![Entry::new(
            "command",
            args.seconds,
            &args.command.join(" "),
        )]);
    }
    let mut entries = suite::read(root)?;
    if args.kernel.profile == Profile::Debug {
        entries.push(Entry::new("kmemleak", 60, "/lab/kmemleak"));
    }
    for name in &args.tests {
        if !entries.iter().any(|entry| entry.job.name == *name) {
            let names: Vec<_> = entries
                .iter()
                .map(|entry| entry.job.name.as_str())
                .collect();
            bail!("no test {name}; there are: {}", names.join(", "));
        }
    }
    entries.retain(|entry| args.tests.is_empty() || args.tests.contains(&entry.job.name));
    Ok(entries)
}

/// Builds the kernel that `args` name, or takes it from the cache.
fn kernel(root: &Path, machine: &Machine, args: &KernelArgs, ui: &Ui) -> Result<Image> {
    let source = Source::find(args.source.as_deref(), machine, ui)?;
    build::image(&Cache::open()?, root, machine, args.profile, &source, ui)
}

/// The checkout that we were built from.
fn checkout() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest.join("../..");
    root.canonicalize()
        .with_context(|| format!("find the checkout at {}", root.display()))
}
