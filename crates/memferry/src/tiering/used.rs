// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which units were used since the last round: a bit for each, set by any thread at any time.
//!
//! Threads find a range by a table that one writer changes under a sequence counter. Tables and bits are freed with the whole
//! and not before, since a thread may have read the table just before a change. What units there are is not decided here.

use crate::sync::Unpoisoned;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// The bits of a range's units, 64 a word.
pub(super) type Words = Arc<[AtomicU64]>;

struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The first of the range's words: one for each 64 units between `start` and `end`.
    words: AtomicPtr<AtomicU64>,
}

struct Table {
    /// How many of the entries are ranges, ascending.
    len: AtomicUsize,
    entries: Box<[Entry]>,
}

impl Table {
    fn new(entries: usize) -> Arc<Table> {
        let entry = |_| Entry {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            words: AtomicPtr::default(),
        };
        Arc::new(Table {
            len: AtomicUsize::new(0),
            entries: (0..entries).map(entry).collect(),
        })
    }
}

/// All that a thread may still have a pointer to.
struct Kept {
    /// The last one is in use; each is twice as large as the one before.
    tables: Vec<Arc<Table>>,
    /// Those that nothing else refers to are free to be taken again.
    words: Vec<Words>,
}

pub(super) struct Used {
    unit_bytes: usize,
    /// Odd while the table changes.
    sequence: AtomicUsize,
    table: AtomicPtr<Table>,
    kept: Mutex<Kept>,
}

impl Used {
    pub(super) fn new(unit_bytes: usize) -> Used {
        let table = Table::new(1);
        Used {
            unit_bytes,
            sequence: AtomicUsize::new(0),
            table: AtomicPtr::new(Arc::as_ptr(&table).cast_mut()),
            kept: Mutex::new(Kept {
                tables: vec![table],
                words: Vec::new(),
            }),
        }
    }

    /// Sets the bit of the unit at `addr`. Waits for nobody: while the table changes it does nothing.
    #[inline]
    pub(super) fn record(&self, addr: usize) {
        let sequence = self.sequence.load(Ordering::Acquire);
        // SAFETY: `kept` has every table until `self` is dropped; the store of the pointer released the table's making.
        let table = unsafe { &*self.table.load(Ordering::Acquire) };
        let ranges = &table.entries[..table.len.load(Ordering::Relaxed)];
        let behind = |entry: &Entry| entry.end.load(Ordering::Relaxed) <= addr;
        let Some(entry) = ranges.get(ranges.partition_point(behind)) else {
            return;
        };
        let start = entry.start.load(Ordering::Relaxed);
        let words = entry.words.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let changed = self.sequence.load(Ordering::Relaxed) != sequence;
        if sequence % 2 == 1 || changed || addr < start {
            return;
        }
        let unit = (addr - start) / self.unit_bytes;
        // SAFETY: the table did not change while the entry was read, so these are the words of a range that has `addr`, and one of
        // them is the unit's. `kept` has them until `self` is dropped. If the range was forgotten since, another unit is taken for
        // used once.
        let word = unsafe { &*words.add(unit / 64) };
        let bit = 1 << (unit % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Clear bits for so many units. The caller drops them when no published range has them any more.
    pub(super) fn words(&self, units: usize) -> Words {
        // Few sizes, so that those of forgotten ranges fit later ones.
        let len = units.div_ceil(64).next_power_of_two();
        let mut kept = self.kept.lock().unpoisoned();
        let is_free = |words: &&Words| words.len() == len && Arc::strong_count(words) == 1;
        if let Some(words) = kept.words.iter().find(is_free) {
            words
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            return Arc::clone(words);
        }
        let words: Words = (0..len).map(|_| AtomicU64::new(0)).collect();
        kept.words.push(Arc::clone(&words));
        words
    }

    /// Puts these ranges, ascending and with bits of [`Used::words`], in place of those that are in the table.
    pub(super) fn publish<'a>(
        &self,
        ranges: impl ExactSizeIterator<Item = (&'a Range<usize>, &'a Words)>,
    ) {
        let mut kept = self.kept.lock().unpoisoned();
        let mut table = Arc::clone(&kept.tables[kept.tables.len() - 1]);
        if table.entries.len() < ranges.len() {
            table = Table::new(ranges.len().next_power_of_two());
            kept.tables.push(Arc::clone(&table));
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        table.len.store(ranges.len(), Ordering::Relaxed);
        for (entry, (range, words)) in table.entries.iter().zip(ranges) {
            entry.start.store(range.start, Ordering::Relaxed);
            entry.end.store(range.end, Ordering::Relaxed);
            let first = words.as_ptr().cast_mut();
            entry.words.store(first, Ordering::Relaxed);
        }
        self.table
            .store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Bytes of all tables and bits.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.lock().unwrap();
        let entries: usize = kept.tables.iter().map(|table| table.entries.len()).sum();
        let words: usize = kept.words.iter().map(|words| words.len()).sum();
        entries * size_of::<Entry>() + words * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Two ranges: one is always there, and one comes and goes before it in the table. Threads use even units of the first and odd
    /// ones of the second.
    #[test]
    fn a_use_while_the_table_changes_counts_for_its_own_unit_or_none() {
        let (stays, goes) = (1 << 20..3 << 20, 1 << 16..2 << 16);
        let used = Used::new(16);
        let (of_stays, of_goes) = (used.words(2 << 16), used.words(1 << 12));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for unit in (0..1 << 12).step_by(2) {
                            used.record(stays.start + unit * 16);
                            used.record(goes.start + (unit + 1) * 16);
                        }
                    }
                });
            }
            for _ in 0..200_000 {
                used.publish([(&goes, &of_goes), (&stays, &of_stays)].into_iter());
                used.publish([(&stays, &of_stays)].into_iter());
            }
            over.store(true, Ordering::Relaxed);
        });
        let bits = |words: &Words| {
            let all = words.iter().map(|word| word.load(Ordering::Relaxed));
            all.fold(0, |all, word| all | word)
        };
        assert_eq!(bits(&of_stays) & 0xaaaa_aaaa_aaaa_aaaa, 0);
        assert_eq!(bits(&of_goes) & 0x5555_5555_5555_5555, 0);
    }
}
