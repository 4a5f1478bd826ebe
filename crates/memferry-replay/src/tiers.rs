// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where each page lies, its accessed bit, and the account of what moved.
//!
//! It keeps every page in one tier and the top tier within its capacity; which page moves, policies decide, or
//! [`Tiers::reclaim`] for them.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The fast one.
    Top,
    /// The large one.
    Low,
}

/// Bands of addresses that are counted for the picture of a replay.
pub const BANDS: usize = 96;

/// What moved, and what it was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Account {
    /// Pages that went up.
    #[serde(rename = "promoted_pages")]
    pub promoted: u64,
    /// Pages that went down.
    #[serde(rename = "demoted_pages")]
    pub demoted: u64,
    /// Promotions that were not paid back by accesses before the page went down again, or the trace ended.
    #[serde(rename = "wasted_pages")]
    pub wasted: u64,
    /// Promotions of pages that had been promoted and demoted before.
    #[serde(rename = "returned_pages")]
    pub returned: u64,
    /// Hint faults.
    #[serde(rename = "hint_faults")]
    pub faults: u64,
    /// Promotions of pages that belong to the hot set of that time.
    #[serde(skip)]
    pub promoted_hot: u64,
}

/// The two tiers with their pages.
pub struct Tiers {
    /// None until the first touch.
    place: Vec<Option<Tier>>,
    accessed: Vec<bool>,
    young: Vec<bool>,
    capacity: u32,
    used: u32,
    /// Pages that came to the top tier, the oldest at the front; one that left it may be among them.
    queue: VecDeque<u32>,
    /// By page, whether it is in the queue.
    is_queued: Vec<bool>,
    /// Accesses since the last promotion, of pages that are up because of one.
    since: Vec<Option<u64>>,
    was_promoted: Vec<bool>,
    pays_after: u64,
    account: Account,
    in_band: [u32; BANDS],
    /// Whether a page is hot at this time; told by the replay, read by nobody but the account.
    hot: Vec<bool>,
}

impl Tiers {
    /// Two empty tiers for a trace of so many pages.
    pub fn new(pages: usize, capacity: u32, pays_after: u64) -> Self {
        Self {
            place: vec![None; pages],
            accessed: vec![false; pages],
            young: vec![false; pages],
            capacity,
            used: 0,
            queue: VecDeque::new(),
            is_queued: vec![false; pages],
            since: vec![None; pages],
            was_promoted: vec![false; pages],
            pays_after,
            account: Account::default(),
            in_band: [0; BANDS],
            hot: vec![false; pages],
        }
    }

    /// Pages of the trace, touched yet or not.
    pub fn pages(&self) -> u32 {
        self.place.len() as u32
    }

    /// Pages that the top tier can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Pages that the top tier has room for.
    pub fn free(&self) -> u32 {
        self.capacity - self.used
    }

    /// Where a page lies; none before its first touch.
    pub fn tier(&self, page: u32) -> Option<Tier> {
        self.place[page as usize]
    }

    /// Whether a page was accessed since the source asked last. Linux keeps this apart from what reclaim sees (a page's
    /// `young` flag), so that one does not blind the other.
    pub fn take_young(&mut self, page: u32) -> bool {
        std::mem::take(&mut self.young[page as usize])
    }

    /// Reads and clears the accessed bit, as reclaim does.
    pub fn take_accessed(&mut self, page: u32) -> bool {
        std::mem::take(&mut self.accessed[page as usize])
    }

    /// Puts a page where it is touched first; the lower tier if the top one is full.
    pub fn allocate(&mut self, page: u32, wanted: Tier) -> Tier {
        let tier = if self.free() == 0 { Tier::Low } else { wanted };
        debug_assert!(self.tier(page).is_none(), "page {page} is there already");
        self.place[page as usize] = Some(tier);
        if tier == Tier::Top {
            self.enter(page);
        }
        tier
    }

    /// Moves a page up; false if it is not below or there is no room.
    pub fn promote(&mut self, page: u32) -> bool {
        if self.tier(page) != Some(Tier::Low) || self.free() == 0 {
            return false;
        }
        let index = page as usize;
        self.place[index] = Some(Tier::Top);
        self.enter(page);
        self.account.promoted += 1;
        self.account.promoted_hot += u64::from(self.hot[index]);
        self.account.returned += u64::from(self.was_promoted[index]);
        self.was_promoted[index] = true;
        self.since[index] = Some(0);
        true
    }

    /// Moves a page down; false if it is not up.
    pub fn demote(&mut self, page: u32) -> bool {
        if self.tier(page) != Some(Tier::Top) {
            return false;
        }
        let index = page as usize;
        self.place[index] = Some(Tier::Low);
        self.used -= 1;
        let band = self.band(page);
        self.in_band[band] -= 1;
        self.account.demoted += 1;
        if let Some(accesses) = self.since[index].take() {
            self.account.wasted += u64::from(accesses < self.pays_after);
        }
        true
    }

