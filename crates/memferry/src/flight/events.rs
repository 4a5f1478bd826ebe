// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the kernel's messages about the range: faults on holes, MADV_DONTNEED, munmap, mremap.
//!
//! A message is read with `places` held for writing, so that no page is put into a place between the kernel's word that
//! the place is being emptied and the note of it here.

use super::Flight;
use crate::pool::SEGMENT;
use crate::sys::page_size;
use crate::sys::pagemap::Region;
use crate::sys::uffd::Message;
use std::ops::Range;
use std::sync::PoisonError;

/// Parts of the range that the flight must leave alone from now on.
#[derive(Default)]
pub(super) struct Places {
    excluded: Vec<Range<usize>>,
    /// Where mremap took parts of the range; the kernel watches them there too.
    taken: Vec<Range<usize>>,
}

impl Places {
    /// Where the excluded part that `range` begins in or meets ends; `None` when it is all clear.
    pub(super) fn excluded(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let meets = |r: &&Range<usize>| r.start < range.end && range.start < r.end;
        self.excluded
            .iter()
            .filter(meets)
            .min_by_key(|r| r.start)
            .cloned()
    }

    fn exclude(&mut self, range: Range<usize>) {
        self.excluded.push(range);
    }
}

impl Flight<'_> {
    /// Takes and answers what waits, without blocking.
    pub(super) fn serve_messages(&self) {
        if !self.plan.kernel.pending() {
            return;
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let mut messages = [Message::Other; 16];
        loop {
            let count = match self.plan.kernel.messages(&mut messages) {
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            for message in &messages[..count] {
                match *message {
                    Message::Fault { addr } => self.answer_fault(&mut places, addr),
                    Message::Remove { start, end } | Message::Unmap { start, end } => {
                        // Remove: the kernel empties the range only after this message was read: a page that left it
                        // now would come back from the dead. Unmap: what lies there from now on is not watched, so a
                        // page of it that left could not come back, and its owner would not wait for it.
                        places.exclude(start..end);
                        for slot in 0..self.batches.len() {
                            self.write(slot).remove(&(start..end));
                        }
                        // Pages that waiters hope for do not come any more.
                        let _ = self.plan.kernel.wake(start, end - start);
                    }
                    Message::Remap { from, to, len } => {
                        // What appears at the old addresses is another mapping, which nobody watches.
                        places.exclude(from..from + len);
                        for slot in 0..self.batches.len() {
                            self.write(slot).relocate(&(from..from + len), to);
                        }
                        let _ = self.plan.kernel.wake(from, len);
                        places.taken.push(to..to + len);
                    }
                    Message::Other => {}
                }
            }
        }
    }

    /// Ends the watch when no page is away: from here on owners change their mappings without a message, and who was in
    /// the middle of it has gone on. Without this the next move could take pages away from under a MADV_DONTNEED whose
    /// message nobody would read.
    pub(super) fn end_watch(&self) {
        self.release(self.plan.range.clone());
        loop {
            let taken = {
                let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut places.taken)
            };
            for range in taken {
                self.release(range);
            }
            // Nobody new can begin, so this ends when those who had begun were scheduled again.
            if !self.plan.kernel.changing() {
                return;
            }
            self.serve_messages();
            std::thread::yield_now();
        }
    }

    /// Ends the watch of a range, around what is mapped there meanwhile that never was watched.
    fn release(&self, range: Range<usize>) {
        let pages = range.len() / page_size();
        if self.plan.kernel.release(range.start, range.len()).is_err() && pages > 1 {
            let middle = range.start + pages / 2 * page_size();
            self.release(range.start..middle);
            self.release(middle..range.end);
        }
    }

    /// Someone waits at `addr`: for a page on its way, which comes by itself, or for one that never was.
    fn answer_fault(&self, places: &mut Places, addr: usize) {
        if (0..self.batches.len()).any(|slot| self.read(slot).holds(addr)) {
            return;
        }
        let kernel = self.plan.kernel;
        let block = addr / SEGMENT * SEGMENT..(addr / SEGMENT + 1) * SEGMENT;
        if self.plan.range.start <= block.start
            && block.end <= self.plan.range.end
            && self.is_untouched(&block)
        {
            // A whole 2 MiB that never was: the kernel fills it by its own rules (a THP, the owner's memory policy).
            places.exclude(block.clone());
            if kernel.release(block.start, SEGMENT).is_ok() {
                return;
            }
        }
        match kernel.zero(addr, page_size()) {
            Ok(()) => {}
            // Filled meanwhile, or its mapping changed: whoever waits looks again.
            Err(_) => {
                let _ = kernel.wake(addr, page_size());
            }
        }
    }

    /// No page of the block exists, neither in its place nor on its way.
    fn is_untouched(&self, block: &Range<usize>) -> bool {
        let away = |slot| {
            let batch = self.read(slot);
            batch
                .away
                .iter()
                .any(|r| r.place < block.end && block.start < r.place + r.len)
        };
        let mut region = [Region::default()];
        !(0..self.batches.len()).any(away)
            && matches!(
                self.plan.kernel.scan(block.start, block.end, &mut region),
                Ok((0, _))
            )
    }
}
