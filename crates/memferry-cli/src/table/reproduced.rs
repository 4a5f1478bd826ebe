// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published table with this machine's figures beside it, and how those came about.

use super::{Table, compaction, groups, or_dash, percent, sized, throughput};
use crate::published::tables::{TABLES, Table as Published, VANILLA};
use crate::schema::MoveRow;
use crate::schema::reproduced::{Cell, LeftOut, Measured, Reproduced, ShareCell};
use crate::units::lanes;

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
        tables.extend(shares(of));
    }
    if !of.compactions.is_empty() {
        tables.push(compaction::beside(title(of), caption(of), &of.compactions));
    }
    let kernel: Vec<&MoveRow> = rows.iter().filter(|row| row.cpu_ticks.is_some()).collect();
    if !kernel.is_empty() {
        tables.push(runs(&kernel));
    }
    tables.extend(super::anatomy::kernel(rows));
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

/// What was published as `kernel` is Linux as it is, and none of our migrators.
pub fn published_name(migrator: &str) -> &str {
    match migrator {
        VANILLA => "vanilla",
        other => other,
    }
}

fn figures(of: &Reproduced) -> Table {
    let baseline = of.baseline.as_deref().unwrap_or("the baseline");
    let counted = of.cells.iter().any(|cell| cell.folios.is_some());
    let row = |cell: &Cell| {
        let size = sized(cell.folios, cell.folio_bytes);
        let migrator = published_name(&cell.migrator);
        let gbps = |of: &Measured| match of.gbps_sd {
            Some(sd) => throughput(of.gbps, sd),
            None => format!("{:.1}", of.gbps),
        };
        let times = |of: Option<f64>| or_dash(of.map(|of| format!("{of:.2}x")));
        let ours = cell.ours.as_ref();
        vec![
            format!("{size}, {migrator}, {}", lanes(cell.lanes)),
            gbps(&cell.published),
            or_dash(ours.map(gbps)),
            or_dash(ours.map(|ours| format!("{:.3}", ours.gbps / cell.published.gbps))),
            times(cell.published.of_baseline),
            times(ours.and_then(|ours| ours.of_baseline)),
        ]
    };
    Table::new(
        title(of),
        format!(
            "{}. GB/s; a multiple is of {baseline}, each of its own. –: left out, or copied by others",
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

fn shares(of: &Reproduced) -> Vec<Table> {
    let case = |cell: &ShareCell| sized(Some(cell.folios), cell.folio_bytes);
    let percent = |of: Option<f64>| or_dash(of.map(|of| format!("{of:.0}")));
    let row = |cell: &ShareCell| {
        vec![
            case(cell),
            cell.published_percent.clone(),
            percent(cell.ours_percent),
            cell.why_not.clone().unwrap_or_default(),
        ]
    };
    let beside = Table::new(
        title(of),
        format!("{}. Percent of the time, of one lane", caption(of)),
        &["folios", "published, %", "ours, %", "why not"],
        of.shares.iter().map(row).collect(),
    );
    let steps = of.shares.iter().flat_map(|cell| {
        cell.steps.iter().map(move |of| {
            vec![
                format!("{}, {}", case(cell), of.migrator),
                percent(Some(of.unmap)),
                percent(of.flush),
                percent(of.copy),
                percent(of.remap),
                percent(of.plain),
                percent(Some(of.rest)),
            ]
        })
    });
    let steps = Table::new(
        "where the time goes, percent",
        "of the kernel by tracepoints, which take time themselves, in a run that does not count; of the mover by its lanes. \
         plain: flush, copy and remap by Linux itself, which does not tell them apart",
        &["folios", "unmap", "flush", "copy", "remap", "plain", "rest"],
        steps.collect(),
    );
    let lanes_of = of.shares.iter().flat_map(|cell| {
        cell.lanes.iter().map(move |of| {
            vec![
                format!("{}, {}, {}", case(cell), of.migrator, lanes(of.lanes)),
                format!("{:.2}x", of.predicted),
                format!("{:.2}x", of.measured),
            ]
        })
    });
    let lanes_of = Table::new(
        "what lanes give",
        "multiples of the one lane: Amdahl's prediction from the copy's share, and what was measured",
        &["folios", "predicted", "measured"],
        lanes_of.collect(),
    );
    [beside, steps, lanes_of]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// Who really copied, and what it took.
fn runs(rows: &[&MoveRow]) -> Table {
    let row = |row: &&MoveRow| {
        let [user, system, idle] = row.cpu_ticks.unwrap_or_default().percent();
        let size = sized(row.folios, row.folio_bytes as u64);
        vec![
            format!("{size}, {}, {}", row.migrator, lanes(row.lanes)),
            or_dash(row.lanes_used.map(|used| format!("{used:.1}"))),
            or_dash(row.helpers_ns.map(|ns| format!("{:.1}", ns as f64 / 1e6))),
            percent((row.copied_bytes).map(|copied| copied as f64 / row.bytes_of_runs())),
            or_dash(row.declined_batches),
            format!("{user:.0}"),
            format!("{system:.0}"),
            format!("{idle:.0}"),
        ]
    };
    let head = [
        "folios",
        "lanes used",
        "helpers, ms",
        "copied by it, %",
        "declined",
        "user, %",
        "system, %",
        "idle, %",
    ];
    Table::new(
        "who copied, and the time of all CPUs",
        "lanes used: of a batch, on average; helpers: CPU time in one run of the threads that copied for the calling one; declined: \
         batches that the migrator refused; CPU time in ticks of 10 ms",
        &head,
        rows.iter().map(row).collect(),
    )
}

fn left_out(of: &Reproduced) -> Table {
    let row = |(why, all): (&str, Vec<&LeftOut>)| {
        let what: Vec<&str> = all.iter().map(|left| left.what.as_str()).collect();
        vec![what.join(", "), why.to_owned()]
    };
    let whys = groups(&of.left_out, |left| left.why.as_str());
    Table::new(
        "left out",
        "what this machine cannot repeat",
        &["what", "why"],
        whys.into_iter().map(row).collect(),
    )
}
