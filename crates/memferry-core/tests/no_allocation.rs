// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mover deals batch after batch: after the largest one it must not allocate any more.
//! Alone in its program, because it counts what the whole program allocates.

use memferry_core::{Deal, Dealt, Extent, GRANULE_DEFAULT};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 64 KiB folios whose destinations descend, so that the scratch is needed.
fn batch(folios: u64) -> Vec<Extent> {
    let bytes = 64 << 10;
    (0..folios)
        .map(|at| Extent {
            src: at * bytes,
            dst: (1 << 40) - at * bytes,
            bytes,
        })
        .collect()
}

fn main() {
    let batches: Vec<_> = [512, 1, 300, 512, 7].map(batch).into();
    let mut dealt = Dealt::new(Deal::new(16, GRANULE_DEFAULT).expect("a valid deal"));
    dealt.deal_into(&batches[0]).expect("a valid batch");

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for extents in &batches {
        dealt.deal_into(extents).expect("a valid batch");
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(before > 0, "the counter counts");
    assert_eq!(after, before, "dealing allocated after the largest batch");
    println!("no allocation in {} deals", batches.len());
}
