// SPDX-License-Identifier: MIT OR Apache-2.0
//! The heap of every test: it counts what threads ask of it while they must not, from the watch of a range to its end.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static EXCUSED: Cell<bool> = const { Cell::new(false) };
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator.
struct Counting;

impl Counting {
    fn note(what: &str) {
        // A panic allocates, and it is the migrator's.
        if !memferry::heap_is_forbidden() || std::thread::panicking() || EXCUSED.replace(true) {
            return;
        }
        if SEEN.fetch_add(1, Ordering::Relaxed) < 10 {
            let trace = std::backtrace::Backtrace::force_capture();
            eprintln!("{what} while a range is watched:\n{trace}");
        }
        EXCUSED.set(false);
    }
}

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note("an allocation");
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Counting::note("a release");
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs what a migrator of a test allocates while it copies.
pub fn excused<T>(body: impl FnOnce() -> T) -> T {
    let before = EXCUSED.replace(true);
    let value = body();
    EXCUSED.set(before);
    value
}

/// Asserts that no thread of this process has asked the heap where it must not.
pub fn assert_heap_unasked() {
    let seen = SEEN.load(Ordering::Relaxed);
    assert_eq!(seen, 0, "calls of the heap while a range is watched");
}
