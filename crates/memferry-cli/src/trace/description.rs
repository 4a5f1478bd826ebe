// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as `memferry trace info --json` writes it, schema `memferry-trace/1`.
//!
//! What the library's header and totals say of a trace, and what follows from it.

use std::path::Path;

use memferry_replay::trace::{Header, Totals};
use schemars::JsonSchema;
use serde::Serialize;

use crate::file::Content;

/// What a trace has in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TraceFile")]
pub struct Description {
    pub file: String,
    pub file_bytes: u64,
    #[serde(flatten)]
    pub header: Header,
    #[serde(flatten)]
    pub totals: Totals,
    pub footprint_bytes: u64,
    pub accesses: u64,
    /// The fewest pages that have half of the accesses.
    pub half_pages: u64,
    /// The fewest that have nine tenths.
    pub most_pages: u64,
    /// Accesses of the program meanwhile, those that the cache served among them; null: not known.
    pub seen: Option<u64>,
    pub bytes_per_access: f64,
}

impl Content for Description {
    const SCHEMA: &'static str = "memferry-trace/1";
}

impl Description {
    /// Describes a trace that was read to its end; `counts` are the accesses of each page.
    pub fn new(
        file: &Path,
        file_bytes: u64,
        header: &Header,
        totals: &Totals,
        mut counts: Vec<u64>,
    ) -> Self {
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let accesses = totals.accesses();
        Self {
            file: file.display().to_string(),
            file_bytes,
            header: header.clone(),
            totals: *totals,
            footprint_bytes: totals.pages.saturating_mul(header.page_bytes.into()),
            accesses,
            half_pages: hottest(&counts, accesses.div_ceil(2)),
            most_pages: hottest(&counts, accesses - accesses / 10),
            seen: (totals.seen > 0).then_some(totals.seen),
            bytes_per_access: file_bytes as f64 / accesses.max(1) as f64,
        }
    }
}

/// How many of the first counts it takes to have so many accesses.
fn hottest(counts: &[u64], accesses: u64) -> u64 {
    let mut sum: u64 = 0;
    let enough = |count: &&u64| {
        let wanted = sum < accesses;
        sum = sum.saturating_add(**count);
        wanted
    };
    counts.iter().take_while(enough).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_pages_are_as_few_as_can_be() {
        let counts = [50, 30, 10, 9, 1];
        for (accesses, pages) in [(0, 0), (50, 1), (51, 2), (90, 3), (100, 5)] {
            assert_eq!(hottest(&counts, accesses), pages, "{accesses}");
        }
        assert_eq!(hottest(&[], 0), 0);
    }
}
