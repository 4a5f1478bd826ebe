// SPDX-License-Identifier: MIT OR Apache-2.0
//! The units of one range: what is known of their use, where they lie, and which of them would not move.
//!
//! A unit takes 4 bytes of record, one of place, and a bit or two of [`Used`]. Nothing is moved here.

use super::used::{Used, Words};
use memferry_core::hotness::{Access, Histogram, Policy, Record, Sweep};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A unit that would not move is left alone for so many rounds, then for twice as many, at most 2^8 times.
const LEAVE_ALONE: u32 = 4;
/// Records that are counted at once.
const BLOCK: usize = 512;

/// Where the first page of a unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tier {
    /// Not looked at yet.
    Unknown,
    Absent,
    Top,
    Lower,
    /// On a node of neither tier.
    Elsewhere,
}

const TIERS: usize = Tier::Elsewhere as usize + 1;
/// Of a place: the unit would not move, and is left alone.
const LEFT_ALONE: u8 = 0x80;

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
    pub(super) static REFUSALS_SEEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How many records were searched for such heats.
    pub(super) static SEARCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) struct Part {
    pub(super) range: Range<usize>,
    pub(super) words: Words,
    unit_bytes: usize,
    /// Number of the first unit. A unit keeps its number, and no other one ever has it, not even one at its address.
    first: u64,
    records: Vec<u32>,
    /// A [`Tier`] each, and whether the unit is [`LEFT_ALONE`].
    places: Vec<u8>,
    /// Units that would not move, also those that may be asked again and were not.
    refused: BTreeMap<u32, Refusal>,
    counts: [u64; TIERS],
}

impl Part {
    /// The units of `range`, at most 2^32, of which nothing is known.
    pub(super) fn new(range: Range<usize>, unit_bytes: usize, first: u64, words: Words) -> Part {
        let units = range.len() / unit_bytes;
        let mut counts = [0; TIERS];
        counts[Tier::Unknown as usize] = units as u64;
        Part {
            range,
            words,
            unit_bytes,
            first,
            records: vec![0; units],
            places: vec![Tier::Unknown as u8; units],
            refused: BTreeMap::new(),
            counts,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn number(&self, unit: u32) -> u64 {
        self.first + u64::from(unit)
    }

    pub(super) fn unit(&self, unit: u32) -> Range<usize> {
        let start = self.range.start + unit as usize * self.unit_bytes;
        start..start + self.unit_bytes
    }

    pub(super) fn count(&self, tier: Tier) -> u64 {
        self.counts[tier as usize]
    }

    pub(super) fn record(&self, unit: u32) -> u32 {
        self.records[unit as usize]
    }

    #[cfg(test)]
    pub(super) fn tier(&self, unit: u32) -> Tier {
        tier_of(self.places[unit as usize])
    }

    /// Notes where a unit lies; returns where it did.
    pub(super) fn set_tier(&mut self, unit: u32, tier: Tier) -> Tier {
        let place = &mut self.places[unit as usize];
        let before = tier_of(*place);
        *place = *place & LEFT_ALONE | tier as u8;
        self.counts[before as usize] -= 1;
        self.counts[tier as usize] += 1;
        before
    }

    /// The unit would not move in this round.
    pub(super) fn refuse(&mut self, unit: u32, round: u32) {
        self.places[unit as usize] |= LEFT_ALONE;
        let before = self.refused.get(&unit).map(|refusal| refusal.rounds);
        let rounds = before.map_or(LEAVE_ALONE, |rounds| (2 * rounds).min(LEAVE_ALONE << 8));
        let until = round.saturating_add(rounds);
        self.refused.insert(unit, Refusal { until, rounds });
    }

    /// The unit moved.
    pub(super) fn accept(&mut self, unit: u32) {
        self.refused.remove(&unit);
    }

    /// Lets the units be asked again whose time is over in this round, and forgets those that nobody asked for as long as
    /// they had been left alone.
    pub(super) fn end_refusals(&mut self, round: u32) {
        let places = &mut self.places;
        self.refused.retain(|&unit, refusal| {
            #[cfg(test)]
            REFUSALS_SEEN.set(REFUSALS_SEEN.get() + 1);
            if refusal.until <= round {
                places[unit as usize] &= !LEFT_ALONE;
            }
            round < refusal.until.saturating_add(refusal.rounds)
        });
    }

    /// Takes the bits of what was used, and tells of the units that are not known to be anywhere.
    pub(super) fn take_accesses(
        &mut self,
        policy: &Policy<u32>,
        access: &Access,
        mut nowhere: impl FnMut(u32),
    ) {
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                let unit = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // Bits beyond the end are of units that were forgotten.
                let Some(record) = self.records.get_mut(unit) else {
                    break;
                };
                *record = record.accessed(policy, access);
                if matches!(tier_of(self.places[unit]), Tier::Unknown | Tier::Absent) {
                    nowhere(unit as u32);
                }
            }
        }
    }

