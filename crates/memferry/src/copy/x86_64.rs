// SPDX-License-Identifier: MIT OR Apache-2.0
//! x86-64: non-temporal stores of 16 and 32 bytes in four interleaved streams. The instructions differ per set, the loops are
//! written once.
//! What is wider than SSE2 is assembly: its intrinsics are newer than our oldest compiler.

use super::Routine;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
use std::arch::x86_64::{_MM_HINT_T1, _mm_clflush, _mm_mfence, _mm_prefetch, _mm_sfence};

/// One cache line: the unit of every loop below.
const LINE: usize = 64;

/// One small page. Streams are at least this far apart: two streams inside one page gain nothing, since the
/// hardware prefetcher follows one stream per page (9.7 GB/s with 2 KiB, 12.2 with 4 KiB distance).
const PAGE: usize = 4096;

/// Streams of an interleaving routine. Measured with 64-byte stores and prefetch, 1 MiB extents cold in DRAM:
/// 1, 2, 3, 4, 6, 8 streams copy 11.2, 12.9, 14.4, 13.7, 14.5, 13.6 GB/s with one thread and 21.9, 25.3, 26.8,
/// 26.1, 26.8, 25.7 with two. Three to six are equal within the noise.
const STREAMS: usize = 4;

/// How far ahead of each stream the source is prefetched, in bytes. Measured as above with four streams: 128,
/// 256, 384, 512, 768, 1024, 2048 bytes give 13.9, 13.4, 14.2, 13.7, 14.3, 13.7, 13.2 GB/s; without prefetch
/// 13.3 (two threads: 26.1 to 26.9 for 384 to 1024, 25.0 without).
///
/// The hint matters: the second-level cache gains, the first gains nothing, and the non-temporal hint costs a
/// third (one stream: 7.1 instead of 10.6 GB/s).
const AHEAD: usize = 512;

/// The routines of this architecture that the CPU can run, in rising order of preference.
pub(super) fn detected() -> Vec<Routine> {
    let mut routines = vec![SSE2];
    if is_x86_feature_detected!("avx2") {
        routines.push(AVX2);
    }
    routines
}

const SSE2: Routine = Routine {
    name: "sse2-nt-4",
    about: "16-byte non-temporal stores, four streams, prefetch",
    bypasses_cache: true,
    copy: copy::<Sse2>,
};
const AVX2: Routine = Routine {
    name: "avx2-nt-4",
    about: "32-byte non-temporal stores, four streams, prefetch",
    bypasses_cache: true,
    copy: copy::<Avx2>,
};

/// How one instruction set copies a line.
trait Isa {
    /// Copies one line with non-temporal stores.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set, `src` is readable and `dst` writable for [`LINE`] bytes, and `dst`
    /// is aligned to [`LINE`].
    unsafe fn line(src: *const u8, dst: *mut u8);

    /// Leaves the vector registers as compiled code expects them.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set.
    unsafe fn leave() {}
}

struct Sse2;
struct Avx2;

impl Isa for Sse2 {
    #[inline(always)]
    unsafe fn line(src: *const u8, dst: *mut u8) {
        let (src, dst) = (src.cast::<__m128i>(), dst.cast::<__m128i>());
        // SAFETY: four loads and stores of 16 bytes are the line; `dst` is aligned, and the loads need not be.
        unsafe {
            let (a, b) = (_mm_loadu_si128(src), _mm_loadu_si128(src.add(1)));
            let (c, d) = (_mm_loadu_si128(src.add(2)), _mm_loadu_si128(src.add(3)));
            _mm_stream_si128(dst, a);
            _mm_stream_si128(dst.add(1), b);
            _mm_stream_si128(dst.add(2), c);
            _mm_stream_si128(dst.add(3), d);
        }
    }
}

