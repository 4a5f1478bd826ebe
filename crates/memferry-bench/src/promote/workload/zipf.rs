// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks by Zipf's law, and a permutation that scatters them, in few instructions and without floating point.

use fastrand::Rng;

/// Ranks up to this one are drawn by their own probabilities. Further ones come in groups whose width is the first rank over this:
/// inside a group, whose ranks are drawn evenly, probabilities differ by 3% times the skew. A table for 2^20 ranks has 9 KiB
/// and stays in a CPU's own caches, where one of all ranks would put out what is measured.
const EXACT: usize = 32;

/// Draws ranks below a count; rank r with a probability in proportion to (r + 1)^-skew.
pub struct Zipf {
    /// Walker's alias table (Electronics Letters 10, 1974): each entry has the same probability and holds two groups.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Below this, of 2^32, the group is the first.
    first_below: u32,
    first: Group,
    second: Group,
}

/// Ranks that are drawn evenly.
#[derive(Clone, Copy, Default)]
struct Group {
    start: u32,
    count: u32,
}

impl Zipf {
    /// Over so many ranks, fewer than 2^32.
    pub fn new(ranks: usize, skew: f64) -> Self {
        let mut groups = Vec::new();
        let mut start = 0;
        while start < ranks {
            let count = (start / EXACT).clamp(1, ranks - start);
            let probability = |rank: usize| ((rank + 1) as f64).powf(-skew);
            let weight: f64 = (start..start + count).map(probability).sum();
            let (from, width) = (start as u32, count as u32);
            groups.push((
                weight,
                Group {
                    start: from,
                    count: width,
                },
            ));
            start += count;
        }
        let mean = groups.iter().map(|of| of.0).sum::<f64>() / groups.len() as f64;
        let (mut small, mut large): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .map(|(weight, group)| (weight / mean, group))
            .partition(|of| of.0 < 1.0);
        let mut entries = Vec::new();
        while let Some((rich, second)) = large.pop() {
            let Some((share, first)) = small.pop() else {
                large.push((rich, second));
                break;
            };
            entries.push(Entry {
                first_below: (share * 2f64.powi(32)) as u32,
                first,
                second,
            });
            let left = (rich + share - 1.0, second);
            if left.0 < 1.0 {
                small.push(left);
            } else {
                large.push(left);
            }
        }
        // What is left has a whole entry each, but for rounding.
        entries.extend(small.into_iter().chain(large).map(|(_, group)| Entry {
            first_below: u32::MAX,
            first: group,
            second: group,
        }));
        Self { entries }
    }

    /// The rank of a random number. Its lowest seven bits hardly depend on it.
    pub fn rank(&self, random: u64) -> usize {
        let place = (random >> 32) * self.entries.len() as u64;
        let entry = &self.entries[(place >> 32) as usize];
        let group = if (place as u32) < entry.first_below {
            entry.first
        } else {
            entry.second
        };
        group.start as usize + below(random, u64::from(group.count)) as usize
    }
}

/// A number below `count`, which is below 2^32, from the lower half of a random one, most of all from the upper bits of that half.
pub fn below(random: u64, count: u64) -> u64 {
    (u64::from(random as u32) * count) >> 32
}

/// A permutation of the numbers below a count, without a table.
pub struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
    /// Odd, so that multiplication is a permutation of the numbers below a power of two.
    factors: [u64; 2],
}

impl Scatter {
    /// Another one for each seed.
    pub fn new(count: usize, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mask = count.next_power_of_two() as u64 - 1;
        Self {
            count: count as u64,
            mask,
            shift: (mask.count_ones() / 2).max(1),
            factors: [random.u64(..) | 1, random.u64(..) | 1],
        }
    }

    /// Where a number goes.
    pub fn place(&self, number: usize) -> usize {
        let mut at = number as u64;
        loop {
            for factor in self.factors {
                // The constant moves 0, which multiplication leaves in its place (2^64 over the golden ratio).
                at = at.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(factor) & self.mask;
                at ^= at >> self.shift;
            }
            // Below the next power of two the way goes on until it comes back below the count.
            if at < self.count {
                return at as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_shares_of_the_law() {
        let (ranks, draws) = (10_000, 4_000_000);
        for skew in [0.6, 0.99, 1.3] {
            let zipf = Zipf::new(ranks, skew);
            let mut random = Rng::with_seed(7);
            let mut seen = vec![0.0_f64; ranks];
            (0..draws).for_each(|_| seen[zipf.rank(random.u64(..))] += 1.0);
            let weights: Vec<f64> = (1..=ranks).map(|of| (of as f64).powf(-skew)).collect();
            let all: f64 = weights.iter().sum();
            // Cells of at least 1,000 expected draws; the groups' own error of 3% stays inside of cells.
            let (mut cells, mut squares) = (0_u32, 0.0);
            let (mut expected, mut found) = (0.0, 0.0);
            for (weight, seen) in weights.iter().zip(&seen) {
                expected += weight / all * f64::from(draws);
                found += seen;
                if expected >= 20_000.0 {
                    squares += (found - expected) * (found - expected) / expected;
                    cells += 1;
                    (expected, found) = (0.0, 0.0);
                }
            }
            // Mean cells, variance twice that; five standard deviations.
            let most = f64::from(cells) + 5.0 * f64::from(2 * cells).sqrt();
            assert!(cells > 20 && squares < most, "{skew}: {squares} of {cells}");
            let least = seen[ranks / 2..].iter().filter(|of| **of == 0.0).count();
            assert!(skew > 1.0 || least == 0, "{least} ranks were never drawn");
        }
    }

    #[test]
    fn the_table_fits_a_cpus_own_cache() {
        let bytes = Zipf::new(1 << 20, 0.99).entries.len() * size_of::<Entry>();
        assert!(bytes < 10 << 10, "{bytes}");
    }

    #[test]
    fn scattering_reaches_each_place_once_and_keeps_no_neighbours() {
        for count in [1, 2, 3, 512, 1000, 4097] {
            let scatter = Scatter::new(count, 5);
            let mut places: Vec<usize> = (0..count).map(|of| scatter.place(of)).collect();
            let beside = places.windows(2).filter(|of| of[0].abs_diff(of[1]) == 1);
            assert!(count < 500 || beside.count() < count / 50, "{count}");
            places.sort_unstable();
            assert_eq!(places, Vec::from_iter(0..count));
        }
        let by_seed = |seed| Vec::from_iter((0..100).map(|of| Scatter::new(100, seed).place(of)));
        assert_eq!(by_seed(1), by_seed(1));
        assert_ne!(by_seed(1), by_seed(2));
    }
}
