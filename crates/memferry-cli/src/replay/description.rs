// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays as `memferry replay --json` writes them, schema `memferry-replay/1`.
//!
//! ```text
//! schema            "memferry-replay/1"
//! version, date, arguments, settings, complete, host
//!                   as in the files of benchmarks: who replayed, when, how, and where; host may be null
//! machine           what every trace was replayed on: top_ns, low_ns, promote_ns, demote_ns, fault_ns, sample_period (in
//!                   cache misses), walk_ms, walk_page_ns, seed, scale, ns_per_access
//! rows[]            trace (file), name (what was traced), policy, top_tier_bytes, footprint_bytes, accesses,
//!                   accesses_per_miss, top_share, slowdown, promoted_pages, demoted_pages, promoted_bytes,
//!                   demoted_bytes, wasted_pages, returned_pages, hint_faults, convergence_accesses (null if the trace has
//!                   no change of phase), precision (null if nothing was promoted), recall, tracker_ns_per_access (measured:
//!                   the only figure that differs from run to run), tracker_bytes
//! ```
//! Names stay as they are within version 1; new ones may come.

use std::path::Path;

use memferry_replay::machine::{NS_PER_ACCESS, SCALE};
use memferry_replay::outcome::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

use super::Case;
use crate::schema::{Envelope, Host};
use memferry_bench::host;

/// The value of [`File::schema`].
const REPLAY_SCHEMA: &str = "memferry-replay/1";

#[derive(Serialize, JsonSchema)]
/// A file of replays.
#[schemars(rename = "ReplayFile")]
pub struct File<'a> {
    #[schemars(extend("const" = REPLAY_SCHEMA))]
    schema: &'static str,
    #[serde(flatten)]
    envelope: Envelope,
    host: Option<Host>,
    machine: Machine,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayMachine")]
struct Machine {
    top_ns: u32,
    low_ns: u32,
    promote_ns: u32,
    demote_ns: u32,
    fault_ns: u32,
    sample_period: u32,
    walk_ms: u32,
    walk_page_ns: u32,
    seed: u64,
    scale: u64,
    ns_per_access: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplayRow")]
struct Row<'a> {
    trace: &'a str,
    name: &'a str,
    policy: &'static str,
    top_tier_bytes: u64,
    footprint_bytes: u64,
    accesses: u64,
    accesses_per_miss: u32,
    top_share: f64,
    slowdown: f64,
    promoted_pages: u64,
    demoted_pages: u64,
    promoted_bytes: u64,
    demoted_bytes: u64,
    wasted_pages: u64,
    returned_pages: u64,
    hint_faults: u64,
    convergence_accesses: Option<u64>,
    precision: Option<f64>,
    recall: f64,
    tracker_ns_per_access: f64,
    tracker_bytes: u64,
}

/// The file for these replays.
pub fn file<'a>(cases: &'a [Case], seed: u64) -> File<'a> {
    let machine = cases
        .first()
        .map(|case| case.loaded.machine.clone())
        .unwrap_or_default();
    let rows = cases
        .iter()
        .flat_map(|case| case.outcomes.iter().map(|outcome| row(case, outcome)));
    File {
        schema: REPLAY_SCHEMA,
        envelope: Envelope::now(Path::new("/")).complete(),
        host: (crate::topology::read().ok()).map(|of| host::describe(&of, None)),
        machine: Machine {
            top_ns: machine.top_ns,
            low_ns: machine.low_ns,
            promote_ns: machine.promote_ns,
            demote_ns: machine.demote_ns,
            fault_ns: machine.fault_ns,
            sample_period: machine.sample_period,
            walk_ms: machine.walk_ms,
            walk_page_ns: machine.walk_page_ns,
            seed,
            scale: SCALE,
            ns_per_access: NS_PER_ACCESS,
        },
        rows: rows.collect(),
    }
}

fn row<'a>(case: &Case<'a>, outcome: &Outcome) -> Row<'a> {
    let page_bytes = u64::from(case.loaded.trace.page_bytes);
    let account = &outcome.account;
    Row {
        trace: &case.loaded.file,
        name: &case.loaded.trace.name,
        policy: outcome.policy.name(),
        top_tier_bytes: outcome.top_tier_bytes,
        footprint_bytes: outcome.footprint_bytes,
        accesses: outcome.accesses,
        accesses_per_miss: case.loaded.machine.accesses_per_miss,
        top_share: outcome.top_share,
        slowdown: outcome.slowdown,
        promoted_pages: account.promoted,
        demoted_pages: account.demoted,
        promoted_bytes: account.promoted * page_bytes,
        demoted_bytes: account.demoted * page_bytes,
        wasted_pages: account.wasted,
        returned_pages: account.returned,
        hint_faults: account.faults,
        convergence_accesses: outcome.convergence_accesses,
        precision: outcome.precision,
        recall: outcome.recall,
        tracker_ns_per_access: outcome.tracker_ns_per_access,
        tracker_bytes: outcome.tracker_bytes,
    }
}
