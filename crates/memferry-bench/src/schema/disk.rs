// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves and a disk lose beside each other, in a row of `bench move` or `bench count`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The runs of a case beside a thread that writes and reads a disk past the page cache, each right after the run without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BesideDisk {
    /// Mean over the runs, GB/s.
    pub gbps: f64,
    /// Standard deviation over the runs, GB/s.
    pub gbps_sd: f64,
    /// Each run, GB/s.
    pub runs_gbps: Vec<f64>,
    /// The part of the throughput that the disk took, mean over the pairs of runs; negative where the moves were faster beside it.
    pub lost: f64,
    /// Bytes that the migrator copied in these runs, counted as those of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_bytes: Option<u64>,
    /// Bytes of these runs that were compared with what they must be.
    pub verified_bytes: u64,
    /// What the disk had right before each of these runs, written and read, mean, GB/s.
    pub disk_alone_gbps: f64,
    /// The same while pages moved.
    pub disk_gbps: f64,
    /// The part of it that the moves took, mean over the runs; negative where the disk was faster beside them.
    pub disk_lost: f64,
    /// Bytes read from the disk and compared with what was written there.
    pub disk_verified_bytes: u64,
}
