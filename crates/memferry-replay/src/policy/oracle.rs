// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracles, which know the trace.
//!
//! `oracle-static` holds the pages with most accesses from their first touch to the end.
//!
//! `oracle` may change its placement between two slices. Of all such plans the best has the most accesses in the top tier, less
//! a price for each promotion: the accesses that pay for a way up and down. Where a page is first touched it is placed for
//! free. Each page alone would be easy; what joins them is the capacity of each slice. So each slice gets a rent, each page
//! is planned by itself against the rents (dynamic programming over two states), and rents rise where too many pages want to
//! stay and fall where too few do. Two figures come of it:
//!
//! - a *bound*: at any rents, what all pages win together plus the rents of the capacity is no less than what any plan can win
//!   (Lagrange's dual; as the problem is one of flow, its least value is the best plan's);
//! - a *plan*: in each slice the pages for which being up is worth most at these rents, as many as fit. The replay runs it.
//!
//! The best plan lies between them; [`bound`] says how far they are apart.
//!
//! `oracle-sampled` is the same plan for what the source shows of the trace in place of the trace.

use std::cmp::Reverse;

use super::Policy;
use crate::tiers::{Tier, Tiers};
use crate::truth::{SLICES, Truth};

/// Rounds in which rents are adjusted. Measured on the traces of the repository: later rounds change the bound by less than
/// a thousandth.
const ROUNDS: usize = 160;

/// Rounds between two plans: making one costs more than a round.
const PLAN_EVERY: usize = 8;

/// The advantage of a page that the rest of the trace does not touch.
const NEVER: f64 = f64::NEG_INFINITY;

/// The best placement that never changes.
pub(super) struct Static {
    up: Vec<bool>,
}

impl Static {
    pub(super) fn new(truth: &Truth, capacity: u32) -> Self {
        let totals = truth.totals();
        let mut order: Vec<u32> = (0..totals.len() as u32).collect();
        order.sort_unstable_by_key(|&page| (Reverse(totals[page as usize]), page));
        let mut up = vec![false; totals.len()];
        order
            .iter()
            .take(capacity as usize)
            .for_each(|&page| up[page as usize] = true);
        Self { up }
    }
}

impl Policy for Static {
    fn place(&mut self, page: u32, _: &Tiers) -> Tier {
        if self.up[page as usize] {
            Tier::Top
        } else {
            Tier::Low
        }
    }
}

/// The best placement that changes between slices.
pub(super) struct Dynamic {
    plan: Plan,
    slice: usize,
}

impl Dynamic {
    pub(super) fn new(truth: &Truth, capacity: u32, price: u64) -> Self {
        Self {
            plan: solve(truth, capacity, price).0,
            slice: 0,
        }
    }
}

impl Policy for Dynamic {
    fn place(&mut self, page: u32, _: &Tiers) -> Tier {
        let planned = self.plan.up[self.slice].binary_search(&page).is_ok();
        if planned { Tier::Top } else { Tier::Low }
    }

    fn slice(&mut self, slice: usize, tiers: &mut Tiers) {
        let planned = &self.plan.up[slice];
        // Only pages of the plan before can be up.
        for &page in &self.plan.up[self.slice] {
            if planned.binary_search(&page).is_err() {
                tiers.demote(page);
            }
        }
        for &page in planned {
            tiers.promote(page);
        }
        self.slice = slice;
    }
}

/// What the dynamic oracle wins, and what nothing can exceed, in accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Accesses in the top tier less the price of promotions, of the plan that `oracle` replays.
    pub plan: f64,
    /// No plan that moves pages between slices only can win more.
    pub bound: f64,
}

/// The dynamic oracle's win and its bound for a top tier of `capacity` pages and a price per promotion, in accesses.
pub fn bound(truth: &Truth, capacity: u32, price: u64) -> Bound {
    let (plan, bound) = solve(truth, capacity, price);
    Bound {
        plan: plan.win,
        bound,
    }
}

/// Which pages are up in each slice, ascending.
#[derive(Clone)]
struct Plan {
    up: Vec<Vec<u32>>,
    win: f64,
}

impl Plan {
    /// The plan of the static oracle.
    fn fixed(truth: &Truth, capacity: u32) -> Self {
        let up = Static::new(truth, capacity).up;
        let pages: Vec<u32> = (0..)
            .zip(&up)
            .filter(|(_, up)| **up)
            .map(|(page, _)| page)
            .collect();
        let uses = truth.slices.iter().flatten();
        let win: u64 = uses
            .filter(|used| up[used.page as usize])
            .map(|used| used.accesses)
            .sum();
        Self {
            up: vec![pages; SLICES],
            win: win as f64,
        }
    }
}

