// SPDX-License-Identifier: MIT OR Apache-2.0
//! One move, with all that it needs, on whatever thread; and the handle of one that has a thread of its own.
//!
//! The thread that asks for a move may leave its frames at any time (longjmp out of a signal handler): nothing of the move
//! lies there. The order of a move: check the range, register it, let the migrator's lanes run the pipeline, close the account.

use crate::emptied;
use crate::error::MoveError;
use crate::forkgate::Away;
use crate::migrator::Migrator;
use crate::move_pages;
use crate::options::MoveOptions;
use crate::pace::Pace;
use crate::pipeline::{Live, Pipeline, Plan, Wanted};
use crate::pool::{PagePool, SEGMENT};
use crate::ranges::{Ranges, common, meeting};
use crate::result::{Account, ListResult, MoveResult, Outcome};
use crate::schedule::slots_for;
use crate::stretches::{Stretch, Stretches};
use crate::sync::Unpoisoned;
use crate::sys::heap::Heap;
use crate::sys::list::{List, Pages};
use crate::sys::own::{self, Noted, What};
use crate::sys::thread::{Event, Quiet};
use crate::sys::uffd::Uffd;
use crate::sys::{self, page_size};
use crate::turns::{Haste, Turns};
use crate::vma::{self, Vma};
use crate::watch::{MAPS, Userfault, end_watch, leave_cut_thps, watch};
use memferry_linux::pagemap::{HUGE, PRESENT, Pagemap, Region, ZERO};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Bytes to move that are watched at a time. Holes are filled by the mover then, more slowly than by the kernel, and the
/// pipeline drains at the end (0.1 ms): 1 GiB keeps both small.
const STRETCH: usize = 1 << 30;

/// What to try without PAGEMAP_SCAN, which a mover has tried before.
const NO_SCAN: &str = "Linux 6.7 has it; report this kernel";

/// What to try where the mover itself has no memory.
const NO_MEMORY: &str = "raise the limit of address space (ulimit -v), or free memory";

/// Below so many bytes a part one lane moves them alone: each part has TLB flushes of its own, which interrupt the CPUs of the
/// other lanes. On two CPUs of a virtual machine, warm, 16 KiB parts had 1.4 GB/s on one lane and 0.6 on two, 64 KiB parts 3.5 and
/// 1.5; cold parts of 256 KiB gained by the second lane (examples/list_speed).
const SCATTERED: usize = 128 << 10;

/// Whether a list is of many small parts.
fn are_scattered(parts: &[Range<usize>]) -> bool {
    let bytes: usize = parts.iter().map(Range::len).sum();
    parts.len() > 1 && bytes / parts.len() < SCATTERED
}

/// What the moves of one mover share; those under way keep it.
pub(crate) struct Core {
    pub userfault: Option<Userfault>,
    /// What userfaultfd cannot move goes through move_pages(2).
    pub kernel_too: bool,
    /// Huge pages move through userfaultfd; else they go through move_pages(2) as well, or stay.
    pub huge_pages: bool,
    /// So do lists of scattered pieces, which it moves faster here.
    pub pieces_by_kernel: bool,
    pub pool: PagePool,
    pub nodes: Vec<u32>,
    pub generation: u32,
    /// Who has the migrator's lanes and the pool: a move for each stretch, from before it is watched, and not while it waits for its rate.
    pub turns: Turns,
}

/// One move.
pub(crate) struct Job {
    pub core: Arc<Core>,
    pub migrator: Arc<dyn Migrator>,
    /// What to move, ascending, with no address in common.
    pub ranges: List<Range<usize>>,
    pub to: u32,
    pub options: MoveOptions,
    /// That of the options.
    pub cancel: Arc<AtomicBool>,
    pub batch_bytes: usize,
    pub lanes: usize,
    /// Bytes that are accounted for.
    pub booked: Arc<AtomicU64>,
}

