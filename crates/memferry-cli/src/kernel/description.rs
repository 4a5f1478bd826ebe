// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's half as `memferry kernel status --json` writes it, schema `memferry-kernel/1`.
//!
//! ```text
//! schema            "memferry-kernel/1"
//! kernel            its release
//! available         whether it has /sys/kernel/mm/migration
//! why, next         null if available; else the reason and what to do
//! migrators         active ("none": nothing copies batches), all[]
//! reasons           "all", "none" or names between spaces
//! min_batch_bytes, max_batch_bytes
//! mtcopy            null while the module is not loaded; else lanes, priority, placement, nontemporal, idle_only
//! dcbm              the same: lanes, timeout_ms, poll_below_bytes, channels[] as the kernel lists them
//! quarantined_bytes memory that a DMA channel may still write to
//! pghot             available, why and next as above; sources[], target_node, threshold, window_ms, rate_limit_mbps, format
//!                   and record_bytes (null if the kernel does not tell), tuning {file: text} of debugfs, counters {name: n}
//! statistics[]      migrator, reason, batches, folios, bytes, fallbacks, declined; rows that are not all zero
//! ```
//! All from `migrators` to quarantined_bytes is null, or an empty list, where nothing is available. `memferry kernel set --json` writes schema
//! `memferry-kernel-set/1`: dry_run, steps[] of {file, before (null for statistics), after}.

use memferry::kernel::{Absence, Migration, Plan};
use serde::Serialize;

use super::pghot::Tracking;

/// What is known of the kernel's half. The fields are explained at the head of this file.
#[derive(Debug, Serialize)]
pub struct Status {
    pub schema: &'static str,
    pub kernel: String,
    pub available: bool,
    pub why: Option<String>,
    pub next: Option<&'static str>,
    pub migrators: Option<Migrators>,
    pub reasons: Option<String>,
    pub min_batch_bytes: Option<u64>,
    pub max_batch_bytes: Option<u64>,
    pub mtcopy: Option<Mtcopy>,
    pub dcbm: Option<Dcbm>,
    pub quarantined_bytes: Option<u64>,
    pub pghot: Tracking,
    pub statistics: Vec<Row>,
}

/// Who can copy, and who does.
#[derive(Debug, Serialize)]
pub struct Migrators {
    pub active: String,
    pub all: Vec<String>,
}

/// The settings of the module.
#[derive(Debug, Serialize)]
pub struct Mtcopy {
    pub lanes: u64,
    pub priority: String,
    pub placement: String,
    pub nontemporal: bool,
    pub idle_only: bool,
}

/// The settings of the module that copies with DMA channels.
#[derive(Debug, Serialize)]
pub struct Dcbm {
    pub lanes: u64,
    pub timeout_ms: u64,
    pub poll_below_bytes: u64,
    pub channels: Vec<String>,
}

/// What one migrator did for one reason.
#[derive(Debug, Serialize)]
pub struct Row {
    pub migrator: String,
    pub reason: String,
    pub batches: u64,
    pub folios: u64,
    pub bytes: u64,
    pub fallbacks: u64,
    pub declined: u64,
}

impl Status {
    /// The kernel's half, or why there is none.
    pub fn new(kernel: String, found: &Result<Migration, Absence>, pghot: Tracking) -> Self {
        let status = Self {
            schema: "memferry-kernel/1",
            kernel,
            available: found.is_ok(),
            why: found.as_ref().err().map(ToString::to_string),
            next: found.as_ref().err().map(|absence| absence.hint()),
            migrators: None,
            reasons: None,
            min_batch_bytes: None,
            max_batch_bytes: None,
            mtcopy: None,
            dcbm: None,
            quarantined_bytes: None,
            pghot,
            statistics: Vec::new(),
        };
        let Ok(found) = found else { return status };
        let moved = found.statistics.iter().filter(|row| !row.is_zero());
        Self {
            migrators: Some(Migrators {
                active: found.migrators.active.clone(),
                all: found.migrators.names.clone(),
            }),
            reasons: Some(found.reasons.to_string()),
            min_batch_bytes: Some(found.min_batch_bytes),
            max_batch_bytes: Some(found.max_batch_bytes),
            mtcopy: found.mtcopy.as_ref().map(|mtcopy| Mtcopy {
                lanes: mtcopy.lanes,
                priority: mtcopy.priority.active.clone(),
                placement: mtcopy.placement.active.clone(),
                nontemporal: mtcopy.nontemporal,
                idle_only: mtcopy.idle_only,
            }),
            dcbm: found.dcbm.as_ref().map(|dcbm| Dcbm {
                lanes: dcbm.lanes,
                timeout_ms: dcbm.timeout_ms,
                poll_below_bytes: dcbm.poll_below_bytes,
                channels: dcbm.channels.clone(),
            }),
            quarantined_bytes: Some(found.quarantined_bytes),
            statistics: moved
                .map(|row| Row {
                    migrator: row.migrator.clone(),
                    reason: row.reason.clone(),
                    batches: row.batches,
                    folios: row.folios,
                    bytes: row.bytes,
                    fallbacks: row.fallbacks,
                    declined: row.declined,
                })
                .collect(),
            ..status
        }
    }
}

/// What was set, or would be.
#[derive(Debug, Serialize)]
pub struct Changes {
    pub schema: &'static str,
    pub dry_run: bool,
    pub steps: Vec<Change>,
}

/// One file.
#[derive(Debug, Serialize)]
pub struct Change {
    pub file: String,
    pub before: Option<String>,
    pub after: String,
}

impl Changes {
    /// The steps of a plan.
    pub fn new(plan: &Plan, dry_run: bool) -> Self {
        let steps = plan.steps.iter().map(|step| Change {
            file: step.file.clone(),
            before: step.before.clone(),
            after: step.after.clone(),
        });
        Self {
            schema: "memferry-kernel-set/1",
            dry_run,
            steps: steps.collect(),
        }
    }
}
