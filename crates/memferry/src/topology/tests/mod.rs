// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the topology.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing has failed")]

mod parse;
