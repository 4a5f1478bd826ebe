// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes up and what goes down, by the core's hotness and balance, on chunks of 2 MiB of processes' memory. It reads and
//! moves nothing: [`Tiering::decide`] gives the moves, [`Tiering::done`] is told what became of them.

mod pages;
mod round;
mod state;

use std::collections::BTreeMap;
use std::ops::Range;

use memferry_core::balance::{self, Balance, BalanceParams};
use memferry_core::hotness::{Access, Bounces, Histogram, Params, Policy, Record, Sweep};

use crate::tenants::{OFF_ROUNDS, QUIET_ROUNDS, Rate, Tenant, shares};
use pages::PageHeat;
pub use pages::{CloseLook, PagePlaces, PageSet};
use round::{Candidates, Round};
pub use state::{Above, Below, MemoryState};

/// Bytes of a chunk: what one call of the kernel moves, and a whole THP.
pub const CHUNK: usize = 2 << 20;
/// Milliseconds of the policy's clock from round to round, whatever the time: a round that is late makes nothing look old.
const ROUND_MS: u32 = 100;
/// A report stands for so many accesses at most: as many as lift a record to one below its largest frequency.
const FULL_WEIGHT: u64 = 16;
/// Rounds after a move in which reports may tell of accesses before it.
const LATE_ROUNDS: u32 = 3;
/// Rounds in which a promoted chunk has to be seen in use again, else its move was waste: 10 s.
const PAY_ROUNDS: u32 = 50;
/// Rounds for which a chunk stays where it was put, unless a limit wants it elsewhere: 2 s.
const STAY_ROUNDS: u32 = 10;
/// Reports on a chunk before it may count as idle: 5 s. A first report also sees nothing of memory that is rarely used.
const KNOWN_REPORTS: u32 = 25;
/// Rounds for which a chunk is remembered whose pages are away: 5 minutes. While a forked child saves them, pages are not a process's own.
const GONE_ROUNDS: u32 = 1500;
/// Times that all who map a memory were looked at without its use, where not all are looked at in each round, before it counts as idle.
const SWEEPS: u32 = 2;
/// Reports without use after which memory makes room for new memory: 60 s, in which no gap hides a use.
const IDLE_REPORTS: u32 = 300;
/// More rounds without a report are a gap, 5 s: a process whose turn it is each minute has one, one that is watched all the time has none.
const GAP_ROUNDS: u32 = 25;
/// A chunk that would not move is left alone for so many rounds, 2 s, then for twice as many, at most 2^8 times.
const LEAVE_ALONE: u32 = 10;
/// By so many heats the chunk that goes up is hotter than the one that makes room for it: frequencies are counted with chances,
/// which differ by a level of 16.
const MARGIN: u32 = 24;
/// For each time that a chunk came down and went up again it has to be in use in so many more reports than not, 3 s, before it goes up once
/// more: what is used in bursts would go to and fro.
const STEADY: u8 = 16;
/// Ages of [`Account::used_within`] in rounds of 0.2 s: 1 s, 10 s, 1 min, 10 min, 1 h.
const AGES: [u32; 5] = [5, 50, 300, 3000, 18_000];
/// Waste is judged once so many chunks were: fewer are chance.
const JUDGED: u64 = 16;

/// A process, by its number and start time, which no later one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// Clock ticks from boot to its start.
    pub start: u64,
}

/// Shared memory or a file, as lines of maps name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Major and minor number of its file system.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// What is tiered as one, and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// What a process has for itself, by its addresses.
    Process(ProcessId),
    /// What several processes of one group map, by its offsets.
    Shared(Object),
}

impl From<ProcessId> for Memory {
    fn from(process: ProcessId) -> Self {
        Self::Process(process)
    }
}

/// What a source saw of a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Addresses.
    pub range: Range<usize>,
    /// Samples in which a page of it was accessed.
    pub accesses: u32,
    /// Samples.
    pub of: u32,
}

