// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes over all records, while others write them: a copy of some pages of memory at a time goes through the core.

use super::map::Section;
use super::{Histogram, Tracker, View, cell};
use crate::hotness::{AGES, Record, Sweep};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that are copied at once: two copies of 8 KiB stay in the smallest first-level cache. Larger ones were no faster.
pub(super) const CHUNK: usize = 1024;

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The pages by frequency and age, after it. What others write meanwhile may be counted before or after.
    pub histogram: Histogram,
    /// Records that it changed.
    pub changed: u64,
    /// True if it came later than `sweep_ms` after the last one: all records were made idle, as no time can be trusted.
    pub late: bool,
    /// True if the records cooled by a level.
    pub cooled: bool,
}

/// The records of a word, as they lie in memory.
pub(super) fn records<R: Record>(words: &mut [u64]) -> &mut [R] {
    let len = words.len() * cell::lanes::<R>();
    // SAFETY: R is u8 or u32 (the trait is sealed): any bits are valid, and a word's alignment and size are multiples.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

/// Copies the words of a chunk.
pub(super) fn copy(cells: &[AtomicU64], words: &mut [u64]) {
    for (word, cell) in words.iter_mut().zip(cells) {
        *word = cell.load(Ordering::Relaxed);
    }
}

/// Counts a chunk if nothing is known of any of its pages.
fn count_unknown<R: Record>(words: &[u64], histogram: &mut Histogram) -> bool {
    let unknown = words.iter().all(|&word| word == 0);
    if unknown {
        histogram.pages[0][AGES - 1] += (words.len() * cell::lanes::<R>()) as u64;
    }
    unknown
}

impl<R: Record> Tracker<R> {
    /// Ages all records: call it at least every `sweep_ms` of the policy. Others may record meanwhile; a second sweep waits
    /// for the first.
    pub fn sweep(&self, time: u64) -> Swept {
        let mut last = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let sweep = Sweep {
            now: time as u32,
            last: last.0,
            number: last.1.wrapping_add(1).max(1),
        };
        *last = (sweep.now, sweep.number);
        let params = self.options.policy.params();
        let mut swept = Swept {
            late: sweep.now.wrapping_sub(sweep.last) > params.sweep_ms,
            cooled: params.cool_sweeps != 0 && sweep.number % params.cool_sweeps == 0,
            ..Swept::default()
        };
        let mut copies = [[0; CHUNK]; 2];
        for (_, section) in self.map.sections() {
            for cells in section.words().chunks(CHUNK) {
                let histogram = &mut swept.histogram;
                swept.changed += self.sweep_chunk(cells, &mut copies, &sweep, histogram);
            }
        }
        swept
    }

    fn sweep_chunk(
        &self,
        cells: &[AtomicU64],
        [before, after]: &mut [[u64; CHUNK]; 2],
        sweep: &Sweep,
        histogram: &mut Histogram,
    ) -> u64 {
        let policy = &self.options.policy;
        copy(cells, before);
        if count_unknown::<R>(&before[..cells.len()], histogram) {
            return 0;
        }
        after.copy_from_slice(before);
        let aged = records::<R>(&mut after[..cells.len()]);
        let changed = R::sweep(aged, policy, sweep, histogram);
        if changed > 0 {
            for ((cell, &seen), &wanted) in cells.iter().zip(&*before).zip(&*after) {
                if seen != wanted {
                    cell::update_all::<R>(cell, seen, wanted, |record| record.aged(policy, sweep));
                }
            }
        }
        changed as u64
    }

    /// Counts all records.
    pub fn histogram(&self, time: u64) -> Histogram {
        let mut histogram = Histogram::default();
        let mut words = [0; CHUNK];
        for (_, section) in self.map.sections() {
            for cells in section.words().chunks(CHUNK) {
                copy(cells, &mut words);
                if !count_unknown::<R>(&words[..cells.len()], &mut histogram) {
                    let records = records::<R>(&mut words[..cells.len()]);
                    R::count(records, time as u32, &mut histogram);
                }
            }
        }
        histogram
    }

    /// Calls `see` for each page of which anything is known, ascending.
    pub fn visit(&self, time: u64, mut see: impl FnMut(u64, View)) {
        let mut words = [0; CHUNK];
        for (first, section) in self.map.sections() {
            self.visit_section(first, section, time as u32, &mut words, &mut see);
        }
    }

    fn visit_section(
        &self,
        first: u64,
        section: &Section,
        now: u32,
        words: &mut [u64; CHUNK],
        see: &mut impl FnMut(u64, View),
    ) {
        for (chunk, cells) in section.words().chunks(CHUNK).enumerate() {
            copy(cells, words);
            let first = first + (chunk * CHUNK * cell::lanes::<R>()) as u64;
            for (word, &bits) in words[..cells.len()].iter().enumerate() {
                if bits == 0 {
                    continue;
                }
                for lane in 0..cell::lanes::<R>() {
                    let view = cell::record::<R>(bits, lane).view(now);
                    if view.freq > 0 {
                        let page = first + (word * cell::lanes::<R>() + lane) as u64;
                        see(page, self.with_node(view, section));
                    }
                }
            }
        }
    }
}
