// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of one round: candidates of what is known, and which of them move.
//!
//! The order of a round: limits, room for new pages, free space filled, shares of tenants, exchange. Idle memory beyond its
//! tenant's protection makes room for hot memory of anyone; memory in use does so for a tenant that has less than its share, and
//! else only for memory of its own tenant that is hotter by more than the move costs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use memferry_core::balance;
use memferry_core::hotness::{Histogram, Record};

use super::{Account, CHUNK, Cause, MARGIN, Memory, Move, Near, Room, Tiering, Way};
use crate::tenants::allowance;

/// A chunk that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Index of its memory.
    memory: u32,
    heat: u32,
    /// The node of the top tier that it is on.
    node: u32,
    /// Index of the nodes where it may go up.
    reach: u32,
    group: usize,
    number: usize,
    /// Bytes that would move.
    bytes: u64,
    /// Without use for so long that new memory may have its place.
    is_idle: bool,
    /// Whether the last report saw it in use, and whether enough is known of it to call it cold.
    in_use: bool,
    is_known: bool,
    /// Whether its hot pages are up already, as far as there is room for them.
    is_ranked: bool,
}

/// Candidates by what may become of them. A large host has a hundred thousand: the lists are kept from round to round, since to allocate
/// them would take longer than to fill them.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// By node, the coldest last.
    cold: BTreeMap<u32, Vec<Candidate>>,
    /// The hottest last.
    hot: Vec<Candidate>,
    /// Of which too little is known to call it cold: it goes down for a limit alone.
    unknown: Vec<Candidate>,
}

impl Candidates {
    fn clear(&mut self) {
        self.cold.values_mut().for_each(Vec::clear);
        self.hot.clear();
        self.unknown.clear();
    }
}

/// The choice of one round.
pub(super) struct Round<'a> {
    of: &'a mut Tiering,
    memories: Vec<Memory>,
    /// By node of the top tier: what is free, and what these memories have.
    free: BTreeMap<u32, u64>,
    on_node: BTreeMap<u32, u64>,
    /// Nodes where memory may go up, the nearest first.
    reaches: Vec<Vec<Near>>,
    budget: u64,
    /// By tenant: what it may promote yet, and what it has by now in the top tier.
    allowed: Vec<u64>,
    used: Vec<u64>,
    all: Candidates,
    top: Histogram,
    lower: Histogram,
    least: u32,
    moves: Vec<Move>,
}

impl<'a> Round<'a> {
    pub(super) fn new(of: &'a mut Tiering, room: &Room, budget: u64) -> Self {
        let policy = of.policy;
        let mut all = std::mem::take(&mut of.candidates);
        all.clear();
        let (mut top, mut lower) = (Histogram::default(), Histogram::default());
        let threshold = policy.params().threshold;
        let mut on_node = BTreeMap::new();
        let mut reaches: Vec<Vec<Near>> = Vec::new();
        let mut memories = Vec::with_capacity(of.spaces.len());
        let is_above = |of: &Account| of.tenant.used > of.tenant.limit;
        let any_above = of.accounts.iter().any(is_above);
        for (memory, space) in &of.spaces {
            let known = reaches.iter().position(|of| *of == space.nodes);
            let reach = known.unwrap_or_else(|| {
                reaches.push(space.nodes.clone());
                reaches.len() - 1
            });
            let now = space.now();
            let candidates = space.chunks.iter().zip(&space.records);
            for (chunk, record) in candidates {
                let place = chunk.place;
                *on_node.entry(place.node).or_default() += place.top;
                let may_move = !chunk.is_refused(of.number) && !chunk.just_moved(of.number);
                if !may_move || !space.is_reported && !any_above {
                    continue;
                }
                let is_idle = space.is_idle(chunk, of.number);
                let is_known = space.is_reported && space.is_known(chunk);
                let may_go_down = place.top > 0 && (is_known || any_above);
                let may_come =
                    place.top < place.resident && space.is_reported && chunk.seen >= room.reports;
                if !may_go_down && !may_come {
                    continue;
                }
                let view = record.view(now);
                let candidate = |bytes| Candidate {
                    memory: memories.len() as u32,
                    heat: policy.heat(view),
                    node: place.node,
                    reach: reach as u32,
                    group: space.group,
                    number: place.number,
                    bytes,
                    is_idle,
                    in_use: chunk.seen > 0,
                    is_known,
                    is_ranked: chunk.is_ranked(),
                };
                if may_go_down && is_known {
                    u32::count(&[*record], now, &mut top);
                    let of_node = all.cold.entry(place.node).or_default();
                    of_node.push(candidate(place.top));
                } else if may_go_down {
                    all.unknown.push(candidate(place.top));
                }
                let is_hot = may_come && u32::from(view.freq) >= threshold;
                if is_hot && of.is_steady(*memory, chunk) {
                    u32::count(&[*record], now, &mut lower);
                    all.hot.push(candidate(place.resident - place.top));
                }
            }
            memories.push(*memory);
        }
        for of_node in all.cold.values_mut() {
            of_node.sort_by_key(|of| Reverse(of.heat));
        }
        all.hot.sort_by_key(|of| of.heat);
        let allowed = of
            .accounts
            .iter()
            .map(|of| allowance(&of.tenant, of.share, &of.rate, budget))
            .collect();
        let used = of.accounts.iter().map(|of| of.tenant.used).collect();
        let least = balance::idle(&policy);
        Self {
            of,
            memories,
            free: room.free.clone(),
            on_node,
            reaches,
            budget,
            allowed,
            used,
            all,
            top,
            lower,
            least,
            moves: Vec::new(),
        }
    }

