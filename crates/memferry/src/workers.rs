// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lanes of `mtcopy`: worker threads that wait between moves. The thread that asks is always lane 0.
//!
//! It runs one job at a time and decides nothing about the work.

use crate::sync::Unpoisoned;
use crate::sys::list::Pages;
use crate::{forkgate, sys};
use allocator_api2::boxed::Box;
use memferry_linux::affinity;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Stack of a worker, bytes. A lane keeps everything large on the heap.
const STACK_BYTES: usize = 256 << 10;

/// The job of one round: called once per lane with the lane's number.
type Body<'a> = dyn Fn(usize) + Sync + 'a;

/// A pointer to the job that outlives its borrow only within `Workers::run_round`, which waits for every worker.
#[derive(Clone, Copy)]
struct JobPtr(*const Body<'static>);

// SAFETY: the pointee is Sync, and `Workers::run_round` keeps it alive until the last worker has finished with it.
unsafe impl Send for JobPtr {}

struct State {
    job: Option<JobPtr>,
    /// Counts rounds, so that a worker takes each job once.
    round: u64,
    /// Lanes below this number take the job.
    called: usize,
    /// Workers that the round waits for.
    busy: usize,
    /// It waits for those only that have begun.
    lets_off: bool,
    /// Workers get no CPU.
    #[cfg(test)]
    starved: bool,
    /// The first panic of the round.
    panic: Option<std::boxed::Box<dyn std::any::Any + Send>>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    start: Condvar,
    done: Condvar,
}

impl State {
    /// Whether a worker of that lane that took its last job in round `seen` has to wait for another.
    fn has_none_for(&self, lane: usize, seen: u64) -> bool {
        #[cfg(test)]
        if self.starved {
            return true;
        }
        self.round == seen || lane >= self.called
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic never happens under this lock, and the state is plain counters: poison means nothing.
        self.state.lock().unpoisoned()
    }
}

/// Lanes 1 to N-1; lane 0 is whoever calls [`Workers::run`].
pub(crate) struct Workers {
    /// Outside of the heap: lanes are called while pages are away.
    shared: Box<Shared, Pages>,
    workers: Vec<JoinHandle<()>>,
    /// Memory that the workers stand on.
    pub(crate) stacks: Vec<Range<usize>>,
    /// Held for a round.
    turn: Mutex<()>,
    generation: u32,
}

impl Workers {
    /// Starts one worker per entry of `cpus`, each pinned to its CPU and with that nice value.
    ///
    /// A CPU that may not be used (a cpuset changed meanwhile) leaves that worker unpinned.
    pub(crate) fn start(cpus: &[u32], nice: i32) -> std::io::Result<Workers> {
        forkgate::install();
        let shared = Shared {
            state: Mutex::new(State {
                job: None,
                round: 0,
                called: 0,
                busy: 0,
                lets_off: false,
                #[cfg(test)]
                starved: false,
                panic: None,
                stop: false,
            }),
            start: Condvar::new(),
            done: Condvar::new(),
        };
        let mut workers = Workers {
            shared: Box::new_in(shared, Pages),
            workers: Vec::with_capacity(cpus.len()),
            stacks: Vec::new(),
            turn: Mutex::new(()),
            generation: sys::process::generation(),
        };
        // SAFETY: it lies still until the threads, which alone have this, have ended: `drop` joins them.
        let shared: &'static Shared = unsafe { &*std::ptr::from_ref(&*workers.shared) };
        let (tell, stacks) = channel();
        for (index, &cpu) in cpus.iter().enumerate() {
            let tell = tell.clone();
            let worker = std::thread::Builder::new()
                .name(format!("ferry-lane{}", index + 1))
                .stack_size(STACK_BYTES)
                .spawn(move || {
                    // A handler of the application may touch a page that waits for this very lane.
                    let _ = sys::thread::block_signals();
                    let _ = affinity::pin(&[cpu]);
                    if nice != 0 {
                        let _ = affinity::set_nice(nice);
                    }
                    let _ = tell.send(sys::thread::stack().unwrap_or(0..0));
                    drop(tell);
                    work(shared, index + 1);
                })?;
            workers.workers.push(worker);
        }
        drop(tell);
        workers.stacks = stacks.iter().collect();
        Ok(workers)
    }

    /// How many lanes there are, the caller's among them.
    pub(crate) fn lanes(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(lane)` once on each lane below `lanes`, at least lane 0, and on those that are called meanwhile, and returns
    /// when all are done. Rounds of several threads wait for each other. In a child of fork, which has no workers, the caller is
    /// one lane after the other.
    ///
    /// # Panics
    /// Passes on the first panic of a lane, after all lanes have ended.
    pub(crate) fn run(&self, lanes: usize, body: &Body<'_>) {
        self.run_round(lanes, false, body);
    }

    /// The same, but lanes that have not begun when lane 0 is done are let off: one whose CPU a real-time thread has may never
    /// begin. So what has to be done is no lane's own.
    pub(crate) fn run_any(&self, lanes: usize, body: &Body<'_>) {
        self.run_round(lanes, true, body);
    }

    fn run_round(&self, lanes: usize, lets_off: bool, body: &Body<'_>) {
        if self.is_inherited() {
            return (0..lanes.clamp(1, self.lanes())).for_each(body);
        }
        // A panic of an earlier round was passed on to its caller; the workers are sound.
        let _turn = self.turn.lock().unpoisoned();
        let ptr: *const Body<'_> = body;
        // SAFETY: only the lifetime is erased. The pointer is cleared below before `body`'s borrow ends, and no worker
        // reads it after it has counted itself out of `busy`.
        let job =
            JobPtr(unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(ptr) });
        let mut state = self.shared.lock();
        state.job = Some(job);
        state.round += 1;
        (state.called, state.lets_off) = (1, lets_off);
        drop(state);
        self.call(lanes);
        let mine = catch_unwind(AssertUnwindSafe(|| body(0)));
        let mut state = self.shared.lock();
        if lets_off {
            state.called = 0;
        }
        while state.busy > 0 {
            state = self.shared.done.wait(state).unpoisoned();
        }
        state.job = None;
        let theirs = state.panic.take();
        drop(state);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Whether this is a child's copy: the workers stayed in the parent, and any of them may have held a lock at the fork.
    fn is_inherited(&self) -> bool {
        self.generation != sys::process::generation()
    }

    /// Has all lanes below this number take part in the round that is under way. Of its lanes only: it does not end meanwhile.
    pub(crate) fn call(&self, lanes: usize) {
        if self.is_inherited() {
            return;
        }
        let lanes = lanes.min(self.lanes());
        let mut state = self.shared.lock();
        if lanes > state.called {
            if !state.lets_off {
                state.busy += lanes - state.called;
            }
            state.called = lanes;
            drop(state);
            self.shared.start.notify_all();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if self.is_inherited() {
            // Joining them would wait for ever.
            std::mem::forget(std::mem::take(&mut self.workers));
            return;
        }
        self.shared.lock().stop = true;
        self.shared.start.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, lane: usize) {
    let mut state = shared.lock();
    let mut seen = 0;
    loop {
        while !state.stop && state.has_none_for(lane, seen) {
            state = shared.start.wait(state).unpoisoned();
        }
        if state.stop {
            return;
        }
        seen = state.round;
        let Some(job) = state.job else { continue };
        if state.lets_off {
            state.busy += 1;
        }
        drop(state);
        // SAFETY: `Workers::run_round` waits until this worker has decremented `busy`, so the job is alive here.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*job.0)(lane) }));
        state = shared.lock();
        if let Err(panic) = result {
            state.panic.get_or_insert(panic);
        }
        state.busy -= 1;
        if state.busy == 0 {
            shared.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_lane_runs_every_round_once() {
        let cpus = affinity::allowed().unwrap();
        let workers = Workers::start(&[cpus[0], cpus[0], cpus[0]], 0).unwrap();
        let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..100 {
            workers.run(4, &|lane| {
                counts[lane].fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 100));
    }

    #[test]
    fn a_panicking_lane_ends_the_round_and_the_workers_go_on() {
        let workers = Workers::start(&[0], 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            workers.run(4, &|lane| assert!(lane == 0, "lane 1 breaks"));
        }));
        assert!(panicked.is_err());
        let ran = AtomicUsize::new(0);
        workers.run(4, &|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn lanes_take_part_once_they_are_called_and_no_others_do() {
        let workers = Workers::start(&[0, 0, 0], 0).unwrap();
        let count = |calls: &[usize]| {
            let ran: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            workers.run(1, &|lane| {
                ran[lane].fetch_add(1, Ordering::Relaxed);
                if lane == 0 {
                    calls.iter().for_each(|&lanes| workers.call(lanes));
                }
            });
            ran.into_iter()
                .map(AtomicUsize::into_inner)
                .collect::<Vec<_>>()
        };
        for _ in 0..100 {
            assert_eq!(count(&[]), [1, 0, 0, 0]);
            assert_eq!(count(&[2]), [1, 1, 0, 0]);
            assert_eq!(count(&[2, 1, 3, 3]), [1, 1, 1, 0]);
            assert_eq!(count(&[9]), [1, 1, 1, 1]);
        }
    }

    #[test]
    fn a_lane_that_gets_no_cpu_is_let_off() {
        let workers = Workers::start(&[0, 0], 0).unwrap();
        let ran = [const { AtomicUsize::new(0) }; 3];
        let count = |lane: usize| {
            ran[lane].fetch_add(1, Ordering::Relaxed);
        };
        workers.shared.lock().starved = true;
        workers.run_any(3, &|lane| {
            count(lane);
            workers.call(3);
        });
        workers.shared.lock().starved = false;
        workers.shared.start.notify_all();
        // Nor do they come later.
        for _ in 0..100 {
            workers.run(1, &count);
            workers.run_any(1, &count);
        }
        assert_eq!(ran.map(AtomicUsize::into_inner), [201, 0, 0]);
        // Those that begin are waited for.
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        workers.run_any(3, &|lane| {
            begun.fetch_add(1, Ordering::AcqRel);
            while lane == 0 && begun.load(Ordering::Acquire) < 3 {
                std::thread::yield_now();
            }
            if lane > 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ended.into_inner(), 3);
    }

    #[test]
    fn a_child_drops_its_copy_without_waiting() {
        let mut workers = Some(Workers::start(&[0], 0).unwrap());
        assert!(forkgate::tests::in_child(|| {
            drop(workers.take());
            true
        }));
    }

    #[test]
    fn in_a_child_the_caller_runs_every_lane_once() {
        let workers = Workers::start(&[0, 0], 0).unwrap();
        assert!(forkgate::tests::in_child(|| {
            // SAFETY: ends the child if it waits for workers that are not there.
            unsafe { libc::alarm(20) };
            let ran = [const { AtomicUsize::new(0) }; 3];
            workers.run(3, &|lane| {
                ran[lane].fetch_add(1, Ordering::Relaxed);
                workers.call(3);
            });
            ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1)
        }));
    }

    #[test]
    fn workers_take_no_signals_of_the_application() {
        let workers = Workers::start(&[0], 0).unwrap();
        let blocked = AtomicUsize::new(0);
        workers.run(4, &|lane| {
            // SAFETY: pthread_sigmask only reads the thread's mask here.
            let (usr1, segv) = unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                (
                    libc::sigismember(&raw const set, libc::SIGUSR1),
                    libc::sigismember(&raw const set, libc::SIGSEGV),
                )
            };
            if (lane, usr1, segv) == (1, 1, 0) {
                blocked.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(blocked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_stacks_of_the_workers_are_known() {
        let workers = Workers::start(&[0, 0], 0).unwrap();
        assert_eq!(workers.stacks.len(), 2);
        assert!(workers.stacks.iter().all(|s| s.end > s.start));
    }
}
