// SPDX-License-Identifier: MIT OR Apache-2.0
//! A benchmark file as tables of text, for the terminal and for the report.
//!
//! It arranges and formats figures; it computes none and prints nothing.

pub mod anatomy;
mod cache;
mod compaction;
mod disk;
pub mod dma;
pub mod gain;
pub mod promote;
pub mod published;
pub mod reproduced;
pub mod text;

use std::iter::once;

use schemars::JsonSchema;
use serde::Serialize;

use crate::file::Content;
use crate::schema::{BenchFile, Ceiling, FromTo, Host, MoveRow, Rows, StallRow};
pub use crate::spread::{distinct, groups};
use crate::units::{about, lanes, long, short, time};

/// A table; the first column holds the rows' names.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "TableFile")]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// How to read a cell.
    pub caption: String,
    /// The columns' names, the first column's first.
    pub head: Vec<String>,
    /// The rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Content for Table {
    const SCHEMA: &'static str = "memferry-table/1";
}

impl Table {
    /// A table of these columns and rows.
    pub fn new(
        title: impl Into<String>,
        caption: impl Into<String>,
        head: &[&str],
        rows: Vec<Vec<String>>,
    ) -> Self {
        Self {
            title: title.into(),
            caption: caption.into(),
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows,
        }
    }

    /// A line for each name and a column for each value, ascending, without title and caption; a cell that no row has is
    /// empty.
    pub fn pivot<R, C: Copy + Ord>(
        corner: &str,
        rows: &[&R],
        line: impl Fn(&R) -> String,
        column: impl Fn(&R) -> C,
        column_name: impl Fn(C) -> String,
        cell: impl Fn(&R) -> String,
    ) -> Self {
        let mut columns = distinct(rows, |row| column(row));
        columns.sort_unstable();
        let lines = groups(rows.iter().copied(), line).into_iter();
        Self {
            title: String::new(),
            caption: String::new(),
            head: once(corner.to_owned())
                .chain(columns.iter().map(|&value| column_name(value)))
                .collect(),
            rows: lines
                .map(|(name, rows)| {
                    let cell = |value: &C| {
                        let row = rows.iter().find(|row| column(row) == *value);
                        row.map_or_else(String::new, |row| cell(row))
                    };
                    once(name).chain(columns.iter().map(cell)).collect()
                })
                .collect(),
        }
    }
}

/// A row of a table of settings: its name, its value, and what it means.
pub fn setting(name: &str, value: impl Into<String>, meaning: &str) -> Vec<String> {
    vec![name.to_owned(), value.into(), meaning.to_owned()]
}

/// The tables of a file, in reading order: the published one that it repeats comes first.
pub fn tables(file: &BenchFile) -> Vec<Table> {
    let repeated = file.reproduces.iter();
    repeated
        .flat_map(|of| reproduced::tables(of, file.rows.moves()))
        .chain(own(file))
        .chain(disk::table(file.rows.moves()))
        .collect()
}

fn own(file: &BenchFile) -> Vec<Table> {
    match &file.rows {
        Rows::Move(rows) => by_destination(rows)
            .flat_map(|(destination, rows)| {
                let size = |row: &MoveRow| row.folio_bytes as u64;
                let table = Table {
                    title: format!("bench move, {}", of_pages(destination, &rows)),
                    ..throughputs(file, "folio", &rows, size, short)
                };
                once(table).chain(busy("folio", &rows, size, short))
            })
            .collect(),
        Rows::Count(rows) => groups(rows, |row| (row.destination.as_str(), row.folio_bytes))
            .into_iter()
            .flat_map(|((destination, size), rows)| {
                let table = Table {
                    title: format!(
                        "bench count, folios of {}, {}",
                        long(size as u64),
                        of_pages(destination, &rows)
                    ),
                    ..throughputs(file, "folios", &rows, folios, |count| count.to_string())
                };
                let busy = busy("folios", &rows, folios, |count| count.to_string());
                once(table).chain(calls(&rows)).chain(busy)
            })
            .collect(),
        Rows::Stall(rows) => stall(rows),
        Rows::Cache(rows) => vec![cache::table(rows)],
        Rows::Compaction(rows) => vec![compaction::table(rows)],
        Rows::Gain(rows) => gain::tables(rows),
        Rows::Promote(rows) => {
            let alike = file.like.iter().flat_map(promote::alike);
            promote::tables(rows).into_iter().chain(alike).collect()
        }
    }
}

