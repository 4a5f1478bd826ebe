// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of memory accesses, and the replay of tiering policies on them.

pub mod event;
pub mod trace;
