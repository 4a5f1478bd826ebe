// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many regions DAMON may have: what it was seen to take of the CPU against what it may. Whose memory they are for is left to others.

use std::time::{Duration, Instant};

/// Regions of both kdamonds until a cost was measured: a sample of one took 2.3 us on the timed machine, and two in each 200 ms 2.4% of a CPU.
const FIRST: usize = 1024;
/// Samples of a region in a report at least, for which the budget's regions are. With one, hot memory was found later.
pub(super) const SAMPLES: u32 = 2;
/// More, each a whole part of 200 ms. Two samples that are far apart see each page in use that is used ten times a second, as one that is used a
/// thousand times.
const MORE_SAMPLES: [u32; 4] = [4, 10, 20, 40];
/// Regions of both at least: DAMON wants three at least, which is a fifth of a quarter of them.
const LEAST: usize = 64;
/// CPU time is told in ticks of 10 ms: in less than that 1% of a CPU is no more than four.
const SHORTEST: Duration = Duration::from_secs(4);
/// With twice as many regions the cost is below the budget, and far from where they would be halved again.
const LOW: f64 = 0.4;
/// Half of the regions have to lower the cost to that part of it, else it is not they that cost: DAMON also looks for what is mapped each second.
const FUTILE: f64 = 0.75;
/// Measurements in a row that must be as low before there are more regions.
const CALM: u32 = 3;

/// Regions that the budget allows.
#[derive(Debug)]
pub(super) struct Budget {
    /// CPU seconds in a second.
    cpu: f64,
    /// Of both kdamonds at most.
    regions: usize,
    /// When the CPU time was read last, and what it was.
    last: Option<(Instant, f64)>,
    calm: u32,
    /// What it cost when the regions were halved last, while it costs too much.
    halved: Option<f64>,
    is_told: bool,
}

impl Budget {
    /// Of so many percent of one CPU.
    pub(super) fn new(percent: u32) -> Self {
        Self {
            cpu: f64::from(percent) / 100.0,
            regions: FIRST,
            last: None,
            calm: 0,
            halved: None,
            is_told: false,
        }
    }

    /// Takes note that DAMON took so many CPU seconds since the daemon began. Since the last time it had `regions`, with `wanted`
    /// regions each had been of the size that suits.
    pub(super) fn measure(&mut self, now: Instant, seconds: f64, regions: usize, wanted: usize) {
        let Some((since, before)) = self.last else {
            self.last = Some((now, seconds));
            return;
        };
        let passed = now.saturating_duration_since(since);
        if passed < SHORTEST {
            return;
        }
        self.last = Some((now, seconds));
        // A kdamond that ended by itself takes its CPU time along.
        if seconds < before {
            return;
        }
        let cost = (seconds - before) / passed.as_secs_f64() / self.cpu;
        let is_low = cost < LOW && wanted > self.regions;
        self.calm = if is_low { self.calm + 1 } else { 0 };
        let allowed = self.regions;
        if cost > 1.0 && self.halved.is_some_and(|before| cost > before * FUTILE) {
            if !self.is_told {
                self.is_told = true;
                tracing::warn!(
                    percent = cost * self.cpu * 100.0,
                    "DAMON takes more of a CPU than source_cpu, however few its regions are: its processes may have very many mappings"
                );
            }
        } else if cost > 1.0 {
            self.halved = Some(cost);
            // More than it has may be allowed.
            let halvings = cost.log2().ceil() as u32;
            self.regions = (regions.min(allowed) >> halvings.min(usize::BITS - 1)).max(LEAST);
        } else if self.calm == CALM {
            self.calm = 0;
            self.regions *= 2;
        }
        if cost <= 1.0 {
            self.halved = None;
        }
        if self.regions != allowed {
            tracing::debug!(
                regions = self.regions,
                before = allowed,
                cost = cost * 100.0,
                "DAMON's regions at most, by percent of its budget"
            );
        }
    }

    /// Samples of each region in a report, of so many regions in both: as many as are paid for.
    pub(super) fn samples(&self, regions: usize) -> u32 {
        let is_paid = |samples: &u32| work(regions, *samples) <= self.regions;
        MORE_SAMPLES.into_iter().rfind(is_paid).unwrap_or(SAMPLES)
    }

    /// Regions of the kdamond of the first processes and of that of the others in turn, which want so many. The others get a quarter of
    /// all at most, and the first what is left whether the others need it or not: these change each time, and so would the first's.
    pub(super) fn shares(&self, wanted: [usize; 2]) -> [usize; 2] {
        let others = self.regions / 4;
        let first = match wanted[1] {
            0 => self.regions,
            _ => self.regions - others,
        };
        [wanted[0].min(first), wanted[1].min(others)]
    }
}

