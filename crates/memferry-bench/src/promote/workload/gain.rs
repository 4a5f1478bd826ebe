// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mode gains of what the best placement would: arithmetic on the rows of one round.

use super::looks::STAY_S;
use super::spec::Sample;
use crate::schema::gain::{GainRow, Phase};
use crate::spread::value_at;

/// A gain is told where the best placement is faster by this part at least: runs of the first timed machine had standard deviations of
/// up to 0.2%, which below this would be a fifth of the gain or more.
const LEAST: f64 = 0.01;
/// The part of the final gain whose time is told.
const NEARLY: f64 = 0.8;
/// Parts of a phase whose operations are taken together to find that time.
const PARTS: usize = 40;

/// Operations and their time between two moments of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    operations: f64,
    busy_ns: f64,
}

impl Work {
    fn between(samples: &[Sample], from_s: f64, to_s: f64) -> Self {
        let rise = |figure: fn(&Sample) -> u64| {
            let points = samples.iter().map(|of| (of.at_s, figure(of) as f64));
            let points: Vec<(f64, f64)> = points.collect();
            let at = |time| value_at(&points, time).unwrap_or(0.0);
            at(to_s) - at(from_s)
        };
        Self {
            operations: rise(|of| of.operations),
            busy_ns: rise(|of| of.busy_ns),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            busy_ns: self.busy_ns + other.busy_ns,
        }
    }

    fn ns_per_op(self) -> f64 {
        self.busy_ns / self.operations.max(1.0)
    }
}

/// Seconds of a phase.
fn length(samples: &[Sample]) -> f64 {
    samples.last().map_or(0.0, |of| of.at_s)
}

/// The quarter of a phase, from 0.
fn quarter(samples: &[Sample], number: usize) -> Work {
    let length = length(samples) / 4.0;
    Work::between(
        samples,
        length * number as f64,
        length * (number + 1) as f64,
    )
}

/// The figures of a row that its samples give.
pub fn fill_in(row: &mut GainRow, phases: &[Vec<Sample>]) {
    let (mut all, mut last) = (Work::default(), Work::default());
    for samples in phases {
        let work = Work::between(samples, 0.0, length(samples));
        row.phases.push(Phase {
            ns_per_op: work.ns_per_op(),
            quarters_ns: [0, 1, 2, 3].map(|of| quarter(samples, of).ns_per_op()),
            ..Phase::default()
        });
        all = all.and(work);
        last = last.and(quarter(samples, 3));
    }
    row.seconds = phases.iter().map(|samples| length(samples)).sum();
    row.operations = all.operations as u64;
    row.busy_ns = all.busy_ns as u64;
    row.ns_per_op = all.ns_per_op();
    row.ns_last = last.ns_per_op();
    row.churn = churn(row, phases);
}

/// Pages promoted in time to stay, over those that did.
fn churn(row: &GainRow, phases: &[Vec<Sample>]) -> Option<f64> {
    let mut from = 0.0;
    let mut points = Vec::new();
    for samples in phases {
        points.extend(
            samples
                .iter()
                .map(|of| (from + of.at_s, of.promoted as f64)),
        );
        from += length(samples);
    }
    let first = points.first()?.1;
    let until = value_at(&points, from - STAY_S)?;
    // What a baseline placed is no promotion.
    let some = from > STAY_S && row.stayed_pages > 0 && until > first;
    some.then(|| (until - first) / row.stayed_pages as f64)
}

/// (worst - mode) / (worst - best), where the best one is faster.
fn gain(worst: f64, mode: f64, best: f64) -> Option<f64> {
    (worst - best >= LEAST * worst && worst > 0.0).then(|| (worst - mode) / (worst - best))
}

/// Fills in what follows from the other rows of a round, each with its samples.
pub fn settle(round: &mut [(GainRow, Vec<Vec<Sample>>)]) {
    let of = |mode: &str| {
        round
            .iter()
            .find(|of| of.0.mode == mode)
            .map(|of| of.0.clone())
    };
    let (none, fill, oracle) = (of("none"), of("fill"), of("oracle"));
    for (row, phases) in round {
        let above = |row: &GainRow, worst: &Option<GainRow>, figure: fn(&GainRow) -> f64| {
            let (worst, best) = (worst.as_ref()?, oracle.as_ref()?);
            gain(figure(worst), figure(row), figure(best))
        };
        row.gain_run = above(row, &none, |of| of.ns_per_op);
        row.gain_last = above(row, &none, |of| of.ns_last);
        row.above_fill_run = above(row, &fill, |of| of.ns_per_op);
        row.above_fill_last = above(row, &fill, |of| of.ns_last);
        let Some(none) = &none else { continue };
        for (at, (phase, samples)) in row.phases.iter_mut().zip(phases).enumerate() {
            let worst = &none.phases[at];
            if let Some(best) = oracle.as_ref().map(|of| &of.phases[at]) {
                phase.gain_run = gain(worst.ns_per_op, phase.ns_per_op, best.ns_per_op);
                let [.., last] = phase.quarters_ns;
                phase.gain_last = gain(worst.quarters_ns[3], last, best.quarters_ns[3]);
            }
            let until = match row.mode.as_str() {
                "none" | "dram" | "fill" | "oracle" => None,
                _ => until_nearly(samples, worst.ns_per_op),
            };
            phase.until_80_s = until.map(|of| of.0);
            phase.until_80_pages = until.map(|of| of.1);
        }
    }
}

