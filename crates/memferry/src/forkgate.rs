// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork(2) must not happen while pages are away from their place: the child would see holes there.
//!
//! A handler that `fork` runs first waits until no batch is away and keeps new ones from leaving; both sides open the
//! gate again afterwards. The child closes the descriptors that watch its parent's memory. A raw `clone` system call
//! without CLONE_VM runs no handlers: see docs/limits.md.

use crate::emptied;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::process;
use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, TryLockError};

struct Gate {
    /// Batches whose pages are away from their place, over all movers.
    away: usize,
    /// Forks that wait or are under way.
    forking: usize,
    /// Descriptors that a child must not keep.
    watching: List<RawFd>,
}

static GATE: Mutex<Gate> = Mutex::new(Gate {
    away: 0,
    forking: 0,
    watching: List::new_in(Pages),
});
/// A fork is under way: its thread holds the gate's lock until it is over.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
static CHANGED: Condvar = Condvar::new();

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unpoisoned()
}

/// The gate's lock, unless a fork holds it: a lane that waited for it could not answer faults of who forks.
fn gate_unless_forking() -> Option<MutexGuard<'static, Gate>> {
    loop {
        match GATE.try_lock() {
            Ok(gate) => return Some(gate),
            Err(TryLockError::Poisoned(poison)) => return Some(poison.into_inner()),
            Err(TryLockError::WouldBlock) if UNDER_WAY.load(Ordering::Acquire) => return None,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
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
        let mut gate = gate_unless_forking()?;
        if gate.forking > 0 {
            return None;
        }
        gate.away += 1;
        Some(Away(()))
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let mut gate = gate();
        gate.away -= 1;
        // Waking nobody would still cost a system call.
        if gate.forking > 0 {
            CHANGED.notify_all();
        }
    }
}

/// Whether nobody forks.
pub(crate) fn is_open() -> bool {
    gate_unless_forking().is_some_and(|gate| gate.forking == 0)
}

/// What watches memory of this process. A child that kept the descriptor would keep the watch alive when its parent
/// closes it, and nobody would answer faults any more: no fork meets it open and unknown.
pub(crate) struct ParentOnly<T: AsRawFd>(ManuallyDrop<T>);

impl<T: AsRawFd> ParentOnly<T> {
    /// Opens it; children close it.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<T>) -> io::Result<ParentOnly<T>> {
        let mut gate = gate();
        let value = open()?;
        gate.watching.push(value.as_raw_fd());
        Ok(ParentOnly(ManuallyDrop::new(value)))
    }
}

impl<T: AsRawFd> Deref for ParentOnly<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRawFd> Drop for ParentOnly<T> {
    fn drop(&mut self) {
        let mut gate = gate();
        let fd = self.0.as_raw_fd();
        gate.watching.retain(|known| *known != fd);
        // SAFETY: nobody has it after this. No fork comes before it is closed.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// The locks of the gate and of the emptied ranges while a fork is under way, so that the child inherits them in a known
/// state.
struct Held(UnsafeCell<Option<(MutexGuard<'static, Gate>, emptied::Guard)>>);

// SAFETY: the cell is touched only between `before_fork` and `after_fork`, by the thread that holds the gate's lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let mut guard = gate();
    guard.forking += 1;
    while guard.away > 0 {
        guard = CHANGED.wait(guard).unpoisoned();
    }
    UNDER_WAY.store(true, Ordering::Release);
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some((guard, emptied::lock())) };
}

extern "C" fn after_fork_in_parent() {
    reopen(|gate, _| gate.forking -= 1);
}

extern "C" fn after_fork_in_child() {
    process::note_fork();
    reopen(|gate, emptied| {
        emptied.clear();
        // Other threads that waited to fork do not exist here.
        gate.forking = 0;
        for fd in gate.watching.drain(..) {
            // SAFETY: the thread that owns the descriptor does not exist in the child.
            unsafe { libc::close(fd) };
        }
    });
}

fn reopen(change: impl FnOnce(&mut Gate, &mut emptied::Guard)) {
    // SAFETY: this thread took the lock in `before_fork`; the child's only thread is its copy.
    if let Some((mut guard, mut emptied)) = unsafe { (*HELD.0.get()).take() } {
        change(&mut guard, &mut emptied);
        UNDER_WAY.store(false, Ordering::Release);
    }
    CHANGED.notify_all();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sys::process::generation;

    /// Runs `body` where a fork would be under way.
    pub(crate) fn as_if_forking(body: impl FnOnce()) {
        before_fork();
        body();
        after_fork_in_parent();
    }

    /// Forks; the child runs `body` and ends with its answer. It may do only what a signal handler may, and allocate.
    pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
        install();
        // SAFETY: the child calls `body` and ends at once.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!body())),
                pid => {
                    assert!(pid > 0);
                    let mut status = -1;
                    assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        }
    }

    #[test]
    fn a_child_is_another_process_and_its_gate_is_open() {
        let here = generation();
        assert!(in_child(|| {
            generation() == here + 1 && is_open() && Away::try_begin().is_some()
        }));
        assert_eq!(generation(), here);
    }

    #[test]
    fn a_fork_waits_for_pages_that_are_away_and_nothing_leaves_meanwhile() {
        // Other tests may fork at any time.
        let away = loop {
            if let Some(away) = Away::try_begin() {
                break away;
            }
        };
        let back = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let forker = scope.spawn(|| {
                let mut seen = (false, false);
                as_if_forking(|| {
                    seen = (
                        back.load(Ordering::Acquire),
                        gate_unless_forking().is_none(),
                    );
                });
                seen
            });
            while Away::try_begin().is_some() {
                std::thread::yield_now();
            }
            back.store(true, Ordering::Release);
            drop(away);
            let (after, closed) = forker.join().unwrap();
            assert!(after, "forked while pages were away");
            assert!(closed);
        });
    }

    #[test]
    fn a_child_keeps_no_watch_on_its_parent() {
        // SAFETY: F_GETFD only looks.
        let is_open = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        let file = std::fs::File::open("/dev/null").unwrap();
        let watch = ParentOnly::open(|| std::fs::File::open("/dev/null")).unwrap();
        let (kept, closed) = (file.as_raw_fd(), watch.as_raw_fd());
        assert!(in_child(|| is_open(kept) && !is_open(closed)));
        assert!(is_open(closed));
        drop(watch);
        assert!(!gate().watching.contains(&closed));
    }
}
