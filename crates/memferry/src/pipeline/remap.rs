// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the pages of a batch into their places: the copies, or the originals where the copy failed.
//!
//! The kernel moves them if it can; a place whose mapping changed meanwhile (mprotect, mlock) gets its contents through
//! `Kernel::fill`, which asks less of the mapping. Only a place that is no longer there keeps nothing.

use super::away::AwayRun;
use super::batch::Batch;
use super::span::Settled;
use super::{PATIENCE, Pipeline};
use crate::auto::Kind;
use crate::pool::{Piece, SEGMENT};
use crate::result::Outcome;
use crate::steps::Laps;
use crate::sync::Unpoisoned;
use crate::sys::thread::Attempts;
use crate::sys::{errno, page_size};
use memferry_linux::pagemap::Region;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long pages are tried to be brought back before the program's user is told.
const SILENT: Duration = Duration::from_secs(1);

/// Times in a row that a place must be found unmapped before it counts as that.
const CERTAINTY: u32 = 8;

/// What a batch met on its way back.
#[derive(Default)]
struct Refusals {
    /// Calls that moved nothing.
    total: u32,
    attempts: Attempts,
    /// The place that was found unmapped last, and how often in a row.
    unmapped: (usize, u32),
}

impl Refusals {
    /// Whether `place` of a run was found unmapped often enough. A count over all places would give one up for its
    /// neighbours' sake; but where it was told that they are all unmapped, the first ones speak for the next.
    fn is_certain(&mut self, run: &AwayRun, place: usize) -> bool {
        let (at, times) = self.unmapped;
        let counts = at == place || run.doubtful && at + page_size() == place;
        self.unmapped = (place, if counts { times + 1 } else { 1 });
        self.unmapped.1 > CERTAINTY
    }
}

/// What one attempt to bring pages back came to.
enum Step {
    /// `len` bytes are back.
    Back(usize),
    /// The place of `len` bytes is gone, and with it what belonged there.
    Gone(usize),
    /// Someone changes the mapping, as the kernel says by this error: answer messages, then try again.
    Again(i32),
}

