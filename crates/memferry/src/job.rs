// SPDX-License-Identifier: MIT OR Apache-2.0
//! One move, with all that it needs, on whatever thread; and the handle of one that has a thread of its own.
//!
//! The thread that asks for a move may leave its frames at any time (longjmp out of a signal handler): nothing of the move
//! lies there. The order of a move: check the range, register it, let the migrator's lanes run the flight, close the books.

use crate::emptied;
use crate::error::MoveError;
use crate::flight::{Cursor, Flight, Live, Plan, Ranges, Wanted};
use crate::migrator::Migrator;
use crate::move_pages;
use crate::mover::MoveOptions;
use crate::pool::{PagePool, SEGMENT};
use crate::result::{Ledger, MoveResult, Outcome};
use crate::sys::thread::{Event, Quiet};
use crate::sys::{self, page_size};
use crate::vma;
use crate::watch::{MAPS, Userfault, leave_cut_thps, watch};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

/// Part of a range that is registered at a time. Holes of it are filled by the mover, more slowly than by the kernel,
/// and the pipeline drains at its end (0.1 ms): 1 GiB keeps both small.
const STRETCH: usize = 1 << 30;

/// What the moves of one mover share; those under way keep it.
pub(crate) struct Core {
    pub userfault: Option<Userfault>,
    pub pool: PagePool,
    pub nodes: Vec<u32>,
    pub generation: u32,
    /// Held by the move that is under way.
    pub turn: Mutex<()>,
}

impl Core {
    /// Whether a move is under way.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }
}

/// One move.
pub(crate) struct Job {
    pub core: Arc<Core>,
    pub migrator: Arc<dyn Migrator>,
    pub range: Range<usize>,
    pub to: u32,
    pub options: MoveOptions,
    /// That of the options.
    pub cancel: Arc<AtomicBool>,
    pub batch_bytes: usize,
    pub lanes: usize,
    /// Bytes that are accounted for.
    pub booked: Arc<AtomicU64>,
}

