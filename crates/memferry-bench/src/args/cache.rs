// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry bench cache`.

use clap::Args;

use super::{NodeArgs, OutputArgs};
use crate::units::{Size, positive};

/// Options of `memferry bench cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Bytes that move in one run [default: 1GiB, --quick: 256MiB, less on a small machine]
    #[arg(long, value_name = "SIZE")]
    pub total: Option<Size>,
    /// Bytes of the thread that shares the last-level cache [default: half of that cache]
    #[arg(long, value_name = "SIZE")]
    pub working_set: Option<Size>,
    /// Copy routines, as `memferry topology --copy` lists them [default: all of this CPU]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub copy: Vec<String>,
    /// Parallel copiers, on CPUs that share the cache
    #[arg(long, value_name = "N", value_parser = positive, default_value = "1")]
    pub lanes: usize,
    /// Between which nodes.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Runs of each case; the tables give mean and standard deviation [default: 5, --quick: 2]
    #[arg(long, value_name = "N", value_parser = positive)]
    runs: Option<usize>,
    /// Measure userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release: for one whose distributor has
    /// mended them
    #[arg(long)]
    pub allow_faulty_kernel: bool,
    /// Fewer runs, smaller moves: shows the shape in seconds, not for publication
    #[arg(long)]
    pub quick: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CacheArgs {
    /// Runs of each case.
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 2 } else { 5 })
    }

    /// The bytes of a run on a machine with enough memory.
    pub fn wanted_total(&self) -> u64 {
        let usual = Size(if self.quick { 1 << 28 } else { 1 << 30 });
        self.total.unwrap_or(usual).0
    }
}