    /// What moves, and what each tenant, and all, may promote beyond that.
    pub(super) fn run(mut self, born: u64, kernel_moves: bool) -> (Vec<Move>, Vec<u64>, u64) {
        self.limits();
        if !kernel_moves {
            self.make_room(born);
            self.fill();
            self.shares();
            self.exchange();
        }
        self.of.candidates = self.all;
        (self.moves, self.allowed, self.budget)
    }

    fn all_free(&self) -> u64 {
        self.free.values().sum()
    }

    fn account(&self, group: usize) -> &Account {
        &self.of.accounts[group]
    }

    fn down(&mut self, of: Candidate, cause: Cause) {
        self.used[of.group] = self.used[of.group].saturating_sub(of.bytes);
        *self.free.entry(of.node).or_default() += of.bytes;
        self.moves.push(Move {
            memory: self.memories[of.memory as usize],
            number: of.number,
            way: Way::Down,
            cause,
            node: of.node,
            bytes: of.bytes,
            pages: None,
        });
    }

    fn may_go_up(&self, of: &Candidate) -> bool {
        of.bytes <= self.allowed[of.group].min(self.budget)
    }

    /// Whether its tenant may have it beside what it has.
    fn is_within_limit(&self, of: &Candidate) -> bool {
        self.used[of.group] + of.bytes <= self.account(of.group).tenant.limit
    }

    /// The nearest node where it may go that has room for it, of equals the emptiest.
    fn node_for(&self, of: &Candidate) -> Option<u32> {
        let free = |near: &&Near| self.free.get(&near.node).copied().unwrap_or(0);
        let nodes = self.reaches[of.reach as usize].iter();
        let with_room = nodes.filter(|near| free(near) >= of.bytes);
        let best = with_room.min_by_key(|near| (near.distance, Reverse(free(near))));
        best.map(|near| near.node)
    }

    fn up(&mut self, of: Candidate, node: u32, cause: Cause) {
        self.used[of.group] += of.bytes;
        self.allowed[of.group] -= of.bytes;
        self.budget -= of.bytes;
        let free = self.free.entry(node).or_default();
        *free = free.saturating_sub(of.bytes);
        self.moves.push(Move {
            memory: self.memories[of.memory as usize],
            number: of.number,
            way: Way::Up,
            cause,
            node,
            bytes: of.bytes,
            pages: None,
        });
    }

    /// Each chunk of these that `goes` says goes down; the others are returned. The coldest, which is the last, is asked about first, and
    /// all once: there may be a million.
    fn send_down(
        &mut self,
        mut of: Vec<Candidate>,
        cause: Cause,
        mut goes: impl FnMut(&Self, &Candidate) -> bool,
    ) -> Vec<Candidate> {
        let mut stay = Vec::new();
        while let Some(of) = of.pop() {
            match goes(self, &of) {
                true => self.down(of, cause),
                false => stay.push(of),
            }
        }
        stay.reverse();
        stay
    }

    /// What a tenant has above its limit goes down: first what was not in use when it was looked at last, and of that what is known best.
    fn limits(&mut self) {
        let is_above =
            |round: &Self, group: usize| round.used[group] > round.account(group).tenant.limit;
        if !(0..self.used.len()).any(|group| is_above(self, group)) {
            return;
        }
        let mut all = std::mem::take(&mut self.all.unknown);
        all.extend(std::mem::take(&mut self.all.cold).into_values().flatten());
        all.sort_by_key(|of| Reverse((of.in_use, of.heat, !of.is_known)));
        let mut stay = self.send_down(all, Cause::Limit, |round, of| is_above(round, of.group));
        stay.retain(|of| of.is_known);
        stay.sort_by_key(|of| Reverse(of.heat));
        for of in stay {
            self.all.cold.entry(of.node).or_default().push(of);
        }
    }

    /// Idle memory leaves before new memory comes, on the nodes where that may be: first that of tenants above their shares, never what
    /// is protected.
    fn make_room(&mut self, born: u64) {
        let chunk = CHUNK as u64;
        let rounds = self.of.balance.params().rounds;
        self.of
            .born_on
            .retain(|_, last| self.of.number - *last <= rounds);
        let nodes: Vec<u32> = self.of.born_on.keys().copied().collect();
        let sum =
            |of: &BTreeMap<u32, u64>| -> u64 { nodes.iter().filter_map(|node| of.get(node)).sum() };
        let (used, free) = (sum(&self.on_node), sum(&self.free));
        let mut short = self
            .of
            .balance
            .room(born / chunk, (used + free) / chunk, free / chunk)
            * chunk;
        for above_share in [true, false] {
            for node in &nodes {
                if short == 0 {
                    return;
                }
                let cold = self.all.cold.remove(node).unwrap_or_default();
                let stay = self.send_down(cold, Cause::NewMemory, |round, of| {
                    let goes = short > 0 && of.is_idle && round.is_spare(of, above_share);
                    short = short.saturating_sub(if goes { of.bytes } else { 0 });
                    goes
                });
                self.all.cold.insert(*node, stay);
            }
        }
    }

