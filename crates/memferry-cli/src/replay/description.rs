// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays as `memferry replay --json` writes them, schema `memferry-replay/1`.
//!
//! The machine and the figures are the library's types, which say what their fields are; so does docs/schema.json. Names stay as
//! they are within version 1; new ones may come.

use memferry_replay::machine::{Machine, NS_PER_ACCESS, SCALE};
use memferry_replay::outcome::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

use super::Case;
use crate::file::Content;

/// All replays.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayFile")]
pub struct Description<'a> {
    /// What every trace was replayed on.
    machine: ReplayMachine,
    rows: Vec<ReplayRow<'a>>,
}

impl Content for Description<'_> {
    const SCHEMA: &'static str = "memferry-replay/1";
}

#[derive(Serialize, JsonSchema)]
struct ReplayMachine {
    #[serde(flatten)]
    machine: Machine,
    scale: u64,
    ns_per_access: u64,
}

#[derive(Serialize, JsonSchema)]
struct ReplayRow<'a> {
    /// The file.
    trace: &'a str,
    /// What was traced.
    name: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// Of so many accesses one reaches memory.
    accesses_per_miss: u32,
    promoted_bytes: u64,
    demoted_bytes: u64,
}

/// These replays.
pub fn of<'a>(cases: &'a [Case]) -> Description<'a> {
    let machine = cases.first().map(|case| case.loaded.machine.clone());
    let row = |case: &'a Case<'a>, outcome: &'a Outcome| {
        let page_bytes = u64::from(case.loaded.trace.page_bytes);
        ReplayRow {
            trace: &case.loaded.file,
            name: &case.loaded.trace.name,
            outcome,
            accesses_per_miss: case.loaded.machine.accesses_per_miss,
            promoted_bytes: outcome.account.promoted * page_bytes,
            demoted_bytes: outcome.account.demoted * page_bytes,
        }
    };
    let rows = cases.iter();
    Description {
        machine: ReplayMachine {
            machine: machine.unwrap_or_default(),
            scale: SCALE,
            ns_per_access: NS_PER_ACCESS,
        },
        rows: rows
            .flat_map(|case| case.outcomes.iter().map(move |outcome| row(case, outcome)))
            .collect(),
    }
}
