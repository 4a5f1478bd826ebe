// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's half as `memferry kernel status --json` writes it, schema `memferry-kernel/2`.
//!
//! ```text
//! schema            "memferry-kernel/2"
//! kernel            its release
//! available         whether it has /sys/kernel/mm/migration
//! why, next         null if available; else the reason and what to do
//! migrators         active ("none": nothing copies batches), all[]
//! reasons           "all", "none" or names between spaces
//! max_batch_bytes
//! mtcopy            null while the module is not loaded; else lanes
//! dcbm              the same: lanes, channels[] as the kernel lists them
//! quarantined_bytes memory that a DMA channel may still write to
//! pghot             available, why and next as above; sources[], target_node, rate_limit_mbps, format and record_bytes
//!                   (null if debugfs does not tell), tuning {file: text} of debugfs, status {name: text} of its file of
//!                   this name, counters {name: n}
//! statistics[]      migrator, folios, bytes, fallbacks, declined: one row for each registered migrator
//! left              null, or what a benchmark changed and has not set back: arguments, running (else it was killed), steps[] as
//!                   `memferry kernel set --restore` would make them
//! ```
//! All from `migrators` to `quarantined_bytes` is null, and `statistics` empty, where nothing is available. `memferry kernel
//! set --json` writes schema `memferry-kernel-set/1`: dry_run, steps[] of {file, before, after}, files[] of {path, text} that
//! --persist writes, or --forget removes (text null).

use memferry_linux::kernel::{self, Absence, Migration};
use serde::Serialize;

use super::persist::Files;
use super::pghot::Tracking;
use crate::restore::{Left, Step};

/// What is known of the kernel's half. The fields are explained at the head of this file.
#[derive(Debug, Serialize)]
pub struct Status<'a> {
    pub schema: &'static str,
    pub kernel: String,
    pub available: bool,
    pub why: Option<String>,
    pub next: Option<&'static str>,
    pub migrators: Option<Migrators<'a>>,
    pub reasons: Option<&'a str>,
    pub max_batch_bytes: Option<u64>,
    pub mtcopy: Option<Mtcopy>,
    pub dcbm: Option<Dcbm<'a>>,
    pub quarantined_bytes: Option<u64>,
    pub pghot: Tracking,
    pub statistics: Vec<Row<'a>>,
    pub left: Option<LeftBehind<'a>>,
}

/// What a benchmark changed and has not set back.
#[derive(Debug, Serialize)]
pub struct LeftBehind<'a> {
    pub arguments: &'a [String],
    pub running: bool,
    pub steps: Vec<Change<'a>>,
}

/// Who can copy, and who does.
#[derive(Debug, Serialize)]
pub struct Migrators<'a> {
    pub active: &'a str,
    pub all: &'a [String],
}

/// The settings of the module.
#[derive(Debug, Serialize)]
pub struct Mtcopy {
    pub lanes: u64,
}

/// The settings of the module that copies with DMA channels.
#[derive(Debug, Serialize)]
pub struct Dcbm<'a> {
    pub lanes: u64,
    pub channels: &'a [String],
}

/// What one migrator did.
#[derive(Debug, Serialize)]
pub struct Row<'a> {
    pub migrator: &'a str,
    pub folios: u64,
    pub bytes: u64,
    pub fallbacks: u64,
    pub declined: u64,
}

impl<'a> Status<'a> {
    /// The kernel's half, or why there is none.
    pub fn new(
        kernel: String,
        found: &'a Result<Migration, Absence>,
        pghot: Tracking,
        left: Option<&'a Left>,
    ) -> Self {
        let of = found.as_ref().ok();
        let row = |row: &'a kernel::Statistics| Row {
            migrator: &row.migrator,
            folios: row.folios,
            bytes: row.bytes,
            fallbacks: row.fallbacks,
            declined: row.declined,
        };
        Self {
            schema: "memferry-kernel/2",
            kernel,
            available: found.is_ok(),
            why: found.as_ref().err().map(ToString::to_string),
            next: found.as_ref().err().map(|absence| absence.hint()),
            migrators: of.map(|of| Migrators {
                active: &of.migrators.active,
                all: &of.migrators.names,
            }),
            reasons: of.map(|of| &*of.reasons),
            max_batch_bytes: of.map(|of| of.max_batch_bytes),
            mtcopy: of.and_then(|of| of.lanes).map(|lanes| Mtcopy { lanes }),
            dcbm: of.and_then(|of| of.dcbm.as_ref()).map(|of| Dcbm {
                lanes: of.lanes,
                channels: &of.channels,
            }),
            quarantined_bytes: of.map(|of| of.quarantined_bytes),
            pghot,
            statistics: of.map_or_else(Vec::new, |of| of.statistics.iter().map(row).collect()),
            left: left.map(|left| {
                let step = |of: &'a Step| Change {
                    file: &of.file,
                    before: &of.now,
                    after: &of.before,
                };
                LeftBehind {
                    arguments: &left.arguments,
                    running: left.running,
                    steps: left.steps.iter().map(step).collect(),
                }
            }),
        }
    }
}

/// What was set, or would be.
#[derive(Debug, Serialize)]
pub struct Changes<'a> {
    pub schema: &'static str,
    pub dry_run: bool,
    pub steps: Vec<Change<'a>>,
    pub files: Vec<Kept<'a>>,
}

/// A file below /etc.
#[derive(Debug, Serialize)]
pub struct Kept<'a> {
    pub path: String,
    pub text: Option<&'a str>,
}

/// One file.
#[derive(Debug, Serialize)]
pub struct Change<'a> {
    pub file: &'a str,
    pub before: &'a str,
    pub after: &'a str,
}

impl<'a> Changes<'a> {
    /// Steps of file, before and after, and what is written for the next boot.
    pub fn new(
        steps: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
        files: Option<&'a Files>,
        dry_run: bool,
    ) -> Self {
        let change = |(file, before, after)| Change {
            file,
            before,
            after,
        };
        Self {
            schema: "memferry-kernel-set/1",
            dry_run,
            steps: steps.map(change).collect(),
            files: files
                .into_iter()
                .flat_map(Files::changes)
                .map(|(file, text)| Kept {
                    path: format!("/{file}"),
                    text,
                })
                .collect(),
        }
    }
}
