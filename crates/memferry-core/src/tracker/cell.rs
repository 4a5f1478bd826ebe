// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in words of 64 bits that threads share: eight of default mode in one, two of precision mode.
//!
//! One size of atomic for everything, so that a sweep may read many records at once while others write them. The atomics
//! come from the parent module, so that tests run the same file under a model checker.
//!
//! All of it is relaxed: a record guards no other memory.

use super::sync::{AtomicU64, Ordering};
use crate::hotness::Record;

/// Records of a word.
pub(super) const fn lanes<R>() -> usize {
    size_of::<u64>() / size_of::<R>()
}

/// Where a record's bits begin in its word: as if the word were an array of records in memory.
const fn shift<R>(lane: usize) -> usize {
    let lane = if cfg!(target_endian = "little") {
        lane
    } else {
        lanes::<R>() - 1 - lane
    };
    lane * 8 * size_of::<R>()
}

/// The bits of a record in its word.
const fn mask<R>(lane: usize) -> u64 {
    (u64::MAX >> (64 - 8 * size_of::<R>())) << shift::<R>(lane)
}

/// The record in `lane` of a word.
#[inline]
pub(super) fn record<R: Record>(word: u64, lane: usize) -> R {
    R::from_bits(word >> shift::<R>(lane))
}

/// Replaces one record by what `next` makes of it. Returns the record before and after.
#[inline]
pub(super) fn update<R: Record>(cell: &AtomicU64, lane: usize, next: impl Fn(R) -> R) -> (R, R) {
    let mut word = cell.load(Ordering::Relaxed);
    loop {
        let before = record::<R>(word, lane);
        let after = next(before);
        // Most accesses to a page in use change nothing: no write then, and its line stays shared.
        if after == before {
            return (before, after);
        }
        let new = word & !mask::<R>(lane) | after.bits() << shift::<R>(lane);
        match cell.compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return (before, after),
            Err(now) => word = now,
        }
    }
}

/// Replaces every record of a word, once each. `seen` is what the word was, and `wanted` what `next` makes of that; if
/// somebody wrote since, `next` is asked again.
pub(super) fn update_all<R: Record>(
    cell: &AtomicU64,
    seen: u64,
    wanted: u64,
    next: impl Fn(R) -> R,
) {
    let (mut word, mut new) = (seen, wanted);
    while let Err(now) = cell.compare_exchange_weak(word, new, Ordering::Relaxed, Ordering::Relaxed)
    {
        if now != word {
            new = (0..lanes::<R>())
                .map(|lane| next(record::<R>(now, lane)).bits() << shift::<R>(lane))
                .sum();
        }
        word = now;
    }
}
