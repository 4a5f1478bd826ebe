// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ours`: the policy of `core/hotness` and `core/pace`, as kernel and daemon run it.
//!
//! Pages of both tiers have a record, which moves with its page. The source walks page tables as often as samples say that the
//! lower tier costs more than a walk does. Four times a second a sweep ages the records and counts them by frequency and age; room is kept for as many new pages as
//! came lately, free space beyond it goes to the hottest pages that fit, and then the hottest of the lower tier change places with
//! the coldest of the top one, as long as that wins more than it costs. Pages that bounced have a higher bar. Who is not chosen keeps
//! its record.

use std::cmp::Reverse;

use memferry_core::balance::{self, Balance};
use memferry_core::hotness::{
    Access, Bounces, HEATS, Histogram, IDLE_AGE, ParamError, Policy as Core, Record, Sweep,
};
use memferry_core::pace::{Pace, PaceParams};

use super::walks::Walks;
use super::{Policy, Site};
use crate::machine::{MS, Machine};
use crate::random::Random;
use crate::tiers::{Tier, Tiers};

/// The records of one tier's pages, without gaps, so that a sweep sees nothing else.
struct Store<R> {
    records: Vec<R>,
    pages: Vec<u32>,
}

impl<R: Record> Store<R> {
    fn new() -> Self {
        Self {
            records: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// The pages with a heat in `heats`, with their heat, in no order that means anything.
    fn find(&self, core: &Core<R>, now: u32, heats: (u32, u32)) -> Vec<(u32, u32)> {
        let found = core.find(&self.records, now, heats).into_iter();
        found.map(|(heat, at)| (heat, self.pages[at])).collect()
    }
}

/// Bytes a second that may be promoted: as many as NUMA balancing and pghot allow, so that no policy is held back by it.
const RATE: u64 = 65536 << 20;

/// The policy.
pub(super) struct Ours<R> {
    core: Core<R>,
    top: Store<R>,
    low: Store<R>,
    /// Where a page's record is in its tier's store.
    place: Vec<u32>,
    bounces: Bounces,
    pace: Pace,
    /// Bytes that one page stands for.
    page_bytes: u64,
    random: Random,
    sweep: Sweep,
    next_wake: u64,
    /// Pages touched first since the last sweep.
    born: u32,
    balance: Balance,
    walks: Walks,
    /// What accesses to the lower tier cost since the last round, ns, and what each sample stands for of it; none without samples.
    lost: u64,
    lost_by_sample: Option<u64>,
    /// What a walk takes for each page, ns.
    walk_page_ns: u64,
}

impl<R: Record> Ours<R> {
    pub(super) fn new(site: Site, machine: &Machine) -> Result<Self, ParamError> {
        let (params, rounds) = balance::defaults::<R>();
        let core = Core::new(params)?;
        let pace = Pace::new(
            PaceParams {
                rate: RATE,
                ..PaceParams::default()
            },
            0,
        )?;
        Ok(Self {
            next_wake: u64::from(core.params().sweep_ms) * MS,
            core,
            top: Store::new(),
            low: Store::new(),
            place: vec![0; site.pages as usize],
            bounces: Bounces::default(),
            pace,
            page_bytes: u64::from(site.page_bytes) * site.base.scale,
            // Any number that the sampler does not start from as well.
            random: Random::new(machine.seed ^ 0x6f75_7273),
            sweep: Sweep {
                now: 0,
                last: 0,
                number: 0,
            },
            born: 0,
            balance: Balance::new(rounds),
            walks: Walks::default(),
            lost: 0,
            lost_by_sample: (machine.sample_period > 0).then(|| {
                u64::from(machine.sample_period) * u64::from(machine.low_ns - machine.top_ns)
            }),
            walk_page_ns: machine.walk_page_ns.into(),
        })
    }

    fn store(&mut self, tier: Tier) -> &mut Store<R> {
        match tier {
            Tier::Top => &mut self.top,
            Tier::Low => &mut self.low,
        }
    }

    fn insert(&mut self, page: u32, tier: Tier, record: R) {
        let store = self.store(tier);
        let at = store.pages.len() as u32;
        store.pages.push(page);
        store.records.push(record);
        self.place[page as usize] = at;
    }

    /// Moves a page's record to another tier.
    fn carry(&mut self, page: u32, from: Tier, to: Tier) {
        let at = self.place[page as usize] as usize;
        let store = self.store(from);
        store.pages.swap_remove(at);
        let record = store.records.swap_remove(at);
        if let Some(&moved) = store.pages.get(at) {
            self.place[moved as usize] = at as u32;
        }
        self.insert(page, to, record);
    }

    fn promote(&mut self, page: u32, tiers: &mut Tiers) -> bool {
        let moved = tiers.promote(page);
        if moved {
            self.carry(page, Tier::Low, Tier::Top);
            self.bounces.promoted(page.into());
        }
        moved
    }

    fn demote(&mut self, page: u32, tiers: &mut Tiers) {
        if tiers.demote(page) {
            self.carry(page, Tier::Top, Tier::Low);
            self.bounces.demoted(page.into());
        }
    }

    /// Ages the records, and counts those of the top and of the lower tier.
    fn age(&mut self, now: u32) -> (Histogram, Histogram) {
        self.sweep = Sweep {
            now,
            last: self.sweep.now,
            number: self.sweep.number + 1,
        };
        let (mut top, mut low) = (Histogram::default(), Histogram::default());
        R::sweep(&mut self.top.records, &self.core, &self.sweep, &mut top);
        R::sweep(&mut self.low.records, &self.core, &self.sweep, &mut low);
        leave_out_idle(&mut low);
        if self.sweep.number % self.balance.params().bounce_rounds == 0 {
            self.bounces.age();
        }
        (top, low)
    }

    /// Demotes idle pages until there is room for as many new pages as came lately: what is new is hot.
    fn make_room(&mut self, now: u32, tiers: &mut Tiers) {
        let born = std::mem::take(&mut self.born).into();
        let short = self
            .balance
            .room(born, tiers.capacity().into(), tiers.free().into());
        if short == 0 {
            return;
        }
        let idle = balance::idle(&self.core);
        let mut cold = self.top.find(&self.core, now, (0, idle));
        cold.sort_unstable();
        for (_, page) in cold.into_iter().take(short as usize) {
            self.demote(page, tiers);
        }
    }

    /// The pages of the lower tier that may go up, as `kmigrated_choose()` has them: in use, and at the threshold. The hottest
    /// first, and where heat is equal the lower address.
    fn hottest(&self, now: u32, least: u32) -> Vec<(u32, u32)> {
        let mut found = self.low.find(&self.core, now, (least, HEATS - 1));
        found.retain(|&(_, page)| {
            let view = self.low.records[self.place[page as usize] as usize].view(now);
            u32::from(view.freq) >= self.core.params().threshold && usize::from(view.age) < IDLE_AGE
        });
        found.sort_unstable_by_key(|&(heat, page)| (Reverse(heat), page));
        found
    }

    /// Promotes the hottest pages that fit the free space; says how many went.
    fn fill(&mut self, now: u32, low: &Histogram, budget: u64, tiers: &mut Tiers) -> u64 {
        let free = tiers.free().into();
        let (cut, room) = self.balance.fill(&self.core, low, free, budget);
        if room == 0 {
            return 0;
        }
        let found = self.hottest(now, cut.heat).into_iter();
        let chosen = found.take((cut.above + cut.room) as usize);
        chosen
            .filter(|&(_, page)| self.promote(page, tiers))
            .count() as u64
    }

    /// Exchanges the hottest of the lower tier with the coldest of the top one; says how many pairs went.
    fn swap(
        &mut self,
        now: u32,
        tops: &Histogram,
        lows: &Histogram,
        budget: u64,
        tiers: &mut Tiers,
    ) -> u64 {
        let border = self.core.exchange(tops, lows, budget);
        if border.pages == 0 {
            return 0;
        }
        let hot = self.hottest(now, border.hot);
        let mut cold = self.top.find(&self.core, now, (0, border.cold));
        cold.sort_unstable();
        let mut pairs = 0;
        let mut cold = cold.into_iter();
        for (heat, page) in hot {
            if pairs == border.pages {
                break;
            }
            // What went up and down before has to be that much hotter than the border.
            if heat < balance::bar(&self.core, border.hot, self.bounces.of(page.into())) {
                continue;
            }
            let Some((_, victim)) = cold.next() else {
                break;
            };
            self.demote(victim, tiers);
            pairs += u64::from(self.promote(page, tiers));
        }
        pairs
    }
}

/// Idle pages take no place from pages in use, however hot they were, as `kmigrated_know_lower()` has it.
fn leave_out_idle(low: &mut Histogram) {
    for ages in &mut low.pages {
        ages[IDLE_AGE..].fill(0);
    }
}

impl<R: Record> Policy for Ours<R> {
    fn allocated(&mut self, page: u32, tier: Tier) {
        self.insert(page, tier, R::default());
        self.born += 1;
    }

    fn samples(&self) -> bool {
        true
    }

    fn walks(&mut self, tiers: &Tiers) -> bool {
        let lost = std::mem::take(&mut self.lost);
        let cost = u64::from(tiers.pages()) * self.walk_page_ns;
        let capacity = tiers.capacity().into();
        self.lost_by_sample.is_none() || self.walks.due(self.born.into(), capacity, lost, cost)
    }

    fn sampled(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        if tiers.tier(page) == Some(Tier::Low) {
            self.lost += self.lost_by_sample.unwrap_or(0);
        }
        self.report(page, now, tiers);
    }

    fn report(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        let access = Access {
            random: self.random.next() as u32,
            ..Access::at(now / MS)
        };
        let Some(tier) = tiers.tier(page) else {
            return;
        };
        let (at, core) = (self.place[page as usize] as usize, self.core);
        let record = &mut self.store(tier).records[at];
        *record = record.accessed(&core, &access);
    }

    fn next_wake(&self) -> u64 {
        self.next_wake
    }

    fn wake(&mut self, now: u64, tiers: &mut Tiers) {
        self.next_wake = now + u64::from(self.core.params().sweep_ms) * MS;
        let ms = now / MS;
        let (mut top, mut low) = self.age(ms as u32);
        let budget = self.pace.budget(ms) / self.page_bytes;
        let Some(reserved) = self.pace.reserve(ms, budget * self.page_bytes) else {
            return;
        };
        let mut moved = 0;
        let free = tiers.free();
        self.make_room(ms as u32, tiers);
        moved += self.fill(ms as u32, &low, budget, tiers);
        if moved > 0 || tiers.free() != free {
            (top, low) = (Histogram::default(), Histogram::default());
            R::count(&self.top.records, ms as u32, &mut top);
            R::count(&self.low.records, ms as u32, &mut low);
            leave_out_idle(&mut low);
        }
        moved += self.swap(ms as u32, &top, &low, budget - moved, tiers);
        self.pace.settle(reserved, moved * self.page_bytes);
    }

    fn tracker_bytes(&self) -> u64 {
        (self.place.len() * size_of::<R>() + self.bounces.bytes()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten pages, of which the first three are up.
    fn rig() -> (Ours<u32>, Tiers) {
        let (mut policy, tiers) = rig_of(10, 3, 10);
        policy.born = 0;
        (policy, tiers)
    }

    /// Some pages, a top tier for some of them, and so many touched once, in order.
    fn rig_of(pages: u32, capacity: u32, touched: u32) -> (Ours<u32>, Tiers) {
        let site = Site::synthetic(pages, capacity);
        let mut policy = Ours::new(site, &Machine::default()).expect("parameters");
        let mut tiers = Tiers::new(pages as usize, capacity, 1);
        for page in 0..touched {
            let tier = tiers.allocate(page, Tier::Top);
            policy.allocated(page, tier);
        }
        (policy, tiers)
    }

    /// Walks that find these pages touched, each with its sweep.
    fn walks(policy: &mut Ours<u32>, tiers: &mut Tiers, from: u64, times: u64, touched: &[u32]) {
        for walk in from..from + times {
            let now = (walk + 1) * 250 * MS;
            touched
                .iter()
                .for_each(|&page| policy.report(page, now, tiers));
            policy.wake(now, tiers);
        }
    }

    #[test]
    fn page_tables_are_walked_as_often_as_the_lower_tier_costs() {
        let (mut policy, mut tiers) = rig();
        let walked =
            |policy: &mut Ours<u32>, tiers: &Tiers| (0..80).filter(|_| policy.walks(tiers)).count();
        // A sample of the top tier is no loss.
        policy.sampled(1, 0, &mut tiers);
        assert_eq!(walked(&mut policy, &tiers), 10);
        policy.sampled(7, 0, &mut tiers);
        assert_eq!(walked(&mut policy, &tiers), 13);
        policy.born = 1;
        assert_eq!(walked(&mut policy, &tiers), 80);

        let machine = Machine {
            sample_period: 0,
            ..Machine::default()
        };
        let mut blind = Ours::new(Site::synthetic(10, 3), &machine).expect("parameters");
        assert_eq!(walked(&mut blind, &tiers), 80, "nobody tells what is lost");
    }

    #[test]
    fn one_touch_is_a_scan_and_several_are_use() {
        let (mut policy, mut tiers) = rig();
        walks(&mut policy, &mut tiers, 0, 1, &[0, 1, 2, 5]);
        walks(&mut policy, &mut tiers, 1, 8, &[0, 1]);
        assert_eq!(tiers.close().promoted, 0, "page 5 was touched once");
        walks(&mut policy, &mut tiers, 9, 12, &[0, 1, 5]);
        assert_eq!(tiers.tier(5), Some(Tier::Top));
        assert_eq!(
            tiers.tier(2),
            Some(Tier::Low),
            "the only one that nobody uses"
        );
        assert_eq!(tiers.close().promoted, 1);
    }

    #[test]
    fn the_hotter_page_goes_first_whatever_its_address() {
        let (mut policy, mut tiers) = rig();
        for page in [0, 1, 2, 9] {
            (0..6).for_each(|_| policy.report(page, 200 * MS, &mut tiers));
        }
        (0..3).for_each(|_| policy.report(4, 200 * MS, &mut tiers));
        tiers.demote(2);
        policy.carry(2, Tier::Top, Tier::Low);
        policy.place[2] = policy
            .low
            .pages
            .iter()
            .position(|&page| page == 2)
            .expect("below") as u32;
        policy.wake(250 * MS, &mut tiers);
        assert_eq!(tiers.close().promoted, 1, "one page's room");
        assert_eq!(tiers.tier(4), Some(Tier::Low));
    }

    #[test]
    fn free_room_is_for_pages_in_use_that_reached_the_threshold() {
        // All that lie below fit above.
        let rig = || {
            let (mut policy, mut tiers) = rig_of(10, 8, 4);
            (0..4).for_each(|page| policy.demote(page, &mut tiers));
            policy.born = 0;
            (policy, tiers)
        };
        let (mut policy, mut tiers) = rig();
        policy.report(1, 200 * MS, &mut tiers);
        (0..2).for_each(|_| policy.report(2, 200 * MS, &mut tiers));
        policy.wake(250 * MS, &mut tiers);
        let up = |tiers: &Tiers| [0, 1, 2, 3].map(|page| tiers.tier(page) == Some(Tier::Top));
        assert_eq!(up(&tiers), [false, false, true, false]);

        // Hot, but a while ago.
        let (mut policy, mut tiers) = rig();
        (0..7).for_each(|_| policy.report(2, 200 * MS, &mut tiers));
        for now in (250..1500).step_by(250) {
            policy.age(now);
        }
        policy.wake(1500 * MS, &mut tiers);
        assert_eq!(up(&tiers), [false; 4]);
    }

    #[test]
    fn room_is_made_for_new_pages_while_there_are_any() {
        let (mut policy, mut tiers) = rig_of(40, 16, 32);
        walks(&mut policy, &mut tiers, 0, 1, &[]);
        assert_eq!(tiers.free(), 4, "a quarter");
        let tier = tiers.allocate(32, Tier::Top);
        policy.allocated(32, tier);
        assert_eq!(tier, Tier::Top);
        walks(&mut policy, &mut tiers, 1, 1, &[]);
        assert_eq!((tiers.free(), tiers.close().demoted), (4, 5));
        walks(&mut policy, &mut tiers, 2, 100, &[]);
        assert_eq!(tiers.close().demoted, 5);
    }

    #[test]
    fn a_page_that_was_not_chosen_keeps_its_record() {
        let (mut policy, mut tiers) = rig();
        walks(&mut policy, &mut tiers, 0, 12, &[0, 1, 2, 7]);
        assert_eq!(tiers.tier(7), Some(Tier::Low), "no one above is colder");
        let at = policy.place[7] as usize;
        assert!(policy.low.records[at].view(3000).freq > 4);
    }

    #[test]
    fn records_follow_their_pages() {
        let (mut policy, mut tiers) = rig();
        walks(&mut policy, &mut tiers, 0, 30, &[7, 8, 9]);
        assert_eq!([7, 8, 9].map(|page| tiers.tier(page)), [Some(Tier::Top); 3]);
        for (tier, store) in [(Tier::Top, &policy.top), (Tier::Low, &policy.low)] {
            assert_eq!(store.pages.len(), store.records.len());
            for (at, &page) in store.pages.iter().enumerate() {
                assert_eq!(
                    (tiers.tier(page), policy.place[page as usize] as usize),
                    (Some(tier), at)
                );
            }
        }
    }
}
