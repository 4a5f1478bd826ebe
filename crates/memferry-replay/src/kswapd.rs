// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion as kswapd does it when demotion is enabled: the pages of the top tier in a queue, a second chance for those
//! whose accessed bit is set, and no knowledge of what waits below.

use std::collections::VecDeque;

use crate::tiers::Tiers;

/// The queue of the top tier's pages, and the free space that demotion aims at.
pub struct Kswapd {
    /// The oldest at the front.
    queue: VecDeque<u32>,
    /// By page, whether it is in the queue.
    is_queued: Vec<bool>,
    watermark: u32,
}

impl Kswapd {
    /// For a trace of so many pages and a top tier of so many.
    pub fn new(pages: u32, capacity: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            is_queued: vec![false; pages as usize],
            watermark: promotion_watermark(capacity),
        }
    }

    /// A page has come to the top tier.
    pub fn insert(&mut self, page: u32) {
        if !std::mem::replace(&mut self.is_queued[page as usize], true) {
            self.queue.push_back(page);
        }
    }

    /// Demotes from the old end until the free space reaches the promotion watermark.
    pub fn run(&mut self, tiers: &mut Tiers) {
        // In the second round no bit is left to save a page.
        for _ in 0..2 * self.queue.len() {
            if tiers.free() >= self.watermark {
                break;
            }
            let Some(page) = self.queue.pop_front() else {
                break;
            };
            self.is_queued[page as usize] = false;
            if tiers.take_accessed(page) {
                self.insert(page);
            } else {
                tiers.demote(page);
            }
        }
    }
}

/// Pages that kswapd keeps free for promotions: 4/1000 of a zone with the kernel's default `watermark_scale_factor`
/// (a step of 1/1000 each for low, high and promotion, and about as much for the minimum).
pub fn promotion_watermark(capacity: u32) -> u32 {
    (capacity / 250).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::Tier;

    #[test]
    fn accessed_pages_get_a_second_chance() {
        let mut tiers = Tiers::new(3, 3, 1);
        let mut kswapd = Kswapd::new(3, 3);
        for page in 0..3 {
            tiers.allocate(page, Tier::Top);
            kswapd.insert(page);
        }
        tiers.touch(0, 1);
        kswapd.run(&mut tiers);
        assert_eq!(
            [0, 1, 2].map(|page| tiers.tier(page)),
            [Some(Tier::Top), Some(Tier::Low), Some(Tier::Top)]
        );
        assert!(!tiers.take_accessed(0), "the chance is used up");
    }

    #[test]
    fn one_page_goes_even_if_all_are_accessed() {
        let mut tiers = Tiers::new(3, 3, 1);
        let mut kswapd = Kswapd::new(3, 3);
        for page in 0..3 {
            tiers.allocate(page, Tier::Top);
            kswapd.insert(page);
            tiers.touch(page, 1);
        }
        kswapd.run(&mut tiers);
        assert_eq!(tiers.tier(0), Some(Tier::Low));
        assert_eq!(tiers.free(), 1);
        kswapd.insert(0);
        assert_eq!(kswapd.queue.len(), 3);
    }
}
