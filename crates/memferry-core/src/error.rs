// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a batch was not dealt. The core answers with a number only; what is at fault is found
//! here, after the fact, so that the good path does not pay for it.

use crate::sys::{BYTES_MAX, EEXIST, EINVAL, EOVERFLOW, EXTENTS_MAX, Extent, LANES_MAX};
use crate::sys::{GRANULE_DEFAULT, GRANULE_MAX, GRANULE_MIN};
use std::ffi::c_int;

/// Why a batch was not dealt. Indices count the extents of the batch from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DealError {
    /// No lane, or more than [`LANES_MAX`].
    #[error(
        "cannot deal to {lanes} lanes: a deal needs 1 to {LANES_MAX}; \
         pass as many as there are copiers"
    )]
    Lanes {
        /// The number that was asked for.
        lanes: usize,
    },
    /// The granule is no power of two, or out of range.
    #[error(
        "cannot deal with a granule of {granule} bytes: it must be a power of two from \
         {GRANULE_MIN} to {GRANULE_MAX}, so that cuts stay aligned to pages; \
         {GRANULE_DEFAULT} suits most machines"
    )]
    Granule {
        /// The granule that was asked for, in bytes.
        granule: u64,
    },
    /// An extent has no bytes.
    #[error("extent {index} has 0 bytes: no folio is empty; leave it out or correct its length")]
    Empty {
        /// Which extent.
        index: usize,
    },
    /// An extent reaches beyond the last 64-bit address.
    #[error(
        "extent {index} ({:#x} -> {:#x}, {} bytes) ends beyond the last 64-bit address; \
         check its addresses and its length", extent.src, extent.dst, extent.bytes
    )]
    Address {
        /// Which extent.
        index: usize,
        /// That extent.
        extent: Extent,
    },
    /// The batch has more than [`EXTENTS_MAX`] extents or [`BYTES_MAX`] bytes.
    #[error(
        "the batch of {extents} extents is too large: it may have {EXTENTS_MAX} extents and \
         {BYTES_MAX} bytes; split it into smaller batches"
    )]
    TooLarge {
        /// How many extents the batch has.
        extents: usize,
    },
    /// Two extents write one byte, or one writes what another (or itself) reads.
    #[error(
        "extents {first} and {second} overlap: lanes copy in no order, so no byte may be written \
         twice or both read and written; move such folios in separate batches"
    )]
    Overlap {
        /// The extent of the range that starts lower.
        first: usize,
        /// The extent of the other range; equal to `first` if an extent overlaps itself.
        second: usize,
    },
    /// The core answered with a number that its header does not document.
    #[error(
        "the policy core refused the batch with error {code}, which it does not \
         document; please report this"
    )]
    Undocumented {
        /// The core's answer: an error number, negated.
        code: i32,
    },
}

impl DealError {
    /// The error that `code`, the core's answer to `extents`, stands for.
    #[cold]
    pub(crate) fn of(code: c_int, extents: &[Extent]) -> Self {
        let found = match -code {
            EINVAL => empty(extents),
            EOVERFLOW => Some(address(extents).unwrap_or(Self::TooLarge {
                extents: extents.len(),
            })),
            EEXIST => overlap(extents),
            _ => None,
        };
        found.unwrap_or(Self::Undocumented { code })
    }
}

fn empty(extents: &[Extent]) -> Option<DealError> {
    let index = extents.iter().position(|extent| extent.bytes == 0)?;
    Some(DealError::Empty { index })
}

fn address(extents: &[Extent]) -> Option<DealError> {
    let ends = |extent: &Extent| {
        extent
            .src
            .checked_add(extent.bytes)
            .and(extent.dst.checked_add(extent.bytes))
    };
    let index = extents.iter().position(|extent| ends(extent).is_none())?;
    Some(DealError::Address {
        index,
        extent: extents[index],
    })
}

/// The first pair, by address, that breaks the rule of `ferry_extents_apart()`.
fn overlap(extents: &[Extent]) -> Option<DealError> {
    let mut ranges: Vec<(u64, u64, bool, usize)> = Vec::with_capacity(2 * extents.len());
    for (index, extent) in extents.iter().enumerate() {
        ranges.push((extent.src, extent.src + extent.bytes, false, index));
        ranges.push((extent.dst, extent.dst + extent.bytes, true, index));
    }
    ranges.sort_unstable();
    // The range that reaches furthest so far: of those that are read, of those written.
    let mut furthest = [(0, 0); 2];
    for (start, end, written, index) in ranges {
        for (other_written, &(other_end, first)) in furthest.iter().enumerate() {
            if start < other_end && (written || other_written == 1) {
                return Some(DealError::Overlap {
                    first,
                    second: index,
                });
            }
        }
        let reach = &mut furthest[usize::from(written)];
        *reach = (*reach).max((end, index));
    }
    None
}
