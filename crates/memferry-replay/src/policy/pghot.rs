// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pghot-default` and `pghot-precise`: the series as published (v6 to v8), with what it lacks.
//!
//! A record counts accesses that follow each other within a window. Its time is modulo its field and nothing ages it, so an
//! access of long ago can count as recent. kmigrated takes ready pages in address order, whatever their frequency, and clears
//! a record before it asks whether the page may go: who is refused starts from nothing. Pages of the top tier have no record;
//! demotion is kswapd's.
//!
//! HZ is 1000, at which its window is in the unit that it takes it for. Its source is the replay's sampler; or, as in the
//! published runs against NUMA balancing, the faults of its scanner with a threshold of one access.

use super::admission::Admission;
use super::hint_faults::HintFaults;
use super::{Policy, Site};
use crate::machine::MS;
use crate::tiers::{Tier, Tiers};

/// `kmigrated_sleep_ms`.
const SLEEP: u64 = 100 * MS;

/// Bytes of a section of memory, whose flag says that it has a ready page.
const SECTION_BYTES: u64 = 128 << 20;

/// What the two builds differ in.
#[derive(Clone, Copy)]
pub(super) struct Tunables {
    /// `freq_threshold`.
    threshold: u32,
    /// `pghot_promote_freq_window_ms`.
    window_ms: u64,
    /// Largest frequency of a record.
    freq_most: u32,
    /// log2 of the milliseconds of a time bucket.
    bucket_shift: u32,
    /// Largest bucket; the next one is 0 again.
    time_mask: u64,
    /// Bytes of a record.
    record_bytes: u64,
    /// Fed by hint faults in place of the replay's sampler.
    by_faults: bool,
}

impl Tunables {
    /// The build with one byte a page.
    pub(super) fn default_mode() -> Self {
        Self {
            threshold: 2,
            window_ms: 3000,
            freq_most: 3,
            bucket_shift: 7,
            time_mask: 31,
            record_bytes: 1,
            by_faults: false,
        }
    }

    /// The build with four bytes a page (`CONFIG_PGHOT_PRECISE`).
    pub(super) fn precise_mode() -> Self {
        Self {
            threshold: 2,
            window_ms: 5000,
            freq_most: 7,
            bucket_shift: 0,
            time_mask: 0x3fff,
            record_bytes: 4,
            by_faults: false,
        }
    }

    /// As published for hint faults, of which a page has no two within the window: one makes it hot.
    pub(super) fn fed_by_faults(self) -> Self {
        Self {
            threshold: 1,
            by_faults: true,
            ..self
        }
    }
}

/// What a record says; all zero if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    freq: u32,
    bucket: u64,
    ready: bool,
}

/// The policy.
pub(super) struct Pghot {
    tunables: Tunables,
    records: Vec<Record>,
    section_pages: usize,
    hot_sections: Vec<bool>,
    active: bool,
    next_migration: u64,
    /// The source, if hint faults are.
    faults: Option<HintFaults>,
    admission: Admission,
}

impl Pghot {
    pub(super) fn new(site: Site, tunables: Tunables) -> Self {
        let section_pages = site.base.pages(SECTION_BYTES, site.page_bytes) as usize;
        Self {
            tunables,
            records: vec![Record::default(); site.pages as usize],
            section_pages,
            hot_sections: vec![false; (site.pages as usize).div_ceil(section_pages)],
            active: false,
            next_migration: SLEEP,
            faults: tunables.by_faults.then(|| HintFaults::new(site)),
            admission: Admission::new(site, tunables.window_ms * MS),
        }
    }

    fn bucket(&self, now: u64) -> u64 {
        ((now / MS) >> self.tunables.bucket_shift) & self.tunables.time_mask
    }

    /// The age of a record's access as the record can tell it, ms.
    fn age_ms(&self, record: Record, now: u64) -> u64 {
        (self.bucket(now).wrapping_sub(record.bucket) & self.tunables.time_mask)
            << self.tunables.bucket_shift
    }

    fn migrate(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        let record = std::mem::take(&mut self.records[page as usize]);
        let age = self.age_ms(record, now) * MS;
        if !self.admission.admit(now, age, tiers.free()) {
            return;
        }
        if !tiers.promote(page) {
            tiers.reclaim();
        }
    }
}

impl Policy for Pghot {
    fn access(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        let faults = self.faults.as_mut();
        if faults.is_some_and(|faults| faults.fault(page, tiers).is_some()) {
            self.report(page, now, tiers);
        }
    }

    fn samples(&self) -> bool {
        self.faults.is_none()
    }

    fn report(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        if tiers.tier(page) != Some(Tier::Low) {
            return;
        }
        let record = self.records[page as usize];
        let freq = match self.age_ms(record, now) > self.tunables.window_ms {
            true => 1,
            false => (record.freq + 1).min(self.tunables.freq_most),
        };
        let ready = record.ready || freq >= self.tunables.threshold;
        self.records[page as usize] = Record {
            freq,
            bucket: self.bucket(now),
            ready,
        };
        if ready {
            self.hot_sections[page as usize / self.section_pages] = true;
            self.active = true;
        }
    }

    fn next_wake(&self) -> u64 {
        let scan = self.faults.as_ref().map_or(u64::MAX, HintFaults::next_scan);
        self.next_migration.min(scan)
    }

