// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of `schedule`, named here so that its model test can put other ones in their place; locks after a panic; and what
//! is made once in a process without one.

use std::sync::atomic::{AtomicPtr, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{LockResult, PoisonError};

/// What a lock guards, whether or not a thread panicked with it: each state under a lock of this library is whole between any two
/// calls.
pub(crate) trait Unpoisoned<T> {
    fn unpoisoned(self) -> T;
}

impl<T> Unpoisoned<T> for LockResult<T> {
    fn unpoisoned(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value that whoever asks first makes. No lock: a child of fork may ask while a thread that is not there was making it. Of
/// two threads that both make it, the first one's counts and the other's leaks.
pub(crate) struct MadeOnce<T>(AtomicPtr<T>);

impl<T: Sync> MadeOnce<T> {
    pub(crate) const fn new() -> MadeOnce<T> {
        MadeOnce(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn get(&'static self, make: impl FnOnce() -> T) -> &'static T {
        let load = || self.0.load(Ordering::Acquire);
        if load().is_null() {
            let (null, mine) = (std::ptr::null_mut(), Box::into_raw(Box::new(make())));
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.0.compare_exchange(null, mine, order.0, order.1);
        }
        // SAFETY: what was stored is never freed and never changed.
        unsafe { &*load() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_who_makes_a_value_and_the_first_one_counts() {
        static VALUE: MadeOnce<u32> = MadeOnce::new();
        let outer = VALUE.get(|| {
            // As in a child, where the thread that was at it is not there.
            let inner = std::thread::spawn(|| *VALUE.get(|| 1));
            assert_eq!(inner.join().unwrap(), 1);
            2
        });
        assert_eq!((*outer, *VALUE.get(|| 3)), (1, 1));
    }
}