    /// Whether an idle chunk may leave.
    fn is_spare(&self, of: &Candidate, above_share: bool) -> bool {
        let account = self.account(of.group);
        let keep = if above_share {
            account.share
        } else {
            account.tenant.protect
        };
        of.heat <= self.least && self.used[of.group] >= keep.saturating_add(of.bytes)
    }

    /// The hottest take what is free beyond that room.
    fn fill(&mut self) {
        let chunk = CHUNK as u64;
        let (free, budget) = (self.all_free() / chunk, self.budget.div_ceil(chunk));
        let (_, room) = self
            .of
            .balance
            .fill(&self.of.policy, &self.lower, free, budget);
        let mut room = room * chunk;
        let mut left = Vec::new();
        while let Some(of) = self.all.hot.pop() {
            let is_due = of.bytes <= room && self.may_go_up(&of) && self.is_within_limit(&of);
            match self.node_for(&of).filter(|_| is_due) {
                Some(node) => {
                    room -= of.bytes;
                    self.up(of, node, Cause::Free);
                }
                None => left.push(of),
            }
        }
        left.reverse();
        self.all.hot = left;
    }

    /// Memory in use of a tenant that has less than its share displaces idle memory, then that of tenants above theirs.
    fn shares(&mut self) {
        let mut left = Vec::new();
        // For these nobody makes room in this round.
        let mut stuck = BTreeSet::new();
        while let Some(hot) = self.all.hot.pop() {
            let is_below = self.used[hot.group] + hot.bytes <= self.account(hot.group).share;
            if !is_below
                || hot.is_ranked
                || stuck.contains(&(hot.group, hot.reach))
                || !self.may_go_up(&hot)
            {
                left.push(hot);
                continue;
            }
            let is_above = |round: &Self, of: &Candidate| {
                of.group != hot.group && round.used[of.group] > round.account(of.group).share
            };
            // Its own idle memory may go: as much comes.
            let is_idle = |round: &Self, of: &Candidate| {
                round.is_spare(of, false) || of.group == hot.group && of.heat <= round.least
            };
            let mut displaced = self.displace(&hot, Cause::Share, is_idle);
            displaced = displaced || self.displace(&hot, Cause::Share, is_above);
            if !displaced {
                stuck.insert((hot.group, hot.reach));
                left.push(hot);
            }
        }
        left.reverse();
        self.all.hot = left;
    }

    /// Brings a chunk up after others went down, if enough fit on a node where it may go.
    fn displace(
        &mut self,
        hot: &Candidate,
        cause: Cause,
        fits: impl Fn(&Self, &Candidate) -> bool,
    ) -> bool {
        for near in 0..self.reaches[hot.reach as usize].len() {
            let node = self.reaches[hot.reach as usize][near].node;
            let cold = self.all.cold.get(&node).map_or(&[][..], Vec::as_slice);
            let (mut victims, mut bytes) = (Vec::new(), 0);
            for (at, of) in cold.iter().enumerate().rev() {
                if bytes >= hot.bytes {
                    break;
                }
                if fits(self, of) {
                    bytes += of.bytes;
                    victims.push(at);
                }
            }
            if bytes < hot.bytes {
                continue;
            }
            // The largest index first: the others stay as they are.
            for at in victims {
                let cold = self.all.cold.get_mut(&node).map(|of| of.remove(at));
                cold.into_iter().for_each(|of| self.down(of, cause));
            }
            self.up(*hot, node, cause);
            return true;
        }
        false
    }

    /// The hottest against the coldest, while that gains more than it costs.
    fn exchange(&mut self) {
        let budget = self.budget.div_ceil(CHUNK as u64);
        let border = self.of.policy.exchange(&self.top, &self.lower, budget);
        let mut pairs = border.pages;
        let mut stuck = BTreeSet::new();
        while let Some(hot) = self
            .all
            .hot
            .pop()
            .filter(|hot| pairs > 0 && hot.heat >= border.hot)
        {
            if hot.is_ranked || stuck.contains(&(hot.group, hot.reach)) || !self.may_go_up(&hot) {
                continue;
            }
            // With a ranked chunk its hot pages go down, too.
            let margin = |of: &Candidate| MARGIN << u32::from(of.is_ranked && of.in_use);
            let fits = |round: &Self, of: &Candidate| {
                of.heat <= border.cold
                    && of.heat + margin(of) <= hot.heat
                    && (of.group == hot.group
                        || round.is_within_limit(&hot) && round.is_spare(of, false))
            };
            match self.displace(&hot, Cause::Exchange, fits) {
                true => pairs -= 1,
                false => {
                    stuck.insert((hot.group, hot.reach));
                }
            }
        }
    }
}
