// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-in for the core's records while they are being written.

use crate::random::Random;

pub(super) struct Records {
    pub(super) freq: Vec<u8>,
    pub(super) last: Vec<u64>,
    pub(super) threshold: u8,
    pub(super) most: u8,
    pub(super) step: u32,
    random: Random,
}

impl Records {
    pub(super) fn new(pages: u32, seed: u64) -> Self {
        Self {
            freq: vec![0; pages as usize],
            last: vec![0; pages as usize],
            threshold: 2,
            most: 7,
            step: 1,
            random: Random::new(seed ^ 77),
        }
    }
    pub(super) fn access(&mut self, page: u32, now: u64) {
        let f = &mut self.freq[page as usize];
        self.last[page as usize] = now;
        if *f < self.threshold {
            *f += 1;
        } else if *f < self.most {
            let bits = self.step * u32::from(*f - self.threshold + 1);
            if self.random.next() >> (64 - bits) == 0 || bits == 0 {
                *f += 1;
            }
        }
    }
    pub(super) fn cool(&mut self) {
        for f in &mut self.freq {
            *f = f.saturating_sub(1);
        }
    }
    pub(super) fn heat(&self, page: u32, now: u64) -> u32 {
        let age_ms = (now - self.last[page as usize]) / 1_000_000;
        let freq = u32::from(self.freq[page as usize]);
        if freq == 0 {
            return 0;
        }
        let age = match age_ms {
            0..16384 => age_ms / 2048,
            _ => (8 + (age_ms / 16384).ilog2()).min(15) as u64,
        };
        freq * 16 + (15 - age as u32)
    }
}