/// Where a chunk's pages lie, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Address by [`CHUNK`].
    pub number: usize,
    /// In memory.
    pub resident: u64,
    /// In the top tier.
    pub top: u64,
    /// The node of the top tier that most of that is on.
    pub node: u32,
}

/// A node of the top tier that a memory may use, and how far it is from the CPUs that use the memory, as Linux's distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Which.
    pub node: u32,
    /// 10 is the CPUs' own.
    pub distance: u32,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the top tier.
    Up,
    /// To a lower one.
    Down,
}

/// Why a chunk moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its tenant has more than its limit.
    Limit,
    /// Idle, it makes room for new memory.
    NewMemory,
    /// There is room for it.
    Free,
    /// A tenant that has less than its share gets some, from idle memory or from a tenant that has more.
    Share,
    /// It changes places with memory that is colder, or hotter.
    Exchange,
}

/// One chunk to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Whose.
    pub memory: Memory,
    /// Its address by [`CHUNK`].
    pub number: usize,
    /// Which way.
    pub way: Way,
    /// Why.
    pub cause: Cause,
    /// The node of the top tier that it comes to or leaves.
    pub node: u32,
    /// Bytes that lie elsewhere.
    pub bytes: u64,
    /// Those of its pages that move, unless all do.
    pub pages: Option<PageSet>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    place: Placed,
    /// Reports in a row that saw it in use.
    seen: u8,
    /// One more for each report that saw it in use, one less for each that did not.
    steady: u8,
    /// Accesses of this round, by bytes: samples times bytes.
    weight: u64,
    /// Reports on its process until its last promotion or demotion by us, if its use afterwards is not judged yet.
    judged: Option<(u32, Way)>,
    moved: u32,
    /// Reports on its process until the chunk was found, and until it was found or last seen in use.
    since: u32,
    used: u32,
    /// Looks at all who map the memory until it was last seen in use.
    swept: u32,
    /// Round in which its pages were found to be no longer there, or no longer its own.
    gone: Option<u32>,
    /// Round in which it was last seen in use; 0 for never.
    last: u32,
    /// Single pages of it moved since it last moved whole.
    has_pages_moved: bool,
    /// Left alone until this round, since it would not move so many times in a row.
    refused: (u32, u32),
}

impl Chunk {
    /// Whether it would not move, and is left alone.
    fn is_refused(&self, round: u32) -> bool {
        self.refused.0 > round
    }

    /// Whether single pages moved and an eighth at least lies in either tier: its hot pages are above, the cold ones below. Fewer pages
    /// move by chance.
    fn is_ranked(&self) -> bool {
        let eighth = self.place.resident / 8;
        let is_mixed = (eighth..=self.place.resident - eighth).contains(&self.place.top);
        self.has_pages_moved && is_mixed
    }

    /// Whether it came lately to where it is, and stays.
    fn just_moved(&self, round: u32) -> bool {
        self.moved > 0 && round - self.moved < STAY_ROUNDS
    }
}

/// What is known of a memory. Its records age by reports, not by rounds: while no source looks at it, nothing of it becomes idle.
#[derive(Debug, Default)]
struct Space {
    group: usize,
    /// Where it may go up.
    nodes: Vec<Near>,
    chunks: Vec<Chunk>,
    records: Vec<u32>,
    /// Reports so far.
    reports: u32,
    /// Whether one came in this round, and the last round in which one came.
    is_reported: bool,
    reported: u32,
    /// Round in which reports began to come again after a gap; without one, 0.
    resumed: u32,
    /// Whether that was of all who map it.
    is_whole: bool,
    /// How often all who map it were looked at.
    sweeps: u32,
}

impl Space {
    /// Milliseconds of its clock.
    fn now(&self) -> u32 {
        self.reports.wrapping_mul(ROUND_MS)
    }

