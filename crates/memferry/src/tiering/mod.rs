// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiering of the process's own memory: the application reports what it uses, and a call per round moves what the core's
//! policy chooses.
//!
//! The policy is that of the replay's `ours` and of the kernel's series, a round after each walk of page tables: what was used
//! since the last round counts as one access. Its clock counts rounds, so a round that comes late makes nothing look old.

#[cfg(test)]
mod tests;

use crate::error::{MoveError, check_range};
use crate::mover::Mover;
use crate::options::MoveOptions;
use crate::options::setters;
use crate::result::ListResult;
use crate::sync::Unpoisoned;
use crate::sys::page_size;
use memferry_core::balance::{self, Balance};
use memferry_core::hotness::{Access, Bounces, HEATS, Histogram, Policy, Record, Sweep};
use memferry_core::pace::{PACE_RATE_MAX, Pace, PaceParams};
use memferry_linux::numa;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds of the policy's clock from round to round: what its numbers are made for.
const ROUND_MS: u32 = 250;
/// Units whose node is looked up in each round, beside those that were used and had no page: 2 ms of system calls.
const LOOK: usize = 16 << 10;
/// Pages of one look-up.
const ASK: usize = 512;
/// A unit that would not move is left alone for so many rounds, then for twice as many, at most 2^8 times.
const LEAVE_ALONE: u32 = 4;

/// How memory is tiered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TieringOptions {
    /// Node of the top tier.
    pub top: u32,
    /// Node of the lower tier.
    pub lower: u32,
    /// Bytes of the memory that may lie in the top tier.
    pub top_bytes: usize,
    /// Bytes of a unit: what the application uses as a whole, and what moves as a whole. A multiple of the base page.
    /// Units in THPs move only if they are whole THPs: take 2 MiB, or advise the memory against them (MADV_NOHUGEPAGE).
    pub unit_bytes: usize,
    /// Bytes promoted per second at most.
    pub bytes_per_second: u64,
    /// How pages are moved.
    pub moves: MoveOptions,
}

impl TieringOptions {
    /// Units of 16 KiB, 1 GB/s.
    pub fn new(top: u32, lower: u32, top_bytes: usize) -> TieringOptions {
        TieringOptions {
            top,
            lower,
            top_bytes,
            unit_bytes: 16 << 10,
            bytes_per_second: 1_000_000_000,
            moves: MoveOptions::default(),
        }
    }

    setters! {
        unit_bytes: usize,
        bytes_per_second: u64,
        moves: MoveOptions,
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Bytes that went up.
    pub promoted_bytes: u64,
    /// Bytes that went down.
    pub demoted_bytes: u64,
    /// Bytes that were chosen and stayed: busy, in part of a THP, or no memory on the node.
    pub stayed_bytes: u64,
    /// Bytes of the memory that lie in the top tier now, as far as is known.
    pub top_bytes: u64,
}

/// Keeps the hot part of a range of this process in the top tier.
///
/// ```no_run
/// use memferry::{Batch, Mover, MoverOptions, Tiering, TieringOptions};
///
/// # fn main() -> Result<(), memferry::MoveError> {
/// # let (pool, page, over) = (0x7f00_0000_0000..0x7f40_0000_0000, 0x7f00_0000_4000, false);
/// let mover = Mover::new(MoverOptions::new(Batch::default()))?;
/// let tiering = Tiering::new(mover, pool, TieringOptions::new(0, 1, 16 << 30))?;
/// // Any thread that uses memory of the pool:
/// tiering.record(page);
/// // One thread, four times a second:
/// while !over {
///     let round = tiering.round()?;
///     println!("{} bytes up, {} down", round.promoted_bytes, round.demoted_bytes);
///     std::thread::sleep(std::time::Duration::from_millis(250));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Tiering {
    places: Box<dyn Places>,
    range: Range<usize>,
    options: TieringOptions,
    /// A bit per unit that was used since the last round.
    used: Vec<AtomicU64>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Tiering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiering")
            .field("range", &self.range)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What tiering asks of the machine.
trait Places: Send + Sync {
    /// Node or -errno of each page.
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()>;
    fn carry(&self, ranges: &[Range<usize>], to: u32) -> Result<ListResult, MoveError>;
}

struct Machine {
    mover: Mover,
    moves: MoveOptions,
}

impl Places for Machine {
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        numa::move_pages(0, pages, None, status, false).map(drop)
    }

    fn carry(&self, ranges: &[Range<usize>], to: u32) -> Result<ListResult, MoveError> {
        self.mover.move_pages(ranges, to, &self.moves)
    }
}

/// Where the first page of a unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tier {
    Absent,
    Top,
    Lower,
    /// On a node of neither tier.
    Elsewhere,
}