/// A page in one slice that touches it.
#[derive(Clone, Copy)]
struct Stop {
    slice: u16,
    wins: f64,
    /// What the rest of the trace is worth if the page is up here, and if it is not.
    up: f64,
    down: f64,
}

/// The trace by page, and the rents.
struct Market {
    /// Stops of all pages, by page and then by slice.
    stops: Vec<Stop>,
    /// Where each page's stops begin; one more than pages.
    first: Vec<usize>,
    capacity: f64,
    price: f64,
    rents: Vec<f64>,
    /// Rents of the slices before each; one more than slices.
    sums: Vec<f64>,
}

/// The best plan that was found, and the bound.
fn solve(truth: &Truth, capacity: u32, price: u64) -> (Plan, f64) {
    let mut market = Market::new(truth, capacity, price);
    // Never worse than the static one.
    let mut best = Plan::fixed(truth, capacity);
    let mut least = f64::INFINITY;
    let mut least_rents = market.rents.clone();
    let mut eagerness = 1.0;
    let mut without_progress = 0;
    for round in 0..ROUNDS {
        let (dual, usage) = market.respond();
        if dual < least {
            (least, without_progress) = (dual, 0);
            least_rents.clone_from(&market.rents);
        } else {
            without_progress += 1;
        }
        if round % PLAN_EVERY == 0 {
            let plan = market.plan(truth);
            if plan.win > best.win {
                best = plan;
            }
        }
        // Polyak's step, towards the win of the best plan; less eager where it does not help.
        if without_progress >= 6 {
            (eagerness, without_progress) = (eagerness * 0.6, 0);
            market.rents.clone_from(&least_rents);
            market.sum_rents();
            market.respond();
        }
        let slopes = usage.iter().map(|&used| f64::from(used) - market.capacity);
        let slopes: Vec<f64> = slopes.collect();
        let norm: f64 = slopes.iter().map(|slope| slope * slope).sum();
        if norm == 0.0 || least - best.win <= 1e-6 * least {
            break;
        }
        let step = eagerness * (dual - best.win) / norm;
        for (rent, slope) in market.rents.iter_mut().zip(&slopes) {
            *rent = (*rent + step * slope).max(0.0);
        }
        market.sum_rents();
    }
    market.rents = least_rents;
    market.sum_rents();
    market.respond();
    let plan = market.plan(truth);
    (if plan.win > best.win { plan } else { best }, least)
}

impl Market {
    fn new(truth: &Truth, capacity: u32, price: u64) -> Self {
        let pages = truth.born.len();
        let mut first = vec![0; pages + 1];
        for used in truth.slices.iter().flatten() {
            first[used.page as usize + 1] += 1;
        }
        for page in 0..pages {
            first[page + 1] += first[page];
        }
        let mut next = first.clone();
        let blank = Stop {
            slice: 0,
            wins: 0.0,
            up: 0.0,
            down: 0.0,
        };
        let mut stops = vec![blank; first[pages]];
        for (slice, uses) in truth.slices.iter().enumerate() {
            for used in uses {
                let at = &mut next[used.page as usize];
                stops[*at] = Stop {
                    slice: slice as u16,
                    wins: used.accesses as f64,
                    ..blank
                };
                *at += 1;
            }
        }
        // The rent at which just as many pages as fit would stay if moves were free.
        let rent = |uses: &Vec<crate::truth::Use>| {
            let mut accesses: Vec<u64> = uses.iter().map(|used| used.accesses).collect();
            accesses.sort_unstable_by_key(|&count| Reverse(count));
            accesses
                .get(capacity as usize)
                .map_or(0.0, |&count| count as f64)
        };
        let mut market = Self {
            stops,
            first,
            capacity: f64::from(capacity),
            price: price as f64,
            rents: truth.slices.iter().map(rent).collect(),
            sums: vec![0.0; SLICES + 1],
        };
        market.sum_rents();
        market
    }

    fn sum_rents(&mut self) {
        let mut sum = 0.0;
        for (slice, rent) in self.rents.iter().enumerate() {
            self.sums[slice] = sum;
            sum += rent;
        }
        self.sums[SLICES] = sum;
    }

    /// Rents of the slices after `from` up to, and without, `to`.
    fn rent_between(&self, from: u16, to: u16) -> f64 {
        self.sums[to as usize] - self.sums[from as usize + 1]
    }