/// Seconds and pages promoted until a phase first had 0.8 of what it gains over `worst` in its last quarter.
fn until_nearly(samples: &[Sample], worst: f64) -> Option<(f64, u64)> {
    let last = worst - quarter(samples, 3).ns_per_op();
    if last < LEAST * worst {
        return None;
    }
    let part = length(samples) / PARTS as f64;
    let reached = |number: &usize| {
        let (from, to) = (part * *number as f64, part * (*number + 1) as f64);
        worst - Work::between(samples, from, to).ns_per_op() >= NEARLY * last
    };
    let until = (0..PARTS).find(reached)? as f64 * part + part;
    let promoted = samples.iter().map(|of| (of.at_s, of.promoted as f64));
    let promoted: Vec<(f64, f64)> = promoted.collect();
    let pages = value_at(&promoted, until)? - promoted.first()?.1;
    Some((until, pages as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A phase of 40 s: an operation takes `before` ns until `turn`, then `after`, and pages are promoted until then.
    fn phase(before: u64, turn: u64, after: u64) -> Vec<Sample> {
        let sample = |at: u64| Sample {
            at_s: at as f64,
            operations: at * 1000,
            busy_ns: (at.min(turn) * before + at.saturating_sub(turn) * after) * 1000,
            promoted: 70 + at.min(turn) * 10,
            top_share: 0.5,
        };
        (0..=40).map(sample).collect()
    }

    fn row(mode: &str, phases: Vec<Vec<Sample>>) -> (GainRow, Vec<Vec<Sample>>) {
        let mut row = GainRow {
            mode: mode.to_owned(),
            stayed_pages: 50,
            ..GainRow::default()
        };
        fill_in(&mut row, &phases);
        (row, phases)
    }

    fn is(value: Option<f64>, expected: f64) {
        assert!(
            value.is_some_and(|of| (of - expected).abs() < 1e-6),
            "{value:?}, not {expected}"
        );
    }

    #[test]
    fn a_mode_gains_what_it_does_of_the_best() {
        let mut round = [
            row("none", vec![phase(100, 40, 0)]),
            row("fill", vec![phase(80, 40, 0)]),
            row("pghot", vec![phase(100, 20, 40)]),
            row("daemon", vec![phase(120, 40, 0)]),
            row("oracle", vec![phase(20, 40, 0)]),
        ];
        settle(&mut round);
        let pghot = &round[2].0;
        assert_eq!((pghot.operations, pghot.seconds), (40_000, 40.0));
        is(Some(pghot.ns_per_op), 70.0);
        is(Some(pghot.ns_last), 40.0);
        assert_eq!(
            pghot.phases[0].quarters_ns.map(f64::round),
            [100.0, 100.0, 40.0, 40.0]
        );
        is(pghot.gain_run, 30.0 / 80.0);
        is(pghot.gain_last, 60.0 / 80.0);
        is(pghot.above_fill_run, 10.0 / 60.0);
        is(pghot.above_fill_last, 40.0 / 60.0);
        is(pghot.phases[0].gain_last, 0.75);
        // 0.8 of 60 ns first in the part from 20 s to 21 s; 200 pages until then.
        is(pghot.phases[0].until_80_s, 21.0);
        assert_eq!(pghot.phases[0].until_80_pages, Some(200));
        // 200 pages until 30 s, 50 of which stayed.
        is(pghot.churn, 4.0);
        is(round[3].0.gain_run, -0.25);
        assert_eq!(round[3].0.phases[0].until_80_s, None, "it lost");
        is(round[0].0.gain_run, 0.0);
        is(round[4].0.gain_last, 1.0);
    }

    #[test]
    fn each_half_has_its_own_gain() {
        let halves = |first, second| vec![phase(first, 40, 0), phase(second, 40, 0)];
        let mut round = [
            row("none", halves(100, 200)),
            row("pghot", halves(60, 200)),
            row("oracle", halves(20, 40)),
        ];
        settle(&mut round);
        let pghot = &round[1].0;
        is(pghot.phases[0].gain_run, 0.5);
        is(pghot.phases[1].gain_run, 0.0);
        is(Some(pghot.ns_per_op), 130.0);
        is(pghot.gain_run, 20.0 / 120.0);
    }

    #[test]
    fn nothing_is_told_of_a_gain_where_there_is_none_to_be_had() {
        let mut round = [
            row("none", vec![phase(1000, 40, 0)]),
            row("pghot", vec![phase(995, 40, 0)]),
            row("oracle", vec![phase(991, 40, 0)]),
        ];
        settle(&mut round);
        assert_eq!(round[1].0.gain_run, None);
        settle(&mut round[..2]);
        assert_eq!(round[1].0.above_fill_run, None, "without fill and oracle");
        let short = row("none", vec![phase(9, 40, 0)[..=10].to_vec()]);
        assert_eq!(short.0.churn, None, "nothing can stay");
    }
}
