// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line charts, of every page: axes, lines, points and their tooltips.
//!
//! Where they lie in the picture is the business of `draw`; `chart.html` writes them as SVG.

mod draw;
mod scale;

pub use draw::{Drawing, draw};

/// Number of series styles in `page.css`; each has its own colour and shape.
pub const STYLES: usize = 8;

/// What the x axis counts.
#[derive(Clone, Copy)]
pub enum X {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// From zero in equal steps, with what a label says.
    Even(fn(f64) -> String),
    /// Seconds since a moment, which is in seconds since 1970; labels are the time of day, UTC.
    Clock(f64),
}

impl X {
    /// Seconds.
    pub const SECONDS: Self = Self::Even(|seconds| format!("{seconds}"));
}

/// What the y axis counts.
#[derive(Clone, Copy)]
pub enum Y {
    /// From zero in equal steps.
    Linear,
    /// From 0 to 100.
    Percent,
    /// Nanoseconds in decades: p50 and the maximum lie a thousandfold apart.
    Time,
}

/// How a line looks.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// One of [`STYLES`] colours and shapes.
    Number(usize),
    /// Ours among others: the same, but bold.
    Ours(usize),
    /// The same, but dashed.
    Dashed(usize),
    /// The same, but dotted.
    Dotted(usize),
    /// A dashed line that nothing can pass; its name is written on it, or in the legend if there is a
    /// [`Style::HugeCeiling`] close by.
    Ceiling(Course),
    /// The dotted one beside it that is for THPs.
    HugeCeiling,
}

impl Style {
    /// Its class in `page.css`.
    pub fn class(self) -> String {
        match self {
            Self::Number(number) => format!("s{}", number % STYLES),
            Self::Ours(number) => format!("s{} ours", number % STYLES),
            Self::Dashed(number) => format!("s{} dashed", number % STYLES),
            Self::Dotted(number) => format!("s{} dotted", number % STYLES),
            Self::Ceiling(_) => "ceiling".to_owned(),
            Self::HugeCeiling => "ceiling huge".to_owned(),
        }
    }

    /// Whether it is a limit and no measurement of a move.
    pub fn is_ceiling(self) -> bool {
        matches!(self, Self::Ceiling(_) | Self::HugeCeiling)
    }
}

/// How a line goes from one point to the next.
#[derive(Clone, Copy, PartialEq)]
pub enum Course {
    /// Straight.
    Straight,
    /// Level, with a step half-way: base pages end and THPs begin between two folio sizes.
    Steps,
}

/// One point.
#[derive(Clone)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Half the length of the error bar; 0 for none.
    pub sd: f64,
    /// Its tooltip; a point without one has no mark.
    pub tip: String,
}

impl Point {
    /// A point without an error bar.
    pub fn new(x: f64, y: f64, tip: String) -> Self {
        Self { x, y, sd: 0.0, tip }
    }

    /// Where nothing is known: the line ends before it and begins anew behind.
    pub fn gap(x: f64) -> Self {
        Self::new(x, f64::NAN, String::new())
    }
}

/// One line.
#[derive(Clone)]
pub struct Series {
    pub name: String,
    pub style: Style,
    pub points: Vec<Point>,
}

impl Series {
    /// A line through these points in the order of x.
    pub fn new(name: String, style: Style, points: impl IntoIterator<Item = Point>) -> Self {
        let mut points = Vec::from_iter(points);
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Self {
            name,
            style,
            points,
        }
    }
}

/// A chart before it is drawn.
pub struct Chart {
    pub title: String,
    /// How to read it, one sentence.
    pub note: String,
    pub x: X,
    pub x_label: &'static str,
    pub y: Y,
    pub y_label: &'static str,
    /// The least that the top of the y axis shows, so that charts side by side share a scale.
    pub y_least: f64,
    pub series: Vec<Series>,
    /// Values of x that a vertical line marks.
    pub changes: Vec<f64>,
}

impl Chart {
    /// A chart from zero, without title and note.
    pub fn new(
        (x, x_label): (X, &'static str),
        y_label: &'static str,
        series: impl IntoIterator<Item = Series>,
    ) -> Self {
        Self {
            title: String::new(),
            note: String::new(),
            x,
            x_label,
            y: Y::Linear,
            y_label,
            y_least: 0.0,
            series: series.into_iter().collect(),
            changes: Vec::new(),
        }
    }

    /// Gives charts that stand side by side one scale.
    pub fn share_scale(charts: &mut [Self]) {
        let largest = charts.iter().map(Self::largest).fold(0.0, f64::max);
        for chart in charts {
            chart.y_least = largest;
        }
    }

    /// The largest value with its error bar.
    pub fn largest(&self) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(|point| point.y + point.sd).fold(0.0, f64::max)
    }
}