    /// Plans each page against the rents; gives the dual's value and how many pages are up in each slice.
    fn respond(&mut self) -> (f64, Vec<u32>) {
        let mut dual = self.sums[SLICES] * self.capacity;
        // Changes of the number of pages that are up.
        let mut steps = vec![0i64; SLICES + 1];
        for page in 0..self.first.len() - 1 {
            let range = self.first[page]..self.first[page + 1];
            if range.is_empty() {
                continue;
            }
            let mut after: Option<Stop> = None;
            for at in range.clone().rev() {
                let stop = self.stops[at];
                let here = stop.wins - self.rents[stop.slice as usize];
                let (up, down) = match after {
                    None => (here, 0.0),
                    Some(next) => {
                        let stays = next.up - self.rent_between(stop.slice, next.slice);
                        let comes = next.up - self.price;
                        (here + stays.max(comes).max(next.down), comes.max(next.down))
                    }
                };
                self.stops[at] = Stop { up, down, ..stop };
                after = Some(self.stops[at]);
            }
            let mut is_up = false;
            for at in range.clone() {
                let stop = self.stops[at];
                let first = at == range.start;
                let stays = is_up.then(|| self.rent_between(self.stops[at - 1].slice, stop.slice));
                let keeps = stays.is_some_and(|rent| {
                    let kept = stop.up - rent;
                    kept >= stop.down && rent <= self.price
                });
                let enters = !keeps && {
                    let price = if first { 0.0 } else { self.price };
                    stop.up - price > stop.down
                };
                if first {
                    dual += stop.up.max(stop.down);
                }
                if keeps {
                    steps[self.stops[at - 1].slice as usize + 1] += 1;
                    steps[stop.slice as usize + 1] -= 1;
                } else if enters {
                    steps[stop.slice as usize] += 1;
                    steps[stop.slice as usize + 1] -= 1;
                }
                is_up = keeps || enters;
            }
        }
        let mut up = 0;
        let usage = steps[..SLICES].iter().map(|step| {
            up += step;
            up as u32
        });
        (dual, usage.collect())
    }

    /// A plan that fits: in each slice the pages that are worth most at these rents.
    fn plan(&self, truth: &Truth) -> Plan {
        let capacity = self.capacity as usize;
        let mut next: Vec<usize> = self.first[..self.first.len() - 1].to_vec();
        let mut is_up = vec![false; next.len()];
        let mut up: Vec<Vec<u32>> = Vec::with_capacity(SLICES);
        let mut win = 0.0;
        let mut ranked: Vec<(f64, u32)> = Vec::new();
        for (slice, uses) in truth.slices.iter().enumerate() {
            let before: &[u32] = up.last().map_or(&[], Vec::as_slice);
            ranked.clear();
            for &page in before {
                ranked.push((self.advantage(next[page as usize], page, slice, true), page));
            }
            for used in uses.iter().filter(|used| !is_up[used.page as usize]) {
                let page = used.page;
                ranked.push((
                    self.advantage(next[page as usize], page, slice, false),
                    page,
                ));
            }
            // Room that is left costs no rent, and who is up already pays nothing to stay.
            let rent = self.rents[slice];
            ranked.retain(|&(advantage, page)| {
                advantage + rent > 0.0 || (is_up[page as usize] && advantage > NEVER)
            });
            ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            ranked.truncate(capacity);
            let mut now: Vec<u32> = ranked.iter().map(|&(_, page)| page).collect();
            now.sort_unstable();
            for &page in &now {
                if !is_up[page as usize] && (truth.born[page as usize] as usize) < slice {
                    win -= self.price;
                }
            }
            before.iter().for_each(|&page| is_up[page as usize] = false);
            now.iter().for_each(|&page| is_up[page as usize] = true);
            for used in uses {
                win += if is_up[used.page as usize] {
                    used.accesses as f64
                } else {
                    0.0
                };
                next[used.page as usize] += 1;
            }
            up.push(now);
        }
        Plan { up, win }
    }

