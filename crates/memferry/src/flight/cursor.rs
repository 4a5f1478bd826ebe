// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks the range once and cuts it into batches: runs of present pages of one size that lie on one node.
//!
//! Whatever need not or cannot be moved is booked here and never leaves its place.

use super::kernel::Kernel;
use crate::pool::SEGMENT;
use crate::result::{Ledger, Outcome};
use crate::sys::page_size;
use crate::sys::pagemap::{HUGE, PRESENT, Region, ZERO};
use crate::vma::Vma;
use std::collections::VecDeque;
use std::io;

/// Bytes that one look at the page tables covers: 20 us for 4 KiB pages, so that a lane is not held up.
const WINDOW: usize = 16 << 20;
/// Pages whose node is asked for at a time.
const NODES_AT_ONCE: usize = 512;

/// A run of pages that are to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Address of the place.
    pub place: usize,
    pub len: usize,
}

/// What one batch is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// THPs rather than base pages.
    pub huge: bool,
    /// Node the pages lie on.
    pub node: u32,
}

/// What to move, and whereto.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Target node.
    pub node: u32,
    /// Move pages that lie on the target already (to measure, or to make them contiguous in a pool).
    pub relocate: bool,
    /// The machine has several nodes: ask where each page lies.
    pub ask_nodes: bool,
}

/// Position of a move in its range.
pub(crate) struct Cursor<'a> {
    wanted: Wanted,
    vmas: &'a [Vma],
    /// Next mapping, and next address in it.
    vma: usize,
    at: usize,
    end: usize,
    /// Cut, not yet taken.
    pending: VecDeque<(Kind, Run)>,
    regions: Vec<Region>,
    addresses: Vec<usize>,
    status: Vec<i32>,
}