impl Job {
    /// Moves the pages; signals are blocked on this thread.
    pub(crate) fn run(&self) -> Result<MoveResult, MoveError> {
        // A panic of the migrator left all pages in place.
        let _turn = self
            .core
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Job {
            range,
            to,
            options,
            batch_bytes,
            lanes,
            ..
        } = self;
        let (batch_bytes, lanes) = (*batch_bytes, *lanes);
        let Some(userfault) = &self.core.userfault else {
            return move_pages::run(
                0,
                range.clone(),
                *to,
                lanes,
                options,
                Arc::clone(&self.booked),
            );
        };
        let started = Instant::now();
        if range.len() > STRETCH {
            // All of it or nothing; what a stretch is made of is looked at again when it is watched.
            vma::movable(Path::new(MAPS), range)?;
        }
        let cancel = &*self.cancel;
        // What this thread stands on.
        self.check_own_memory(None)?;
        let booked = Arc::clone(&self.booked);
        let ledger = Ledger::telling(range.start, range.len(), options.list_pages, booked);
        let mut cancelled = 0;
        let mut failure = None;
        for stretch in stretches(range) {
            if cancel.load(Ordering::Relaxed) {
                cancelled += stretch.len();
                continue;
            }
            let first = stretch.start == range.start;
            let stretch = leave_cut_thps(&userfault.pagemap, stretch, &ledger);
            if stretch.is_empty() {
                continue;
            }
            let (place, vmas) = match watch(userfault, &stretch) {
                Ok(watch) => watch,
                Err((_, error)) if first => return Err(error),
                Err((errno, error)) => {
                    // Earlier stretches may have moved: the account stands, with this one in it.
                    let outcome = match errno {
                        libc::ENOMEM => Outcome::NoMemory,
                        _ => Outcome::Busy,
                    };
                    ledger.book(outcome, stretch.start, stretch.len(), page_size(), -errno);
                    failure.get_or_insert(error);
                    continue;
                }
            };
            let mut excluded = Ranges::default();
            emptied::still(&userfault.pagemap, &mut excluded);
            for vmas in vmas.chunk_by(|a, b| a.locked == b.locked) {
                let (start, end) = (vmas[0].range.start, vmas[vmas.len() - 1].range.end);
                let wanted = Wanted {
                    node: *to,
                    relocate: options.relocate,
                    ask_nodes: self.core.nodes.len() > 1,
                };
                let plan = Plan {
                    kernel: &Live {
                        place: &place,
                        pagemap: &userfault.pagemap,
                    },
                    place: &place,
                    pool: &self.core.pool,
                    ledger: &ledger,
                    migrator: &*self.migrator,
                    range: start..end,
                    excluded: excluded.as_slice(),
                    locked: vmas[0].locked,
                    batch_bytes,
                    lanes,
                    wanted,
                    recycle: options.source.keep,
                    cancel,
                };
                let slots = if self.migrator.is_per_folio() {
                    1
                } else {
                    lanes + 2
                };
                let flight = Flight::new(plan, Cursor::new(wanted, vmas, start, end), slots);
                // A large list may have come to lie there since, where the program had unmapped something.
                let own = sys::list::own_memory().find_map(|list| first_within(&[list], range));
                let run = match own {
                    Some(_) => Ok(()),
                    None => catch_unwind(AssertUnwindSafe(|| {
                        self.migrator.run(&|_| flight.run_lane());
                    })),
                };
                let landing = flight.finish();
                landing
                    .emptied
                    .as_slice()
                    .iter()
                    .cloned()
                    .for_each(emptied::note);
                excluded = landing.excluded;
                if let Some(range) = own {
                    let (len, status) = (end - start, -libc::EDEADLK);
                    ledger.book(Outcome::Busy, start, len, page_size(), status);
                    let what = "lists of the mover";
                    failure.get_or_insert(MoveError::OwnMemory { range, what });
                    continue;
                }
                cancelled += landing.left;
                if let Err(panic) = run {
                    resume_unwind(panic);
                }
                if let Some(error) = landing.error {
                    failure.get_or_insert_with(|| {
                        MoveError::system("PAGEMAP_SCAN", "Linux 6.7 has it; report this kernel")(
                            error,
                        )
                    });
                }
            }
        }
        let mut result = ledger.close(started.elapsed());
        result.cancelled_bytes = cancelled as u64;
        // An error means that nothing was moved; what was moved must not go unsaid.
        match failure {
            Some(error) if result.moved.bytes == 0 => Err(error),
            failure => {
                result.error = failure.map(Arc::new);
                Ok(result)
            }
        }
    }

    /// Refuses ranges that hold what the lanes stand on: a lane that waits for its own page waits for ever.
    pub(crate) fn check_own_memory(&self, mover: Option<Range<usize>>) -> Result<(), MoveError> {
        let range = &self.range;
        let core = extent_of(Arc::as_ptr(&self.core));
        let migrator = std::ptr::from_ref(&*self.migrator).cast::<u8>().addr();
        let flag = Arc::as_ptr(&self.cancel).addr();
        let own = [
            (flag..flag + 1, "the cancel flag"),
            (mover.unwrap_or_default(), "the mover"),
            (core, "the mover"),
            (
                migrator..migrator + size_of_val(&*self.migrator),
                "the migrator",
            ),
            (
                sys::thread::stack().unwrap_or(0..0),
                "the stack of the calling thread",
            ),
            // Where errno is, so are the other thread-locals.
            (
                extent_of(sys::errno_location()),
                "thread-local data of the calling thread",
            ),
            (extent_of(self), "the mover"),
            (extent_of(Arc::as_ptr(&self.booked)), "the mover"),
        ];
        let stacks = self.migrator.own_memory();
        let pages = self.core.pool.addresses();
        let nothing = self.core.userfault.as_ref().map(Userfault::own_memory);
        let own = own
            .into_iter()
            .chain(stacks.into_iter().map(|s| (s, "the stack of a lane")))
            .chain(pages.into_iter().map(|p| (p, "pages of the mover's pool")))
            .chain(nothing.map(|n| (n, "a page of the mover")))
            .chain(sys::list::own_memory().map(|list| (list, "lists of the mover")));
        for (memory, what) in own {
            if let Some(range) = first_within(&[memory], range) {
                return Err(MoveError::OwnMemory { range, what });
            }
        }
        Ok(())
    }
}

