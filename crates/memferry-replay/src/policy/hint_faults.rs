// SPDX-License-Identifier: MIT OR Apache-2.0
//! NUMA balancing's scanner: each second it marks some pages of the lower tier, and the next access to one faults.
//!
//! It is the source of `numab2`, and of pghot where hint faults feed it. What a fault leads to, those decide.

use super::Site;
use crate::machine::SECOND;
use crate::tiers::{Tier, Tiers};

/// `numa_balancing_scan_size_mb`.
const SCAN_BYTES: u64 = 256 << 20;

/// `numa_balancing_scan_period_min_ms`. Faults in the lower tier do not change a task's period in this mode.
const SCAN_PERIOD: u64 = SECOND;

/// A scan looks at no more than so many times the pages that it may mark.
const LOOK_FACTOR: u32 = 8;

/// The scanner.
pub(super) struct HintFaults {
    /// When a page was marked, for those that are.
    marked: Vec<Option<u64>>,
    next_page: u32,
    next_scan: u64,
    scan_pages: u32,
}

impl HintFaults {
    pub(super) fn new(site: Site) -> Self {
        Self {
            marked: vec![None; site.pages as usize],
            next_page: 0,
            // `numa_balancing_scan_delay_ms` is a second as well.
            next_scan: SCAN_PERIOD,
            scan_pages: site.base.pages(SCAN_BYTES, site.page_bytes),
        }
    }

    /// An access: when its page was marked, if that makes it a fault.
    pub(super) fn fault(&mut self, page: u32, tiers: &mut Tiers) -> Option<u64> {
        let marked = self.marked[page as usize].take()?;
        tiers.fault();
        Some(marked)
    }

    /// When the next scan is due.
    pub(super) fn next_scan(&self) -> u64 {
        self.next_scan
    }

    /// Marks pages of the lower tier, from where the last scan ended.
    pub(super) fn scan(&mut self, now: u64, tiers: &Tiers) {
        self.next_scan = now + SCAN_PERIOD;
        let mut looks = self
            .scan_pages
            .saturating_mul(LOOK_FACTOR)
            .min(tiers.pages());
        let mut marks = self.scan_pages;
        while looks > 0 && marks > 0 {
            let page = self.next_page;
            self.next_page = (page + 1) % tiers.pages();
            looks -= 1;
            if tiers.tier(page) == Some(Tier::Low) {
                marks -= 1;
                self.marked[page as usize].get_or_insert(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_marks_its_size_and_goes_on_from_there() {
        let mut faults = HintFaults::new(Site::synthetic(200, 3));
        let mut tiers = Tiers::new(200, 3, 1);
        (0..200).for_each(|page| {
            tiers.allocate(page, Tier::Low);
        });
        faults.scan(SECOND, &tiers);
        let marked = |faults: &HintFaults| faults.marked.iter().flatten().count();
        assert_eq!(marked(&faults), 64);
        faults.scan(2 * SECOND, &tiers);
        assert_eq!(marked(&faults), 128);
        assert_eq!(faults.marked[64], Some(2 * SECOND));
    }
}
