// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench compaction` as a table, and the published ones beside ours.

use super::{Table, or_dash, percent, runs, with_sd};
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
    let gathers = rows.iter().any(|row| row.gather.is_some());
    let mut head = [&["migrator, load", "ms"][..], &HEAD].concat();
    if gathers {
        head.extend(["lanes", "batches"]);
    }
    let line = |row: &CompactionRow| {
        let all = row.pages_migrated.max(1) as f64;
        let by = row.migrator_pages.map(|pages| pages as f64 / all);
        let hog = (row.hog_iterations).map(|rounds| rounds as f64 * 1e3 / row.wall_ms);
        let mut line = vec![
            format!("{}, {}{}", row.migrator, row.load, batches(row)),
            with_sd(row.wall_ms, row.wall_ms_sd, 0),
        ];
        line.extend(cells(row.pages_migrated, by, hog, row.cpu_ticks.percent()));
        if gathers {
            line.extend([
                or_dash(row.lanes_used.map(|lanes| format!("{lanes:.1}"))),
                or_dash(row.mean_batch_bytes.map(about)),
            ]);
        }
        line
    };
    Table::new(
        format!("bench compaction{place}"),
        format!(
            "mean of {}; pages are base pages; the time is of that CPU; a hog is a thread on it that never sleeps",
            runs(rows.iter().map(|row| row.runs))
        ),
        &head,
        rows.iter().map(line).collect(),
    )
}

/// Whether larger batches were on, where that was set.
fn batches(row: &CompactionRow) -> &'static str {
    match row.gather {
        Some(true) => ", larger batches",
        Some(false) => ", 32 pages first",
        None => "",
    }
}

/// A published row, and ours below it.
pub fn beside(title: String, caption: String, all: &[CompactionCell]) -> Table {
    let line = |name: String, of: &Compacted| {
        let times = or_dash(of.of_baseline.map(|of| format!("{of:.2}x")));
        let (by, hog) = (of.by_migrator, of.hog_per_s);
        let mut line = vec![name, format!("{:.0}", of.wall_ms), times];
        line.extend(cells(of.pages_migrated, by, hog, of.cpu_percent));
        line
    };
    let head = [&["migrator, load", "ms", "as fast as vanilla"][..], &HEAD].concat();
    let lines = |cell: &CompactionCell| {
        let name = |whose: &str| format!("{}, {}, {whose}", cell.mode, cell.load);
        let mut none = vec![name("ours")];
        none.resize(head.len(), or_dash(None::<f64>));
        let ours = (cell.ours.as_ref()).map_or(none, |ours| line(name("ours"), ours));
        [line(name("published"), &cell.published), ours]
    };
    Table::new(title, caption, &head, all.iter().flat_map(lines).collect())
}

/// The last columns of both tables.
const HEAD: [&str; 6] = [
    "pages migrated",
    "by it, %",
    "hog rounds/s",
    "user, %",
    "system, %",
    "idle, %",
];

/// What stands in them.
fn cells(pages: u64, by: Option<f64>, hog: Option<f64>, cpu: [f64; 3]) -> Vec<String> {
    let hog = or_dash(hog.map(|rounds| format!("{rounds:.3e}")));
    let cpu = cpu.map(|of| format!("{of:.0}"));
    [&[pages.to_string(), percent(by), hog][..], &cpu].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Rows;
    use crate::synthetic;

    #[test]
    fn larger_batches_are_named_and_shown_where_they_were_set() {
        let Rows::Compaction(mut rows) = synthetic::file("compaction").rows else {
            panic!("compaction");
        };
        assert!(!table(&rows).head.contains(&"batches".to_owned()));
        rows[1].gather = Some(false);
        let found = table(&rows);
        let [none, dcbm] = &found.rows[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (&none[0][..], &dcbm[0][..]),
            ("none, hog", "dcbm, hog, 32 pages first")
        );
        assert_eq!(none[8..], ["–", "–"]);
        assert_eq!(dcbm[8..], ["2.0", "1 MiB"]);
    }
}
