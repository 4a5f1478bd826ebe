// SPDX-License-Identifier: MIT OR Apache-2.0
//! One move under way: the lanes carry batches through unmap, copy and remap.
//!
//! At every moment each page is mapped, with its data, at exactly one of place, staging or destination; whatever fails,
//! `remap` brings back either the copy or the staged original. Locks are taken in the order gate, `places`, batch, pool.
//! It knows no threads: `run_lane` is called by every lane of a migrator.

mod away;
mod batch;
mod cursor;
mod events;
mod kernel;
mod remap;
#[cfg(test)]
mod tests;
mod unmap;

pub(crate) use cursor::Wanted;
pub(crate) use kernel::{Kernel, Live};

use crate::forkgate;
use crate::migrator::Migrator;
use crate::pool::{PageClass, PagePool, Piece, SEGMENT};
use crate::ranges::Ranges;
use crate::result::{Account, Outcome};
use crate::schedule::{Schedule, Task};
use crate::steps::{Laps, Steps};
use crate::sync::Unpoisoned;
use crate::sys::heap::Heap;
use crate::sys::list::{List, Pages};
use crate::sys::uffd::Uffd;
use crate::sys::{errno, page_size};
use crate::vma::Vma;
use batch::Batch;
use cursor::Cursor;
use events::Places;
use memferry_core::{GRANULE, share};
use memferry_linux::pagemap::{HUGE, Region};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How often an idle lane looks for a task before it sleeps: about 20 us, less than a wake-up costs.
const SPINS: u32 = 500;

/// How often a lane looks whether a fork is over: forks of large processes take milliseconds.
const FORK_LOOK: Duration = Duration::from_micros(50);

/// Bytes that the kernel fills in one call; who waits for them is woken at its end.
const FILL_BYTES: usize = 512 << 10;

/// What a pipeline needs and what was asked of it.
pub(crate) struct Plan<'a> {
    pub kernel: &'a dyn Kernel,
    /// Watches the range, and staging while pages move out to it.
    pub place: &'a Uffd,
    pub pool: &'a PagePool,
    pub account: &'a Account,
    pub migrator: &'a dyn Migrator,
    /// The part of the range that is registered for this pipeline.
    pub range: Range<usize>,
    /// The mappings of it, which are locked (mlock) all or none.
    pub vmas: &'a [Vma],
    /// What of them is to be moved, ascending.
    pub parts: &'a [Range<usize>],
    /// Parts of the range to leave alone.
    pub excluded: &'a [Range<usize>],
    pub batch_bytes: usize,
    /// The migrator's lanes, at least 1; asked once, so that the shares of a batch fit together.
    pub lanes: usize,
    pub wanted: Wanted,
    /// Keep source pages as free pages of their node.
    pub recycle: bool,
    /// Set by anyone: no further batch leaves.
    pub cancel: &'a AtomicBool,
}

/// What a pipeline leaves behind.
pub(crate) struct Finished {
    /// What ended it early.
    pub error: Option<std::io::Error>,
    /// Parts that their owner was about to empty (MADV_DONTNEED), and may still be.
    pub emptied: Ranges,
    /// What each lane did.
    pub steps: List<Steps>,
    /// Parts that no further pipeline over the same watch may touch: what is there now may be another mapping, unwatched.
    pub excluded: Ranges,
}

/// The state that the lanes share.
pub(crate) struct Pipeline<'a> {
    plan: Plan<'a>,
    schedule: Schedule,
    batches: List<RwLock<Batch>>,
    cursor: Mutex<Cursor<'a>>,
    places: RwLock<Places>,
    /// A pool or scan error that ends the pipeline early.
    error: Mutex<Option<std::io::Error>>,
    /// What each lane that has ended did.
    steps: Mutex<List<Steps>>,
    /// Lanes that have not ended.
    inside: AtomicUsize,
}

/// A lane at work. Unless it ends in order its task stays undone: the other lanes would wait for that for ever, and pages
/// that are away would be lost.
struct Inside<'f>(&'f AtomicUsize);

impl Inside<'_> {
    fn begin(lanes: &AtomicUsize) -> Inside<'_> {
        lanes.fetch_add(1, Ordering::Relaxed);
        Inside(lanes)
    }

    fn end(self) {
        self.0.fetch_sub(1, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        end_process();
    }
}

fn end_process() -> ! {
    const TEXT: &[u8] = b"memferry: a move broke off while pages were away from their places; ending the process, since \
        they would be lost\n";
    // SAFETY: the bytes are there; what cannot be said is not said.
    unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
    std::process::abort()
}

