// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion as kswapd does it when demotion is enabled: the pages of the top tier in a queue, a second chance for those
//! whose accessed bit is set, and no knowledge of what waits below.

use crate::tiers::Tiers;

/// No page.
const NONE: u32 = u32::MAX;

/// The queue of the top tier's pages, and the free space that demotion aims at.
pub struct Kswapd {
    /// Neighbours towards the head (newer) and the tail (older); a page in no queue has itself as `newer`.
    newer: Vec<u32>,
    older: Vec<u32>,
    head: u32,
    tail: u32,
    length: u32,
    watermark: u32,
}

impl Kswapd {
    /// For a trace of so many pages and a top tier of so many.
    pub fn new(pages: u32, capacity: u32) -> Self {
        Self {
            newer: (0..pages).collect(),
            older: vec![NONE; pages as usize],
            head: NONE,
            tail: NONE,
            length: 0,
            watermark: promotion_watermark(capacity),
        }
    }

    /// A page has come to the top tier.
    pub fn insert(&mut self, page: u32) {
        if self.newer[page as usize] != page {
            return;
        }
        self.newer[page as usize] = NONE;
        self.older[page as usize] = self.head;
        match self.head {
            NONE => self.tail = page,
            head => self.newer[head as usize] = page,
        }
        self.head = page;
        self.length += 1;
    }

    /// Demotes from the old end until the free space reaches the promotion watermark.
    pub fn run(&mut self, tiers: &mut Tiers) {
        // In the second round no bit is left to save a page.
        let mut looks = 2 * self.length;
        while tiers.free() < self.watermark && looks > 0 && self.tail != NONE {
            looks -= 1;
            let page = self.tail;
            self.remove_tail();
            if tiers.take_accessed(page) {
                self.insert(page);
            } else {
                tiers.demote(page);
            }
        }
    }

    fn remove_tail(&mut self) {
        let page = self.tail;
        self.tail = self.newer[page as usize];
        match self.tail {
            NONE => self.head = NONE,
            tail => self.older[tail as usize] = NONE,
        }
        self.newer[page as usize] = page;
        self.older[page as usize] = NONE;
        self.length -= 1;
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
        assert_eq!(kswapd.length, 3);
    }
}
