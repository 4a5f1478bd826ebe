// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migrators: what copies a batch, and on which threads.
//!
//! | name | what it does |
//! |---|---|
//! | `batch` | whole batches, the best copy routine, one lane |
//! | `mtcopy` | whole batches, N lanes, the calling thread among them: a fixed number with the best copy routine, or both chosen by measurement |
//!
//! A migrator knows nothing of page tables: `pipeline` unmaps and remaps.

use crate::auto::{Auto, Chooser};
use crate::copy::{self, Routine};
use crate::error::MoveError;
use crate::options::setters;
use crate::workers::Workers;
use memferry_linux::affinity;
use memferry_linux::topology::Topology;
use std::collections::HashMap;
use std::ops::Range;

/// Copies batches for a [`Mover`](crate::Mover).
///
/// # Safety
/// When [`copy`](Migrator::copy) returns, all bytes must be in the destination, visible to every CPU, and nothing may
/// write there later: the pages are given to the application right after.
pub unsafe trait Migrator: Send + Sync {
    /// Its name in results and tables.
    fn name(&self) -> &'static str;

    /// Parallel copiers, at least 1.
    fn lanes(&self) -> usize {
        1
    }

    /// Copies `len` bytes; several lanes call it at once, each for bytes of its own. A panic is a failed copy: the
    /// batch goes back to its place as it was.
    ///
    /// # Safety
    /// `src .. src + len` is readable, `dst .. dst + len` writable, they do not overlap, and nobody else uses either.
    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize);

    /// Calls `lane(i)` once for each `i` below [`lanes`](Migrator::lanes), lane 0 on the thread that calls it, and returns
    /// when all have returned, also by a panic. That thread belongs to the move, or its signals are blocked; others that it
    /// starts must block signals.
    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        lane(0);
    }

    /// Memory that must stay in place while it runs: stacks of its threads, and what `copy` uses on the heap.
    fn own_memory(&self) -> Vec<Range<usize>> {
        Vec::new()
    }

    /// What chooses the lanes and the routine of each span of a move, [`lanes`](Migrator::lanes) at most; `None`: all lanes
    /// carry all of it, and [`copy`](Migrator::copy) copies.
    #[doc(hidden)]
    fn chooser(&self) -> Option<&dyn Chooser> {
        None
    }

    /// As [`run`](Migrator::run), but lanes may be left out that have not begun when lane 0 returns; with a chooser it is lane 0 and
    /// those that are called meanwhile.
    #[doc(hidden)]
    fn run_called(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.run(lane);
    }

    /// Has all lanes below this number take part in `run_called`.
    #[doc(hidden)]
    fn call(&self, _lanes: usize) {}
}

impl<M: Migrator + 'static> From<M> for Box<dyn Migrator> {
    fn from(migrator: M) -> Box<dyn Migrator> {
        Box::new(migrator)
    }
}

/// Whole batches on the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Batch(Routine);

impl Batch {
    /// With a copy routine of choice.
    pub fn with_routine(routine: Routine) -> Batch {
        Batch(routine)
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch(copy::best())
    }
}

// SAFETY: the routines have copied everything, and fenced it, when they return.
unsafe impl Migrator for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise is the routine's condition.
        unsafe { self.0.copy(src, dst, len) };
    }
}

/// Which CPUs the lanes take: those of the caller's node first, then those of the nearest others; one thread of each core
/// before the others of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// One lane per last-level cache of a node in turn: the most memory bandwidth.
    #[default]
    Spread,
    /// All CPUs of one cache first: the other caches stay undisturbed.
    Fill,
}

/// The most lanes that [`MtCopy`] has unless told: the other CPUs are the application's, whatever the machine.
const MOST_DEFAULT_LANES: usize = 4;

/// The most lanes of [`MtCopy`] unless told: one per CPU that the process may use by affinity and cgroup quota, at most 4.
pub fn default_lanes() -> usize {
    lanes_for(std::thread::available_parallelism().map_or(1, usize::from))
}

fn lanes_for(cpus: usize) -> usize {
    cpus.min(MOST_DEFAULT_LANES)
}

/// How [`MtCopy`] is set up.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MtCopyOptions {
    /// Parallel copiers of every move, the calling thread counted; 0: as many as move its pages fastest, as measured while it
    /// moves (see [`MtCopy::auto`]).
    pub lanes: usize,
    /// Where lanes are chosen by measurement, the most of them; 0: [`default_lanes`].
    pub most_lanes: usize,
    /// Which CPUs the workers take.
    pub placement: Placement,
    /// Nice value of the workers, -20 (first) to 19 (last); below 0 needs CAP_SYS_NICE, and without it is ignored.
    pub nice: i32,
    /// Copy routine; `None`: the fastest on this machine, or chosen with the lanes.
    pub routine: Option<Routine>,
}

impl MtCopyOptions {
    setters! {
        lanes: usize,
        most_lanes: usize,
        placement: Placement,
        nice: i32,
        routine: Routine,
    }
}

/// Whole batches on several lanes.
pub struct MtCopy {
    routine: Routine,
    workers: Workers,
    /// Says how many of the lanes carry a move; `None`: all of them.
    auto: Option<Auto>,
}