impl Pipeline<'_> {
    pub(super) fn remap(&self, slot: usize, laps: &Laps) {
        let failed = self.failure(&self.read(slot));
        let mut refused = Refusals::default();
        // Whether each page of the piece they came from has left it.
        let mut left_behind = false;
        let mut index = 0;
        loop {
            let places = self.places.read().unpoisoned();
            let mut batch = self.write(slot);
            let Some(run) = batch.away.runs().get(index).copied() else {
                break;
            };
            let Some((offset, len)) = batch.unplaced(&run).filter(|_| !run.gone) else {
                left_behind |= run.gone;
                index += 1;
                continue;
            };
            // Without destination pages `fill` has placed the copies; what is left goes back as it was.
            let source = match &batch.dest {
                Some(dest) if failed.is_none() => dest.addr(),
                _ => batch.staged.addr(),
            };
            let (place, from) = (run.place + (offset - run.offset), source + offset);
            match self.bring_back(&run, place, from, len, &mut refused) {
                Step::Back(done) => batch.placed.add(offset, done),
                Step::Gone(done) => left_behind |= batch.away.give_up(index, offset, done),
                Step::Again(errno) => {
                    laps.refused(errno);
                    drop(batch);
                    drop(places);
                    self.pause_and_serve(&mut refused.attempts);
                    if refused.attempts.slept >= SILENT {
                        self.tell(place, errno);
                    }
                }
            }
        }
        laps.lap(|s| &mut s.remap);
        self.settle(slot, failed, left_behind || refused.total > 0);
        laps.lap(|s| &mut s.give_back);
    }

    /// Says on stderr, once in a pipeline, that a page cannot come back. Its contents are kept, so the lane goes on trying for as long
    /// as that takes.
    fn tell(&self, place: usize, errno: i32) {
        use std::io::Write;
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        // The heap may hold pages that are away.
        let mut line = [0u8; 320];
        let room = line.len();
        let mut left = &mut line[..];
        let _ = writeln!(
            left,
            "memferry: a page on its way cannot come back to {place:#x} (error {errno}), and threads that use it wait; the \
             move keeps trying: free memory if that is {}, else let the threads go on that change mappings there",
            libc::ENOMEM
        );
        let len = room - left.len();
        // SAFETY: the bytes are there; what cannot be said is not said.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len) };
    }

    /// Why the batch goes back as it was, if it does.
    fn failure(&self, batch: &Batch) -> Option<Outcome> {
        if batch.failed.load(Ordering::Relaxed) {
            let copied_by_kernel = batch.dest.is_none();
            return Some(if copied_by_kernel {
                Outcome::NoMemory
            } else {
                Outcome::Busy
            });
        }
        // Where memory is short the kernel may split a THP that was all zeros and take it away (its shrinker of underused
        // THPs): what was copied there lies in base pages of any node.
        let split = |dest: &&Piece| dest.class().huge && !self.is_huge(dest);
        let dest = batch.dest.as_ref();
        dest.filter(split).map(|_| Outcome::NoMemory)
    }

    fn bring_back(
        &self,
        run: &AwayRun,
        place: usize,
        from: usize,
        len: usize,
        refused: &mut Refusals,
    ) -> Step {
        let kernel = self.plan.kernel;
        // SAFETY: the place is of a run that is away, and `from` its page, or the copy, in a piece of the batch.
        let progress = unsafe { kernel.remap(place, from, len) };
        if progress.done > 0 {
            return Step::Back(progress.done);
        }
        let Some(error) = progress.stopped else {
            return Step::Back(len);
        };
        refused.total += 1;
        match errno(&error) {
            errno @ (libc::EAGAIN | libc::EINTR) if refused.total < PATIENCE => Step::Again(errno),
            libc::ENOMEM => self.free_memory(),
            _ => self.bring_back_page(run, place, from, refused),
        }
    }

    /// The kernel has no memory for page tables, or may not account for them: our own free pages are the first to give.
    fn free_memory(&self) -> Step {
        self.plan.pool.trim(0);
        std::thread::sleep(Duration::from_millis(1));
        Step::Again(libc::ENOMEM)
    }

    /// The careful way, one page at a time.
    fn bring_back_page(
        &self,
        run: &AwayRun,
        place: usize,
        from: usize,
        refused: &mut Refusals,
    ) -> Step {
        let (kernel, page) = (self.plan.kernel, page_size());
        // SAFETY: as in `bring_back`.
        let progress = unsafe { kernel.remap(place, from, page) };
        if progress.done > 0 {
            return Step::Back(page);
        }
        // Nobody but the owner can have put something there: a new mapping's page, or a guard (MADV_GUARD_INSTALL),
        // which `fill` would overwrite.
        if progress.stopped.is_some_and(|e| errno(&e) == libc::EEXIST) && self.is_taken(place) {
            return self.give_up(place);
        }
        if run.is_in_doubt() {
            match kernel.watches(place) {
                Ok(true) => {}
                Ok(false) if refused.is_certain(run, place) => return self.give_up(place),
                Ok(false) => return Step::Again(libc::ENOENT),
                // No descriptor or memory to ask with.
                Err(error) => {
                    std::thread::sleep(Duration::from_millis(1));
                    return Step::Again(errno(&error));
                }
            }
        }
        // SAFETY: as in `bring_back`.
        let progress = unsafe { kernel.fill(place, from, page) };
        if progress.done > 0 {
            return Step::Back(page);
        }
        match progress.stopped.as_ref().map_or(0, errno) {
            0 => Step::Back(page),
            libc::EEXIST if self.is_taken(place) => self.give_up(place),
            // The mapping is not there, or another one is: munmap, not a passing state.
            libc::ENOENT | libc::EINVAL if refused.is_certain(run, place) => self.give_up(place),
            libc::ENOMEM => self.free_memory(),
            errno => Step::Again(errno),
        }
    }

    /// A place that is gone. Who waits there looks again, and finds what its owner left.
    fn give_up(&self, place: usize) -> Step {
        let _ = self.plan.kernel.wake(place, page_size());
        Step::Gone(page_size())
    }

    /// Whether the page table has an entry for the place: a page, or a mark (which counts as swapped).
    fn is_taken(&self, place: usize) -> bool {
        let mut region = [Region::default()];
        let scanned = (self.plan.kernel).scan(place, place + page_size(), &mut region);
        matches!(scanned, Ok((1, _)))
    }

    /// All pages are back: books them, opens the gate, and gives the addresses to the pool.
    fn settle(&self, slot: usize, failed: Option<Outcome>, dirty: bool) {
        let (plan, pool) = (&self.plan, self.plan.pool);
        let mut guard = self.write(slot);
        let batch = &mut *guard;
        batch.gate = None;
        let settled = Settled {
            bytes: batch.away.bytes(),
            kind: Kind {
                huge: batch.staged.class().huge,
                warm: batch.warm,
            },
            failed: failed.is_some(),
            span: batch.span,
        };
        for run in batch.away.runs() {
            self.book(run, failed, batch);
        }
        let (staged, dest) = (std::mem::take(&mut batch.staged), batch.dest.take());
        // A segment that got a page table is reset as a whole, or no THP would fit there again.
        let used = if batch.split {
            SEGMENT
        } else {
            batch.away.bytes()
        };
        let (staged, rest) = staged.cut(used);
        pool.put_empty(rest);
        match &dest {
            _ if batch.split => pool.reset(staged),
            _ if failed.is_none() && plan.recycle => pool.put_full(staged),
            // All originals went back from staging.
            Some(_) if failed.is_some() && !dirty => pool.put_empty(staged),
            _ => pool.discard(staged),
        }
        if let Some(dest) = dest {
            match failed {
                Some(Outcome::NoMemory) => pool.reset(dest),
                Some(_) => pool.put_full(dest),
                // Its place has a page table by now, so the destination's THP was split as well.
                None if batch.split => pool.reset(dest),
                None => {
                    let (dest, rest) = dest.cut(used);
                    pool.put_full(rest);
                    match dirty {
                        true => pool.discard(dest),
                        false => pool.put_empty(dest),
                    }
                }
            }
        }
        batch.clear();
        drop(guard);
        self.settle_span(&settled);
        self.schedule.free(slot);
    }

    fn book(&self, run: &AwayRun, failed: Option<Outcome>, batch: &Batch) {
        let (account, page) = (self.plan.account, page_size());
        let outcome = match failed {
            _ if run.gone => Outcome::NotPresent,
            None => Outcome::Moved,
            // What was in doubt went back as it was.
            Some(Outcome::NoMemory) if !run.is_in_doubt() => Outcome::NoMemory,
            Some(_) => Outcome::Busy,
        };
        if batch.dest.is_some() || outcome == Outcome::Moved || run.gone {
            let unit = batch.staged.class().unit().min(run.len);
            return account.book(outcome, run.origin..run.origin + run.len, unit);
        }
        for at in (0..run.len).step_by(page) {
            let filled = batch.filled.has(run.offset + at);
            let outcome = if filled { Outcome::Moved } else { outcome };
            let at = run.origin + at;
            account.book(outcome, at..at + page, page);
        }
    }
}
