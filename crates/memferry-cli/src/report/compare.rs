// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ours and the published figures in one picture: as multiples of each system's own baseline.
//!
//! GB/s of other machines say more about those machines than about their software, so no chart
//! here puts them on one axis with ours; they are in the tables of the page.

use super::figures::is_baseline;
use super::load::Loaded;
use crate::chart::{Chart, Point, STYLES, Series, Style, X};
use crate::published::{Figure, idle};
use crate::schema::{BenchFile, Host, MoveRow, Rows};
use crate::spread::groups;
use crate::table::{folios_of, series};
use crate::units::{lanes, long};

/// One system's throughput in the terms that ours and the published ones share.
#[derive(Clone)]
struct Case {
    /// `ours, warm`, of the kernel `ours, Linux RELEASE`, with the file's name where there are several; or the source without its date.
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
pub fn charts(loaded: &[Loaded]) -> Vec<Chart> {
    let moves = cases("move", loaded);
    let mut counts = cases("count", loaded);
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
                 on the same machine (published: the unpatched kernel; ours: per-folio, of the kernel vanilla or none).{}",
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
                "Each with its most lanes, divided by the one-by-one way for as many folios.{}",
                chart.note
            ),
            ..chart
        });
    }
    charts.retain(|chart| chart.series.iter().any(is_ours));
    charts.extend(kernels(loaded));
    charts
}

/// The kernels of one machine beside each other, in its GB/s: of each file Linux's own copy, and each migrator with its most lanes.
fn kernels(loaded: &[Loaded]) -> Option<Chart> {
    let of_kernel = loaded.iter().filter_map(|of| match &of.file.rows {
        Rows::Move(rows) if rows.iter().any(MoveRow::is_kernels) => Some((of, rows)),
        _ => None,
    });
    let files: Vec<(&Loaded, &Vec<MoveRow>)> = of_kernel.collect();
    let first = &files.first()?.0.file;
    let (alike, others): (Vec<_>, Vec<_>) =
        (files.iter()).partition(|(of, _)| is_alike(&of.file, first));
    let several = (alike.iter()).any(|(of, _)| of.file.host.kernel != first.host.kernel);
    if !several {
        return None;
    }
    let lines = alike.iter().flat_map(|(of, rows)| {
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
        let named = |(name, rows)| (format!("{}: {name}", of.file.host.kernel), rows);
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
    let lines = lines.enumerate().map(line);
    let mut chart = Chart::new((X::Bytes, "folio size"), "GB/s", lines);
    chart.title = "Kernels beside each other, by folio size".to_owned();
    chart.note = "Measured on one machine under the same settings. Dashed: Linux's own copy, vanilla or with no migrator \
                  chosen."
        .to_owned();
    limit(&mut chart);
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|(of, _)| of.name.as_str()).collect();
        chart.note += &format!(
            " Of another machine or under other settings, so not here: {}.",
            names.join(", ")
        );
    }
    Some(chart)
}

/// Settings that change the figures of any kernel. Files have them where they were given or could be read.
const SETTINGS: [&str; 5] = ["busy", "disk", "placement", "priority", "usable_cpus"];

/// Whether both files are of one machine and one set of settings; the kernels may differ.
fn is_alike(one: &BenchFile, other: &BenchFile) -> bool {
    // The copy routine is that which was fastest in a short measurement.
    let machine = |host: &Host| {
        let Host {
            cpu,
            cpus,
            kernel: _,
            nodes,
            page_size,
            thp_bytes,
            memory_bytes: _,
            hypervisor,
            emulated,
            copy: _,
        } = host.clone();
        let sizes = (cpus, nodes, page_size, thp_bytes);
        (cpu, sizes, hypervisor, emulated)
    };
    // Kernels keep different parts of a memory for themselves (crashkernel=, the page array); a DIMM is more than that.
    let [memory, of_other] = [one, other].map(|of| of.host.memory_bytes);
    let setting = |file: &BenchFile, name| file.envelope.settings.get(name).cloned();
    machine(&one.host) == machine(&other.host)
        && memory.abs_diff(of_other) <= memory / 32
        && (SETTINGS.iter()).all(|name| setting(one, *name) == setting(other, *name))
}

/// Keeps as many lines as there are styles, and has the note say how many are left out.
fn limit(chart: &mut Chart) {
    let left_out = chart.series.len().saturating_sub(STYLES);
    chart.series.truncate(STYLES);
    if left_out > 0 {
        chart.note += &format!(" {left_out} more are only in the tables.");
    }
}

fn is_ours(series: &Series) -> bool {
    matches!(series.style, Style::Ours(_))
}

