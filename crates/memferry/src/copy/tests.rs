// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every available routine against a byte-by-byte expectation: all short lengths, all alignments, the edges of
//! mappings, and threads side by side. Nothing here depends on time.

use super::best::{choose, parse, winner};
use super::*;
use proptest::prelude::*;
use std::time::Duration;

/// What lies around a destination, and must still lie there afterwards.
const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 128;

/// The longest stretch whose lengths are all tried: four blocks of four lines, and one line more.
const SHORT: usize = 4 * 4 * 64 + 64;

/// Memory whose first byte is aligned to a line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code, reason = "read through a pointer")] [u8; 64]);

struct Lines(Vec<Line>);

impl Lines {
    fn filled(bytes: usize, byte: u8) -> Self {
        Self(vec![Line([byte; 64]); bytes.div_ceil(64)])
    }

    /// No period that is a power of two, and never the guard.
    fn pattern(bytes: usize) -> Self {
        let mut lines = Self::filled(bytes, 0);
        for (i, byte) in lines.bytes().iter_mut().enumerate() {
            *byte = (i % 163) as u8;
        }
        lines
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&*self.0);
        // SAFETY: a `Line` is 64 bytes without padding, so the lines are one range of bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) }
    }
}

/// Copies `len` bytes at these offsets and checks them and the guards; leaves the destination as it was.
fn check(routine: Routine, src: &mut Lines, from: usize, dst: &mut Lines, to: usize, len: usize) {
    let (src, dst) = (src.bytes(), dst.bytes());
    let start = GUARD_BYTES + to;
    // SAFETY: indexing checks both ranges.
    unsafe {
        routine.copy(
            src[from..from + len].as_ptr(),
            dst[start..start + len].as_mut_ptr(),
            len,
        )
    }
    let around = start - GUARD_BYTES..start + len + GUARD_BYTES;
    let (before, rest) = dst[around.clone()].split_at(GUARD_BYTES);
    let (copied, after) = rest.split_at(len);
    let context = (routine, from, to, len);
    assert!(copied == &src[from..from + len], "wrong bytes: {context:?}");
    assert!(
        before.iter().chain(after).all(|&b| b == GUARD),
        "wrote outside: {context:?}"
    );
    dst[around].fill(GUARD);
}

#[test]
fn short_lengths_at_all_alignments() {
    let mut src = Lines::pattern(SHORT + 64);
    let mut dst = Lines::filled(SHORT + 64 + 2 * GUARD_BYTES, GUARD);
    for &routine in available() {
        for len in 0..=SHORT {
            // Every length meets every alignment of the destination; the source's go round beside it.
            for to in 0..64 {
                check(routine, &mut src, (to * 5 + len) % 64, &mut dst, to, len);
            }
        }
        for from in 0..64 {
            for to in 0..64 {
                for len in [1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1025] {
                    check(routine, &mut src, from, &mut dst, to, len);
                }
            }
        }
    }
}

#[test]
fn lengths_around_the_split_into_streams() {
    const PAGE: usize = 4096;
    let mut src = Lines::pattern(9 * PAGE);
    let mut dst = Lines::filled(9 * PAGE, GUARD);
    for &routine in available() {
        for pages in [1, 2, 4, 8] {
            let around = pages * PAGE - 70..=pages * PAGE + 70;
            for (n, len) in around
                .chain([pages * PAGE + 256, pages * PAGE + 511])
                .enumerate()
            {
                check(routine, &mut src, 0, &mut dst, 0, len);
                check(routine, &mut src, n % 64, &mut dst, (n * 7) % 64, len);
            }
        }
        for to in 0..64 {
            check(routine, &mut src, 64 - to, &mut dst, to, 4 * PAGE + 64 + to);
        }
    }
}

/// Accessible pages between two that are not.
struct Fenced {
    map: *mut libc::c_void,
    page: usize,
    bytes: usize,
}

