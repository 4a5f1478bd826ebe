// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe Rust binding to `core/`, Memferry's C policy core.
//!
//! The core decides and never acts: it sees addresses as numbers and touches no memory but
//! the caller's arguments. [`share()`] gives each lane of a migrator its part of a batch, [`hotness`] tells
//! which pages are worth moving, [`pace`] how fast they may go, and [`choose`] what copies a batch. [`tracker`] keeps the records of many pages for it.
//!
//! ```
//! use memferry_core::{GRANULE, share};
//!
//! // 2 MiB on four lanes: each copies a quarter.
//! assert_eq!(share(2 << 20, 4, GRANULE, 1), 512 << 10..1 << 20);
//! ```

pub mod balance;
pub mod choose;
pub mod hotness;
pub mod pace;
mod share;
mod sys;
pub mod tracker;
#[cfg(test)]
mod tracker_model;

pub use share::{GRANULE, share};