/// The cases of a file, which is named if it is one of several of its benchmark.
fn ours(of: &Loaded, rows: &[MoveRow], several: bool) -> impl Iterator<Item = Case> {
    let kernel = &of.file.host.kernel;
    let which = match several {
        false => "ours".to_owned(),
        true => format!("ours, {}", of.name),
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
fn cases(bench: &str, loaded: &[Loaded]) -> Vec<Case> {
    let of_bench = loaded.iter().filter_map(|of| match (&of.file.rows, bench) {
        (Rows::Move(rows), "move") | (Rows::Count(rows), "count") => Some((of, rows)),
        _ => None,
    });
    let of_bench = Vec::from_iter(of_bench);
    let several = of_bench.len() > 1;
    (of_bench.into_iter())
        .flat_map(|(of, rows)| ours(of, rows, several))
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
        note: format!("Divided by the same migrator with one lane.{}", chart.note),
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
    limit(&mut chart);
    chart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn named(name: &str, file: BenchFile) -> Loaded {
        Loaded {
            name: name.to_owned(),
            file,
        }
    }

    fn of_bench(bench: &str) -> Loaded {
        named(&format!("{bench}.json"), synthetic::file(bench))
    }

    #[test]
    fn ours_stands_first_and_bold_beside_every_source_with_a_baseline() {
        let charts = charts(&[of_bench("move"), of_bench("count")]);
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
        let mut of = of_bench("move");
        let rows = synthetic::move_rows(&mut of.file);
        let best = rows.iter().max_by_key(|row| row.lanes).cloned();
        rows.extend(best.map(|row| MoveRow {
            migrator: "three-pass".to_owned(),
            gbps: 2.0 * row.gbps,
            ..row
        }));
        let charts = charts(&[of]);
        let mut names = charts.iter().flat_map(|chart| &chart.series);
        assert!(!names.any(|series| series.name.contains("three-pass")));
    }

    #[test]
    fn multiples_are_of_the_own_baseline() {
        let of = [of_bench("move")];
        let chart = &charts(&of)[0];
        let gbps = |migrator: &str, lanes: usize| {
            let mut rows = of[0].file.rows.moves().iter();
            rows.find(|row| (row.migrator.as_str(), row.lanes) == (migrator, lanes))
                .map(|row| row.gbps)
                .expect("row")
        };
        let expected = gbps("mtcopy", 2) / gbps("per-folio", 1);
        assert!((chart.series[0].points[0].y - expected).abs() < 1e-9);
    }

    #[test]
    fn one_lane_is_one_in_every_line() {
        for chart in &charts(&[of_bench("move")])[1..] {
            for series in &chart.series {
                assert!((series.points[0].y - 1.0).abs() < 1e-9, "{}", series.name);
            }
        }
    }

    #[test]
    fn without_ours_there_is_nothing_to_compare() {
        assert!(charts(&[of_bench("stall")]).is_empty());
    }

    /// A file of the kernel: Linux's own copy, and mtcopy unless it is vanilla.
    fn of_kernel(release: &str, vanilla: bool) -> Loaded {
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
        named(&format!("{release}.json"), file)
    }

    fn names(chart: &Chart) -> Vec<&str> {
        chart.series.iter().map(|of| of.name.as_str()).collect()
    }

    fn beside_each_other(files: &[Loaded]) -> Option<Chart> {
        let mut charts = charts(files).into_iter();
        charts.find(|chart| chart.title.starts_with("Kernels"))
    }

    #[test]
    fn the_kernels_gain_is_over_none_and_kernels_stand_beside_each_other() {
        let files = [
            of_kernel("6.12.1", true),
            of_kernel("6.12.1-memferry", false),
        ];
        assert_eq!(
            names(&charts(&files)[0])[0],
            "ours, 6.12.1-memferry.json, Linux 6.12.1-memferry: mtcopy, 2 lanes"
        );
        let beside = beside_each_other(&files).expect("chart");
        assert_eq!(
            names(&beside),
            [
                "6.12.1: vanilla or none, 1 lane",
                "6.12.1-memferry: vanilla or none, 1 lane",
                "6.12.1-memferry: mtcopy, 2 lanes"
            ]
        );
        assert!(beside_each_other(&files[1..]).is_none());
    }

    #[test]
    fn another_machine_and_other_settings_are_not_on_the_axis_of_kernels() {
        let ways: [fn(&mut BenchFile); 5] = [
            |of| of.host.memory_bytes *= 2,
            |of| of.host.nodes += 1,
            |of| of.host.emulated = true,
            |of| of.envelope = of.envelope.clone().with("busy", "a thread on each CPU"),
            |of| of.envelope = of.envelope.clone().with("usable_cpus", "0"),
        ];
        for change in ways {
            let mut files = [of_kernel("6.12.1", true), of_kernel("6.13.1", false)];
            change(&mut files[1].file);
            assert!(beside_each_other(&files).is_none());
        }
        let mut files = ["6.12.1", "6.13.1", "6.14.1"].map(|of| of_kernel(of, false));
        // What a kernel leaves of the memory and what it measured.
        files[1].file.host.memory_bytes -= 1 << 20;
        files[1].file.host.copy = None;
        files[2].file.host.memory_bytes *= 2;
        let chart = beside_each_other(&files).expect("chart");
        assert_eq!(chart.series.len(), 4);
        assert!(
            chart.note.ends_with("not here: 6.14.1.json."),
            "{}",
            chart.note
        );
    }

    #[test]
    fn lines_that_are_left_out_are_counted() {
        let files = [12, 13, 14, 15, 16].map(|of| of_kernel(&format!("6.{of}.1"), false));
        let chart = beside_each_other(&files).expect("chart");
        assert_eq!(chart.series.len(), STYLES);
        assert!(
            chart.note.ends_with(" 2 more are only in the tables."),
            "{}",
            chart.note
        );
    }

    #[test]
    fn a_row_that_others_copied_is_no_result() {
        let mut of = of_kernel("6.12.1-memferry", false);
        let rows = synthetic::move_rows(&mut of.file);
        rows.iter_mut()
            .filter(|row| row.migrator == "mtcopy")
            .for_each(|row| row.copied_bytes = Some(0));
        assert!(charts(&[of]).is_empty());
    }
}
