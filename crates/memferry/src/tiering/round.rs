// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of all units, and what a round makes of it: it takes what was used, chooses by the core's policy, and has
//! units moved.

use super::part::{Part, Tier};
use super::used::Used;
use super::{Places, Round, TieringOptions};
use crate::error::MoveError;
use crate::ranges::meeting;
use memferry_core::balance::{self, Balance};
use memferry_core::hotness::{
    Access, Bounces, HEATS, Histogram, ParamError, Policy, Record, Sweep,
};
use memferry_core::pace::{PACE_RATE_MAX, Pace, PaceParams};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Milliseconds of the policy's clock from round to round: what its numbers are made for.
const ROUND_MS: u32 = 250;
/// Units whose node is looked up in each round, beside those that were used and had no page: 2 ms of system calls.
pub(super) const LOOK: usize = 16 << 10;
/// Pages of one look-up.
const ASK: usize = 512;

/// A unit: the place of its part among the parts, and its own there. Right while the state is locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    part: u32,
    unit: u32,
}

pub(super) struct State {
    policy: Policy<u32>,
    balance: Balance,
    bounces: Bounces,
    pace: Pace,
    begun: Instant,
    /// Ascending, with no address in common.
    parts: Vec<Part>,
    /// Number of the next unit that is added.
    next_number: u64,
    /// Rounds so far.
    number: u32,
    /// The next unit to look up is the first that ends behind this address.
    look_at: usize,
}

impl State {
    /// Without units.
    ///
    /// # Errors
    /// A rate that cannot be kept.
    pub(super) fn new(bytes_per_second: u64) -> Result<State, ParamError> {
        let (params, rounds) = balance::defaults::<u32>();
        let pace = PaceParams {
            rate: bytes_per_second.min(PACE_RATE_MAX),
            // What two rounds may move is not lost if the second one is late.
            burst_ms: 2 * ROUND_MS,
            ..PaceParams::default()
        };
        Ok(State {
            policy: Policy::new(params)?,
            balance: Balance::new(rounds),
            bounces: Bounces::default(),
            pace: Pace::new(pace, 0)?,
            begun: Instant::now(),
            parts: Vec::new(),
            next_number: 0,
            number: 0,
            look_at: 0,
        })
    }

    /// Adds a part for a range of whole units, at most 2^32.
    ///
    /// # Errors
    /// A part has addresses of it.
    pub(super) fn add(
        &mut self,
        range: Range<usize>,
        unit_bytes: usize,
        used: &Used,
    ) -> Result<(), MoveError> {
        let met = meeting(&self.parts, |part| &part.range, &range);
        if !met.is_empty() {
            return Err(MoveError::Overlap { range });
        }
        let units = range.len() / unit_bytes;
        let part = Part::new(range, unit_bytes, self.next_number, used.words(units));
        self.next_number += units as u64;
        self.parts.insert(met.start, part);
        self.publish(used);
        Ok(())
    }

    /// Forgets the units of `range`; false if it begins or ends within one, and nothing is forgotten then.
    pub(super) fn forget(&mut self, range: &Range<usize>, unit_bytes: usize, used: &Used) -> bool {
        let met = meeting(&self.parts, |part| &part.range, range);
        let cuts = |part: &Part, at: usize| {
            part.range.contains(&at) && (at - part.range.start) % unit_bytes != 0
        };
        let met_parts = &self.parts[met.clone()];
        if (met_parts.iter()).any(|part| cuts(part, range.start) || cuts(part, range.end)) {
            return false;
        }
        // The table has their words until the new one is there: no tail may take these before.
        let published: Vec<_> = met_parts
            .iter()
            .map(|part| Arc::clone(&part.words))
            .collect();
        let mut left = Vec::new();
        for mut part in self.parts.drain(met.clone()) {
            let tail = (range.end < part.range.end)
                .then(|| part.split_off((range.end - part.range.start) / unit_bytes, used));
            if range.start > part.range.start {
                part.truncate((range.start - part.range.start) / unit_bytes);
                left.push(part);
            }
            left.extend(tail);
        }
        drop(self.parts.splice(met.start..met.start, left));
        self.publish(used);
        drop(published);
        true
    }

    fn publish(&self, used: &Used) {
        used.publish(self.parts.iter().map(|part| (&part.range, &part.words)));
    }