/// What stands above the figures of a file that is not complete.
pub const INCOMPLETE: &str =
    "NOT COMPLETE: cases or runs are missing, or the file does not say that none is.";

/// The machine on one line.
pub fn machine(host: &Host) -> String {
    let mut parts = vec![
        host.cpu.clone(),
        counted(host.cpus, "CPU"),
        counted(host.nodes, "memory node"),
    ];
    if host.memory_bytes > 0 {
        parts.push(about(host.memory_bytes));
    }
    parts.push(format!("Linux {}", host.kernel));
    match host.hypervisor.as_deref() {
        None => {}
        Some("unnamed") => parts.push("virtual".to_owned()),
        Some(name) => parts.push(format!("virtual ({name})")),
    }
    if host.emulated {
        parts.push("emulated: figures are ratios only".to_owned());
    }
    parts.join(", ")
}

/// The name of a row of `bench move` or `bench count`; titles name the backend.
pub fn series(row: &MoveRow) -> String {
    named(&row.backend, &row.migrator, row.lanes)
}

/// Linux's own copy, in a kernel with the series or without.
pub const VANILLA: &str = "vanilla or none";

fn named(backend: &str, migrator: &str, count: usize) -> String {
    // The kernel is the backend, and one of its migrators is called kernel.
    let name = match (backend, migrator) {
        ("kernel", "none") => VANILLA,
        ("kernel", "move_pages") => "move_pages(2)",
        ("kernel", "kernel") => "migrator kernel",
        _ => migrator,
    };
    let at_most = if migrator == "auto" { "at most " } else { "" };
    format!("{name}, {at_most}{}", lanes(count))
}

/// The destinations that a file has, each with its rows.
pub fn by_destination(rows: &[MoveRow]) -> impl Iterator<Item = (&str, Vec<&MoveRow>)> {
    groups(rows, |row| row.destination.as_str()).into_iter()
}

/// The pages that mapped what a ceiling copied.
pub fn pages(ceiling: &Ceiling) -> &'static str {
    if ceiling.is_huge() {
        "THPs"
    } else {
        "base pages"
    }
}

/// A mean with its standard deviation; that of one run is 0 in files, and is not shown.
fn with_sd(mean: f64, sd: f64, digits: usize) -> String {
    match sd > 0.0 {
        true => format!("{mean:.digits$} ±{sd:.digits$}"),
        false => format!("{mean:.digits$}"),
    }
}

/// How many runs rows have: `5 runs`, `3 to 5 runs` where it ended early.
fn runs(of: impl Iterator<Item = usize> + Clone) -> String {
    let (least, most) = (of.clone().min().unwrap_or(0), of.max().unwrap_or(0));
    match least == most {
        true => counted(most, "run"),
        false => format!("{least} to {}", counted(most, "run")),
    }
}

/// A throughput with its deviation: `17.9 ±0.3`, `0.24 ±0.01`, `0.013 ±0.002`.
pub fn throughput(gbps: f64, sd: f64) -> String {
    let digits = match gbps {
        gbps if gbps >= 0.995 => 1,
        gbps if gbps >= 0.0995 => 2,
        _ => 3,
    };
    with_sd(gbps, sd, digits)
}

/// Where pages come from and go to: for a title.
fn of_pages(destination: &str, rows: &[&MoveRow]) -> String {
    let nodes = between(rows.first().and_then(|row| row.nodes));
    match rows.first().is_some_and(|row| row.backend == "kernel") {
        true => format!("move_pages(2){nodes}"),
        false => format!("destination {destination}{nodes}"),
    }
}

fn between(nodes: Option<FromTo>) -> String {
    nodes.map_or_else(String::new, |FromTo { from, to }| {
        format!(" from node {from} to node {to}")
    })
}

