// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry bench reproduce`.

use clap::Args;

use super::{Backend, JsonArgs, NodeArgs};
use crate::published::promotion::Scale;
use crate::published::tables::{self, Table};
use crate::units::positive;

/// Options of `memferry bench reproduce`.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it as root for --backend kernel: it sets the kernel's migrator and sets it back. Cases that this machine \
                  cannot have are listed with the reason; the rest runs."
)]
pub struct ReproduceArgs {
    /// The table, as --list names it
    #[arg(value_name = "NAME", value_parser = tables::table, required_unless_present = "list")]
    pub table: Option<&'static Table>,
    /// Show all tables: who published them, what they show, and what they need
    #[arg(long, conflicts_with_all = ["table", "scale", "backend", "from", "to", "runs", "seconds"])]
    pub list: bool,
    /// The part of the published sizes, at most 1 (0.01, 1/128): of the bytes of a move, of the largest number of folios, of the
    /// memory that is promoted or compacted
    #[arg(long, value_name = "F", default_value = "1")]
    pub scale: Scale,
    /// Who moves: the kernel through move_pages(2), or this command through userfaultfd
    #[arg(long, value_enum, default_value_t = Backend::Kernel)]
    pub backend: Backend,
    /// Between which nodes.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Runs of each case [default: 5; of promotion as published]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub runs: Option<usize>,
    /// Tables of promotion: how long the accesses of a run take about [default: as published]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub seconds: Option<u64>,
    /// Measure userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release: for one whose distributor has
    /// mended them
    #[arg(long)]
    pub allow_faulty_kernel: bool,
    /// How the result is shown.
    #[command(flatten)]
    pub json: JsonArgs,
}
