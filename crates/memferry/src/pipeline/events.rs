// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the kernel's messages about the range: faults on holes, MADV_DONTNEED, munmap, mremap.
//!
//! A message is read with `places` held for writing, so that no page is put into a place between the kernel's word that
//! the place is being emptied and the note of it here.

use super::Pipeline;
use super::away::{AwayRun, AwayRuns};
use crate::pool::SEGMENT;
use crate::ranges::Ranges;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::thread::{self, Attempts};
use crate::sys::uffd::Message;
use crate::sys::{errno, page_size};
use crate::watch::part_by_part;
use memferry_linux::pagemap::Region;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How often messages are read before a lane goes on with its work.
const READS: usize = 16;

/// How many ranges that must be left alone are told apart. Owners that empty more of them have some of what lies between them left
/// alone, too.
const APART: usize = 1024;

/// Attempts after which owners' changes count as too many. Beside one thread that only calls madvise(2) a move did not end in 17
/// minutes (two CPUs, KVM, Linux 6.18).
const CROWDED: u32 = 64;

/// Ranges of which a pipeline ends the watch for that: each may divide a mapping, and the kernel allows a process 65,530 of them.
const UNWATCHED: usize = 64;

/// How often, and how far apart, a lane looks whether the threads that emptied them have gone on.
const CALM_LOOKS: u32 = 20;
const CALM_PAUSE: Duration = Duration::from_micros(50);

/// Parts of the range that the pipeline must leave alone from now on.
pub(super) struct Places {
    pub(super) excluded: Ranges,
    /// Parts that an owner was about to empty when its message was read. When it goes on is not known.
    pub(super) emptied: Ranges,
    /// Where mremap took parts of the range; the kernel watches them there too.
    taken: Ranges,
    /// Where mappings went away, if they did.
    left: Ranges,
    /// Whether mremap took something along and may not be over.
    arriving: bool,
    /// Owners change mappings so often that pages hardly come back.
    crowded: bool,
    /// Ranges of which the watch was ended for that.
    unwatched: usize,
}

/// The smallest range that has both.
fn around(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.min(other.start)..one.end.max(other.end)
}

impl Places {
    /// Leaves `excluded` alone from the start. Each of `pages` may get a mapping of its own, and go away with it, without a list
    /// that grows.
    ///
    /// # Errors
    /// There is no memory for the lists.
    pub(super) fn new(excluded: &[Range<usize>], pages: usize) -> io::Result<Places> {
        let mut places = Places {
            excluded: Ranges::at_most(APART)?,
            emptied: Ranges::at_most(APART)?,
            taken: Ranges::with_room(pages)?,
            left: Ranges::with_room(pages)?,
            arriving: false,
            crowded: false,
            unwatched: 0,
        };
        places.excluded.add_all(excluded);
        Ok(places)
    }

    /// A mapping left `range`: what appears there is another one, which nobody watches.
    fn leave(&mut self, range: Range<usize>) {
        self.left.add(range.clone());
        self.excluded.add(range);
    }
}

