// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ours and the published figures in one picture: as multiples of each system's own baseline.
//!
//! GB/s of other machines say more about those machines than about their software, so no chart
//! here puts them on one axis with ours; they are in the tables of the page.

use super::figures::is_baseline;
use crate::chart::{Chart, Point, STYLES, Series, Style, X};
use crate::published::{Figure, idle};
use crate::schema::{BenchFile, MoveRow, Rows};
use crate::spread::groups;
use crate::table::{folios_of, series};
use crate::units::{lanes, long};

/// One system's throughput in the terms that ours and the published ones share.
#[derive(Clone)]
struct Case {
    /// `ours, warm`, of the kernel `ours, Linux RELEASE`, or the source without its date.
    who: String,
    ours: bool,
    migrator: String,
    lanes: usize,
    folio_bytes: u64,
    folios: Option<usize>,
    gbps: f64,
    /// Moves one folio after the other with a plain copy.
    one_by_one: bool,
}

/// The charts of multiples; empty if no file has a figure to compare.
pub fn charts<'a>(files: impl Iterator<Item = &'a BenchFile> + Clone) -> Vec<Chart> {
    let moves = cases("move", files.clone());
    let mut counts = cases("count", files.clone());
    // The folio size that all of them have.
    counts.retain(|case| case.folio_bytes == 2 << 20);
    let mut charts = Vec::new();
    if moves.iter().any(|case| case.ours) {
        let axis = (X::Bytes, "folio size");
        let chart = over_one_by_one(&moves, axis, |case| case.folio_bytes as f64);
        charts.push(Chart {
            title: "Over its own one-by-one way, by folio size".to_owned(),
            note: format!(
                "Each with its most lanes, divided by the way that moves one folio after the other \
                 on the same machine (published: the unpatched kernel; ours: per-folio, of the kernel vanilla or none). {}",
                chart.note
            ),
            ..chart
        });
        for size in [4 << 10, 2 << 20] {
            charts.push(Chart {
                title: format!("Over its own one lane, folios of {}", long(size)),
                ..over_one_lane(&moves, size)
            });
        }
    }
    if counts.iter().any(|case| case.ours) {
        let axis = (X::Count, "folios in one move");
        let chart = over_one_by_one(&counts, axis, |case| case.folios.unwrap_or(1) as f64);
        charts.push(Chart {
            title: "Over its own one-by-one way, by number of 2 MiB folios".to_owned(),
            note: format!(
                "Each with its most lanes, divided by the one-by-one way for as many folios. {}",
                chart.note
            ),
            ..chart
        });
    }
    charts.retain(|chart| chart.series.iter().any(is_ours));
    charts.extend(kernels(files));
    charts
}

/// The kernels of one machine beside each other, in its GB/s: of each file Linux's own copy, and each migrator with its most lanes.
fn kernels<'a>(files: impl Iterator<Item = &'a BenchFile>) -> Option<Chart> {
    let of_kernel = |file: &'a BenchFile| match &file.rows {
        Rows::Move(rows) if rows.iter().any(MoveRow::is_kernels) => Some((file, rows)),
        _ => None,
    };
    let files: Vec<(&BenchFile, &Vec<MoveRow>)> = files.filter_map(of_kernel).collect();
    let (first, _) = files.first()?;
    let same =
        |file: &BenchFile| (&file.host.cpu, file.host.cpus) == (&first.host.cpu, first.host.cpus);
    let several = files
        .iter()
        .any(|(file, _)| same(file) && file.host.kernel != first.host.kernel);
    if !several {
        return None;
    }
    let lines = files
        .iter()
        .filter(|(file, _)| same(file))
        .flat_map(|(file, rows)| {
            let by_name = rows
                .iter()
                .filter(|row| row.is_kernels() && row.is_by_name());
            let most = |migrator: &str| {
                rows.iter()
                    .filter(|row| row.migrator == migrator)
                    .map(|row| row.lanes)
                    .max()
            };
            let shown = by_name.filter(|row| most(&row.migrator) == Some(row.lanes));
            let named = |(name, rows)| (format!("{}: {name}", file.host.kernel), rows);
            groups(shown, series).into_iter().map(named)
        });
    let line = |(index, (name, rows)): (usize, (String, Vec<&MoveRow>))| {
        let style = match rows.iter().all(|row| row.is_one_by_one()) {
            true => Style::Dashed(index),
            false => Style::Ours(index),
        };
        let points = rows.iter().map(|row| {
            let folios = folios_of(None, row.folio_bytes as u64);
            let tip = format!("{:.2} GB/s, {name}, {folios}", row.gbps);
            Point::new(row.folio_bytes as f64, row.gbps, tip)
        });
        Series::new(name.clone(), style, points)
    };
    let lines = lines.take(STYLES).enumerate().map(line);
    Some(Chart {
        title: "Kernels beside each other, by folio size".to_owned(),
        note:
            "Measured on one machine. Dashed: Linux's own copy, vanilla or with no migrator chosen."
                .to_owned(),
        ..Chart::new((X::Bytes, "folio size"), "GB/s", lines)
    })
}

