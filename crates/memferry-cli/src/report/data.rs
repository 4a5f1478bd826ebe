// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of every row as a table, in the file's own words, for those who check or recompute.

use serde::Serialize;
use serde_json::Value;

use crate::schema::{BenchFile, Rows};
use crate::table::Table;

const CEILING: [&str; 4] = ["lanes", "page_bytes", "gbps", "gbps_sd"];

const MOVE: [&str; 26] = [
    "migrator",
    "backend",
    "lanes",
    "folio_bytes",
    "folios",
    "destination",
    "bytes",
    "runs",
    "gbps",
    "gbps_sd",
    "of_ceiling",
    "verified_bytes",
    "extra_rss_bytes",
    "copied_bytes",
    "declined_batches",
    "lanes_used",
    "busy_lost",
    "cpu_ticks/user",
    "cpu_ticks/system",
    "cpu_ticks/idle",
    "kernel_steps/unmap_ns",
    "kernel_steps/flush_ns",
    "kernel_steps/copy_ns",
    "kernel_steps/remap_ns",
    "kernel_steps/plain_ns",
    "kernel_steps/rest_ns",
];

const STALL: [&str; 22] = [
    "migrator",
    "backend",
    "lanes",
    "folio_bytes",
    "batch_bytes",
    "threads",
    "moved_bytes",
    "copied_bytes",
    "gbps",
    "stall_ns/p50",
    "stall_ns/p99",
    "stall_ns/p999",
    "stall_ns/max",
    "access_ns/p50",
    "access_ns/p99",
    "access_ns/p999",
    "access_ns/max",
    "accesses",
    "stalled",
    "accesses_per_s",
    "alone_accesses_per_s",
    "verified_bytes",
];

/// All but the timelines, which the charts have, and the counters.
const PROMOTE: [&str; 21] = [
    "mode",
    "source",
    "record",
    "scenario",
    "run",
    "seconds",
    "hot_in_top_95_s",
    "promoted_pages",
    "promoted_hot_pages",
    "demoted_pages",
    "top_share",
    "precision",
    "recall",
    "tracker_cpu_s",
    "migration_cpu_s",
    "demotion_cpu_s",
    "access_system_s",
    "hint_faults",
    "accesses",
    "fill_bytes",
    "verified_bytes",
];

const CACHE: [&str; 16] = [
    "migrator",
    "backend",
    "copy",
    "lanes",
    "folio_bytes",
    "bytes",
    "working_set_bytes",
    "cache_bytes",
    "cpu",
    "runs",
    "gbps",
    "gbps_sd",
    "lost",
    "lost_sd",
    "lost_copying",
    "verified_bytes",
];

const COMPACTION: [&str; 15] = [
    "migrator",
    "load",
    "node",
    "cpu",
    "bytes",
    "runs",
    "wall_ms",
    "wall_ms_sd",
    "pages_migrated",
    "migrator_pages",
    "hog_iterations",
    "cpu_ticks/user",
    "cpu_ticks/system",
    "cpu_ticks/idle",
    "verified_bytes",
];

/// The whole content of a file: its rows, then its ceilings if it has any.
pub fn tables(name: &str, file: &BenchFile) -> Vec<Table> {
    let (columns, rows) = match &file.rows {
        Rows::Move(rows) | Rows::Count(rows) => (&MOVE[..], lines(&MOVE, rows)),
        Rows::Stall(rows) => (&STALL[..], lines(&STALL, rows)),
        Rows::Promote(rows) => (&PROMOTE[..], lines(&PROMOTE, rows)),
        Rows::Cache(rows) => (&CACHE[..], lines(&CACHE, rows)),
        Rows::Compaction(rows) => (&COMPACTION[..], lines(&COMPACTION, rows)),
    };
    let mut tables = vec![settings(name, file)];
    tables.push(Table::new(
        format!("All rows of {name}"),
        "Units: bytes, GB/s of 1e9 bytes, nanoseconds unless the name says seconds (s), CPU time in ticks of 10 ms.",
        columns,
        rows,
    ));
    if !file.ceiling.is_empty() {
        tables.push(Table::new(
            format!("Ceilings of {name}"),
            "page_bytes: the pages that mapped the copied memory. Units: bytes, GB/s of 1e9 bytes.",
            &CEILING,
            lines(&CEILING, &file.ceiling),
        ));
    }
    tables
}

/// How the file was made, and under which settings.
fn settings(name: &str, file: &BenchFile) -> Table {
    let of = &file.envelope;
    let head = [
        ("command line", of.arguments.join(" ")),
        ("version", of.version.clone()),
        ("date", of.date.clone()),
        ("kernel", file.host.kernel.clone()),
    ];
    let head = head.map(|(name, value)| vec![name.to_owned(), value]);
    let settings = of.settings.iter();
    let settings = settings.map(|(name, value)| vec![name.clone(), value.clone()]);
    Table::new(
        format!("Settings of {name}"),
        "As they were outside of the runs; files of the kernel by their paths.",
        &["what", "value"],
        head.into_iter().chain(settings).collect(),
    )
}

/// These fields of each row; `a/b` is field b of field a.
fn lines(fields: &[&str], rows: &[impl Serialize]) -> Vec<Vec<String>> {
    let line = |row| {
        // Nothing that was read from JSON fails to be JSON again.
        let row: Value = serde_json::to_value(row).unwrap_or_default();
        let cell = |field: &&str| row.pointer(&format!("/{field}")).map_or_else(absent, cell);
        fields.iter().map(cell).collect()
    };
    rows.iter().map(line).collect()
}

fn absent() -> String {
    "–".to_owned()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => format!("{number:.3}"),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        _ => absent(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn every_row_fills_every_column() {
        for bench in ["move", "count", "stall", "promote"] {
            let tables = tables("x.json", &synthetic::file(bench));
            assert_eq!(
                tables.len(),
                if ["stall", "promote"].contains(&bench) {
                    2
                } else {
                    3
                }
            );
            for table in tables {
                assert!(!table.rows.is_empty());
                assert!(
                    table.rows.iter().all(|row| row.len() == table.head.len()),
                    "{bench}"
                );
            }
        }
    }
}
