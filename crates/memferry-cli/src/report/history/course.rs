// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of a day: tiers, moves, groups, what did not pay, pressure, cost; each line ends where no record was kept.

use memferry_daemon::Status;
use memferry_daemon::status::{GroupStatus, TierStatus};

use super::day::{Day, Done, Moved, Step};
use crate::chart::{Chart, Point, STYLES, Series, Style, X, Y};

/// Columns of a chart: a day has one for each five minutes.
const COLUMNS: f64 = 288.0;

/// Records in a row that one point of each line stands for.
struct Column<'a> {
    steps: &'a [Step],
    is_after_gap: bool,
}

fn columns(day: &Day) -> Vec<Column<'_>> {
    let (from, to) = day.span();
    let width = (to - from) / COLUMNS;
    let mut columns = Vec::new();
    let mut first = 0;
    for index in 0..day.steps.len() {
        let next = day.steps.get(index + 1);
        if next.is_none_or(|next| next.is_after_gap || next.at - day.steps[first].from > width) {
            columns.push(Column {
                steps: &day.steps[first..=index],
                is_after_gap: day.steps[first].is_after_gap,
            });
            first = index + 1;
        }
    }
    columns
}

impl Column<'_> {
    /// A sum of what was done by the seconds that it took.
    fn rate(&self, get: impl Fn(&Done) -> f64) -> Option<f64> {
        let known = self.steps.iter().filter(|step| step.seconds() > 0.0);
        let sum: f64 = known.map(|step| get(&step.done)).sum();
        let seconds: f64 = self.steps.iter().map(Step::seconds).sum();
        (seconds > 1.0).then(|| sum / seconds)
    }

    /// The mean of what the records say.
    fn mean(&self, get: impl Fn(&Status) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self
            .steps
            .iter()
            .filter_map(|step| get(&step.status))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// A day's charts, of which those without a line are not drawn.
pub fn charts(day: &Day) -> Vec<Chart> {
    let columns = columns(day);
    let start = day.span().0;
    let line = |name: String, style: Style, value: &dyn Fn(&Column<'_>) -> Option<f64>| {
        let mut points = Vec::new();
        for column in &columns {
            let (Some(first), Some(last)) = (column.steps.first(), column.steps.last()) else {
                continue;
            };
            let from = first.known_from();
            let Some(value) = value(column) else {
                points.push(Point::gap(from - start));
                continue;
            };
            let begins = points.last().is_none_or(|point: &Point| point.y.is_nan());
            if column.is_after_gap || begins {
                points.push(Point::gap(from - start));
                points.push(Point::new(from - start, value, String::new()));
            }
            points.push(Point::new(last.at - start, value, String::new()));
        }
        Series::new(name, style, points)
    };
    let chart = |title: &str, note: String, y: Y, y_label, lines: Vec<Series>| Chart {
        title: title.to_owned(),
        note,
        y,
        changes: day.starts.iter().map(|at| at - start).collect(),
        ..Chart::new((X::Clock(start), "time, UTC"), y_label, lines)
    };
    let own = |name: &str, number: usize, value: &dyn Fn(&Column<'_>) -> Option<f64>| {
        line(name.to_owned(), Style::Number(number), value)
    };
    let moved = |name: &str, number: usize, get: &dyn Fn(&Done) -> u64| {
        own(name, number, &|of| of.rate(|done| get(done) as f64 / 1e6))
    };
    let groups = groups(day);
    let shown = &groups[..groups.len().min(STYLES)];
    let of_groups = shown.iter().enumerate().flat_map(|(index, name)| {
        let share = |get: fn(&GroupStatus) -> u64| {
            move |of: &Column<'_>| of.mean(|status| of_tier(status, get(group(status, name)?)))
        };
        let has = line(name.clone(), Style::Number(index), &share(|of| of.top));
        let protected = line(
            format!("{name}, protected"),
            Style::Dashed(index),
            &share(|of| of.protect),
        );
        let is_protected = protected.points.iter().any(|point| point.y > 0.0);
        [Some(has), is_protected.then_some(protected)]
    });
    let of_groups: Vec<Series> = of_groups.flatten().collect();
    let left_out = match groups.len() - shown.len() {
        0 => String::new(),
        more => format!(" {more} more groups are only in the table."),
    };
    let used = |tier: usize| {
        move |of: &Column<'_>| of.mean(|status| status.tiers.get(tier).and_then(used_percent))
    };
    let mut charts = vec![
        chart(
            "Use of the tiers",
            "What is not free, of all programs and of the kernel.".to_owned(),
            Y::Percent,
            "of the tier",
            vec![own("top tier", 1, &used(0)), own("lower tiers", 2, &used(1))],
        ),
        chart(
            "Promoted and demoted",
            "By the daemon, or by the kernel where that is the source.".to_owned(),
            Y::Linear,
            "MB/s",
            vec![moved("promoted", 1, &Done::up), moved("demoted", 2, &Done::down)],
        ),
        chart(
            "Groups in the top tier",
            format!("What each group has of the tier; dashed: what is protected for it.{left_out}"),
            Y::Percent,
            "of the top tier",
            of_groups,
        ),
        chart(
            "Moves that did not pay",
            "Waste: promoted, and not used again within ten seconds. Thrash: demoted, and in use 0.8 s later.".to_owned(),
            Y::Linear,
            "MB/s",
            vec![
                moved("waste", 1, &|of| of.sum(|group: &Moved| group.wasted)),
                moved("thrash", 2, &|of| of.sum(|group: &Moved| group.thrashed)),
            ],
        ),
        chart(
            "Pressure, and what brakes leave of the rate",
            "Pressure: the time in which somebody waited, as /proc/pressure has it.".to_owned(),
            Y::Percent,
            "percent",
            vec![
                own("waiting for memory", 1, &|of| of.mean(|status| status.memory_pressure)),
                own("waiting for a CPU", 2, &|of| of.mean(|status| status.cpu_pressure)),
                line("pressure leaves".to_owned(), Style::Dashed(3), &|of| {
                    of.mean(|status| Some(status.pressure_rate as f64 / 10.0))
                }),
                line("waste leaves".to_owned(), Style::Dashed(4), &|of| {
                    of.mean(|status| Some(status.waste_rate as f64 / 10.0))
                }),
            ],
        ),
        chart(
            "What it costs",
            "CPU time of the daemon, and of its source where that can be told.".to_owned(),
            Y::Linear,
            "% of one CPU",
            vec![
                own("daemon", 1, &|of| of.rate(|done| done.cpu_seconds * 100.0)),
                own("source", 2, &|of| {
                    let told = of.steps.iter().any(|step| step.done.source_seconds.is_some());
                    let rate = of.rate(|done| done.source_seconds.unwrap_or(0.0) * 100.0);
                    rate.filter(|_| told)
                }),
            ],
        ),
    ];
    for chart in &mut charts {
        let is_known = |line: &Series| line.points.iter().any(|point| !point.y.is_nan());
        chart.series.retain(is_known);
    }
    charts
}

/// The groups' names, the one with the most of the top tier first.
pub fn groups(day: &Day) -> Vec<String> {
    let mut groups: Vec<(String, f64)> = Vec::new();
    for of in day.steps.iter().flat_map(|step| &step.status.groups) {
        match groups.iter_mut().find(|(name, _)| *name == of.name) {
            Some((_, sum)) => *sum += of.top as f64,
            None => groups.push((of.name.clone(), of.top as f64)),
        }
    }
    groups.sort_by(|a, b| b.1.total_cmp(&a.1));
    groups.into_iter().map(|(name, _)| name).collect()
}

/// A group by its name.
pub fn group<'a>(status: &'a Status, name: &str) -> Option<&'a GroupStatus> {
    status.groups.iter().find(|of| of.name == name)
}