    /// Whether a chunk was without use for so long that new memory may have its place.
    fn is_idle(&self, chunk: &Chunk, round: u32) -> bool {
        let has_gap = round - self.resumed < IDLE_REPORTS;
        self.reports - chunk.used >= IDLE_REPORTS && !has_gap
    }

    /// Whether enough is known of a chunk to call it cold.
    fn is_known(&self, chunk: &Chunk) -> bool {
        // What is used between two turns is seen by one of the next.
        let is_unused = self.reports - chunk.used >= IDLE_REPORTS;
        let swept = self.is_whole || is_unused && self.sweeps - chunk.swept >= SWEEPS;
        self.reports - chunk.since >= KNOWN_REPORTS && swept
    }
}

/// What a tenant had done for it, since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes that went up.
    pub promoted: u64,
    /// Bytes that went down.
    pub demoted: u64,
    /// Bytes that would not move.
    pub stayed: u64,
    /// Promoted bytes that were not used again.
    pub wasted: u64,
    /// Demoted bytes that the next report saw in use.
    pub thrashed: u64,
    /// Resident bytes that reports see in use now.
    pub hot: u64,
    /// Resident bytes of chunks last seen in use within 1 s, 10 s, 1 min, 10 min and 1 h; each includes those before it.
    pub used_within: [u64; AGES.len()],
    /// What it has and what it may.
    pub tenant: Tenant,
    /// Its share of the top tier.
    pub share: u64,
    /// Its rate.
    pub rate: Rate,
}

impl Account {
    /// Counts a chunk by its age in a round.
    fn add_used(&mut self, chunk: &Chunk, round: u32) {
        for (sum, age) in self.used_within.iter_mut().zip(AGES) {
            if chunk.last > 0 && round - chunk.last < age {
                *sum += chunk.place.resident;
            }
        }
    }
}

/// What may be done in a round.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of each node of the top tier that are free, less what the kernel keeps.
    pub free: BTreeMap<u32, u64>,
    /// Bytes that may go up.
    pub budget: u64,
    /// Percent of promotions that may be waste.
    pub waste: u64,
    /// Reports in a row that must see a chunk in use before it goes up.
    pub reports: u8,
    /// The kernel moves: only what is above a limit goes down.
    pub kernel_moves: bool,
}

/// The policy and what it knows.
#[derive(Debug)]
pub struct Tiering {
    policy: Policy<u32>,
    balance: Balance,
    bounces: Bounces,
    spaces: BTreeMap<Memory, Space>,
    accounts: Vec<Account>,
    number: u32,
    /// Bytes that came to be since the last round.
    born: u64,
    /// Nodes of the top tier where such memory may be, and the last round in which some came.
    born_on: BTreeMap<u32, u32>,
    /// Promotions that were judged, and those that did not pay, since the last judgement.
    judged: (u64, u64),
    waste: Rate,
    random: u32,
    /// Of the last round, for the memory of the lists.
    candidates: Candidates,
    pages: PageHeat,
}

impl Tiering {
    /// Knows nothing yet of so many tenants.
    pub fn new(tenants: usize) -> Self {
        let (params, rounds) = balance::defaults::<u32>();
        // New pages of two seconds, and bounces of ten minutes: what programs use in bursts comes back each minute or so.
        let rounds = BalanceParams {
            rounds: 10,
            bounce_rounds: 3000,
            ..rounds
        };
        // Reports say how often, so frequencies count logarithmically; a level cools off each second.
        let params = Params {
            step: 1,
            cool_sweeps: 5,
            cost: 4,
            ..params
        };
        Self {
            policy: Policy::new(params).unwrap_or_default(),
            balance: Balance::new(rounds),
            bounces: Bounces::default(),
            spaces: BTreeMap::new(),
            accounts: vec![Account::default(); tenants],
            number: 0,
            born: 0,
            born_on: BTreeMap::new(),
            judged: (0, 0),
            waste: Rate::default(),
            random: 0x9e37_79b9,
            candidates: Candidates::default(),
            pages: PageHeat::default(),
        }
    }

