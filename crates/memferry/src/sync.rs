// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of `schedule`, named here so that its model test can put other ones in their place; and locks after a panic.

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
