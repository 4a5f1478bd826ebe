// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves ranges of the own process to a node, through userfaultfd where that works, else through move_pages(2).
//!
//! The order of a call: check the range, register it, let the migrator's lanes run the flight, close the books. The
//! policy of what to move is not here.

use crate::cost;
use crate::error::{MoveError, check_range};
use crate::flight::{Cursor, Flight, Live, Plan, Wanted};
use crate::forkgate;
use crate::known_faults;
use crate::migrator::Migrator;
use crate::move_pages;
use crate::pool::{PagePool, SEGMENT, Shelf, extent_of};
use crate::probe;
use crate::result::{Ledger, MoveResult, Outcome};
use crate::sys::{self, page_size};
use crate::topology::Topology;
use crate::vma;
use crate::watch::{MAPS, Userfault, leave_cut_thps, open_userfault, watch};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Part of a range that is registered at a time. Holes of it are filled by the mover, more slowly than by the kernel,
/// and the pipeline drains at its end (0.1 ms): 1 GiB keeps both small.
const STRETCH: usize = 1 << 30;

/// How long a range that its owner was emptying at the end of a move stays where it is. The kernel tells before it empties
/// (MADV_DONTNEED), not after: a page that left in between would come back from the dead. The owner needs microseconds;
/// this is what a busy machine may keep it from a CPU.
const EMPTYING: Duration = Duration::from_secs(1);

/// Bytes of a batch for each lane, unless the options say otherwise; a batch ends at 2 MiB all the same. A page is then
/// away for about 0.2 ms whatever the lanes; docs/results has the measured trade of throughput against stall.
pub const DEFAULT_BATCH_BYTES: usize = 1 << 20;

/// Bytes of free pages that a pool keeps unless told otherwise.
pub const DEFAULT_POOL_BYTES: usize = 64 << 20;

/// How pages are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// userfaultfd where it works, else move_pages(2); between two nodes or more the one that moves base pages faster, as
    /// [`probe::move_cost`] measures it.
    #[default]
    Auto,
    /// userfaultfd's UFFDIO_MOVE, Linux 6.8.
    Userfaultfd,
    /// move_pages(2): any process and any kernel, two nodes or more.
    MovePages,
}

/// How one move is done.
#[derive(Clone, Debug, Default)]
pub struct MoveOptions {
    /// Bytes that are away from their place together; 0: [`DEFAULT_BATCH_BYTES`] per lane. A multiple of the base page, at
    /// most 2 MiB, one page table's worth: beyond that a batch only makes waiters wait longer. A THP is a batch of its own.
    pub batch_bytes: usize,
    /// Move pages that lie on the target node already, to other pages of it. move_pages(2) cannot: there they stay, and
    /// count as already there.
    pub relocate: bool,
    /// List what became of each page in [`MoveResult::pages`].
    pub list_pages: bool,
    /// Whoever sets it ends the move early: batches under way are finished, the others stay where they are.
    pub cancel: Option<Arc<AtomicBool>>,
    /// What becomes of the source pages.
    pub source: SourcePages,
}

/// What becomes of the source pages of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePages {
    keep: bool,
}

impl SourcePages {
    /// They are given back to the kernel, which frees each when nobody refers to it any more. The default.
    pub const GIVE_BACK: SourcePages = SourcePages { keep: false };

    /// They are kept as free pages of their node, up to the pool's limit: the next move in the other direction finds
    /// its destination warm, without allocating and zeroing.
    ///
    /// # Safety
    /// The kernel must hold no reference to the pages other than page-table entries and FOLL_PIN pins (which make a
    /// page [`Busy`](crate::Outcome::Busy)): nothing of the range may be under `vmsplice(2)` or in a `MSG_ZEROCOPY`
    /// transmission. UFFDIO_MOVE does not look at such references, so a page would be reused under its reader.
    pub const unsafe fn keep() -> SourcePages {
        SourcePages { keep: true }
    }
}

