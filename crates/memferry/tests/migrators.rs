// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves that are cancelled, and migrators of one's own: with copies that panic, and with lanes of their own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Migrator, Mover, MoverOptions, Outcome};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::*;

const LEN: usize = 8 << 20;

/// Copies as another migrator does, and raises a flag at every copy.
struct Raises {
    migrator: Box<dyn Migrator>,
    flag: Arc<AtomicBool>,
}

// SAFETY: the other migrator has copied everything when it returns.
unsafe impl Migrator for Raises {
    fn name(&self) -> &'static str {
        self.migrator.name()
    }

    fn lanes(&self) -> usize {
        self.migrator.lanes()
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        self.flag.store(true, Ordering::Release);
        // SAFETY: the caller's promise.
        unsafe { self.migrator.copy(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.migrator.run(lane);
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        self.migrator.own_memory()
    }
}

/// THPs that are copied to are split, as the kernel's shrinker of underused THPs does where memory is short.
#[test]
fn a_thp_whose_destination_was_split_stays_where_it_was() {
    for split_source in [false, true] {
        let region = Region::filled(LEN, Kind::Thp, 1);
        if split_source {
            // Or khugepaged makes the block whole again at any moment.
            advise(region.addr, LEN, libc::MADV_NOHUGEPAGE).unwrap();
            advise(region.addr + HUGE, PAGE, libc::MADV_DONTNEED).unwrap();
            fill(region.addr, LEN, 1);
        }
        let whole = thp_bytes(&region.range());
        let split = AtCopy(|dst| advise(dst, PAGE, libc::MADV_DONTNEED).unwrap());
        let mover = Mover::new(MoverOptions::new(split).allow_huge_pages(true)).unwrap();
        let options = relocate().list_pages(true);
        for _ in 0..3 {
            let result = move_all(&mover, &region.range(), &options);
            assert_eq!(result.no_memory.bytes, whole as u64, "{result:?}");
            assert_eq!(result.moved.bytes, (LEN - whole) as u64, "{result:?}");
            let told = result.pages.unwrap();
            let stayed = told
                .iter()
                .filter(|&&told| told == Some(Outcome::NoMemory))
                .count();
            assert_eq!(stayed * PAGE, whole);
            assert_eq!(thp_bytes(&region.range()), whole);
            assert_filled(region.addr, LEN, 1, "split");
        }
    }
}

#[test]
fn a_cancelled_move_ends_early_and_counts_the_rest() {
    for migrator in MIGRATORS {
        for kind in KINDS {
            let region = Region::filled(LEN, kind, 1);
            let first = Arc::new(AtomicBool::new(false));
            let raises = Raises {
                migrator: options(migrator).migrator,
                flag: Arc::clone(&first),
            };
            let mover = Mover::new(MoverOptions::new(raises).allow_huge_pages(true)).unwrap();
            // Copies are the migrator's where there are free pages.
            mover.prefill(0, PAGE, LEN).unwrap();
            mover.prefill(0, HUGE, LEN).unwrap();
            let (mut early, mut seen) = (0, 0);
            for round in 0..40 {
                // The first move is cancelled at its first copy at the latest, whenever threads get a CPU.
                let cancel = match round {
                    0 => Arc::clone(&first),
                    _ => Arc::default(),
                };
                let options = relocate()
                    .cancel(Arc::clone(&cancel))
                    .source(both_sources()[round % 2]);
                let started = AtomicBool::new(false);
                let result = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !started.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        // Anywhere in the move.
                        for _ in 0..round * 2000 {
                            std::hint::spin_loop();
                        }
                        cancel.store(true, Ordering::Release);
                    });
                    started.store(true, Ordering::Release);
                    move_all(&mover, &region.range(), &options)
                });
                assert_eq!(
                    result.moved.bytes + result.cancelled_bytes,
                    LEN as u64,
                    "{migrator}, {kind:?}: {result:?}"
                );
                early += u32::from(result.cancelled_bytes > 0);
                seen += 1;
                assert_filled(region.addr, LEN, 1, migrator);
            }
            assert!(
                early > 0,
                "{migrator}, {kind:?}: none of {seen} ended early"
            );
        }
    }
}

#[test]
fn a_move_cancelled_before_it_begins_touches_nothing() {
    for migrator in MIGRATORS {
        let region = Region::filled(LEN, Kind::Base, 1);
        let frames = pfns(&region.range());
        let options = relocate()
            .cancel(Arc::new(AtomicBool::new(true)))
            .list_pages(true);
        let result = move_all(&mover(migrator), &region.range(), &options);
        assert_eq!(result.cancelled_bytes, LEN as u64, "{migrator}: {result:?}");
        assert_eq!(result.pages, Some(vec![None; LEN / PAGE]), "{migrator}");
        assert_pages_stayed(&frames, &region.range(), migrator);
    }
}

/// Copies on threads of its own, and panics in some copies after it has written half of what it should.
struct Brittle {
    lanes: usize,
    calls: AtomicUsize,
    breaks: fn(usize) -> bool,
    broken: Arc<AtomicUsize>,
}

