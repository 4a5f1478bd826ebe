// SPDX-License-Identifier: MIT OR Apache-2.0
//! What owners were about to empty (MADV_DONTNEED) when a move of this process ended.
//!
//! The kernel tells before it empties a range, not after: a page that left it in between would come back from the dead. So
//! no move touches such a range until a look at it finds no page (what is there later was written later), or for a second.

use crate::ranges::Ranges;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use memferry_linux::pagemap::Pagemap;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The owner needs microseconds; this is what a busy machine may keep it from a CPU.
const EMPTYING: Duration = Duration::from_secs(1);

type Emptied = Mutex<List<(Instant, Range<usize>)>>;

/// No fork waits for its lock, which moves take while they watch a range: a child gets a new one.
struct OfProcess(UnsafeCell<Emptied>);

// SAFETY: the mutex is shared; `forget_in_child` alone replaces it, where there is one thread.
unsafe impl Sync for OfProcess {}

static EMPTIED: OfProcess = OfProcess(UnsafeCell::new(Mutex::new(List::new_in(Pages))));

fn lock() -> MutexGuard<'static, List<(Instant, Range<usize>)>> {
    // SAFETY: as above.
    unsafe { &*EMPTIED.0.get() }.lock().unpoisoned()
}

/// A child has none of the threads that were emptying, nor the one that had the lock, if any did. The parent's list stays unused.
///
/// # Safety
/// This process has one thread, which does not have the lock.
pub(crate) unsafe fn forget_in_child() {
    // SAFETY: the caller's promise; nothing is dropped.
    unsafe { EMPTIED.0.get().write(Mutex::new(List::new_in(Pages))) };
}

/// Notes a range that its owner is about to empty.
pub(crate) fn note(range: Range<usize>) {
    note_until(range, Instant::now() + EMPTYING);
}

fn note_until(range: Range<usize>, end: Instant) {
    let mut emptied = lock();
    match emptied.iter_mut().find(|(_, noted)| *noted == range) {
        Some(noted) => noted.0 = end,
        None => emptied.push((end, range)),
    }
}

/// Adds the ranges that may still hold pages from before, cut at their first page.
pub(crate) fn still(pagemap: &Pagemap, places: &mut Ranges) {
    let now = Instant::now();
    let mut emptied = lock();
    emptied.retain_mut(|(end, range)| match pagemap.first(range.start, range.end) {
        Ok(None) => false,
        Ok(Some(page)) => {
            range.start = page;
            now < *end
        }
        Err(_) => now < *end,
    });
    emptied
        .iter()
        .for_each(|(_, range)| places.add(range.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forkgate;
    use crate::migrator::Batch;
    use crate::mover::{Mover, MoverOptions};
    use crate::options::MoveOptions;
    use crate::pool::SEGMENT;
    use crate::sys::memory::{self, Mapping};
    use std::sync::Barrier;

    fn is_free() -> bool {
        // Another test may have it for a moment.
        (0..1000).any(|_| {
            std::thread::yield_now();
            // SAFETY: as in `lock`.
            unsafe { &*EMPTIED.0.get() }.try_lock().is_ok()
        })
    }

    /// A move watches its range when it asks; a handler of fork that touched the range would wait for it for ever.
    #[test]
    fn a_move_may_ask_while_a_fork_is_under_way() {
        forkgate::tests::as_if_forking(|| {
            assert!(is_free());
        });
    }

    #[test]
    fn a_child_of_a_fork_beside_a_move_that_asks_may_note() {
        let (locked, over) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock();
                locked.wait();
                over.wait();
                drop(guard);
            });
            locked.wait();
            let noted = forkgate::tests::in_child(|| {
                // SAFETY: ends the child if it waits for a thread that is not there.
                unsafe { libc::alarm(20) };
                note(0..SEGMENT);
                lock().len() == 1
            });
            over.wait();
            assert!(noted);
        });
    }

    #[test]
    fn no_mover_touches_what_is_being_emptied_until_it_was_empty() {
        let memory = Mapping::new(SEGMENT, SEGMENT).unwrap();
        let (start, half) = (memory.addr(), SEGMENT / 2);
        memory::advise_thps(start, SEGMENT, false).unwrap();
        let moved = || {
            let options = MoveOptions::default().relocate(true);
            let mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
            let moved = mover
                .move_range(start..start + SEGMENT, 0, &options)
                .unwrap();
            // What stays is not moved and not absent.
            let stayed = (moved.busy.bytes, moved.left_bytes());
            let pages = Pagemap::open().unwrap();
            let is_there = pages.first(start, start + half).unwrap().is_some();
            let left = if is_there {
                SEGMENT as u64 - moved.moved.bytes
            } else {
                0
            };
            assert_eq!(stayed, (left, left));
            moved.moved.bytes as usize
        };
        memory::populate(start, SEGMENT).unwrap();
        // Long enough for any host.
        let end = Instant::now() + Duration::from_secs(3600);
        note_until(start..start + half, end);
        assert_eq!(moved(), half);
        assert_eq!(moved(), half, "another mover, another move");
        // SAFETY: a part of the test's own mapping.
        unsafe { memory::discard(start, half).unwrap() };
        assert_eq!(moved(), half);
        memory::populate(start, half).unwrap();
        assert_eq!(moved(), SEGMENT, "it was empty, so what is there is new");
    }
}