impl Job {
    /// Bytes to move.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    /// Moves the pages; signals are blocked on this thread. The ranges of the result ascend.
    pub(crate) fn run(&self) -> Result<ListResult, MoveError> {
        let _under_way = self.core.turns.under_way();
        let started = Instant::now();
        let mut parts = Ranges::default();
        parts.add_all(&self.ranges);
        let (parts, by_kernel) = match &self.core.userfault {
            Some(_) if self.core.pieces_by_kernel && are_scattered(parts.as_slice()) => {
                vma::all_mapped(Path::new(MAPS), parts.as_slice())?;
                (Ranges::default(), parts)
            }
            Some(userfault) if self.core.kernel_too => {
                let vmas = vma::all_mapped(Path::new(MAPS), parts.as_slice())?;
                let (mut by_faults, mut by_kernel) = by_backend(&vmas, &parts);
                if !self.core.huge_pages {
                    by_faults = without_thps(&userfault.pagemap, &by_faults, &mut by_kernel)
                        .map_err(MoveError::system("PAGEMAP_SCAN", NO_SCAN))?;
                }
                (by_faults, by_kernel)
            }
            Some(_) => (parts, Ranges::default()),
            None => {
                vma::all_mapped(Path::new(MAPS), parts.as_slice())?;
                (Ranges::default(), parts)
            }
        };
        let booked = Arc::clone(&self.booked);
        let account = Account::new(&self.ranges, self.options.list_pages, booked);
        let mut failure = None;
        let userfault = self.core.userfault.as_ref();
        if let Some(userfault) = userfault.filter(|_| !parts.as_slice().is_empty()) {
            failure = self.watch_and_run(userfault, parts.as_slice(), &account)?;
        }
        failure = failure.or(self.carry(by_kernel.as_slice(), &account));
        account.close(started.elapsed(), failure)
    }

    /// How the move waits for its turns.
    fn haste(&self) -> Haste {
        match self.options.bytes_per_second {
            None => Haste::Hurries,
            Some(_) => Haste::Bides,
        }
    }

    /// Moves mapped parts through move_pages(2), stretch by stretch; returns the first error. A page that another move of this mover has away
    /// would look as if it were not there, so it takes turns with these.
    fn carry(&self, parts: &[Range<usize>], account: &Account) -> Option<MoveError> {
        let pace = Pace::new(self.options.bytes_per_second);
        let most = most_at_a_time(self.options.bytes_per_second);
        let mut failure = None;
        for stretch in Stretches::new(parts, most, |_| true) {
            if !pace.wait(&self.cancel) {
                break;
            }
            let mut of_stretch = List::with_capacity_in(stretch.parts.len(), Pages);
            of_stretch.extend(stretch.of(parts));
            let Some(_turn) = self.core.turns.take(self.haste(), &self.cancel) else {
                break;
            };
            let before = account.moved_bytes();
            let limits = (&*self.cancel, None);
            let carried = move_pages::carry(0, self.to, self.lanes, limits, &of_stretch, account);
            failure = failure.or(carried.err());
            pace.pay(Instant::now(), account.moved_bytes() - before);
        }
        failure
    }

