// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small generator of numbers that look random and are the same on every machine (xorshift64*).

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// A number of a seed, by one step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): seeds near each other give numbers
/// that are not.
pub fn mixed(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(GOLDEN);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What SplitMix64 adds to its state in each step.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// From a seed; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(mixed(seed) | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}
