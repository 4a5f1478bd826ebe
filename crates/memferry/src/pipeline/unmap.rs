// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves the pages of a batch out to staging. From there on their owners wait for them.
//!
//! Staging is watched by the same userfaultfd as the range: while anybody changes a mapping of the range and the message
//! of it is unread, the kernel refuses to move (EAGAIN). With two descriptors a page could leave a mapping that took the
//! place of a watched one a moment ago, and could never come back.

use super::batch::Batch;
use super::events::Places;
use super::span::{Settled, Spans};
use super::{PATIENCE, Pipeline, release_pieces};
use crate::auto::Kind;
use crate::forkgate::Away;
use crate::result::Outcome;
use crate::steps::Laps;
use crate::sync::Unpoisoned;
use crate::sys::thread::Attempts;
use crate::sys::{errno, page_size};
use memferry_core::GRANULE;
use memferry_linux::pagemap::{PRESENT, Region, ZERO};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Pipeline<'_> {
    pub(super) fn unmap(&self, slot: usize, laps: &Laps) {
        if self.plan.cancel.load(Ordering::Relaxed) {
            self.schedule.stop();
            self.schedule.prepared(slot);
            return;
        }
        let Some(gate) = Away::try_begin() else {
            self.schedule.unmap_refused(slot);
            return;
        };
        let mut attempts = Attempts::default();
        loop {
            let places = self.places.read().unpoisoned();
            let mut batch = self.write(slot);
            // Then pages that the kernel keeps refusing stay where they are.
            let patient = attempts.failed() < PATIENCE;
            if self.unmap_runs(&places, &mut batch, patient, laps) {
                break;
            }
            drop(batch);
            drop(places);
            self.pause_and_serve(&mut attempts);
        }
        laps.lap(|s| &mut s.unmap);
        let mut guard = self.write(slot);
        let batch = &mut *guard;
        if batch.away.bytes() == 0 {
            let huge = batch.staged.class().huge;
            let settled = Settled {
                bytes: 0,
                kind: Kind {
                    huge,
                    warm: batch.warm,
                },
                failed: true,
                span: batch.span,
            };
            release_pieces(self.plan.pool, batch);
            drop(guard);
            drop(gate);
            self.settle_span(&settled);
            // Where nothing leaves no lane comes to answer after a remap.
            self.serve_messages();
            laps.lap(|s| &mut s.answer);
            self.schedule.free(slot);
            return;
        }
        batch.split = batch.staged.class().huge && !self.is_huge(&batch.staged);
        batch.gate = Some(gate);
        laps.count(|s| &mut s.batches);
        let carried = self.spans.as_ref().and_then(Spans::carried);
        batch.lanes = carried.map_or(self.plan.lanes, |carried| carried.lanes);
        batch.routine = carried.map(|carried| carried.routine);
        batch.span = carried.map_or(0, |carried| carried.span);
        let shares = match batch.dest {
            Some(_) => batch.away.bytes().div_ceil(GRANULE).min(batch.lanes),
            // Two lanes that fill one page table take turns at its lock: a batch each is 15% faster.
            None => 1,
        };
        drop(guard);
        self.schedule.unmapped(slot, shares);
    }

    /// Moves what is planned out, page by page around what cannot go. False when the kernel wants its messages read
    /// first (or, without `patient`, books what it refuses as busy).
    fn unmap_runs(&self, places: &Places, batch: &mut Batch, patient: bool, laps: &Laps) -> bool {
        let (kernel, account) = (self.plan.kernel, self.plan.account);
        let unit = batch.staged.class().unit();
        let pool = self.plan.pool;
        let staging = pool.stage(kernel.uffd(), &batch.staged, self.plan.recycle);
        laps.lap(|s| &mut s.register);
        while let Some(run) = batch.planned.last() {
            let Range { start: at, end } = *run;
            let mut stop = end;
            if let Some(excluded) = places.excluded.meeting(&(at..end)) {
                // Places are multiples of their unit, but for the rest of a THP that was split under way.
                stop = (excluded.start / unit * unit).max(at);
                if stop == at {
                    stop = excluded.end.next_multiple_of(unit).min(end);
                    self.book_excluded(at..stop, unit);
                    batch.skip(stop - at);
                    continue;
                }
            }
            let progress = match &staging {
                // SAFETY: the run is of the range, and the batch has the staging piece, empty from there on.
                Ok(_) => unsafe {
                    kernel.unmap(batch.staged.addr() + batch.away.bytes(), at, stop - at)
                },
                Err(error) => crate::sys::uffd::Progress::none(errno(error)),
            };
            if progress.done > 0 {
                batch.skip(progress.done);
                batch.away.add(at, progress.done);
                // The reason shows when the call begins at the page that stopped it.
                continue;
            }
            let outcome = match progress.stopped.as_ref().map_or(0, errno) {
                0 => continue,
                errno @ (libc::EAGAIN | libc::EINTR) if patient => {
                    laps.refused(errno);
                    return false;
                }
                errno => Outcome::of_errno(errno),
            };
            // A THP that was split under way may have lost some of its pages already: the rest of it stays.
            let rest = (unit - at % unit).min(end - at);
            account.book(outcome, at..at + rest, unit);
            batch.skip(rest);
        }
        true
    }

    /// Books places that must be left alone, folios of `unit` bytes: whatever is there stays.
    fn book_excluded(&self, part: Range<usize>, unit: usize) {
        let account = self.plan.account;
        let mut at = part.start;
        while at < part.end {
            let mut region = [Region::default()];
            let (present, outcome) = match self.plan.kernel.scan(at, part.end, &mut region) {
                Ok((0, _)) => (part.end..part.end, Outcome::NotPresent),
                Ok(_) => {
                    let [
                        Region {
                            start,
                            end,
                            categories,
                        },
                    ] = region;
                    let outcome = match categories & (PRESENT | ZERO) {
                        PRESENT => Outcome::Busy,
                        _ => Outcome::NotPresent,
                    };
                    (start as usize..end as usize, outcome)
                }
                // Nothing is known but that they stay.
                Err(_) => (at..part.end, Outcome::Busy),
            };
            account.book(Outcome::NotPresent, at..present.start, page_size());
            at = present.end;
            account.book(outcome, present, unit);
        }
    }
}
