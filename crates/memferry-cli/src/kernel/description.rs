// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's half as `memferry kernel status --json` writes it, schema `memferry-kernel/3`, and what `memferry kernel set
//! --json` writes, schema `memferry-kernel-set/1`. docs/schema.json has both.

use memferry_linux::kernel::{Absence, Dcbm, Learnt, Migration, NotTold, ReasonChoice, Statistics};
use memferry_linux::topology::parse::Choice;
use schemars::JsonSchema;
use serde::Serialize;

use super::persist::{Files, Persisted};
use super::pghot::Tracking;
use crate::file::Content;
use crate::restore::{Left, Step};

/// What is known of the kernel's half. All from `migrators` to `quarantined_bytes` is null, and `statistics` empty, where nothing
/// is available.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KernelFile")]
pub struct Status<'a> {
    /// Its release.
    pub kernel: String,
    /// Whether it has /sys/kernel/mm/migration.
    pub available: bool,
    /// Null if available; else the reason.
    pub why: Option<String>,
    /// Null if available; else what to do.
    pub next: Option<String>,
    /// The active one is "none" where nothing copies batches.
    pub migrators: Option<&'a Choice>,
    /// What copies for each reason.
    pub reasons: Option<&'a [ReasonChoice]>,
    /// What `auto` has learnt; null where that is not told.
    pub auto: Option<&'a [Learnt]>,
    /// Null if it is told, or nothing is available; else the reason.
    pub auto_not_told: Option<String>,
    pub max_batch_bytes: Option<u64>,
    /// Null while the module is not loaded.
    pub mtcopy: Option<Mtcopy>,
    /// Null while the module is not loaded.
    pub dcbm: Option<&'a Dcbm>,
    /// Memory that a DMA channel may still write to.
    pub quarantined_bytes: Option<u64>,
    pub pghot: Tracking,
    /// One for each registered migrator.
    pub statistics: &'a [Statistics],
    /// Whether the settings come back at boot, by what `memferry kernel set --persist` writes; null where there are none.
    pub persisted: Option<Persisted>,
    /// What a benchmark changed and has not set back, or null.
    pub left: Option<LeftBehind<'a>>,
}

impl Content for Status<'_> {
    const SCHEMA: &'static str = "memferry-kernel/3";
}

/// What a benchmark changed and has not set back.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LeftBehind<'a> {
    /// Of the benchmark.
    pub arguments: &'a [String],
    /// Else it was killed.
    pub running: bool,
    /// As `memferry kernel set --restore` would make them.
    pub steps: Vec<Change<'a>>,
}

/// The settings of the module.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Mtcopy {
    pub lanes: u64,
}

impl<'a> Status<'a> {
    /// The kernel's half, or why there is none.
    pub fn new(
        kernel: String,
        found: &'a Result<Migration, Absence>,
        learnt: &'a Result<Vec<Learnt>, NotTold>,
        pghot: Tracking,
        persisted: Option<Persisted>,
        left: Option<&'a Left>,
    ) -> Self {
        let of = found.as_ref().ok();
        Self {
            kernel,
            available: found.is_ok(),
            why: found.as_ref().err().map(ToString::to_string),
            next: found.as_ref().err().map(|absence| absence.hint()),
            migrators: of.map(|of| &of.migrators),
            reasons: of.map(|of| &*of.reasons),
            auto: (of.and(learnt.as_ref().ok())).map(|rows| &**rows),
            auto_not_told: of.and(learnt.as_ref().err()).map(ToString::to_string),
            max_batch_bytes: of.map(|of| of.max_batch_bytes),
            mtcopy: of.and_then(|of| of.lanes).map(|lanes| Mtcopy { lanes }),
            dcbm: of.and_then(|of| of.dcbm.as_ref()),
            quarantined_bytes: of.map(|of| of.quarantined_bytes),
            pghot,
            statistics: of.map_or(&[], |of| &of.statistics),
            persisted,
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
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KernelSetFile")]
pub struct Changes<'a> {
    pub dry_run: bool,
    pub steps: Vec<Change<'a>>,
    /// What --persist writes, or --forget removes.
    pub files: Vec<Kept<'a>>,
}

impl Content for Changes<'_> {
    const SCHEMA: &'static str = "memferry-kernel-set/1";
}

/// A file below /etc.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Kept<'a> {
    pub path: String,
    /// Null if it is removed.
    pub text: Option<&'a str>,
}

/// One file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KernelStep")]
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