/// What a mover is set up with.
pub struct MoverOptions {
    /// What copies.
    pub migrator: Box<dyn Migrator>,
    /// How pages are moved.
    pub backend: Backend,
    /// Bytes of free pages that the mover may keep between moves.
    pub pool_bytes: usize,
    /// Use userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release (docs/limits.md): for one whose
    /// distributor has mended them.
    pub allow_faulty_kernel: bool,
}

impl MoverOptions {
    /// With the library's defaults.
    pub fn new(migrator: impl Migrator + 'static) -> MoverOptions {
        MoverOptions {
            migrator: Box::new(migrator),
            backend: Backend::Auto,
            pool_bytes: DEFAULT_POOL_BYTES,
            allow_faulty_kernel: false,
        }
    }
}

/// Moves pages of this process.
pub struct Mover {
    migrator: Box<dyn Migrator>,
    userfault: Option<Userfault>,
    pool: PagePool,
    nodes: Vec<u32>,
    /// What owners were about to empty at the end of earlier moves.
    emptied: Vec<(Instant, Range<usize>)>,
    generation: u32,
    notes: Vec<String>,
}

impl Mover {
    /// Sets up what the backend needs; moves nothing.
    ///
    /// # Errors
    /// [`MoveError::NoBackend`] names, for each way to move pages, why it does not work here and what would enable it.
    pub fn new(options: MoverOptions) -> Result<Mover, MoveError> {
        Mover::on(&sys::process::kernel_release(), options)
    }

    fn on(release: &str, options: MoverOptions) -> Result<Mover, MoveError> {
        forkgate::install();
        let topology = Topology::read();
        // Node 0 alone where the kernel tells nothing.
        let nodes = topology.as_ref().map_or_else(
            |_| vec![0],
            |topology| topology.nodes_with_memory().map(|n| n.id).collect(),
        );
        let userfault = match options.backend {
            Backend::MovePages => None,
            Backend::Auto | Backend::Userfaultfd => match open_userfault().and_then(|userfault| {
                let faulty =
                    known_faults::refusal(release).filter(|_| !options.allow_faulty_kernel);
                faulty.map_or(Ok(userfault), Err)
            }) {
                Ok(userfault) => Some(userfault),
                Err(_) if options.backend == Backend::Auto && nodes.len() > 1 => None,
                Err(why) => {
                    return Err(MoveError::NoBackend {
                        userfaultfd: why,
                        move_pages: move_pages::verdict(nodes.len()),
                    });
                }
            },
        };
        let userfault = userfault.filter(|_| {
            options.backend != Backend::Auto
                || !cost::measured(&nodes).is_some_and(|cost| cost.favours_move_pages())
        });
        if userfault.is_none() && nodes.len() < 2 {
            return Err(MoveError::NoBackend {
                userfaultfd: "not asked for".to_owned(),
                move_pages: move_pages::verdict(nodes.len()),
            });
        }
        Ok(Mover {
            migrator: options.migrator,
            userfault,
            pool: PagePool::new(options.pool_bytes, nodes.len() > 1),
            nodes,
            emptied: Vec::new(),
            generation: forkgate::generation(),
            notes: topology.map_or_else(|_| Vec::new(), |topology| probe::notes(&topology)),
        })
    }

    /// What limits moves on this machine, in words for its user: see [`probe::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How this mover moves pages: never [`Backend::Auto`].
    pub fn backend(&self) -> Backend {
        if self.userfault.is_some() {
            Backend::Userfaultfd
        } else {
            Backend::MovePages
        }
    }

    /// The migrator.
    pub fn migrator(&self) -> &dyn Migrator {
        &*self.migrator
    }

    /// Takes another migrator; the pool stays.
    pub fn set_migrator(&mut self, migrator: impl Migrator + 'static) {
        self.migrator = Box::new(migrator);
    }

