// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe Rust binding to `core/`, Memferry's C policy core.
