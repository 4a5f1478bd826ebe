// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark file, schema `memferry-bench/1` (of `bench promote` `memferry-promote/1` and, of its workloads, `memferry-gain/1`): what `--json` writes and `memferry report` reads.
//!
//! GB is 1e9 bytes, times are nanoseconds. It only describes the file; `bench` fills it.

pub mod cache;
pub mod compaction;
pub mod disk;
pub mod dma;
pub mod gain;
pub mod promote;
pub mod reproduced;

use std::collections::BTreeMap;
use std::path::Path;

pub use memferry_output::envelope::Envelope;
pub use memferry_output::host::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpu_time::CpuTicks;
use cache::CacheRow;
use compaction::CompactionRow;
use disk::BesideDisk;
use dma::DmaRound;
use gain::{GAIN_SCHEMA, GainRow};
use promote::{Like, PROMOTE_SCHEMA, PromoteRow};
use reproduced::Reproduced;

/// The value of [`BenchFile::schema`].
pub const BENCH_SCHEMA: &str = "memferry-bench/1";

/// Folios of this size and larger are THPs, smaller ones are made of base pages; bytes.
pub const THP_BYTES: usize = 2 << 20;

/// One benchmark run on one machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BenchFile {
    /// [`BENCH_SCHEMA`], or that of the rows.
    #[schemars(extend("enum" = [BENCH_SCHEMA, PROMOTE_SCHEMA, GAIN_SCHEMA]))]
    pub schema: String,
    /// What wrote it, when and how, and whether it is complete.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// The machine that was measured.
    pub host: Host,
    /// Copy throughput with no page moved, one entry per lane count and kind of pages.
    #[serde(default)]
    pub ceiling: Vec<Ceiling>,
    /// The measurements, `bench` naming their shape.
    #[serde(flatten)]
    pub rows: Rows,
    /// The published scenario that the rows repeat (`bench promote --like`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<Like>,
    /// The published table that the rows repeat (`bench reproduce`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduces: Option<Reproduced>,
    /// What a reader must know to judge the rows: a reduced total, a setting that was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The rows of a file; the tag `bench` says which kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "bench", content = "rows", rename_all = "lowercase")]
pub enum Rows {
    /// `bench move`: folio size by migrator and lanes.
    Move(Vec<MoveRow>),
    /// `bench count`: number of folios of one size.
    Count(Vec<MoveRow>),
    /// `bench stall`: how long accesses wait while their pages move.
    Stall(Vec<StallRow>),
    /// `bench cache`: what a thread loses whose data fits the cache.
    Cache(Vec<CacheRow>),
    /// `bench promote`: how soon hot pages come to the top tier.
    Promote(Vec<PromoteRow>),
    /// `bench promote --workload`: what promotion gains for a workload, of what the best placement does.
    Gain(Vec<GainRow>),
    /// `bench compaction`: how long the kernel takes to compact a node.
    Compaction(Vec<CompactionRow>),
}

impl Rows {
    /// The schema of a file with these rows.
    pub fn schema(&self) -> &'static str {
        match self {
            Self::Promote(_) => PROMOTE_SCHEMA,
            Self::Gain(_) => GAIN_SCHEMA,
            _ => BENCH_SCHEMA,
        }
    }

    /// The rows of `bench move` or `bench count`; others have none.
    pub fn moves(&self) -> &[MoveRow] {
        match self {
            Self::Move(rows) | Self::Count(rows) => rows,
            _ => &[],
        }
    }

    /// Of each row, the bytes that were compared.
    pub fn verified_bytes(&self) -> Vec<u64> {
        match self {
            Self::Move(rows) | Self::Count(rows) => {
                rows.iter().map(|of| of.verified_bytes).collect()
            }
            Self::Stall(rows) => rows.iter().map(|of| of.verified_bytes).collect(),
            Self::Cache(rows) => rows.iter().map(|of| of.verified_bytes).collect(),
            Self::Promote(rows) => rows.iter().map(|of| of.verified_bytes).collect(),
            Self::Gain(rows) => rows.iter().map(|of| of.verified_bytes).collect(),
            Self::Compaction(rows) => rows.iter().map(|of| of.verified_bytes).collect(),
        }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.verified_bytes().is_empty()
    }
}

