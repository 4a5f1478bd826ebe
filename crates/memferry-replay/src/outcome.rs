// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a replay came to: the figures of `memferry-replay/1`, from what the replay counted.

use schemars::JsonSchema;
use serde::Serialize;

use std::time::Duration;

use crate::event::Trace;
use crate::machine::Machine;
use crate::policy::Kind;
use crate::tiers::{Account, BANDS};
use crate::truth::{SLICES, Truth};

/// One slice of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Accesses in it.
    pub accesses: u64,
    /// Those that the top tier served.
    pub top: u64,
    /// Pages promoted from the start to its end.
    pub promoted: u64,
    /// Pages demoted from the start to its end.
    pub demoted: u64,
    /// Pages of the top tier at its end, by band of addresses.
    pub bands: [u32; BANDS],
}

/// What a replay counted.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) slices: Vec<Slice>,
    pub(crate) account: Account,
    /// Pages of the hot sets, summed over the slices, and those of them that were in the top tier.
    pub(crate) hot: u64,
    pub(crate) hot_in_top: u64,
    /// Pages that the source's walks looked at.
    pub(crate) walked: u64,
    pub(crate) tracker_bytes: u64,
    pub(crate) tracker: Duration,
}

impl Default for Run {
    fn default() -> Self {
        let slice = Slice {
            accesses: 0,
            top: 0,
            promoted: 0,
            demoted: 0,
            bands: [0; BANDS],
        };
        Self {
            slices: vec![slice; SLICES],
            account: Account::default(),
            walked: 0,
            hot: 0,
            hot_in_top: 0,
            tracker_bytes: 0,
            tracker: Duration::ZERO,
        }
    }
}

/// The figures of one replay. All but [`Outcome::tracker_ns_per_access`] are the same on every machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Outcome {
    /// The policy.
    pub policy: Kind,
    /// Bytes that the top tier holds.
    pub top_tier_bytes: u64,
    /// Bytes of all pages of the trace.
    pub footprint_bytes: u64,
    /// Accesses of the trace.
    pub accesses: u64,
    /// Those that the top tier served.
    #[serde(skip)]
    pub top_accesses: u64,
    /// Their share, 0 to 1.
    pub top_share: f64,
    /// Time against all in the top tier: waiting for memory, moving, hint faults, the source's walks; 1 or more.
    pub slowdown: f64,
    /// What moved.
    #[serde(flatten)]
    pub account: Account,
    /// Accesses after a change of phase until 95% of the new phase's steady share are reached, mean over the changes; none if
    /// the trace has no change of phase.
    pub convergence_accesses: Option<u64>,
    /// Of the promoted pages, how many belong to the hot set of that slice or the next; none if none was promoted.
    pub precision: Option<f64>,
    /// Of the hot sets' pages, how many were in the top tier at the end of their slice.
    pub recall: f64,
    /// Memory of the records and whatever else the policy keeps by page.
    pub tracker_bytes: u64,
    /// Measured here and now, so different in each run: the policy's own time over all accesses.
    pub tracker_ns_per_access: f64,
    /// The course over time.
    #[serde(skip)]
    pub slices: Vec<Slice>,
}

impl Outcome {
    pub(crate) fn of(
        trace: &Trace,
        truth: &Truth,
        machine: &Machine,
        top_pages: u32,
        kind: Kind,
        run: &Run,
    ) -> Self {
        let page_bytes = u64::from(trace.page_bytes);
        let accesses: u64 = run.slices.iter().map(|slice| slice.accesses).sum();
        let top: u64 = run.slices.iter().map(|slice| slice.top).sum();
        let account = run.account;
        Self {
            policy: kind,
            top_tier_bytes: u64::from(top_pages) * page_bytes,
            footprint_bytes: trace.pages.len() as u64 * page_bytes,
            accesses,
            top_accesses: top,
            top_share: ratio(top, accesses),
            slowdown: slowdown(machine, accesses, top, run.walked, &account),
            account,
            convergence_accesses: convergence(truth, &run.slices),
            precision: (account.promoted > 0)
                .then(|| ratio(account.promoted_hot, account.promoted)),
            recall: ratio(run.hot_in_top, run.hot),
            tracker_bytes: run.tracker_bytes,
            tracker_ns_per_access: run.tracker.as_nanos() as f64 / accesses.max(1) as f64,
            slices: run.slices.clone(),
        }
    }
}

