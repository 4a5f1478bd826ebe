// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where traces come from: the text that other programs write, read line by line.
//!
//! A parser is a function of its input alone. Each stops at the first line that it does not understand and says which
//! one it is: a trace that lacks what could not be read would look whole. [`Recorder`] turns single accesses into
//! events.

mod cache;
mod damon;
mod lackey;
mod lines;
mod perf;
mod recorder;
mod stamp;
mod window;

pub use cache::CacheModel;
pub use damon::{Damon, Region, import as import_damon, import_within as import_damon_within};
pub use lackey::{import as import_lackey, record as record_lackey};
pub use perf::{Perf, Sample, Skipped, import as import_perf};
pub use recorder::{More, Recorder, Span};
pub(super) use window::Window;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fetches an instruction.
    Instruction,
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads, then writes the same place.
    Modify,
}

/// One access of a program to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The first byte's virtual address.
    pub address: u64,
    /// Bytes, at least 1.
    pub bytes: u32,
    /// What it does.
    pub kind: Kind,
}