impl Pipeline<'_> {
    /// Before another attempt at what the kernel refuses while a mapping changes. A thread that changes mappings without pause waits in
    /// each call until a lane has read its message, so a pause between reading and the attempt would always meet its next call.
    pub(super) fn pause_and_serve(&self, attempts: &mut Attempts) {
        attempts.pause();
        if attempts.failed() == CROWDED {
            self.places.write().unpoisoned().crowded = true;
        }
        self.serve_messages();
    }

    /// Takes and answers what waits, without blocking.
    pub(super) fn serve_messages(&self) {
        if !self.plan.kernel.pending() {
            return;
        }
        let mut places = self.places.write().unpoisoned();
        let (again, mut put_off) = self.answer_messages(&mut places);
        if !self.leave_unwatched(&mut places, again) {
            // Messages came meanwhile; an attempt has to come right after they were read.
            let later = self.answer_messages(&mut places).1;
            put_off = put_off
                .into_iter()
                .chain(later)
                .reduce(|one, other| around(&one, &other));
        }
        if let Some(range) = put_off {
            let _ = self.plan.kernel.wake(range.start, range.len());
        }
    }

    /// Answers the messages that wait. Returns the ranges that are emptied not for the first time, none unless all messages were read;
    /// and the range around faults that cannot be answered now. The caller wakes that range last: a woken thread faults again at once,
    /// and the kernel reports faults before other messages.
    fn answer_messages(&self, places: &mut Places) -> (List<Range<usize>>, Option<Range<usize>>) {
        let mut messages = [Message::Other; 16];
        let mut all_read = false;
        let mut put_off: Option<Range<usize>> = None;
        let mut again = List::new_in(Pages);
        // Who is answered may ask again at once: the lane's own work must go on.
        let mut reads = 0;
        while reads < READS {
            reads += 1;
            let count = match self.plan.kernel.messages(&mut messages) {
                Ok(0) | Err(_) => {
                    all_read = true;
                    break;
                }
                Ok(count) => count,
            };
            for message in &messages[..count] {
                match *message {
                    Message::Fault { addr, thread } => {
                        if !self.answer_fault(places, addr, thread) {
                            let page = addr..addr + page_size();
                            put_off =
                                Some(put_off.map_or(page.clone(), |others| around(&others, &page)));
                            // As many of these come as threads wait, and no more.
                            reads = 0;
                        }
                    }
                    Message::Remove { start, end } => {
                        // The kernel empties the range only after this message was read: a page that left it now would
                        // come back from the dead.
                        places.excluded.add(start..end);
                        let emptied = places.emptied.meeting(&(start..end));
                        if places.crowded
                            && emptied.is_some_and(|r| r.start <= start && end <= r.end)
                            && again.try_reserve(1).is_ok()
                        {
                            again.push(start..end);
                        }
                        places.emptied.add(start..end);
                        self.each_batch(|away| away.remove(&(start..end)));
                        // Pages that waiters hope for do not come any more.
                        let _ = self.plan.kernel.wake(start, end - start);
                    }
                    Message::Unmap { start, end } => {
                        // What lies there from now on is not watched, so a page of it that left could not come back,
                        // and its owner would not wait for it.
                        places.leave(start..end);
                        for taken in places.taken.as_slice() {
                            let part = taken.start.max(start)..taken.end.min(end);
                            if !part.is_empty() {
                                self.each_batch(|away| away.remove_originals(&part));
                            }
                        }
                        self.each_batch(|away| away.doubt(&(start..end)));
                        let _ = self.plan.kernel.wake(start, end - start);
                    }
                    Message::Remap { from, to, len } => {
                        places.leave(from..from + len);
                        places.arriving = true;
                        self.each_batch(|away| away.relocate(&(from..from + len), to));
                        let _ = self.plan.kernel.wake(from, len);
                        places.taken.add(to..to + len);
                    }
                    Message::Other => {}
                }
            }
        }
        // Only with all messages read, and nobody about to send one, is it known who was first.
        if all_read && places.arriving && !self.plan.kernel.changing() {
            places.arriving = false;
            self.each_batch(AwayRuns::settle_arrivals);
        }
        if !all_read {
            again.clear();
        }
        (again, put_off)
    }

    /// Ends the watch of ranges that owners empty again and again: the kernel then empties them without a message, and takes back pages
    /// of the rest meanwhile. The caller has read all messages, and `places` keeps other lanes from reading. False if the watch was
    /// ended and begun again.
    fn leave_unwatched(&self, places: &mut Places, mut ranges: List<Range<usize>>) -> bool {
        let kernel = self.plan.kernel;
        ranges.retain(|range| {
            let is_away = (0..self.batches.len()).any(|slot| self.read(slot).away.belongs(range));
            let ends = places.unwatched < UNWATCHED
                && !is_away
                && kernel.release(range.start, range.len()).is_ok();
            places.unwatched += usize::from(ends);
            ends
        });
        if ranges.is_empty() {
            return true;
        }
        // An mremap before the release may have put a mapping there whose pages are away. Its message is not read yet, so the kernel
        // says that a mapping changes.
        for _ in 0..CALM_LOOKS {
            if !kernel.changing() {
                // The next mapping there may be watched by another userfaultfd, which `end_watch` must leave alone.
                places.left.add_all(&ranges);
                return true;
            }
            if kernel.pending() {
                break;
            }
            std::thread::sleep(CALM_PAUSE);
        }
        places.unwatched -= ranges.len();
        for range in &ranges {
            // A part may hold a mapping by now that cannot be watched.
            let register = |addr, len| kernel.uffd().register(addr, len);
            part_by_part(range.clone(), &register);
        }
        false
    }

    fn each_batch(&self, mut act: impl FnMut(&mut AwayRuns)) {
        for slot in 0..self.batches.len() {
            act(&mut self.write(slot).away);
        }
    }

    /// Ends the watch when no page is away: from here on owners change their mappings without a message, and who was in
    /// the middle of it has gone on. Without this the next move could take pages away from under a MADV_DONTNEED whose
    /// message nobody would read.
    pub(super) fn end_watch(&self) {
        self.release_watched(self.plan.range.clone());
        let mut attempts = Attempts::default();
        loop {
            let taken = {
                let mut places = self.places.write().unpoisoned();
                let taken = std::mem::take(&mut places.taken);
                // The next pipeline of the same watch must not take them for watched.
                places.excluded.add_all(taken.as_slice());
                taken
            };
            for range in taken.as_slice() {
                self.release(range.clone());
            }
            // Nobody new can begin, so this ends when those who had begun were scheduled again.
            if !self.plan.kernel.changing() {
                return;
            }
            self.serve_messages();
            attempts.pause();
        }
    }

    /// Ends the watch of a range, but for what mappings left: before Linux 6.17 the kernel would also end the watch of
    /// somebody else who has it by now.
    fn release_watched(&self, range: Range<usize>) {
        let places = self.places.read().unpoisoned();
        let mut from = range.start;
        for gap in places
            .left
            .as_slice()
            .iter()
            .chain([&(range.end..range.end)])
        {
            let to = gap.start.min(range.end);
            if from < to {
                self.release(from..to);
            }
            from = from.max(gap.end);
        }
    }

    fn release(&self, range: Range<usize>) {
        part_by_part(range, &|addr, len| self.plan.kernel.release(addr, len));
    }

    /// Someone waits at `addr`: for a page on its way, which comes by itself, or for one that never was. False if the thread
    /// is to be woken when all messages are read: while a mapping changes nothing can be put there.
    fn answer_fault(&self, places: &mut Places, addr: usize, thread: u32) -> bool {
        if (0..self.batches.len()).any(|slot| self.read(slot).away.holds(addr)) {
            return true;
        }
        let kernel = self.plan.kernel;
        let block = addr / SEGMENT * SEGMENT..(addr / SEGMENT + 1) * SEGMENT;
        if self.plan.range.start <= block.start
            && block.end <= self.plan.range.end
            && self.is_untouched(&block)
            // Faults are read before other messages: a page that is away may belong here, since an mremap that is not
            // told yet.
            && !kernel.changing()
        {
            // A whole 2 MiB that never was: the kernel fills it by its own rules (a THP, the owner's memory policy).
            places.excluded.add(block.clone());
            if kernel.release(block.start, SEGMENT).is_ok() {
                if kernel.changing() {
                    // The mremap came in between.
                    let _ = kernel.uffd().register(block.start, SEGMENT);
                }
                return true;
            }
        }
        let Err(error) = kernel.zero(addr, page_size()) else {
            return true;
        };
        if errno(&error) == libc::EAGAIN {
            let own = self.kernels_own(addr, thread);
            return own.is_some_and(|own| {
                places.excluded.add(own.clone());
                kernel.release(own.start, own.len()).is_ok()
            });
        }
        // Filled meanwhile, or its mapping changed: whoever waits looks again.
        let _ = kernel.wake(addr, page_size());
        true
    }

    /// Where the kernel may fill pages by itself around a fault that cannot be answered while somebody changes a mapping:
    /// anywhere if nothing is away. But an mremap of a locked mapping fills what it adds before it tells of itself, and
    /// nothing comes back before it has told; no page belongs there yet.
    fn kernels_own(&self, addr: usize, thread: u32) -> Option<Range<usize>> {
        let added = match thread::system_call(thread) {
            Some((libc::SYS_mremap, [from, old, new, ..])) => added_by_mremap(addr, from, old, new),
            _ => None,
        };
        added.or_else(|| self.nothing_is_away().then(|| addr..addr + page_size()))
    }

    fn nothing_is_away(&self) -> bool {
        (0..self.batches.len()).all(|slot| self.read(slot).is_back())
    }

    /// No page of the block exists, neither in its place nor on its way.
    fn is_untouched(&self, block: &Range<usize>) -> bool {
        let away = |slot| {
            let batch = self.read(slot);
            let meets = |r: &AwayRun| r.place < block.end && block.start < r.place + r.len;
            batch.away.runs().iter().any(meets)
        };
        let mut region = [Region::default()];
        let mut scan = || (self.plan.kernel).scan(block.start, block.end, &mut region);
        !(0..self.batches.len()).any(away) && matches!(scan(), Ok((0, _)))
    }
}

