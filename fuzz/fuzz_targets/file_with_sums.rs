// SPDX-License-Identifier: MIT OR Apache-2.0
//! See memferry_fuzz::file_with_sums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| memferry_fuzz::file_with_sums(bytes));