/// The CPUs that this thread may use.
fn allowed_cpus() -> Result<Vec<u32>, MoveError> {
    affinity::allowed().map_err(MoveError::system(
        "sched_getaffinity",
        "report this as a bug",
    ))
}

impl MtCopy {
    /// Lanes and copy routine are chosen by measurement, for base pages and THPs, warm and cold ones: the moves themselves
    /// are measured, in spans of 4 MiB for each lane. A move of less than 8 MiB begins with one lane, a longer one with all, until fewer, more or another routine
    /// are surely faster, which takes some GiB of moves of a kind; 1 span in 64 is a trial at most. Single base pages have one lane. Movers of a
    /// process with as many lanes learn together. The default.
    ///
    /// # Errors
    /// As [`MtCopy::new`].
    pub fn auto() -> Result<MtCopy, MoveError> {
        MtCopy::new(MtCopyOptions::default())
    }

    /// Starts the workers; they sleep between moves.
    ///
    /// # Errors
    /// More lanes than CPUs, a topology that cannot be read, or a thread that cannot be started.
    pub fn new(options: MtCopyOptions) -> Result<MtCopy, MoveError> {
        let allowed = allowed_cpus()?;
        let (name, lanes) = match (options.lanes, options.most_lanes) {
            (0, 0) => ("most_lanes", default_lanes().min(allowed.len())),
            (0, most) => ("most_lanes", most),
            (lanes, _) => ("lanes", lanes),
        };
        if lanes > allowed.len() {
            return Err(MoveError::BadOption {
                name,
                value: lanes,
                why: format!(
                    "this process may use {} CPUs, and a lane needs one for itself",
                    allowed.len()
                ),
            });
        }
        let own = affinity::current();
        let candidates = candidates(Topology::read().ok().as_ref(), &allowed, own);
        let order = place(candidates, own, options.placement, lanes - 1);
        let workers = Workers::start(&order, options.nice).map_err(MoveError::system(
            "starting a lane's thread",
            "raise RLIMIT_NPROC or RLIMIT_AS, or ask for fewer lanes",
        ))?;
        let routine = options.routine.unwrap_or_else(copy::best);
        let as_others = options.placement == Placement::Spread && options.nice == 0;
        let auto = (options.lanes == 0).then(|| match options.routine {
            None if as_others => Auto::shared(lanes),
            routine => Auto::alone(lanes, routine),
        });
        Ok(MtCopy {
            routine,
            workers,
            auto,
        })
    }
}