// SAFETY: memcpy has copied everything when `copy` returns.
unsafe impl Migrator for Brittle {
    fn name(&self) -> &'static str {
        "brittle"
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let breaks = (self.breaks)(call);
        let done = if breaks { len / 2 } else { len };
        // SAFETY: the caller's promise, for all bytes or half of them.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, done) };
        if breaks {
            self.broken.fetch_add(1, Ordering::Relaxed);
            // Not `panic!`: hundreds of messages would hide the test's own.
            std::panic::resume_unwind(heap::excused(|| Box::new("this copy breaks")));
        }
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for number in 1..self.lanes {
                scope.spawn(move || lane(number));
            }
            lane(0);
        });
    }
}

fn brittle(lanes: usize, breaks: fn(usize) -> bool) -> (Mover, Arc<AtomicUsize>) {
    let broken = Arc::new(AtomicUsize::new(0));
    let migrator = Brittle {
        lanes,
        calls: AtomicUsize::new(0),
        breaks,
        broken: Arc::clone(&broken),
    };
    let mover = Mover::new(MoverOptions::new(migrator).allow_huge_pages(true)).unwrap();
    // Copies are the migrator's where there are free pages; else the kernel copies while it allocates.
    mover.prefill(0, PAGE, LEN).unwrap();
    mover.prefill(0, HUGE, LEN).unwrap();
    (mover, broken)
}

#[test]
fn a_copy_that_panics_leaves_its_batch_in_place() {
    for lanes in [1, 2, 4] {
        for kind in KINDS {
            let what = format!("{lanes} lanes, {kind:?}");
            let region = Region::filled(LEN, kind, 1);
            let (mover, broken) = brittle(lanes, |call| call == 2);
            let frames = pfns(&region.range());
            let options = relocate().list_pages(true).batch_bytes(1 << 20);
            let result = move_all(&mover, &region.range(), &options);
            assert_eq!(broken.load(Ordering::Relaxed), 1, "{what}: one copy broke");
            let batch = match kind {
                Kind::Base => 1 << 20,
                Kind::Thp => HUGE as u64,
            };
            assert!(
                result.busy.bytes > 0 && result.busy.bytes <= batch,
                "{what}: {:?} busy",
                result.busy
            );
            assert_eq!(result.moved.bytes + result.busy.bytes, LEN as u64, "{what}");
            assert_filled(region.addr, LEN, 1, &what);
            let pages = result.pages.unwrap();
            let is_busy = |page: usize| pages[page] == Some(Outcome::Busy);
            assert_stay(&frames, &region.range(), &what, is_busy);
            if kind == Kind::Thp {
                assert_eq!(thp_bytes(&region.range()), LEN, "{what}: THPs stay THPs");
            }

            // The mover goes on as if nothing had happened.
            move_whole(&mover, &region.range(), &relocate(), &what);
            assert_filled(region.addr, LEN, 1, &what);
        }
    }
}

#[test]
fn a_migrator_without_lanes_moves_nothing() {
    let region = Region::filled(LEN, Kind::Base, 1);
    let (mover, _) = brittle(0, |_| false);
    let options = relocate().batch_bytes(1 << 20);
    let refused = mover.move_range(region.range(), 0, &options).unwrap_err();
    assert!(refused.to_string().contains("lanes is 0"), "{refused}");
    assert_filled(region.addr, LEN, 1, "no lanes");
}

#[test]
fn copies_that_panic_now_and_then_lose_nothing_that_is_written() {
    for lanes in [1, 3] {
        for kind in KINDS {
            for source in both_sources() {
                let what = format!("{lanes} lanes, {kind:?}, {source:?}");
                let region = Region::filled(LEN, kind, 1);
                for page in region.range().step_by(PAGE) {
                    store(page, 0);
                }
                // Scattered, about one in five.
                let (mover, broken) =
                    brittle(lanes, |call| call.wrapping_mul(0x9E37_79B9) >> 7 & 31 < 6);
                let options = relocate().source(source);
                let sum = while_moving(&mover, &region.range(), &options, no_error, |moving| {
                    let mut passes = 0;
                    let goal = moving.rounds() + 30;
                    while moving.rounds() < goal {
                        passes += 1;
                        for page in region.range().step_by(PAGE) {
                            store(page, load(page) + 1);
                            assert_eq!(load(page), passes, "{what}");
                        }
                    }
                });
                assert!(
                    broken.load(Ordering::Relaxed) > 0,
                    "{what}: some copies broke"
                );
                assert!(
                    sum.of(Outcome::Busy) > 0 && sum.of(Outcome::Moved) > 0,
                    "{what}: {sum:?}"
                );
                assert_eq!(
                    sum.of(Outcome::Busy) + sum.of(Outcome::Moved),
                    sum.ok * LEN as u64,
                    "{what}: {sum:?}"
                );
                for page in region.range().step_by(PAGE) {
                    assert_part(&region, &(page + 8..page + PAGE), 1, &what);
                }
            }
        }
    }
}

