// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe Rust binding to `core/`, Memferry's C policy core.
//!
//! The core decides and never acts: it sees addresses as numbers and touches no memory but
//! the caller's arguments. [`lanes`] deals a batch to the lanes of a migrator, [`hotness`] tells
//! which pages are worth moving, and [`pace`] how fast they may go.
//!
//! ```
//! use memferry_core::{Deal, Extent, GRANULE_DEFAULT};
//!
//! // One 2 MiB folio on four lanes: each copies a quarter.
//! let folio = Extent { src: 0x20_0000, dst: 0x4000_0000, bytes: 2 << 20 };
//! let dealt = Deal::new(4, GRANULE_DEFAULT)?.deal(&[folio])?;
//! assert_eq!(dealt.lane(1), [Extent { src: 0x28_0000, dst: 0x4008_0000, bytes: 512 << 10 }]);
//! # Ok::<(), memferry_core::DealError>(())
//! ```

pub mod balance;
mod error;
pub mod hotness;
pub mod lanes;
pub mod pace;
mod sys;

pub use error::DealError;
pub use lanes::{Deal, Dealt};
pub use sys::{
    BYTES_MAX, EXTENTS_MAX, Extent, GRANULE_DEFAULT, GRANULE_MAX, GRANULE_MIN, LANES_MAX,
};