// SAFETY: the routines have copied everything, and fenced it, when they return.
unsafe impl Migrator for MtCopy {
    fn name(&self) -> &'static str {
        "mtcopy"
    }

    fn lanes(&self) -> usize {
        self.workers.lanes()
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise is the routine's condition.
        unsafe { self.routine.copy(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.workers.run(self.lanes(), lane);
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        self.workers.stacks.clone()
    }

    fn chooser(&self) -> Option<&dyn Chooser> {
        self.auto.as_ref().map(|auto| auto as &dyn Chooser)
    }

    fn run_called(&self, lane: &(dyn Fn(usize) + Sync)) {
        let called = if self.auto.is_some() { 1 } else { self.lanes() };
        self.workers.run_any(called, lane);
    }

    fn call(&self, lanes: usize) {
        self.workers.call(lanes);
    }
}

/// A CPU that a lane may take. Caches and cores are the first of their CPUs.
#[derive(Clone, Debug)]
struct Candidate {
    cpu: u32,
    /// Distance from the caller's node to the CPU's.
    distance: u32,
    cache: u32,
    core: u32,
}

/// The CPUs `allowed`, seen from `own`.
fn candidates(machine: Option<&Topology>, allowed: &[u32], own: u32) -> Vec<Candidate> {
    let node_of = |machine: &Topology, cpu| {
        let holds = |node: &usize| machine.nodes[*node].cpus.contains(&cpu);
        (0..machine.nodes.len()).find(holds)
    };
    let home = machine.and_then(|machine| node_of(machine, own));
    let first = |cpus: &[u32], cpu| (cpus.contains(&cpu)).then(|| cpus[0]);
    let candidate = |&cpu: &u32| Candidate {
        cpu,
        distance: machine.zip(home).map_or(0, |(machine, home)| {
            let node = node_of(machine, cpu).map(|node| machine.nodes[node].id);
            node.and_then(|node| machine.nodes[home].distance_to(node))
                .unwrap_or(u32::MAX)
        }),
        cache: machine.map_or(0, |machine| {
            let mut groups = machine.cpus.cache_groups.iter();
            groups
                .find_map(|group| first(&group.cpus, cpu))
                .unwrap_or(cpu)
        }),
        core: machine.map_or(cpu, |machine| {
            let mut cores = machine.cpus.cores.iter();
            cores.find_map(|core| first(core, cpu)).unwrap_or(cpu)
        }),
    };
    allowed.iter().map(candidate).collect()
}

/// The best `count` CPUs for workers beside the caller's `own`: those of the nearest node first, there by cache, and one
/// thread of each core before the others.
fn place(mut free: Vec<Candidate>, own: u32, placement: Placement, count: usize) -> Vec<u32> {
    let (mut on_cache, mut on_core) = (HashMap::<u32, usize>::new(), HashMap::<u32, usize>::new());
    let mut order = Vec::with_capacity(count);
    let mut next = free.iter().position(|candidate| candidate.cpu == own);
    loop {
        if let Some(index) = next {
            let taken = free.remove(index);
            *on_cache.entry(taken.cache).or_default() += 1;
            *on_core.entry(taken.core).or_default() += 1;
            if taken.cpu != own {
                order.push(taken.cpu);
            }
        }
        if order.len() == count || free.is_empty() {
            return order;
        }
        let rank = |candidate: &Candidate| {
            let on_cache = on_cache.get(&candidate.cache).copied().unwrap_or(0);
            let on_cache = match placement {
                Placement::Spread => on_cache,
                Placement::Fill => usize::MAX - on_cache,
            };
            let on_core = on_core.get(&candidate.core).copied().unwrap_or(0);
            (candidate.distance, on_cache, on_core, candidate.cpu)
        };
        next = (0..free.len()).min_by_key(|&index| rank(&free[index]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// All but the caller's CPU of a machine with two nodes of two caches of two cores of two threads, in the order in
    /// which lanes take them. CPUs 0 to 7 are first threads, 8 to 15 second ones.
    fn order(allowed: &[u32], own: u32, placement: Placement) -> Vec<u32> {
        let candidate = |&cpu: &u32| Candidate {
            cpu,
            distance: if cpu % 8 / 4 == own % 8 / 4 { 10 } else { 20 },
            cache: cpu % 8 / 2,
            core: cpu % 8,
        };
        let candidates = allowed.iter().map(candidate).collect();
        place(candidates, own, placement, allowed.len() - 1)
    }

    #[test]
    fn fill_takes_the_callers_cache_and_then_its_node() {
        let all: Vec<u32> = (0..16).collect();
        assert_eq!(
            order(&all, 5, Placement::Fill),
            [4, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10, 11]
        );
    }

    #[test]
    fn spread_takes_the_nodes_other_cache_first_and_second_threads_last() {
        let all: Vec<u32> = (0..16).collect();
        assert_eq!(
            order(&all, 0, Placement::Spread),
            [2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15]
        );
    }

    #[test]
    fn only_allowed_cpus_are_taken() {
        assert_eq!(order(&[1, 6], 6, Placement::Spread), [1]);
        assert_eq!(order(&[1, 2, 6], 2, Placement::Fill), [1, 6]);
    }

    #[test]
    fn a_machine_that_cannot_be_read_has_one_cache() {
        let candidates = candidates(None, &[3, 1, 2], 1);
        assert_eq!(place(candidates, 1, Placement::Spread, 5), [2, 3]);
    }

    #[test]
    fn every_cpu_of_this_machine_is_a_candidate() {
        let machine = Topology::read().unwrap();
        let all = candidates(Some(&machine), &machine.cpus.online, machine.cpus.online[0]);
        assert!(all.iter().all(|other| other.distance >= all[0].distance));
        let mut caches: Vec<u32> = all.iter().map(|candidate| candidate.cache).collect();
        caches.sort_unstable();
        caches.dedup();
        assert_eq!(caches.len(), machine.cpus.cache_groups.len());
        assert_eq!(all.len(), machine.cpus.online.len());
    }

    #[test]
    fn mtcopy_runs_as_many_lanes_as_asked() {
        let cpus = affinity::allowed().unwrap().len();
        let migrator = MtCopy::new(MtCopyOptions::default().lanes(cpus)).unwrap();
        assert_eq!(migrator.lanes(), cpus);
        let ran = AtomicUsize::new(0);
        migrator.run(&|lane| {
            ran.fetch_add(1 << (8 * lane), Ordering::Relaxed);
        });
        assert_eq!(
            ran.load(Ordering::Relaxed),
            (0..cpus).map(|lane| 1 << (8 * lane)).sum::<usize>()
        );
        assert_eq!(migrator.own_memory().len(), cpus - 1);
    }

    #[test]
    fn unless_told_lanes_are_few_and_no_more_than_the_cpus_that_the_thread_may_use() {
        let lanes = || MtCopy::new(MtCopyOptions::default()).unwrap().lanes();
        let cpus = affinity::allowed().unwrap();
        assert!((1..=cpus.len().min(4)).contains(&lanes()));
        let pinned = std::thread::spawn(move || {
            affinity::pin(&cpus[..1]).unwrap();
            lanes()
        });
        assert_eq!(pinned.join().unwrap(), 1);
        assert_eq!([1, 2, 4, 5, 224].map(lanes_for), [1, 2, 4, 4, 4]);
    }

    #[test]
    fn more_lanes_than_cpus_are_refused() {
        let lanes = affinity::allowed().unwrap().len() + 1;
        let refused = MtCopy::new(MtCopyOptions::default().lanes(lanes));
        let refused = refused.err().unwrap();
        assert!(
            refused.to_string().contains(&format!("lanes is {lanes}")),
            "{refused}"
        );
    }
}
