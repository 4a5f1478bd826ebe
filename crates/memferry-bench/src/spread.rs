// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures over several runs: mean, standard deviation, and how sure the mean is; and which rows belong together.

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Runs that have it.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// The sample's standard deviation.
    pub sd: f64,
    /// Half the width of the mean's 95% confidence interval; `None` of one run.
    pub ci95: Option<f64>,
}

/// The 97.5% quantiles of Student's t distribution for 1 to 30 degrees of freedom; beyond, the normal distribution's
/// 1.96 errs by less than 2% (any table, such as Abramowitz and Stegun 26.10).
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Spread {
    /// Of these values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let (mean, sd) = mean_sd(values);
        let freedom = values.len() - 1;
        let quantile = T_975.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.96);
        Some(Self {
            runs: values.len(),
            mean,
            sd,
            ci95: (freedom > 0).then(|| quantile * sd / (values.len() as f64).sqrt()),
        })
    }
}

/// Mean and standard deviation (of the sample) of some runs.
pub fn mean_sd(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance.sqrt())
}

/// The values of `key`, each once, in order of first sight.
pub fn distinct<'a, R: 'a, K: PartialEq>(
    rows: impl IntoIterator<Item = &'a R>,
    key: impl Fn(&'a R) -> K,
) -> Vec<K> {
    let groups = groups(rows, key).into_iter();
    groups.map(|(key, _)| key).collect()
}

/// The rows of each value of `key`, in order of first sight.
pub fn groups<'a, R, K: PartialEq>(
    rows: impl IntoIterator<Item = &'a R>,
    key: impl Fn(&'a R) -> K,
) -> Vec<(K, Vec<&'a R>)> {
    let mut groups: Vec<(K, Vec<&R>)> = Vec::new();
    for row in rows {
        let key = key(row);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
}

/// The value of a line at a time, between the points beside it; before its first point and after its last what these have.
pub fn value_at(points: &[(f64, f64)], time: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < time);
    let before = after.checked_sub(1).and_then(|before| points.get(before));
    match (before, points.get(after)) {
        (Some(before), Some(after)) => {
            let part = (time - before.0) / (after.0 - before.0);
            Some(before.1 + part * (after.1 - before.1))
        }
        (Some(&(_, value)), None) | (None, Some(&(_, value))) => Some(value),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_the_samples() {
        assert_eq!(mean_sd(&[4.0]), (4.0, 0.0));
        let (mean, sd) = mean_sd(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((mean - 5.0).abs() < 1e-12 && (sd - 2.138_089_935).abs() < 1e-6);
    }

    #[test]
    fn few_runs_have_a_wide_interval() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0]).and_then(|of| of.ci95), None);
        // Two values 1 and 3: sd is the root of 2, t is 12.706, the interval 12.706 * sqrt(2) / sqrt(2).
        let two = Spread::of(&[1.0, 3.0]).and_then(|of| of.ci95);
        assert!((two.unwrap_or(0.0) - 12.706).abs() < 1e-9, "{two:?}");
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        let of = Spread::of(&many).expect("values");
        let expected = 1.96 * of.sd / 10.0;
        assert!((of.ci95.unwrap_or(0.0) - expected).abs() < 1e-9);
    }

    #[test]
    fn a_line_has_values_between_its_points() {
        let line = [(0.0, 0.0), (2.0, 10.0), (2.0, 20.0), (4.0, 20.0)];
        for (at, expected) in [(0.0, 0.0), (1.0, 5.0), (3.0, 20.0), (9.0, 20.0)] {
            let found = value_at(&line, at).expect("value");
            assert!((found - expected).abs() < 1e-9, "{at}: {found}");
        }
        assert_eq!(value_at(&[], 1.0), None);
    }
}
