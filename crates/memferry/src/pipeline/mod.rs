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
mod span;
#[cfg(test)]
mod tests;
mod unmap;

pub(crate) use cursor::Wanted;
pub(crate) use kernel::{Kernel, Live};

use crate::auto::{Chooser, Kind};
use crate::forkgate;
use crate::migrator::Migrator;
use crate::options::batch_of;
use crate::pool::{PageClass, PagePool, Piece, SEGMENT};
use crate::ranges::Ranges;
use crate::result::{Account, Outcome};
use crate::schedule::{Schedule, Task};
use crate::steps::{Laps, Steps};
use crate::sync::Unpoisoned;
use crate::sys::heap::Heap;
use crate::sys::list::{List, Pages};
use crate::sys::thread::Attempts;
use crate::sys::{errno, page_size};
use crate::vma::Vma;
use batch::Batch;
use cursor::Cursor;
use events::Places;
use memferry_core::{GRANULE, share};
use memferry_linux::pagemap::{HUGE, Region};
use span::Spans;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How often an idle lane looks for a task before it sleeps: about 20 us, less than a wake-up costs.
const SPINS: u32 = 500;

/// How often a lane looks whether a fork is over: forks of large processes take milliseconds.
const FORK_LOOK: Duration = Duration::from_micros(50);

/// Attempts, 10 to 20 ms, after which a place that keeps refusing is treated in another way.
const PATIENCE: u32 = 200;

/// Bytes that the kernel fills in one call; who waits for them is woken at its end.
const FILL_BYTES: usize = 512 << 10;

