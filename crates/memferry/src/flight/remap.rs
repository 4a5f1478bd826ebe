// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the pages of a batch into their places: the copies, or the originals where the copy failed.
//!
//! The kernel moves them if it can; a place whose mapping changed meanwhile (mprotect, mlock) gets its contents through
//! `Kernel::fill`, which asks less of the mapping. Only a place that is no longer there keeps nothing.

use super::Flight;
use super::batch::AwayRun;
use crate::pool::{Piece, SEGMENT, Shelf};
use crate::result::Outcome;
use crate::sys::pagemap::{PRESENT, Region};
use crate::sys::{errno, page_size};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Attempts after which a place that keeps refusing gets its contents by `fill`.
const PATIENCE: u32 = 1000;

/// Refusals after which a place counts as unmapped.
const CERTAINTY: u32 = 8;

/// What one attempt to bring pages back came to.
enum Step {
    /// `len` bytes are back.
    Back(usize),
    /// The place of `len` bytes is gone, and with it what belonged there.
    Gone(usize),
    /// Someone changes the mapping: answer messages, then try again.
    Again,
}

impl Flight<'_> {
    pub(super) fn remap(&self, slot: usize) {
        let failed = self.read(slot).failed.load(Ordering::Relaxed);
        let mut refused = 0;
        // Whether each page of the piece they came from has left it.
        let mut left_behind = false;
        let mut index = 0;
        loop {
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
            let mut batch = self.write(slot);
            let Some(run) = batch.away.get(index).copied() else {
                break;
            };
            let Some((offset, len)) = batch.unplaced(&run).filter(|_| !run.gone) else {
                left_behind |= run.gone;
                index += 1;
                continue;
            };
            // Without destination pages `fill` has placed the copies; what is left goes back as it was.
            let source = match batch.dest {
                Some(dest) if !failed => dest,
                _ => batch.staged,
            };
            let place = run.place + (offset - run.offset);
            let step = self.bring_back(place, source.addr + offset, len, &mut refused);
            match step {
                Step::Back(done) => batch.placed.add(offset, done),
                Step::Gone(done) => {
                    batch.remove(&(place..place + done));
                    left_behind = true;
                }
                Step::Again => {
                    drop(batch);
                    drop(places);
                    self.serve_messages();
                    std::thread::yield_now();
                }
            }
        }
        self.settle(slot, failed, left_behind || refused > 0);
    }

    fn bring_back(&self, place: usize, from: usize, len: usize, refused: &mut u32) -> Step {
        let kernel = self.plan.kernel;
        let progress = kernel.remap(place, from, len);
        if progress.done > 0 {
            return Step::Back(progress.done);
        }
        let Some(error) = progress.stopped else {
            return Step::Back(len);
        };
        *refused += 1;
        match errno(&error) {
            libc::EAGAIN | libc::EINTR if *refused < PATIENCE => Step::Again,
            libc::ENOMEM => {
                // Page tables or accounting: our own free pages are the first to give.
                self.plan.pool.trim(0);
                std::thread::sleep(Duration::from_millis(1));
                Step::Again
            }
            _ => self.bring_back_page(place, from, refused),
        }
    }

    /// The careful way, one page at a time.
    fn bring_back_page(&self, place: usize, from: usize, refused: &mut u32) -> Step {
        let (kernel, page) = (self.plan.kernel, page_size());
        if kernel.remap(place, from, page).done > 0 {
            return Step::Back(page);
        }
        let progress = kernel.fill(place, from, page);
        if progress.done > 0 {
            return Step::Back(page);
        }
        match progress.stopped.as_ref().map_or(0, errno) {
            0 => Step::Back(page),
            libc::EEXIST if self.is_present(place) => {
                // Nobody but the owner can have put a page there, by replacing the mapping.
                let _ = kernel.wake(place, page);
                Step::Gone(page)
            }
            // The mapping is not there, or another one is: munmap, not a passing state.
            libc::ENOENT | libc::EINVAL if *refused > CERTAINTY => Step::Gone(page),
            libc::ENOMEM => {
                self.plan.pool.trim(0);
                std::thread::sleep(Duration::from_millis(1));
                Step::Again
            }
            _ => Step::Again,
        }
    }

    fn is_present(&self, place: usize) -> bool {
        let mut region = [Region::default()];
        let scanned = self
            .plan
            .kernel
            .scan(place, place + page_size(), &mut region);
        matches!(scanned, Ok((1, _)) if region[0].categories & PRESENT != 0)
    }

    /// All pages are back: books them, opens the gate, and gives the addresses to the pool.
    fn settle(&self, slot: usize, failed: bool, dirty: bool) {
        let plan = &self.plan;
        let mut guard = self.write(slot);
        let batch = &mut *guard;
        batch.gate = None;
        let Some(kind) = batch.kind else { return };
        let unit = if kind.huge { SEGMENT } else { page_size() };
        for run in &batch.away {
            self.book(run, batch.dest.is_none(), failed, unit, batch);
        }
        let (from, to) = (
            Shelf {
                node: kind.node,
                huge: kind.huge,
                locked: plan.locked,
            },
            Shelf {
                node: plan.wanted.node,
                huge: kind.huge,
                locked: plan.locked,
            },
        );
        let (staged, dest) = (batch.staged, batch.dest);
        let (used, rest) = split(staged, batch.bytes);
        plan.pool.put_empty(from, rest);
        match dest {
            _ if failed => {
                // The originals went back from staging, or some of them.
                if dirty || dest.is_none() {
                    plan.pool.discard(from, used)
                } else {
                    plan.pool.put_empty(from, used)
                }
                if let Some(dest) = dest {
                    plan.pool.put_full(to, dest);
                }
            }
            _ => {
                if plan.recycle {
                    plan.pool.put_full(from, used)
                } else {
                    plan.pool.discard(from, used)
                }
                if let Some(dest) = dest {
                    let (used, rest) = split(dest, batch.bytes);
                    plan.pool.put_full(to, rest);
                    if dirty {
                        plan.pool.discard(to, used)
                    } else {
                        plan.pool.put_empty(to, used)
                    }
                }
            }
        }
        batch.clear();
        drop(guard);
        self.schedule.free(slot);
    }

    fn book(
        &self,
        run: &AwayRun,
        filled: bool,
        failed: bool,
        unit: usize,
        batch: &super::batch::Batch,
    ) {
        let (ledger, node) = (self.plan.ledger, self.plan.wanted.node as i32);
        let origin = run.origin;
        let unit = unit.min(run.len);
        if run.gone {
            ledger.book(Outcome::NotPresent, origin, run.len, unit, -libc::ENOENT);
        } else if !failed {
            ledger.book(Outcome::Moved, origin, run.len, unit, node);
        } else if !filled {
            ledger.book(Outcome::Busy, origin, run.len, unit, -libc::EBUSY);
        } else {
            for page in (0..run.len).step_by(page_size()) {
                if batch.filled.has(run.offset + page) {
                    ledger.book(
                        Outcome::Moved,
                        origin + page,
                        page_size(),
                        page_size(),
                        node,
                    );
                } else {
                    ledger.book(
                        Outcome::NoMemory,
                        origin + page,
                        page_size(),
                        page_size(),
                        -libc::ENOMEM,
                    );
                }
            }
        }
    }
}

fn split(piece: Piece, at: usize) -> (Piece, Piece) {
    let at = at.min(piece.len);
    (
        Piece { len: at, ..piece },
        Piece {
            addr: piece.addr + at,
            len: piece.len - at,
            ..piece
        },
    )
}
