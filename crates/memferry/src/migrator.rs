// SPDX-License-Identifier: MIT OR Apache-2.0
//! Migrators: what copies a batch, and on which threads.
//!
//! | name | what it does |
//! |---|---|
//! | `batch` | whole batches, the best copy routine, one lane |
//! | `mtcopy` | whole batches, N lanes, the calling thread among them: a fixed number with the best copy routine, or both chosen by measurement |
//!
//! A migrator knows nothing of page tables: `pipeline` unmaps and remaps.

use crate::auto::{Auto, Chooser, Kind, Way};
use crate::copy::{self, Routine};
use crate::error::MoveError;
use crate::options::setters;
use crate::workers::Workers;
use memferry_core::choose::Choice;
use memferry_linux::affinity;
use memferry_linux::topology::Topology;
use std::ops::Range;
use std::time::Duration;

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

    /// Memory that must stay mapped while it runs: stacks of its threads.
    fn own_memory(&self) -> Vec<Range<usize>> {
        Vec::new()
    }

    /// What chooses the lanes and the routine of each span of a move, [`lanes`](Migrator::lanes) at most; `None`: all lanes
    /// carry all of it, and [`copy`](Migrator::copy) copies.
    #[doc(hidden)]
    fn chooser(&self) -> Option<&dyn Chooser> {
        None
    }
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

/// Which CPUs the lanes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// One lane per last-level cache group in turn: the most memory bandwidth.
    #[default]
    Spread,
    /// All CPUs of one group first: the other groups stay undisturbed.
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
    lanes: Lanes,
}

enum Lanes {
    /// All carry every move.
    Fixed(Workers),
    Chosen(Chosen),
}

/// Lanes of which as many work as a chooser says.
struct Chosen {
    workers: Workers,
    auto: Auto,
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
    /// are measured, in spans of 8 MiB. A process begins with one lane and keeps to it until more are surely faster, which takes some GiB of moves of a
    /// kind; 1 span in 64 is a trial at most. Single folios have one lane. All movers of the process learn together. The default.
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
        let groups = Topology::read()
            .map(|t| {
                t.cpus
                    .cache_groups
                    .into_iter()
                    .map(|g| g.cpus)
                    .collect::<Vec<_>>()
            })
            .unwrap_or_else(|_| vec![allowed.clone()]);
        let order = order_cpus(&groups, &allowed, affinity::current(), options.placement);
        let workers =
            Workers::start(&order[..lanes - 1], options.nice).map_err(MoveError::system(
                "starting a lane's thread",
                "raise RLIMIT_NPROC or ask for fewer lanes",
            ))?;
        let routine = options.routine.unwrap_or_else(copy::best);
        let as_others = options.placement == Placement::Spread && options.nice == 0;
        let auto = match options.routine {
            None if as_others => Auto::shared(lanes, allowed.len()),
            routine => Auto::alone(lanes, allowed.len(), routine),
        };
        let lanes = match options.lanes {
            0 => Lanes::Chosen(Chosen { workers, auto }),
            _ => Lanes::Fixed(workers),
        };
        Ok(MtCopy { routine, lanes })
    }

    fn workers(&self) -> &Workers {
        match &self.lanes {
            Lanes::Fixed(workers) | Lanes::Chosen(Chosen { workers, .. }) => workers,
        }
    }
}

// SAFETY: the routines have copied everything, and fenced it, when they return.
unsafe impl Migrator for MtCopy {
    fn name(&self) -> &'static str {
        "mtcopy"
    }

    fn lanes(&self) -> usize {
        self.workers().lanes()
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise is the routine's condition.
        unsafe { self.routine.copy(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.workers().run(self.lanes(), lane);
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        self.workers().stacks.clone()
    }

    fn chooser(&self) -> Option<&dyn Chooser> {
        match &self.lanes {
            Lanes::Fixed(_) => None,
            Lanes::Chosen(chosen) => Some(chosen),
        }
    }
}

impl Chooser for Chosen {
    fn choose(&self, kind: Kind, bytes: usize) -> (Way, Choice) {
        self.auto.choose(kind, bytes)
    }

    fn learn(&self, kind: Kind, choice: &Choice, took: Duration) {
        self.auto.learn(kind, choice, took);
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.workers.run(1, lane);
    }

    fn call(&self, lanes: usize) {
        self.workers.call(lanes);
    }
}

/// The CPUs for the workers, best first: all that are allowed, the caller's own last.
fn order_cpus(groups: &[Vec<u32>], allowed: &[u32], own: u32, placement: Placement) -> Vec<u32> {
    let usable = |group: &Vec<u32>| -> Vec<u32> {
        group
            .iter()
            .copied()
            .filter(|cpu| allowed.contains(cpu) && *cpu != own)
            .collect()
    };
    // The caller is a lane of its own group, so that group comes first when filling and last when spreading.
    let (mut home, mut others): (Vec<_>, Vec<_>) = groups.iter().partition(|g| g.contains(&own));
    let ordered: Vec<Vec<u32>> = match placement {
        Placement::Fill => home.drain(..).chain(others.drain(..)).map(usable).collect(),
        Placement::Spread => others.drain(..).chain(home.drain(..)).map(usable).collect(),
    };
    let mut order: Vec<u32> = match placement {
        Placement::Fill => ordered.concat(),
        Placement::Spread => {
            let longest = ordered.iter().map(Vec::len).max().unwrap_or(0);
            (0..longest)
                .flat_map(|i| ordered.iter().filter_map(move |g| g.get(i).copied()))
                .collect()
        }
    };
    // CPUs that no group names (a topology without caches), then the caller's own as the last resort.
    for &cpu in allowed.iter().filter(|&&cpu| cpu != own).chain([&own]) {
        if !order.contains(&cpu) {
            order.push(cpu);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const GROUPS: [&[u32]; 2] = [&[0, 1, 2, 3], &[4, 5, 6, 7]];

    fn order(allowed: &[u32], own: u32, placement: Placement) -> Vec<u32> {
        let groups: Vec<Vec<u32>> = GROUPS.iter().map(|g| g.to_vec()).collect();
        order_cpus(&groups, allowed, own, placement)
    }

    #[test]
    fn fill_takes_the_callers_cache_first() {
        assert_eq!(
            order(&[0, 1, 2, 3, 4, 5, 6, 7], 5, Placement::Fill),
            [4, 6, 7, 0, 1, 2, 3, 5]
        );
    }

    #[test]
    fn spread_takes_the_other_cache_first_and_then_in_turn() {
        assert_eq!(
            order(&[0, 1, 2, 3, 4, 5, 6, 7], 0, Placement::Spread),
            [4, 1, 5, 2, 6, 3, 7, 0]
        );
    }

    #[test]
    fn only_allowed_cpus_are_taken() {
        assert_eq!(order(&[1, 6], 6, Placement::Spread), [1, 6]);
        assert_eq!(order(&[1, 9], 1, Placement::Fill), [9, 1]);
    }

    #[test]
    fn mtcopy_runs_as_many_lanes_as_asked() {
        let cpus = affinity::allowed().unwrap().len();
        let migrator = MtCopy::new(MtCopyOptions {
            lanes: cpus,
            ..Default::default()
        })
        .unwrap();
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
        let refused = MtCopy::new(MtCopyOptions {
            lanes,
            ..Default::default()
        })
        .err()
        .unwrap();
        assert!(
            refused.to_string().contains(&format!("lanes is {lanes}")),
            "{refused}"
        );
    }
}
