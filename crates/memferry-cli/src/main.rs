// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `memferry` command.

fn main() {}
