// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that begin at one moment. If one of them cannot be started, none begins.

use std::io;
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;

use super::failure::Failure;
use super::region::Region;

/// Address space of a thread: a stack of 2 MiB, and what the thread allocates.
const ROOM: usize = 4 << 20;

/// Whether there is address space for so many threads: one that starts without it ends the process.
pub fn have_room(count: usize) -> io::Result<()> {
    Region::map(count * ROOM).map(drop)
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
    // Whether threads work: those that have prepared wait for the lock. It is still closed if one of them does not come.
    let gate = RwLock::new(false);
    let (gate, prepare, work) = (&gate, &prepare, &work);
    thread::scope(|scope| {
        let mut opened = gate.write().unwrap_or_else(PoisonError::into_inner);
        let (ready, all_ready) = mpsc::channel();
        let mut threads = Vec::new();
        for number in 0..count {
            let ready = ready.clone();
            let run = move || {
                let prepared = prepare();
                let _ = ready.send(());
                drop(ready);
                let is_open = *gate.read().unwrap_or_else(PoisonError::into_inner);
                is_open.then(|| work(number, prepared))
            };
            threads.push(thread::Builder::new().spawn_scoped(scope, run)?);
        }
        drop(ready);
        // The channel ends once each thread has sent or panicked.
        assert_eq!(all_ready.iter().count(), count, "a thread has panicked");
        *opened = true;
        drop(opened);
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
    #[should_panic(expected = "a thread has panicked")]
    fn nobody_waits_for_a_thread_that_panicked() {
        let number = AtomicUsize::new(0);
        let prepare = || assert_ne!(number.fetch_add(1, Ordering::Relaxed), 1, "on purpose");
        let _ = together(3, prepare, |_, ()| (), || ());
    }
}
