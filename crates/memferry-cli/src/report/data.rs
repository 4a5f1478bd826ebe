// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every field of every row as a table, in the file's own words, for those who check or recompute.

use crate::schema::compaction::CompactionRow;
use crate::schema::promote::PromoteRow;
use crate::schema::{BenchFile, Ceiling, MoveRow, Quantiles, Rows, StallRow};
use crate::table::Table;

/// The whole content of a file: its rows, then its ceilings if it has any.
pub fn tables(name: &str, file: &BenchFile) -> Vec<Table> {
    let mut tables = vec![rows(name, file)];
    if !file.ceiling.is_empty() {
        tables.push(ceilings(name, file));
    }
    tables
}

fn ceilings(name: &str, file: &BenchFile) -> Table {
    let line = |ceiling: &Ceiling| {
        vec![
            ceiling.lanes.to_string(),
            ceiling.page_bytes.to_string(),
            format!("{:.3}", ceiling.gbps),
            format!("{:.3}", ceiling.gbps_sd),
        ]
    };
    Table {
        title: format!("Ceilings of {name}"),
        caption:
            "page_bytes: the pages that mapped the copied memory. Units: bytes, GB/s of 1e9 bytes."
                .to_owned(),
        head: ["lanes", "page_bytes", "gbps", "gbps_sd"]
            .map(str::to_owned)
            .to_vec(),
        rows: file.ceiling.iter().map(line).collect(),
    }
}

fn rows(name: &str, file: &BenchFile) -> Table {
    let (head, rows): (&[&str], Vec<Vec<String>>) = match &file.rows {
        Rows::Move(rows) | Rows::Count(rows) => (
            &[
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
            ],
            rows.iter().map(move_row).collect(),
        ),
        Rows::Stall(rows) => (
            &[
                "migrator",
                "backend",
                "lanes",
                "folio_bytes",
                "batch_bytes",
                "threads",
                "gbps",
                "stall p50 ns",
                "p99",
                "p99.9",
                "max",
                "access p50 ns",
                "p99",
                "p99.9",
                "max",
                "accesses",
                "stalled",
                "accesses_per_s",
                "alone_accesses_per_s",
                "verified_bytes",
            ],
            rows.iter().map(stall_row).collect(),
        ),
        Rows::Compaction(rows) => (
            &[
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
                "user ticks",
                "system ticks",
                "idle ticks",
                "verified_bytes",
            ],
            rows.iter().map(compaction_row).collect(),
        ),
        Rows::Promote(rows) => (&PROMOTE_COLUMNS, rows.iter().map(promote_row).collect()),
    };
    Table {
        title: format!("All rows of {name}"),
        caption: "Units: bytes, GB/s of 1e9 bytes, nanoseconds unless the name says seconds (s)."
            .to_owned(),
        head: head.iter().map(|&name| name.to_owned()).collect(),
        rows,
    }
}

fn compaction_row(row: &CompactionRow) -> Vec<String> {
    let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let ticks = row.cpu_ticks;
    vec![
        row.migrator.clone(),
        row.load.clone(),
        row.node.to_string(),
        row.cpu.to_string(),
        row.bytes.to_string(),
        row.runs.to_string(),
        row.wall_ms.to_string(),
        row.wall_ms_sd.to_string(),
        row.pages_migrated.to_string(),
        optional(row.migrator_pages),
        optional(row.hog_iterations),
        ticks.user.to_string(),
        ticks.system.to_string(),
        ticks.idle.to_string(),
        row.verified_bytes.to_string(),
    ]
}

/// The columns of a run of `bench promote`, but for its timelines, which the charts have.
const PROMOTE_COLUMNS: [&str; 19] = [
    "case",
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

fn promote_row(row: &PromoteRow) -> Vec<String> {
    let figure = |value: f64| format!("{value:.3}");
    let maybe = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figure);
    vec![
        row.case(),
        row.scenario.to_string(),
        row.run.to_string(),
        figure(row.seconds),
        maybe(row.hot_in_top_95_s),
        row.promoted_pages.to_string(),
        row.promoted_hot_pages.to_string(),
        row.demoted_pages.to_string(),
        figure(row.top_share),
        maybe(row.precision),
        figure(row.recall),
        figure(row.tracker_cpu_s),
        maybe(row.migration_cpu_s),
        figure(row.demotion_cpu_s),
        figure(row.access_system_s),
        row.hint_faults.to_string(),
        row.accesses.to_string(),
        row.fill_bytes.to_string(),
        row.verified_bytes.to_string(),
    ]
}

fn move_row(row: &MoveRow) -> Vec<String> {
    let absent = || "–".to_owned();
    vec![
        row.migrator.clone(),
        row.backend.clone(),
        row.lanes.to_string(),
        row.folio_bytes.to_string(),
        row.folios.map_or_else(absent, |count| count.to_string()),
        row.destination.clone(),
        row.bytes.to_string(),
        row.runs.to_string(),
        format!("{:.3}", row.gbps),
        format!("{:.3}", row.gbps_sd),
        format!("{:.3}", row.of_ceiling),
        row.verified_bytes.to_string(),
        row.extra_rss_bytes
            .map_or_else(absent, |bytes| bytes.to_string()),
    ]
}

fn stall_row(row: &StallRow) -> Vec<String> {
    let mut line = vec![row.migrator.clone(), row.backend.clone()];
    let counts = [row.lanes, row.folio_bytes, row.batch_bytes, row.threads];
    line.extend(counts.map(|count| count.to_string()));
    line.push(format!("{:.3}", row.gbps));
    for Quantiles {
        p50,
        p99,
        p999,
        max,
    } in [row.stall_ns, row.access_ns]
    {
        line.extend([p50, p99, p999, max].map(|ns| ns.to_string()));
    }
    line.extend([row.accesses, row.stalled].map(|count| count.to_string()));
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
    line.extend([row.accesses_per_s, row.alone_accesses_per_s].map(rate));
    line.push(row.verified_bytes.to_string());
    line
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
                    1
                } else {
                    2
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
