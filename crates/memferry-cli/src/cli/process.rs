// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry move`.

use clap::Args;

use super::JsonArgs;
use crate::units::{positive, rate};

/// Options of `memferry move`.
#[derive(Debug, Args)]
#[command(
    after_help = "The process goes on meanwhile. Pages that other processes map too (shared libraries, fork, shared \
                  memory) stay, unless --all is given.\nExit status: 0 all pages are where they should be, 1 pages stayed \
                  on a wrong node, or it ended early, 2 wrong usage."
)]
pub struct ProcessArgs {
    /// The process, as ps lists it
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: u32,
    /// Only pages of this node [default: pages of all nodes]
    #[arg(long, value_name = "N")]
    pub from: Option<u32>,
    /// The node to move them to
    #[arg(long, value_name = "N")]
    pub to: u32,
    /// Threads that call the kernel, each for its own part of the memory
    #[arg(long, value_name = "K", value_parser = positive, default_value = "1")]
    pub callers: usize,
    /// Move no more than so many bytes per second: 100M, 1.5G/s (powers of 1000, as the GB/s that are printed), 64MiB
    #[arg(long, value_name = "BYTES/s", value_parser = rate)]
    pub rate: Option<u64>,
    /// Also pages that other processes map; needs root (CAP_SYS_NICE)
    #[arg(long, conflicts_with = "anonymous")]
    pub all: bool,
    /// Only private anonymous memory (heap, stacks, mmap), no files
    #[arg(long)]
    pub anonymous: bool,
    /// Say how many pages lie on which node, and move none
    #[arg(long)]
    pub dry_run: bool,
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
}