    fn units(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    fn count(&self, tier: Tier) -> u64 {
        self.parts.iter().map(|part| part.count(tier)).sum()
    }

    fn part(&mut self, unit: Unit) -> &mut Part {
        &mut self.parts[unit.part as usize]
    }

    /// # Errors
    /// Those of `machine`'s moves.
    pub(super) fn round(
        &mut self,
        machine: &dyn Places,
        options: &TieringOptions,
    ) -> Result<Round, MoveError> {
        self.number += 1;
        let now = self.number.wrapping_mul(ROUND_MS);
        let born = self.take_accesses(machine, options, now);
        let sweep = Sweep {
            now,
            last: now.wrapping_sub(ROUND_MS),
            number: self.number,
        };
        for part in &mut self.parts {
            part.sweep(&self.policy, &sweep);
            part.end_refusals(self.number);
        }
        if self.number % self.balance.params().bounce_rounds == 0 {
            self.bounces.age();
        }
        let unit = options.unit_bytes as u64;
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // A unit larger than the bucket goes when the bucket is full.
        let saved = (self.pace.budget(ms) / unit).max(1);
        let reserved = self.pace.reserve(ms, saved * unit);
        let budget = reserved.as_ref().map_or(0, |_| saved);
        let mut step = Step {
            machine,
            options,
            round: Round::default(),
        };
        let done = self.choose(&mut step, now, born, budget);
        let mut round = step.round;
        if let Some(reserved) = reserved {
            self.pace.settle(reserved, round.promoted_bytes);
        }
        done?;
        round.top_bytes = self.count(Tier::Top) * unit;
        Ok(round)
    }

    /// Counts what was used since the last round, and looks up where memory lies; returns how many units have come to be.
    fn take_accesses(&mut self, machine: &dyn Places, options: &TieringOptions, now: u32) -> u64 {
        let mut unknown = Vec::new();
        let access = Access::at(now.into());
        for (index, part) in self.parts.iter_mut().enumerate() {
            let part_index = index as u32;
            part.take_accesses(&self.policy, &access, |unit| {
                unknown.push(Unit {
                    part: part_index,
                    unit,
                });
            });
        }
        self.add_those_in_turn(&mut unknown, options.unit_bytes);
        let mut born = 0;
        let (mut pages, mut status) = (Vec::with_capacity(ASK), [0; ASK]);
        for units in unknown.chunks(ASK) {
            pages.clear();
            pages.extend(
                units
                    .iter()
                    .map(|&unit| self.part(unit).unit(unit.unit).start),
            );
            let status = &mut status[..units.len()];
            if machine.nodes(&pages, status).is_err() {
                continue;
            }
            for (&unit, &node) in units.iter().zip(&*status) {
                let tier = match u32::try_from(node) {
                    Err(_) => Tier::Absent,
                    Ok(node) if node == options.top => Tier::Top,
                    Ok(node) if node == options.lower => Tier::Lower,
                    Ok(_) => Tier::Elsewhere,
                };
                let before = self.part(unit).set_tier(unit.unit, tier);
                born += u64::from(before == Tier::Absent && tier != before);
            }
        }
        born
    }

    /// The units whose turn to be looked up it is.
    fn add_those_in_turn(&mut self, units: &mut Vec<Unit>, unit_bytes: usize) {
        let mut left = LOOK.min(self.units());
        while left > 0 {
            let at = self
                .parts
                .partition_point(|part| part.range.end <= self.look_at);
            let Some(part) = self.parts.get(at) else {
                self.look_at = 0;
                continue;
            };
            let first = self.look_at.saturating_sub(part.range.start) / unit_bytes;
            let end = part.len().min(first + left);
            units.extend((first..end).map(|unit| Unit {
                part: at as u32,
                unit: unit as u32,
            }));
            self.look_at = part.range.start + end * unit_bytes;
            left -= end - first;
        }
    }

    fn choose(
        &mut self,
        step: &mut Step<'_>,
        now: u32,
        born: u64,
        budget: u64,
    ) -> Result<(), MoveError> {
        let policy = self.policy;
        let capacity = (step.options.top_bytes / step.options.unit_bytes) as u64;
        let free = |state: &State| capacity.saturating_sub(state.count(Tier::Top));

        let short = self.balance.room(born, capacity, free(self));
        // A tier that became smaller, or was filled by others.
        let over = self.count(Tier::Top).saturating_sub(capacity);
        let idle = if over > 0 {
            HEATS - 1
        } else {
            balance::idle(&policy)
        };
        let cold = self.coldest(now, idle, short.max(over));
        self.carry(step, &cold, Tier::Lower)?;

        let mut promoted = 0;
        let (mut top, mut lower) = self.histograms(now);
        let (cut, room) = self.balance.fill(&policy, &lower, free(self), budget);
        // With the border at heat 0 all that is hot finds room: mostly none, and then none is searched for.
        let hottest = if cut.heat > 0 { room } else { cut.above };
        if hottest > 0 {
            let mut hot = self.hottest(now, cut.heat);
            hot.truncate(hottest as usize);
            promoted += self.carry(step, &hot, Tier::Top)?;
            (top, lower) = self.histograms(now);
        }

        let border = policy.exchange(&top, &lower, budget.saturating_sub(promoted));
        if border.pages == 0 {
            return Ok(());
        }
        // What went up and down before has to be that much hotter than the border.
        let mut hot = self.hottest(now, border.hot);
        hot.retain(|&Unit { part, unit }| {
            let part = &self.parts[part as usize];
            let heat = policy.heat(part.record(unit).view(now));
            heat >= balance::bar(&policy, border.hot, self.bounces.of(part.number(unit)))
        });
        hot.truncate(border.pages as usize);
        let cold = self.coldest(now, border.cold, hot.len() as u64);
        let left = self.carry(step, &cold, Tier::Lower)?;
        hot.truncate(left as usize);
        self.carry(step, &hot, Tier::Top).map(drop)
    }

    /// Moves units to a tier; returns how many went.
    fn carry(&mut self, step: &mut Step<'_>, units: &[Unit], to: Tier) -> Result<u64, MoveError> {
        if units.is_empty() {
            return Ok(0);
        }
        let round = &mut step.round;
        let (node, bytes) = match to {
            Tier::Top => (step.options.top, &mut round.promoted_bytes),
            _ => (step.options.lower, &mut round.demoted_bytes),
        };
        let range = |&unit: &Unit| self.part(unit).unit(unit.unit);
        let ranges: Vec<_> = units.iter().map(range).collect();
        let result = step.machine.carry(&ranges, node)?;
        let mut went = 0;
        for (unit, result) in units.iter().zip(&result.ranges) {
            let part = &mut self.parts[unit.part as usize];
            let unit = unit.unit;
            *bytes += result.moved.bytes;
            round.stayed_bytes += result.left_bytes();
            if result.left_bytes() > 0 {
                part.refuse(unit, self.number);
                continue;
            }
            part.accept(unit);
            went += 1;
            if result.moved.bytes + result.already_there.bytes == 0 {
                part.set_tier(unit, Tier::Absent);
                continue;
            }
            part.set_tier(unit, to);
            match to {
                Tier::Top => drop(self.bounces.promoted(part.number(unit))),
                _ => self.bounces.demoted(part.number(unit)),
            }
        }
        Ok(went)
    }

    /// Of the top and of the lower tier, the units that may move.
    fn histograms(&self, now: u32) -> (Histogram, Histogram) {
        let (mut top, mut lower) = (Histogram::default(), Histogram::default());
        for part in &self.parts {
            part.count_heats(now, &mut top, &mut lower);
        }
        (top, lower)
    }

    /// What reached the threshold in the lower tier, the hottest first.
    fn hottest(&self, now: u32, least: u32) -> Vec<Unit> {
        let threshold = self.policy.params().threshold;
        let mut found = self.find(now, Tier::Lower, (least, HEATS - 1), |record| {
            u32::from(record.view(now).freq) >= threshold
        });
        found.sort_unstable_by_key(|&(heat, unit)| (Reverse(heat), unit));
        found.into_iter().map(|(_, unit)| unit).collect()
    }

    /// The coldest of the top tier first.
    fn coldest(&self, now: u32, most: u32, limit: u64) -> Vec<Unit> {
        if limit == 0 {
            return Vec::new();
        }
        let mut found = self.find(now, Tier::Top, (0, most), |_| true);
        found.sort_unstable();
        let found = found.into_iter().map(|(_, unit)| unit);
        found.take(limit as usize).collect()
    }

    fn find(
        &self,
        now: u32,
        tier: Tier,
        heats: (u32, u32),
        fits: impl Fn(u32) -> bool,
    ) -> Vec<(u32, Unit)> {
        let mut found = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            part.find(&self.policy, now, tier, heats, |heat, unit, record| {
                if fits(record) {
                    let part = index as u32;
                    found.push((heat, Unit { part, unit }));
                }
            });
        }
        found
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// What the steps of a round share.
struct Step<'a> {
    machine: &'a dyn Places,
    options: &'a TieringOptions,
    round: Round,
}
