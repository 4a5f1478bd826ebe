// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares: which bytes of a batch each lane of a migrator copies.

use crate::sys;
use std::ops::Range;

/// Bytes between two cuts where there is no better number: 64 KiB. One granule more or less costs a lane a few
/// microseconds, and a share is long enough for prefetchers and DMA bursts.
pub const GRANULE: usize = 64 << 10;

/// The bytes that lane `lane` of `lanes` copies of a batch of `total` bytes.
///
/// The shares follow each other and are cut at multiples of `granule`; two differ by less than two granules. The longer
/// ones come first, so that lanes without anything to copy are the last ones.
///
/// # Panics
/// If `granule` is 0, or `lane` is not below `lanes`.
pub fn share(total: usize, lanes: usize, granule: usize, lane: usize) -> Range<usize> {
    assert!(granule > 0, "a granule of 0 bytes");
    assert!(lane < lanes, "lane {lane} of {lanes}");
    // SAFETY: both are above 0.
    let begin = |lane| unsafe { sys::ferry_share_begin(total, lanes, granule, lane) };
    begin(lane)..begin(lane + 1)
}
