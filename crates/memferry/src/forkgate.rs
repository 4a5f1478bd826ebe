// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork(2) must not happen while pages are away from their place: the child would see holes there.
//!
//! A handler that `fork` runs first waits until no batch is away and keeps new ones from leaving; both sides open the
//! gate again afterwards. A raw `clone` system call without CLONE_VM runs no handlers: see docs/limits.md.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

/// Counts forks on the way down from the first process: a value made before a fork is foreign after it.
static GENERATION: AtomicU32 = AtomicU32::new(0);

struct Gate {
    /// Batches whose pages are away from their place, over all movers.
    away: usize,
    /// Forks that wait or are under way.
    forking: usize,
}

static GATE: Mutex<Gate> = Mutex::new(Gate {
    away: 0,
    forking: 0,
});
static CHANGED: Condvar = Condvar::new();

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many forks lie between the process that set up the first [`Mover`](crate::Mover) and this one. A mover that was
/// made at another count belongs to a parent, and its threads and locks are not here: neither use nor drop it.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Installs the handlers; further calls do nothing.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded (see memferry.h), and take no
    // arguments.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        );
    });
}

/// One batch that may be away. While it lives, `fork` waits.
pub(crate) struct Away(());

impl Away {
    /// `None` while somebody forks: try again when the pages that are away are back.
    pub(crate) fn try_begin() -> Option<Away> {
        let mut gate = gate();
        if gate.forking > 0 {
            return None;
        }
        gate.away += 1;
        Some(Away(()))
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        gate().away -= 1;
        CHANGED.notify_all();
    }
}

/// Blocks until nobody forks. Call it only with no batch away.
pub(crate) fn wait_until_open() {
    let mut gate = gate();
    while gate.forking > 0 {
        gate = CHANGED.wait(gate).unwrap_or_else(PoisonError::into_inner);
    }
}

/// The gate's lock while a fork is under way, so that the child inherits it in a known state.
struct Held(UnsafeCell<Option<MutexGuard<'static, Gate>>>);

// SAFETY: the cell is touched only between `before_fork` and `after_fork`, by the thread that holds the gate's lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let mut guard = gate();
    guard.forking += 1;
    while guard.away > 0 {
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn after_fork_in_parent() {
    reopen(|gate| gate.forking -= 1);
}

extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Release);
    // Other threads that waited to fork do not exist here.
    reopen(|gate| gate.forking = 0);
}

fn reopen(count: impl FnOnce(&mut Gate)) {
    // SAFETY: this thread took the lock in `before_fork`; the child's only thread is its copy.
    if let Some(mut guard) = unsafe { (*HELD.0.get()).take() } {
        count(&mut guard);
    }
    CHANGED.notify_all();
}
