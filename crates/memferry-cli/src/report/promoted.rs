// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of `bench promote`: promotion over time, one line per mode, the mean of its runs.

use crate::chart::{Chart, Point, STYLES, Series, Style, X, Y};
use crate::published::promotion::Scale;
use crate::schema::promote::{Like, PromoteRow};
use crate::spread::{Spread, groups, value_at};

/// Points of a line: runs are looked at between their own points, so that they have a mean.
const POINTS: usize = 24;

/// The charts of a file, scenario by scenario.
pub fn charts(rows: &[PromoteRow]) -> Vec<Chart> {
    let of_scenario = |(scenario, rows): (u32, Vec<&PromoteRow>)| {
        let hot = chart(&rows, "% of the hot set", |row| {
            let points = row.hot_timeline.iter();
            points.map(|&(at, share)| (at, share * 100.0)).collect()
        });
        let pages = chart(&rows, "pages", |row| {
            let points = row.timeline.iter();
            points.map(|&(at, count)| (at, count as f64)).collect()
        });
        [
            Chart {
                title: format!("Hot set in the top tier over time, scenario {scenario}"),
                note: match scenario {
                    2 => format!("Another region becomes hot again and again. {}", hot.note),
                    _ => hot.note.clone(),
                },
                y: Y::Percent,
                ..hot
            },
            Chart {
                title: format!("Pages promoted over time, scenario {scenario}"),
                ..pages
            },
        ]
    };
    let scenarios = groups(rows, |row| row.scenario).into_iter();
    scenarios.flat_map(of_scenario).collect()
}

/// Pages promoted per second, ours bold beside the published ones.
pub fn rates(like: &Like) -> Chart {
    let shown = like.rates.iter().take(STYLES).enumerate();
    let series = shown.map(|(index, of)| {
        let (name, style) = match of.published {
            true => (
                format!("{}: {}", like.source, of.case),
                Style::Number(index),
            ),
            false => (format!("ours: {}", of.case), Style::Ours(index)),
        };
        let points = of.pages_per_s.iter().map(|&(at, pages)| {
            let tip = format!("{pages:.0} pages a second until {at:.0} s, {name}");
            Point::new(at, pages, tip)
        });
        Series::new(name.clone(), style, points)
    });
    Chart {
        title: format!("Pages promoted per second, {}", like.name),
        note: format!(
            "Published ones are multiplied by {}, as the memory is.",
            Scale(like.scale)
        ),
        ..Chart::new((X::SECONDS, "seconds"), "pages a second", series)
    }
}

fn chart(
    rows: &[&PromoteRow],
    y_label: &'static str,
    line: impl Fn(&PromoteRow) -> Vec<(f64, f64)>,
) -> Chart {
    let cases = groups(rows.iter().copied(), |row| row.case());
    let series = cases.iter().take(STYLES).enumerate();
    let series = series.map(|(index, (case, rows))| {
        let runs: Vec<Vec<(f64, f64)>> = rows.iter().map(|row| line(row)).collect();
        // The first is none, the baseline, with the quiet colour.
        Series::new(
            case.clone(),
            Style::Number(index),
            mean(&runs, case, y_label),
        )
    });
    Chart {
        note: format!(
            "Mean of the runs; bars are one standard deviation.{}",
            match cases.len().saturating_sub(STYLES) {
                0 => String::new(),
                more => format!(" {more} more modes are only in the table."),
            }
        ),
        ..Chart::new((X::SECONDS, "seconds"), y_label, series)
    }
}

/// The mean of some runs at even times, up to the end of the shortest.
pub fn mean(runs: &[Vec<(f64, f64)>], case: &str, unit: &str) -> Vec<Point> {
    let ends = runs
        .iter()
        .filter_map(|run| run.last())
        .map(|point| point.0);
    let end = ends.fold(f64::INFINITY, f64::min);
    if !end.is_finite() {
        return Vec::new();
    }
    let times = (0..=POINTS).map(|index| end * index as f64 / POINTS as f64);
    let point = |at: f64| {
        let values: Vec<f64> = runs.iter().filter_map(|run| value_at(run, at)).collect();
        let of = Spread::of(&values)?;
        let tip = format!("{:.0} {unit} after {at:.1} s, {case}", of.mean);
        Some(Point {
            sd: of.sd,
            ..Point::new(at, of.mean, tip)
        })
    };
    times.filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, promotions};

    #[test]
    fn every_scenario_has_both_charts_with_a_line_per_mode() {
        let charts = charts(&promotions());
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Hot set in the top tier over time, scenario 1",
                "Pages promoted over time, scenario 1",
                "Hot set in the top tier over time, scenario 2",
                "Pages promoted over time, scenario 2"
            ]
        );
        let names: Vec<&str> = charts[0]
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(names, ["none", "numab2", "pghot pgtscan, default"]);
        for chart in &charts {
            for series in &chart.series {
                assert_eq!(series.points.len(), POINTS + 1, "{}", series.name);
            }
        }
    }

    #[test]
    fn ours_is_bold_beside_published_rates() {
        let like = synthetic::file("promote").like.expect("like");
        let chart = rates(&like);
        let bold = |series: &Series| matches!(series.style, Style::Ours(_));
        let names: Vec<(&str, bool)> = (chart.series.iter())
            .map(|series| (series.name.as_str(), bold(series)))
            .collect();
        assert_eq!(
            names[..3],
            [
                ("synthetic: numab2", false),
                ("synthetic: pghot", false),
                ("ours: none", true)
            ]
        );
        assert_eq!(chart.series[0].points.len(), 16);
    }

    #[test]
    fn runs_that_stay_apart_have_bars() {
        let mut rows = promotions();
        rows.retain(|row| row.scenario == 1 && row.mode == "numab2");
        rows[1]
            .hot_timeline
            .iter_mut()
            .for_each(|point| point.1 /= 2.0);
        let chart = &charts(&rows)[0];
        let last = chart.series[0].points.last().expect("point");
        // 100 and 50.
        assert!(
            (last.y - 75.0).abs() < 1e-9 && (last.sd - 35.355).abs() < 0.001,
            "{}",
            last.sd
        );
    }
}
