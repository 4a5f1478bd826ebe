// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask`: builds kernels with the series, boots them in virtual machines and runs the
//! guest tests. lab/README.md tells how to use it.

mod build;
mod cache;
mod command;
mod machine;
mod profile;
mod source;
mod tree;
mod ui;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use build::Image;
use cache::Cache;
use machine::Machine;
use profile::Profile;
use source::Source;
use ui::Ui;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds kernels with the series, boots them, tests them")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build a kernel and print the path of its image
    Kernel(KernelArgs),
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
            println!("{}", kernel(&root, &machine, &args, &ui)?.kernel().display());
            Ok(true)
        }
    }
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
    root.canonicalize().with_context(|| format!("find the checkout at {}", root.display()))
}
