// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry kernel`.

use clap::{ArgGroup, Args, Subcommand};
use memferry_linux::kernel::pghot::{MOST_RATE_MBPS, MOST_TARGET, source_mask};
use memferry_linux::kernel::{MOST_LANES, Setting};

use super::ShownArgs;
use crate::units::{bytes_or_none, positive};

/// What can be asked of the kernel's half.
#[derive(Debug, Subcommand)]
pub enum Kernel {
    /// Show migrators, hot-page tracking, settings and what was done; on a stock kernel, what is missing
    #[command(
        after_help = "Exit status: 0 also on a stock kernel: to say that there is nothing \
                            is what was asked."
    )]
    Status(ShownArgs),
    /// Change settings: all of them, or on failure none
    Set(Box<SetArgs>),
    /// Show how hot the sections of memory are, as the kernel tracks it
    Heat(HeatArgs),
}

/// Options of `memferry kernel heat`.
#[derive(Debug, Args)]
pub struct HeatArgs {
    /// Sections of this node only
    #[arg(long, value_name = "N")]
    pub node: Option<u32>,
    /// Show so many sections, those with the most hot pages first (JSON has all)
    #[arg(long, value_name = "N", value_parser = positive, default_value = "32")]
    pub most: usize,
    /// What is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// The options that change a setting.
const SETTINGS: [&str; 8] = [
    "migrator",
    "reason",
    "max_batch_bytes",
    "mtcopy_lanes",
    "dcbm_lanes",
    "pghot_sources",
    "pghot_target",
    "pghot_rate_limit",
];

const SET_HELP: &str = "\
Settings last until the next boot, those of a module until it is unloaded. --persist writes memferry.conf into \
modules-load.d, sysctl.d, tmpfiles.d and systemd/system/systemd-tmpfiles-setup.service.d of /etc, which bring back all \
settings as they are then, not only those of this call. Modules that are loaded now are loaded then, with the parameters \
that modprobe.d has for them; files of debugfs are not kept. A file of that name that memferry did not write stays, and \
nothing is changed.";

/// Options of `memferry kernel set`.
#[derive(Debug, Args)]
#[command(after_help = SET_HELP, group(
    ArgGroup::new("setting").required(true).multiple(true).args(SETTINGS).args(["restore", "persist", "forget"])
))]
pub struct SetArgs {
    /// What copies batches; auto: each batch by what is fastest, as the kernel learns it; none: every folio is copied by itself,
    /// as in a stock kernel
    #[arg(long, value_name = "NAME")]
    pub migrator: Option<String>,
    /// What copies for a reason, as `kernel status` lists them, or for all: default (what --migrator says), none, auto or a
    /// migrator; NAME-only: no CPU copies instead, a folio that NAME does not copy stays where it is; none-only: nothing moves for it
    #[arg(long, value_name = "REASON=CHOICE", value_delimiter = ',', value_parser = reason)]
    pub reason: Vec<String>,
    /// Bytes that one batch unmaps at most, 2M to 32M
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none)]
    pub max_batch_bytes: Option<u64>,
    /// mtcopy: CPUs that copy a batch at most, the caller's included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LANES))]
    pub mtcopy_lanes: Option<u64>,
    /// dcbm: DMA channels that copy a batch at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LANES))]
    pub dcbm_lanes: Option<u64>,
    /// pghot: what reports accesses: all, none, or of hintfaults,hwhints,pgtscan
    #[arg(long, value_name = "LIST", value_parser = sources)]
    pub pghot_sources: Option<u64>,
    /// pghot: the node that pages go to of which no better one is known
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u64).range(0..=MOST_TARGET))]
    pub pghot_target: Option<u64>,
    /// pghot: MiB that move to a node, and in exchange away from it, in a second at most
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MOST_RATE_MBPS))]
    pub pghot_rate_limit: Option<u64>,
    /// Set back what a benchmark changed that was killed, and nothing else
    #[arg(long, conflicts_with_all = SETTINGS)]
    pub restore: bool,
    /// Have the settings come back at boot; without a setting: those that there are now
    #[arg(long, conflicts_with = "restore")]
    pub persist: bool,
    /// Remove what --persist wrote; the settings of now stay
    #[arg(long, conflicts_with_all = SETTINGS, conflicts_with_all = ["restore", "persist"])]
    pub forget: bool,
    /// Check everything, say what would be written, write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// What is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

impl SetArgs {
    /// The wanted values.
    pub fn wanted(&self) -> Vec<(Setting, String)> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let reasons = (!self.reason.is_empty()).then(|| self.reason.join(","));
        [
            (Setting::PghotTarget, number(self.pghot_target)),
            (Setting::PghotRateLimit, number(self.pghot_rate_limit)),
            (Setting::PghotSources, number(self.pghot_sources)),
            (Setting::MaxBatchBytes, number(self.max_batch_bytes)),
            (Setting::Reasons, reasons),
            (Setting::MtcopyLanes, number(self.mtcopy_lanes)),
            (Setting::DcbmLanes, number(self.dcbm_lanes)),
            (Setting::Migrator, self.migrator.clone()),
        ]
        .into_iter()
        .filter_map(|(setting, value)| Some((setting, value?)))
        .collect()
    }
}

/// Reads a reason and its choice, and writes them as the kernel does.
fn reason(text: &str) -> Result<String, String> {
    let (reason, choice) = text
        .split_once('=')
        .ok_or("give REASON=CHOICE, such as demotion=dcbm or all=auto")?;
    Ok(match choice.strip_suffix("-only") {
        Some(choice) => format!("{reason} {choice} only"),
        None => format!("{reason} {choice}"),
    })
}

/// Reads names of sources between commas.
fn sources(text: &str) -> Result<u64, String> {
    source_mask(text.split(',')).map_err(|name| {
        format!("no source is called {name:?}: give all, none, or of hintfaults,hwhints,pgtscan")
    })
}
