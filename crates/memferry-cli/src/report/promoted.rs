// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of `bench promote`: promotion over time, one line per mode, the mean of its runs.

use super::chart::{Chart, Point, STYLES, Series, Style, X, Y};
use crate::published::promotion::Scale;
use crate::schema::promote::{Like, PromoteRow};
use crate::spread::Spread;
use crate::spread::distinct;

/// Points of a line: runs are looked at between their own points, so that they have a mean.
const POINTS: usize = 24;

/// The charts of a file, scenario by scenario.
pub fn charts(rows: &[PromoteRow]) -> Vec<Chart> {
    let all: Vec<&PromoteRow> = rows.iter().collect();
    let of_scenario = |scenario: u32| {
        let rows: Vec<&PromoteRow> = all
            .iter()
            .copied()
            .filter(|row| row.scenario == scenario)
            .collect();
        let hot = chart(&rows, "% of the hot set", |row| {
            row.hot_timeline
                .iter()
                .map(|&(at, share)| (at, share * 100.0))
                .collect()
        });
        let pages = chart(&rows, "pages", |row| {
            row.timeline
                .iter()
                .map(|&(at, count)| (at, count as f64))
                .collect()
        });
        [
            Chart {
                title: format!("Hot set in the top tier over time, scenario {scenario}"),
                note: match scenario {
                    1 => hot.note.clone(),
                    _ => format!("Another region becomes hot again and again. {}", hot.note),
                },
                ..hot
            },
            Chart {
                title: format!("Pages promoted over time, scenario {scenario}"),
                ..pages
            },
        ]
    };
    let scenarios = distinct(&all, |row| row.scenario);
    scenarios.into_iter().flat_map(of_scenario).collect()
}

/// Pages promoted per second, ours bold beside the published ones.
pub fn rates(like: &Like) -> Chart {
    let series = like
        .rates
        .iter()
        .take(STYLES)
        .enumerate()
        .map(|(index, of)| {
            let name = match of.published {
                true => format!("{}: {}", like.source, of.case),
                false => format!("ours: {}", of.case),
            };
            let point = |&(at, pages): &(f64, f64)| Point {
                x: at,
                y: pages,
                sd: 0.0,
                tip: format!("{pages:.0} pages a second until {at:.0} s, {name}"),
            };
            Series {
                points: of.pages_per_s.iter().map(point).collect(),
                style: match of.published {
                    true => Style::Number(index),
                    false => Style::Ours(index),
                },
                name,
            }
        });
    Chart {
        title: format!("Pages promoted per second, {}", like.name),
        note: format!(
            "Published ones are multiplied by {}, as the memory is.",
            Scale(like.scale)
        ),
        x: X::Seconds,
        x_label: "seconds",
        y: Y::Linear,
        y_label: "pages a second",
        y_least: 0.0,
        series: series.collect(),
    }
}

fn chart(
    rows: &[&PromoteRow],
    y_label: &'static str,
    line: impl Fn(&PromoteRow) -> Vec<(f64, f64)>,
) -> Chart {
    let cases = distinct(rows, |row| row.case());
    let shown = cases.iter().take(STYLES).enumerate();
    let series = shown.map(|(index, case)| {
        let runs: Vec<Vec<(f64, f64)>> = (rows.iter())
            .filter(|row| row.case() == *case)
            .map(|row| line(row))
            .collect();
        Series {
            name: case.clone(),
            // The first is none, the baseline, with the quiet colour.
            style: Style::Number(index),
            points: mean(&runs, case, y_label),
        }
    });
    Chart {
        title: String::new(),
        note: format!(
            "Mean of the runs; bars are one standard deviation.{}",
            match cases.len().saturating_sub(STYLES) {
                0 => String::new(),
                more => format!(" {more} more modes are only in the table."),
            }
        ),
        x: X::Seconds,
        x_label: "seconds",
        y: Y::Linear,
        y_label,
        y_least: 0.0,
        series: series.collect(),
    }
}

/// The mean of some runs at even times, up to the end of the shortest.
fn mean(runs: &[Vec<(f64, f64)>], case: &str, unit: &str) -> Vec<Point> {
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
        let values: Vec<f64> = runs.iter().filter_map(|run| value(run, at)).collect();
        let of = Spread::of(&values)?;
        Some(Point {
            x: at,
            y: of.mean,
            sd: of.sd,
            tip: format!("{:.0} {unit} after {at:.1} s, {case}", of.mean),
        })
    };
    times.filter_map(point).collect()
}

/// The value of a run at a time, between the points beside it.
fn value(run: &[(f64, f64)], at: f64) -> Option<f64> {
    let after = run.partition_point(|point| point.0 < at);
    match (
        after.checked_sub(1).and_then(|before| run.get(before)),
        run.get(after),
    ) {
        (Some(before), Some(after)) => {
            let part = (at - before.0) / (after.0 - before.0);
            Some(before.1 + part * (after.1 - before.1))
        }
        (Some(&(_, value)), None) | (None, Some(&(_, value))) => Some(value),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Rows;
    use crate::synthetic;

    fn rows() -> Vec<PromoteRow> {
        match synthetic::file("promote").rows {
            Rows::Promote(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_has_values_between_its_points() {
        let run = [(0.0, 0.0), (2.0, 10.0), (2.0, 20.0), (4.0, 20.0)];
        for (at, expected) in [(0.0, 0.0), (1.0, 5.0), (3.0, 20.0), (9.0, 20.0)] {
            let found = value(&run, at).expect("value");
            assert!((found - expected).abs() < 1e-9, "{at}: {found}");
        }
        assert_eq!(value(&[], 1.0), None);
    }

    #[test]
    fn every_scenario_has_both_charts_with_a_line_per_mode() {
        let charts = charts(&rows());
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
        let mut rows = rows();
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
