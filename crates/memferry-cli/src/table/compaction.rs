// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench compaction` as a table, and the published ones beside ours.

use super::{Table, counted};
use crate::schema::compaction::CompactionRow;
use crate::schema::reproduced::{Compacted, CompactionCell};
use crate::units::about;

/// What a cell has where there is nothing.
const NONE: &str = "–";

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
        vec![
            format!("{}, {}", row.migrator, row.load),
            format!("{:.0} ±{:.0}", row.wall_ms, row.wall_ms_sd),
            row.pages_migrated.to_string(),
            percent(by),
            row.hog_iterations.map_or(NONE.to_owned(), |rounds| {
                format!("{:.3e}", rounds as f64 * 1e3 / row.wall_ms)
            }),
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
        let times = of
            .of_baseline
            .map_or(NONE.to_owned(), |of| format!("{of:.2}x"));
        vec![
            name,
            format!("{:.0}", of.wall_ms),
            times,
            of.pages_migrated.to_string(),
            percent(of.by_migrator),
            of.hog_per_s
                .map_or(NONE.to_owned(), |rounds| format!("{rounds:.3e}")),
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
                .chain((1..9).map(|_| NONE.to_owned()))
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

fn percent(of: Option<f64>) -> String {
    of.map_or(NONE.to_owned(), |of| format!("{:.0}", of * 100.0))
}