/// How many times faster than migrator `none`, for the others.
fn of_none(row: &MoveRow) -> Option<String> {
    let ratio = row.of_none.filter(|_| row.migrator != "none")?;
    Some(format!("{ratio:.2}x"))
}

/// The lanes that auto took, if that is known.
fn used(row: &MoveRow) -> Option<f64> {
    row.lanes_used.filter(|_| row.migrator == "auto")
}

fn folios(row: &MoveRow) -> u64 {
    row.folios.unwrap_or(0) as u64
}

/// The time of one call of `bench count`, where rows have it.
fn calls(rows: &[&MoveRow]) -> Option<Table> {
    rows.first()?.call_ns?;
    let cell = |row: &MoveRow| {
        let parts = row.call_ns.map(time).into_iter().chain(of_none(row));
        parts.collect::<Vec<_>>().join(" ")
    };
    Some(Table {
        title: "time of one call".to_owned(),
        caption:
            "median over all calls, and how many times faster than migrator none in the same rounds"
                .to_owned(),
        ..Table::pivot(
            "folios",
            rows,
            series,
            folios,
            |count| count.to_string(),
            cell,
        )
    })
}

/// `1 thread`, `2 threads`.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The size of folios, with their number where that is given: `64 of 2M`.
fn sized(folios: Option<usize>, bytes: u64) -> String {
    folios.map_or_else(String::new, |count| format!("{count} of ")) + &short(bytes)
}

/// The same in a sentence: `64 folios of 2M`.
pub fn folios_of(folios: Option<usize>, bytes: u64) -> String {
    let count = folios.map_or_else(String::new, |count| format!("{count} "));
    format!("{count}folios of {}", short(bytes))
}

/// A value, or a dash where there is none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A share in whole percent, without the sign.
fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{:.0}", share * 100.0)))
}

/// Throughput by migrator and `column`, below the ceilings.
fn throughputs(
    file: &BenchFile,
    corner: &str,
    rows: &[&MoveRow],
    column: impl Fn(&MoveRow) -> u64,
    column_name: impl Fn(u64) -> String,
) -> Table {
    let cell = |row: &MoveRow| {
        let share = row.of_ceiling * 100.0;
        let ratio = of_none(row).map_or_else(String::new, |ratio| format!(" {ratio}"));
        let used = used(row).map_or_else(String::new, |lanes| format!(" on {lanes:.1}"));
        let gbps = throughput(row.gbps, row.gbps_sd);
        format!("{gbps} {share:>2.0}%{ratio}{used}")
    };
    let mut table = Table::pivot(corner, rows, series, &column, column_name, cell);
    let mut columns = groups(rows.iter().copied(), &column);
    columns.sort_by_key(|(value, _)| *value);
    let ceilings = file.ceiling_lanes().into_iter().map(|count| {
        let cells = columns.iter().map(|(_, rows)| {
            let ceiling = file.ceiling_of(count, rows[0].folio_bytes);
            // As wide as a cell with its share, so that the figures stand below each other.
            ceiling.map_or_else(String::new, |ceiling| {
                throughput(ceiling.gbps, ceiling.gbps_sd) + "    "
            })
        });
        once(format!("ceiling, {}", lanes(count)))
            .chain(cells)
            .collect()
    });
    table.rows.splice(0..0, ceilings);
    table.caption = format!(
        "{}; GB/s, mean ± standard deviation, and the share of the ceiling with as many lanes and the same pages: THPs \
         for folios of 2 MiB, base pages below",
        runs(rows.iter().map(|row| row.runs))
    );
    if rows.iter().any(|row| of_none(row).is_some()) {
        table.caption += "; then how many times faster than migrator none in the same rounds";
    }
    if rows.iter().any(|row| used(row).is_some()) {
        table.caption += "; on: the lanes that auto took";
    }
    table
}

/// What the threads of `--busy` lost, where rows have it.
fn busy(
    corner: &str,
    rows: &[&MoveRow],
    column: impl Fn(&MoveRow) -> u64,
    column_name: impl Fn(u64) -> String,
) -> Option<Table> {
    let cell = |row: &MoveRow| percent(row.busy_lost);
    let is_known = rows.iter().any(|row| row.busy_lost.is_some());
    is_known.then(|| Table {
        title: "what busy threads lost, %".to_owned(),
        caption: "of what a computing thread on each CPU does while nothing moves".to_owned(),
        ..Table::pivot(corner, rows, series, column, column_name, cell)
    })
}