fn is_ours(series: &Series) -> bool {
    matches!(series.style, Style::Ours(_))
}

/// The cases of the file with this place among those of its benchmark.
fn ours(index: usize, file: &BenchFile, rows: &[MoveRow]) -> impl Iterator<Item = Case> {
    let kernel = &file.host.kernel;
    let which = match index {
        0 => "ours".to_owned(),
        _ => format!("ours {}", index + 1),
    };
    let by_name = rows
        .iter()
        .filter(|row| row.is_by_name() && !is_baseline(row));
    by_name.map(move |row| Case {
        who: match row.is_kernels() {
            true => format!("{which}, Linux {kernel}"),
            false => format!("{which}, {}", row.destination),
        },
        ours: true,
        migrator: row.migrator.clone(),
        lanes: row.lanes,
        folio_bytes: row.folio_bytes as u64,
        folios: row.folios,
        gbps: row.gbps,
        one_by_one: row.is_one_by_one(),
    })
}

fn case(figure: &Figure) -> Case {
    // `RFC V3 2025-09-23`: the date stands in the tables.
    let who = figure.source.rsplit_once(' ').map_or("", |(name, _)| name);
    Case {
        who: who.to_owned(),
        ours: false,
        migrator: figure.migrator.clone(),
        lanes: figure.lanes,
        folio_bytes: figure.folio_bytes,
        folios: figure.folios,
        gbps: figure.gbps,
        one_by_one: figure.is_baseline(),
    }
}

/// The cases of a benchmark, ours and the published ones.
fn cases<'a>(bench: &str, files: impl Iterator<Item = &'a BenchFile>) -> Vec<Case> {
    let of_bench = files.filter_map(|file| match (&file.rows, bench) {
        (Rows::Move(rows), "move") | (Rows::Count(rows), "count") => Some((file, rows)),
        _ => None,
    });
    (of_bench.enumerate())
        .flat_map(|(index, (file, rows))| ours(index, file, rows))
        .chain(idle(bench).into_iter().flatten().map(case))
        .collect()
}