/// The name of a mode with what reports to it and the format of its records: `numab2`, `pghot hintfaults, default`.
fn case(mode: &str, source: Option<&str>, record: Option<&str>) -> String {
    let source = source.map(|source| format!(" {source}"));
    let record = record.map(|record| format!(", {record}"));
    mode.to_owned() + &source.unwrap_or_default() + &record.unwrap_or_default()
}

/// Throughput of copying the same bytes with no page moved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// Threads that copied.
    pub lanes: usize,
    /// Pages that map the copied memory, bytes; files without it were measured on base pages.
    #[serde(default = "base_page")]
    pub page_bytes: usize,
    /// Mean over the runs, GB/s.
    pub gbps: f64,
    /// Standard deviation over the runs, GB/s.
    pub gbps_sd: f64,
    /// Each run, GB/s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_gbps: Vec<f64>,
}

fn base_page() -> usize {
    4096
}

impl Ceiling {
    /// Whether the copied memory was mapped by THPs.
    pub fn is_huge(&self) -> bool {
        self.page_bytes >= THP_BYTES
    }
}

impl BenchFile {
    /// A file of these rows, measured on this machine until now; not complete yet. The kernel's settings must be back.
    pub fn new(host: Host, rows: Rows, notes: Vec<String>) -> Self {
        Self {
            schema: rows.schema().to_owned(),
            envelope: Envelope::now(Path::new("/")),
            host,
            ceiling: Vec::new(),
            rows,
            like: None,
            reproduces: None,
            notes,
        }
    }

    /// What a row with these lanes and folios is measured against: as many lanes copying memory that is mapped
    /// the same way. A file that measured one kind of pages has that for all folios.
    pub fn ceiling_of(&self, lanes: usize, folio_bytes: usize) -> Option<&Ceiling> {
        let mut same_lanes: Vec<&Ceiling> = (self.ceiling.iter())
            .filter(|ceiling| ceiling.lanes == lanes)
            .collect();
        same_lanes.sort_by_key(|ceiling| ceiling.is_huge() != (folio_bytes >= THP_BYTES));
        same_lanes.first().copied()
    }

    /// The lane counts that have a ceiling, ascending.
    pub fn ceiling_lanes(&self) -> Vec<usize> {
        let mut lanes: Vec<usize> = self.ceiling.iter().map(|ceiling| ceiling.lanes).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}

/// One cell of `bench move` or `bench count`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MoveRow {
    /// `user` (userfaultfd) or `kernel` (move_pages).
    pub backend: String,
    /// `per-folio`, `batch`, `mtcopy` or `auto`, or the baseline `three-pass`; of the kernel: `none`, `kernel`, `mtcopy`, `dcbm`,
    /// `auto`, as its sysfs names them, or the baseline `move_pages`, whatever the kernel uses.
    pub migrator: String,
    /// Parallel copiers; of `auto` the most that it may take.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio_bytes: usize,
    /// Folios of one move (`bench count`); absent in `bench move`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folios: Option<usize>,
    /// `warm`: the destination pages were there before (`warm, unaligned range`: of a range that begins a page after a
    /// multiple of 2 MiB); `cold`: allocated inside the timed part; `default`: as the library's options are unless told.
    pub destination: String,
    /// Bytes of one run.
    pub bytes: u64,
    /// Runs.
    pub runs: usize,
    /// Mean over the runs, GB/s.
    pub gbps: f64,
    /// Standard deviation over the runs, GB/s.
    pub gbps_sd: f64,
    /// Each run, GB/s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_gbps: Vec<f64>,
    /// `gbps` over the ceiling of the same lanes and kind of pages.
    pub of_ceiling: f64,
    /// Bytes compared with what they must be, after the timed part, over all runs.
    pub verified_bytes: u64,
    /// Largest resident memory beyond the one before the move, over all runs, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_rss_bytes: Option<u64>,
    /// The nodes between which pages moved; absent where they moved within the machine's one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<FromTo>,
    /// Bytes that the kernel's statistics say this migrator copied in the timed calls, over all runs (backend `kernel`;
    /// absent for `none`; of `auto` all migrators). What is missing of `bytes` times `runs` the kernel copied folio by folio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_bytes: Option<u64>,
    /// The same by the migrators that copied (backend `kernel`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub copied_by: BTreeMap<String, u64>,
    /// Batches that the migrator refused whole in the timed calls, over all runs (as `copied_bytes`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declined_batches: Option<u64>,
    /// Lanes that copied. Backend `kernel`: of a batch, the mean of one run outside of the counted ones (absent without tracefs, and
    /// for what has no lanes). Of `auto` with backend `user`: all bytes over those of the lane that copied most, mean over the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_used: Option<f64>,
    /// CPU time of the threads that copied for the calling one, of the same run, nanoseconds (backend `kernel`; absent where no
    /// migrator copied a batch). It is part of the system time of `cpu_ticks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helpers_ns: Option<u64>,
    /// Where the time of the calls went, of the same run (backend `kernel`; absent where tracepoints are missing, or lost events).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_steps: Option<KernelSteps>,
    /// What a DMA channel took to set up, of the same run (backend `kernel`; absent where none copied).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dma_round: Option<DmaRound>,
    /// The same beside a disk load (`--disk`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_disk: Option<BesideDisk>,
    /// Time of all CPUs in the timed calls, over all runs (backend `kernel`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ticks: Option<CpuTicks>,
    /// The part of their work that the threads of `--busy` did not do in the timed calls, mean over the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_lost: Option<f64>,
    /// Median time of one system call over all runs, nanoseconds (backend `kernel`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_ns: Option<u64>,
    /// The same of each run by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_call_ns: Vec<u64>,
    /// How many times faster than migrator `none` in the same round, by the median call: median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_none: Option<f64>,
    /// Where the time of the lanes went (backend `user`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// The same lane by lane (backend `user`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lane_steps: Vec<Steps>,
}