    /// Moves the pages of `range` to node `to` and tells what became of each. Other threads may use the memory all the
    /// while; who touches a page on its way waits for it.
    ///
    /// # Errors
    /// When nothing was moved: a range that is unaligned, not mapped as a whole, or not anonymous private memory; a node
    /// without memory; a system that does not allow it. Trouble with single pages is in the result instead.
    ///
    /// # Panics
    /// Passes on a panic of the migrator's `run`; all pages are in place then.
    pub fn move_range(
        &mut self,
        range: Range<usize>,
        to: u32,
        options: &MoveOptions,
    ) -> Result<MoveResult, MoveError> {
        if self.generation != forkgate::generation() {
            return Err(MoveError::OtherProcess);
        }
        check_range(&range)?;
        self.check_node(to)?;
        let batch_bytes = batch_bytes(options, &*self.migrator)?;
        let lanes = self.migrator.lanes();
        if lanes == 0 {
            return Err(MoveError::BadOption {
                name: "lanes",
                value: lanes,
                why: "nothing would be copied; a migrator has at least one lane".to_owned(),
            });
        }
        let Some(userfault) = &self.userfault else {
            return move_pages::move_range(0, range, to, lanes, options);
        };
        let started = Instant::now();
        if range.len() > STRETCH {
            // All of it or nothing; what a stretch is made of is looked at again when it is watched.
            vma::movable(Path::new(MAPS), &range)?;
        }
        let never = AtomicBool::new(false);
        let cancel = options.cancel.as_deref().unwrap_or(&never);
        self.check_own_memory(&range, cancel)?;
        let ledger = Ledger::new(range.start, range.len(), options.list_pages);
        self.emptied.retain(|(when, _)| when.elapsed() < EMPTYING);
        let mut cancelled = 0;
        let mut failure = None;
        for stretch in stretches(&range) {
            if cancel.load(Ordering::Relaxed) {
                cancelled += stretch.len();
                continue;
            }
            let first = stretch.start == range.start;
            let stretch = leave_cut_thps(&userfault.pagemap, stretch, &ledger);
            if stretch.is_empty() {
                continue;
            }
            let (place, vmas) = match watch(userfault, &stretch, &mut self.emptied) {
                Ok(watch) => watch,
                Err((_, error)) if first => return Err(error),
                Err((errno, error)) => {
                    // Earlier stretches may have moved: the account stands, with this one in it.
                    let outcome = match errno {
                        libc::ENOMEM => Outcome::NoMemory,
                        _ => Outcome::Busy,
                    };
                    ledger.book(outcome, stretch.start, stretch.len(), page_size(), -errno);
                    failure.get_or_insert(error);
                    continue;
                }
            };
            let mut excluded: Vec<_> = self
                .emptied
                .iter()
                .map(|(_, range)| range.clone())
                .collect();
            for vmas in vmas.chunk_by(|a, b| a.locked == b.locked) {
                let (start, end) = (vmas[0].range.start, vmas[vmas.len() - 1].range.end);
                let wanted = Wanted {
                    node: to,
                    relocate: options.relocate,
                    ask_nodes: self.nodes.len() > 1,
                };
                let plan = Plan {
                    kernel: &Live {
                        place: &place,
                        pagemap: &userfault.pagemap,
                    },
                    place: &place,
                    pool: &self.pool,
                    ledger: &ledger,
                    migrator: &*self.migrator,
                    range: start..end,
                    excluded: &excluded,
                    locked: vmas[0].locked,
                    batch_bytes,
                    lanes,
                    wanted,
                    recycle: options.source.keep,
                    cancel,
                };
                let slots = if self.migrator.is_per_folio() {
                    1
                } else {
                    lanes + 2
                };
                let flight = Flight::new(plan, Cursor::new(wanted, vmas, start, end), slots);
                // Whatever the flight has allocated by now: a heap that is moved holds some of it.
                let own = first_within(&flight.own_memory(), &range);
                let run = match own {
                    Some(_) => Ok(()),
                    None => catch_unwind(AssertUnwindSafe(|| {
                        self.migrator.run(&|_| flight.run_lane());
                    })),
                };
                let landing = flight.finish();
                let now = Instant::now();
                let emptied = landing.emptied.into_iter().map(|range| (now, range));
                self.emptied.extend(emptied);
                excluded = landing.excluded;
                if let Some(range) = own {
                    let (len, status) = (end - start, -libc::EDEADLK);
                    ledger.book(Outcome::Busy, start, len, page_size(), status);
                    let what = "lists of the mover (they are on the heap)";
                    failure.get_or_insert(MoveError::OwnMemory { range, what });
                    continue;
                }
                cancelled += landing.left;
                if let Err(panic) = run {
                    resume_unwind(panic);
                }
                if let Some(error) = landing.error {
                    failure.get_or_insert_with(|| {
                        MoveError::system("PAGEMAP_SCAN", "Linux 6.7 has it; report this kernel")(
                            error,
                        )
                    });
                }
            }
        }
        let mut result = ledger.close(started.elapsed());
        result.cancelled_bytes = cancelled as u64;
        // An error means that nothing was moved; what was moved must not go unsaid.
        match failure {
            Some(error) if result.moved.bytes == 0 => Err(error),
            failure => {
                result.error = failure.map(Arc::new);
                Ok(result)
            }
        }
    }