    /// Moves ascending parts, stretch by stretch. `Ok` has what ended one of them after another may have moved.
    fn watch_and_run(
        &self,
        userfault: &Userfault,
        parts: &[Range<usize>],
        account: &Account,
    ) -> Result<Option<MoveError>, MoveError> {
        let alone = parts.len() == 1;
        // What this thread stands on, and all that must not lie between ranges that share a watch.
        let mut own = Ranges::default();
        let mut add = |memory| {
            if !alone {
                own.add(memory);
            }
        };
        let _noted = self.note_own_memory()?;
        let of_others = own::all_but(self.mover()).map(|own| (own.range, own.what));
        for (memory, what) in self.own_memory().chain(of_others) {
            refuse(parts, &memory, what.text())?;
            add(memory);
        }
        let mut refused = Ok(());
        // A child of a fork beside it would find the loader's lock held.
        let no_fork = Away::begin();
        sys::loaded::own_memory(|memory, what| {
            if refused.is_ok() {
                refused = refuse(parts, &memory, what);
            }
            add(memory);
        });
        drop(no_fork);
        refused?;
        let pace = Pace::new(self.options.bytes_per_second);
        let most = most_at_a_time(self.options.bytes_per_second);
        // All of them or nothing; what a stretch is made of is looked at again when it is watched.
        let vmas = match alone && parts[0].len() <= STRETCH {
            true => List::new_in(Pages),
            false => vma::all_movable(Path::new(MAPS), parts)?,
        };
        let mut waiting = List::new_in(Pages);
        waiting.extend(Stretches::new(parts, most, |gap| {
            let before = vmas.partition_point(|vma| vma.range.end < gap.start);
            let one_mapping = vmas.get(before).is_some_and(|vma| gap.end < vma.range.end);
            one_mapping && own.meeting(gap).is_none()
        }));
        waiting.reverse();
        let lanes = if are_scattered(parts) { 1 } else { self.lanes };
        let mut failure = None;
        while let Some(stretch) = waiting.pop() {
            if !pace.wait(&self.cancel) {
                break;
            }
            let Some(_turn) = self.core.turns.take(self.haste(), &self.cancel) else {
                break;
            };
            let (first, before) = (stretch.range.start == parts[0].start, account.moved_bytes());
            let watched = leave_cut_thps(&userfault.pagemap, stretch.range.clone(), account);
            if watched.is_empty() {
                continue;
            }
            let _heap = Heap::forbid();
            match watch(userfault, &watched) {
                Ok((uffd, vmas)) => {
                    let parts = &parts[stretch.parts];
                    if let Err(error) =
                        self.run_pipeline(userfault, &uffd, &vmas, parts, lanes, account)
                    {
                        failure.get_or_insert(error);
                    }
                }
                // What lies between the parts may be the reason, so each is tried alone. Not after EAGAIN, which comes when patience with
                // changing mappings is over: each part would wait as long again.
                Err((errno, _)) if stretch.parts.len() > 1 && errno != libc::EAGAIN => {
                    waiting.extend(stretch.parts.rev().filter_map(|part| {
                        within(&parts[part], &watched).map(|range| Stretch {
                            bytes: range.len(),
                            range,
                            parts: part..part + 1,
                        })
                    }));
                }
                Err((_, error)) if alone && first => return Err(error),
                Err((errno, error)) => {
                    // Others may have moved: the account stands, with this one in it.
                    let outcome = match errno {
                        libc::ENOMEM => Outcome::NoMemory,
                        _ => Outcome::Busy,
                    };
                    account.book(outcome, watched, page_size());
                    failure.get_or_insert(error);
                }
            }
            pace.pay(Instant::now(), account.moved_bytes() - before);
        }
        Ok(failure)
    }

