// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes allocate nothing while they work: the heap's locks may be held by threads that wait for a page that is away, and
//! its own lists may lie in pages that are away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Migrator, Mover, MoverOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::*;

thread_local! {
    static IN_LANE: Cell<bool> = const { Cell::new(false) };
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator; counts what lanes ask of it, and says who asked.
struct Counting;

impl Counting {
    fn note(what: &str) {
        if IN_LANE.replace(false) {
            if SEEN.fetch_add(1, Ordering::Relaxed) < 10 {
                let trace = std::backtrace::Backtrace::force_capture();
                eprintln!("{what} in a lane:\n{trace}");
            }
            IN_LANE.set(true);
        }
    }
}

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note("an allocation");
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Counting::note("a release");
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Marks the time that lanes work.
struct Marked(Box<dyn Migrator>);

// SAFETY: the other migrator has copied everything when it returns.
unsafe impl Migrator for Marked {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.0.copy(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.0.run(&|n| {
            IN_LANE.set(true);
            lane(n);
            IN_LANE.set(false);
        });
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        self.0.own_memory()
    }
}

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
fn lanes_ask_no_heap_for_memory() {
    for migrator in MIGRATORS {
        let mover = Mover::new(MoverOptions::new(Marked(options(migrator).migrator))).unwrap();
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
                let seen = SEEN.load(Ordering::Relaxed);
                assert_eq!(seen, 0, "{migrator} {kind:?} {disturbed}");
            }
        }
    }
}
