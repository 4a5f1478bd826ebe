// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry bench promote`.

use clap::{Args, ValueEnum};

use super::workload::WorkloadArgs;
use super::{OutputArgs, distinct};
use crate::published::promotion::{self, Published, Scale};
use crate::units::{Size, positive};

/// Options of `memferry bench promote`.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it as root on a machine that nobody else uses: it sets kernel.numa_balancing, \
                  numa/demotion_enabled, vm.pghot_*, lru_gen/enabled and DAMON, and sets them back, also after a failure or Ctrl-C. \
                  Scenario 2 fills the top tier."
)]
pub struct PromoteArgs {
    /// A published scenario with its own threads, sizes, proportions, regions, length and runs: pghot-v6-1, pghot-v6-2
    #[arg(
        long,
        value_name = "NAME",
        value_parser = promotion::scenario,
        conflicts_with_all = ["scenario", "size", "regions", "threads", "demotion", "quick"]
    )]
    pub like: Option<&'static Published>,
    /// With --like: the part of the published sizes, at most 1 (0.01, 1/128) [default: 1]
    #[arg(long, value_name = "F", requires = "like")]
    scale: Option<Scale>,
    /// 1: the top tier has room. 2: it is full and idle, and regions of the lower tier become hot one after another. 3: both tiers
    /// are full and accessed evenly, so that no move gains anything
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "1,2", hide_possible_values = true)]
    scenario: Vec<Scenario>,
    /// What promotes: none, numab2 (kernel.numa_balancing=2), pghot, daemon (`memferryd` with DAMON), damos
    /// (DAMON by itself). With --workload also
    /// the baselines dram (all in the top tier), fill (random pages in the room) and oracle (the best ones) [default: all that this
    /// kernel has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true)]
    mode: Vec<ModeName>,
    /// What reports accesses to pghot: hintfaults, pgtscan, hwhints [default: all that this machine has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true)]
    source: Vec<SourceName>,
    /// The event of the source hwhints, as debugfs pghot/hwhints_event takes it
    #[arg(long, value_name = "TYPE CONFIG PERIOD")]
    pub hwhints_event: Option<String>,
    /// Bytes of the lower tier that become hot, all regions together, or that a workload accesses [default: 8GiB, --workload: 1GiB,
    /// --quick: 512MiB, emulated: 64MiB, less on a small machine]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Scenario 2: regions that become hot one after another [default: 8, --quick: 4]
    #[arg(long, value_name = "N", value_parser = positive)]
    regions: Option<usize>,
    /// Threads that access [default: the CPUs of the top tier's node that is nearest to the lower tier, --workload: 1]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub threads: Option<usize>,
    /// Accesses of one thread to one region [default: what takes --seconds while nothing promotes]
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub accesses: Option<u64>,
    /// How long the accesses of a run take about, of a workload exactly [default: 60, --quick: 12, --like: as published]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub seconds: Option<u64>,
    /// Runs of each case; the tables give mean, standard deviation and confidence [default: 10, --workload: 3, --quick: 2, --like: as
    /// published]
    #[arg(long, value_name = "N", value_parser = positive)]
    runs: Option<usize>,
    /// Whether reclaim demotes from a full top tier
    #[arg(long, value_enum, value_name = "on|off", default_value = "on")]
    #[arg(hide_possible_values = true)]
    demotion: Switch,
    /// Whether the multi-generational LRU is on [default: as it is set]
    #[arg(long, value_enum, value_name = "on|off")]
    #[arg(hide_possible_values = true)]
    pub mglru: Option<Switch>,
    /// How often it is looked where the hot pages are
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60000))]
    pub sample_ms: u64,
    /// Fewer and shorter runs: shows the shape in minutes, not for publication
    #[arg(long)]
    pub quick: bool,
    /// Workloads in place of scenarios.
    #[command(flatten)]
    pub of_workload: WorkloadArgs,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl PromoteArgs {
    /// What goes together on the command line, and what does not.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.source.is_empty() && !self.modes().contains(&ModeName::Pghot) {
            return Err("--source is of pghot: give --mode pghot".to_owned());
        }
        if self.regions.is_some() && !self.scenarios().contains(&Scenario::Full) {
            return Err("--regions is of scenario 2: give --scenario 2".to_owned());
        }
        let baseline = self.mode.iter().find(|mode| mode.is_baseline());
        if let (Some(_), false) = (baseline, self.is_of_workloads()) {
            let told = "--mode dram, fill and oracle are of workloads: give --workload zipf";
            return Err(told.to_owned());
        }
        Ok(())
    }

    /// Whether workloads are measured, and no scenario.
    pub fn is_of_workloads(&self) -> bool {
        !self.of_workload.workloads().is_empty() || !self.of_workload.programs().is_empty()
    }

    /// The scenarios, each once.
    pub fn scenarios(&self) -> Vec<Scenario> {
        match self.like {
            Some(like) => vec![if like.scenario == 1 {
                Scenario::Room
            } else {
                Scenario::Full
            }],
            None => distinct(&self.scenario),
        }
    }

    /// The part of the published sizes: what was asked for, with regions of whole huge pages if they have any.
    pub fn scale(&self) -> Scale {
        let asked = self.scale.unwrap_or(Scale(1.0));
        let fitted = self.like.map(|like| like.fitted(asked));
        fitted.filter(|of| of.0 > 0.0).unwrap_or(asked)
    }

    /// What promotes, the baselines first.
    pub fn modes(&self) -> Vec<ModeName> {
        let mut modes = ModeName::value_variants().to_vec();
        modes.retain(|mode| match self.mode.is_empty() {
            true => self.is_of_workloads() || !mode.is_baseline(),
            // The oracle places the pages that `none` misses.
            false if *mode == ModeName::None => {
                self.mode.contains(mode) || self.mode.contains(&ModeName::Oracle)
            }
            false => self.mode.contains(mode),
        });
        modes
    }

    /// The sources of pghot.
    pub fn sources(&self) -> Vec<SourceName> {
        match self.source.is_empty() {
            true => SourceName::value_variants().to_vec(),
            false => distinct(&self.source),
        }
    }

    /// Regions of scenario 2.
    pub fn regions(&self) -> usize {
        self.regions.unwrap_or(if self.quick { 4 } else { 8 })
    }

    /// Seconds of a run while nothing promotes.
    pub fn seconds(&self) -> f64 {
        let usual = if self.quick { 12.0 } else { 60.0 };
        let published = self.like.and_then(Published::seconds);
        let asked = self.seconds.map(|seconds| seconds as f64);
        asked.or(published).unwrap_or(usual)
    }

    /// Runs of each case.
    pub fn runs(&self) -> usize {
        let usual = match self.like {
            Some(like) => like.runs,
            None if self.quick => 2,
            None if self.is_of_workloads() => 3,
            None => 10,
        };
        self.runs.unwrap_or(usual)
    }

    /// Whether reclaim demotes.
    pub fn demotes(&self) -> bool {
        self.demotion == Switch::On
    }
}

