// SPDX-License-Identifier: MIT OR Apache-2.0
//! What owners were about to empty (MADV_DONTNEED) when a move of this process ended.
//!
//! The kernel tells before it empties a range, not after: a page that left it in between would come back from the dead. So
//! no move touches such a range until a look at it finds no page (what is there later was written later), or for a second.

use crate::ranges::Ranges;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use memferry_linux::pagemap::Pagemap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The owner needs microseconds; this is what a busy machine may keep it from a CPU.
const EMPTYING: Duration = Duration::from_secs(1);

pub(crate) type Guard = MutexGuard<'static, List<(Instant, Range<usize>)>>;

/// A fork holds it, and its child clears it: the threads that were emptying are not there.
static EMPTIED: Mutex<List<(Instant, Range<usize>)>> = Mutex::new(List::new_in(Pages));

pub(crate) fn lock() -> Guard {
    EMPTIED.lock().unpoisoned()
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
    use crate::migrator::Batch;
    use crate::mover::{Mover, MoverOptions};
    use crate::options::MoveOptions;
    use crate::pool::SEGMENT;
    use crate::sys::memory::{self, Mapping};

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