    /// By tenant.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The rate as waste leaves it.
    pub fn waste_rate(&self) -> Rate {
        self.waste
    }

    /// Where a memory's pages lie now, ascending, and where they may go up. What is known of its chunks is kept.
    pub fn place(
        &mut self,
        memory: impl Into<Memory>,
        group: usize,
        nodes: &[Near],
        places: &[Placed],
    ) {
        let memory = memory.into();
        let old = self.spaces.remove(&memory);
        let is_new = old.is_none();
        let old = old.unwrap_or_default();
        let mut known = old.chunks.iter().zip(&old.records).peekable();
        let (mut chunks, mut records) = (Vec::new(), Vec::new());
        // What is away for a while keeps its record, and is not new memory when it comes back.
        let remember = |chunk: &Chunk| -> Option<Chunk> {
            let since = *chunk.gone.as_ref().unwrap_or(&self.number);
            let place = Placed {
                number: chunk.place.number,
                ..Placed::default()
            };
            let away = Chunk {
                place,
                gone: Some(since),
                ..*chunk
            };
            (self.number - since < GONE_ROUNDS).then_some(away)
        };
        let mut born = 0;
        for place in places.iter().filter(|place| place.resident > 0) {
            while let Some((chunk, record)) =
                known.next_if(|(chunk, _)| chunk.place.number < place.number)
            {
                if let Some(away) = remember(chunk) {
                    chunks.push(away);
                    records.push(*record);
                }
            }
            let same = known.next_if(|(chunk, _)| chunk.place.number == place.number);
            // What a process brings along is not new memory.
            if same.is_none() && !is_new {
                born += place.resident;
            }
            let found = Chunk {
                since: old.reports,
                used: old.reports,
                swept: old.sweeps,
                ..Chunk::default()
            };
            let (chunk, record) = same.map_or((found, 0), |(chunk, record)| (*chunk, *record));
            chunks.push(Chunk {
                place: *place,
                gone: None,
                ..chunk
            });
            records.push(record);
        }
        for (chunk, record) in known {
            if let Some(away) = remember(chunk) {
                chunks.push(away);
                records.push(*record);
            }
        }
        if born > 0 {
            self.born += born;
            let nodes = nodes.iter().map(|near| (near.node, self.number));
            self.born_on.extend(nodes);
        }
        self.spaces.insert(
            memory,
            Space {
                group,
                nodes: nodes.to_vec(),
                chunks,
                records,
                ..old
            },
        );
    }

    /// Forgets all but these.
    pub fn keep(&mut self, mut is_there: impl FnMut(Memory) -> bool) {
        self.spaces.retain(|memory, _| is_there(*memory));
        let spaces = &self.spaces;
        self.pages.keep(|memory| spaces.contains_key(&memory));
    }

    /// Notes a report on a memory; one per round and process that maps it, also if nothing was in use. Memory without one stays where it
    /// is, unless a limit wants it to go. Where the source does not look at all who map it, `sweeps` tells
    /// how often it has by now.
    pub fn seen(&mut self, memory: impl Into<Memory>, report: &[Seen], sweeps: Option<u32>) {
        let Some(space) = self.spaces.get_mut(&memory.into()) else {
            return;
        };
        space.is_whole = sweeps.is_none();
        space.sweeps = sweeps.unwrap_or(space.sweeps);
        if !space.is_reported {
            space.is_reported = true;
            space.reports += 1;
            if self.number - space.reported > GAP_ROUNDS {
                space.resumed = self.number;
            }
            space.reported = self.number;
        }
        for seen in report
            .iter()
            .filter(|seen| seen.accesses > 0 && seen.of > 0)
        {
            let first = space
                .chunks
                .partition_point(|of| of.place.number < seen.range.start / CHUNK);
            for chunk in &mut space.chunks[first..] {
                let start = chunk.place.number * CHUNK;
                if start >= seen.range.end {
                    break;
                }
                let shared = seen.range.end.min(start + CHUNK) - seen.range.start.max(start);
                chunk.weight +=
                    shared as u64 * FULL_WEIGHT * u64::from(seen.accesses) / u64::from(seen.of);
            }
        }
    }