/// Each system with its most lanes over its own one-by-one way at the same x.
fn over_one_by_one(cases: &[Case], axis: (X, &'static str), x: impl Fn(&Case) -> f64) -> Chart {
    let all = cases.iter().filter(|case| !case.one_by_one);
    // Ours: the best migrator stands for all, as the published series choose their best too.
    let systems = groups(all, |case| {
        (&case.who, (!case.ours).then_some(&case.migrator))
    });
    let lines = systems.into_iter().map(|((who, _), of)| {
        let most = of
            .iter()
            .max_by(|a, b| (a.lanes.cmp(&b.lanes)).then(a.gbps.total_cmp(&b.gbps)));
        let most = most.map_or((String::new(), 0), |case| {
            (case.migrator.clone(), case.lanes)
        });
        let points = of.iter().filter_map(|case| {
            let baseline = cases.iter().find(|other| {
                other.one_by_one && other.who == *who && x(other).to_bits() == x(case).to_bits()
            })?;
            let chosen = (&case.migrator, case.lanes) == (&most.0, most.1);
            chosen.then(|| point(x(case), case.gbps / baseline.gbps, case, "one by one"))
        });
        let name = format!("{who}: {}, {}", most.0, lanes(most.1));
        (name, points.collect())
    });
    multiples(axis, lines)
}

/// Each migrator over its own one lane at one folio size.
fn over_one_lane(cases: &[Case], size: u64) -> Chart {
    let all = cases
        .iter()
        .filter(|case| case.folio_bytes == size && !case.one_by_one && case.migrator != "batch");
    let systems = groups(all, |case| (&case.who, &case.migrator));
    let lines = systems.into_iter().map(|((who, migrator), of)| {
        let one = of.iter().find(|case| case.lanes == 1);
        let points = of.iter().filter_map(|case| {
            let times = case.gbps / one?.gbps;
            Some(point(case.lanes as f64, times, case, "its one lane"))
        });
        let points: Vec<Point> = points.collect();
        let points = if points.len() > 1 { points } else { Vec::new() };
        (format!("{who}: {migrator}"), points)
    });
    let chart = multiples((X::Count, "lanes"), lines);
    Chart {
        note: format!("Divided by the same migrator with one lane. {}", chart.note),
        ..chart
    }
}

fn point(x: f64, y: f64, case: &Case, over: &str) -> Point {
    let tip = format!(
        "{y:.1} times {over}, {}: {}, {}, {}",
        case.who,
        case.migrator,
        lanes(case.lanes),
        folios_of(case.folios, case.folio_bytes)
    );
    Point::new(x, y, tip)
}

fn multiples(axis: (X, &'static str), lines: impl Iterator<Item = (String, Vec<Point>)>) -> Chart {
    let series = lines
        .filter(|(_, points)| !points.is_empty())
        .enumerate()
        .map(|(index, (name, points))| {
            let style = match name.starts_with("ours") {
                true => Style::Ours(index + 1),
                false => Style::Number(index + 1),
            };
            Series::new(name, style, points)
        });
    let mut chart = Chart::new(axis, "times", series);
    let left_out = chart.series.len().saturating_sub(STYLES);
    chart.series.truncate(STYLES);
    if left_out > 0 {
        chart.note = format!("{left_out} more are only in the tables.");
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn ours_stands_first_and_bold_beside_every_source_with_a_baseline() {
        let files = [synthetic::file("move"), synthetic::file("count")];
        let charts = charts(files.iter());
        assert_eq!(charts.len(), 4);
        for chart in &charts {
            assert!(is_ours(&chart.series[0]), "{}", chart.title);
            assert!(
                chart.series.iter().any(|series| !is_ours(series)),
                "{}",
                chart.title
            );
        }
        let names: Vec<&str> = (charts[0].series.iter())
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "ours, warm: mtcopy, 2 lanes",
                "ours, cold: mtcopy, 2 lanes",
                "RFC V3: mtcopy, 16 lanes",
                "RFC V3: dcbm, 16 lanes",
                "RFC v4: dcbm, 16 lanes"
            ]
        );
    }

    #[test]
    fn another_program_is_not_ours() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        let best = rows.iter().max_by_key(|row| row.lanes).cloned();
        rows.extend(best.map(|row| MoveRow {
            migrator: "three-pass".to_owned(),
            gbps: 2.0 * row.gbps,
            ..row
        }));
        let charts = charts(std::iter::once(&file));
        let mut names = charts.iter().flat_map(|chart| &chart.series);
        assert!(!names.any(|series| series.name.contains("three-pass")));
    }

    #[test]
    fn multiples_are_of_the_own_baseline() {
        let file = synthetic::file("move");
        let chart = &charts(std::iter::once(&file))[0];
        let gbps = |migrator: &str, lanes: usize| {
            let mut rows = file.rows.moves().iter();
            rows.find(|row| (row.migrator.as_str(), row.lanes) == (migrator, lanes))
                .map(|row| row.gbps)
                .expect("row")
        };
        let expected = gbps("mtcopy", 2) / gbps("per-folio", 1);
        assert!((chart.series[0].points[0].y - expected).abs() < 1e-9);
    }

    #[test]
    fn one_lane_is_one_in_every_line() {
        let file = synthetic::file("move");
        for chart in &charts(std::iter::once(&file))[1..] {
            for series in &chart.series {
                assert!((series.points[0].y - 1.0).abs() < 1e-9, "{}", series.name);
            }
        }
    }

    #[test]
    fn without_ours_there_is_nothing_to_compare() {
        let file = synthetic::file("stall");
        assert!(charts(std::iter::once(&file)).is_empty());
    }

    /// A file of the kernel: Linux's own copy, and mtcopy unless it is vanilla.
    fn of_kernel(release: &str, vanilla: bool) -> BenchFile {
        let mut file = synthetic::file("move");
        file.host.kernel = release.to_owned();
        let rows = synthetic::move_rows(&mut file);
        rows.retain(|row| row.destination == "cold" && row.migrator != "batch");
        rows.retain(|row| !vanilla || row.migrator == "per-folio");
        for row in rows {
            row.backend = "kernel".to_owned();
            if row.migrator == "per-folio" {
                row.migrator = "none".to_owned();
            }
        }
        file
    }

    #[test]
    fn the_kernels_gain_is_over_none_and_kernels_stand_beside_each_other() {
        let files = [
            of_kernel("6.12.1", true),
            of_kernel("6.12.1-memferry", false),
        ];
        let drawn = charts(files.iter());
        let names = |at: usize| -> Vec<&str> {
            drawn[at].series.iter().map(|of| of.name.as_str()).collect()
        };
        assert_eq!(
            names(0)[0],
            "ours 2, Linux 6.12.1-memferry: mtcopy, 2 lanes"
        );
        let last = drawn.len() - 1;
        assert_eq!(
            drawn[last].title,
            "Kernels beside each other, by folio size"
        );
        assert_eq!(
            names(last),
            [
                "6.12.1: vanilla or none, 1 lane",
                "6.12.1-memferry: vanilla or none, 1 lane",
                "6.12.1-memferry: mtcopy, 2 lanes"
            ]
        );
        let alone = charts(files[1..].iter());
        assert!(
            alone
                .iter()
                .all(|chart| !chart.title.starts_with("Kernels"))
        );
    }

    #[test]
    fn a_row_that_others_copied_is_no_result() {
        let mut file = of_kernel("6.12.1-memferry", false);
        let rows = synthetic::move_rows(&mut file);
        rows.iter_mut()
            .filter(|row| row.migrator == "mtcopy")
            .for_each(|row| row.copied_bytes = Some(0));
        assert!(charts(std::iter::once(&file)).is_empty());
    }
}
