// SPDX-License-Identifier: MIT OR Apache-2.0
//! The declarations of the core's headers, by hand, and compared with what the C compiler
//! sees by this module's tests. Nothing here decides or checks anything.

use std::ffi::c_int;

/// Bytes to copy from one place to another: a folio of a batch, or a lane's part of one.
///
/// Addresses are numbers of one address space; dealing never follows them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Address of the first byte to read.
    pub src: u64,
    /// Address of the first byte to write.
    pub dst: u64,
    /// Length of both in bytes, at least 1.
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    pub bytes: u64,
    pub first: u32,
    pub count: u32,
}

#[repr(C)]
pub(crate) struct Deal {
    pub extents: *const Extent,
    pub nr_extents: usize,
    pub granule: u64,
    pub nr_lanes: u32,
    pub flags: u32,
    pub out: *mut Extent,
    pub out_space: usize,
    pub lanes: *mut Lane,
    pub scratch: *mut u32,
    pub scratch_space: usize,
}

/// The granule where there is no better one, in bytes: 64 KiB. One granule more or less on a
/// lane costs a few microseconds, and pieces stay long enough for prefetchers and DMA bursts.
pub const GRANULE_DEFAULT: u64 = 64 << 10;
/// The smallest granule in bytes: Linux's smallest base page. On a host with larger pages
/// use at least its page size.
pub const GRANULE_MIN: u64 = 4096;
/// The largest granule in bytes: Linux's largest folio.
pub const GRANULE_MAX: u64 = 1 << 30;
/// The most lanes of one deal.
pub const LANES_MAX: usize = 1024;
/// The most extents of one batch.
pub const EXTENTS_MAX: usize = 1 << 28;
/// The most bytes of one batch.
pub const BYTES_MAX: u64 = 1 << 62;

pub(crate) const EEXIST: c_int = 17;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const EOVERFLOW: c_int = 75;

unsafe extern "C" {
    pub(crate) safe fn ferry_deal_space(nr_extents: usize, nr_lanes: u32) -> usize;
    pub(crate) safe fn ferry_extents_scratch(nr_extents: usize) -> usize;
    /// # Safety
    /// Each pointer of `deal` that is not null must be valid for as many entries as the field
    /// beside it says (`lanes`: `nr_lanes`), for writes where it is `*mut`, and the spaces
    /// must not overlap each other.
    pub(crate) fn ferry_deal(deal: *const Deal) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::{CStr, c_char};
    use std::mem::{align_of, offset_of, size_of};

    #[repr(C)]
    struct Layout {
        name: *const c_char,
        at: u64,
        size: u64,
        align: u64,
    }

    #[link(name = "memferry_core_layout", kind = "static")]
    unsafe extern "C" {
        static ferry_layouts: [Layout; 0];
        static ferry_nr_layouts: usize;
    }

    type Row = (String, u64, u64, u64);

    fn layout_in_c() -> Vec<Row> {
        // SAFETY: the table is constant, has as many rows as its length says, and each name
        // is a string literal.
        let rows = unsafe {
            std::slice::from_raw_parts((&raw const ferry_layouts).cast(), ferry_nr_layouts)
        };
        let row = |row: &Layout| {
            // SAFETY: see above.
            let name = unsafe { CStr::from_ptr(row.name) };
            (
                name.to_string_lossy().into_owned(),
                row.at,
                row.size,
                row.align,
            )
        };
        rows.iter().map(row).collect()
    }

    fn size_of_field<S, F>(_: fn(&S) -> &F) -> u64 {
        size_of::<F>() as u64
    }

    macro_rules! structure {
        ($rows:ident, $c:literal, $rust:ty, $($field:ident),*) => {
            $rows.push(($c.into(), 0, size_of::<$rust>() as u64, align_of::<$rust>() as u64));
            $($rows.push((
                concat!($c, ".", stringify!($field)).into(),
                offset_of!($rust, $field) as u64,
                size_of_field(|s: &$rust| &s.$field),
                0,
            ));)*
        };
    }

    #[test]
    fn declarations_equal_the_c_headers() {
        let mut rows: Vec<Row> = Vec::new();
        structure!(rows, "ferry_extent", Extent, src, dst, bytes);
        structure!(rows, "ferry_lane", Lane, bytes, first, count);
        structure!(
            rows,
            "ferry_deal",
            Deal,
            extents,
            nr_extents,
            granule,
            nr_lanes,
            flags,
            out,
            out_space,
            lanes,
            scratch,
            scratch_space
        );
        for (name, value) in [
            ("FERRY_GRANULE_DEFAULT", GRANULE_DEFAULT),
            ("FERRY_GRANULE_MIN", GRANULE_MIN),
            ("FERRY_GRANULE_MAX", GRANULE_MAX),
            ("FERRY_LANES_MAX", LANES_MAX as u64),
            ("FERRY_EXTENTS_MAX", EXTENTS_MAX as u64),
            ("FERRY_BYTES_MAX", BYTES_MAX),
            ("FERRY_EEXIST", EEXIST as u64),
            ("FERRY_EINVAL", EINVAL as u64),
            ("FERRY_EOVERFLOW", EOVERFLOW as u64),
        ] {
            rows.push((name.into(), value, 0, 0));
        }
        assert_eq!(rows, layout_in_c());
    }

    const UNTOUCHED: u64 = 0xa5a5_a5a5_a5a5_a5a5;

    proptest! {
        /// Batches in a crowded address space, most of which overlap or do not fit.
        #[test]
        fn a_refused_deal_writes_nothing(
            batch in prop::collection::vec((0..40_u64, 0..40_u64, 0..5_u64), 1..8),
            high in any::<bool>(),
            nr_lanes in 0..5_u32,
            granule in prop::sample::select(vec![0, 1, 2048, 4096, 4097, 1 << 30, 1 << 31]),
            out_space in 0..16_usize,
            scratch_space in 0..40_usize,
            flags in 0..3_u32,
        ) {
            let base = if high { u64::MAX - 40 } else { 0 };
            let extents: Vec<Extent> = batch
                .iter()
                .map(|&(src, dst, bytes)| Extent { src: src + base, dst: dst + base, bytes })
                .collect();
            let piece = Extent { src: UNTOUCHED, dst: UNTOUCHED, bytes: UNTOUCHED };
            let lane = Lane { bytes: UNTOUCHED, first: 1, count: 2 };
            let mut out = vec![piece; out_space];
            let mut lanes = vec![lane; nr_lanes as usize];
            let mut scratch = vec![0; scratch_space];
            let deal = Deal {
                extents: extents.as_ptr(),
                nr_extents: extents.len(),
                granule,
                nr_lanes,
                flags,
                out: out.as_mut_ptr(),
                out_space,
                lanes: lanes.as_mut_ptr(),
                scratch: scratch.as_mut_ptr(),
                scratch_space,
            };
            // SAFETY: every pointer is of a vector of as many entries as declared.
            let code = unsafe { ferry_deal(&deal) };
            prop_assert!(code <= 0);
            if code < 0 {
                prop_assert!(out.iter().all(|&written| written == piece));
                prop_assert!(lanes.iter().all(|&written| written == lane));
            } else {
                prop_assert!(lanes.iter().all(|&written| written != lane));
            }
        }
    }
}
