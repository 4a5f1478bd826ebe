// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput of a list of scattered ranges against the same bytes in one range, run by run in turns, every byte compared after
//! each move.
//!
//! `list_speed [PIECE [COUNT [RANGE]]]`: bytes of a piece, how many, and bytes of the range that they are spread over; 16,384,
//! 4,096 and 4 GiB unless told.

#![allow(clippy::unwrap_used, reason = "an example")]

use memferry::{
    MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, SourcePages, default_lanes,
};
use std::ops::Range;

const PAGE: usize = 4096;
const RUNS: usize = 9;

fn word(addr: usize, salt: usize) -> usize {
    (addr ^ salt.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn each_word(ranges: &[Range<usize>], mut see: impl FnMut(usize)) {
    for range in ranges {
        range.clone().step_by(8).for_each(&mut see);
    }
}

/// Moves the ranges after they were filled anew; GB/s.
fn timed(mover: &Mover, ranges: &[Range<usize>], salt: usize, options: &MoveOptions) -> f64 {
    // SAFETY: words of the mapping below, which nobody else uses.
    each_word(ranges, |addr| unsafe {
        std::ptr::with_exposed_provenance_mut::<usize>(addr).write_volatile(word(addr, salt));
    });
    let bytes: usize = ranges.iter().map(Range::len).sum();
    let total = mover.move_pages(ranges, 0, options).unwrap().total;
    assert_eq!(total.moved.bytes, bytes as u64, "{total:?}");
    each_word(ranges, |addr| {
        // SAFETY: as above.
        let found = unsafe { std::ptr::with_exposed_provenance::<usize>(addr).read_volatile() };
        assert_eq!(found, word(addr, salt), "{addr:#x} after the move");
    });
    bytes as f64 / total.elapsed.as_secs_f64() / 1e9
}

fn median(gbps: &mut [f64]) -> f64 {
    gbps.sort_by(f64::total_cmp);
    gbps[gbps.len() / 2]
}

fn main() {
    let given: Vec<usize> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    let piece = given.first().copied().unwrap_or(16 << 10);
    let count = given.get(1).copied().unwrap_or(4096);
    let range = given.get(2).copied().unwrap_or(4 << 30);
    let step = range / count / PAGE * PAGE;
    assert!(
        piece % PAGE == 0 && piece <= step / 2,
        "pieces of whole pages, at most half of {step}"
    );
    // The same bytes in one range lie behind the others.
    let bytes = range + piece * count;
    // SAFETY: an anonymous mapping at an address that the kernel chooses, never unmapped.
    let start = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "no memory");
        libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
        start.expose_provenance()
    };
    let list: Vec<_> = (0..count)
        .map(|index| start + index * step..start + index * step + piece)
        .collect();
    let whole = start + range..start + bytes;
    let whole = std::slice::from_ref(&whole);
    println!(
        "{count} pieces of {piece} bytes, one each {step} bytes, against one range of {} bytes",
        piece * count
    );
    for lanes in [1, default_lanes()] {
        for warm in [true, false] {
            let migrator = MtCopy::new(MtCopyOptions::default().lanes(lanes));
            let mover =
                Mover::new(MoverOptions::new(migrator.unwrap()).pool_bytes(2 * piece * count));
            let (mover, mut options) = (mover.unwrap(), MoveOptions::default());
            options.relocate = true;
            if warm {
                // SAFETY: nothing of the mapping was spliced into a pipe or sent.
                options.source = unsafe { SourcePages::keep() };
            }
            let mut results = [const { Vec::new() }; 2];
            for run in 0..=RUNS {
                for (ranges, gbps) in [whole, &list].into_iter().zip(&mut results) {
                    let run_gbps = timed(&mover, ranges, run, &options);
                    if run > 0 {
                        gbps.push(run_gbps);
                    }
                }
            }
            let [one, scattered] = results.map(|mut gbps| median(&mut gbps));
            println!(
                "lanes {lanes}, {}: one range {one:.2} GB/s, list {scattered:.2} GB/s, ratio {:.2}",
                if warm { "warm" } else { "cold" },
                scattered / one
            );
        }
    }
}