impl MoveRow {
    /// Whether it is of the kernel's migrators.
    pub fn is_kernels(&self) -> bool {
        self.backend == "kernel" && self.migrator != "move_pages"
    }

    /// Whether folios were copied one by one by a plain copy: `per-folio`, and Linux itself.
    pub fn is_one_by_one(&self) -> bool {
        self.migrator == "per-folio" || self.is_kernels() && self.migrator == "none"
    }

    /// Bytes of all runs. Another's file may have any numbers, whose product is larger than a u64.
    pub fn bytes_of_runs(&self) -> f64 {
        self.bytes as f64 * self.runs as f64
    }

    /// Whether the migrator that it names copied nine tenths of its bytes; of `auto` the plain copy is a choice.
    pub fn is_by_name(&self) -> bool {
        if self.migrator == "auto" {
            return true;
        }
        self.copied_bytes
            .is_none_or(|copied| copied as f64 >= BY_NAME * self.bytes_of_runs())
    }
}

/// The part of the bytes that a migrator must have copied, so that a row is one of it.
const BY_NAME: f64 = 0.9;

/// Time of one lane or of all together by step, nanoseconds a run, mean over the runs; `set_up_ns` is by the clock, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steps {
    /// Reading the mappings, registering the range and ending that, waking the lanes.
    pub set_up_ns: u64,
    /// Looking for pages that are there.
    pub scan_ns: u64,
    /// Finding free pages, and allocating them.
    pub populate_ns: u64,
    /// Registering where pages are staged.
    pub register_ns: u64,
    /// Moving pages out of their places.
    pub unmap_ns: u64,
    /// Copying.
    pub copy_ns: u64,
    /// Copying by the kernel, which allocates the pages.
    pub fill_ns: u64,
    /// Moving pages into their places.
    pub remap_ns: u64,
    /// Giving source pages back.
    pub give_back_ns: u64,
    /// Answering those who change mappings or touch a page that never was.
    pub answer_ns: u64,
    /// Waiting for other lanes.
    pub wait_ns: u64,
    /// Batches of a run.
    pub batches: u64,
    /// Bytes copied in a run.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Refusals with EAGAIN that another attempt followed, of a run: a mapping was being changed, or its locks were taken.
    #[serde(default)]
    pub eagains: u64,
    /// Other refusals by the kernel that another attempt followed, of a run.
    pub retries: u64,
}

