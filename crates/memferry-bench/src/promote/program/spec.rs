// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command and the process of a run of a program say to each other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::args::program::Program;
use crate::promote::mover::Counter;
use crate::promote::workload::spec::{Placing, WorkSeen};

/// What a run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramSpec {
    pub program: Program,
    /// The exponent of Zipf's law, by which keys are chosen.
    pub skew: f64,
    /// Keys, each with a value.
    pub keys: usize,
    pub room: Room,
    /// Which pages go to the top tier before the clock begins.
    pub placing: Placing,
    /// Where the misses of each page are: `none` writes them, and the oracle reads them.
    pub misses: Option<PathBuf>,
    pub seed: u64,
    pub seconds: f64,
    /// The node that the program's pages begin on.
    pub lower: u32,
    /// The nodes of the top tier, in the order in which they get pages.
    pub top: Vec<u32>,
    /// The CPUs of the program.
    pub cpus: Vec<u32>,
    /// Who counts the pages that are promoted.
    pub counter: Counter,
    /// How often it is looked what was done.
    pub sample_ms: u64,
}

/// What of the top tier is to be had; the rest is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    /// All of it.
    All,
    /// 3/8 of what the program has in memory.
    Part,
    /// So many bytes.
    Bytes(u64),
}

/// What was seen of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProgramSeen {
    pub work: WorkSeen,
    /// Bytes of its own that the program had in memory before the clock began.
    pub bytes: u64,
    /// Bytes of the top tier that were to be had.
    pub room: u64,
}
