// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's `memcpy`, as a routine.
//! It stores through the cache; the C library may itself switch to other stores for long copies.

use super::Routine;

pub(super) const MEMCPY: Routine = Routine {
    name: "memcpy",
    about: "the C library's memcpy, through the cache",
    bypasses_cache: false,
    copy,
};

unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    if len != 0 {
        // SAFETY: `Routine::copy`'s contract: valid for `len` bytes and not overlapping.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
    }
}
