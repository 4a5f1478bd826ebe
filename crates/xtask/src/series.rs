// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask series`: writes the mails, or with `--check` has `check` look at them.

use std::path::Path;

use anyhow::Result;

use crate::base::Base;
use crate::check;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::mail;
use crate::mailbox::{self, Originals, Sender};
use crate::tree::Series;

/// What the check builds, and Debian's packages are for.
pub const MACHINE: &str = "x86_64";

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; check the mails with Linux's tools, and that each of them builds
    #[arg(long)]
    check: bool,
    /// With --check: leave out what builds whole kernels
    #[arg(long, requires = "check")]
    quick: bool,
}

/// Does what `args` ask in the checkout `root`. Returns whether all is well.
pub fn run(root: &Path, args: &Args, base: Base, source: Option<&Path>) -> Result<bool> {
    let series = Series::read(root, &base)?;
    // Before anything that takes minutes.
    mail::check(&series)?;
    let lab = Lab::open(root, Machine::read(root, MACHINE)?, base, source)?;
    if args.check {
        return check::run(&lab, &series, args.quick);
    }
    let sender = Sender::of(root);
    let originals = Originals::extract(&lab.source, &series)?;
    let output = root.join(format!("target/kernel-series{}", lab.base.suffix()));
    let written = mailbox::write_mails(root, &series, &originals, &sender, &output)?;
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
