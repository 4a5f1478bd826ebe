// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as `memferry trace info --json` writes it, schema `memferry-trace/1`.
//!
//! ```text
//! schema            "memferry-trace/1"
//! file, file_bytes
//! name, source      what was traced, and by what
//! clock             "accesses" or "nanoseconds": what end counts
//! page_bytes
//! sampling          accesses that one reported access stands for
//! window            accesses within which those to one page are one event; 0: none were merged
//! cache             null, or {bytes, ways, line_bytes}: accesses that it serves are not in the trace
//! instructions      instruction fetches are among the accesses
//! pages, footprint_bytes, events, reads, writes, accesses
//! half_pages, most_pages    the fewest pages that have half, and nine tenths, of the accesses
//! end               when tracing ended
//! seen              accesses of the program meanwhile, those that the cache served among them; null: not known
//! bytes_per_access  of the file, over accesses
//! ```

use std::path::Path;

use memferry_replay::event::Clock;
use memferry_replay::trace::{Header, Totals};
use serde::Serialize;

/// What a trace has in it. The fields are explained at the head of this file.
#[derive(Debug, Serialize)]
pub struct Description {
    pub schema: &'static str,
    pub file: String,
    pub file_bytes: u64,
    pub name: String,
    pub source: String,
    pub clock: &'static str,
    pub page_bytes: u32,
    pub sampling: u32,
    pub window: u64,
    pub cache: Option<Cache>,
    pub instructions: bool,
    pub pages: u64,
    pub footprint_bytes: u64,
    pub events: u64,
    pub reads: u64,
    pub writes: u64,
    pub accesses: u64,
    pub half_pages: u64,
    pub most_pages: u64,
    pub end: u64,
    pub seen: Option<u64>,
    pub bytes_per_access: f64,
}

/// The cache whose hits were left out.
#[derive(Debug, Serialize)]
pub struct Cache {
    pub bytes: u64,
    pub ways: u32,
    pub line_bytes: u32,
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
            schema: "memferry-trace/1",
            file: file.display().to_string(),
            file_bytes,
            name: header.name.clone(),
            source: header.source.clone(),
            clock: match header.clock {
                Clock::Accesses => "accesses",
                Clock::Nanoseconds => "nanoseconds",
            },
            page_bytes: header.page_bytes,
            sampling: header.sampling,
            window: header.window,
            cache: header.cache.map(|cache| Cache {
                bytes: cache.bytes,
                ways: cache.ways,
                line_bytes: cache.line_bytes,
            }),
            instructions: header.instructions,
            pages: totals.pages,
            footprint_bytes: totals.pages.saturating_mul(header.page_bytes.into()),
            events: totals.events,
            reads: totals.reads,
            writes: totals.writes,
            accesses,
            half_pages: hottest(&counts, accesses.div_ceil(2)),
            most_pages: hottest(&counts, accesses - accesses / 10),
            end: totals.end,
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
