// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves ranges of the own process to a node, through userfaultfd where that works, else through move_pages(2).
//!
//! What a move does is in `job`; the policy of what to move is not here.

use crate::cost;
use crate::error::{MoveError, check_page_size, check_range, move_pages_verdict};
use crate::forkgate;
use crate::job::{Core, Job, MoveHandle};
use crate::known_faults;
use crate::migrator::Migrator;
use crate::options::setters;
use crate::options::{Backend, MoveOptions, batch_of};
use crate::pool::{PageClass, PagePool, Piece, SEGMENT};
use crate::probe;
use crate::result::{ListResult, MoveResult};
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::thread::Quiet;
use crate::sys::{self, page_size};
use crate::turns::{Haste, Turns};
use crate::watch::open_userfault;
use memferry_linux::topology::Topology;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes of free pages that a pool keeps unless told otherwise.
pub const DEFAULT_POOL_BYTES: usize = 64 << 20;

/// What a mover is set up with.
#[non_exhaustive]
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
    /// Move huge pages (THPs) through userfaultfd also where [`known_faults`](probe::known_faults) says that this can crash the kernel, which
    /// is so before Linux 7.2. Otherwise they stay there and count as unsupported; [`Backend::Auto`] moves them through move_pages(2) where
    /// there are several nodes.
    pub allow_huge_pages: bool,
}

impl MoverOptions {
    /// With the library's defaults.
    pub fn new(migrator: impl Into<Box<dyn Migrator>>) -> MoverOptions {
        MoverOptions {
            migrator: migrator.into(),
            backend: Backend::Auto,
            pool_bytes: DEFAULT_POOL_BYTES,
            allow_faulty_kernel: false,
            allow_huge_pages: false,
        }
    }

    setters! {
        backend: Backend,
        pool_bytes: usize,
        allow_faulty_kernel: bool,
        allow_huge_pages: bool,
    }
}

/// Moves pages of this process. Shared by the threads that ask it to; its moves take turns, stretch by stretch of 1 GiB
/// at most, in order of coming; those with a rate let the others go first.
pub struct Mover {
    core: Arc<Core>,
    migrator: Arc<dyn Migrator>,
    notes: Vec<String>,
}

/// The longest range that is moved on the calling thread, its signals blocked: about a millisecond.
const ON_THE_CALLER: usize = SEGMENT;

impl Mover {
    /// Sets up what the backend needs; moves nothing.
    ///
    /// # Errors
    /// [`MoveError::NoBackend`] names, for each way to move pages, why it does not work here and what would enable it;
    /// [`MoveError::PageSize`] on a kernel whose base pages are not of 4 KiB.
    pub fn new(options: MoverOptions) -> Result<Mover, MoveError> {
        Mover::on(&sys::process::kernel_release(), page_size(), options)
    }

    fn on(release: &str, page: usize, options: MoverOptions) -> Result<Mover, MoveError> {
        check_page_size(page)?;
        forkgate::install();
        let topology = Topology::read();
        // Node 0 alone where the kernel tells nothing.
        let nodes = topology.as_ref().map_or_else(
            |_| vec![0],
            |topology| topology.nodes_with_memory().map(|n| n.id).collect(),
        );
        let several = nodes.len() > 1;
        let auto = options.backend == Backend::Auto;
        let userfault = match options.backend {
            Backend::MovePages => Err("not asked for".to_owned()),
            Backend::Auto | Backend::Userfaultfd => open_userfault(),
        };
        let faulty = known_faults::refusal(release).filter(|_| !options.allow_faulty_kernel);
        let userfault = userfault.and_then(|open| faulty.map_or(Ok(open), Err));
        let cost = match &userfault {
            Ok(_) if auto => cost::measured(&nodes),
            _ => None,
        };
        let userfault = match (userfault, options.backend) {
            (Ok(_), _) if cost.is_some_and(|cost| cost.favours_move_pages()) => None,
            (Ok(userfault), _) => Some(userfault),
            (Err(_), Backend::Auto | Backend::MovePages) if several => None,
            (Err(why), _) => {
                return Err(MoveError::NoBackend {
                    userfaultfd: why,
                    move_pages: move_pages_verdict(nodes.len()),
                });
            }
        };
        let huge_pages =
            options.allow_huge_pages || known_faults::huge_page_risk(release).is_none();
        let kernel_too = auto && several;
        let mut notes = Vec::new();
        if let (Some(_), Ok(topology)) = (&userfault, topology) {
            notes = probe::notes(&topology);
            if !huge_pages && topology.thp.is_some() {
                let what = match kernel_too {
                    true => "move through move_pages(2)",
                    false => {
                        "stay where they are and count as unsupported; MoverOptions::allow_huge_pages \
                         (MEMFERRY_ALLOW_HUGE_PAGES in C) moves them all the same"
                    }
                };
                notes.push(format!(
                    "because of the known fault with huge pages, these {what}"
                ));
            }
        }
        Ok(Mover {
            migrator: options.migrator.into(),
            core: Arc::new(Core {
                kernel_too,
                huge_pages,
                pieces_by_kernel: cost.is_some_and(|cost| cost.favours_move_pages_for_pieces()),
                userfault,
                pool: PagePool::new(options.pool_bytes, several),
                nodes,
                generation: sys::process::generation(),
                turns: Turns::default(),
            }),
            notes,
        })
    }

