// SPDX-License-Identifier: MIT OR Apache-2.0
//! The geometry of a line chart, whose x axis is log2 unless its steps are equal.
//!
//! Own code instead of a chart library: those write fixed colours and sizes into the SVG, while this
//! page needs classes (light, dark and print are style sheets), a tooltip and a shape per point, and
//! every text escaped by the template. It knows axes and lines, nothing of benchmarks.

use serde::Serialize;

use super::scale::Scale;
use super::{Chart, Course, Point, STYLES, Series, Style, X};
use crate::units::short;

/// The picture's size in its own units; the page scales it.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;
/// Room for the labels: left, right, top, bottom. The left one holds `100 µs` at phone size.
const MARGIN: [f64; 4] = [56.0, 18.0, 30.0, 50.0];
/// Labels of the x axis that are closer are left out.
const LABEL_GAP: f64 = 40.0;
/// A chart as the template needs it: every number is text already.
#[derive(Serialize)]
pub struct Drawing {
    title: String,
    note: String,
    /// The figures as a sentence, for those who cannot see the picture.
    description: String,
    x_label: &'static str,
    y_label: &'static str,
    frame: Frame,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    lines: Vec<Line>,
    changes: Vec<String>,
}

#[derive(Serialize)]
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

#[derive(Serialize)]
struct Tick {
    at: String,
    label: String,
}

#[derive(Serialize)]
struct Line {
    name: String,
    class: String,
    path: String,
    /// The shape of its marks around 0,0; none for a line without.
    shape: &'static str,
    marks: Vec<Mark>,
    /// Where its name stands in the picture; only for a ceiling.
    label: Option<Label>,
}

#[derive(Serialize)]
struct Label {
    x: String,
    y: String,
    anchor: &'static str,
}

#[derive(Serialize)]
struct Mark {
    x: String,
    y: String,
    tip: String,
    /// Ends of the error bar.
    bar: Option<(String, String)>,
}

/// Shapes that differ without their colour: circle, square, triangle, diamond, triangle down, plus,
/// bar, cross.
const SHAPES: [&str; STYLES] = [
    "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z",
    "M-3.6,-3.6h7.2v7.2h-7.2z",
    "M0,-4.8L4.6,3.6H-4.6z",
    "M0,-5.2L5.2,0L0,5.2L-5.2,0z",
    "M0,4.8L4.6,-3.6H-4.6z",
    "M-1.5,-4.8h3v3.3h3.3v3h-3.3v3.3h-3v-3.3h-3.3v-3h3.3z",
    "M-2,-5h4v10h-4z",
    "M-4.8,-2.7L-2.7,-4.8L0,-2.1L2.7,-4.8L4.8,-2.7L2.1,0L4.8,2.7L2.7,4.8L0,2.1L-2.7,4.8L-4.8,2.7L-2.1,0z",
];