    /// Demotes as kswapd does when demotion is enabled: from the old end, with a second chance for pages whose accessed bit is
    /// set and no knowledge of what waits below, until the free space reaches the promotion watermark.
    pub fn reclaim(&mut self) {
        // In the second round no bit is left to save a page.
        for _ in 0..2 * self.queue.len() {
            if self.free() >= promotion_watermark(self.capacity) {
                break;
            }
            let Some(page) = self.queue.pop_front() else {
                break;
            };
            self.is_queued[page as usize] = false;
            if self.take_accessed(page) {
                self.enqueue(page);
            } else {
                self.demote(page);
            }
        }
    }

    /// Counts a hint fault.
    pub fn fault(&mut self) {
        self.account.faults += 1;
    }

    /// Accesses reach a page.
    pub(crate) fn touch(&mut self, page: u32, accesses: u64) {
        self.accessed[page as usize] = true;
        self.young[page as usize] = true;
        if let Some(since) = &mut self.since[page as usize] {
            *since += accesses;
        }
    }

    /// Which pages are hot from now on.
    pub(crate) fn set_hot(&mut self, page: u32, hot: bool) {
        self.hot[page as usize] = hot;
    }

    /// Pages of the top tier in each band of addresses.
    pub(crate) fn bands(&self) -> &[u32; BANDS] {
        &self.in_band
    }

    /// The account at the end: promotions that have not paid yet are wasted.
    pub(crate) fn close(&self) -> Account {
        let unpaid = self
            .since
            .iter()
            .flatten()
            .filter(|&&accesses| accesses < self.pays_after);
        Account {
            wasted: self.account.wasted + unpaid.count() as u64,
            ..self.account
        }
    }

    fn enqueue(&mut self, page: u32) {
        if !std::mem::replace(&mut self.is_queued[page as usize], true) {
            self.queue.push_back(page);
        }
    }

    fn enter(&mut self, page: u32) {
        self.enqueue(page);
        self.used += 1;
        let band = self.band(page);
        self.in_band[band] += 1;
    }

    /// The band of addresses that a page belongs to.
    fn band(&self, page: u32) -> usize {
        band(page, self.place.len())
    }
}

/// Pages that kswapd keeps free for promotions: 4/1000 of a zone with the kernel's default `watermark_scale_factor`
/// (a step of 1/1000 each for low, high and promotion, and about as much for the minimum).
pub fn promotion_watermark(capacity: u32) -> u32 {
    (capacity / 250).max(1)
}

/// The band of addresses that a page belongs to, among so many pages.
pub fn band(page: u32, pages: usize) -> usize {
    page as usize * BANDS / pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_tier_never_holds_more_than_it_can() {
        let mut tiers = Tiers::new(4, 2, 10);
        let places: Vec<Tier> = (0..4).map(|page| tiers.allocate(page, Tier::Top)).collect();
        assert_eq!(places, [Tier::Top, Tier::Top, Tier::Low, Tier::Low]);
        assert!(!tiers.promote(2), "full");
        assert!(!tiers.promote(0), "up already");
        assert!(tiers.demote(0) && !tiers.demote(0));
        assert!(tiers.promote(2));
        assert_eq!(tiers.free(), 0);
        assert_eq!(tiers.bands().iter().sum::<u32>(), 2);
    }

    #[test]
    fn a_promotion_is_wasted_until_it_has_paid() {
        let mut tiers = Tiers::new(2, 1, 10);
        tiers.allocate(0, Tier::Low);
        assert!(tiers.promote(0));
        tiers.touch(0, 9);
        assert_eq!(tiers.close().wasted, 1);
        tiers.touch(0, 1);
        assert_eq!(tiers.close().wasted, 0);
        assert!(tiers.demote(0) && tiers.promote(0) && tiers.demote(0));
        let account = tiers.close();
        assert_eq!(
            (
                account.promoted,
                account.demoted,
                account.wasted,
                account.returned
            ),
            (2, 2, 1, 1)
        );
    }

    #[test]
    fn accessed_pages_get_a_second_chance() {
        let mut tiers = Tiers::new(3, 3, 1);
        for page in 0..3 {
            tiers.allocate(page, Tier::Top);
        }
        tiers.touch(0, 1);
        tiers.reclaim();
        assert_eq!(
            [0, 1, 2].map(|page| tiers.tier(page)),
            [Some(Tier::Top), Some(Tier::Low), Some(Tier::Top)]
        );
        assert!(!tiers.take_accessed(0), "the chance is used up");
    }

    #[test]
    fn one_page_goes_even_if_all_are_accessed() {
        let mut tiers = Tiers::new(3, 3, 1);
        for page in 0..3 {
            tiers.allocate(page, Tier::Top);
            tiers.touch(page, 1);
        }
        tiers.reclaim();
        assert_eq!(tiers.tier(0), Some(Tier::Low));
        assert_eq!(tiers.free(), 1);
        assert!(tiers.promote(0));
        assert_eq!(tiers.queue.len(), 3);
    }
}