impl<'a> Pipeline<'a> {
    /// A pipeline of `slots` batches at a time.
    pub(crate) fn new(plan: Plan<'a>, slots: usize) -> Pipeline<'a> {
        let (kernel, account) = (plan.kernel, plan.account);
        let mut cursor = Cursor::new(kernel, account, plan.wanted, plan.vmas, plan.parts);
        cursor.reserve(slots);
        let spins = if plan.lanes > 1 { SPINS } else { 0 };
        let mut batches = List::with_capacity_in(slots, Pages);
        batches.resize_with(slots, || RwLock::new(Batch::new()));
        let mut steps = List::with_capacity_in(plan.lanes, Pages);
        steps.resize(plan.lanes, Steps::default());
        Pipeline {
            schedule: Schedule::new(slots, spins),
            batches,
            cursor: Mutex::new(cursor),
            places: RwLock::new(Places::new(plan.excluded, plan.range.len() / page_size())),
            error: Mutex::new(None),
            steps: Mutex::new(steps),
            inside: AtomicUsize::new(0),
            plan,
        }
    }

    /// The share of one lane below the plan's number; returns when no batch is left or away. A panic in it, other than of the migrator's copy, ends
    /// the process.
    pub(crate) fn run_lane(&self, lane: usize) {
        let inside = Inside::begin(&self.inside);
        let _heap = Heap::forbid();
        let laps = Laps::begin();
        // Small batches come many a microsecond; the kernel is asked for messages once per 64 KiB or more.
        let patience = ((64 << 10) / self.plan.batch_bytes).max(1);
        let mut remaps = 0;
        loop {
            if self.plan.cancel.load(Ordering::Relaxed) {
                self.schedule.stop();
            }
            let task = self.schedule.next();
            laps.lap(|s| &mut s.wait);
            match task {
                Task::Prepare { slot, epoch } => self.prepare(slot, epoch, &laps),
                Task::Unmap { slot } => self.unmap(slot, &laps),
                Task::Copy { slot, share } => self.copy(slot, share, &laps),
                Task::Remap { slot } => {
                    self.remap(slot, &laps);
                    remaps += 1;
                    if remaps % patience == 0 {
                        self.serve_messages();
                        laps.lap(|s| &mut s.answer);
                    }
                }
                Task::AwaitFork => {
                    // Who forks may touch a hole of the range, in another handler or on its stack.
                    while !forkgate::is_open() {
                        self.serve_messages();
                        std::thread::sleep(FORK_LOOK);
                    }
                    self.schedule.fork_over();
                }
                Task::Finished => {
                    let mut all = self.steps.lock().unpoisoned();
                    all[lane] = laps.end();
                    return inside.end();
                }
            }
        }
    }

    /// Closes the account.
    pub(crate) fn finish(self) -> Finished {
        if self.inside.load(Ordering::Acquire) > 0 {
            end_process();
        }
        self.plan.pool.end_staging();
        self.end_watch();
        for batch in self.batches {
            // Prepared when the move was cancelled, never unmapped.
            let mut batch = batch.into_inner().unpoisoned();
            release_pieces(self.plan.pool, &mut batch);
        }
        let places = self.places.into_inner();
        let places = places.unpoisoned();
        Finished {
            error: self.error.into_inner().unpoisoned(),
            steps: (self.steps.into_inner()).unpoisoned(),
            emptied: places.emptied,
            excluded: places.excluded,
        }
    }

    fn read(&self, slot: usize) -> RwLockReadGuard<'_, Batch> {
        self.batches[slot].read().unpoisoned()
    }

