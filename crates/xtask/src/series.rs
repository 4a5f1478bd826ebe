// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask series`: writes the mails, or with `--check` has `check` look at them.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::check;
use crate::machine::Machine;
use crate::mail;
use crate::mailbox::{self, Base, Sender};
use crate::source::Source;
use crate::tree::Series;
use crate::ui::Ui;

/// What the check builds, and Debian's packages are for.
pub const MACHINE: &str = "x86_64";

#[derive(clap::Args)]
pub struct Args {
    /// Where to write the mails; earlier ones there are removed [default: target/kernel-series]
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Write nothing; check the mails with Linux's tools, and that each of them builds
    #[arg(long)]
    check: bool,
    /// With --check: leave out what builds whole kernels
    #[arg(long, requires = "check")]
    quick: bool,
    /// Linux's source, instead of Debian's package linux-source-6.12
    #[arg(long, value_name = "TARBALL")]
    source: Option<PathBuf>,
    /// Show the steps also when stderr is not a terminal
    #[arg(long, short)]
    verbose: bool,
}

/// Does what `args` ask in the checkout `root`. Returns whether all is well.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let ui = Ui::new(args.verbose);
    let series = Series::read(root)?;
    // Before anything that takes minutes.
    let mails = mail::read(&series)?;
    let machine = Machine::read(root, MACHINE)?;
    let source = Source::find(root, args.source.as_deref(), &machine)?;
    if args.check {
        return check::run(root, &machine, &source, &series, &mails, args.quick, &ui);
    }
    let sender = Sender::of(root);
    let base = Base::extract(&source, &series, &ui)?;
    let output = match &args.output {
        Some(folder) => std::path::absolute(folder)?,
        None => root.join("target/kernel-series"),
    };
    let written = mailbox::write_mails(root, &series, &mails, &base, &sender, &output)?;
    for path in written.covers.iter().chain(&written.mails) {
        println!("{}", path.display());
    }
    if !sender.signs {
        eprintln!(
            "xtask: the mails are not signed off, and from nobody, because git knows no user.name \
             or user.email; they cannot be sent. Try: git config user.name NAME; git config \
             user.email ADDRESS"
        );
    }
    Ok(true)
}
