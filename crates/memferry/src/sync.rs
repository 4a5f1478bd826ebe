// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of `schedule`, named here so that its model test can put other ones in their place.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