/// Slices over which a share is smoothed.
const SMOOTH: usize = 2;

/// What part of the steady share counts as converged, in percent.
const CONVERGED_PERCENT: u64 = 95;

/// A part of a whole; 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// No cache is simulated: of every `accesses_per_miss` accesses one waits for its tier, and moves, faults and walks wait whole.
fn slowdown(machine: &Machine, accesses: u64, top: u64, walked: u64, account: &Account) -> f64 {
    let wide = |value: u32| u128::from(value);
    let waits = |count: u64, ns: u32| u128::from(count) * wide(ns);
    let per_miss = wide(machine.accesses_per_miss);
    let best = waits(accesses, machine.top_ns);
    let memory = waits(top, machine.top_ns) + waits(accesses - top, machine.low_ns);
    let moves = waits(account.promoted, machine.promote_ns)
        + waits(account.demoted, machine.demote_ns)
        + waits(account.faults, machine.fault_ns)
        + waits(walked, machine.walk_page_ns);
    (memory + moves * per_miss) as f64 / best.max(1) as f64
}

/// Accesses from each change of phase until the share is 95% of what it is in the second half of the new phase; their mean.
fn convergence(truth: &Truth, slices: &[Slice]) -> Option<u64> {
    let changes = truth.changes();
    let share = |range: std::ops::Range<usize>| {
        let of = &slices[range];
        let all: u64 = of.iter().map(|slice| slice.accesses).sum();
        let top: u64 = of.iter().map(|slice| slice.top).sum();
        (top, all.max(1))
    };
    let mut sum = 0;
    for (index, &from) in changes.iter().enumerate() {
        let to = changes.get(index + 1).copied().unwrap_or(SLICES);
        let (steady_top, steady) = share(from + (to - from) / 2..to);
        let reached = (from..to).find(|&at| {
            let (top, all) = share(at..(at + SMOOTH).min(to));
            u128::from(top) * 100 * u128::from(steady)
                >= u128::from(CONVERGED_PERCENT) * u128::from(steady_top) * u128::from(all)
        });
        let reached = reached.unwrap_or(to);
        sum += slices[from..reached]
            .iter()
            .map(|slice| slice.accesses)
            .sum::<u64>();
    }
    (!changes.is_empty()).then(|| sum / changes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn all_in_the_top_tier_is_no_slowdown_and_all_below_is_the_ratio() {
        let machine = Machine::default();
        assert_eq!(slowdown(&machine, 1000, 1000, 0, &Account::default()), 1.0);
        assert_eq!(slowdown(&machine, 1000, 0, 0, &Account::default()), 2.5);
        // One promotion of 2000 ns is 16 * 20 accesses of 100 ns.
        let account = Account {
            promoted: 1,
            ..Account::default()
        };
        assert_eq!(slowdown(&machine, 320, 320, 0, &account), 2.0);
    }

    #[test]
    fn convergence_counts_from_the_change_to_the_steady_share() {
        let truth = Truth::of(&synthetic::phases(300, 200_000, 2, 3));
        assert_eq!(truth.changes(), [128]);
        let mut slices = Run::default().slices;
        for (index, slice) in slices.iter_mut().enumerate() {
            slice.accesses = 100;
            slice.top = if (128..138).contains(&index) { 10 } else { 90 };
        }
        assert_eq!(convergence(&truth, &slices), Some(1000));
        let flat = Truth::of(&synthetic::moving_hot_set(300, 200_000, 0, 3));
        assert_eq!(convergence(&flat, &slices), None);
    }
}
