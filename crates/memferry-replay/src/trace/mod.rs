// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace file and what makes one.
