// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command and the process that makes the accesses say to each other: a line of JSON each.
//!
//! Every run has a process of its own. So the kernel's state of a process (where the scan for hint faults is, how often it
//! comes) is that of a new one each time, and if the kernel kills it for want of memory, the command is there to set
//! everything back.

use serde::{Deserialize, Serialize};

use super::mover::Counter;
use super::program::server::file_name;
use super::program::spec::{ProgramSeen, ProgramSpec};
use super::run::NAME;
use super::workload::spec::{WorkSeen, WorkSpec};

/// What a process is started for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Job {
    /// A run of a program.
    Program(ProgramSpec),
    /// A run of a workload.
    Workload(WorkSpec),
    /// A run of a scenario.
    Scenario(Spec),
}

impl Job {
    /// The name of the process whose pages are promoted.
    pub fn process(&self) -> &'static str {
        match self {
            Self::Program(spec) => file_name(spec.program),
            Self::Workload(_) | Self::Scenario(_) => NAME,
        }
    }
}

/// What a run of a scenario does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The node that the regions begin on.
    pub lower: u32,
    /// The nodes of the top tier, in the order in which they are filled.
    pub top: Vec<u32>,
    /// The CPUs of the accessing threads.
    pub cpus: Vec<u32>,
    /// Regions that become hot one after another.
    pub regions: usize,
    /// Bytes of one, a multiple of 2 MiB.
    pub region_bytes: usize,
    /// Threads that access.
    pub threads: usize,
    /// Accesses of one thread to one region.
    pub accesses: u64,
    /// If set, the accesses to one region end after so long: to find out how many there can be.
    pub most_ms: Option<u64>,
    /// Whether the top tier is filled before.
    pub fill: bool,
    /// Of what fills it, the bytes that are idle; the rest is locked, as if the tier ended there. All, if not set.
    pub idle_bytes: Option<u64>,
    /// Whether half of the hot memory lies in the top tier from the beginning.
    pub even: bool,
    /// Who counts what is promoted.
    pub counter: Counter,
    /// How often it is looked where the pages are.
    pub sample_ms: u64,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The memory is in its place.
    Ready {
        /// Bytes of the top tier that it filled.
        filled: u64,
        /// Those of them that it locked.
        locked: u64,
    },
    /// The accesses are made.
    Done(Box<Seen>),
    /// Those of a workload are made.
    Worked(Box<WorkSeen>),
    /// A program has answered.
    Answered(Box<ProgramSeen>),
    /// So many bytes were compared with what they must be.
    Checked(u64),
    /// It cannot: what, why, what to try.
    Failed([String; 3]),
}

/// What was seen from inside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Time of all accesses.
    pub seconds: f64,
    /// How many there were.
    pub accesses: u64,
    /// How many of them the top tier served.
    pub top_accesses: f64,
    /// System time of the accessing threads.
    pub system_s: f64,
    /// What became of each region while it was hot.
    pub regions: Vec<RegionSeen>,
    /// Seconds since the start, the kernel's count of promoted pages.
    pub promoted: Vec<(f64, u64)>,
    /// Seconds since the start, the share of the hot region in the top tier.
    pub hot: Vec<(f64, f64)>,
}

/// What became of one region while it was hot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionSeen {
    /// Seconds until 95% of it was seen in the top tier.
    pub reached_s: Option<f64>,
    /// Pages that were seen to arrive there.
    pub arrived_pages: u64,
    /// The share that was there at the end.
    pub share: f64,
}