    pub(super) fn sweep(&mut self, policy: &Policy<u32>, sweep: &Sweep) {
        let mut histogram = Histogram::default();
        u32::sweep(&mut self.records, policy, sweep, &mut histogram);
    }

    /// Counts the units of both tiers that may move: only these can be chosen.
    pub(super) fn count_heats(&self, now: u32, top: &mut Histogram, lower: &mut Histogram) {
        let blocks = self.records.chunks(BLOCK).zip(self.places.chunks(BLOCK));
        for (records, places) in blocks {
            for (tier, histogram) in [(Tier::Top, &mut *top), (Tier::Lower, &mut *lower)] {
                let (mut of_tier, mut len) = ([0; BLOCK], 0);
                for (&record, &place) in records.iter().zip(places) {
                    of_tier[len] = record;
                    len += usize::from(place == tier as u8);
                }
                u32::count(&of_tier[..len], now, histogram);
            }
        }
    }

    /// Tells of the units of a tier that may move and have such heats, ascending: heat, unit and record.
    pub(super) fn find(
        &self,
        policy: &Policy<u32>,
        now: u32,
        tier: Tier,
        heats: (u32, u32),
        mut found: impl FnMut(u32, u32, u32),
    ) {
        #[cfg(test)]
        SEARCHED.set(SEARCHED.get() + self.len());
        let (mut space, mut from) = ([0; BLOCK], 0);
        while from < self.records.len() {
            let count;
            (count, from) = u32::find(&self.records, from, policy, now, heats, &mut space);
            for &unit in &space[..count] {
                if self.places[unit as usize] == tier as u8 {
                    let record = self.records[unit as usize];
                    found(policy.heat(record.view(now)), unit, record);
                }
            }
        }
    }

    /// The units from `at` on as a part of their own. Uses of them at this moment may be lost.
    pub(super) fn split_off(&mut self, at: usize, used: &Used) -> Part {
        let units = self.len() - at;
        let words = used.words(units);
        for unit in 0..units {
            let from = at + unit;
            if self.words[from / 64].load(Ordering::Relaxed) >> (from % 64) & 1 != 0 {
                words[unit / 64].fetch_or(1 << (unit % 64), Ordering::Relaxed);
            }
        }
        let refused = self.refused.split_off(&(at as u32));
        let mut part = Part {
            range: self.unit(at as u32).start..self.range.end,
            words,
            unit_bytes: self.unit_bytes,
            first: self.first + at as u64,
            records: self.records.split_off(at),
            places: self.places.split_off(at),
            refused: refused
                .into_iter()
                .map(|(unit, refusal)| (unit - at as u32, refusal))
                .collect(),
            counts: [0; TIERS],
        };
        for &place in &part.places {
            part.counts[tier_of(place) as usize] += 1;
        }
        for (count, gone) in self.counts.iter_mut().zip(part.counts) {
            *count -= gone;
        }
        self.truncate(at);
        part
    }

    /// Forgets the units from `at` on.
    pub(super) fn truncate(&mut self, at: usize) {
        for &place in self.places.get(at..).unwrap_or_default() {
            self.counts[tier_of(place) as usize] -= 1;
        }
        drop(self.refused.split_off(&(at as u32)));
        self.records.truncate(at);
        self.records.shrink_to_fit();
        self.places.truncate(at);
        self.places.shrink_to_fit();
        self.range.end = self.range.start + at * self.unit_bytes;
    }

    #[cfg(test)]
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Bytes beside those of [`Used`].
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<u32>() + self.places.capacity()
    }
}

fn tier_of(place: u8) -> Tier {
    match place & !LEFT_ALONE {
        0 => Tier::Unknown,
        1 => Tier::Absent,
        2 => Tier::Top,
        3 => Tier::Lower,
        _ => Tier::Elsewhere,
    }
}
