// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of one benchmark file: which rows become which line.
//!
//! What stands beside published figures is in `compare`.

use super::chart::{Chart, Course, Point, STYLES, Series, Style, X, Y};
use crate::schema::{BenchFile, Ceiling, MoveRow, Rows, StallRow};
use crate::table::{by_destination, distinct, pages, series, throughput};
use crate::units::{lanes, long, short, time};

/// Lines of a chart that the eye can still tell apart: as many as there are styles.
const LINES: usize = STYLES;

/// The charts of a file, in reading order.
pub fn charts(file: &BenchFile) -> Vec<Chart> {
    match &file.rows {
        Rows::Move(rows) => {
            let mut charts = side_by_side(rows, |destination, rows| {
                let folio = |row: &MoveRow| row.folio_bytes as f64;
                Chart {
                    title: format!("Throughput by folio size, {destination} destination"),
                    x: X::Bytes,
                    x_label: "folio size",
                    ..against(rows, file, folio)
                }
            });
            charts.extend(side_by_side(rows, |destination, rows| Chart {
                title: format!("Throughput by lanes, {destination} destination"),
                ..by_lanes(rows, file)
            }));
            charts.retain(|chart| distinct_x(chart) > 1);
            charts
        }
        Rows::Count(rows) => {
            let all: Vec<&MoveRow> = rows.iter().collect();
            let sizes = distinct(&all, |row| row.folio_bytes);
            let of_size = |size: usize| {
                let rows = rows.iter().filter(|row| row.folio_bytes == size);
                let rows: Vec<MoveRow> = rows.cloned().collect();
                side_by_side(&rows, |destination, rows| {
                    let folios = |row: &MoveRow| row.folios.unwrap_or(1) as f64;
                    let size = long(size as u64);
                    Chart {
                        title: format!(
                            "Throughput by number of folios of {size}, {destination} destination"
                        ),
                        x: X::Count,
                        x_label: "folios in one move",
                        ..against(rows, file, folios)
                    }
                })
            };
            sizes.into_iter().flat_map(of_size).collect()
        }
        Rows::Stall(rows) => stall(rows),
        // Four rows of unlike figures are a table, no chart.
        Rows::Compaction(_) => Vec::new(),
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
fn side_by_side(rows: &[MoveRow], chart: impl Fn(&str, &[&MoveRow]) -> Chart) -> Vec<Chart> {
    let charts = by_destination(rows).map(|(destination, rows)| chart(destination, &rows));
    let mut charts: Vec<Chart> = charts.collect();
    let largest = charts.iter().map(Chart::largest).fold(0.0, f64::max);
    for chart in &mut charts {
        chart.y_least = largest;
    }
    charts
}

/// A line per migrator and lanes against `x`, under the ceilings.
fn against(rows: &[&MoveRow], file: &BenchFile, x: impl Fn(&MoveRow) -> f64) -> Chart {
    let names = distinct(rows, series);
    let chosen = choose(rows);
    let mut lines: Vec<Series> = Vec::new();
    let mut coloured = 0;
    for &name in &chosen {
        let of: Vec<&MoveRow> = (rows.iter().copied())
            .filter(|row| series(row) == names[name])
            .collect();
        // The baseline keeps its quiet colour, whatever else was measured.
        let style = if of.iter().all(|row| row.migrator == "per-folio") {
            0
        } else {
            coloured += 1;
            coloured
        };
        lines.push(Series {
            name: names[name].clone(),
            style: Style::Number(style),
            points: sorted(of.iter().map(|row| Point {
                x: x(row),
                y: row.gbps,
                sd: row.gbps_sd,
                tip: tip(row),
            })),
        });
    }
    let ceiling = |count: usize| Series {
        name: format!("ceiling, {}", lanes(count)),
        style: Style::Ceiling(Course::Steps),
        points: distinct(rows, |row| x(row).to_bits())
            .into_iter()
            .filter_map(|at| rows.iter().find(|row| x(row).to_bits() == at))
            .filter_map(|row| {
                let ceiling = file.ceiling_of(count, row.folio_bytes)?;
                Some(ceiling_point(ceiling, x(row)))
            })
            .collect(),
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
    for series in &mut ends {
        series.points = sorted(std::mem::take(&mut series.points).into_iter());
    }
    lines.extend(ends);
    let left_out = names.len() - chosen.len();
    let note = match left_out {
        0 => String::new(),
        _ => format!("{left_out} of {} cases are only in the table.", names.len()),
    };
    Chart {
        title: String::new(),
        note,
        x: X::Count,
        x_label: "",
        y: Y::Linear,
        y_label: "GB/s",
        y_least: 0.0,
        series: lines,
    }
}

/// The cases that a chart shows, as places in the list of distinct ones: all, or with more than the
/// eye can follow those with the fewest lanes and then evenly up to the most.
fn choose(rows: &[&MoveRow]) -> Vec<usize> {
    let cases = distinct(rows, series).len();
    if cases <= LINES {
        return (0..cases).collect();
    }
    let mut chosen: Vec<usize> = (0..LINES)
        .map(|index| index * (cases - 1) / (LINES - 1))
        .collect();
    chosen.dedup();
    chosen
}

/// A line per folio size against the lanes of the migrator that has the most of them.
fn by_lanes(rows: &[&MoveRow], file: &BenchFile) -> Chart {
    let widest = rows.iter().max_by_key(|row| row.lanes);
    let rows: Vec<&MoveRow> = (rows.iter().copied())
        .filter(|row| {
            widest.is_some_and(|most| {
                (&row.migrator, &row.backend) == (&most.migrator, &most.backend)
            })
        })
        .collect();
    let mut sizes = distinct(&rows, |row| row.folio_bytes);
    sizes.sort_unstable();
    // Smallest, middle and largest tell the story; sizes between lie between.
    let mut shown = vec![0, sizes.len() / 3, sizes.len().saturating_sub(1)];
    shown.dedup();
    let mut lines: Vec<Series> = (shown.into_iter().filter_map(|at| sizes.get(at)))
        .enumerate()
        .map(|(index, &size)| Series {
            name: format!("folios of {}", long(size as u64)),
            style: Style::Number(index + 1),
            points: sorted(
                rows.iter()
                    .filter(|row| row.folio_bytes == size)
                    .map(|row| Point {
                        x: row.lanes as f64,
                        y: row.gbps,
                        sd: row.gbps_sd,
                        tip: tip(row),
                    }),
            ),
        })
        .collect();
    let measured = distinct(&rows, |row| row.lanes);
    let of_pages = |huge: bool| -> Vec<Point> {
        let known = (file.ceiling.iter())
            .filter(|ceiling| ceiling.is_huge() == huge && measured.contains(&ceiling.lanes));
        sorted(known.map(|of| ceiling_point(of, of.lanes as f64)))
    };
    let both = !of_pages(false).is_empty() && !of_pages(true).is_empty();
    for huge in [false, true] {
        lines.push(Series {
            name: match (both, huge) {
                (false, _) => "ceiling".to_owned(),
                (true, false) => "ceiling, base pages".to_owned(),
                (true, true) => "ceiling, THPs".to_owned(),
            },
            style: match (both, huge) {
                (true, true) => Style::HugeCeiling,
                _ => Style::Ceiling(Course::Straight),
            },
            points: of_pages(huge),
        });
    }
    lines.retain(|line| !line.points.is_empty());
    Chart {
        title: String::new(),
        note: widest.map_or_else(String::new, |row| format!("Migrator {}.", row.migrator)),
        x: X::Count,
        x_label: "lanes",
        y: Y::Linear,
        y_label: "GB/s",
        y_least: 0.0,
        series: lines,
    }
}

fn stall(rows: &[StallRow]) -> Vec<Chart> {
    let all: Vec<&StallRow> = rows.iter().collect();
    let case = |row: &StallRow| {
        let backend = if row.backend == "user" { "" } else { "kernel " };
        format!(
            "{backend}{}, {}, folios of {}, {} application thread{}",
            row.migrator,
            lanes(row.lanes),
            long(row.folio_bytes as u64),
            row.threads,
            if row.threads == 1 { "" } else { "s" }
        )
    };
    let cases = distinct(&all, case);
    let of = |name: &String| {
        let name = name.clone();
        all.iter().copied().filter(move |row| case(row) == name)
    };
    let mut charts: Vec<Chart> = cases
        .iter()
        .map(|name| {
            let quantile = |label: &str, style: usize, value: fn(&StallRow) -> u64| Series {
                name: label.to_owned(),
                style: Style::Number(style),
                points: sorted(of(name).map(|row| Point {
                    x: row.batch_bytes as f64,
                    y: value(row) as f64,
                    sd: 0.0,
                    tip: format!(
                        "{} {label} with batches of {}",
                        time(value(row)),
                        short(row.batch_bytes as u64)
                    ),
                })),
            };
            Chart {
                title: "Time that an access waits".to_owned(),
                note: format!("{name}; logarithmic; accesses that met a page on its way."),
                x: X::Bytes,
                x_label: "batch size",
                y: Y::Time,
                y_label: "wait",
                y_least: 0.0,
                series: vec![
                    quantile("max", 0, |row| row.stall_ns.max),
                    quantile("p99.9", 2, |row| row.stall_ns.p999),
                    quantile("p99", 1, |row| row.stall_ns.p99),
                    quantile("p50", 3, |row| row.stall_ns.p50),
                ],
            }
        })
        .collect();
    charts.push(Chart {
        title: "Throughput beside a working application".to_owned(),
        note: "What the same batch sizes move meanwhile.".to_owned(),
        x: X::Bytes,
        x_label: "batch size",
        y: Y::Linear,
        y_label: "GB/s",
        y_least: 0.0,
        series: (cases.iter().take(LINES - 1).enumerate())
            .map(|(index, name)| Series {
                name: name.clone(),
                style: Style::Number(index + 1),
                points: sorted(of(name).map(|row| Point {
                    x: row.batch_bytes as f64,
                    y: row.gbps,
                    sd: 0.0,
                    tip: format!(
                        "{:.1} GB/s with batches of {}",
                        row.gbps,
                        short(row.batch_bytes as u64)
                    ),
                })),
            })
            .collect(),
    });
    charts
}

fn ceiling_point(ceiling: &Ceiling, x: f64) -> Point {
    Point {
        x,
        y: ceiling.gbps,
        sd: 0.0,
        tip: format!(
            "{} GB/s copied by {} with no page moved, memory mapped by {}",
            throughput(ceiling.gbps, ceiling.gbps_sd),
            lanes(ceiling.lanes),
            pages(ceiling)
        ),
    }
}

fn tip(row: &MoveRow) -> String {
    let size = match row.folios {
        Some(count) => format!("{count} folios of {}", short(row.folio_bytes as u64)),
        None => format!("folios of {}", short(row.folio_bytes as u64)),
    };
    format!(
        "{} GB/s, {:.0}% of the ceiling, {}, {size}",
        throughput(row.gbps, row.gbps_sd),
        row.of_ceiling * 100.0,
        series(row)
    )
}

/// Points in the order of x.
pub fn sorted(points: impl Iterator<Item = Point>) -> Vec<Point> {
    let mut points: Vec<Point> = points.collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// How many different x values a chart's points have.
fn distinct_x(chart: &Chart) -> usize {
    let points: Vec<&Point> = chart
        .series
        .iter()
        .flat_map(|series| &series.points)
        .collect();
    distinct(&points, |point| point.x.to_bits()).len()
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
                "Throughput by folio size, warm destination",
                "Throughput by folio size, cold destination",
                "Throughput by lanes, warm destination",
                "Throughput by lanes, cold destination"
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
        if let Rows::Move(rows) = &mut file.rows {
            rows.retain(|row| row.lanes == 1);
        }
        assert_eq!(charts(&file).len(), 2);
    }

    #[test]
    fn many_lanes_leave_lines_that_can_be_told_apart() {
        let mut file = synthetic::file("move");
        if let Rows::Move(rows) = &mut file.rows {
            let row = rows[0].clone();
            *rows = (1..=40)
                .map(|lanes| MoveRow {
                    lanes,
                    migrator: "mtcopy".to_owned(),
                    ..row.clone()
                })
                .collect();
        }
        // One folio size is no chart by folio size, so look at its making.
        let Rows::Move(rows) = &file.rows else {
            panic!("move");
        };
        let rows: Vec<&MoveRow> = rows.iter().collect();
        let chosen = choose(&rows);
        assert_eq!((chosen.len(), chosen[0], chosen[7]), (8, 0, 39));
        assert!(
            against(
                &rows,
                &BenchFile {
                    ceiling: Vec::new(),
                    ..file.clone()
                },
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