    /// Moves what of `parts` lies in the mappings of one watch, on so many lanes of the migrator.
    fn run_pipeline(
        &self,
        userfault: &Userfault,
        uffd: &Uffd,
        vmas: &[Vma],
        parts: &[Range<usize>],
        lanes: usize,
        account: &Account,
    ) -> Result<(), MoveError> {
        let mut excluded = Ranges::default();
        emptied::still(&userfault.pagemap, &mut excluded);
        let mut failure = None;
        for vmas in vmas.chunk_by(|a, b| a.locked == b.locked) {
            let range = vmas[0].range.start..vmas[vmas.len() - 1].range.end;
            let wanted = Wanted {
                node: self.to,
                relocate: self.options.relocate,
                ask_nodes: self.core.nodes.len() > 1,
                huge_pages: self.core.huge_pages,
            };
            let chooser = self.migrator.chooser().filter(|_| lanes > 1);
            let plan = Plan {
                kernel: &Live {
                    uffd,
                    pagemap: &userfault.pagemap,
                },
                pool: &self.core.pool,
                account,
                migrator: &*self.migrator,
                range: range.clone(),
                vmas,
                parts,
                excluded: excluded.as_slice(),
                batch_bytes: self.batch_bytes,
                lanes,
                chooser,
                batch_grows: self.options.batch_bytes == 0,
                wanted,
                recycle: self.options.source.keep,
                cancel: &self.cancel,
            };
            let pipeline = match Pipeline::new(plan, slots_for(lanes)) {
                Ok(pipeline) => pipeline,
                Err(error) => {
                    // Nobody would answer faults on it.
                    end_watch(uffd, &range);
                    account.book(Outcome::NoMemory, range, page_size());
                    failure.get_or_insert_with(|| MoveError::system("mmap", NO_MEMORY)(error));
                    continue;
                }
            };
            // A large list, or pages of a pool, may have come to lie there since, where the program had unmapped something.
            let own = own::all()
                .filter(|own| matches!(own.what, What::List | What::Pool | What::Page))
                .find_map(|own| Some((within(&own.range, &range)?, own.what)));
            let begun = Instant::now();
            let run = match own {
                Some(_) => Ok(()),
                None => catch_unwind(AssertUnwindSafe(|| {
                    let _migrators_own = Heap::allow();
                    let lane = |lane| {
                        if lane < lanes {
                            pipeline.run_lane(lane);
                        }
                    };
                    self.migrator.run_called(&lane);
                })),
            };
            let ran = begun.elapsed();
            let finished = pipeline.finish();
            account.add_steps(ran, &finished.steps);
            let emptied = finished.emptied.as_slice();
            emptied.iter().cloned().for_each(emptied::note);
            excluded = finished.excluded;
            if let Some((range_of, what)) = own {
                account.book(Outcome::Busy, range, page_size());
                failure.get_or_insert(MoveError::OwnMemory {
                    range: range_of,
                    what: what.text(),
                });
                continue;
            }
            if let Err(panic) = run {
                resume_unwind(panic);
            }
            if let Some(error) = finished.error {
                failure.get_or_insert_with(|| MoveError::system("PAGEMAP_SCAN", NO_SCAN)(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Refuses `ranges` if they hold what a mover has: a lane that waits for its own page waits for ever.
    pub(crate) fn check_own_memory(
        &self,
        ranges: &[Range<usize>],
        mover: Range<usize>,
    ) -> Result<(), MoveError> {
        let of_this = self.own_memory().chain([(mover, What::Mover)]);
        let of_others = own::all_but(self.mover()).map(|own| (own.range, own.what));
        for (memory, what) in of_this.chain(of_others) {
            refuse(ranges, &memory, what.text())?;
        }
        Ok(())
    }

    /// What this move needs as long as it runs, beside what movers have noted for good.
    fn own_memory(&self) -> impl Iterator<Item = (Range<usize>, What)> {
        let migrator = std::ptr::from_ref(&*self.migrator).cast::<u8>().addr();
        let own = [
            (extent_of(Arc::as_ptr(&self.cancel)), What::CancelFlag),
            (extent_of(Arc::as_ptr(&self.core)), What::Mover),
            (
                migrator..migrator + size_of_val(&*self.migrator),
                What::Migrator,
            ),
            (sys::thread::stack().unwrap_or(0..0), What::Caller),
            (extent_of(self), What::Mover),
            (extent_of(Arc::as_ptr(&self.booked)), What::Mover),
        ];
        let lanes = self.migrator.own_memory().into_iter();
        own.into_iter()
            .chain(lanes.map(|stack| (stack, What::Lane)))
    }

    /// Address of what its moves share.
    fn mover(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }

    /// Keeps the moves of other movers away from it.
    fn note_own_memory(&self) -> Result<List<Noted>, MoveError> {
        let mut noted = List::new_in(Pages);
        for (memory, what) in self.own_memory() {
            let one = Noted::new(&memory, what, self.mover());
            noted.push(one.map_err(MoveError::system("mmap", NO_MEMORY))?);
        }
        Ok(noted)
    }
}

/// A move under way on a thread of its own. Dropping the handle lets it go on.
///
/// The descriptor of [`AsFd`] becomes readable when the move is over; it is for poll(2) and its like only.
#[derive(Debug)]
pub struct MoveHandle {
    end: Arc<End>,
    bytes: u64,
    booked: Arc<AtomicU64>,
    cancel: Arc<AtomicBool>,
}

/// How a move ended, or that it has not.
#[derive(Debug)]
struct End {
    result: Mutex<Option<std::thread::Result<Result<ListResult, MoveError>>>>,
    over: Event,
}

impl MoveHandle {
    /// Starts the job, if there is a thread for it, and a descriptor if it is to be `polled`. Signals are blocked, and stay so
    /// there.
    pub(crate) fn start(job: &Arc<Job>, polled: bool) -> Option<MoveHandle> {
        let end = Arc::new(End {
            result: Mutex::new(None),
            over: Event::new(polled).ok()?,
        });
        let handle = MoveHandle {
            end: Arc::clone(&end),
            bytes: job.bytes() as u64,
            booked: Arc::clone(&job.booked),
            cancel: Arc::clone(&job.cancel),
        };
        let job = Arc::clone(job);
        // Nobody joins it: who waits may leave by longjmp.
        let thread = std::thread::Builder::new().name("ferry-move".to_owned());
        let started = thread.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| job.run()));
            // The mover's memory is gone when a caller that has dropped the mover goes on.
            drop(job);
            *end.result.lock().unpoisoned() = Some(result);
            end.over.set();
        });
        started.is_ok().then_some(handle)
    }

    /// Bytes to move whose fate is known, moved or not; and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.booked.load(Ordering::Relaxed), self.bytes)
    }

