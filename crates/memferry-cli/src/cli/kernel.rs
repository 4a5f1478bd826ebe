// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry kernel`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use memferry::kernel::{Change, MOST_LANES, Reasons};

use crate::units::bytes_or_none;

/// What can be asked of the kernel's half.
#[derive(Debug, Subcommand)]
pub enum Kernel {
    /// Show migrators, settings and what was copied; on a stock kernel, what is missing
    #[command(
        after_help = "Exit status: 0 also on a stock kernel: to say that there is nothing \
                            is what was asked."
    )]
    Status(StatusArgs),
    /// Change settings: all of them, or on failure none
    Set(SetArgs),
}

/// Options of `memferry kernel status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Where to look for files.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where the kernel's files are.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The folder that holds sys and proc
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// Options of `memferry kernel set`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("setting").required(true).multiple(true).args([
    "migrator", "reasons", "min_batch_bytes", "max_batch_bytes", "lanes", "priority", "placement",
    "nontemporal", "idle_only", "dcbm_lanes", "timeout_ms", "poll_below_bytes", "reset_stats",
])))]
pub struct SetArgs {
    /// What copies batches; none: every folio is copied by itself, as in a stock kernel
    #[arg(long, value_name = "NAME")]
    pub migrator: Option<String>,
    /// For which reasons it copies: all, none, or names as `kernel status` lists them
    #[arg(long, value_name = "LIST", value_parser = reasons)]
    pub reasons: Option<Reasons>,
    /// Batches below this size are copied folio by folio; 0: none is
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none)]
    pub min_batch_bytes: Option<u64>,
    /// Bytes that one batch unmaps at most, 2M to 64M
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none)]
    pub max_batch_bytes: Option<u64>,
    /// mtcopy: parallel copiers of a batch, the caller included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LANES))]
    pub lanes: Option<u64>,
    /// mtcopy: priority of the other lanes
    #[arg(long, value_name = "P", value_parser = PossibleValuesParser::new(["normal", "high"]))]
    pub priority: Option<String>,
    /// mtcopy: lanes spread over last-level caches, or fill one first
    #[arg(long, value_name = "P", value_parser = PossibleValuesParser::new(["spread", "fill"]))]
    pub placement: Option<String>,
    /// mtcopy: store around the caches
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub nontemporal: Option<Switch>,
    /// mtcopy: other lanes on idle CPUs only
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub idle_only: Option<Switch>,
    /// dcbm: DMA channels that copy a batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LANES))]
    pub dcbm_lanes: Option<u64>,
    /// dcbm: milliseconds that a channel may take before it is not used any more
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60000))]
    pub timeout_ms: Option<u64>,
    /// dcbm: smaller batches are waited for without sleeping
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none)]
    pub poll_below_bytes: Option<u64>,
    /// Clear the statistics of all migrators, after everything else
    #[arg(long)]
    pub reset_stats: bool,
    /// Check everything, say what would be written, write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Where to look for files.
    #[command(flatten)]
    pub place: PlaceArgs,
}

impl SetArgs {
    /// The wanted change.
    pub fn change(&self) -> Change {
        let on = |switch: Switch| switch == Switch::On;
        Change {
            migrator: self.migrator.clone(),
            reasons: self.reasons.clone(),
            min_batch_bytes: self.min_batch_bytes,
            max_batch_bytes: self.max_batch_bytes,
            lanes: self.lanes,
            priority: self.priority.clone(),
            placement: self.placement.clone(),
            nontemporal: self.nontemporal.map(on),
            idle_only: self.idle_only.map(on),
            dcbm_lanes: self.dcbm_lanes,
            timeout_ms: self.timeout_ms,
            poll_below_bytes: self.poll_below_bytes,
            reset_statistics: self.reset_stats,
        }
    }
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Reads reasons between commas; which names there are, the kernel knows.
fn reasons(text: &str) -> Result<Reasons, String> {
    Reasons::parse(&text.replace(',', " "))
        .map_err(|_| "give all, none, or names between commas: demotion,compaction".to_owned())
}