    /// What limits moves on this machine, in words for its user: see [`probe::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How this mover moves ranges of anonymous private memory: never [`Backend::Auto`]. Lists of ranges below 128 KiB on
    /// average go by whichever way is [faster for such](probe::MoveCost::favours_move_pages_for_pieces).
    pub fn backend(&self) -> Backend {
        if self.core.userfault.is_some() {
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
    pub fn set_migrator(&mut self, migrator: impl Into<Box<dyn Migrator>>) {
        self.migrator = migrator.into().into();
    }

    /// Moves the pages of `range` to node `to` and tells what became of each. Other threads may use the memory all the
    /// while; who touches a page on its way waits for it.
    ///
    /// Ranges above 2 MiB, and those that move at a rate, are moved on a thread of the move's own, while the caller sleeps: the
    /// caller's signal handlers run meanwhile, and may touch the range. In other moves signals wait, about a millisecond.
    /// pthread_cancel(3) waits for the end.
    ///
    /// # Errors
    /// When nothing was moved: a range that is unaligned, not mapped as a whole, or not anonymous private memory; a node
    /// without memory; a system that does not allow it. Trouble with single pages is in the result instead.
    ///
    /// # Panics
    /// Passes on a panic of the migrator's `run`; all pages are in place then.
    pub fn move_range(
        &self,
        range: Range<usize>,
        to: u32,
        options: &MoveOptions,
    ) -> Result<MoveResult, MoveError> {
        self.move_pages(&[range], to, options)
            .map(ListResult::into_range)
    }

    /// Moves the pages of a list of ranges, in any order, as [`move_range`](Mover::move_range) does of one, and accounts for
    /// each. Scattered ranges of one mapping are watched together, which costs far less than a call for each;
    /// docs/results has what pieces of 16 KiB to 1 MiB reach.
    ///
    /// # Errors
    /// Those of `move_range`, for all ranges before any is moved; two ranges have an address in common. A range that cannot be
    /// watched counts as busy if another one moves; [`ListResult::total`] has the error then.
    ///
    /// # Panics
    /// As `move_range`.
    pub fn move_pages(
        &self,
        ranges: &[Range<usize>],
        to: u32,
        options: &MoveOptions,
    ) -> Result<ListResult, MoveError> {
        self.move_pages_in(&Quiet::begin(), ranges, to, options)
    }

    /// The move of a thread that is quiet already. Its signals wait and its cancellation is off but where it has nothing in hand:
    /// it sleeps until a thread of the move's own is done. A handler may leave by longjmp there, and the move goes on.
    #[doc(hidden)]
    pub fn move_pages_in(
        &self,
        quiet: &Quiet,
        ranges: &[Range<usize>],
        to: u32,
        options: &MoveOptions,
    ) -> Result<ListResult, MoveError> {
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&index| ranges[index].start);
        let job = self.job(
            order.iter().map(|&index| ranges[index].clone()),
            to,
            options,
        )?;
        if job.ranges.is_empty() {
            return Ok(ListResult::default());
        }
        // A stack of the program's own making (a fiber's, a handler's) may lie in the range, and where it ends is not known.
        let on_its_stack = sys::thread::is_on_its_stack();
        // With a rate it sleeps between its parts, for as long as the rate says.
        let is_short = job.bytes() <= ON_THE_CALLER && options.bytes_per_second.is_none();
        let done = if !is_short || !on_its_stack || self.core.turns.is_wanted() {
            let job = Arc::new(job);
            match MoveHandle::start(&job, false) {
                Some(handle) => {
                    drop(job);
                    handle.wait_in(quiet)
                }
                None if on_its_stack => job.run(),
                None => Err(no_thread(
                    "raise the limit of threads, or call from the stack that the thread was started on",
                )),
            }
        } else {
            job.run()
        };
        let ListResult { total, ranges } = done?;
        let mut ranges: Vec<_> = order.into_iter().zip(ranges).collect();
        ranges.sort_by_key(|(index, _)| *index);
        let ranges = ranges.into_iter().map(|(_, result)| result).collect();
        Ok(ListResult { total, ranges })
    }

    /// Moves pages as [`move_range`](Mover::move_range) does, on a thread of its own. Moves of one mover take turns.
    ///
    /// # Errors
    /// Those of `move_range` that show before it begins; or there is no thread or descriptor to be had.
    pub fn move_range_async(
        &self,
        range: Range<usize>,
        to: u32,
        options: &MoveOptions,
    ) -> Result<MoveHandle, MoveError> {
        let _quiet = Quiet::begin();
        let job = Arc::new(self.job(std::iter::once(range), to, options)?);
        MoveHandle::start(&job, true).ok_or_else(|| {
            no_thread("raise the limits of threads and open files, or take move_range")
        })
    }

    /// All that a move of ascending ranges needs, checked.
    fn job(
        &self,
        ascending: impl ExactSizeIterator<Item = Range<usize>>,
        to: u32,
        options: &MoveOptions,
    ) -> Result<Job, MoveError> {
        let mut ranges: List<Range<usize>> = List::with_capacity_in(ascending.len(), Pages);
        for range in ascending {
            check_range(&range)?;
            if ranges.last().is_some_and(|before| range.start < before.end) {
                return Err(MoveError::Overlap { range });
            }
            ranges.push(range);
        }
        self.check_node(to)?;
        if options.bytes_per_second == Some(0) {
            return Err(MoveError::BadOption {
                name: "bytes_per_second",
                value: 0,
                why: "the move would never end; None is no limit".to_owned(),
            });
        }
        let batch_bytes = batch_bytes(options, &*self.migrator)?;
        let lanes = self.migrator.lanes();
        if lanes == 0 {
            return Err(MoveError::BadOption {
                name: "lanes",
                value: lanes,
                why: "nothing would be copied; a migrator has at least one lane".to_owned(),
            });
        }
        let mut options = options.clone();
        let cancel = Arc::clone(options.cancel.get_or_insert_default());
        let job = Job {
            core: Arc::clone(&self.core),
            migrator: Arc::clone(&self.migrator),
            ranges,
            to,
            options,
            cancel,
            batch_bytes,
            lanes,
            booked: Arc::default(),
        };
        let here = std::ptr::from_ref(self).addr();
        job.check_own_memory(&job.ranges, here..here + size_of::<Mover>())?;
        Ok(job)
    }

    /// Allocates free pages ahead of moves to `node`, until `bytes` of that page size are kept (or the pool's limit is
    /// reached), on all lanes. `page_bytes` is the base page or 2 MiB. Returns the bytes that are kept: none where pages move through
    /// move_pages(2), since the kernel finds them itself, and no huge pages where these [stay](MoverOptions::allow_huge_pages). Moves
    /// of the mover wait meanwhile, and so do the thread's signals.
    ///
    /// # Errors
    /// An unknown page size or node, or no memory.
    pub fn prefill(&self, node: u32, page_bytes: usize, bytes: usize) -> Result<usize, MoveError> {
        if page_bytes != page_size() && page_bytes != SEGMENT {
            let why = format!("pages are {} or {SEGMENT} bytes", page_size());
            return Err(MoveError::BadOption {
                name: "page_bytes",
                value: page_bytes,
                why,
            });
        }
        self.check_node(node)?;
        let huge = page_bytes == SEGMENT;
        let Some(userfault) = self
            .core
            .userfault
            .as_ref()
            .filter(|_| !huge || self.core.huge_pages)
        else {
            return Ok(0);
        };
        let class = PageClass {
            node,
            huge,
            locked: false,
        };
        let pool = &self.core.pool;
        let failure = std::sync::Mutex::new(None);
        // Its locks are held with signals blocked: a handler might wait for a page that is away, and its lane for the lock.
        let _quiet = Quiet::begin();
        // A move that has begun its watch would wait for the lanes meanwhile, and nobody would answer faults on its range.
        let never = AtomicBool::new(false);
        let _turn = self.core.turns.take(Haste::Hurries, &never);
        self.migrator.run(&|_| {
            loop {
                let room = pool.limit().saturating_sub(pool.kept());
                let wanted = bytes.saturating_sub(pool.kept_on(class));
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
                let pagemap = &userfault.pagemap;
                let is_huge = |piece: &Piece| pagemap.is_huge(piece.addr(), piece.len());
                match pool.allocate(class, len, |piece| is_huge(piece).unwrap_or(false)) {
                    Ok(piece) => pool.put_full(piece),
                    Err(error) => {
                        *failure.lock().unpoisoned() = Some(error);
                        return;
                    }
                }
            }
        });
        match failure.into_inner().unpoisoned() {
            Some(error) => Err(MoveError::system(
                "allocating pool pages",
                "ask for fewer bytes, or free memory on that node (THPs need whole 2 MiB of it)",
            )(error)),
            None => Ok(pool.kept_on(class)),
        }
    }

    /// Refuses to work in a child of fork, whose memory is another.
    fn check_process(&self) -> Result<(), MoveError> {
        match self.core.generation == sys::process::generation() {
            true => Ok(()),
            false => Err(MoveError::OtherProcess),
        }
    }

    /// Refuses nodes that can take no page of this process, and all of them in a child of fork.
    pub(crate) fn check_node(&self, node: u32) -> Result<(), MoveError> {
        self.check_process()?;
        let why = if !self.core.nodes.contains(&node) {
            "it is not there or has no memory"
        } else if self.core.nodes.len() > 1 && !memferry_linux::numa::is_allowed(node) {
            "the cpuset of this process does not allow it"
        } else {
            return Ok(());
        };
        Err(MoveError::BadNode { node, why })
    }

    /// Bytes of free pages that the mover keeps at this moment.
    pub fn pool_bytes(&self) -> usize {
        let _quiet = Quiet::begin();
        self.core.pool.kept()
    }

    /// Gives free pages back to the kernel until at most `bytes` are kept; does nothing in a child of fork, where other memory
    /// may lie at their addresses.
    pub fn trim_pool(&self, bytes: usize) {
        if self.check_process().is_ok() {
            let _quiet = Quiet::begin();
            self.core.pool.trim(bytes);
        }
    }
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("backend", &self.backend())
            .field("migrator", &self.migrator.name())
            .field("lanes", &self.migrator.lanes())
            .field("pool_bytes", &self.pool_bytes())
            .finish_non_exhaustive()
    }
}

