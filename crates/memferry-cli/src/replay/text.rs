// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays as tables, for the terminal and for the page.

use memferry_replay::outcome::Outcome;
use memferry_replay::policy::Kind;

use super::Case;
use crate::table::text::{Align, draw, printable};
use crate::table::{Table, or_dash};
use crate::units::about;

/// All cases below each other.
pub fn tables(cases: &[Case], columns: usize) -> String {
    let tables = cases
        .iter()
        .map(|case| draw(&table(case), columns, Align::Right));
    printable(&tables.collect::<String>())
}

/// The figures of a case.
pub fn table(case: &Case) -> Table {
    let oracle = case
        .outcomes
        .iter()
        .find(|outcome| outcome.policy == Kind::Oracle);
    let caption = format!(
        "top: share of accesses that the top tier served, and of the oracle's; slowdown: against all in the top tier; \
         pages up, down, up in vain (fewer than {} accesses), up again; settles: accesses after a change of phase; right, \
         found: of the pages promoted, of the hot pages",
        case.loaded.machine.pays_after()
    );
    let head = [
        "policy",
        "top",
        "of oracle",
        "slowdown",
        "up",
        "down",
        "in vain",
        "again",
        "settles",
        "right",
        "found",
        "tracker",
        "ns/access",
    ];
    let rows = case.outcomes.iter().map(|outcome| line(outcome, oracle));
    Table::new(title(case), caption, &head, rows.collect())
}

/// The trace and the size of the top tier.
pub fn title(case: &Case) -> String {
    let Some(outcome) = case.outcomes.first() else {
        return case.loaded.file.clone();
    };
    format!(
        "{}, top tier {} of {} ({:.0}%)",
        case.loaded.file,
        about(outcome.top_tier_bytes),
        about(outcome.footprint_bytes),
        outcome.top_tier_bytes as f64 / outcome.footprint_bytes.max(1) as f64 * 100.0
    )
}

fn line(outcome: &Outcome, oracle: Option<&Outcome>) -> Vec<String> {
    let account = &outcome.account;
    let of_oracle = oracle.map_or_else(String::new, |oracle| {
        format!(
            "{:.3}",
            outcome.top_share / oracle.top_share.max(f64::MIN_POSITIVE)
        )
    });
    vec![
        outcome.policy.to_string(),
        percent(outcome.top_share),
        of_oracle,
        format!("{:.3}", outcome.slowdown),
        account.promoted.to_string(),
        account.demoted.to_string(),
        account.wasted.to_string(),
        account.returned.to_string(),
        or_dash(outcome.convergence_accesses.map(count)),
        or_dash(outcome.precision.map(percent)),
        percent(outcome.recall),
        about(outcome.tracker_bytes),
        format!("{:.2}", outcome.tracker_ns_per_access),
    ]
}

/// A share: `92.1%`.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A count in thousands or millions: `1.2 M`.
pub fn count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{:.0}k", count as f64 / 1e3),
        _ => format!("{:.0}M", count as f64 / 1e6),
    }
}
