// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench cache`, one for each copy routine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FromTo;

/// What a thread loses whose data fits the last-level cache, while pages move with this copy routine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheRow {
    /// `user` (userfaultfd).
    pub backend: String,
    /// `mtcopy`.
    pub migrator: String,
    /// The copy routine.
    pub copy: String,
    /// Whether it writes past the caches.
    pub bypasses_cache: bool,
    /// Parallel copiers.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio_bytes: usize,
    /// Bytes of one run.
    pub bytes: u64,
    /// Bytes that the thread reads again and again.
    pub working_set_bytes: u64,
    /// The last-level cache that it shares with the copiers, bytes; absent where the machine does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Its CPU.
    pub cpu: u32,
    /// The nodes between which pages moved; absent where they moved within the machine's one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<FromTo>,
    /// Runs.
    pub runs: usize,
    /// Mean throughput of the moves, GB/s.
    pub gbps: f64,
    /// Standard deviation over the runs, GB/s.
    pub gbps_sd: f64,
    /// The part of its reads that the thread does not do while pages move, mean over the runs.
    pub lost: f64,
    /// Standard deviation over the runs.
    pub lost_sd: f64,
    /// Each run.
    pub runs_lost: Vec<f64>,
    /// The same while as many threads copy the same bytes and no page moves, mean over the runs.
    pub lost_copying: f64,
    /// Reads a second with nothing beside them, mean over the runs.
    pub alone_reads_per_s: f64,
    /// Bytes compared with what they must be, over all runs.
    pub verified_bytes: u64,
}
