// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves memory pages between the tiers of one machine at the speed of the memory.
//!
//! ```no_run
//! use memferry::{MoveOptions, Mover, MoverOptions, MtCopy};
//!
//! # fn main() -> Result<(), memferry::MoveError> {
//! # let (address, bytes) = (0x7f00_0000_0000, 1 << 30);
//! let mover = Mover::new(MoverOptions::new(MtCopy::auto()?))?;
//! let result = mover.move_range(address..address + bytes, 1, &MoveOptions::default())?;
//! println!("{} bytes moved, {} stayed", result.moved.bytes, result.left_bytes());
//! # Ok(())
//! # }
//! ```
//!
//! The data's way is the reading order: [`Mover`] checks and registers a range, `pipeline` carries its batches through
//! unmap, copy and remap, a [`Migrator`] copies them with a [`copy::Routine`] into pages of the `pool`.

mod auto;
pub mod copy;
mod cost;
mod emptied;
mod error;
mod forkgate;
mod job;
mod known_faults;
mod migrator;
pub mod move_pages;
mod mover;
mod options;
mod pace;
mod pipeline;
mod pool;
pub mod probe;
mod ranges;
mod result;
mod schedule;
#[cfg(test)]
mod schedule_tests;
mod steps;
mod stretches;
mod sync;
mod sys;
mod tiering;
mod turns;
mod vma;
mod watch;
mod workers;

/// For the crates that move pages with [`move_pages`] and open no [`Mover`].
#[doc(hidden)]
pub use error::check_page_size;
pub use error::{MoveError, Unmovable};
pub use job::MoveHandle;
pub use memferry_core::tracker as hotness;
pub use migrator::{Batch, Migrator, MtCopy, MtCopyOptions, Placement, default_lanes};
pub use mover::{DEFAULT_POOL_BYTES, Mover, MoverOptions};
pub use options::{Backend, DEFAULT_BATCH_BYTES, MoveOptions, SourcePages};
pub use result::{Count, ListResult, MoveResult, Outcome};
pub use steps::Steps;
/// For tests that count allocations.
#[doc(hidden)]
pub use sys::heap::heap_is_forbidden;
pub use sys::page_size;
pub use sys::process::generation as fork_generation;
/// For the C interface, whose frames a handler must not leave while they have something in hand.
#[doc(hidden)]
pub use sys::thread::Quiet;
/// For the benchmark's plain program, which moves pages without a [`Mover`].
#[doc(hidden)]
pub use sys::uffd::{FEATURE_MOVE, Progress, Uffd};
pub use tiering::{Round, Tiering, TieringOptions};
