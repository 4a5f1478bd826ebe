// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of every page of a move.

use crate::error::MoveError;
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What became of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It lies on the target node now.
    Moved,
    /// It lay there before.
    AlreadyThere,
    /// No page: never touched, swapped out, the shared zero page, or unmapped by another thread meanwhile.
    NotPresent,
    /// Pinned for I/O, shared with another process, or in use by the kernel at that moment.
    Busy,
    /// The target node had no free page.
    NoMemory,
    /// The mapping does not allow it: read-only, or a part of a huge page.
    Unsupported,
}

impl Outcome {
    /// All of them, in the order of [`MoveResult`]'s fields.
    pub const ALL: [Outcome; 6] = [
        Outcome::Moved,
        Outcome::AlreadyThere,
        Outcome::NotPresent,
        Outcome::Busy,
        Outcome::NoMemory,
        Outcome::Unsupported,
    ];
}

/// Folios and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Folios; a THP counts once.
    pub folios: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, folios: u64, bytes: u64) {
        self.folios += folios;
        self.bytes += bytes;
    }
}

/// The account of one move: every byte of the range is counted exactly once.
#[derive(Clone, Debug, Default)]
pub struct MoveResult {
    /// See [`Outcome::Moved`].
    pub moved: Count,
    /// See [`Outcome::AlreadyThere`].
    pub already_there: Count,
    /// See [`Outcome::NotPresent`].
    pub not_present: Count,
    /// See [`Outcome::Busy`].
    pub busy: Count,
    /// See [`Outcome::NoMemory`].
    pub no_memory: Count,
    /// See [`Outcome::Unsupported`].
    pub unsupported: Count,
    /// Bytes that were not looked at because the move was cancelled.
    pub cancelled_bytes: u64,
    /// Per base page of the range, when the options ask for it: the node it lies on, or -errno, as in move_pages(2)
    /// (-ENOENT not present, -EFAULT the zero page, -EBUSY, -ENOMEM, -EINVAL unsupported; -ECANCELED not looked at).
    pub pages: Option<Vec<i32>>,
    /// What ended the first later part of the range that failed, after an earlier one had moved. Its pages are counted,
    /// with an outcome of their own.
    pub error: Option<Arc<MoveError>>,
    /// Time from the first system call to the last.
    pub elapsed: Duration,
}

impl MoveResult {
    /// The count of one outcome.
    pub fn count(&self, outcome: Outcome) -> Count {
        match outcome {
            Outcome::Moved => self.moved,
            Outcome::AlreadyThere => self.already_there,
            Outcome::NotPresent => self.not_present,
            Outcome::Busy => self.busy,
            Outcome::NoMemory => self.no_memory,
            Outcome::Unsupported => self.unsupported,
        }
    }

    pub(crate) fn count_mut(&mut self, outcome: Outcome) -> &mut Count {
        match outcome {
            Outcome::Moved => &mut self.moved,
            Outcome::AlreadyThere => &mut self.already_there,
            Outcome::NotPresent => &mut self.not_present,
            Outcome::Busy => &mut self.busy,
            Outcome::NoMemory => &mut self.no_memory,
            Outcome::Unsupported => &mut self.unsupported,
        }
    }

    /// Bytes that are neither on the target node nor absent: 0 when the move did all it was asked.
    pub fn left_bytes(&self) -> u64 {
        self.busy.bytes + self.no_memory.bytes + self.unsupported.bytes + self.cancelled_bytes
    }
}

/// The account while lanes write to it.
pub(crate) struct Ledger {
    start: usize,
    result: Mutex<MoveResult>,
    pages: Option<List<AtomicI32>>,
    /// Bytes booked so far, for others to see.
    booked: Arc<AtomicU64>,
}

impl Ledger {
    /// An empty account of a range.
    #[cfg(test)]
    pub(crate) fn new(start: usize, len: usize, list_pages: bool) -> Ledger {
        Ledger::telling(start, len, list_pages, Arc::default())
    }

    /// An empty account of a range, which adds what is booked to `booked`.
    pub(crate) fn telling(
        start: usize,
        len: usize,
        list_pages: bool,
        booked: Arc<AtomicU64>,
    ) -> Ledger {
        let pages = list_pages.then(|| {
            let mut pages = List::new_in(Pages);
            pages.resize_with(len / page_size(), || AtomicI32::new(-libc::ECANCELED));
            pages
        });
        Ledger {
            start,
            result: Mutex::new(MoveResult::default()),
            pages,
            booked,
        }
    }

    /// Books a range of folios of `folio` bytes. `status` is the node or -errno.
    pub(crate) fn book(
        &self,
        outcome: Outcome,
        addr: usize,
        len: usize,
        folio: usize,
        status: i32,
    ) {
        if len == 0 {
            return;
        }
        let folios = len.div_ceil(folio) as u64;
        self.booked.fetch_add(len as u64, Ordering::Relaxed);
        {
            let mut result = self
                .result
                .lock()
                .unwrap_or_else(|poison| poison.into_inner());
            result.count_mut(outcome).add(folios, len as u64);
        }
        if let Some(pages) = &self.pages {
            let first = (addr - self.start) / page_size();
            for page in &pages[first..first + len / page_size()] {
                page.store(status, Ordering::Relaxed);
            }
        }
    }

    /// Closes the account.
    pub(crate) fn close(self, elapsed: Duration) -> MoveResult {
        let mut result = self
            .result
            .into_inner()
            .unwrap_or_else(|poison| poison.into_inner());
        result.pages = self
            .pages
            .map(|pages| pages.into_iter().map(AtomicI32::into_inner).collect());
        result.elapsed = elapsed;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_bytes_and_pages_are_counted() {
        let page = page_size();
        let ledger = Ledger::new(0x1000_0000, 10 * page, true);
        ledger.book(Outcome::Moved, 0x1000_0000 + page, 3 * page, page, 1);
        ledger.book(
            Outcome::Busy,
            0x1000_0000 + 4 * page,
            4 * page,
            4 * page,
            -libc::EBUSY,
        );
        ledger.book(Outcome::Busy, 0x1000_0000 + 4 * page, 0, page, -libc::EBUSY);
        let result = ledger.close(Duration::from_secs(1));
        let count = |folios, pages: usize| Count {
            folios,
            bytes: (pages * page) as u64,
        };
        assert_eq!((result.moved, result.busy), (count(3, 3), count(1, 4)));
        assert_eq!(result.left_bytes(), 4 * page as u64);
        let (left, busy) = (-libc::ECANCELED, -libc::EBUSY);
        assert_eq!(
            result.pages.unwrap(),
            [left, 1, 1, 1, busy, busy, busy, busy, left, left]
        );
    }
}