#[cfg(test)]
impl PromoteArgs {
    /// What this line asks for.
    pub fn read(line: &str) -> Self {
        match super::read(&format!("promote {line}")).expect("usage") {
            super::Bench::Promote(args) => args,
            other => panic!("{other:?}"),
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

/// A published scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The top tier has room
    #[value(name = "1")]
    Room,
    /// The top tier is full and idle
    #[value(name = "2")]
    Full,
    /// Both tiers are full and accessed evenly
    #[value(name = "3")]
    Even,
}

impl Scenario {
    /// Its number; the first two are the published ones.
    pub fn number(self) -> u32 {
        match self {
            Self::Room => 1,
            Self::Full => 2,
            Self::Even => 3,
        }
    }
}

/// What promotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Nothing
    None,
    /// NUMA balancing between tiers
    Numab2,
    /// Hot-page tracking
    Pghot,
    /// The daemon with DAMON
    Daemon,
    /// DAMON by itself: schemes that migrate between the tiers
    Damos,
    /// All pages in the top tier
    Dram,
    /// Random pages in the room of the top tier
    Fill,
    /// The best pages in the room of the top tier
    Oracle,
}

impl ModeName {
    /// Whether pages are placed before the accesses, and stay.
    fn is_baseline(self) -> bool {
        matches!(self, Self::Dram | Self::Fill | Self::Oracle)
    }
}

/// What reports accesses to pghot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// Hint faults
    Hintfaults,
    /// A scan of page tables
    Pgtscan,
    /// Hardware samples
    Hwhints,
}

impl SourceName {
    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hintfaults => "hintfaults",
            Self::Pgtscan => "pgtscan",
            Self::Hwhints => "hwhints",
        }
    }
}