/// What a pipeline needs and what was asked of it.
pub(crate) struct Plan<'a> {
    pub kernel: &'a dyn Kernel,
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
    /// Says how many of them take tasks, and which routine copies instead of the migrator.
    pub chooser: Option<&'a dyn Chooser>,
    /// `batch_bytes` are those of one lane, and more have larger batches.
    pub batch_grows: bool,
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
    /// Where the lanes are chosen.
    spans: Option<Spans<'a>>,
    /// A pool or scan error that ends the pipeline early.
    error: Mutex<Option<std::io::Error>>,
    /// What each lane that has ended did.
    steps: Mutex<List<Steps>>,
    /// Lanes that have not ended.
    inside: AtomicUsize,
    /// Whether it was told that pages cannot come back.
    told: AtomicBool,
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
    ///
    /// # Errors
    /// There is no memory for its longest lists, which under a limit of address space come to nothing first.
    pub(crate) fn new(plan: Plan<'a>, slots: usize) -> io::Result<Pipeline<'a>> {
        let (kernel, account) = (plan.kernel, plan.account);
        let mut cursor = Cursor::new(kernel, account, plan.wanted, plan.vmas, plan.parts);
        cursor.reserve(slots)?;
        let places = Places::new(plan.excluded, plan.range.len() / page_size())?;
        let spins = if plan.lanes > 1 { SPINS } else { 0 };
        let spans = plan.chooser.map(Spans::new);
        let lanes = if spans.is_some() { 1 } else { plan.lanes };
        let mut batches = List::with_capacity_in(slots, Pages);
        batches.resize_with(slots, || RwLock::new(Batch::new()));
        let mut steps = List::with_capacity_in(plan.lanes, Pages);
        steps.resize(plan.lanes, Steps::default());
        Ok(Pipeline {
            schedule: Schedule::new(slots, lanes, spins),
            batches,
            cursor: Mutex::new(cursor),
            places: RwLock::new(places),
            spans,
            error: Mutex::new(None),
            steps: Mutex::new(steps),
            inside: AtomicUsize::new(0),
            told: AtomicBool::new(false),
            plan,
        })
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
            let task = self.schedule.next(lane);
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
        if let Some(spans) = &self.spans {
            spans.end();
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

    /// Cuts the next batch and finds pages for it. Nothing of it is away yet, so this may take its time.
    fn prepare(&self, slot: usize, epoch: u64, laps: &Laps) {
        let mut runs = std::mem::replace(&mut self.write(slot).planned, List::new_in(Pages));
        let cut = {
            let mut cursor = self.cursor.lock().unpoisoned();
            let cut = cursor.next(self.batch_bytes(), &mut runs);
            if let Some(spans) = &self.spans {
                spans.found.store(cursor.found_bytes(), Ordering::Relaxed);
            }
            cut
        };
        laps.lap(|s| &mut s.scan);
        let kind = match cut {
            Ok(Some(kind)) => kind,
            none_or_failed => {
                if let Err(error) = none_or_failed {
                    *self.error.lock().unpoisoned() = Some(error);
                    self.schedule.stop();
                }
                runs.clear();
                self.write(slot).planned = runs;
                return self.schedule.exhausted(slot, epoch);
            }
        };
        let bytes = runs.iter().map(Range::len).sum();
        let found = self.find_pages(kind.class, bytes);
        laps.lap(|s| &mut s.populate);
        let Ok((staged, dest, warm)) = found else {
            let (account, unit) = (self.plan.account, kind.class.unit());
            for run in runs.drain(..) {
                account.book(Outcome::NoMemory, run, unit);
            }
            self.write(slot).planned = runs;
            // Where the node is full this goes on to the end of the range, and no lane comes to answer after a remap.
            self.serve_messages();
            laps.lap(|s| &mut s.answer);
            // Another batch may have been copied meanwhile, and comes first.
            return self.schedule.free(slot);
        };
        let keep = staged.len();
        if keep < bytes {
            let mut cursor = self.cursor.lock().unpoisoned();
            cursor.give_back(kind, &mut runs, keep);
            drop(cursor);
            // Another lane may have found the range at its end meanwhile.
            self.schedule.more();
        }
        let huge = kind.class.huge;
        self.begin_span(Kind { huge, warm }, keep);
        let mut batch = self.write(slot);
        batch.clear();
        batch.warm = warm;
        // The lanes take runs from the end.
        runs.reverse();
        batch.planned = runs;
        batch.staged = staged;
        batch.dest = dest;
        drop(batch);
        self.schedule.prepared(slot);
    }

    /// Bytes of the next batch.
    fn batch_bytes(&self) -> usize {
        let carried = self.spans.as_ref().and_then(Spans::carried);
        match carried.filter(|_| self.plan.batch_grows) {
            Some(carried) => batch_of(carried.lanes),
            None => self.plan.batch_bytes,
        }
    }

    /// A staging range and as many free pages for a batch of pages of a class, and whether the latter were there; both may be shorter
    /// than asked, never for a THP. No lane holds free pages that it has no use for: others would find too few.
    fn find_pages(
        &self,
        from: PageClass,
        bytes: usize,
    ) -> std::io::Result<(Piece, Option<Piece>, bool)> {
        let pool = self.plan.pool;
        let node = self.plan.wanted.node;
        let staged = pool.take_empty(from, bytes, true)?;
        match self.find_free(PageClass { node, ..from }, staged.len()) {
            Ok((dest, warm)) => {
                let len = dest.as_ref().map_or(staged.len(), Piece::len);
                let (staged, rest) = staged.cut(len);
                pool.put_empty(rest);
                Ok((staged, dest, warm))
            }
            Err(error) => {
                pool.put_empty(staged);
                Err(error)
            }
        }
    }

    /// Free pages for at most `bytes`, and whether they were there; `None` when the kernel shall allocate them right at the place.
    fn find_free(&self, class: PageClass, bytes: usize) -> std::io::Result<(Option<Piece>, bool)> {
        let pool = self.plan.pool;
        let ask_nodes = self.plan.wanted.ask_nodes;
        if let Some(piece) = pool.take_full(class, bytes) {
            let (pages, unit) = (piece.addr()..piece.end(), class.unit());
            let is_whole = !class.huge || piece.len() == SEGMENT;
            // What arrives counts as moved to the node: free pages that something has demoted meanwhile must not.
            if is_whole && (!ask_nodes || self.plan.kernel.are_on(&pages, unit, class.node)) {
                return Ok((Some(piece), true));
            }
            pool.reset(piece);
        }
        if !class.huge && !ask_nodes {
            // One node: that saves zeroing and one remap.
            return Ok((None, false));
        }
        let allocate = || pool.allocate(class, bytes, |piece| self.is_huge(piece));
        let allocated = match allocate() {
            // A THP that the kernel split as it went to its place has left its page table behind, and base pages come here
            // instead of a THP, once.
            Err(_) if class.huge => allocate(),
            allocated => allocated,
        };
        allocated.map(|piece| (Some(piece), false))
    }

    /// Whether a piece holds a THP.
    fn is_huge(&self, piece: &Piece) -> bool {
        let mut region = [Region::default()];
        let scanned = (self.plan.kernel).scan(piece.addr(), piece.end(), &mut region);
        matches!(scanned, Ok((1, _))) && region[0].categories & HUGE != 0 && piece.len() == SEGMENT
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
            let part = share(batch.away.bytes(), batch.lanes, GRANULE, lane);
            let (len, migrator) = (part.len(), self.plan.migrator);
            let (src, dst) = (batch.staged.addr() + part.start, dest.addr() + part.start);
            let (src, dst) = (src as *const u8, dst as *mut u8);
            // SAFETY: the source lies in the batch's staging range, which holds its pages; the destination in its
            // destination piece, which holds free pages. Both belong to this pipeline alone, and shares have no byte in
            // common.
            unsafe {
                match batch.routine {
                    Some(routine) => routine.copy(src, dst, len),
                    None => migrator.copy(src, dst, len),
                }
            }
            laps.add(|s| &mut s.copied_bytes, len);
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
        let mut attempts = Attempts::default();
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
            laps.add(|s| &mut s.copied_bytes, progress.done);
            match progress.stopped.as_ref().map(errno) {
                None => {}
                Some(_) if progress.done > 0 => {}
                Some(errno @ (libc::EAGAIN | libc::EINTR)) if attempts.failed() < PATIENCE => {
                    laps.refused(errno);
                    drop(batch);
                    drop(places);
                    self.pause_and_serve(&mut attempts);
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
