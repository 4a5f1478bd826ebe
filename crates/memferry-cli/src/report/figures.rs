// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of one benchmark file: which rows become which line.
//!
//! What stands beside published figures is in `compare`.

use crate::chart::{Chart, Course, Point, STYLES, Series, Style, X, Y};
use crate::schema::{BenchFile, Ceiling, MoveRow, Rows, StallRow};
use crate::table::{counted, distinct, folios_of, groups, pages, series, throughput};
use crate::units::{lanes, long, short, time};

/// The charts of a file, in reading order.
pub fn charts(file: &BenchFile) -> Vec<Chart> {
    let repeated = file.reproduces.as_ref().and_then(super::reproduced::chart);
    repeated.into_iter().chain(of_rows(file)).collect()
}

fn of_rows(file: &BenchFile) -> Vec<Chart> {
    match &file.rows {
        Rows::Move(rows) => {
            let mut charts = side_by_side(rows.iter(), |destination, rows| Chart {
                title: format!("Throughput by folio size, destination {destination}"),
                ..against(rows, file, (X::Bytes, "folio size"), |row| {
                    row.folio_bytes as f64
                })
            });
            charts.extend(side_by_side(rows.iter(), |destination, rows| Chart {
                title: format!("Throughput by lanes, destination {destination}"),
                ..by_lanes(rows, file)
            }));
            charts.retain(|chart| distinct_x(chart) > 1);
            charts
        }
        Rows::Count(rows) => {
            let of_size = |(size, rows): (usize, Vec<&MoveRow>)| {
                side_by_side(rows, |destination, rows| Chart {
                    title: format!(
                        "Throughput by number of folios of {}, destination {destination}",
                        long(size as u64)
                    ),
                    ..against(rows, file, (X::Count, "folios in one move"), |row| {
                        row.folios.unwrap_or(1) as f64
                    })
                })
            };
            let sizes = groups(rows, |row| row.folio_bytes).into_iter();
            sizes.flat_map(of_size).collect()
        }
        Rows::Stall(rows) => stall(rows),
        // Few rows of unlike figures are a table, no chart.
        Rows::Cache(_) | Rows::Compaction(_) => Vec::new(),
        Rows::Gain(rows) => super::gained::charts(rows),
        Rows::Promote(rows) => {
            let rates = file.like.as_ref().map(super::promoted::rates);
            super::promoted::charts(rows)
                .into_iter()
                .chain(rates)
                .collect()
        }
    }
}

/// One chart per destination, all with one scale.
fn side_by_side<'a>(
    rows: impl IntoIterator<Item = &'a MoveRow>,
    chart: impl Fn(&str, &[&MoveRow]) -> Chart,
) -> Vec<Chart> {
    let destinations = groups(rows, |row| row.destination.as_str()).into_iter();
    let charts = destinations.map(|(destination, rows)| chart(destination, &rows));
    let mut charts: Vec<Chart> = charts.collect();
    Chart::share_scale(&mut charts);
    charts
}

fn point(x: f64, row: &MoveRow) -> Point {
    Point {
        sd: row.gbps_sd,
        ..Point::new(x, row.gbps, tip(row))
    }
}

