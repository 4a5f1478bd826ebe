// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks where a thread must ask the program's heap for nothing, so that tests can count whether it does.
//!
//! While a range is watched, whoever holds the heap's lock may wait for the mover, or the heap's own lists lie in pages that are
//! away.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether anybody has asked. Until then the marks are not made: in a library that was loaded late a thread-local lies on the
/// heap, and asking for its address may ask the heap for memory.
static ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread must not allocate or free at this moment.
pub fn heap_is_forbidden() -> bool {
    ASKED.store(true, Ordering::Relaxed);
    FORBIDDEN.try_with(Cell::get).unwrap_or(false)
}

/// Until it is dropped, this thread must not, or may again (a migrator's own code); then it is as before.
pub(crate) struct Heap {
    before: Option<bool>,
    /// It belongs to one thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Heap {
    pub(crate) fn forbid() -> Heap {
        Heap::set(true)
    }

    pub(crate) fn allow() -> Heap {
        Heap::set(false)
    }

    fn set(forbidden: bool) -> Heap {
        let is_marked = ASKED.load(Ordering::Relaxed);
        Heap {
            before: is_marked.then(|| FORBIDDEN.replace(forbidden)),
            _here: std::marker::PhantomData,
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            FORBIDDEN.set(before);
        }
    }
}
