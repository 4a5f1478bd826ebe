// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of every page of a move.

use crate::error::MoveError;
use crate::ranges::{common, meeting};
use crate::steps::Steps;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
    /// Pinned for I/O, shared with another process, in use by the kernel at that moment, or in a part that its owner was about to
    /// empty, unmap or move elsewhere.
    Busy,
    /// The target node had no free page.
    NoMemory,
    /// The mapping does not allow it: read-only, or a part of a huge page; or it is a huge page that
    /// [may not move](crate::MoverOptions::allow_huge_pages).
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

    /// Of a page that the kernel would not move, by its errno.
    pub(crate) fn of_errno(errno: i32) -> Outcome {
        match errno {
            libc::ENOENT | libc::EFAULT => Outcome::NotPresent,
            libc::ENOMEM => Outcome::NoMemory,
            libc::EINVAL | libc::ENODEV => Outcome::Unsupported,
            _ => Outcome::Busy,
        }
    }
}

/// Folios and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Folios; a THP counts once.
    pub folios: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    /// Counts so many more.
    pub fn add(&mut self, folios: u64, bytes: u64) {
        self.folios += folios;
        self.bytes += bytes;
    }
}

/// The account of one move: every byte of the range is counted exactly once.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
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
    /// Per base page of the range, when the options ask for it; `None` for one that was not looked at.
    pub pages: Option<Vec<Option<Outcome>>>,
    /// What ended the first later part of the range that failed, after an earlier one had moved. Its pages are counted,
    /// with an outcome of their own.
    pub error: Option<Arc<MoveError>>,
    /// Time from the first system call to the last.
    pub elapsed: Duration,
    /// Where that time went; of a list, in its sum alone.
    pub steps: Steps,
    /// The same, lane by lane; empty where no lane worked.
    pub lanes: Vec<Steps>,
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

/// The account of a list of ranges.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListResult {
    /// All ranges together, without `pages`.
    pub total: MoveResult,
    /// One per range, in the order of the list; `elapsed` is the whole list's, `error` is in `total` alone. A folio that lies in
    /// several ranges counts in each.
    pub ranges: Vec<MoveResult>,
}

impl ListResult {
    /// The account of a list of one range.
    #[doc(hidden)]
    pub fn into_range(mut self) -> MoveResult {
        let range = self.ranges.pop().unwrap_or_default();
        MoveResult {
            error: self.total.error,
            steps: self.total.steps,
            lanes: self.total.lanes,
            ..range
        }
    }
}

/// The account while lanes write to it.
pub(crate) struct Account {
    books: Mutex<Books>,
    /// Bytes booked so far, for others to see.
    booked: Arc<AtomicU64>,
    /// Those of them that have moved.
    moved: AtomicU64,
}

struct Books {
    /// Ascending, with no address in common.
    ranges: List<RangeAccount>,
    /// What became of each base page of all of them, if they are listed.
    pages: List<Option<Outcome>>,
    /// What each lane did, over all pipelines.
    lanes: List<Steps>,
    /// How long the lanes ran, by the clock.
    ran: Duration,
}

struct RangeAccount {
    range: Range<usize>,
    result: MoveResult,
    /// Where its pages are listed.
    pages: Option<Range<usize>>,
}

impl Account {
    /// An empty account of ranges that ascend and have no address in common. What is booked is added to `booked`, too.
    pub(crate) fn new(
        ranges: &[Range<usize>],
        list_pages: bool,
        booked: Arc<AtomicU64>,
    ) -> Account {
        let mut books = List::with_capacity_in(ranges.len(), Pages);
        let mut listed = 0;
        for range in ranges {
            let first = listed;
            listed += range.len() / page_size();
            books.push(RangeAccount {
                range: range.clone(),
                result: MoveResult::default(),
                pages: list_pages.then_some(first..listed),
            });
        }
        let mut pages = List::new_in(Pages);
        if list_pages {
            pages.resize(listed, None);
        }
        Account {
            books: Mutex::new(Books {
                ranges: books,
                pages,
                lanes: List::new_in(Pages),
                ran: Duration::ZERO,
            }),
            booked,
            moved: AtomicU64::new(0),
        }
    }

    /// Books folios of `folio` bytes, as far as they belong to a range.
    pub(crate) fn book(&self, outcome: Outcome, part: Range<usize>, folio: usize) {
        let mut books = self.lock();
        let Books { ranges, pages, .. } = &mut *books;
        let met = meeting(ranges, |account| &account.range, &part);
        for account in &mut ranges[met] {
            let own = common(&account.range, &part);
            let (folios, bytes) = (own.len().div_ceil(folio) as u64, own.len() as u64);
            account.result.count_mut(outcome).add(folios, bytes);
            self.booked.fetch_add(bytes, Ordering::Relaxed);
            if outcome == Outcome::Moved {
                self.moved.fetch_add(bytes, Ordering::Relaxed);
            }
            if let Some(listed) = &account.pages {
                let page = |addr: usize| listed.start + (addr - account.range.start) / page_size();
                pages[page(own.start)..page(own.end)].fill(Some(outcome));
            }
        }
    }