    /// Ends the move early: batches under way are finished, the others stay where they are. It raises the flag of the move's
    /// options, if they have one.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Whether the move is over.
    pub fn is_over(&self) -> bool {
        self.end.over.is_set()
    }

    /// Waits for the end of the move. Signal handlers run meanwhile, and may leave by longjmp: the move goes on.
    ///
    /// # Errors
    /// As for [`Mover::move_range`](crate::Mover::move_range).
    ///
    /// # Panics
    /// Passes on a panic of the migrator's `run`; all pages are in place then.
    pub fn wait(self) -> Result<MoveResult, MoveError> {
        self.wait_in(&Quiet::begin()).map(ListResult::into_range)
    }

    /// Sleeps until the move is over, with the signals and the cancellation that were on before `quiet`. Who leaves it by longjmp
    /// may wait again.
    #[doc(hidden)]
    pub fn wait_until_over(&self, quiet: &Quiet) {
        self.end.over.wait(quiet);
    }

    /// [`wait`](MoveHandle::wait) of a thread that is quiet but for the time that it sleeps.
    #[doc(hidden)]
    pub fn wait_in(self, quiet: &Quiet) -> Result<ListResult, MoveError> {
        self.wait_until_over(quiet);
        let result = self.end.result.lock();
        match result.unpoisoned().take() {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the result comes before the end"),
        }
    }
}

impl AsFd for MoveHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end
            .over
            .polled()
            .expect("move_range_async asks for it")
    }
}

/// Addresses of a value.
fn extent_of<T>(value: *const T) -> Range<usize> {
    value.addr()..value.addr() + size_of::<T>()
}

/// Refuses ascending ranges of which one has a part of `memory`.
fn refuse(
    ranges: &[Range<usize>],
    memory: &Range<usize>,
    what: &'static str,
) -> Result<(), MoveError> {
    let met = &ranges[meeting(ranges, |range| range, memory)];
    match met.first().and_then(|range| within(memory, range)) {
        Some(range) => Err(MoveError::OwnMemory { range, what }),
        None => Ok(()),
    }
}