/// Of a place: the unit would not move, and is left alone.
const LEFT_ALONE: u8 = 0x80;

fn tier_of(place: u8) -> Tier {
    match place & !LEFT_ALONE {
        0 => Tier::Absent,
        1 => Tier::Top,
        2 => Tier::Lower,
        _ => Tier::Elsewhere,
    }
}

/// A unit that would not move.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// It is left alone before this round.
    until: u32,
    /// For so many rounds.
    rounds: u32,
}

#[cfg(test)]
thread_local! {
    /// How often a refusal was looked at.
    static REFUSALS_SEEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How many records were searched for such heats.
    static SEARCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

struct State {
    policy: Policy<u32>,
    balance: Balance,
    bounces: Bounces,
    pace: Pace,
    begun: Instant,
    records: Vec<u32>,
    /// A [`Tier`] each, and whether the unit is [`LEFT_ALONE`].
    places: Vec<u8>,
    /// Rounds so far.
    number: u32,
    /// The next unit to look up.
    look_at: usize,
    /// Units that would not move, also those that may be asked again and were not.
    refused: BTreeMap<usize, Refusal>,
}

impl Tiering {
    /// Tiers `range`, whose pages may be touched before or later. Nothing moves before the first round.
    ///
    /// # Errors
    /// A range or a unit that is no multiple of pages, a node without memory, the same node twice, or a rate of 0.
    pub fn new(
        mover: Mover,
        range: Range<usize>,
        options: TieringOptions,
    ) -> Result<Tiering, MoveError> {
        mover.check_node(options.top)?;
        mover.check_node(options.lower)?;
        let moves = options.moves.clone();
        Tiering::on(Box::new(Machine { mover, moves }), range, options)
    }

    fn on(
        places: Box<dyn Places>,
        range: Range<usize>,
        options: TieringOptions,
    ) -> Result<Tiering, MoveError> {
        check_range(&range)?;
        let refuse = |name, value, why: String| MoveError::BadOption { name, value, why };
        if options.top == options.lower {
            let why = "the tiers are the same node; give two".to_owned();
            return Err(refuse("lower", options.lower as usize, why));
        }
        let unit = options.unit_bytes;
        if unit == 0 || unit % page_size() != 0 || range.len() % unit != 0 {
            let why = format!(
                "it must be a multiple of {} bytes, and the range of {} bytes one of it",
                page_size(),
                range.len()
            );
            return Err(refuse("unit_bytes", unit, why));
        }
        let (params, rounds) = balance::defaults::<u32>();
        let pace = PaceParams {
            rate: options.bytes_per_second.min(PACE_RATE_MAX),
            // What two rounds may move is not lost if the second one is late.
            burst_ms: 2 * ROUND_MS,
            ..PaceParams::default()
        };
        let rate = |error: memferry_core::hotness::ParamError| {
            refuse("bytes_per_second", error.value as usize, error.to_string())
        };
        let units = range.len() / unit;
        let state = State {
            policy: Policy::new(params).map_err(rate)?,
            balance: Balance::new(rounds),
            bounces: Bounces::default(),
            pace: Pace::new(pace, 0).map_err(rate)?,
            begun: Instant::now(),
            records: vec![0; units],
            places: vec![Tier::Absent as u8; units],
            number: 0,
            look_at: 0,
            refused: BTreeMap::new(),
        };
        let mut used = Vec::new();
        used.resize_with(units.div_ceil(64), || AtomicU64::new(0));
        Ok(Tiering {
            places,
            range,
            options,
            used,
            state: Mutex::new(state),
        })
    }

    /// Notes that the memory at `addr` is used; addresses outside of the range are none of its. Any thread may call it at any
    /// time: a load, and a store the first time since the last round. On memory that is used so much that most of it is used
    /// between any two rounds, report one use in so many.
    #[inline]
    pub fn record(&self, addr: usize) {
        let unit = addr.wrapping_sub(self.range.start) / self.options.unit_bytes;
        let Some(word) = self.used.get(unit / 64) else {
            return;
        };
        let bit = 1 << (unit % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Moves what should move now: idle memory down where new memory comes, the hottest into what is free of the top tier, then
    /// the hottest against the coldest while that gains more than it costs. Call it four times a second, from one thread.
    ///
    /// # Errors
    /// As [`Mover::move_pages`]; what was moved before is known, and the next round goes on.
    pub fn round(&self) -> Result<Round, MoveError> {
        let mut state = self.state.lock().unpoisoned();
        let state = &mut *state;
        state.number += 1;
        state.end_refusals();
        let now = state.number.wrapping_mul(ROUND_MS);
        let born = self.take_accesses(state, now);
        let sweep = Sweep {
            now,
            last: now.wrapping_sub(ROUND_MS),
            number: state.number,
        };
        let policy = state.policy;
        u32::sweep(
            &mut state.records,
            &policy,
            &sweep,
            &mut Histogram::default(),
        );
        if state.number % state.balance.params().bounce_rounds == 0 {
            state.bounces.age();
        }
        let unit = self.options.unit_bytes as u64;
        let ms = u64::try_from(state.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // A unit larger than the bucket goes when the bucket is full.
        let saved = (state.pace.budget(ms) / unit).max(1);
        let mut round = Round::default();
        let reserved = state.pace.reserve(ms, saved * unit);
        let budget = reserved.as_ref().map_or(0, |_| saved);
        let done = self.choose(state, now, born, budget, &mut round);
        if let Some(reserved) = reserved {
            state.pace.settle(reserved, round.promoted_bytes);
        }
        done?;
        round.top_bytes = state.count(Tier::Top) * unit;
        Ok(round)
    }

    /// Counts what was used since the last round, and looks up where memory lies; returns how many units have come to be.
    fn take_accesses(&self, state: &mut State, now: u32) -> u64 {
        let mut unknown = Vec::new();
        let access = Access::at(now.into());
        for (index, word) in self.used.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let unit = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(record) = state.records.get_mut(unit) else {
                    break;
                };
                *record = record.accessed(&state.policy, &access);
                if tier_of(state.places[unit]) == Tier::Absent {
                    unknown.push(unit);
                }
            }
        }
        let units = state.places.len();
        let next = state.look_at..state.look_at + LOOK.min(units);
        state.look_at = next.end % units;
        unknown.extend(next.map(|unit| unit % units));
        let mut born = 0;
        let (mut pages, mut status) = (Vec::with_capacity(ASK), [0; ASK]);
        for units in unknown.chunks(ASK) {
            pages.clear();
            pages.extend(units.iter().map(|&unit| self.unit(unit).start));
            let status = &mut status[..units.len()];
            if self.places.nodes(&pages, status).is_err() {
                continue;
            }
            for (&unit, &node) in units.iter().zip(&*status) {
                let tier = match u32::try_from(node) {
                    Err(_) => Tier::Absent,
                    Ok(node) if node == self.options.top => Tier::Top,
                    Ok(node) if node == self.options.lower => Tier::Lower,
                    Ok(_) => Tier::Elsewhere,
                };
                let before = state.set_tier(unit, tier);
                // Memory that was there before the first rounds is not new.
                let looked_at_all = (state.number as usize - 1) * LOOK >= state.places.len();
                born += u64::from(looked_at_all && before == Tier::Absent && tier != before);
            }
        }
        born
    }

    fn unit(&self, unit: usize) -> Range<usize> {
        let start = self.range.start + unit * self.options.unit_bytes;
        start..start + self.options.unit_bytes
    }

    fn choose(
        &self,
        state: &mut State,
        now: u32,
        born: u64,
        budget: u64,
        round: &mut Round,
    ) -> Result<(), MoveError> {
        let policy = state.policy;
        let capacity = (self.options.top_bytes / self.options.unit_bytes) as u64;
        let free = |state: &State| capacity.saturating_sub(state.count(Tier::Top));

        let short = state.balance.room(born, capacity, free(state));
        // A tier that became smaller, or was filled by others.
        let over = state.count(Tier::Top).saturating_sub(capacity);
        let idle = if over > 0 {
            HEATS - 1
        } else {
            balance::idle(&policy)
        };
        let cold = state.coldest(now, idle, short.max(over));
        self.carry(state, &cold, Tier::Lower, round)?;

        let mut promoted = 0;
        let lower = state.histogram(Tier::Lower, now);
        let (cut, room) = state.balance.fill(&policy, &lower, free(state), budget);
        // With the border at heat 0 all that is hot finds room: mostly none, and then none is searched for.
        let hottest = if cut.heat > 0 { room } else { cut.above };
        if hottest > 0 {
            let mut hot = state.hottest(now, cut.heat);
            hot.truncate(hottest as usize);
            promoted += self.carry(state, &hot, Tier::Top, round)?;
        }

        let (top, lower) = (
            state.histogram(Tier::Top, now),
            state.histogram(Tier::Lower, now),
        );
        let border = policy.exchange(&top, &lower, budget.saturating_sub(promoted));
        if border.pages == 0 {
            return Ok(());
        }
        // What went up and down before has to be that much hotter than the border.
        let mut hot = state.hottest(now, border.hot);
        hot.retain(|&unit| {
            let heat = policy.heat(state.records[unit].view(now));
            heat >= balance::bar(&policy, border.hot, state.bounces.of(unit as u64))
        });
        hot.truncate(border.pages as usize);
        let cold = state.coldest(now, border.cold, hot.len() as u64);
        let left = self.carry(state, &cold, Tier::Lower, round)?;
        hot.truncate(left as usize);
        self.carry(state, &hot, Tier::Top, round).map(drop)
    }

    /// Moves units to a tier; returns how many went.
    fn carry(
        &self,
        state: &mut State,
        units: &[usize],
        to: Tier,
        round: &mut Round,
    ) -> Result<u64, MoveError> {
        if units.is_empty() {
            return Ok(0);
        }
        let (node, bytes) = match to {
            Tier::Top => (self.options.top, &mut round.promoted_bytes),
            _ => (self.options.lower, &mut round.demoted_bytes),
        };
        let ranges: Vec<_> = units.iter().map(|&unit| self.unit(unit)).collect();
        let result = self.places.carry(&ranges, node)?;
        let mut went = 0;
        for (&unit, result) in units.iter().zip(&result.ranges) {
            *bytes += result.moved.bytes;
            round.stayed_bytes += result.left_bytes();
            if result.left_bytes() > 0 {
                state.refuse(unit);
                continue;
            }
            state.refused.remove(&unit);
            went += 1;
            match to {
                _ if result.moved.bytes + result.already_there.bytes == 0 => {
                    state.set_tier(unit, Tier::Absent);
                    continue;
                }
                Tier::Top => drop(state.bounces.promoted(unit as u64)),
                _ => state.bounces.demoted(unit as u64),
            }
            state.set_tier(unit, to);
        }
        Ok(went)
    }
}

impl State {
    fn count(&self, tier: Tier) -> u64 {
        let places = self.places.iter();
        places.filter(|place| tier_of(**place) == tier).count() as u64
    }

    /// Notes where a unit lies; returns where it did.
    fn set_tier(&mut self, unit: usize, tier: Tier) -> Tier {
        let place = &mut self.places[unit];
        let before = tier_of(*place);
        *place = *place & LEFT_ALONE | tier as u8;
        before
    }

    /// The unit would not move in this round.
    fn refuse(&mut self, unit: usize) {
        self.places[unit] |= LEFT_ALONE;
        let before = self.refused.get(&unit).map(|refusal| refusal.rounds);
        let rounds = before.map_or(LEAVE_ALONE, |rounds| (2 * rounds).min(LEAVE_ALONE << 8));
        let until = self.number.saturating_add(rounds);
        self.refused.insert(unit, Refusal { until, rounds });
    }

    /// Lets the units be asked again whose time is over, and forgets those that nobody asked for as long as they had been left
    /// alone.
    fn end_refusals(&mut self) {
        let (places, number) = (&mut self.places, self.number);
        self.refused.retain(|&unit, refusal| {
            #[cfg(test)]
            REFUSALS_SEEN.set(REFUSALS_SEEN.get() + 1);
            if refusal.until <= number {
                places[unit] &= !LEFT_ALONE;
            }
            number < refusal.until.saturating_add(refusal.rounds)
        });
    }

    /// Counts the units of a tier that may move: only these can be chosen.
    fn histogram(&self, tier: Tier, now: u32) -> Histogram {
        let mut histogram = Histogram::default();
        let mut some = Vec::with_capacity(ASK);
        let mut units = 0..self.records.len();
        while !units.is_empty() {
            let of_tier =
                (units.by_ref().take(ASK)).filter(|&unit| self.places[unit] == tier as u8);
            some.clear();
            some.extend(of_tier.map(|unit| self.records[unit]));
            u32::count(&some, now, &mut histogram);
        }
        histogram
    }

    /// The units of a tier with such heats, and these.
    fn find(&self, tier: Tier, now: u32, heats: (u32, u32)) -> Vec<(u32, usize)> {
        #[cfg(test)]
        SEARCHED.set(SEARCHED.get() + self.records.len());
        let mut found = self.policy.find(&self.records, now, heats);
        found.retain(|&(_, unit)| self.places[unit] == tier as u8);
        found
    }

    /// What reached the threshold in the lower tier, the hottest first.
    fn hottest(&self, now: u32, least: u32) -> Vec<usize> {
        let mut found = self.find(Tier::Lower, now, (least, HEATS - 1));
        let threshold = self.policy.params().threshold;
        found.retain(|&(_, unit)| u32::from(self.records[unit].view(now).freq) >= threshold);
        found.sort_unstable_by_key(|&(heat, unit)| (Reverse(heat), unit));
        found.into_iter().map(|(_, unit)| unit).collect()
    }

    /// The coldest of the top tier first.
    fn coldest(&self, now: u32, most: u32, limit: u64) -> Vec<usize> {
        if limit == 0 {
            return Vec::new();
        }
        let mut found = self.find(Tier::Top, now, (0, most));
        found.sort_unstable();
        let found = found.into_iter().map(|(_, unit)| unit);
        found.take(limit as usize).collect()
    }
}