    /// How much more a page is worth up than down at a slice, given where it is and its next stop.
    fn advantage(&self, next: usize, page: u32, slice: usize, is_up: bool) -> f64 {
        if next == self.first[page as usize + 1] {
            return NEVER;
        }
        let stop = self.stops[next];
        let rent = self.sums[stop.slice as usize] - self.sums[slice];
        let born = next == self.first[page as usize];
        let up = stop.up - rent;
        match (is_up, born) {
            (true, _) if stop.slice as usize == slice => up - stop.down,
            // Whoever leaves can come back for the price.
            (true, _) => up - (stop.up - self.price).max(stop.down),
            (false, true) => up - stop.down,
            (false, false) => up - self.price - stop.down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Event, Trace};
    use crate::random::Random;

    /// A trace whose pages have these accesses in each of `steps` equal parts.
    fn truth(uses: &[Vec<u64>]) -> Truth {
        let slices = (0..SLICES).map(|slice| {
            let Some(step) = uses.get(slice) else {
                return Vec::new();
            };
            let all = step.iter().enumerate();
            let touched = all.filter(|(_, accesses)| **accesses > 0);
            touched
                .map(|(page, &accesses)| crate::truth::Use {
                    page: page as u32,
                    accesses,
                })
                .collect()
        });
        let born = |page: usize| {
            uses.iter()
                .position(|step| step[page] > 0)
                .unwrap_or(SLICES) as u16
        };
        Truth {
            slices: slices.collect(),
            born: (0..uses[0].len()).map(born).collect(),
            accesses: uses.iter().flatten().sum(),
        }
    }

    /// The best win over all plans, tried one by one.
    fn brute_force(uses: &[Vec<u64>], capacity: u32, price: u64) -> i64 {
        let pages = uses[0].len();
        let sets = (0u32..1 << pages).filter(|set| set.count_ones() <= capacity);
        let sets: Vec<u32> = sets.collect();
        let mut best: Vec<(u32, i64)> = vec![(0, 0)];
        let mut born = 0u32;
        for step in uses {
            let touched = (0..pages)
                .filter(|&page| step[page] > 0)
                .fold(0, |set, page| set | 1 << page);
            let next = sets.iter().map(|&set| {
                let wins: u64 = (0..pages)
                    .filter(|page| set >> page & 1 == 1)
                    .map(|page| step[page])
                    .sum();
                let from = best.iter().map(|&(before, win)| {
                    let promoted = (set & !before & born).count_ones();
                    win - i64::from(promoted) * price as i64
                });
                (set, from.max().unwrap_or(0) + wins as i64)
            });
            best = next.collect();
            born |= touched;
        }
        best.iter().map(|&(_, win)| win).max().unwrap_or(0)
    }

    #[test]
    fn the_best_plan_lies_between_plan_and_bound() {
        let mut random = Random::new(11);
        let mut exact = 0;
        for case in 0..300 {
            let (pages, steps) = (2 + random.below(4) as usize, 2 + random.below(6) as usize);
            let uses: Vec<Vec<u64>> = (0..steps)
                .map(|_| {
                    (0..pages)
                        .map(|_| random.below(3) * random.below(20))
                        .collect()
                })
                .collect();
            let (capacity, price) = (1 + random.below(pages as u64) as u32, random.below(25));
            let best = brute_force(&uses, capacity, price) as f64;
            let Bound { plan, bound } = bound(&truth(&uses), capacity, price);
            assert!(
                plan <= best + 1e-6 && best <= bound + 1e-6,
                "case {case}: {plan} {best} {bound}"
            );
            assert!(
                plan >= 0.9 * best - 1e-6,
                "case {case}: {plan} of {best}, {uses:?}, {capacity}, {price}"
            );
            exact += usize::from(plan >= best - 1e-6);
        }
        assert!(exact > 240, "{exact} of 300 plans are the best");
    }

    #[test]
    fn the_plan_wins_in_a_replay_what_it_promises() {
        let trace = crate::synthetic::phases(300, 60_000, 6, 5);
        let truth = Truth::of(&trace);
        let machine = crate::machine::Machine::default();
        let price = machine.pays_after();
        let promised = bound(&truth, 75, price).plan;
        let outcome = crate::replay::replay(
            &trace,
            &truth,
            &machine,
            75,
            super::super::Kind::Oracle,
            &mut |_| true,
        );
        let outcome = outcome.expect("runs").expect("ends");
        let won = outcome.top_accesses as f64 - outcome.account.promoted as f64 * price as f64;
        assert_eq!(won, promised);
    }

    #[test]
    fn static_takes_the_most_used_pages() {
        let event = |page, reads| Event {
            time: 0,
            page,
            reads,
            writes: 0,
        };
        let trace = Trace {
            name: String::new(),
            clock: Clock::Accesses,
            page_bytes: 4096,
            sampling: 1,
            pages: vec![1, 2, 3],
            events: vec![event(0, 1), event(1, 5), event(2, 5), event(0, 3)],
        };
        let oracle = Static::new(&Truth::of(&trace), 2);
        assert_eq!(oracle.up, [false, true, true]);
    }
}
