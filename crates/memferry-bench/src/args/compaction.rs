// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry bench compaction`.

use clap::{Args, ValueEnum};
use memferry_linux::kernel::NO_MIGRATOR;

use super::promote::Switch;
use super::{MigratorName, OutputArgs, distinct};
use crate::units::{Size, positive};

/// Options of `memferry bench compaction`.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it as root: it writes to the node's file `compact`, sets the kernel's migrator and \
                  vm.compaction_proactiveness, and sets them back. It fills the node but for a sixteenth, and compaction moves movable pages of all its processes."
)]
pub struct CompactionArgs {
    /// Bytes of base pages, of which every second one is given back before; the rest of the node is filled. Linux does not see
    /// free pages that CPUs keep to themselves, up to an eighth of a zone: of less memory than that it moves little [default:
    /// all that is free, but for a sixteenth of the node]
    #[arg(long, value_name = "SIZE")]
    pub total: Option<Size>,
    /// The node [default: the first one with CPUs and memory]
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// What shares the CPU with the thread that compacts [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    load: Vec<Load>,
    /// What copies: none, kernel, mtcopy, dcbm [default: all that are registered]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "all")]
    pub migrator: Vec<MigratorName>,
    /// Lanes of mtcopy and dcbm [default: as they are set]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub lanes: Option<usize>,
    /// Whether compaction isolates as much at once as a migrator takes, or 32 pages first, as Linux does. Migrators take 32 pages
    /// meanwhile in both cases [default: as it is set]
    #[arg(long, value_name = "on|off", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true)]
    gather: Vec<Switch>,
    /// Runs of each case; the tables give mean and standard deviation [default: 5, --quick: 2]
    #[arg(long, value_name = "N", value_parser = positive)]
    runs: Option<usize>,
    /// Fewer runs: shows the shape in seconds, not for publication
    #[arg(long)]
    pub quick: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CompactionArgs {
    /// The loads, each once.
    pub fn loads(&self) -> Vec<Load> {
        match self.load.is_empty() {
            true => vec![Load::Idle, Load::Hog],
            false => distinct(&self.load),
        }
    }

    /// With larger batches, without, or as it is set; without a migrator there is nothing to set.
    pub fn gathers(&self, migrator: &str) -> Vec<Option<bool>> {
        match self.gather.is_empty() || migrator == NO_MIGRATOR {
            true => vec![None],
            false => (distinct(&self.gather)
                .iter()
                .map(|of| Some(*of == Switch::On)))
            .collect(),
        }
    }

    /// Runs of each case.
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 2 } else { 5 })
    }
}

/// What shares the CPU with the thread that compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Nothing
    Idle,
    /// A thread that never sleeps
    Hog,
}