/// What regions of so many samples cost, in regions of [`SAMPLES`].
pub(super) fn work(regions: usize, samples: u32) -> usize {
    regions * samples as usize / SAMPLES as usize
}

/// The same of regions with as many samples as there may be.
pub(super) fn most_work(regions: usize) -> usize {
    work(regions, MORE_SAMPLES[MORE_SAMPLES.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of a budget of 3% after each of some spans of five seconds, in which a region took so much of the CPU.
    fn course(budget: &mut Budget, wanted: usize, costs: &[f64]) -> Vec<usize> {
        let (mut now, mut seconds) = (Instant::now(), 0.0);
        budget.last = None;
        budget.measure(now, seconds, 0, wanted);
        let each = costs.iter().map(|cost| {
            let [regions, _] = budget.shares([wanted, 0]);
            now += Duration::from_secs(5);
            seconds += 5.0 * cost * regions as f64;
            budget.measure(now, seconds, regions, wanted);
            budget.regions
        });
        each.collect()
    }

    const TERABYTE: usize = 1 << 19;
    /// Of one CPU, a region.
    const COST: f64 = 10e-6;

    /// As where processes have hundreds of thousands of mappings.
    #[test]
    fn regions_stay_where_fewer_of_them_cost_no_less() {
        let mut budget = Budget::new(3);
        let (mut now, mut seconds) = (Instant::now(), 0.0);
        for _ in 0..20 {
            budget.measure(now, seconds, budget.regions, TERABYTE);
            now += Duration::from_secs(5);
            seconds += 5.0 * 0.05;
        }
        assert_eq!(budget.regions, FIRST / 2);
    }

    #[test]
    fn regions_become_as_many_as_the_budget_pays_for_and_do_not_swing() {
        let mut budget = Budget::new(3);
        let course_of = |budget: &mut Budget, cost| course(budget, TERABYTE, &[cost; 60]);
        // Of 3% 3000 could be paid: the next power of two is beyond.
        let regions = course_of(&mut budget, COST);
        assert_eq!(regions[..4], [1024, 1024, 2048, 2048]);
        assert_eq!(regions[10..], [2048; 50]);
        // A part more or less changes nothing.
        for factor in [1.4, 0.7, 1.0] {
            assert_eq!(course_of(&mut budget, factor * COST), [2048; 60]);
        }
        // One that costs more than it may gets fewer, at once and for good.
        let dear = course_of(&mut budget, 4.5 * COST);
        assert_eq!(dear, [512; 60]);
    }

    #[test]
    fn regions_that_nothing_needs_are_not_allowed_in_advance() {
        let mut budget = Budget::new(3);
        assert_eq!(course(&mut budget, 300, &[COST; 20]), [1024; 20]);
        // Those that are there are halved, not those that could be.
        assert_eq!(course(&mut budget, 128, &[40.0 * COST]), [64]);
        assert_eq!(course(&mut budget, 128, &[9e9]), [LEAST]);
    }

    #[test]
    fn what_regions_leave_of_the_budget_pays_for_more_samples() {
        let mut budget = Budget::new(3);
        let of = [32, 51, 52, 128, 256, 512, 1024, 8192];
        assert_eq!(
            of.map(|regions| budget.samples(regions)),
            [40, 40, 20, 10, 4, 4, 2, 2]
        );
        let _ = course(&mut budget, 128, &[20.0 * COST]);
        assert_eq!(budget.samples(128), 10);
        let _ = course(&mut budget, 1024, &[4.0 * COST]);
        assert_eq!((budget.regions, budget.samples(128)), (512, 4));
    }

    #[test]
    fn a_cost_is_told_of_seconds_and_not_of_less() {
        let mut budget = Budget::new(3);
        let began = Instant::now();
        let mut at = |ms, seconds| {
            let now = began + Duration::from_millis(ms);
            budget.measure(now, seconds, 512, TERABYTE);
            budget.regions
        };
        assert_eq!(at(0, 7.0), 1024);
        // A tick in a moment.
        assert_eq!(at(100, 7.01), 1024);
        // One that has ended is not known any more.
        assert_eq!(at(5000, 1.0), 1024);
        assert_eq!(at(10_000, 1.2), 256);
    }

    #[test]
    fn processes_in_turn_get_a_quarter_and_change_nothing_for_the_first() {
        let budget = Budget::new(3);
        assert_eq!(budget.shares([TERABYTE, 0]), [1024, 0]);
        for others in [32, 64, TERABYTE] {
            assert_eq!(budget.shares([TERABYTE, others]), [768, others.min(256)]);
        }
        assert_eq!(budget.shares([64, 64]), [64, 64]);
    }
}
