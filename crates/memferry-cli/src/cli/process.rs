// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry move`.

use std::path::PathBuf;

use clap::Args;

use super::ShownArgs;
use crate::units::rate;

/// Which processes.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// The process, as ps lists it
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// All processes of this cgroup (version 2) and of those below it: a path as /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// All processes of this unit of systemd, a service unless its name says otherwise
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

const MOVE_HELP: &str = "\
The process goes on meanwhile. Pages that other processes map too (shared libraries, fork, shared memory) stay, unless --all \
is given. Processes of a cgroup move one after the other, and those that it gains meanwhile too; memory that they allocate \
later goes where their policy says.\n\
The kernel copies: on a kernel with Memferry's series by the migrator that `memferry kernel set --migrator` has chosen, with \
--mtcopy-lanes or --dcbm-lanes of that command, elsewhere page by page on the CPU of each caller.\n\
migratepages(8) moves a process's pages as well, with one system call, migrate_pages(2): on one CPU, as root with the pages \
that other processes map. It has no rate, no progress and no end before all is done, and says neither how many pages moved \
nor why some did not.\n\
Exit status: 0 all pages are where they should be, 1 pages stayed on a wrong node, or it ended early, 2 wrong usage.";

/// Options of `memferry move`.
#[derive(Debug, Args)]
#[command(after_help = MOVE_HELP)]
pub struct ProcessArgs {
    /// Which processes.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Only pages of this node [default: pages of all nodes]
    #[arg(long, value_name = "N")]
    pub from: Option<u32>,
    /// The node to move them to
    #[arg(long, value_name = "N")]
    pub to: u32,
    /// Threads that call the kernel, each for its own part of the memory, at most 1024
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1024), default_value = "1")]
    pub callers: u16,
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
    /// What is shown, and where cgroups are.
    #[command(flatten)]
    pub shown: ShownArgs,
}