    /// Ages what is known, and chooses what moves. `claims` are the tenants' protections, limits and weights.
    pub fn decide(&mut self, claims: &[Tenant], room: &Room) -> Vec<Move> {
        self.number += 1;
        self.count();
        self.judge(room.waste);
        for space in self.spaces.values_mut().filter(|of| of.is_reported) {
            let now = space.now();
            let sweep = Sweep {
                now,
                last: now.wrapping_sub(ROUND_MS),
                number: space.reports,
            };
            u32::sweep(
                &mut space.records,
                &self.policy,
                &sweep,
                &mut Histogram::default(),
            );
        }
        if self.number % self.balance.params().bounce_rounds == 0 {
            self.bounces.age();
        }
        let used: u64 = self.accounts.iter().map(|of| of.tenant.used).sum();
        for (account, claim) in self.accounts.iter_mut().zip(claims) {
            let Tenant { resident, used, .. } = account.tenant;
            account.tenant = Tenant {
                resident,
                used,
                ..*claim
            };
        }
        let tenants: Vec<Tenant> = self.accounts.iter().map(|of| of.tenant).collect();
        for (account, share) in self
            .accounts
            .iter_mut()
            .zip(shares(&tenants, used + room.free.values().sum::<u64>()))
        {
            account.share = share;
        }
        let budget = self.waste.of(room.budget);
        let born = std::mem::take(&mut self.born);
        let (mut moves, allowed, budget) =
            Round::new(self, room, budget).run(born, room.kernel_moves);
        moves.extend(self.exchange_pages(&allowed, budget));
        for space in self.spaces.values_mut() {
            space.is_reported = false;
        }
        moves
    }

    /// Tells what became of a move.
    pub fn done(&mut self, of: &Move, moved: u64, stayed: u64) {
        let number = self.number;
        let Some(space) = self.spaces.get_mut(&of.memory) else {
            return;
        };
        let account = &mut self.accounts[space.group];
        account.stayed += stayed;
        match of.pages {
            Some(pages) if stayed == 0 => self.pages.moved(of, &pages),
            _ => self.pages.forget_places(of.memory, of.number),
        }
        let Ok(at) = space
            .chunks
            .binary_search_by_key(&of.number, |chunk| chunk.place.number)
        else {
            return;
        };
        let chunk = &mut space.chunks[at];
        let place = &mut chunk.place;
        match of.way {
            Way::Up => {
                if moved > 0 && (of.pages.is_none() || place.top == 0) {
                    place.node = of.node;
                }
                place.top = (place.top + moved).min(place.resident);
                account.promoted += moved;
            }
            Way::Down => {
                place.top = place.top.saturating_sub(moved);
                account.demoted += moved;
            }
        }
        // The heat of the chunk as a whole is as before.
        if of.pages.is_some() {
            chunk.has_pages_moved |= moved > 0;
            return;
        }
        chunk.has_pages_moved &= moved == 0;
        if stayed > 0 {
            let (until, times) = &mut chunk.refused;
            *until = number.saturating_add(LEAVE_ALONE << *times);
            *times = (*times + 1).min(8);
        } else {
            chunk.refused = (0, 0);
        }
        if moved == 0 {
            return;
        }
        let page = page_of(of.memory, of.number);
        match of.way {
            Way::Up => {
                self.bounces.promoted(page);
            }
            Way::Down => self.bounces.demoted(page),
        }
        chunk.moved = number;
        chunk.judged = Some((space.reports, of.way));
    }

