// SPDX-License-Identifier: MIT OR Apache-2.0
//! A move asks the heap for nothing while it watches a range, whatever owners do meanwhile. Every other test asserts the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::Mover;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

const LEN: usize = 16 << 20;

/// Empties pages and writes to them again until told to stop: the same ones, as fast as it can.
fn disturb(region: &Region, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for at in (region.addr + PAGE..region.addr + LEN).step_by(64 * PAGE) {
            advise(at, PAGE, libc::MADV_DONTNEED).unwrap();
            store(at, 1);
        }
    }
}

#[test]
fn a_move_asks_no_heap_for_memory() {
    for migrator in MIGRATORS {
        let mover = Mover::new(options(migrator)).unwrap();
        for kind in KINDS {
            for (list_pages, disturbed) in [(false, false), (true, false), (true, true)] {
                let region = Region::filled(LEN, kind, 1);
                if kind == Kind::Base {
                    // Every second page is a hole: as many runs as there can be.
                    for at in region.range().step_by(2 * PAGE) {
                        advise(at, PAGE, libc::MADV_DONTNEED).unwrap();
                    }
                }
                let ask = relocate().list_pages(list_pages);
                let stop = AtomicBool::new(!disturbed);
                let moved = std::thread::scope(|scope| {
                    scope.spawn(|| disturb(&region, &stop));
                    let moves = (0..4).map(|_| mover.move_range(region.range(), 0, &ask));
                    let moved: u64 = moves.map(|result| result.unwrap().moved.bytes).sum();
                    let all = region.range().step_by(32 * PAGE);
                    let list: Vec<_> = all.map(|at| at..at + 16 * PAGE).collect();
                    mover.move_pages(&list, 0, &ask).unwrap();
                    stop.store(true, Ordering::Relaxed);
                    moved
                });
                assert!(moved > 0, "{migrator} {kind:?} {disturbed}");
                heap::assert_heap_unasked();
            }
        }
    }
}
