// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published table beside ours, in a file of `bench reproduce`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A published table, and what came out here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reproduced {
    /// What `bench reproduce --list` calls it.
    pub name: String,
    /// Author and version of the posting.
    pub posting: String,
    /// The machine that was measured there.
    pub system: String,
    /// What the table shows.
    pub shows: String,
    /// The part of the published sizes, at most 1.
    pub scale: f64,
    /// The benchmark that ran, as it stands behind `memferry bench`.
    pub line: String,
    /// What figures are multiples of, both there and here: `Linux as it is`, or `one lane` of the same migrator; absent where a
    /// table has no throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Throughput, a cell for each published figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Cell>,
    /// The copy's part of a migration, a cell for each published figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareCell>,
    /// Compaction, a cell for each published row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compactions: Vec<CompactionCell>,
    /// What this machine could not repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A published throughput beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// As published: `kernel` is Linux as it is.
    pub migrator: String,
    /// Threads or DMA channels.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio_bytes: u64,
    /// Folios of one move, where that varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folios: Option<usize>,
    /// There.
    pub published: Measured,
    /// Here; absent where it was left out, or where the migrator left more than a tenth of the bytes to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Measured>,
}

/// A throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Mean, GB/s.
    pub gbps: f64,
    /// Standard deviation, GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps_sd: Option<f64>,
    /// As a multiple of the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_baseline: Option<f64>,
}

/// The copy's part of a migration's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareCell {
    /// Bytes of a folio.
    pub folio_bytes: u64,
    /// Folios of one move.
    pub folios: usize,
    /// As published, percent.
    pub published_percent: String,
    /// Here, percent, of one lane; absent where it was left out, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours_percent: Option<f64>,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Where the time went, by migrators with one lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepPercents>,
    /// What more lanes gave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LanesCell>,
}

/// Where the time of a migration went, percent; absent steps are part of another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPercents {
    /// What copied; `none` is Linux itself.
    pub migrator: String,
    /// Allocating and unmapping; through userfaultfd the flush too.
    pub unmap: f64,
    /// The TLB flush of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<f64>,
    /// The copy of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<f64>,
    /// Remapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remap: Option<f64>,
    /// Flush, copy and remap by Linux itself, which does not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<f64>,
    /// All else.
    pub rest: f64,
}

/// Amdahl's prediction from the copy's part of the time on one lane, and what lanes gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LanesCell {
    /// What copied.
    pub migrator: String,
    /// Threads or DMA channels.
    pub lanes: usize,
    /// Throughput as a multiple of the one lane's, if the copy alone is divided by the lanes.
    pub predicted: f64,
    /// The multiple that was measured.
    pub measured: f64,
}

/// A published compaction beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionCell {
    /// `vanilla` or `dcbm`.
    pub mode: String,
    /// `idle` or `hog`.
    pub load: String,
    /// There.
    pub published: Compacted,
    /// Here; absent where it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Compacted>,
}

/// What a compaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compacted {
    /// Milliseconds.
    pub wall_ms: f64,
    /// Milliseconds of the same load without a migrator, for each one of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_baseline: Option<f64>,
    /// Base pages that Linux migrated.
    pub pages_migrated: u64,
    /// The part of them that the migrator copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_migrator: Option<f64>,
    /// Rounds of the hog in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hog_per_s: Option<f64>,
    /// The CPU's time in user mode, in the kernel, and without work, percent.
    pub cpu_percent: [f64; 3],
}

/// Something that this machine cannot repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The migrator, the lanes, the folios.
    pub what: String,
    /// Why.
    pub why: String,
}
