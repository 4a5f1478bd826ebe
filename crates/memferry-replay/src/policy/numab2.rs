// SPDX-License-Identifier: MIT OR Apache-2.0
//! `numab2`: NUMA balancing's memory tiering mode of Linux 6.12.
//!
//! A scan marks pages of the lower tier, in address order, so that their next access faults. A fault whose page was marked
//! less than a threshold ago promotes it at once, in the thread that took it. Demotion is kswapd's.

use super::admission::Admission;
use super::hint_faults::HintFaults;
use super::{Policy, Site};
use crate::machine::MS;
use crate::tiers::{Tier, Tiers};

/// `numa_balancing_hot_threshold_ms`.
const HOT_THRESHOLD: u64 = 1000 * MS;

/// The policy.
pub(super) struct Numab2 {
    faults: HintFaults,
    admission: Admission,
}

impl Numab2 {
    pub(super) fn new(site: Site) -> Self {
        Self {
            faults: HintFaults::new(site),
            admission: Admission::new(site, HOT_THRESHOLD),
        }
    }
}

impl Policy for Numab2 {
    fn access(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        let Some(marked) = self.faults.fault(page, tiers) else {
            return;
        };
        if tiers.tier(page) != Some(Tier::Low)
            || !self.admission.admit(now, now - marked, tiers.free())
        {
            return;
        }
        if !tiers.promote(page) {
            // No room: this page is refused, and kswapd makes room for the next.
            tiers.reclaim();
        }
    }

    fn next_wake(&self) -> u64 {
        self.faults.next_scan()
    }

    fn wake(&mut self, now: u64, tiers: &mut Tiers) {
        self.faults.scan(now, tiers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::SECOND;

    /// Ten pages, two of them up, all below marked at one second.
    fn scanned() -> (Numab2, Tiers) {
        let mut policy = Numab2::new(Site::synthetic(10, 3));
        let mut tiers = Tiers::new(10, 3, 1);
        for page in 0..10 {
            let wanted = if page < 2 { Tier::Top } else { Tier::Low };
            tiers.allocate(page, wanted);
        }
        policy.wake(SECOND, &mut tiers);
        (policy, tiers)
    }

    #[test]
    fn one_access_soon_after_the_scan_promotes() {
        let (mut policy, mut tiers) = scanned();
        policy.access(5, SECOND + 999 * MS, &mut tiers);
        assert_eq!(tiers.tier(5), Some(Tier::Top));
        assert_eq!(tiers.close().faults, 1);
    }

    #[test]
    fn a_late_access_does_not_and_another_before_the_next_scan_does_not_either() {
        let (mut policy, mut tiers) = scanned();
        policy.access(5, 2 * SECOND, &mut tiers);
        policy.access(5, 2 * SECOND + 1, &mut tiers);
        assert_eq!(tiers.tier(5), Some(Tier::Low));
        assert_eq!(tiers.close().faults, 1, "the mark is gone after one fault");
    }

    #[test]
    fn pages_of_the_top_tier_are_not_marked() {
        let (mut policy, mut tiers) = scanned();
        policy.access(0, SECOND, &mut tiers);
        assert_eq!(tiers.close().faults, 0);
    }

    #[test]
    fn without_room_the_page_is_refused_and_kswapd_makes_room() {
        let (mut policy, mut tiers) = scanned();
        for page in [5, 6] {
            policy.access(page, SECOND + MS, &mut tiers);
        }
        assert_eq!(
            (tiers.tier(5), tiers.tier(6)),
            (Some(Tier::Top), Some(Tier::Low))
        );
        assert_eq!((tiers.tier(0), tiers.free()), (Some(Tier::Low), 1));
        policy.access(7, SECOND + MS, &mut tiers);
        assert_eq!(tiers.tier(7), Some(Tier::Top));
    }
}