#[test]
fn if_every_copy_panics_nothing_moves() {
    for kind in KINDS {
        let region = Region::filled(LEN, kind, 1);
        let frames = pfns(&region.range());
        let (mover, _) = brittle(2, |_| true);
        for _ in 0..3 {
            let result = move_all(&mover, &region.range(), &relocate());
            assert_eq!(result.busy.bytes, LEN as u64, "{kind:?}: {result:?}");
            assert_pages_stayed(&frames, &region.range(), "nothing moves");
            assert_filled(region.addr, LEN, 1, "nothing moves");
        }
    }
}

#[test]
fn a_migrator_with_threads_of_its_own_moves_everything() {
    for lanes in [2, 3, 8] {
        for kind in KINDS {
            for batch_bytes in [PAGE, 3 * PAGE, 1 << 20, HUGE] {
                let what = format!("{lanes} lanes, {kind:?}, batches of {batch_bytes}");
                let region = Region::filled(LEN, kind, 1);
                let (mover, _) = brittle(lanes, |_| false);
                for source in both_sources() {
                    let frames = pfns(&region.range());
                    let options = relocate().source(source).batch_bytes(batch_bytes);
                    move_whole(&mover, &region.range(), &options, &what);
                    assert_pages_changed(&frames, &region.range(), &what);
                    assert_filled(region.addr, LEN, 1, &what);
                }
            }
        }
    }
}

/// A migrator whose `run` panics after its lanes are done.
struct PanicsAfter;

// SAFETY: memcpy has copied everything when `copy` returns.
unsafe impl Migrator for PanicsAfter {
    fn name(&self) -> &'static str {
        "panics-after"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        lane(0);
        std::panic::resume_unwind(Box::new("run breaks"));
    }
}

#[test]
fn a_panic_of_run_is_passed_on_with_every_page_in_place() {
    let region = Region::filled(LEN, Kind::Base, 1);
    let mut mover = Mover::new(MoverOptions::new(PanicsAfter)).unwrap();
    for _ in 0..3 {
        let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            mover.move_range(region.range(), 0, &relocate()).map(drop)
        }));
        assert!(moved.is_err(), "the panic is passed on");
        assert_filled(region.addr, LEN, 1, "after the panic");
    }
    mover.set_migrator(memferry::Batch::default());
    let what = "with another migrator";
    move_whole(&mover, &region.range(), &relocate(), what);
    assert_filled(region.addr, LEN, 1, what);
}

#[test]
fn a_paced_move_takes_its_time_and_can_be_cancelled() {
    const PACED: usize = 16 << 20;
    let region = Region::filled(PACED, Kind::Base, 8);
    let paced =
        |bytes_per_second, cancel| relocate().bytes_per_second(bytes_per_second).cancel(cancel);
    for migrator in MIGRATORS {
        let mover = mover(migrator);
        let result = move_whole(&mover, &region.range(), &paced(64 << 20, None), migrator);
        // The last part of 2 MiB is not waited for.
        let least = std::time::Duration::from_millis(14 * 1000 / 64);
        assert!(result.elapsed >= least, "{migrator}: {:?}", result.elapsed);

        // The first part moves; the second one would come in years.
        let cancel = Arc::new(AtomicBool::new(false));
        let options = paced(1, Some(Arc::clone(&cancel)));
        let handle = mover.move_range_async(region.range(), 0, &options).unwrap();
        while handle.progress().0 < 2 << 20 {
            std::thread::yield_now();
        }
        cancel.store(true, Ordering::Relaxed);
        let result = handle.wait().unwrap();
        assert_eq!(result.moved.bytes, 2 << 20, "{migrator}: {result:?}");
        assert_eq!(result.cancelled_bytes, (PACED - (2 << 20)) as u64);
    }
    assert_filled(region.addr, region.len, 8, "paced");
}

/// Lets the kernel take what it may of the pages that it is to copy.
struct TakesAway;

// SAFETY: all is copied when `copy` returns.
unsafe impl Migrator for TakesAway {
    fn name(&self) -> &'static str {
        "takes-away"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        advise(src as usize, len, libc::MADV_PAGEOUT).unwrap();
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }
}

/// The kernel discards pages that were freed lazily (MADV_FREE) when it needs memory, also while they are moved.
#[test]
fn pages_that_are_discarded_while_they_are_away_come_back_empty() {
    const NAME: &str = "pages_that_are_discarded_while_they_are_away_come_back_empty";
    in_own_process(NAME, || {
        let region = Region::filled(LEN, Kind::Base, 1);
        advise(region.addr, LEN, libc::MADV_FREE).unwrap();
        let mover = Mover::new(MoverOptions::new(TakesAway)).unwrap();
        mover.prefill(0, PAGE, LEN).unwrap();
        move_whole(&mover, &region.range(), &relocate(), "lazily freed");
        let pages = || (region.addr..region.addr + LEN).step_by(PAGE);
        for page in pages().filter(|page| load(*page) != 0) {
            assert_part(&region, &(page..page + PAGE), 1, "kept");
        }
        let empty = pages().filter(|page| load(*page) == 0).count();
        assert!(empty > LEN / PAGE / 2, "{empty} pages were discarded");
    });
}
