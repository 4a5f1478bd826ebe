// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a line chart shows: axes, lines, points and their tooltips.
//!
//! Where they lie in the picture is the business of `draw`.

/// Number of series styles in `page.css`; each has its own colour and shape.
pub const STYLES: usize = 8;

/// What the x axis counts.
#[derive(Clone, Copy)]
pub enum X {
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// Seconds from zero, in equal steps.
    Seconds,
}

/// What the y axis counts.
#[derive(Clone, Copy)]
pub enum Y {
    /// From zero in equal steps.
    Linear,
    /// Nanoseconds in decades: p50 and the maximum lie a thousandfold apart.
    Time,
}

/// How a line looks.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// One of [`STYLES`] colours and shapes.
    Number(usize),
    /// Ours among published ones: the same, but bold.
    Ours(usize),
    /// A dashed line that nothing can pass; its name is written on it, or in the legend if there is a
    /// [`Style::HugeCeiling`] close by.
    Ceiling(Course),
    /// The dotted one beside it that is for THPs.
    HugeCeiling,
}

impl Style {
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
    /// Its tooltip.
    pub tip: String,
}

/// One line.
#[derive(Clone)]
pub struct Series {
    pub name: String,
    pub style: Style,
    pub points: Vec<Point>,
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
}

impl Chart {
    /// The largest value with its error bar.
    pub fn largest(&self) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(|point| point.y + point.sd).fold(0.0, f64::max)
    }
}
