// SPDX-License-Identifier: MIT OR Apache-2.0
//! How NUMA balancing, and pghot after it, admit promotions: free space, a threshold that follows the number of candidates,
//! and a rate limit. Linux 6.12, kernel/sched/fair.c, should_numa_migrate_memory() and what it calls.

use super::Site;
use crate::machine::{MS, SECOND};
use crate::tiers::promotion_watermark;

/// `promote_rate_limit_MBps`, both systems' default.
const RATE_LIMIT_MBPS: u64 = 65536;

/// `numa_balancing_scan_period_max_ms`: how often the threshold is adjusted.
const ADJUST_NS: u64 = 60 * SECOND;

/// The threshold changes by an eighth of its reference (`2 / NUMA_MIGRATION_ADJUST_STEPS`).
const STEP: u64 = 8;

/// The state of one target.
pub(super) struct Admission {
    reference: u64,
    threshold: u64,
    limit_pages: u64,
    enough_free: u32,
    candidates: u64,
    window: (u64, u64),
    second: (u64, u64),
}

impl Admission {
    /// With a reference threshold in ns.
    pub(super) fn new(site: Site, reference: u64) -> Self {
        let gibibyte = site.base.pages(1 << 30, site.page_bytes);
        let enough = gibibyte.max(site.capacity / 16);
        Self {
            reference,
            threshold: reference,
            limit_pages: site
                .base
                .pages(RATE_LIMIT_MBPS << 20, site.page_bytes)
                .into(),
            enough_free: promotion_watermark(site.capacity).saturating_add(enough),
            candidates: 0,
            window: (0, 0),
            second: (0, 0),
        }
    }

    /// Whether a page may go up whose access is `age` old: a hint fault's latency, or the time since a record's access.
    pub(super) fn admit(&mut self, now: u64, age: u64, free: u32) -> bool {
        if free > self.enough_free {
            self.threshold = self.reference;
            return true;
        }
        self.adjust(now);
        // Both count in whole milliseconds.
        if age / MS >= self.threshold / MS {
            return false;
        }
        self.candidates += 1;
        if now - self.second.0 > SECOND {
            self.second = (now, self.candidates);
        }
        self.candidates - self.second.1 < self.limit_pages
    }

    fn adjust(&mut self, now: u64) {
        if now - self.window.0 <= ADJUST_NS {
            return;
        }
        let wanted = self.limit_pages * (ADJUST_NS / SECOND);
        let got = self.candidates - self.window.1;
        let step = self.reference / STEP;
        if got > wanted * 11 / 10 {
            self.threshold = (self.threshold - step).max(step);
        } else if got < wanted * 9 / 10 {
            self.threshold = (self.threshold + step).min(2 * self.reference);
        }
        self.window = (now, self.candidates);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        Admission::new(Site::synthetic(10_000, 2000), SECOND)
    }

    #[test]
    fn free_space_admits_whatever_the_age() {
        let mut admission = admission();
        assert_eq!(admission.enough_free, 8 + 256);
        assert!(admission.admit(0, 9 * SECOND, 265));
        assert!(!admission.admit(0, 9 * SECOND, 264));
        assert!(admission.admit(0, SECOND - MS, 264));
        assert!(!admission.admit(0, SECOND, 264));
    }

    #[test]
    fn the_threshold_rises_to_twice_its_reference_while_candidates_are_few() {
        let mut admission = admission();
        for window in 1..=20 {
            admission.admit(window * 61 * SECOND, 0, 0);
        }
        assert_eq!(admission.threshold, 2 * SECOND);
        assert!(admission.admit(2000 * SECOND, 1999 * MS, 0));
    }

    #[test]
    fn the_rate_limit_counts_candidates_of_a_second() {
        let mut admission = admission();
        admission.limit_pages = 10;
        let admitted = (0..100)
            .filter(|_| admission.admit(SECOND * 3, 0, 0))
            .count();
        // The candidate that opens the window is not counted in it.
        assert_eq!(admitted, 10);
        assert!(admission.admit(SECOND * 5, 0, 0));
    }
}