impl<'a> Cursor<'a> {
    /// A cursor over `start .. end`, which `vmas` cover.
    pub(crate) fn new(wanted: Wanted, vmas: &'a [Vma], start: usize, end: usize) -> Cursor<'a> {
        let vma = vmas.partition_point(|v| v.range.end <= start);
        Cursor {
            wanted,
            vmas,
            vma,
            at: start,
            end,
            // Every other page a hole is the worst case.
            pending: VecDeque::with_capacity(WINDOW / page_size() / 2 + 2),
            regions: vec![Region::default(); 128],
            addresses: vec![0; if wanted.ask_nodes { NODES_AT_ONCE } else { 0 }],
            status: vec![0; if wanted.ask_nodes { NODES_AT_ONCE } else { 0 }],
        }
    }

    /// Fills `runs` with the next batch of at most `limit` bytes; `None` at the end of the range.
    pub(crate) fn next(
        &mut self,
        kernel: &dyn Kernel,
        ledger: &Ledger,
        limit: usize,
        runs: &mut Vec<Run>,
    ) -> io::Result<Option<Kind>> {
        runs.clear();
        while self.pending.is_empty() {
            if !self.look(kernel, ledger)? {
                return Ok(None);
            }
        }
        let Some(&(kind, _)) = self.pending.front() else {
            return Ok(None);
        };
        let mut room = if kind.huge { SEGMENT } else { limit };
        while room > 0 {
            match self.pending.front_mut() {
                Some((next, run)) if *next == kind => {
                    let len = run.len.min(room);
                    runs.push(Run {
                        place: run.place,
                        len,
                    });
                    room -= len;
                    run.place += len;
                    run.len -= len;
                    if run.len == 0 {
                        self.pending.pop_front();
                    }
                }
                _ => break,
            }
        }
        Ok(Some(kind))
    }

    /// Gives back the end of a batch, from its byte `keep` on.
    pub(crate) fn give_back(&mut self, kind: Kind, runs: &mut Vec<Run>, keep: usize) {
        let mut bytes: usize = runs.iter().map(|r| r.len).sum();
        while bytes > keep {
            let Some(mut run) = runs.pop() else { return };
            bytes -= run.len;
            if bytes < keep {
                let stays = keep - bytes;
                runs.push(Run {
                    place: run.place,
                    len: stays,
                });
                run = Run {
                    place: run.place + stays,
                    len: run.len - stays,
                };
                bytes = keep;
            }
            self.pending.push_front((kind, run));
        }
    }

    /// Bytes of the range that have not been given out.
    pub(crate) fn left(&self) -> usize {
        self.end - self.at + self.pending.iter().map(|(_, r)| r.len).sum::<usize>()
    }

    /// Looks at the next window; false at the end.
    fn look(&mut self, kernel: &dyn Kernel, ledger: &Ledger) -> io::Result<bool> {
        let vmas = self.vmas;
        let Some(vma) = vmas.get(self.vma).filter(|_| self.at < self.end) else {
            return Ok(false);
        };
        let stop = vma.range.end.min(self.end).min(self.at + WINDOW);
        let mut regions = std::mem::take(&mut self.regions);
        let scanned = kernel.scan(self.at, stop, &mut regions);
        let result = scanned.map(|(count, walked)| {
            // A full list ends the walk early.
            let walked = if count == regions.len() {
                walked.clamp(self.at, stop)
            } else {
                stop
            };
            for region in &regions[..count] {
                let (from, to) = (
                    (region.start as usize).max(self.at),
                    (region.end as usize).min(walked),
                );
                ledger.book(
                    Outcome::NotPresent,
                    self.at,
                    from - self.at,
                    page_size(),
                    -libc::ENOENT,
                );
                self.sort(kernel, ledger, vma, from, to, region.categories);
                self.at = to;
            }
            ledger.book(
                Outcome::NotPresent,
                self.at,
                walked - self.at,
                page_size(),
                -libc::ENOENT,
            );
            self.at = walked;
            if self.at == vma.range.end {
                self.vma += 1;
            }
        });
        self.regions = regions;
        result.map(|()| true)
    }

    /// Decides what becomes of a run of equal pages.
    fn sort(
        &mut self,
        kernel: &dyn Kernel,
        ledger: &Ledger,
        vma: &Vma,
        from: usize,
        to: usize,
        categories: u64,
    ) {
        let page = page_size();
        if categories & PRESENT == 0 {
            ledger.book(Outcome::NotPresent, from, to - from, page, -libc::ENOENT);
        } else if categories & ZERO != 0 {
            ledger.book(Outcome::NotPresent, from, to - from, page, -libc::EFAULT);
        } else if !vma.write || !vma.read || vma.exec {
            // UFFDIO_MOVE wants both mappings readable and writable alike.
            ledger.book(Outcome::Unsupported, from, to - from, page, -libc::EINVAL);
        } else if categories & HUGE != 0 {
            let (first, last) = (
                from.next_multiple_of(SEGMENT).min(to),
                to / SEGMENT * SEGMENT,
            );
            if first >= last {
                ledger.book(Outcome::Unsupported, from, to - from, page, -libc::EINVAL);
                return;
            }
            // A THP that the range cuts would have to be split.
            ledger.book(
                Outcome::Unsupported,
                from,
                first - from,
                page,
                -libc::EINVAL,
            );
            self.plan(kernel, ledger, first, last, true);
            ledger.book(Outcome::Unsupported, last, to - last, page, -libc::EINVAL);
        } else {
            self.plan(kernel, ledger, from, to, false);
        }
    }

    /// Queues movable pages, those already on the target left out.
    fn plan(&mut self, kernel: &dyn Kernel, ledger: &Ledger, from: usize, to: usize, huge: bool) {
        let unit = if huge { SEGMENT } else { page_size() };
        if !self.wanted.ask_nodes {
            let kind = Kind {
                huge,
                node: self.wanted.node,
            };
            if self.wanted.relocate {
                self.push(kind, from, to - from);
            } else {
                ledger.book(
                    Outcome::AlreadyThere,
                    from,
                    to - from,
                    unit,
                    self.wanted.node as i32,
                );
            }
            return;
        }
        let mut at = from;
        while at < to {
            let count = ((to - at) / unit).min(NODES_AT_ONCE);
            for index in 0..count {
                self.addresses[index] = at + index * unit;
            }
            if let Err(error) = kernel.nodes(&self.addresses[..count], &mut self.status[..count]) {
                self.status[..count].fill(-crate::sys::errno(&error));
            }
            for index in 0..count {
                let (addr, status) = (at + index * unit, self.status[index]);
                if status < 0 {
                    let outcome = match -status {
                        libc::ENOENT | libc::EFAULT => Outcome::NotPresent,
                        _ => Outcome::Busy,
                    };
                    ledger.book(outcome, addr, unit, unit, status);
                } else if status == self.wanted.node as i32 && !self.wanted.relocate {
                    ledger.book(Outcome::AlreadyThere, addr, unit, unit, status);
                } else {
                    self.push(
                        Kind {
                            huge,
                            node: status as u32,
                        },
                        addr,
                        unit,
                    );
                }
            }
            at += count * unit;
        }
    }

    fn push(&mut self, kind: Kind, place: usize, len: usize) {
        match self.pending.back_mut() {
            Some((last, run)) if *last == kind && run.place + run.len == place => run.len += len,
            _ => self.pending.push_back((kind, Run { place, len })),
        }
    }
}