/// A move under way on a thread of its own. Dropping the handle lets it go on.
///
/// The descriptor of [`AsFd`] becomes readable when the move is over; it is for poll(2) and its like only.
pub struct MoveHandle {
    end: Arc<End>,
    bytes: u64,
    booked: Arc<AtomicU64>,
    cancel: Arc<AtomicBool>,
}

/// How a move ended, or that it has not.
struct End {
    result: Mutex<Option<std::thread::Result<Result<MoveResult, MoveError>>>>,
    over: Event,
}

impl std::fmt::Debug for MoveHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MoveHandle")
            .field("bytes", &self.bytes)
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

impl MoveHandle {
    /// Starts the job, if there is a thread and a descriptor for it. Signals are blocked, and stay so there.
    pub(crate) fn start(job: &Arc<Job>) -> Option<MoveHandle> {
        let end = Arc::new(End {
            result: Mutex::new(None),
            over: Event::new().ok()?,
        });
        let handle = MoveHandle {
            end: Arc::clone(&end),
            bytes: job.range.len() as u64,
            booked: Arc::clone(&job.booked),
            cancel: Arc::clone(&job.cancel),
        };
        let job = Arc::clone(job);
        // Nobody joins it: who waits may leave by longjmp.
        let thread = std::thread::Builder::new().name("ferry-move".to_owned());
        let started = thread.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| job.run()));
            // The mover's memory is gone when a caller that has dropped the mover goes on.
            drop(job);
            *end.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            end.over.set();
        });
        started.is_ok().then_some(handle)
    }

    /// Bytes of the range whose fate is known, moved or not; and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.booked.load(Ordering::Relaxed), self.bytes)
    }

    /// Ends the move early: batches under way are finished, the others stay where they are. It raises the flag of the move's
    /// options, if they have one.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Whether the move is over.
    pub fn is_over(&self) -> bool {
        self.end.over.is_set()
    }

    /// Waits for the end of the move. Signal handlers run meanwhile, and may leave by longjmp: the move goes on.
    ///
    /// # Errors
    /// As for [`Mover::move_range`](crate::Mover::move_range).
    ///
    /// # Panics
    /// Passes on a panic of the migrator's `run`; all pages are in place then.
    pub fn wait(self) -> Result<MoveResult, MoveError> {
        self.wait_in(&Quiet::begin())
    }

    pub(crate) fn wait_in(self, quiet: &Quiet) -> Result<MoveResult, MoveError> {
        self.end.over.wait(quiet);
        let result = self.end.result.lock();
        match result.unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the result comes before the end"),
        }
    }
}

impl AsFd for MoveHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.over.as_fd()
    }
}

/// Addresses of a value.
fn extent_of<T>(value: *const T) -> Range<usize> {
    value.addr()..value.addr() + size_of::<T>()
}

/// The part of the first of `memory` that lies in `range`.
fn first_within(memory: &[Range<usize>], range: &Range<usize>) -> Option<Range<usize>> {
    let cut = |m: &Range<usize>| m.start.max(range.start)..m.end.min(range.end);
    memory.iter().map(cut).find(|part| !part.is_empty())
}

/// Cuts a range into parts of at most [`STRETCH`] bytes, whole THPs in every part.
fn stretches(range: &Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = ((start / SEGMENT * SEGMENT).saturating_add(STRETCH)).min(range.end);
        parts.push(start..end);
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_cover_the_range_once_and_cut_no_huge_page(
            first in 0usize..1 << 34,
            pages in 1usize..1 << 21,
        ) {
            let range = first * 4096..(first + pages) * 4096;
            let mut covered = range.start;
            for stretch in stretches(&range) {
                prop_assert_eq!(stretch.start, covered);
                prop_assert!(stretch.len() <= STRETCH && !stretch.is_empty());
                prop_assert!(stretch.end % SEGMENT == 0 || stretch.end == range.end);
                covered = stretch.end;
            }
            prop_assert_eq!(covered, range.end);
        }
    }
}