fn of_tier(status: &Status, bytes: u64) -> Option<f64> {
    let size = status
        .tiers
        .first()
        .map(TierStatus::size)
        .filter(|size| *size > 0)?;
    Some(bytes as f64 / size as f64 * 100.0)
}

fn used_percent(tier: &TierStatus) -> Option<f64> {
    let used = tier.size().checked_sub(tier.free())?;
    (tier.size() > 0).then(|| used as f64 / tier.size() as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::day::tests::{day, record};
    use super::*;

    #[test]
    fn a_day_has_six_charts_of_few_points_and_no_line_over_a_gap() {
        let first = (0..700).map(|minute| record(1, 0, minute, Some(60.0)));
        let second = (800..1440).map(|minute| record(2, 800, minute, Some(60.0)));
        let charts = charts(&day(&first.chain(second).collect::<Vec<_>>()));
        assert_eq!(charts.len(), 6);
        for chart in &charts {
            assert!(!chart.series.is_empty(), "{}", chart.title);
            for line in &chart.series {
                let gaps = line.points.iter().filter(|point| point.y.is_nan()).count();
                assert_eq!(gaps, 2, "{}: {}", chart.title, line.name);
                let (least, most) = (200, COLUMNS as usize * 3 / 2);
                assert!(
                    (least..most).contains(&line.points.len()),
                    "{}",
                    line.points.len()
                );
                let inside = |point: &&Point| (700.0..799.0).contains(&(point.x / 60.0));
                assert_eq!(line.points.iter().filter(inside).count(), 0);
            }
        }
        let value = |chart: usize, name: &str| {
            let line = charts[chart].series.iter().find(|line| line.name == name);
            let point = line.expect(name).points.last().expect("point");
            (point.y * 10.0).round() / 10.0
        };
        assert_eq!(
            (value(0, "top tier"), value(0, "lower tiers")),
            (75.0, 50.0)
        );
        assert_eq!((value(1, "promoted"), value(1, "demoted")), (2.1, 1.0));
        assert_eq!((value(2, "db"), value(2, "db, protected")), (12.5, 25.0));
        assert!(
            charts[2]
                .series
                .iter()
                .all(|line| line.name != "batch, protected")
        );
        assert_eq!((value(5, "daemon"), value(5, "source")), (1.0, 2.0));
    }
}
