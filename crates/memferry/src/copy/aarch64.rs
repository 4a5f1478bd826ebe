// SPDX-License-Identifier: MIT OR Apache-2.0
//! AArch64: paired 16-byte loads and non-temporal paired stores (LDP, STNP), one stream.
//! STNP only hints that the lines should not stay in cache. Not yet measured on hardware.

use super::Routine;
use std::arch::asm;

pub(super) const NEON: Routine = Routine {
    name: "neon",
    about: "LDP/STNP of 16-byte pairs, one stream",
    bypasses_cache: false,
    copy,
};

/// Bytes copied by one step.
const BLOCK: usize = 64;

unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: `Routine::copy`'s contract; the barrier has no preconditions.
    unsafe {
        unfenced(src, dst, len);
        fence();
    }
}

#[inline(always)]
unsafe fn unfenced(src: *const u8, dst: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    let body = len & !(BLOCK - 1);
    let mut at = 0;
    while at < body {
        // SAFETY: at + BLOCK <= len, so both blocks lie inside the caller's ranges. No alignment is needed.
        unsafe {
            asm!(
                "ldp {a:q}, {b:q}, [{s}]",
                "ldp {c:q}, {d:q}, [{s}, #32]",
                "stnp {a:q}, {b:q}, [{t}]",
                "stnp {c:q}, {d:q}, [{t}, #32]",
                s = in(reg) src.add(at),
                t = in(reg) dst.add(at),
                a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
                options(nostack, preserves_flags),
            );
        }
        at += BLOCK;
    }
    // SAFETY: the rest, below one block, lies inside the caller's ranges.
    unsafe { std::ptr::copy_nonoverlapping(src.add(body), dst.add(body), len - body) }
}

/// Orders the stores above before all later ones, also for observers that follow an address dependency,
/// which STNP alone would not do.
#[inline(always)]
unsafe fn fence() {
    // SAFETY: a barrier touches no memory and no flag.
    unsafe { asm!("dmb ish", options(nostack, preserves_flags)) }
}
