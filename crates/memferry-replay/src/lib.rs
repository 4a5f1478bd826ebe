// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of memory accesses, and the replay of tiering policies on them.
//!
//! Reading order: `event` (what a trace is), `trace` (its file), `machine` (what it is replayed on), `truth` (what it says by
//! itself) and `seen` (what the source shows of that), `tiers`, `policy`, `replay`, `outcome`.

mod error;
pub mod event;
pub mod machine;
pub mod outcome;
pub mod policy;
mod random;
pub mod replay;
mod seen;
mod source;
pub mod synthetic;
pub mod tiers;
pub mod trace;
pub mod truth;

pub use error::Error;
