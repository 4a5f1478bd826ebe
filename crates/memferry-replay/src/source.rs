// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of `pghot` and `ours`: reports one access in a period, as hardware samples do.
//!
//! The gap between two samples is drawn between half a period and one and a half, as hardware randomises it, so that loops of the
//! program do not hide between samples.

use crate::random::Random;

/// The sampler.
pub struct Sampler {
    period: u64,
    left: u64,
    random: Random,
}

impl Sampler {
    /// One access in `period`; none if it is 0.
    pub fn new(period: u64, seed: u64) -> Self {
        let mut sampler = Self {
            period,
            left: 0,
            random: Random::new(seed),
        };
        sampler.left = sampler.gap();
        sampler
    }

    /// How many of the next `accesses` are reported.
    pub fn take(&mut self, mut accesses: u64) -> u64 {
        let mut samples = 0;
        if self.period == 0 {
            return 0;
        }
        while accesses >= self.left {
            accesses -= self.left;
            self.left = self.gap();
            samples += 1;
        }
        self.left -= accesses;
        samples
    }

    fn gap(&mut self) -> u64 {
        match self.period {
            0 => u64::MAX,
            1 => 1,
            period => period / 2 + self.random.below(period) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_met_on_average_and_repeats_with_its_seed() {
        let count = |seed| {
            let mut sampler = Sampler::new(100, seed);
            (0..100_000).map(|_| sampler.take(10)).sum::<u64>()
        };
        assert!((9_800..10_200).contains(&count(1)), "{}", count(1));
        assert_eq!(count(1), count(1));
        let mut all = Sampler::new(1, 9);
        assert_eq!((all.take(7), all.take(0), all.take(1)), (7, 0, 1));
    }
}
