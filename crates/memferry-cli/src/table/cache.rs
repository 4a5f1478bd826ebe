// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench cache` as a table.

use super::{Table, between, runs, throughput, with_sd};
use crate::schema::cache::CacheRow;
use crate::units::{lanes, long};

/// A line for each copy routine.
pub fn table(rows: &[CacheRow]) -> Table {
    let percent = |of: f64| format!("{:.1}", of * 100.0);
    let line = |row: &CacheRow| {
        vec![
            row.copy.clone(),
            if row.bypasses_cache { "yes" } else { "no" }.to_owned(),
            throughput(row.gbps, row.gbps_sd),
            with_sd(row.lost * 100.0, row.lost_sd * 100.0, 1),
            percent(row.lost_copying),
        ]
    };
    let title = rows.first().map_or_else(String::new, |row| {
        let cache = match row.cache_bytes {
            Some(bytes) => format!("a cache of {}", long(bytes)),
            None => "the cache".to_owned(),
        };
        format!(
            "bench cache, {} read in {cache}, {} moved by {}{}",
            long(row.working_set_bytes),
            long(row.bytes),
            lanes(row.lanes),
            between(row.nodes)
        )
    });
    Table::new(
        title,
        format!(
            "{}; what the reading thread loses of its reads while pages move, and while the same bytes are copied with no page \
             moved",
            runs(rows.iter().map(|row| row.runs))
        ),
        &[
            "copy routine",
            "past caches",
            "GB/s",
            "lost, %",
            "lost to copies, %",
        ],
        rows.iter().map(line).collect(),
    )
}