    /// Whether a chunk has been in use for long enough, by how often it went to and fro.
    fn is_steady(&self, memory: Memory, chunk: &Chunk) -> bool {
        let bounces = self.bounces.of(page_of(memory, chunk.place.number));
        u32::from(chunk.steady) >= u32::from(STEADY) * bounces
    }

    /// Takes the round's reports into the records, and counts what tenants have.
    fn count(&mut self) {
        for account in &mut self.accounts {
            account.tenant = Tenant::default();
            account.hot = 0;
            account.used_within = Default::default();
        }
        let mut thrashed = vec![false; self.accounts.len()];
        for space in self.spaces.values_mut() {
            let account = &mut self.accounts[space.group];
            let now = space.now();
            for (chunk, record) in space.chunks.iter_mut().zip(&mut space.records) {
                account.tenant.resident += chunk.place.resident;
                account.tenant.used += chunk.place.top;
                if !space.is_reported {
                    // As the last report had it.
                    account.hot += if chunk.seen > 0 {
                        chunk.place.resident
                    } else {
                        0
                    };
                    account.add_used(chunk, self.number);
                    continue;
                }
                self.random = self
                    .random
                    .wrapping_mul(1_664_525)
                    .wrapping_add(1_013_904_223);
                // However rarely, it is used.
                let is_used = chunk.weight > 0;
                // The rest of a division counts with a chance of its share.
                let chance = u64::from(self.random >> 8) % CHUNK as u64;
                let weight = (std::mem::take(&mut chunk.weight) + chance) / CHUNK as u64;
                let in_use = weight > 0;
                chunk.seen = if in_use {
                    chunk.seen.saturating_add(1)
                } else {
                    0
                };
                chunk.steady = match in_use {
                    true => chunk.steady.saturating_add(1),
                    false => chunk.steady.saturating_sub(1),
                };
                if is_used {
                    (chunk.used, chunk.swept) = (space.reports, space.sweeps);
                    chunk.last = self.number;
                }
                if in_use {
                    account.hot += chunk.place.resident;
                    let access = Access {
                        weight: weight as u32,
                        random: self.random,
                        ..Access::at(now.into())
                    };
                    *record = record.accessed(&self.policy, &access);
                }
                account.add_used(chunk, self.number);
                let age = |since: u32| space.reports - since;
                match chunk.judged {
                    Some((since, _)) if age(since) <= LATE_ROUNDS => {}
                    Some((since, Way::Up)) if is_used || age(since) > PAY_ROUNDS => {
                        chunk.judged = None;
                        self.judged.0 += 1;
                        if !is_used {
                            self.judged.1 += 1;
                            account.wasted += chunk.place.top;
                        }
                    }
                    Some((_, Way::Down)) => {
                        chunk.judged = None;
                        if in_use {
                            account.thrashed += chunk.place.resident;
                            thrashed[space.group] = true;
                        }
                    }
                    _ => {}
                }
            }
        }
        for (account, thrashed) in self.accounts.iter_mut().zip(thrashed) {
            match thrashed {
                true if account.rate.may_halve() => account.rate.halve(),
                _ => account.rate.recover(QUIET_ROUNDS),
            }
        }
    }

    /// Halves the rate where promotion did not pay, and doubles it where it did.
    fn judge(&mut self, most_waste: u64) {
        let (judged, wasted) = self.judged;
        if judged < JUDGED {
            return self.waste.recover(OFF_ROUNDS);
        }
        self.judged = (0, 0);
        match wasted * 100 > judged * most_waste {
            true => self.waste.halve(),
            false => self.waste.double(),
        }
    }
}

/// A number for the table of bounces.
fn page_of(memory: Memory, number: usize) -> u64 {
    let of = match memory {
        Memory::Process(process) => (u64::from(process.pid) << 36) ^ (process.start << 28),
        Memory::Shared(object) => (object.inode << 32) ^ u64::from(object.device.1) << 24 ^ 1 << 63,
    };
    of ^ number as u64
}

#[cfg(test)]
#[path = "tiering_tests.rs"]
mod tests;