    /// Allocates free pages ahead of moves to `node`, until `bytes` of that page size are kept (or the pool's limit is
    /// reached), on all lanes. `page_bytes` is the base page or 2 MiB. Returns the bytes that are kept: with move_pages(2)
    /// none, since the kernel finds the pages itself.
    ///
    /// # Errors
    /// An unknown page size or node, or no memory.
    pub fn prefill(
        &mut self,
        node: u32,
        page_bytes: usize,
        bytes: usize,
    ) -> Result<usize, MoveError> {
        if page_bytes != page_size() && page_bytes != SEGMENT {
            let why = format!("pages are {} or {SEGMENT} bytes", page_size());
            return Err(MoveError::BadOption {
                name: "page_bytes",
                value: page_bytes,
                why,
            });
        }
        self.check_node(node)?;
        let Some(userfault) = &self.userfault else {
            return Ok(0);
        };
        let shelf = Shelf {
            node,
            huge: page_bytes == SEGMENT,
            locked: false,
        };
        let pool = &self.pool;
        let failure = std::sync::Mutex::new(None);
        self.migrator.run(&|_| {
            loop {
                let room = pool.limit().saturating_sub(pool.kept());
                let wanted = bytes.saturating_sub(pool.kept_on(shelf));
                // What the pool has no room for it would give back at once, and this would go on for ever.
                // A THP is populated whole also for the last byte of `bytes`; the limit is never exceeded.
                let len = room
                    .min(wanted.checked_next_multiple_of(page_bytes).unwrap_or(room))
                    .min(SEGMENT)
                    / page_bytes
                    * page_bytes;
                if len == 0 {
                    return;
                }
                let filled = pool.take_empty(shelf, len, false).and_then(|piece| {
                    let filled = pool.populate(shelf, piece).and_then(|()| {
                        if !shelf.huge || userfault.pagemap.is_huge(piece.addr, piece.len)? {
                            Ok(())
                        } else {
                            Err(std::io::Error::from_raw_os_error(libc::ENOMEM))
                        }
                    });
                    if filled.is_ok() {
                        pool.put_full(shelf, piece)
                    } else {
                        pool.reset(shelf, piece)
                    }
                    filled
                });
                if let Err(error) = filled {
                    *failure
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        });
        match failure
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            Some(error) => Err(MoveError::system(
                "allocating pool pages",
                "ask for fewer bytes, or free memory on that node (THPs need whole 2 MiB of it)",
            )(error)),
            None => Ok(pool.kept_on(shelf)),
        }
    }

    /// Refuses nodes that can take no page of this process.
    fn check_node(&self, node: u32) -> Result<(), MoveError> {
        let why = if !self.nodes.contains(&node) {
            "it is not there or has no memory"
        } else if self.nodes.len() > 1 && !sys::numa::is_allowed(node) {
            "the cpuset of this process does not allow it"
        } else {
            return Ok(());
        };
        Err(MoveError::BadNode { node, why })
    }

    /// Bytes of free pages that the mover keeps at this moment.
    pub fn pool_bytes(&self) -> usize {
        self.pool.kept()
    }

    /// Changes the limit of free pages; what is over it goes back to the kernel.
    pub fn set_pool_limit(&mut self, bytes: usize) {
        self.pool.set_limit(bytes);
    }

    /// Gives free pages back to the kernel until at most `bytes` are kept.
    pub fn trim_pool(&mut self, bytes: usize) {
        self.pool.trim(bytes);
    }

    /// Refuses ranges that hold what the lanes stand on: a lane that waits for its own page waits for ever.
    fn check_own_memory(&self, range: &Range<usize>, cancel: &AtomicBool) -> Result<(), MoveError> {
        let here = std::ptr::from_ref(self).addr();
        let migrator = std::ptr::from_ref(&*self.migrator).cast::<u8>().addr();
        let flag = std::ptr::from_ref(cancel).addr();
        let own = [
            (flag..flag + 1, "the cancel flag"),
            (here..here + size_of::<Mover>(), "the mover"),
            (
                migrator..migrator + size_of_val(&*self.migrator),
                "the migrator",
            ),
            (
                sys::thread::stack().unwrap_or(0..0),
                "the stack of the calling thread",
            ),
            // Where errno is, so are the other thread-locals.
            (
                extent_of(sys::errno_location(), 1),
                "thread-local data of the calling thread",
            ),
        ];
        let stacks = self.migrator.own_memory();
        let pages = self.pool.addresses();
        let nothing = self.userfault.as_ref().map(Userfault::own_memory);
        let own = own
            .into_iter()
            .chain(stacks.into_iter().map(|s| (s, "the stack of a lane")))
            .chain(pages.into_iter().map(|p| (p, "pages of the mover's pool")))
            .chain(nothing.map(|n| (n, "a page of the mover")));
        for (memory, what) in own {
            if let Some(range) = first_within(&[memory], range) {
                return Err(MoveError::OwnMemory { range, what });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("backend", &self.backend())
            .field("migrator", &self.migrator.name())
            .field("lanes", &self.migrator.lanes())
            .field("pool_bytes", &self.pool.kept())
            .finish_non_exhaustive()
    }
}

fn batch_bytes(options: &MoveOptions, migrator: &dyn Migrator) -> Result<usize, MoveError> {
    let default = if migrator.is_per_folio() {
        page_size()
    } else {
        DEFAULT_BATCH_BYTES
            .saturating_mul(migrator.lanes())
            .min(SEGMENT)
    };
    let bytes = if options.batch_bytes == 0 {
        default
    } else {
        options.batch_bytes
    };
    if bytes % page_size() != 0 || bytes > SEGMENT {
        let why = format!(
            "it must be a multiple of {} bytes and at most {SEGMENT}",
            page_size()
        );
        return Err(MoveError::BadOption {
            name: "batch_bytes",
            value: bytes,
            why,
        });
    }
    Ok(bytes)
}

/// The part of the first of `memory` that lies in `range`.
fn first_within(memory: &[Range<usize>], range: &Range<usize>) -> Option<Range<usize>> {
    let cut = |m: &Range<usize>| m.start.max(range.start)..m.end.min(range.end);
    memory.iter().map(cut).find(|part| !part.is_empty())
}

/// Cuts a range into parts of at most [`STRETCH`] bytes, whole THPs in every part.
fn stretches(range: &Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = ((start / SEGMENT * SEGMENT).saturating_add(STRETCH)).min(range.end);
        parts.push(start..end);
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrator::{Batch, PerFolio};
    use crate::sys::memory::Mapping;
    use crate::sys::uffd::{FEATURE_MOVE, Uffd};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_cover_the_range_once_and_cut_no_huge_page(
            first in 0usize..1 << 34,
            pages in 1usize..1 << 21,
        ) {
            let range = first * 4096..(first + pages) * 4096;
            let mut covered = range.start;
            for stretch in stretches(&range) {
                prop_assert_eq!(stretch.start, covered);
                prop_assert!(stretch.len() <= STRETCH && !stretch.is_empty());
                prop_assert!(stretch.end % SEGMENT == 0 || stretch.end == range.end);
                covered = stretch.end;
            }
            prop_assert_eq!(covered, range.end);
        }
    }

    #[test]
    fn a_batch_is_whole_pages_up_to_a_segment() {
        let bytes = |batch_bytes, migrator: &dyn Migrator| {
            let options = MoveOptions {
                batch_bytes,
                ..MoveOptions::default()
            };
            super::batch_bytes(&options, migrator)
        };
        let (batch, single) = (Batch::default(), PerFolio::default());
        assert_eq!(bytes(0, &batch).unwrap(), DEFAULT_BATCH_BYTES);
        assert_eq!(bytes(0, &single).unwrap(), page_size());
        assert_eq!(bytes(SEGMENT, &batch).unwrap(), SEGMENT);
        for refused in [1, page_size() + 1, SEGMENT + page_size(), usize::MAX] {
            let error = bytes(refused, &batch).unwrap_err().to_string();
            assert!(error.contains("batch_bytes"), "{error}");
        }
    }

    #[test]
    fn a_faulty_kernel_is_refused_unless_it_is_allowed() {
        let options = |allow_faulty_kernel| MoverOptions {
            backend: Backend::Userfaultfd,
            allow_faulty_kernel,
            ..MoverOptions::new(Batch::default())
        };
        let refused = Mover::on("6.12.42-amd64", options(false)).unwrap_err();
        assert!(
            matches!(&refused, MoveError::NoBackend { userfaultfd, .. } if userfaultfd.contains("6.12.42-amd64")),
            "{refused}"
        );
        for (release, allow) in [("6.12.42-amd64", true), ("6.12.43-amd64", false)] {
            Mover::on(release, options(allow)).unwrap();
        }
    }

    #[test]
    fn a_range_that_somebody_else_watches_in_part_stays_as_it_is() {
        let memory = Mapping::new(2 * SEGMENT, SEGMENT, 0).unwrap();
        let half = memory.addr() + SEGMENT;
        sys::memory::populate(memory.addr(), 2 * SEGMENT).unwrap();
        let mut mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
        let other = Uffd::open(FEATURE_MOVE).unwrap();
        other.register(half, SEGMENT).unwrap();
        let range = memory.addr()..memory.addr() + 2 * SEGMENT;
        let refused = mover.move_range(range.clone(), 0, &MoveOptions::default());
        assert!(
            matches!(&refused, Err(MoveError::Watched { range: told }) if *told == range),
            "{refused:?}"
        );
        // Its watch is still there.
        let nothing = Mapping::new(sys::page_size(), sys::page_size(), 0).unwrap();
        assert!(other.is_registered(half, nothing.addr()).unwrap());
    }

    #[test]
    fn the_movers_own_pages_are_refused() {
        let mut mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
        mover.prefill(0, page_size(), 1 << 20).unwrap();
        let mut own = mover.pool.addresses();
        assert!(!own.is_empty());
        own.extend(mover.userfault.as_ref().map(Userfault::own_memory));
        for range in own {
            let refused = mover.move_range(range.clone(), 0, &MoveOptions::default());
            assert!(
                matches!(&refused, Err(MoveError::OwnMemory { range: told, .. }) if *told == range),
                "{refused:?}"
            );
        }
    }
}
