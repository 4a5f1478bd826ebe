// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory to measure copies with: large, aligned, backed by pages of a chosen size, and touched.
//! Nothing here is used when pages move.

use super::measure::Pages;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Alignment of every buffer: a transparent huge page of the usual size.
const ALIGN: usize = 2 << 20;

/// The smallest page of any supported architecture, in bytes; each is touched.
const PAGE: usize = 4096;

/// An owned range of memory, filled with bytes that are not all the same.
pub(super) struct Buffer {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the buffer owns its memory, which is not tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference only hands out the address; who uses it must keep accesses apart.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes`, rounded up to [`ALIGN`], and touches every page in random order, so that small pages
    /// end up scattered over physical memory as those of a long-lived process do.
    ///
    /// Aborts like any allocation if there is no address space left.
    pub(super) fn new(bytes: usize, pages: Pages) -> Self {
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        let Ok(layout) = Layout::from_size_align(bytes, ALIGN) else {
            handle_alloc_error(Layout::new::<[u8; PAGE]>());
        };
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        let advice = match pages {
            Pages::Small => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: advice on our own, page-aligned range. It changes no data; a kernel without transparent huge
        // pages refuses it, and then all pages are small.
        unsafe { libc::madvise(start.cast(), bytes, advice) };
        for page in shuffled(bytes / PAGE, 1) {
            // SAFETY: page < bytes / PAGE.
            unsafe { start.add(page * PAGE).write_bytes((page as u8) | 1, PAGE) }
        }
        Self { start, layout }
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The size in bytes, a multiple of 2 MiB.
    pub(super) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start, self.layout) }
    }
}

/// The numbers below `n` in an order that depends on `seed` only.
pub(super) fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut state = seed;
    for i in (1..n).rev() {
        // Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014), SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
    }
    order
}