/// Draws a chart; `None` if it has no point.
pub fn draw(chart: &Chart) -> Option<Drawing> {
    let points = chart.series.iter().flat_map(|series| &series.points);
    let mut xs: Vec<f64> = points.map(|point| point.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let axis = |x: f64| match chart.x {
        X::Bytes | X::Count => x.log2(),
        X::Even(_) | X::Clock(_) => x,
    };
    let first = match chart.x {
        X::Bytes | X::Count => axis(*xs.first()?),
        X::Even(_) | X::Clock(_) => 0.0,
    };
    let last = axis(*xs.last()?);
    let [left, right, top, bottom] = MARGIN;
    let frame = Frame {
        width: WIDTH,
        height: HEIGHT,
        left,
        right: WIDTH - right,
        top,
        bottom: HEIGHT - bottom,
    };
    // Points keep a distance from the frame, so that marks are not cut.
    let (start, end) = (frame.left + 14.0, frame.right - 14.0);
    let x_at = |x: f64| {
        if last > first {
            start + (axis(x) - first) / (last - first) * (end - start)
        } else {
            f64::midpoint(start, end)
        }
    };
    let scale = Scale::new(chart);
    // An error bar above 100% ends at the frame.
    let y_at = |y: f64| frame.bottom - scale.share(y).min(1.0) * (frame.bottom - frame.top);

    let mut x_ticks: Vec<(f64, String)> = Vec::new();
    for x in labelled(chart.x, &xs) {
        let label = match chart.x {
            X::Bytes => short(x as u64),
            X::Count => format!("{x:.0}"),
            X::Even(label) => label(x),
            X::Clock(start) => clock(start + x),
        };
        if x_ticks
            .last()
            .is_none_or(|tick| x_at(x) - tick.0 >= LABEL_GAP)
        {
            x_ticks.push((x_at(x), label));
        }
    }
    // Whether a text just above a point would cover another point.
    let crowded = |of: &Point| {
        let points = chart
            .series
            .iter()
            .filter(|series| !series.style.is_ceiling());
        points.flat_map(|series| &series.points).any(|point| {
            let (right, up) = (x_at(point.x) - x_at(of.x), y_at(of.y) - y_at(point.y));
            (0.0..80.0).contains(&right) && (0.0..26.0).contains(&up)
        })
    };
    let apart = (chart.series.iter()).all(|series| series.style != Style::HugeCeiling);
    let lines = (chart.series.iter()).map(|series| line(series, x_at, y_at, crowded, apart));
    Some(Drawing {
        title: chart.title.clone(),
        note: chart.note.clone(),
        description: describe(chart),
        x_label: chart.x_label,
        y_label: chart.y_label,
        lines: lines.collect(),
        changes: chart.changes.iter().map(|&x| number(x_at(x))).collect(),
        x_ticks: ticks(x_ticks),
        y_ticks: ticks(scale.ticks().map(|(y, label)| (y_at(y), label))),
        frame,
    })
}

/// Where the x axis has labels: at the points, or where these lie anywhere, at round values.
fn labelled(x: X, xs: &[f64]) -> Vec<f64> {
    if let (X::Clock(start), Some(&last)) = (x, xs.last()) {
        let steps =
            [1, 2, 5, 10, 30, 60, 120, 180, 360, 720].map(|minutes| f64::from(minutes * 60));
        let step = steps.into_iter().find(|step| last / step <= 9.0);
        let step = step.unwrap_or(86_400.0);
        let first = (start / step).ceil() * step - start;
        return (0..=(last / step) as usize)
            .map(|at| first + at as f64 * step)
            .filter(|at| *at <= last)
            .collect();
    }
    let (X::Even(_), Some(&last)) = (x, xs.last()) else {
        return xs.to_vec();
    };
    let round = [1.0, 2.0, 5.0].iter().map(|step| step * 0.1);
    let steps = (0..16).flat_map(|power| round.clone().map(move |step| step * 10f64.powi(power)));
    let step = steps
        .into_iter()
        .find(|step| last / step <= 10.0)
        .unwrap_or(last);
    // Ten times as a whole number: 3 * 0.1 is not 0.3.
    (0..=(last / step) as usize)
        .map(|at| (at as f64 * step * 10.0).round() / 10.0)
        .collect()
}

/// `21:30`, UTC.
fn clock(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

fn ticks(ticks: impl IntoIterator<Item = (f64, String)>) -> Vec<Tick> {
    let tick = |(at, label)| Tick {
        at: number(at),
        label,
    };
    ticks.into_iter().map(tick).collect()
}

fn line(
    series: &Series,
    x_at: impl Fn(f64) -> f64,
    y_at: impl Fn(f64) -> f64,
    crowded: impl Fn(&Point) -> bool,
    named: bool,
) -> Line {
    let shape = match series.style {
        Style::Number(style) | Style::Ours(style) => SHAPES[style % STYLES],
        _ => "",
    };
    let mut path = String::new();
    let mut before = None;
    for point in &series.points {
        if point.y.is_nan() {
            before = None;
            continue;
        }
        let (x, y) = (x_at(point.x), y_at(point.y));
        path += &match (before, series.style) {
            (None, _) => format!("M{},{}", number(x), number(y)),
            (Some(from), Style::Ceiling(Course::Steps)) => {
                let half = number(f64::midpoint(from, x));
                format!("H{half}V{}H{}", number(y), number(x))
            }
            (Some(_), _) => format!("L{},{}", number(x), number(y)),
        };
        before = Some(x);
    }
    let marked = series.points.iter().filter(|point| !point.tip.is_empty());
    let marks = marked.map(|point| Mark {
        x: number(x_at(point.x)),
        y: number(y_at(point.y)),
        tip: point.tip.clone(),
        bar: (point.sd > 0.0).then(|| {
            let ends = [point.y + point.sd, (point.y - point.sd).max(0.0)];
            let [high, low] = ends.map(|y| number(y_at(y)));
            (high, low)
        }),
    });
    let marks: Vec<Mark> = marks.collect();
    let label = match (series.style, series.points.first(), series.points.last()) {
        (Style::Ceiling(_), Some(first), Some(last)) if named => {
            // Above its end a rising ceiling has nothing; a level one is named where no line runs.
            let (point, anchor) = if first.y < 0.9 * last.y || crowded(first) {
                (last, "end")
            } else {
                (first, "start")
            };
            Some(Label {
                x: number(x_at(point.x)),
                y: number(y_at(point.y) - 7.0),
                anchor,
            })
        }
        _ => None,
    };
    Line {
        name: series.name.clone(),
        class: series.style.class(),
        path,
        shape: if marks.is_empty() { "" } else { shape },
        marks,
        label,
    }
}

fn describe(chart: &Chart) -> String {
    let lines = chart.series.iter().map(|series| {
        let tips = series.points.iter().map(|point| point.tip.as_str());
        let tips: Vec<&str> = tips.filter(|tip| !tip.is_empty()).collect();
        match tips.is_empty() {
            true => format!("{}.", series.name),
            false => format!("{}: {}.", series.name, tips.join("; ")),
        }
    });
    let lines = lines.collect::<Vec<_>>().join(" ");
    format!("{} against {}. {lines}", chart.y_label, chart.x_label)
}

/// A coordinate, to a tenth.
fn number(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Y;

    fn chart(y: Y, points: &[(f64, f64)]) -> Chart {
        let point = |&(x, y): &(f64, f64)| Point::new(x, y, format!("{y} at {x}"));
        let line = Series::new("one".to_owned(), Style::Number(9), points.iter().map(point));
        Chart {
            title: "synthetic".to_owned(),
            y,
            ..Chart::new((X::Bytes, "folio size"), "GB/s", [line])
        }
    }

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn equal_ratios_are_equal_steps_of_x() {
        let points = [(4096.0, 1.0), (65536.0, 2.0), (1_048_576.0, 24.5)];
        let drawing = draw(&chart(Y::Linear, &points)).expect("points");
        assert_eq!(labels(&drawing.x_ticks), ["4K", "64K", "1M"]);
        let at: Vec<f64> = (drawing.x_ticks.iter())
            .map(|tick| tick.at.parse().expect("number"))
            .collect();
        assert!((at[1] - at[0] - (at[2] - at[1])).abs() < 0.2, "{at:?}");
        assert_eq!(labels(&drawing.y_ticks), ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(drawing.lines[0].class, "s1");
    }

    #[test]
    fn seconds_are_equal_steps_from_zero_with_round_labels() {
        let mut chart = chart(Y::Linear, &[(0.0, 0.0), (3.37, 1.0), (6.74, 2.0)]);
        chart.x = X::SECONDS;
        let drawing = draw(&chart).expect("points");
        assert_eq!(
            labels(&drawing.x_ticks),
            ["0", "1", "2", "3", "4", "5", "6"]
        );
        let at: Vec<f64> = (drawing.lines[0].marks.iter())
            .map(|mark| mark.x.parse().expect("number"))
            .collect();
        assert!((at[1] - at[0] - (at[2] - at[1])).abs() < 0.2, "{at:?}");
        chart.series[0].points.retain(|point| point.x < 1.0);
        assert_eq!(labels(&draw(&chart).expect("point").x_ticks), ["0"]);
    }

    #[test]
    fn a_clock_has_whole_steps_and_nothing_is_drawn_over_a_gap() {
        // From 21:50 for an hour and a half.
        let mut chart = chart(Y::Linear, &[(0.0, 1.0), (600.0, 2.0), (5400.0, 3.0)]);
        chart.x = X::Clock(78_600.0);
        chart.series[0].points.insert(2, Point::gap(900.0));
        let drawing = draw(&chart).expect("points");
        let labels_of_x = labels(&drawing.x_ticks);
        assert_eq!((labels_of_x[0], labels_of_x[8]), ("21:50", "23:10"));
        let line = &drawing.lines[0];
        assert_eq!((line.path.matches('M').count(), line.marks.len()), (2, 3));
        assert!(!line.path.contains("NaN"), "{}", line.path);
        assert_eq!(labels(&drawing.y_ticks).last(), Some(&"3.5"));
    }

    #[test]
    fn times_are_in_decades() {
        let drawing = draw(&chart(Y::Time, &[(1.0, 31_000.0), (2.0, 2_400_000.0)]));
        let drawing = drawing.expect("points");
        assert_eq!(
            labels(&drawing.y_ticks),
            ["10 µs", "100 µs", "1 ms", "10 ms"]
        );
    }

    #[test]
    fn every_point_lies_in_the_frame_whatever_its_size() {
        for y in [Y::Linear, Y::Time] {
            for value in [1e-9, 0.4, 1.0, 99.0, 1e6, 1e30] {
                let drawing = draw(&chart(y, &[(1.0, value), (2.0, value / 3.0)])).expect("points");
                assert!((2..=12).contains(&drawing.y_ticks.len()) || value > 1e10);
                for mark in &drawing.lines[0].marks {
                    let at: f64 = mark.y.parse().expect("number");
                    assert!(
                        (drawing.frame.top..=drawing.frame.bottom).contains(&at),
                        "{value}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_ceiling_steps_half_way_between_two_sizes() {
        let mut chart = chart(Y::Linear, &[(1.0, 20.0), (2.0, 20.0), (4.0, 25.0)]);
        chart.series[0].style = Style::Ceiling(Course::Steps);
        let line = &draw(&chart).expect("points").lines[0];
        assert_eq!(line.path, "M70.0,110.0H174.5V110.0H279.0H383.5V70.0H488.0");
        assert_eq!(line.label.as_ref().map(|label| label.anchor), Some("end"));
    }

    #[test]
    fn one_point_is_drawn_and_none_is_not() {
        assert!(draw(&chart(Y::Linear, &[(4096.0, 1.0)])).is_some());
        assert!(draw(&chart(Y::Linear, &[])).is_none());
    }

    #[test]
    fn crowded_labels_are_left_out() {
        let points: Vec<(f64, f64)> = (1..200).map(|x| (f64::from(x), 1.0)).collect();
        let drawing = draw(&chart(Y::Linear, &points)).expect("points");
        assert!(drawing.x_ticks.len() < 16, "{}", drawing.x_ticks.len());
        assert_eq!(drawing.lines[0].marks.len(), 199);
    }
}
