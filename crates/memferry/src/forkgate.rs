// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork(2) must not happen while pages are away from their place: the child would see holes there.
//!
//! A handler that `fork` runs first waits until no batch is away and keeps new ones from leaving; both sides open the
//! gate again afterwards. No lock is held over a fork: other handlers run meanwhile, and may touch what a move watches. The
//! child closes the descriptors that watch its parent's memory. A raw `clone` system call without CLONE_VM runs no handlers:
//! see docs/limits.md.

use crate::emptied;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::process;
use rustix::thread::futex;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

/// Batches whose pages are away from their place, over all movers, and threads that open or close a watch.
static AWAY: AtomicU32 = AtomicU32::new(0);
/// Forks that wait or are under way. Who adds to one of the two looks at the other one afterwards: one of both sees the other.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Descriptors that a child must not keep. The lock is taken by who is `Away`, so no fork finds it held.
static WATCHING: Mutex<List<RawFd>> = Mutex::new(List::new_in(Pages));

/// Sleeps while `word` is `value`, or for no reason.
fn sleep_while(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
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
        AWAY.fetch_add(1, Ordering::SeqCst);
        let away = Away(());
        is_open().then_some(away)
    }

    /// Waits until nobody forks; for a thread that watches nothing.
    pub(crate) fn begin() -> Away {
        loop {
            if let Some(away) = Away::try_begin() {
                return away;
            }
            let forking = FORKING.load(Ordering::SeqCst);
            if forking > 0 {
                sleep_while(&FORKING, forking);
            }
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        AWAY.fetch_sub(1, Ordering::SeqCst);
        // Waking nobody would still cost a system call.
        if !is_open() {
            wake_all(&AWAY);
        }
    }
}

/// Whether nobody forks.
pub(crate) fn is_open() -> bool {
    FORKING.load(Ordering::SeqCst) == 0
}

/// What watches memory of this process. A child that kept the descriptor would keep the watch alive when its parent
/// closes it, and nobody would answer faults any more: no fork meets it open and unknown.
pub(crate) struct ParentOnly<T: AsRawFd>(ManuallyDrop<T>);

impl<T: AsRawFd> ParentOnly<T> {
    /// Opens it; children close it. Waits while somebody forks.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<T>) -> io::Result<ParentOnly<T>> {
        let _no_fork = Away::begin();
        let value = open()?;
        WATCHING.lock().unpoisoned().push(value.as_raw_fd());
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
    /// Waits while somebody forks: it must watch nothing any more.
    fn drop(&mut self) {
        let _no_fork = Away::begin();
        let fd = self.0.as_raw_fd();
        WATCHING.lock().unpoisoned().retain(|known| *known != fd);
        // SAFETY: nobody has it after this. No fork comes before it is closed.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    loop {
        match AWAY.load(Ordering::SeqCst) {
            0 => return,
            away => sleep_while(&AWAY, away),
        }
    }
}

extern "C" fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
    wake_all(&FORKING);
}

extern "C" fn after_fork_in_child() {
    process::note_fork();
    // SAFETY: the child has this thread alone, which is no mover's.
    unsafe { emptied::forget_in_child() };
    for fd in WATCHING.lock().unpoisoned().drain(..) {
        // SAFETY: the thread that owns the descriptor does not exist in the child.
        unsafe { libc::close(fd) };
    }
    // Other threads, which may have waited to fork or been about to see that somebody forks, do not exist here.
    AWAY.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sys::process::generation;
    use std::sync::atomic::AtomicBool;

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
                    seen = (back.load(Ordering::Acquire), !is_open());
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
        assert!(!WATCHING.lock().unwrap().contains(&closed));
    }
}