impl Fenced {
    fn new(bytes: usize) -> Self {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let bytes = bytes.next_multiple_of(page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping, then access to its middle; both results are checked.
        unsafe {
            let none = libc::PROT_NONE;
            let map = libc::mmap(std::ptr::null_mut(), bytes + 2 * page, none, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(map.byte_add(page), bytes, access), 0);
            Self { map, page, bytes }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the middle of the mapping is ours, accessible and zeroed by the kernel.
        unsafe { std::slice::from_raw_parts_mut(self.map.byte_add(self.page).cast(), self.bytes) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `new`.
        unsafe { libc::munmap(self.map, self.bytes + 2 * self.page) };
    }
}

#[test]
fn nothing_outside_is_read_or_written_at_the_edges_of_a_mapping() {
    let (mut src, mut dst) = (Fenced::new(40_000), Fenced::new(40_000));
    for (i, byte) in src.bytes().iter_mut().enumerate() {
        *byte = (i % 163) as u8;
    }
    let all = src.bytes.min(dst.bytes);
    let (src, dst) = (src.bytes(), dst.bytes());
    let long = [
        4095, 4096, 4097, 16_383, 16_384, 16_385, 20_000, 33_333, all,
    ];
    for &routine in available() {
        for len in (0..=SHORT).chain(long) {
            let edges = [
                (0, 0),
                (all - len, all - len),
                (0, all - len),
                (all - len, 0),
            ];
            for (from, to) in edges {
                let (s, d) = (&src[from..from + len], &mut dst[to..to + len]);
                d.fill(GUARD);
                // SAFETY: two slices of `len` bytes from separate mappings. A stray access would fault.
                unsafe { routine.copy(s.as_ptr(), d.as_mut_ptr(), len) }
                assert!(s == d, "{routine:?} {from} -> {to}, {len}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn random_extents(len in 0usize..600_000, from in 0usize..64, to in 0usize..64) {
        let mut src = Lines::pattern(len + 64);
        let mut dst = Lines::filled(len + 64 + 2 * GUARD_BYTES, GUARD);
        for &routine in available() {
            check(routine, &mut src, from, &mut dst, to, len);
        }
    }
}

#[test]
fn neighbouring_ranges_copied_by_two_threads_stay_apart() {
    const BYTES: usize = 200_000;
    let mut src = Lines::pattern(BYTES);
    let mut dst = Lines::filled(BYTES, GUARD);
    for &routine in available() {
        // Borders within a line, so that both threads write parts of the same line.
        for border in [BYTES / 2, 70_001, 130_033, 16_384 + 31] {
            for _ in 0..8 {
                dst.bytes().fill(GUARD);
                let (s, (low, high)) = (&*src.bytes(), dst.bytes().split_at_mut(border));
                std::thread::scope(|scope| {
                    // SAFETY: the destinations are disjoint slices; the source is only read.
                    scope
                        .spawn(|| unsafe { routine.copy(s.as_ptr(), low.as_mut_ptr(), low.len()) });
                    // SAFETY: the same.
                    scope.spawn(|| unsafe {
                        routine.copy(s[border..].as_ptr(), high.as_mut_ptr(), high.len())
                    });
                });
                assert!(src.bytes() == dst.bytes(), "{routine:?} {border}");
            }
        }
    }
}

#[test]
fn names_lead_back_to_their_routines() {
    assert_eq!(available()[0], memcpy());
    for routine in available() {
        assert_eq!(by_name(routine.name()), Some(*routine));
        assert!(!routine.describe().is_empty());
        assert_eq!(available().iter().filter(|r| *r == routine).count(), 1);
    }
    assert_eq!(by_name("no-such-routine"), None);
}

#[test]
fn the_variable_takes_available_names_only() {
    assert_eq!(parse(""), Ok(None));
    assert_eq!(parse("memcpy"), Ok(Some(memcpy())));
    let error = parse("fast").expect_err("no such routine").to_string();
    assert!(
        error.contains("MEMFERRY_COPY=fast") && error.contains("memcpy"),
        "{error}"
    );
}

#[test]
fn best_is_available_and_does_not_change() {
    assert!(available().contains(&winner()));
    assert!(available().contains(&best()));
    assert_eq!(best(), best());
}

#[test]
fn near_ties_go_to_the_last_routine() {
    let three = [
        memcpy(),
        Routine {
            name: "b",
            ..memcpy()
        },
        Routine {
            name: "c",
            ..memcpy()
        },
    ];
    let pick = |ns: [u64; 3]| choose(&three, &ns.map(Duration::from_nanos)).name();
    assert_eq!(pick([100, 100, 100]), "c");
    assert_eq!(pick([98, 99, 100]), "c");
    assert_eq!(pick([100, 80, 100]), "b");
    assert_eq!(pick([50, 80, 100]), "memcpy");
    assert_eq!(choose(&[], &[]), memcpy());
}