    fn wake(&mut self, now: u64, tiers: &mut Tiers) {
        if let Some(faults) = self.faults.as_mut().filter(|of| of.next_scan() <= now) {
            faults.scan(now, tiers);
        }
        if self.next_migration > now {
            return;
        }
        self.next_migration = now + SLEEP;
        if !std::mem::take(&mut self.active) {
            return;
        }
        for section in 0..self.hot_sections.len() {
            if !std::mem::take(&mut self.hot_sections[section]) {
                continue;
            }
            let first = section * self.section_pages;
            let last = (first + self.section_pages).min(self.records.len());
            for page in first..last {
                if tiers.tier(page as u32) == Some(Tier::Low) && self.records[page].ready {
                    self.migrate(page as u32, now, tiers);
                }
            }
        }
    }

    fn tracker_bytes(&self) -> u64 {
        // The published map of a section has a header that doubles what the allocator gives it; here only what holds records.
        self.records.len() as u64 * self.tunables.record_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rig(tunables: Tunables, capacity: u32) -> (Pghot, Tiers) {
        let policy = Pghot::new(Site::synthetic(100, capacity), tunables);
        let mut tiers = Tiers::new(100, capacity, 1);
        // All above is taken, and in use.
        for page in 0..100 {
            let wanted = if page < 100 - capacity {
                Tier::Low
            } else {
                Tier::Top
            };
            tiers.allocate(page, wanted);
            tiers.touch(page, 1);
        }
        (policy, tiers)
    }

    /// One promotion's room.
    fn make_room(tiers: &mut Tiers) {
        assert!(tiers.demote(99));
    }

    #[test]
    fn two_accesses_within_the_window_make_a_page_ready() {
        for (tunables, window) in [
            (Tunables::default_mode(), 2900),
            (Tunables::precise_mode(), 4900),
        ] {
            let (mut policy, mut tiers) = rig(tunables, 10);
            make_room(&mut tiers);
            policy.report(3, 0, &mut tiers);
            policy.wake(SLEEP, &mut tiers);
            assert_eq!(tiers.tier(3), Some(Tier::Low));
            policy.report(3, window * MS, &mut tiers);
            policy.wake(window * MS, &mut tiers);
            assert_eq!(tiers.tier(3), Some(Tier::Top));
        }
    }

    #[test]
    fn accesses_a_window_apart_do_not() {
        let (mut policy, mut tiers) = rig(Tunables::precise_mode(), 10);
        make_room(&mut tiers);
        policy.report(3, 0, &mut tiers);
        policy.report(3, 5001 * MS, &mut tiers);
        assert!(!policy.records[3].ready);
    }

    #[test]
    fn an_access_of_one_time_range_ago_looks_recent() {
        // 32 buckets of 128 ms, and 2^14 ms.
        for (tunables, range) in [
            (Tunables::default_mode(), 4096),
            (Tunables::precise_mode(), 16384),
        ] {
            let (mut policy, mut tiers) = rig(tunables, 10);
            make_room(&mut tiers);
            policy.report(3, 128 * MS, &mut tiers);
            policy.report(3, (128 + 10 * range) * MS, &mut tiers);
            assert!(
                policy.records[3].ready,
                "two accesses, {} s apart",
                10 * range / 1000
            );
        }
    }

    #[test]
    fn room_goes_by_address_not_by_frequency() {
        let (mut policy, mut tiers) = rig(Tunables::precise_mode(), 10);
        make_room(&mut tiers);
        for _ in 0..7 {
            policy.report(50, MS, &mut tiers);
        }
        (0..2).for_each(|_| policy.report(3, MS, &mut tiers));
        policy.wake(SLEEP, &mut tiers);
        assert_eq!(
            (tiers.tier(3), tiers.tier(50)),
            (Some(Tier::Top), Some(Tier::Low))
        );
    }

    #[test]
    fn a_refused_page_is_forgotten() {
        let (mut policy, mut tiers) = rig(Tunables::precise_mode(), 10);
        for _ in 0..7 {
            policy.report(50, MS, &mut tiers);
        }
        policy.wake(SLEEP, &mut tiers);
        assert_eq!(tiers.tier(50), Some(Tier::Low), "no room");
        assert_eq!(policy.records[50], Record::default());
        assert!(tiers.free() > 0, "kswapd made room for others");
    }

    #[test]
    fn pages_of_the_top_tier_have_no_record() {
        let (mut policy, mut tiers) = rig(Tunables::default_mode(), 10);
        (0..9).for_each(|_| policy.report(95, MS, &mut tiers));
        assert_eq!(policy.records[95], Record::default());
    }

    #[test]
    fn one_hint_fault_makes_a_page_hot_and_the_next_pass_moves_it() {
        let (mut policy, mut tiers) = rig(Tunables::default_mode().fed_by_faults(), 10);
        make_room(&mut tiers);
        policy.access(3, MS, &mut tiers);
        assert_eq!(
            tiers.close().faults,
            0,
            "nothing is marked before the first scan"
        );
        while policy.next_wake() <= 1000 * MS {
            policy.wake(policy.next_wake(), &mut tiers);
        }
        policy.access(3, 1010 * MS, &mut tiers);
        policy.access(3, 1020 * MS, &mut tiers);
        assert_eq!(tiers.close().faults, 1);
        assert_eq!(
            tiers.tier(3),
            Some(Tier::Low),
            "the fault itself moves nothing"
        );
        policy.wake(policy.next_wake(), &mut tiers);
        assert_eq!(tiers.tier(3), Some(Tier::Top));
    }
}