/// What an mremap of the mapping at `from` has yet to fill of what it adds, when it fills `addr`; `None` if it adds nothing. The
/// kernel counts whole pages.
fn added_by_mremap(addr: usize, from: usize, old: usize, new: usize) -> Option<Range<usize>> {
    let pages = |len: usize| len.checked_next_multiple_of(page_size());
    let (old, new) = (pages(old)?, pages(new)?);
    let added = new.checked_sub(old).filter(|added| *added > 0)?;
    // A mapping that grows where it is may be filled in part; one that went elsewhere is met at the first new page.
    let grown = from.checked_add(old)?..from.checked_add(new)?;
    match grown.contains(&addr) {
        true => Some(addr..grown.end),
        false => Some(addr..addr.checked_add(added)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_may_leave_on_its_own_without_a_list_that_grows() {
        const PAGES: usize = 2000;
        let mut places = Places::new(&[], PAGES).unwrap();
        let room = |places: &Places| (places.left.room(), places.taken.room());
        let before = room(&places);
        for page in 0..PAGES {
            let at = 2 * page * page_size();
            places.leave(at..at + page_size());
            places.taken.add(at..at + page_size());
        }
        assert_eq!(places.left.as_slice().len(), PAGES);
        assert_eq!(room(&places), before);
    }

    #[test]
    fn a_range_for_whose_lists_there_is_no_memory_is_an_error() {
        let refused = Places::new(&[], usize::MAX / page_size()).err().unwrap();
        assert_eq!(errno(&refused), libc::ENOMEM);
    }

    #[test]
    fn what_mremap_adds_is_whole_pages() {
        let page = page_size();
        let (from, to) = (SEGMENT, 2 * SEGMENT);
        for (old, new, added) in [
            (page, 3 * page, Some(2 * page)),
            (3 * page + 1, 5 * page, Some(page)),
            (page, 2 * page + 1, Some(2 * page)),
            (page + 1, 2 * page, None),
            (2 * page, page, None),
            (page, usize::MAX, None),
        ] {
            let filled = added.map(|added| to..to + added);
            assert_eq!(
                added_by_mremap(to, from, old, new),
                filled,
                "{old} to {new}"
            );
        }
    }

    #[test]
    fn a_mapping_that_grows_in_place_is_not_filled_past_its_end() {
        let (page, from) = (page_size(), SEGMENT);
        let end = from + 7 * page;
        for addr in (from + 3 * page..end).step_by(page) {
            let filled = added_by_mremap(addr, from, 3 * page, 7 * page);
            assert_eq!(filled, Some(addr..end));
        }
    }
}
