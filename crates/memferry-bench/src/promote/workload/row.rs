// SPDX-License-Identifier: MIT OR Apache-2.0
//! The row of one run, but for what follows from the other rows of its round.

use super::gain;
use super::spec::{Placing, Sample, WorkSeen, WorkSpec};
use crate::args::promote::PromoteArgs;
use crate::args::workload::{Workload, name_of};
use crate::promote::mode::Mode;
use crate::promote::place::Place;
use crate::promote::run::{Measured, POINTS};
use crate::schema::FromTo;
use crate::schema::gain::GainRow;

/// The row of what was measured.
pub fn row(
    args: &PromoteArgs,
    mode: &Mode,
    round: usize,
    spec: &WorkSpec,
    place: &Place,
    measured: &Measured<WorkSeen>,
) -> GainRow {
    let Measured { seen, cost, .. } = measured;
    let by_law = matches!(spec.workload, Workload::Zipf | Workload::Served);
    let ranked = match &spec.misses {
        Some(_) => "misses",
        None => "accesses",
    };
    let by = matches!(spec.placing, Placing::Best(_)).then(|| ranked.to_owned());
    let mut row = GainRow {
        workload: name_of(spec.workload),
        skew: by_law.then_some(spec.skew),
        rate: spec.rate,
        memory: name_of(spec.memory),
        start: name_of(args.of_workload.start),
        mode: mode.name.to_owned(),
        source: mode.source.map(str::to_owned),
        record: mode.record.clone(),
        run: round,
        seed: spec.seed,
        threads: spec.threads,
        bytes: spec.bytes as u64,
        room_bytes: spec.room.unwrap_or(spec.bytes as u64),
        locked_bytes: measured.locked,
        nodes: FromTo {
            from: place.lower,
            to: place.near,
        },
        latency_ns: seen.latency.map(|of| of.0),
        latency_last_ns: seen.latency.map(|of| of.1),
        promoted_pages: measured.promoted(),
        demoted_pages: measured.demoted(),
        stayed_pages: seen.stayed_pages,
        top_share: seen.top_share,
        pages_in_top: seen.pages_in_top,
        oracle_by: by,
        placed_pages: seen.placed.map(|of| of.0),
        kept_pages: seen.placed.map(|of| of.1),
        tracker_cpu_s: measured.tracker_s(mode, seen.system_s),
        migration_cpu_s: measured.migration_s(mode),
        demotion_cpu_s: cost.demotion_s,
        access_system_s: seen.system_s,
        verified_bytes: measured.verified,
        counters: cost.told(),
        truth: seen.truth.clone(),
        timeline: timeline(&seen.phases),
        ..GainRow::default()
    };
    gain::fill_in(&mut row, &seen.phases);
    row
}

/// Points of all phases, one after the other, each with the time of an operation since the point before.
pub fn timeline(phases: &[Vec<Sample>]) -> Vec<(f64, f64, u64, f64)> {
    let all: usize = phases.iter().map(Vec::len).sum();
    let step = all.div_ceil(POINTS).max(1);
    let promoted = phases.iter().flatten().map(|of| of.promoted);
    let first = promoted.min().unwrap_or(0);
    let (mut points, mut from) = (Vec::new(), 0.0);
    for samples in phases {
        let mut before = Sample::default();
        let last = samples.len().saturating_sub(1);
        for (at, of) in samples.iter().enumerate() {
            let operations = of.operations - before.operations;
            if operations > 0 && (at % step == 0 || at == last) {
                let ns = (of.busy_ns - before.busy_ns) as f64 / operations as f64;
                points.push((from + of.at_s, ns, of.promoted - first, of.top_share));
                before = *of;
            }
        }
        from += samples.last().map_or(0.0, |of| of.at_s);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_time_since_the_point_before_and_phases_follow_each_other() {
        let sample = |at: u64, busy_ns| Sample {
            at_s: at as f64,
            operations: at * 10,
            busy_ns,
            promoted: 5 + at,
            top_share: 0.5,
        };
        let phase = vec![sample(0, 0), sample(1, 100), sample(2, 150)];
        let points = timeline(&[phase.clone(), phase]);
        assert_eq!(
            points,
            [
                (1.0, 10.0, 1, 0.5),
                (2.0, 5.0, 2, 0.5),
                (3.0, 10.0, 1, 0.5),
                (4.0, 5.0, 2, 0.5)
            ]
        );
        let long: Vec<Sample> = (0..10_000).map(|at| sample(at, at * 70)).collect();
        let points = timeline(&[long]);
        assert!(points.len() <= POINTS + 1, "{}", points.len());
        assert!(points.iter().all(|of| (of.1 - 7.0).abs() < 1e-9));
        assert!((points[points.len() - 1].0 - 9999.0).abs() < 1e-9);
    }
}
