// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command and the process of a run of a workload say to each other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::args::workload::{Memory, Workload};
use crate::promote::mover::Counter;
use crate::schema::Quantiles;
use crate::schema::gain::Truth;

/// What a run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkSpec {
    pub workload: Workload,
    /// The exponent of Zipf's law.
    pub skew: f64,
    /// Operations a second of a thread, of a workload that has a rate.
    pub rate: Option<u64>,
    pub memory: Memory,
    /// Bytes that are accessed, a multiple of 2 MiB.
    pub bytes: usize,
    /// Bytes of the top tier that are to be had; all, if not set.
    pub room: Option<u64>,
    /// Which pages go to the top tier before the clock begins.
    pub placing: Placing,
    /// Where the misses of each page are, phase by phase: `none` writes them, and the oracle reads them.
    pub misses: Option<PathBuf>,
    pub seed: u64,
    pub seconds: f64,
    /// The node that the pages begin on.
    pub lower: u32,
    /// The nodes of the top tier, in the order in which they get pages.
    pub top: Vec<u32>,
    /// The CPUs of the accessing threads.
    pub cpus: Vec<u32>,
    pub threads: usize,
    /// Who counts what is promoted.
    pub counter: Counter,
    /// How often it is looked where the pages are.
    pub sample_ms: u64,
}

/// Which pages are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placing {
    /// None.
    Nothing,
    /// All.
    All,
    /// Random ones, as many as there is room for.
    Random,
    /// The best ones, so many of them.
    Best(u64),
}

/// What was seen from inside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkSeen {
    /// What was seen in each phase, from its begin to its end.
    pub phases: Vec<Vec<Sample>>,
    /// System time of the accessing threads.
    pub system_s: f64,
    /// Latency of operations with a rate, of the run and of the last quarters of its phases.
    pub latency: Option<(Quantiles, Quantiles)>,
    /// Share of the accesses whose page was in the top tier.
    pub top_share: f64,
    /// Pages in the top tier at the end.
    pub pages_in_top: u64,
    /// Arrivals in the top tier that stayed for ten seconds.
    pub stayed_pages: u64,
    /// Pages that were placed before each phase, and those of them that were still there after it.
    pub placed: Option<(u64, u64)>,
    /// What a timed machine counted meanwhile.
    pub truth: Option<Truth>,
}

/// What was known at one moment, from the begin of the phase on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds.
    pub at_s: f64,
    /// Operations of all threads until then.
    pub operations: u64,
    /// Time of all threads in them.
    pub busy_ns: u64,
    /// The count of promoted pages, since the machine or the daemon began.
    pub promoted: u64,
    /// Share of the accesses whose page is in the top tier then.
    pub top_share: f64,
}
