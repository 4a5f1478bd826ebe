// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench compaction` as a table, and the published ones beside ours.

use super::{Table, counted, or_dash, percent};
use crate::schema::compaction::CompactionRow;
use crate::schema::reproduced::{Compacted, CompactionCell};
use crate::units::about;

/// The table of a file.
pub fn table(rows: &[CompactionRow]) -> Table {
    let first = rows.first();
    let place = first.map_or_else(String::new, |row| {
        format!(
            ": {} of node {}, half of it given back, by a thread on CPU {}",
            about(row.bytes),
            row.node,
            row.cpu
        )
    });
    let runs = first.map_or(0, |row| row.runs);
    let line = |row: &CompactionRow| {
        let [user, system, idle] = row.cpu_ticks.percent();
        let by = row
            .migrator_pages
            .map(|pages| pages as f64 / row.pages_migrated.max(1) as f64);
        let hog = (row.hog_iterations).map(|rounds| rounds as f64 * 1e3 / row.wall_ms);
        vec![
            format!("{}, {}", row.migrator, row.load),
            format!("{:.0} ±{:.0}", row.wall_ms, row.wall_ms_sd),
            row.pages_migrated.to_string(),
            percent(by),
            or_dash(hog.map(|rounds| format!("{rounds:.3e}"))),
            format!("{user:.0}"),
            format!("{system:.0}"),
            format!("{idle:.0}"),
        ]
    };
    Table::new(
        format!("bench compaction{place}"),
        format!(
            "mean of {}; pages are base pages; the time is of that CPU; a hog is a thread on it that never sleeps",
            counted(runs, "run")
        ),
        &[
            "migrator, load",
            "ms",
            "pages migrated",
            "by it, %",
            "hog rounds/s",
            "user, %",
            "system, %",
            "idle, %",
        ],
        rows.iter().map(line).collect(),
    )
}

/// A published row, and ours below it.
pub fn beside(title: String, caption: String, cells: &[CompactionCell]) -> Table {
    let line = |name: String, of: &Compacted| {
        let [user, system, idle] = of.cpu_percent;
        vec![
            name,
            format!("{:.0}", of.wall_ms),
            or_dash(of.of_baseline.map(|of| format!("{of:.2}x"))),
            of.pages_migrated.to_string(),
            percent(of.by_migrator),
            or_dash(of.hog_per_s.map(|rounds| format!("{rounds:.3e}"))),
            format!("{user:.0}"),
            format!("{system:.0}"),
            format!("{idle:.0}"),
        ]
    };
    let lines = |cell: &CompactionCell| {
        let name = |whose: &str| format!("{}, {}, {whose}", cell.mode, cell.load);
        let ours = match &cell.ours {
            Some(ours) => line(name("ours"), ours),
            None => [name("ours")]
                .into_iter()
                .chain((1..9).map(|_| or_dash(None::<u8>)))
                .collect(),
        };
        [line(name("published"), &cell.published), ours]
    };
    Table::new(
        title,
        caption,
        &[
            "migrator, load",
            "ms",
            "as fast as vanilla",
            "pages migrated",
            "by it, %",
            "hog rounds/s",
            "user, %",
            "system, %",
            "idle, %",
        ],
        cells.iter().flat_map(lines).collect(),
    )
}
