// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace file and what makes one.
//!
//! A file is written as events come and read block by block; `source` turns the output of other programs into
//! events. It knows nothing of policies.
//!
//! ```text
//! magic      89 "MFTR" 0d 0a 1a: no text, and damaged by what damages line ends
//! version    u16, little endian
//! chunks     HEAD, then EVTS as often as needed, then ENDS; each with its length and a CRC-32
//! ```
//! HEAD is a [`Header`]. EVTS has up to 65,536 events and the pages that they are the first to touch, in columns that
//! are delta-coded varints, each compressed with deflate. ENDS has the [`Totals`], by which a reader knows that it
//! saw everything.
//!
//! Where events were merged ([`Header::window`]), those of one time have no order among them; see `order`.

mod block;
mod chunk;
mod header;
mod order;
mod reader;
mod reduce;
pub mod source;
mod totals;
mod varint;
mod writer;

#[cfg(test)]
mod tests;

pub use header::{Cache, Header};
pub use reader::{Limits, Reader, read};
pub use reduce::reduce;
pub use totals::Totals;
pub use writer::{Writer, write};

/// The first bytes of every trace file.
pub const MAGIC: [u8; 8] = [0x89, b'M', b'F', b'T', b'R', 0x0d, 0x0a, 0x1a];

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
