// SPDX-License-Identifier: MIT OR Apache-2.0
//! The y axis of a chart: round steps from zero, percents, or decades of time.

use super::{Chart, Y};
use crate::units::time;

/// The y axis.
pub enum Scale {
    /// Steps of `step` up to `steps` of them.
    Linear { step: f64, steps: usize },
    /// Five steps to 100.
    Percent,
    /// Decades from ten to the first power up to the second.
    Decades(i32, i32),
}

impl Scale {
    /// The axis that holds every value of a chart.
    pub fn new(chart: &Chart) -> Self {
        let largest = chart.largest().max(chart.y_least).max(f64::MIN_POSITIVE);
        match chart.y {
            Y::Linear => {
                let power = 10f64.powf((largest / 5.0).log10().floor());
                // Round steps; the last always makes five steps or fewer reach the largest value.
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|round| round * power)
                    .into_iter()
                    .find(|step| step * 6.0 >= largest)
                    .unwrap_or(power * 10.0);
                let steps = (largest * 1.02 / step).ceil().max(1.0) as usize;
                Self::Linear { step, steps }
            }
            Y::Percent => Self::Percent,
            Y::Time => {
                let points = chart.series.iter().flat_map(|series| &series.points);
                let least = points.map(|point| point.y).fold(largest, f64::min).max(1.0);
                let low = least.log10().floor() as i32;
                Self::Decades(low, (largest.max(1.0).log10().ceil() as i32).max(low + 1))
            }
        }
    }

    /// Where `y` lies between the bottom, 0, and the top, 1.
    pub fn share(&self, y: f64) -> f64 {
        match *self {
            Self::Linear { step, steps } => y / (step * steps as f64),
            Self::Percent => y / 100.0,
            Self::Decades(low, high) => {
                (y.max(1.0).log10() - f64::from(low)).max(0.0) / f64::from(high - low)
            }
        }
    }

    /// Where labels stand, and what they say.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let ticks: Vec<(f64, String)> = match *self {
            Self::Linear { step, steps } => {
                let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
                (0..=steps)
                    .map(|index| index as f64 * step)
                    .map(|y| (y, format!("{y:.digits$}")))
                    .collect()
            }
            Self::Percent => (0..=5)
                .map(|fifth| (f64::from(fifth * 20), format!("{}%", fifth * 20)))
                .collect(),
            Self::Decades(low, high) => (low..=high)
                .map(|power| 10f64.powi(power))
                .map(|y| (y, time(y as u64).replace(".0 ", " ")))
                .collect(),
        };
        ticks.into_iter()
    }
}
