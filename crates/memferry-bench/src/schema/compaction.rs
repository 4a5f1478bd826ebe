// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench compaction`, one for each migrator and load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpu_time::CpuTicks;

/// A migrator under one load; counts are means of the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionRow {
    /// As the kernel names it; `none`: Linux's own copy.
    pub migrator: String,
    /// `idle`, or `hog`: a thread that never sleeps shared the CPU.
    pub load: String,
    /// Whether compaction isolated as much at once as the migrator takes, or 32 pages first, as Linux does (`--gather`); absent where
    /// it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather: Option<bool>,
    /// The node that was compacted.
    pub node: u32,
    /// The CPU whose thread compacted it.
    pub cpu: u32,
    /// Memory of base pages, half of which had been given back, bytes.
    pub bytes: u64,
    /// Runs.
    pub runs: usize,
    /// Mean time of one compaction, milliseconds.
    pub wall_ms: f64,
    /// Standard deviation over the runs, milliseconds.
    pub wall_ms_sd: f64,
    /// Each run, milliseconds.
    pub runs_wall_ms: Vec<f64>,
    /// Base pages that Linux migrated meanwhile.
    pub pages_migrated: u64,
    /// Pages of the benchmark's own memory that lie elsewhere afterwards; absent without the privilege to see where pages lie. Linux
    /// also migrates page cache that no process has mapped, which no migrator is offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_pages: Option<u64>,
    /// Those that the migrator copied; absent for `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrator_pages: Option<u64>,
    /// Lanes that copied a batch, mean; absent for `none`, and without tracefs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_used: Option<f64>,
    /// Bytes of a batch that the migrator copied, mean (as `lanes_used`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_batch_bytes: Option<u64>,
    /// How far the hog came meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hog_iterations: Option<u64>,
    /// Time of that CPU, over all runs.
    pub cpu_ticks: CpuTicks,
    /// Bytes compared with what they must be, over all runs.
    pub verified_bytes: u64,
}