    /// Adds what a pipeline's lanes did; they `ran` so long by the clock. None of its pages is away any more.
    pub(crate) fn add_steps(&self, ran: Duration, lanes: &[Steps]) {
        let mut books = self.lock();
        books.ran += ran;
        let known = books.lanes.len().max(lanes.len());
        books.lanes.resize(known, Steps::default());
        for (sum, steps) in books.lanes.iter_mut().zip(lanes) {
            *sum += *steps;
        }
    }

    /// Bytes that have moved so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unpoisoned()
    }

    /// Closes the account: one result per range. What was not booked was not looked at. A failure is the whole answer if nothing
    /// was moved; what was moved must not go unsaid.
    pub(crate) fn close(
        self,
        elapsed: Duration,
        failure: Option<MoveError>,
    ) -> Result<ListResult, MoveError> {
        let Books {
            ranges,
            pages,
            lanes,
            ran,
        } = self.books.into_inner().unpoisoned();
        let mut steps = Steps {
            set_up: elapsed.saturating_sub(ran),
            ..Steps::default()
        };
        lanes.iter().for_each(|lane| steps += *lane);
        let mut total = MoveResult {
            elapsed,
            steps,
            lanes: lanes.to_vec(),
            ..MoveResult::default()
        };
        let close = |account: RangeAccount| {
            let mut result = account.result;
            let booked: u64 = Outcome::ALL.iter().map(|of| result.count(*of).bytes).sum();
            result.cancelled_bytes = (account.range.len() as u64).saturating_sub(booked);
            result.pages = account.pages.map(|listed| pages[listed].to_vec());
            result.elapsed = elapsed;
            for outcome in Outcome::ALL {
                let Count { folios, bytes } = result.count(outcome);
                total.count_mut(outcome).add(folios, bytes);
            }
            total.cancelled_bytes += result.cancelled_bytes;
            result
        };
        let ranges = ranges.into_iter().map(close).collect();
        match failure {
            Some(error) if total.moved.bytes == 0 => Err(error),
            failure => {
                total.error = failure.map(Arc::new);
                Ok(ListResult { total, ranges })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x1000_0000;

    #[test]
    fn folios_bytes_and_pages_are_counted() {
        let page = page_size();
        let range = BASE..BASE + 10 * page;
        let account = Account::new(std::slice::from_ref(&range), true, Arc::default());
        account.book(Outcome::Moved, BASE + page..BASE + 4 * page, page);
        let (moved, busy) = (Some(Outcome::Moved), Some(Outcome::Busy));
        let thp = BASE + 4 * page..BASE + 8 * page;
        account.book(Outcome::Busy, thp.clone(), thp.len());
        account.book(Outcome::Busy, thp.start..thp.start, page);
        let result = account
            .close(Duration::from_secs(1), None)
            .unwrap()
            .into_range();
        let count = |folios, pages: usize| Count {
            folios,
            bytes: (pages * page) as u64,
        };
        assert_eq!((result.moved, result.busy), (count(3, 3), count(1, 4)));
        assert_eq!(result.cancelled_bytes, 3 * page as u64);
        assert_eq!(result.left_bytes(), 7 * page as u64);
        assert_eq!(
            result.pages.unwrap(),
            [
                None, moved, moved, moved, busy, busy, busy, busy, None, None
            ]
        );
    }

    #[test]
    fn steps_are_kept_lane_by_lane_and_their_sum_has_what_was_outside_of_them() {
        let account = Account::new(&[], false, Arc::default());
        let copied = |ms| Steps {
            copy: Duration::from_millis(ms),
            batches: 1,
            ..Steps::default()
        };
        // A later part of the move may have fewer lanes.
        account.add_steps(Duration::from_millis(7), &[copied(5), copied(7)]);
        account.add_steps(Duration::from_millis(2), &[copied(2)]);
        let result = account.close(Duration::from_millis(10), None).unwrap();
        let MoveResult { steps, lanes, .. } = result.into_range();
        let ms = |of: Duration| of.as_millis();
        assert_eq!(
            (ms(steps.set_up), ms(steps.copy), steps.batches),
            (1, 14, 3)
        );
        let lanes: Vec<_> = lanes.iter().map(|s| (ms(s.copy), ms(s.set_up))).collect();
        assert_eq!(lanes, [(7, 0), (7, 0)]);
    }

    #[test]
    fn what_lies_across_ranges_is_booked_in_each_and_between_them_in_none() {
        let page = page_size();
        let range = |first, pages| BASE + first * page..BASE + (first + pages) * page;
        let booked = Arc::default();
        let ranges = [range(0, 2), range(2, 1), range(5, 2)];
        let account = Account::new(&ranges, true, Arc::clone(&booked));
        account.book(Outcome::Moved, BASE + page..BASE + 6 * page, page);
        let ListResult { total, ranges } = account.close(Duration::ZERO, None).unwrap();
        let pages: Vec<_> = ranges.iter().map(|of| of.pages.clone().unwrap()).collect();
        let moved = Some(Outcome::Moved);
        assert_eq!(pages, [vec![None, moved], vec![moved], vec![moved, None]]);
        assert_eq!(ranges[1].moved.bytes, page as u64);
        assert_eq!(total.moved.folios, 3);
        assert_eq!(total.cancelled_bytes, 2 * page as u64);
        assert_eq!(booked.load(Ordering::Relaxed), 3 * page as u64);
    }
}
