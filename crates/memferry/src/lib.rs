// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves memory pages between the tiers of one machine at the speed of the memory.

pub mod copy;
pub mod topology;
