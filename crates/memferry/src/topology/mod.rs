// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one machine has, as sysfs and procfs tell it; so far the parsers of their texts.

mod error;
pub mod parse;
#[cfg(test)]
mod tests;

pub use error::{ParseError, TopologyError};
