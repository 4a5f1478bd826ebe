// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published table with this machine's figures beside it, and how those came about.

use super::{Table, compaction, distinct, throughput};
use crate::published::tables::{TABLES, Table as Published};
use crate::schema::MoveRow;
use crate::schema::reproduced::{Cell, Measured, Reproduced};
use crate::units::{lanes, short};

/// What a cell has where nothing was measured.
const NONE: &str = "–";

/// All tables that can be named.
pub fn list() -> Table {
    let row = |of: &Published| {
        let needs = of.needs();
        [of.name, of.posting(), of.shows, &needs]
            .map(str::to_owned)
            .to_vec()
    };
    Table::new(
        "published tables",
        "`memferry bench reproduce NAME` repeats one, with `--scale 1/32` a part of its size; needed are memory on each of two nodes, \
         CPUs for mtcopy, DMA channels for dcbm",
        &["name", "published", "shows", "needs"],
        TABLES.iter().map(row).collect(),
    )
}

/// The tables of a file that repeats a published one.
pub fn tables(of: &Reproduced, rows: &[MoveRow]) -> Vec<Table> {
    let mut tables = Vec::new();
    if !of.cells.is_empty() {
        tables.push(figures(of));
    }
    if !of.shares.is_empty() {
        tables.push(shares(of));
    }
    if !of.compactions.is_empty() {
        tables.push(compaction::beside(title(of), caption(of), &of.compactions));
    }
    let kernel: Vec<&MoveRow> = rows.iter().filter(|row| row.cpu_ticks.is_some()).collect();
    if !kernel.is_empty() {
        tables.push(runs(&kernel));
    }
    if !of.left_out.is_empty() {
        tables.push(left_out(of));
    }
    tables
}

fn title(of: &Reproduced) -> String {
    format!("{}: {}", of.name, of.shows)
}

fn caption(of: &Reproduced) -> String {
    format!(
        "published: {}, on {}; ours: `memferry bench {}`",
        of.posting, of.system, of.line
    )
}

fn figures(of: &Reproduced) -> Table {
    let baseline = of.baseline.as_deref().unwrap_or("the baseline");
    let counted = of.cells.iter().any(|cell| cell.folios.is_some());
    let size = |cell: &Cell| match cell.folios {
        Some(folios) => format!("{folios} of {}", short(cell.folio_bytes)),
        None => short(cell.folio_bytes),
    };
    let row = |cell: &Cell| {
        let gbps = |of: &Measured| match of.gbps_sd {
            Some(sd) => throughput(of.gbps, sd),
            None => format!("{:.1}", of.gbps),
        };
        let times = |of: Option<f64>| of.map_or(NONE.to_owned(), |of| format!("{of:.2}x"));
        let ours = cell.ours.as_ref();
        vec![
            format!("{}, {}, {}", size(cell), cell.migrator, lanes(cell.lanes)),
            gbps(&cell.published),
            ours.map_or(NONE.to_owned(), gbps),
            ours.map_or(NONE.to_owned(), |ours| {
                format!("{:.3}", ours.gbps / cell.published.gbps)
            }),
            times(cell.published.of_baseline),
            times(ours.and_then(|ours| ours.of_baseline)),
        ]
    };
    Table::new(
        title(of),
        format!(
            "{}. GB/s; a multiple is of {baseline}, each of its own. `kernel` is Linux as it is. {NONE}: left out, or copied by others",
            caption(of)
        ),
        &[
            if counted { "folios" } else { "folio" },
            "published",
            "ours",
            "ours/published",
            "published, multiple",
            "ours, multiple",
        ],
        of.cells.iter().map(row).collect(),
    )
}

fn shares(of: &Reproduced) -> Table {
    Table::new(
        title(of),
        format!(
            "{}. Percent of the time; ours is the time of the mover's lanes",
            caption(of)
        ),
        &["folios", "published, %", "ours, %"],
        (of.shares.iter())
            .map(|cell| {
                vec![
                    format!("{} of {}", cell.folios, short(cell.folio_bytes)),
                    cell.published_percent.clone(),
                    cell.ours_percent
                        .map_or(NONE.to_owned(), |of| format!("{of:.0}")),
                ]
            })
            .collect(),
    )
}

/// Who really copied, and what it took.
fn runs(rows: &[&MoveRow]) -> Table {
    let busy = rows.iter().any(|row| row.busy_lost.is_some());
    let percent = |of: Option<f64>| of.map_or(NONE.to_owned(), |of| format!("{:.0}", of * 100.0));
    let row = |row: &&MoveRow| {
        let all = (row.bytes * row.runs as u64) as f64;
        let [user, system, idle] = row.cpu_ticks.unwrap_or_default().percent();
        let size = match row.folios {
            Some(folios) => format!("{folios} of {}", short(row.folio_bytes as u64)),
            None => short(row.folio_bytes as u64),
        };
        let used = row
            .lanes_used
            .map_or(NONE.to_owned(), |used| format!("{used:.1}"));
        let mut cells = vec![
            format!("{size}, {}, {}", row.migrator, lanes(row.lanes)),
            used,
            percent(row.copied_bytes.map(|copied| copied as f64 / all)),
            row.declined_batches
                .map_or(NONE.to_owned(), |of| of.to_string()),
            format!("{user:.0}"),
            format!("{system:.0}"),
            format!("{idle:.0}"),
        ];
        cells.extend(busy.then(|| percent(row.busy_lost)));
        cells
    };
    let head = [
        "folios",
        "lanes used",
        "copied by it, %",
        "declined",
        "user, %",
        "system, %",
        "idle, %",
        "busy threads lost, %",
    ];
    Table::new(
        "who copied, and the time of all CPUs",
        "lanes used: of a batch, on average; declined: batches that the migrator refused; CPU time in ticks of 10 ms",
        &head[..head.len() - usize::from(!busy)],
        rows.iter().map(row).collect(),
    )
}

fn left_out(of: &Reproduced) -> Table {
    let whats = of.left_out.iter().collect::<Vec<_>>();
    let whys = distinct(&whats, |left| left.why.as_str());
    let row = |why: &str| {
        let same = whats.iter().filter(|left| left.why == why);
        let what: Vec<&str> = same.map(|left| left.what.as_str()).collect();
        vec![what.join(", "), why.to_owned()]
    };
    Table::new(
        "left out",
        "what this machine cannot repeat",
        &["what", "why"],
        whys.into_iter().map(row).collect(),
    )
}