fn no_thread(hint: &'static str) -> MoveError {
    MoveError::system("starting a thread", hint)(std::io::Error::from_raw_os_error(libc::EAGAIN))
}

fn batch_bytes(options: &MoveOptions, migrator: &dyn Migrator) -> Result<usize, MoveError> {
    let lanes = migrator.chooser().map_or(migrator.lanes(), |_| 1);
    let bytes = match options.batch_bytes {
        0 => batch_of(lanes),
        bytes => bytes,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrator::Batch;
    use crate::options::DEFAULT_BATCH_BYTES;
    use crate::sys::memory::Mapping;
    use crate::sys::own::{self, What};
    use crate::sys::uffd::{FEATURE_MOVE, Uffd};
    use std::sync::{Barrier, Mutex};

    #[test]
    fn a_batch_is_whole_pages_up_to_a_segment() {
        let bytes = |batch_bytes, migrator: &dyn Migrator| {
            let options = MoveOptions::default().batch_bytes(batch_bytes);
            super::batch_bytes(&options, migrator)
        };
        let batch = Batch::default();
        assert_eq!(bytes(0, &batch).unwrap(), DEFAULT_BATCH_BYTES);
        assert_eq!(bytes(page_size(), &batch).unwrap(), page_size());
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
        let refused = Mover::on("6.12.42-amd64", page_size(), options(false)).unwrap_err();
        assert!(
            matches!(&refused, MoveError::NoBackend { userfaultfd, .. } if userfaultfd.contains("6.12.42-amd64")),
            "{refused}"
        );
        for (release, allow) in [("6.12.42-amd64", true), ("6.12.43-amd64", false)] {
            Mover::on(release, page_size(), options(allow)).unwrap();
        }
    }

    #[test]
    fn larger_base_pages_are_refused_whatever_the_backend() {
        for backend in [Backend::Auto, Backend::Userfaultfd, Backend::MovePages] {
            let options = MoverOptions::new(Batch::default()).backend(backend);
            let refused = Mover::on("6.18.0", 64 << 10, options).unwrap_err();
            assert_eq!(refused.errno(), libc::EOPNOTSUPP);
            let said = refused.to_string();
            assert!(
                said.contains("64 KiB here") && said.contains("4 KiB alone"),
                "{said}"
            );
        }
    }

    /// Of two THPs and a base page between them, on a kernel whose UFFDIO_MOVE can crash it at huge pages.
    #[test]
    fn huge_pages_stay_where_moving_them_can_crash_the_kernel() {
        let memory = Mapping::new(3 * SEGMENT, SEGMENT).unwrap();
        let [first, base, second] = [0, 1, 2].map(|index| memory.addr() + index * SEGMENT);
        for (at, bytes, huge) in [
            (first, SEGMENT, true),
            (base, SEGMENT, false),
            (second, SEGMENT, true),
        ] {
            sys::memory::advise_thps(at, bytes, huge).unwrap();
            let bytes = if huge { bytes } else { page_size() };
            sys::memory::populate(at, bytes).unwrap();
        }
        let pagemap = memferry_linux::pagemap::Pagemap::open().unwrap();
        let are_huge = || [first, second].map(|at| pagemap.is_huge(at, SEGMENT).unwrap());
        assert_eq!(are_huge(), [true; 2], "no free memory of 2 MiB");
        let how = MoveOptions::default().relocate(true);
        for (release, allow, stay) in [
            ("6.18.44", false, 2),
            ("6.18.44", true, 0),
            ("7.2.0", false, 0),
        ] {
            let options = MoverOptions::new(Batch::default())
                .backend(Backend::Userfaultfd)
                .allow_huge_pages(allow);
            let mover = Mover::on(release, page_size(), options).unwrap();
            let result = mover.move_range(memory.range(), 0, &how).unwrap();
            let (moved, stayed) = (result.moved, result.unsupported);
            assert_eq!(
                [moved.folios, stayed.folios],
                [3 - stay, stay],
                "{release} {allow}"
            );
            assert_eq!(stayed.bytes, stay * SEGMENT as u64);
            assert_eq!(are_huge(), [true; 2]);
            let said = mover
                .notes()
                .iter()
                .any(|note| note.contains("stay where they are"));
            assert_eq!(said, stay > 0);
            let kept = mover.prefill(0, SEGMENT, SEGMENT).unwrap();
            assert_eq!(kept, if stay > 0 { 0 } else { SEGMENT });
        }
        let mover = Mover::on("6.18.44", page_size(), MoverOptions::new(Batch::default())).unwrap();
        let there = mover.move_range(memory.range(), 0, &MoveOptions::default());
        let there = there.unwrap();
        assert_eq!([there.already_there.folios, there.left_bytes()], [3, 0]);
        // With move_pages(2) beside it nothing stays; here all lies on the only node.
        let mut mover =
            Mover::on("6.18.44", page_size(), MoverOptions::new(Batch::default())).unwrap();
        Arc::get_mut(&mut mover.core).unwrap().kernel_too = true;
        let cut = first + page_size()..second + SEGMENT - page_size();
        for (range, there, stayed) in [
            (memory.range(), 2, 0),
            (cut, 0, 2 * (SEGMENT - page_size())),
        ] {
            let result = mover.move_range(range, 0, &how).unwrap();
            assert_eq!(
                [result.moved.folios, result.already_there.folios],
                [1, there]
            );
            assert_eq!(result.unsupported.bytes, stayed as u64);
            assert_eq!(are_huge(), [true; 2]);
        }
    }

    #[test]
    fn a_range_that_somebody_else_watches_in_part_stays_as_it_is() {
        let memory = Mapping::new(2 * SEGMENT, SEGMENT).unwrap();
        let half = memory.addr() + SEGMENT;
        sys::memory::populate(memory.addr(), 2 * SEGMENT).unwrap();
        let mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
        let other = Uffd::open(FEATURE_MOVE).unwrap();
        other.register(half, SEGMENT).unwrap();
        let range = memory.range();
        let refused = mover.move_range(range.clone(), 0, &MoveOptions::default());
        assert!(
            matches!(&refused, Err(MoveError::Watched { range: told }) if *told == range),
            "{refused:?}"
        );
        // Its watch is still there.
        let nothing = Mapping::new(sys::page_size(), sys::page_size()).unwrap();
        assert!(other.is_registered(half, nothing.addr()).unwrap());
    }

    /// Bytes that this thread has read by system calls.
    fn bytes_read() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_page_moves_without_the_text_of_all_mappings() {
        if !crate::known_faults::answers_for_mappings(&sys::process::kernel_release()) {
            return;
        }
        let memory = Mapping::new(page_size(), page_size()).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        let mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
        let options = MoveOptions::default().relocate(true);
        mover.move_range(memory.range(), 0, &options).unwrap();
        let before = bytes_read();
        let moved = mover.move_range(memory.range(), 0, &options).unwrap();
        let read = bytes_read() - before;
        assert_eq!(moved.moved.bytes, page_size() as u64);
        // The file that says so is read in it, too.
        assert!(read < 512, "{read} bytes");
    }

    #[test]
    fn lists_of_small_pieces_take_the_way_that_is_faster_for_them() {
        let memory = Mapping::new(2 * SEGMENT, SEGMENT).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        let pieces: Vec<_> = (memory.range().step_by(64 << 10))
            .map(|at| at..at + (16 << 10))
            .collect();
        let options = MoveOptions::default().relocate(true);
        for by_kernel in [false, true] {
            let mut mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
            Arc::get_mut(&mut mover.core).unwrap().pieces_by_kernel = by_kernel;
            let range = mover.move_range(memory.range(), 0, &options).unwrap();
            assert_eq!(range.moved.bytes, memory.len() as u64);
            let list = mover.move_pages(&pieces, 0, &options).unwrap().total;
            // move_pages(2) leaves pages alone that are on the node.
            let (moved, there) = (list.moved.bytes, list.already_there.bytes);
            let bytes = pieces.len() as u64 * (16 << 10);
            assert_eq!(
                [moved, there],
                if by_kernel { [0, bytes] } else { [bytes, 0] }
            );
        }
    }

    /// Notes whether the lanes were taken when they ran, and whether the thread's signals waited.
    #[derive(Default)]
    struct Notes {
        core: Mutex<Option<Arc<Core>>>,
        seen: Mutex<Vec<(bool, bool)>>,
    }

    #[derive(Clone, Default)]
    struct Busy(Arc<Notes>);

    // SAFETY: it copies nothing in this test.
    unsafe impl Migrator for Busy {
        fn name(&self) -> &'static str {
            "test"
        }
        unsafe fn copy(&self, _: *const u8, _: *mut u8, _: usize) {
            panic!("nothing moves");
        }
        fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
            let core = self.0.core.lock().unwrap().clone();
            let busy = core.is_some_and(|core| core.turns.is_wanted());
            // SAFETY: it only reads the thread's mask.
            let waits = unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                libc::sigismember(&raw const set, libc::SIGUSR1) == 1
            };
            self.0.seen.lock().unwrap().push((busy, waits));
            lane(0);
        }
    }

    /// A move that has begun its watch would wait for the lanes, and nobody would answer faults on the range.
    #[test]
    fn a_move_does_not_begin_while_the_lanes_fill_the_pool() {
        let busy = Busy::default();
        let mover = Mover::new(MoverOptions::new(busy.clone())).unwrap();
        *busy.0.core.lock().unwrap() = Some(Arc::clone(&mover.core));
        assert_eq!(mover.prefill(0, page_size(), 1 << 20).unwrap(), 1 << 20);
        assert_eq!(*busy.0.seen.lock().unwrap(), [(true, true)]);
        *busy.0.core.lock().unwrap() = None;
    }

    fn assert_refused(mover: &Mover, range: &Range<usize>) {
        let refused = mover.move_range(range.clone(), 0, &MoveOptions::default());
        assert!(
            matches!(&refused, Err(MoveError::OwnMemory { range: told, .. }) if told == range),
            "{refused:?}"
        );
    }

    /// Two movers that had each other's pages away would wait for each other.
    #[test]
    fn pages_of_any_mover_are_refused() {
        let mover = || Mover::new(MoverOptions::new(Batch::default())).unwrap();
        let [owner, other] = [mover(), mover()];
        let noted = |of: What| {
            own::all()
                .filter(move |own| own.what == of)
                .map(|own| own.range)
        };
        let pools: Vec<_> = noted(What::Pool).collect();
        owner.prefill(0, page_size(), 1 << 20).unwrap();
        let pool = noted(What::Pool).find(|range| !pools.contains(range));
        // Lists of the tests beside this one may be gone at any time.
        let list = List::<u8>::with_capacity_in(64 << 10, Pages);
        let list = noted(What::List).find(|range| range.contains(&list.as_ptr().addr()));
        for range in [pool.unwrap(), list.unwrap()] {
            assert_refused(&owner, &range);
            assert_refused(&other, &range);
        }
        let empty = owner.core.userfault.as_ref().unwrap().nothing.range();
        assert_refused(&other, &empty);
    }

    /// Has a page that its lanes need, and tells once it runs.
    #[derive(Clone)]
    struct Needs {
        page: Range<usize>,
        runs: Arc<Barrier>,
        goes_on: Arc<Barrier>,
    }

    // SAFETY: it copies every byte.
    unsafe impl Migrator for Needs {
        fn name(&self) -> &'static str {
            "test"
        }
        unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
            // SAFETY: the caller's promise.
            unsafe { src.copy_to_nonoverlapping(dst, len) };
        }
        fn own_memory(&self) -> Vec<Range<usize>> {
            vec![self.page.clone()]
        }
        fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
            self.runs.wait();
            self.goes_on.wait();
            lane(0);
        }
    }

    #[test]
    fn what_another_movers_lanes_need_is_refused_as_long_as_they_run() {
        let memory = Mapping::new(2 * page_size(), page_size()).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        let middle = memory.addr() + page_size();
        let (page, moved) = (memory.addr()..middle, middle..memory.range().end);
        let needs = Needs {
            page: page.clone(),
            runs: Arc::new(Barrier::new(2)),
            goes_on: Arc::new(Barrier::new(2)),
        };
        let mover = Mover::new(MoverOptions::new(needs.clone())).unwrap();
        let other = Mover::new(MoverOptions::new(Batch::default())).unwrap();
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| mover.move_range(moved, 0, &MoveOptions::default()));
            needs.runs.wait();
            assert_refused(&other, &page);
            needs.goes_on.wait();
            moves.join().unwrap().unwrap();
        });
        other.move_range(page, 0, &MoveOptions::default()).unwrap();
    }
}