/// Time of the calls of one run by step, nanoseconds, by tracepoints, which take time themselves: two of each base page, two of
/// each THP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSteps {
    /// Allocating destination pages and unmapping, from the last remapped page on.
    pub unmap_ns: u64,
    /// From the last unmapped page to the copy: the TLB flush of the batch. THPs are flushed one by one while they are unmapped.
    pub flush_ns: u64,
    /// The migrator's copy of whole batches.
    pub copy_ns: u64,
    /// Moving and remapping what a migrator copied, and freeing the old pages.
    pub remap_ns: u64,
    /// Flushing, copying and remapping what no migrator copied: the kernel does not tell these apart.
    pub plain_ns: u64,
    /// Outside of migrations: looking pages up, isolating them, answers.
    pub rest_ns: u64,
    /// Batches that a migrator copied.
    pub batches: u64,
    /// Of `copy_ns`, the longest lane of each batch: what is left is waking lanes, claiming channels and collecting results.
    /// A DMA channel's time begins before its pages are mapped, a thread's is its CPU time.
    pub lane_ns: u64,
}

impl KernelSteps {
    /// The steps in their order: unmap, flush, copy, remap, plain copy, and the rest.
    pub fn in_order(&self) -> [u64; 6] {
        [
            self.unmap_ns,
            self.flush_ns,
            self.copy_ns,
            self.remap_ns,
            self.plain_ns,
            self.rest_ns,
        ]
    }

    /// All steps together.
    pub fn all_ns(&self) -> u64 {
        self.in_order().iter().sum()
    }

    /// The copy's part of the time; `None` where some was copied plainly.
    pub fn copy_share(&self) -> Option<f64> {
        (self.plain_ns == 0 && self.copy_ns > 0).then(|| self.copy_ns as f64 / self.all_ns() as f64)
    }
}

impl Steps {
    /// The copy's part of the time.
    pub fn copy_share(&self) -> Option<f64> {
        let all = self.all_ns();
        (all > 0).then(|| (self.copy_ns + self.fill_ns) as f64 / all as f64)
    }

    /// The steps in their order, by name.
    pub fn in_order(&self) -> [(&'static str, u64); 11] {
        [
            ("set up", self.set_up_ns),
            ("scan", self.scan_ns),
            ("populate", self.populate_ns),
            ("register", self.register_ns),
            ("unmap", self.unmap_ns),
            ("copy", self.copy_ns),
            ("fill", self.fill_ns),
            ("remap", self.remap_ns),
            ("give back", self.give_back_ns),
            ("answer", self.answer_ns),
            ("wait", self.wait_ns),
        ]
    }

    /// All steps together.
    pub fn all_ns(&self) -> u64 {
        self.in_order().iter().map(|of| of.1).sum()
    }
}

/// Where pages come from and go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FromTo {
    /// The node that they lie on.
    pub from: u32,
    /// The node that they are moved to.
    pub to: u32,
}

/// One cell of `bench stall`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StallRow {
    /// `user` or `kernel`.
    pub backend: String,
    /// `per-folio`, `batch` or `mtcopy`; of the kernel `none`, `kernel`, `mtcopy` or `dcbm`.
    pub migrator: String,
    /// Bytes of a batch; of the kernel, the most bytes.
    pub batch_bytes: usize,
    /// Bytes of a folio.
    pub folio_bytes: usize,
    /// Parallel copiers.
    pub lanes: usize,
    /// The nodes between which pages moved; absent where they moved within the machine's one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<FromTo>,
    /// Application threads that read and write the pages.
    pub threads: usize,
    /// Bytes that moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// Of these, bytes that the kernel's statistics say this migrator copied (backend `kernel`; absent for `none`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_bytes: Option<u64>,
    /// Lanes that copied a batch, mean (backend `kernel`; absent for `none`, and without tracefs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_used: Option<f64>,
    /// Bytes of a batch that the migrator copied, mean (as `lanes_used`): less than `batch_bytes` where a call has no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_batch_bytes: Option<u64>,
    /// Mean throughput of the moves, GB/s.
    pub gbps: f64,
    /// Time an access waited, over the accesses that met a page on its way (that is the harsher count:
    /// nearly all accesses meet none).
    pub stall_ns: Quantiles,
    /// Time of every access, also of those that did not wait.
    pub access_ns: Quantiles,
    /// All accesses.
    pub accesses: u64,
    /// Accesses that met a page on its way.
    pub stalled: u64,
    /// Accesses of all threads together, a second, while pages moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses_per_s: Option<f64>,
    /// The same with nothing moving, right before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_accesses_per_s: Option<f64>,
    /// Bytes compared with what they must be, after the moves.
    pub verified_bytes: u64,
}

/// Quantiles of a time, nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}