/// The part of `memory` that lies in `range`.
fn within(memory: &Range<usize>, range: &Range<usize>) -> Option<Range<usize>> {
    Some(common(memory, range)).filter(|part| !part.is_empty())
}

/// Bytes of a stretch of a move that is paced: what may be moved in 10 ms, so that nobody notices the steps.
fn most_at_a_time(bytes_per_second: Option<u64>) -> usize {
    let most = bytes_per_second.and_then(|rate| usize::try_from(rate / 100).ok());
    most.map_or(STRETCH, |bytes| {
        bytes.clamp(SEGMENT, STRETCH) / SEGMENT * SEGMENT
    })
}

/// What is left of `parts` when their whole THPs are put to `thps`. One that the kernel migrates at this moment is left.
fn without_thps(pagemap: &Pagemap, parts: &Ranges, thps: &mut Ranges) -> io::Result<Ranges> {
    let mut left = Ranges::default();
    let mut regions = [Region::default(); 128];
    for part in parts.as_slice() {
        // Up to where it was looked at, and from where on nothing is sorted yet.
        let (mut seen, mut from) = (part.start, part.start);
        while seen < part.end {
            let (count, end) = pagemap.scan(seen, part.end, &mut regions)?;
            for region in &regions[..count] {
                if region.categories & (PRESENT | HUGE | ZERO) == PRESENT | HUGE {
                    let first = (region.start as usize).next_multiple_of(SEGMENT);
                    let last = region.end as usize / SEGMENT * SEGMENT;
                    if first < last {
                        left.add(from..first);
                        thps.add(first..last);
                        from = last;
                    }
                }
            }
            seen = if count == regions.len() {
                end
            } else {
                part.end
            };
        }
        left.add(from..part.end);
    }
    Ok(left)
}

/// Which parts go through userfaultfd, and which through move_pages(2).
fn by_backend(vmas: &[Vma], parts: &Ranges) -> (Ranges, Ranges) {
    let (mut by_faults, mut by_kernel) = (Ranges::default(), Ranges::default());
    for part in parts.as_slice() {
        for vma in &vmas[meeting(vmas, |vma| &vma.range, part)] {
            let parts = match vma.unmovable {
                None => &mut by_faults,
                Some(_) => &mut by_kernel,
            };
            parts.add(common(&vma.range, part));
        }
    }
    (by_faults, by_kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapping_goes_its_way() {
        let maps = b"\
10000-30000 rw-p 00000000 00:00 0
30000-50000 rw-s 00000000 00:01 77 /memfd:guest (deleted)
50000-60000 rw-p 00000000 00:00 0
60000-70000 rw-p 00000000 00:0f 5 /anon_hugepage (deleted)
70000-80000 rw-p 00000000 08:01 12 /usr/lib/a
";
        let vmas: Vec<Vma> = vma::parse(maps).collect();
        let mut parts = Ranges::default();
        parts.add_all(&[0x20000..0x55000, 0x58000..0x78000]);
        let (by_faults, by_kernel) = by_backend(&vmas, &parts);
        assert_eq!(
            by_faults.as_slice(),
            [0x20000..0x30000, 0x50000..0x55000, 0x58000..0x60000]
        );
        assert_eq!(by_kernel.as_slice(), [0x30000..0x50000, 0x60000..0x78000]);
    }

    #[test]
    fn a_stretch_is_whole_huge_pages_whatever_the_rate() {
        for rate in [None, Some(0), Some(1), Some(300_000_000), Some(u64::MAX)] {
            let most = most_at_a_time(rate);
            assert!((SEGMENT..=STRETCH).contains(&most) && most % SEGMENT == 0);
        }
    }
}