fn stall(rows: &[StallRow]) -> Vec<Table> {
    let case = |row: &StallRow| (row.backend.clone(), row.folio_bytes, row.threads, row.nodes);
    let table = |((backend, folio, threads, nodes), rows): (_, Vec<&StallRow>)| {
        let mut head = vec![
            "migrator, batch",
            "p50",
            "p99",
            "p99.9",
            "max",
            "GB/s",
            "waited",
            "threads go on",
        ];
        let mut caption = "time that an access waited, over the accesses that met a page on its way; and how many accesses a second the \
                           threads had, of what they have with nothing moving"
            .to_owned();
        let of_kernel = backend == "kernel";
        if of_kernel {
            head.extend(["by it, %", "lanes", "batches"]);
            caption +=
                "; what the migrator copied, with how many lanes, in batches of which mean size";
        }
        let line = |row: &StallRow| {
            let mut line = stall_line(row);
            line.extend(of_kernel.then(|| who_copied(row)).into_iter().flatten());
            line
        };
        Table::new(
            format!(
                "bench stall{}, folios of {}, {}{}",
                if of_kernel { ", move_pages(2)" } else { "" },
                long(folio as u64),
                counted(threads, "application thread"),
                between(nodes)
            ),
            caption,
            &head,
            rows.into_iter().map(line).collect(),
        )
    };
    groups(rows, case).into_iter().map(table).collect()
}

/// What of the bytes the kernel's migrator copied, with how many lanes, in batches of which size.
fn who_copied(row: &StallRow) -> [String; 3] {
    let by = row.copied_bytes.zip(row.moved_bytes);
    let by = by.map(|(copied, moved)| copied as f64 / moved as f64);
    [
        percent(by),
        or_dash(row.lanes_used.map(|lanes| format!("{lanes:.1}"))),
        or_dash(row.mean_batch_bytes.map(about)),
    ]
}