    fn write(&self, slot: usize) -> RwLockWriteGuard<'_, Batch> {
        self.batches[slot].write().unpoisoned()
    }

    /// Cuts the next batch and finds pages for it. Nothing is away yet, so this may take its time.
    fn prepare(&self, slot: usize, epoch: u64, laps: &Laps) {
        let mut runs = std::mem::replace(&mut self.write(slot).planned, List::new_in(Pages));
        loop {
            let cut = {
                let mut cursor = self.cursor.lock().unpoisoned();
                cursor.next(self.plan.batch_bytes, &mut runs)
            };
            laps.lap(|s| &mut s.scan);
            let kind = match cut {
                Ok(Some(kind)) => kind,
                Ok(None) => break,
                Err(error) => {
                    *self.error.lock().unpoisoned() = Some(error);
                    self.schedule.stop();
                    break;
                }
            };
            let bytes = runs.iter().map(|r| r.len).sum();
            let found = self.find_pages(kind.class, bytes);
            laps.lap(|s| &mut s.populate);
            match found {
                Ok((staged, dest)) => {
                    let keep = bytes
                        .min(staged.len())
                        .min(dest.as_ref().map_or(bytes, Piece::len));
                    if keep < bytes {
                        let mut cursor = self.cursor.lock().unpoisoned();
                        cursor.give_back(kind, &mut runs, keep);
                        drop(cursor);
                        // Another lane may have found the range at its end meanwhile.
                        self.schedule.more();
                    }
                    let mut batch = self.write(slot);
                    batch.clear();
                    // The lanes take runs from the end.
                    runs.reverse();
                    batch.planned = runs;
                    batch.staged = staged;
                    batch.dest = dest;
                    drop(batch);
                    self.schedule.prepared(slot);
                    return;
                }
                Err(_) => {
                    let (account, unit) = (self.plan.account, kind.class.unit());
                    for run in &runs {
                        account.book(Outcome::NoMemory, run.place, run.len, unit);
                    }
                }
            }
        }
        runs.clear();
        self.write(slot).planned = runs;
        self.schedule.exhausted(slot, epoch);
    }

    /// A staging range and free pages for a batch of pages of a class; both may be shorter than asked, never for a THP.
    fn find_pages(&self, from: PageClass, bytes: usize) -> std::io::Result<(Piece, Option<Piece>)> {
        let pool = self.plan.pool;
        let node = self.plan.wanted.node;
        let dest = self.find_free(PageClass { node, ..from }, bytes)?;
        let len = dest.as_ref().map_or(bytes, Piece::len);
        match pool.take_empty(from, len, true) {
            Ok(staged) => Ok((staged, dest)),
            Err(error) => {
                if let Some(dest) = dest {
                    pool.put_full(dest);
                }
                Err(error)
            }
        }
    }

    /// Free pages for at most `bytes`; `None` when the kernel shall allocate them right at the place.
    fn find_free(&self, class: PageClass, bytes: usize) -> std::io::Result<Option<Piece>> {
        let pool = self.plan.pool;
        if let Some(piece) = pool.take_full(class, bytes) {
            if !class.huge || piece.len() == SEGMENT {
                return Ok(Some(piece));
            }
            pool.discard(piece);
        }
        if !class.huge && !self.plan.wanted.ask_nodes {
            // One node: that saves zeroing and one remap.
            return Ok(None);
        }
        let allocate = || pool.allocate(class, bytes, |piece| self.is_huge(piece));
        match allocate() {
            // A THP that the kernel split as it went to its place has left its page table behind, and base pages come here
            // instead of a THP, once.
            Err(_) if class.huge => allocate().map(Some),
            allocated => allocated.map(Some),
        }
    }

    /// Whether a piece holds a THP.
    fn is_huge(&self, piece: &Piece) -> bool {
        let mut region = [Region::default()];
        let scanned = (self.plan.kernel).scan(piece.addr(), piece.end(), &mut region);
        matches!(scanned, Ok((1, _))) && region[0].categories & HUGE != 0 && piece.len() == SEGMENT
    }

    /// How many lanes have a share of `bytes`.
    fn shares(&self, bytes: usize) -> usize {
        bytes.div_ceil(GRANULE).min(self.plan.lanes)
    }

    /// Copies one share; a panic or a failure sends the whole batch back as it was.
    fn copy(&self, slot: usize, lane: usize, laps: &Laps) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let batch = self.read(slot);
            let Some(dest) = &batch.dest else {
                drop(batch);
                self.fill(slot, laps);
                return laps.lap(|s| &mut s.fill);
            };
            let part = share(batch.away.bytes(), self.plan.lanes, GRANULE, lane);
            // SAFETY: the source lies in the batch's staging range, which holds its pages; the destination in its
            // destination piece, which holds free pages. Both belong to this pipeline alone, and shares have no byte in
            // common.
            unsafe {
                self.plan.migrator.copy(
                    (batch.staged.addr() + part.start) as *const u8,
                    (dest.addr() + part.start) as *mut u8,
                    part.len(),
                );
            }
            laps.lap(|s| &mut s.copy);
        }));
        if let Err(panic) = done {
            // Dropping it would ask the heap, or run code of the migrator's.
            std::mem::forget(panic);
            self.read(slot).failed.store(true, Ordering::Relaxed);
        }
        self.schedule.copied(slot);
    }

    /// Lets the kernel allocate, copy and map the batch in one step. What does not succeed stays
    /// staged and goes back in `remap`.
    fn fill(&self, slot: usize, laps: &Laps) {
        let mut tries = 0;
        loop {
            let places = self.places.read().unpoisoned();
            let batch = self.read(slot);
            let base = batch.staged.addr();
            let Some((place, from, len, in_doubt)) = batch.to_fill() else {
                return;
            };
            // The kernel fills any place that anybody watches.
            if in_doubt && !self.plan.kernel.watches(place).unwrap_or(false) {
                batch.failed.store(true, Ordering::Relaxed);
                return;
            }
            let len = len.min(if in_doubt { page_size() } else { FILL_BYTES });
            // SAFETY: the place is of a run that is away, and its page lies there in the batch's staging piece.
            let progress = unsafe { self.plan.kernel.fill(place, base + from, len) };
            batch.placed.add(from, progress.done);
            batch.filled.add(from, progress.done);
            match progress.stopped.as_ref().map(errno) {
                None => {}
                Some(_) if progress.done > 0 => {}
                Some(errno @ (libc::EAGAIN | libc::EINTR)) if tries < 1000 => {
                    tries += 1;
                    laps.refused(errno);
                    drop(batch);
                    drop(places);
                    self.serve_messages();
                    std::thread::yield_now();
                }
                Some(_) => {
                    batch.failed.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

/// Puts a batch's pieces back into the pool when nothing is away.
fn release_pieces(pool: &PagePool, batch: &mut Batch) {
    pool.put_empty(std::mem::take(&mut batch.staged));
    if let Some(dest) = batch.dest.take() {
        pool.put_full(dest);
    }
    batch.clear();
}