impl Isa for Avx2 {
    #[inline(always)]
    unsafe fn line(src: *const u8, dst: *mut u8) {
        // SAFETY: reads and writes exactly the line; the clobbers name all that changes.
        unsafe {
            asm!(
                "vmovdqu ymm0, [{s}]",
                "vmovdqu ymm1, [{s} + 32]",
                "vmovntdq [{d}], ymm0",
                "vmovntdq [{d} + 32], ymm1",
                s = in(reg) src, d = in(reg) dst,
                out("ymm0") _, out("ymm1") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// SSE code after it would pay for the upper halves of the registers as long as they are in use.
    #[inline(always)]
    unsafe fn leave() {
        // SAFETY: clears the upper halves of all sixteen registers, all named as clobbered.
        unsafe {
            asm!(
                "vzeroupper",
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

/// `Routine::copy`.
unsafe fn copy<I: Isa>(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: `Routine::copy`'s contract, and the table holds only what the CPU can run.
    unsafe {
        unfenced::<I>(src, dst, len);
        I::leave();
        _mm_sfence();
    }
}

/// Bytes up to the destination's first line boundary, lines, then the bytes that remain.
#[inline(always)]
unsafe fn unfenced<I: Isa>(src: *const u8, dst: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    let head = (dst.addr().wrapping_neg() % LINE).min(len);
    let lines = (len - head) & !(LINE - 1);
    let tail = head + lines;
    // SAFETY: head, lines and tail are parts of `len` bytes that the caller vouches for; past the head,
    // `dst` is aligned to a line, or no whole line is left.
    unsafe {
        if head != 0 {
            std::ptr::copy_nonoverlapping(src, dst, head);
        }
        whole_lines::<I>(src.add(head), dst.add(head), lines);
        if tail != len {
            std::ptr::copy_nonoverlapping(src.add(tail), dst.add(tail), len - tail);
        }
    }
}

/// Copies whole lines to an aligned destination: as streams if each gets a page or more, else as one.
#[inline(always)]
unsafe fn whole_lines<I: Isa>(src: *const u8, dst: *mut u8, bytes: usize) {
    let each = if bytes >= STREAMS * PAGE {
        (bytes / STREAMS) & !(LINE - 1)
    } else {
        0
    };
    if each != 0 {
        let (mut from, mut to) = ([src; STREAMS], [dst; STREAMS]);
        for k in 0..STREAMS {
            // SAFETY: k * each < bytes.
            unsafe { (from[k], to[k]) = (src.add(k * each), dst.add(k * each)) }
        }
        // SAFETY: the streams are disjoint parts of the caller's ranges, STREAMS * each <= bytes.
        unsafe { interleave::<I>(from, to, each) }
    }
    let mut at = STREAMS * each;
    while at < bytes {
        // SAFETY: `bytes` is a multiple of LINE, so a whole line is left.
        unsafe { I::line(src.add(at), dst.add(at)) }
        at += LINE;
    }
}

/// Copies the streams, of `bytes` each, a line of every stream in turn, and prefetches each stream's source.
#[inline(always)]
unsafe fn interleave<I: Isa>(src: [*const u8; STREAMS], dst: [*mut u8; STREAMS], bytes: usize) {
    let last = bytes.saturating_sub(AHEAD);
    let mut at = 0;
    while at < last {
        for k in 0..STREAMS {
            // SAFETY: at + AHEAD < bytes, and `bytes` is a multiple of LINE.
            unsafe {
                prefetch(src[k].add(at + AHEAD));
                I::line(src[k].add(at), dst[k].add(at));
            }
        }
        at += LINE;
    }
    while at < bytes {
        for k in 0..STREAMS {
            // SAFETY: at < bytes, and `bytes` is a multiple of LINE.
            unsafe { I::line(src[k].add(at), dst[k].add(at)) }
        }
        at += LINE;
    }
}

/// Asks for a line in the second-level cache; never faults, whatever the address.
#[inline(always)]
fn prefetch(at: *const u8) {
    // SAFETY: a prefetch is a hint without architectural effect.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// Writes every line of a range back to memory and drops it from all caches.
///
/// # Safety
///
/// The range must be mapped.
pub(super) unsafe fn flush(start: *const u8, bytes: usize) {
    // Intel SDM, CPUID leaf 7, EBX bit 23: CLFLUSHOPT, whose flushes need not wait for each other.
    #[allow(unused_unsafe, reason = "older compilers call CPUID unsafe")]
    // SAFETY: every x86-64 CPU has CPUID; a leaf that does not exist is not asked for.
    let optimised = unsafe { __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0 };
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: at < bytes; flushing changes no data; the CPU has the instruction.
        unsafe {
            let line = start.add(at);
            if optimised {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
            } else {
                _mm_clflush(line);
            }
        }
    }
    // SAFETY: a fence has no preconditions; every x86-64 CPU has it.
    unsafe { _mm_mfence() }
}