fn stall_line(row: &StallRow) -> Vec<String> {
    let of = row.stall_ns;
    let share = row.stalled as f64 / row.accesses.max(1) as f64 * 100.0;
    let rates = row.accesses_per_s.zip(row.alone_accesses_per_s);
    vec![
        format!(
            "{}, {}",
            named(&row.backend, &row.migrator, row.lanes),
            short(row.batch_bytes as u64)
        ),
        time(of.p50),
        time(of.p99),
        time(of.p999),
        time(of.max),
        format!("{:.1}", row.gbps),
        format!("{share:.2}% of {:.1e}", row.accesses as f64),
        rates.map_or_else(String::new, |(moving, alone)| {
            format!("{:.0}%", moving / alone * 100.0)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn each_column_stands_under_the_ceiling_of_its_pages() {
        let mut file = synthetic::file("move");
        let two_lanes = |file: &BenchFile| -> Vec<String> {
            let row = tables(file)[0].rows[1].clone();
            row.iter().map(|cell| cell.trim().to_owned()).collect()
        };
        let cells = two_lanes(&file);
        assert!(
            cells[1..8].iter().all(|cell| cell == "24.5 ±0.2"),
            "{cells:?}"
        );
        assert_eq!(cells[8], "25.2 ±0.1");
        // A file of base pages alone.
        file.ceiling.retain(|ceiling| !ceiling.is_huge());
        assert_eq!(two_lanes(&file)[8], "24.5 ±0.2");
    }

    #[test]
    fn a_missing_cell_is_empty() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        rows.retain(|row| row.folio_bytes != 4096 || row.migrator != "batch");
        let warm = &tables(&file)[0];
        assert_eq!(warm.rows[3][..2], ["batch, 1 lane", ""]);
    }

    #[test]
    fn the_kernels_rows_have_their_ratio_and_the_time_of_a_call() {
        let mut file = synthetic::file("count");
        let rows = synthetic::move_rows(&mut file);
        rows.retain(|row| row.destination == "cold" && row.lanes == 1);
        for row in rows {
            row.backend = "kernel".to_owned();
            row.nodes = Some(FromTo { from: 0, to: 1 });
            row.call_ns = Some(1_200_000);
            row.of_none = Some(if row.migrator == "mtcopy" { 1.834 } else { 1.0 });
            if row.migrator == "per-folio" {
                row.migrator = "none".to_owned();
            }
        }
        let tables = tables(&file);
        let [throughput, calls, ..] = &tables[..] else {
            panic!("{tables:?}");
        };
        assert!(
            throughput
                .title
                .ends_with("move_pages(2) from node 0 to node 1"),
            "{}",
            throughput.title
        );
        assert!(
            throughput.caption.contains("than migrator none"),
            "{}",
            throughput.caption
        );
        for table in [throughput, calls] {
            let line = |name| table.rows.iter().find(|row| row[0] == name).expect(name);
            assert!(line("mtcopy, 1 lane")[1].ends_with("1.83x"), "{table:?}");
            assert!(
                !line("vanilla or none, 1 lane")[1].contains('x'),
                "{table:?}"
            );
        }
        assert!(calls.rows[0][1].starts_with("1.2 ms"), "{calls:?}");
    }

    #[test]
    fn stalls_of_the_kernel_tell_who_copied() {
        let mut file = synthetic::file("stall");
        assert_eq!(tables(&file)[0].head.len(), 8);
        let Rows::Stall(rows) = &mut file.rows else {
            panic!("stall");
        };
        rows.truncate(1);
        rows[0] = StallRow {
            backend: "kernel".to_owned(),
            migrator: "dcbm".to_owned(),
            moved_bytes: Some(200),
            copied_bytes: Some(100),
            lanes_used: Some(1.5),
            mean_batch_bytes: Some(2 << 20),
            ..rows[0].clone()
        };
        let [table] = &tables(&file)[..] else {
            panic!("one table");
        };
        assert_eq!(table.rows[0][8..], ["50", "1.5", "2 MiB"]);
    }

    #[test]
    fn one_run_has_no_deviation_and_captions_count_runs() {
        let mut file = synthetic::file("move");
        assert!(tables(&file)[0].caption.starts_with("5 runs; "));
        let row = &mut synthetic::move_rows(&mut file)[0];
        (row.runs, row.gbps_sd) = (1, 0.0);
        let first = &tables(&file)[0];
        assert!(
            first.caption.starts_with("1 to 5 runs; "),
            "{}",
            first.caption
        );
        assert_eq!(first.rows[2][..2], ["per-folio, 1 lane", "1.4 11%"]);
        let mut file = synthetic::file("cache");
        let Rows::Cache(rows) = &mut file.rows else {
            panic!("cache");
        };
        rows.truncate(1);
        (rows[0].runs, rows[0].gbps_sd, rows[0].lost_sd) = (1, 0.0, 0.0);
        let table = &tables(&file)[0];
        assert!(table.caption.starts_with("1 run; "), "{}", table.caption);
        assert_eq!(table.rows[0][2..4], ["10.5", "40.0"]);
    }

    #[test]
    fn what_busy_threads_lost_is_shown_wherever_it_is_known() {
        for bench in ["move", "count"] {
            let mut file = synthetic::file(bench);
            let without = tables(&file).len();
            let rows = synthetic::move_rows(&mut file);
            rows.iter_mut().for_each(|row| row.busy_lost = Some(0.25));
            let tables = tables(&file);
            assert_eq!(tables.len(), without + 2, "{bench}, warm and cold");
            let busy = tables.iter().find(|table| table.title.contains("busy"));
            let busy = busy.expect("table");
            assert_eq!(busy.rows[3][..2], ["mtcopy, 2 lanes", "25"], "{bench}");
        }
    }

    #[test]
    fn small_throughputs_keep_two_figures() {
        assert_eq!(super::throughput(17.94, 0.26), "17.9 ±0.3");
        assert_eq!(super::throughput(0.244, 0.012), "0.24 ±0.01");
        assert_eq!(super::throughput(0.0131, 0.002), "0.013 ±0.002");
    }
}
