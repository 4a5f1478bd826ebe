// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lru`: accessed bits and nothing else. A walk over page tables promotes pages of the lower tier that it finds accessed twice in
//! a row, in address order; kswapd demotes by second chance.
//!
//! The walk has the pace of NUMA balancing's scan: it reads as many entries a second.

use super::{Policy, Site};
use crate::machine::SECOND;
use crate::tiers::{Tier, Tiers};

/// Bytes that the walk looks at in a second, as NUMA balancing's scan.
const WALK_BYTES: u64 = 256 << 20;

/// The policy.
pub(super) struct Lru {
    /// Pages that the last visit found accessed.
    referenced: Vec<bool>,
    next_page: u32,
    next_walk: u64,
    walk_pages: u32,
}

impl Lru {
    pub(super) fn new(site: Site) -> Self {
        Self {
            referenced: vec![false; site.pages as usize],
            next_page: 0,
            next_walk: SECOND,
            walk_pages: site.base.pages(WALK_BYTES, site.page_bytes),
        }
    }
}

impl Policy for Lru {
    fn next_wake(&self) -> u64 {
        self.next_walk
    }

    fn wake(&mut self, now: u64, tiers: &mut Tiers) {
        self.next_walk = now + SECOND;
        for _ in 0..self.walk_pages.min(tiers.pages()) {
            let page = self.next_page;
            self.next_page = (page + 1) % tiers.pages();
            if tiers.tier(page) != Some(Tier::Low) {
                continue;
            }
            let accessed = tiers.take_accessed(page);
            let before = std::mem::replace(&mut self.referenced[page as usize], accessed);
            if !(accessed && before) {
                continue;
            }
            if tiers.free() == 0 {
                tiers.reclaim();
            }
            if tiers.promote(page) {
                self.referenced[page as usize] = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_visits_that_find_a_page_accessed_promote_it() {
        let mut policy = Lru::new(Site::synthetic(4, 1));
        let mut tiers = Tiers::new(4, 1, 1);
        for page in 0..4 {
            tiers.allocate(page, Tier::Top);
        }
        for walk in 1..=2 {
            assert_eq!(tiers.tier(2), Some(Tier::Low));
            tiers.touch(2, 1);
            policy.wake(walk * SECOND, &mut tiers);
        }
        assert_eq!(tiers.tier(2), Some(Tier::Top));
        assert_eq!(tiers.tier(0), Some(Tier::Low), "nobody touched it");
    }
}
