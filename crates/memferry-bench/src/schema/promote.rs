// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench promote`, schema `memferry-promote/1`, one for each run, and what the runs of one case come to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FromTo;

/// The value of [`BenchFile::schema`](super::BenchFile) for this benchmark.
pub const PROMOTE_SCHEMA: &str = "memferry-promote/1";

/// One run of one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PromoteRow {
    /// 1: the top tier has room; 2: it is full and idle, and regions of the lower tier become hot one after another; 3: both tiers
    /// are full and accessed evenly.
    pub scenario: u32,
    /// `none`, `numab2`, `pghot`, `daemon` or `damos`.
    pub mode: String,
    /// What reported accesses to pghot (`hintfaults`, `pgtscan` or `hwhints`) or to the daemon (`damon`); of `damos`, how its
    /// quota is tuned (`consist`, `temporal`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The format of pghot's records, `default` or `precise`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The round, from 1: every case has one run in each.
    pub run: usize,
    /// Time for the fixed sequence of accesses.
    pub seconds: f64,
    /// Time until 95% of the hot set was seen in the top tier, in scenario 2 the mean over the regions; absent if that
    /// was never seen, of one region at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_in_top_95_s: Option<f64>,
    /// Pages promoted meanwhile, by the kernel's count, of all processes; by the daemon's with `daemon`, by DAMON's with `damos`.
    pub promoted_pages: u64,
    /// Pages of the hot set that were seen to arrive in the top tier while they were hot.
    pub promoted_hot_pages: u64,
    /// Pages demoted meanwhile, by the kernel's count, and by the daemon's or DAMON's.
    pub demoted_pages: u64,
    /// Share of the accesses that the top tier served.
    pub top_share: f64,
    /// `promoted_hot_pages` over `promoted_pages`; absent if nothing was promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// Share of the hot set in the top tier when its time was over, in scenario 2 the mean over the regions.
    pub recall: f64,
    /// CPU time of what finds hot pages. See docs/measuring/promote.md.
    pub tracker_cpu_s: f64,
    /// CPU time of `kmigrated`, or of the daemon; absent where the accessing threads migrate themselves, which is in `tracker_cpu_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_cpu_s: Option<f64>,
    /// CPU time of `kswapd`, which demotes.
    pub demotion_cpu_s: f64,
    /// Time that the accessing threads spent in the kernel.
    pub access_system_s: f64,
    /// Hint faults meanwhile.
    pub hint_faults: u64,
    /// Threads that accessed.
    pub threads: usize,
    /// Accesses of all threads.
    pub accesses: u64,
    /// Bytes of one region; scenario 1 has one region.
    pub region_bytes: u64,
    /// Regions that became hot one after another.
    pub regions: usize,
    /// Idle bytes that the benchmark filled the top tier with.
    pub fill_bytes: u64,
    /// Those of them that were locked, as if the top tier ended before them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub locked_bytes: u64,
    /// From the node of the lower tier to that of the accessing CPUs.
    pub nodes: FromTo,
    /// Bytes compared afterwards with what they must be.
    pub verified_bytes: u64,
    /// What the kernel's counters of pghot, promotion and demotion rose by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// Seconds since the start, pages promoted until then.
    pub timeline: Vec<(f64, u64)>,
    /// Seconds since the start, share of the set that is hot then in the top tier.
    pub hot_timeline: Vec<(f64, f64)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl PromoteRow {
    /// The name of its case: `numab2`, `pghot hintfaults, default`.
    pub fn case(&self) -> String {
        super::case(&self.mode, self.source.as_deref(), self.record.as_deref())
    }
}

/// What a file that repeats a published scenario says of it: the published figures and ours, side by side.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Like {
    /// The scenario, as `--like` takes it.
    pub name: String,
    /// The posting that published it.
    pub source: String,
    /// The machine that it was measured on.
    pub system: String,
    /// The part of its sizes that ours has.
    pub scale: f64,
    /// MiB that NUMA balancing scanned in a second, scaled likewise.
    pub scan_mib: u64,
    /// What came out, case by case; ours are means of the runs.
    pub results: Vec<LikeResult>,
    /// Pages that hint faults promoted with pghot for each that NUMA balancing promoted.
    pub hintfaults_over_numab2: Both,
    /// Pages promoted per second, over time. Published ones are multiplied by the scale.
    pub rates: Vec<LikeRate>,
}

/// A figure, published and ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Both {
    /// The published one, as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<f64>,
}

/// A case of a published scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LikeResult {
    /// [`PromoteRow::case`]; of pghot with no source on, which has no case here, what it was published as.
    pub case: String,
    /// Time for the accesses.
    pub seconds: Both,
    /// Pages promoted.
    pub pages: Both,
}

/// A line of promotion over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LikeRate {
    /// `numab2`, `pghot`, or [`PromoteRow::case`].
    pub case: String,
    /// Whether it is published.
    pub published: bool,
    /// The second in which an interval ends, pages promoted per second in it.
    pub pages_per_s: Vec<(f64, f64)>,
}