/// A line per migrator and lanes against `x`, under the ceilings.
fn against(
    rows: &[&MoveRow],
    file: &BenchFile,
    axis: (X, &'static str),
    x: impl Fn(&MoveRow) -> f64,
) -> Chart {
    let cases = groups(rows.iter().copied(), series);
    let chosen = choose(cases.len());
    let mut lines: Vec<Series> = Vec::new();
    let mut coloured = 0;
    for (name, of) in chosen.iter().map(|&at| &cases[at]) {
        // The baseline keeps its quiet colour, whatever else was measured.
        let style = if of.iter().all(|row| row.is_one_by_one()) {
            0
        } else {
            coloured += 1;
            coloured
        };
        let points = of.iter().map(|row| point(x(row), row));
        lines.push(Series::new(name.clone(), Style::Number(style), points));
    }
    let columns = groups(rows.iter().copied(), |row| x(row).to_bits());
    let ceiling = |count: usize| {
        let points = columns.iter().filter_map(|(_, rows)| {
            let ceiling = file.ceiling_of(count, rows[0].folio_bytes)?;
            Some(ceiling_point(ceiling, x(rows[0])))
        });
        let name = format!("ceiling, {}", lanes(count));
        Series::new(name, Style::Ceiling(Course::Steps), points)
    };
    let counts = file.ceiling_lanes();
    let height = |series: &Series| series.points.first().map_or(0.0, |point| point.y);
    // The lowest and the highest ceiling frame the picture; more would cross the data, as does the
    // lowest where the highest is far above it.
    let mut ends: Vec<Series> = (counts.first().into_iter().chain(counts.last()))
        .map(|&count| ceiling(count))
        .collect();
    if counts.len() < 2 || height(&ends[0]) < 0.25 * height(&ends[1]) {
        ends = ends.pop().into_iter().collect();
    }
    lines.extend(ends);
    let note = match cases.len() - chosen.len() {
        0 => String::new(),
        left_out => format!("{left_out} of {} cases are only in the table.", cases.len()),
    };
    Chart {
        note,
        ..Chart::new(axis, "GB/s", lines)
    }
}

/// The cases that a chart shows, as places in their list: all, or with more than the eye can follow those with the fewest
/// lanes and then evenly up to the most.
fn choose(cases: usize) -> Vec<usize> {
    if cases <= STYLES {
        return (0..cases).collect();
    }
    let evenly = (0..STYLES).map(|index| index * (cases - 1) / (STYLES - 1));
    evenly.collect()
}

/// Whether the row is of another program, for comparison.
pub fn is_baseline(row: &MoveRow) -> bool {
    ["three-pass", "move_pages"].contains(&row.migrator.as_str())
}

/// A line per folio size against the lanes of the migrator that has the most of them.
fn by_lanes(rows: &[&MoveRow], file: &BenchFile) -> Chart {
    let ours = rows.iter().filter(|row| !is_baseline(row));
    let widest = ours.max_by_key(|row| row.lanes);
    let rows: Vec<&MoveRow> = (rows.iter().copied())
        .filter(|row| {
            widest.is_some_and(|most| {
                (&row.migrator, &row.backend) == (&most.migrator, &most.backend)
            })
        })
        .collect();
    let mut sizes = groups(rows.iter().copied(), |row| row.folio_bytes);
    sizes.sort_unstable_by_key(|(size, _)| *size);
    // Smallest, middle and largest tell the story; sizes between lie between.
    let mut shown = vec![0, sizes.len() / 3, sizes.len().saturating_sub(1)];
    shown.dedup();
    let shown = shown.into_iter().filter_map(|at| sizes.get(at));
    let mut lines: Vec<Series> = shown
        .enumerate()
        .map(|(index, (size, rows))| {
            Series::new(
                format!("folios of {}", long(*size as u64)),
                Style::Number(index + 1),
                rows.iter().map(|row| point(row.lanes as f64, row)),
            )
        })
        .collect();
    let measured = distinct(&rows, |row| row.lanes);
    let of_pages = |huge: bool| {
        (file.ceiling.iter())
            .filter(move |of| of.is_huge() == huge)
            .filter(|of| measured.contains(&of.lanes))
            .map(|of| ceiling_point(of, of.lanes as f64))
    };
    let both = of_pages(false).next().is_some() && of_pages(true).next().is_some();
    for huge in [false, true] {
        let (name, style) = match (both, huge) {
            (false, _) => ("ceiling", Style::Ceiling(Course::Straight)),
            (true, false) => ("ceiling, base pages", Style::Ceiling(Course::Straight)),
            (true, true) => ("ceiling, THPs", Style::HugeCeiling),
        };
        lines.push(Series::new(name.to_owned(), style, of_pages(huge)));
    }
    lines.retain(|line| !line.points.is_empty());
    Chart {
        note: widest.map_or_else(String::new, |row| format!("Migrator {}.", row.migrator)),
        ..Chart::new((X::Count, "lanes"), "GB/s", lines)
    }
}

fn stall(rows: &[StallRow]) -> Vec<Chart> {
    let case = |row: &StallRow| {
        let backend = if row.backend == "user" { "" } else { "kernel " };
        format!(
            "{backend}{}, {}, folios of {}, {}",
            row.migrator,
            lanes(row.lanes),
            long(row.folio_bytes as u64),
            counted(row.threads, "application thread")
        )
    };
    let cases = groups(rows, case);
    let axis = (X::Bytes, "batch size");
    // A line of what `figure` gives of each row, with its words.
    let line =
        |name: &str, style, rows: &[&StallRow], figure: &dyn Fn(&StallRow) -> (f64, String)| {
            let points = rows.iter().map(|row| {
                let (y, told) = figure(row);
                let batch = short(row.batch_bytes as u64);
                let tip = format!("{told} with batches of {batch}");
                Point::new(row.batch_bytes as f64, y, tip)
            });
            Series::new(name.to_owned(), Style::Number(style), points)
        };
    let waits = cases.iter().map(|(name, rows)| {
        let quantile = |label: &str, style, value: fn(&StallRow) -> u64| {
            line(label, style, rows, &|row| {
                (value(row) as f64, format!("{} {label}", time(value(row))))
            })
        };
        let quantiles = [
            quantile("max", 0, |row| row.stall_ns.max),
            quantile("p99.9", 2, |row| row.stall_ns.p999),
            quantile("p99", 1, |row| row.stall_ns.p99),
            quantile("p50", 3, |row| row.stall_ns.p50),
        ];
        Chart {
            title: "Time that an access waits".to_owned(),
            note: format!("{name}; logarithmic; accesses that met a page on its way."),
            y: Y::Time,
            ..Chart::new(axis, "wait", quantiles)
        }
    });
    let shown = cases.iter().take(STYLES - 1).enumerate();
    let meanwhile = shown.map(|(index, (name, rows))| {
        line(name, index + 1, rows, &|row| {
            (row.gbps, format!("{:.1} GB/s", row.gbps))
        })
    });
    let throughput = Chart {
        title: "Throughput beside a working application".to_owned(),
        note: "What the same batch sizes move meanwhile.".to_owned(),
        ..Chart::new(axis, "GB/s", meanwhile)
    };
    waits.chain([throughput]).collect()
}

fn ceiling_point(ceiling: &Ceiling, x: f64) -> Point {
    let tip = format!(
        "{} GB/s copied by {} with no page moved, memory mapped by {}",
        throughput(ceiling.gbps, ceiling.gbps_sd),
        lanes(ceiling.lanes),
        pages(ceiling)
    );
    Point::new(x, ceiling.gbps, tip)
}

fn tip(row: &MoveRow) -> String {
    format!(
        "{} GB/s, {:.0}% of the ceiling, {}, {}",
        throughput(row.gbps, row.gbps_sd),
        row.of_ceiling * 100.0,
        series(row),
        folios_of(row.folios, row.folio_bytes as u64)
    )
}

/// How many different x values a chart's points have.
fn distinct_x(chart: &Chart) -> usize {
    let points = chart.series.iter().flat_map(|series| &series.points);
    distinct(points, |point| point.x.to_bits()).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn move_is_drawn_by_folio_size_and_by_lanes_on_one_scale() {
        let charts = charts(&synthetic::file("move"));
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Throughput by folio size, destination warm",
                "Throughput by folio size, destination cold",
                "Throughput by lanes, destination warm",
                "Throughput by lanes, destination cold"
            ]
        );
        assert!((charts[0].y_least - charts[1].y_least).abs() < f64::EPSILON);
        let names: Vec<&str> = (charts[0].series.iter())
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(names.len(), 6, "four cases and two ceilings: {names:?}");
        assert!(charts[0].series[5].style == Style::Ceiling(Course::Steps));
    }

    #[test]
    fn the_ceiling_of_thps_begins_with_the_folios_that_are_thps() {
        let mut file = synthetic::file("move");
        let of_two_lanes = |file: &BenchFile| charts(file)[0].series[5].points.clone();
        let heights: Vec<f64> = of_two_lanes(&file).iter().map(|point| point.y).collect();
        assert_eq!(heights, [24.5, 24.5, 24.5, 24.5, 24.5, 24.5, 24.5, 25.2]);
        let named = |file: &BenchFile| -> Vec<String> {
            let lines = charts(file)[2].series.clone().into_iter();
            lines
                .filter(|line| line.style.is_ceiling())
                .map(|line| line.name)
                .collect()
        };
        assert_eq!(named(&file), ["ceiling, base pages", "ceiling, THPs"]);
        file.ceiling.retain(Ceiling::is_huge);
        assert_eq!(named(&file), ["ceiling"]);
        assert!(of_two_lanes(&file).iter().all(|point| point.y > 25.0));
    }

    #[test]
    fn one_lane_alone_is_no_chart_by_lanes() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        rows.retain(|row| row.lanes == 1);
        assert_eq!(charts(&file).len(), 2);
    }

    #[test]
    fn a_baseline_with_as_many_lanes_does_not_hide_the_migrators_lanes() {
        let mut file = synthetic::file("move");
        let by_lanes = |file: &BenchFile| -> Vec<String> {
            let charts = charts(file).into_iter();
            let charts = charts.filter(|chart| chart.title.starts_with("Throughput by lanes"));
            charts.map(|chart| chart.note).collect()
        };
        let before = by_lanes(&file);
        assert_eq!(before, ["Migrator mtcopy."; 2]);
        let rows = synthetic::move_rows(&mut file);
        let most = rows.iter().max_by_key(|row| row.lanes).cloned();
        rows.extend(most.map(|row| MoveRow {
            migrator: "three-pass".to_owned(),
            ..row
        }));
        assert_eq!(by_lanes(&file), before);
    }

    #[test]
    fn many_lanes_leave_lines_that_can_be_told_apart() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        let row = rows[0].clone();
        *rows = (1..=40)
            .map(|lanes| MoveRow {
                lanes,
                migrator: "mtcopy".to_owned(),
                ..row.clone()
            })
            .collect();
        // One folio size is no chart by folio size, so look at its making.
        let rows: Vec<&MoveRow> = file.rows.moves().iter().collect();
        let chosen = choose(40);
        assert_eq!((chosen.len(), chosen[0], chosen[7]), (8, 0, 39));
        assert!(
            against(
                &rows,
                &BenchFile {
                    ceiling: Vec::new(),
                    ..file.clone()
                },
                (X::Count, "lanes"),
                |row| row.lanes as f64
            )
            .note
            .contains("32 of 40")
        );
    }

    #[test]
    fn stall_has_its_quantiles_and_its_throughput() {
        let charts = charts(&synthetic::file("stall"));
        assert_eq!(charts.len(), 2);
        assert_eq!(charts[0].series.len(), 4);
        assert!(
            charts[0]
                .series
                .iter()
                .all(|series| series.points.len() == 6)
        );
    }
}
