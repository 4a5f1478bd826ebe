// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that begin at one moment. If one of them cannot be started, none begins.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::failure::Failure;
use super::region::Region;

/// Address space of a thread: a stack of 2 MiB, and what the thread allocates.
const ROOM: usize = 4 << 20;

/// Whether there is address space for so many threads: one that starts without it ends the process.
pub fn have_room(count: usize) -> io::Result<()> {
    Region::map(count * ROOM).map(drop)
}

/// A barrier that can be called off.
struct Start {
    /// How many are not there yet; `None`: called off.
    missing: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Start {
    fn set(&self, change: impl FnOnce(&mut Option<usize>)) -> bool {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut missing);
        if missing.is_none_or(|missing| missing == 0) {
            self.changed.notify_all();
        }
        let waits = |missing: &mut Option<usize>| missing.is_some_and(|missing| missing > 0);
        let missing = self.changed.wait_while(missing, waits);
        missing.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until all are there; false: called off.
    fn wait(&self) -> bool {
        self.set(|missing| {
            if let Some(missing) = missing {
                *missing -= 1;
            }
        })
    }

    fn call_off(&self) {
        self.set(|missing| *missing = None);
    }
}

/// Starts `count` threads, which prepare, wait until all have, and work; the caller does `meanwhile` from then on. Gives what that
/// and each thread came to.
///
/// # Errors
/// A thread cannot be started: no thread works then.
pub fn together<P, T: Send, A>(
    count: usize,
    prepare: impl Fn() -> P + Sync,
    work: impl Fn(usize, P) -> T + Sync,
    meanwhile: impl FnOnce() -> A,
) -> io::Result<(A, Vec<T>)> {
    have_room(count)?;
    let start = Start {
        missing: Mutex::new(Some(count + 1)),
        changed: Condvar::new(),
    };
    let (start, prepare, work) = (&start, &prepare, &work);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..count {
            let run = move || {
                let prepared = prepare();
                start.wait().then(|| work(number, prepared))
            };
            let started = thread::Builder::new().spawn_scoped(scope, run);
            threads.push(started.inspect_err(|_| start.call_off())?);
        }
        start.wait();
        let acted = meanwhile();
        let ended = threads.into_iter().map(|thread| thread.join());
        let all: thread::Result<Option<Vec<T>>> = ended.collect();
        match all {
            Ok(all) => Ok((acted, all.unwrap_or_default())),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Does work on a thread of its own, so that it may pin itself and leave the caller's CPUs alone.
pub fn alone<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, work);
        let ended = started.map_err(not_started(1))?.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The failure of threads that cannot be started.
pub fn not_started(count: usize) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        Failure::new(
            match count {
                1 => "cannot start a thread".to_owned(),
                _ => format!("cannot start {count} threads"),
            },
            error,
            "give fewer --threads or --lanes, or raise the limits: pids.max of the cgroup, ulimit -u, ulimit -v",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_have_prepared_when_the_first_works() {
        let prepared = AtomicUsize::new(0);
        let prepare = || prepared.fetch_add(1, Ordering::Relaxed);
        let work = |number: usize, _| (number, prepared.load(Ordering::Relaxed));
        let (acted, seen) =
            together(5, prepare, work, || prepared.load(Ordering::Relaxed)).expect("threads");
        assert_eq!(acted, 5);
        assert_eq!(seen, [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
    }

    #[test]
    fn threads_that_wait_end_when_the_start_is_called_off() {
        let start = Start {
            missing: Mutex::new(Some(3)),
            changed: Condvar::new(),
        };
        thread::scope(|scope| {
            let waiting = [scope.spawn(|| start.wait()), scope.spawn(|| start.wait())];
            start.call_off();
            for thread in waiting {
                assert!(!thread.join().expect("no panic"));
            }
        });
    }
}
