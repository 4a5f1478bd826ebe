// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scarce resources: address space, descriptors, the pool's limit; and that memory is given back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Mover, MoverOptions, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::*;

/// Sets a soft limit; `None` lifts it as far as the hard one.
fn limit(what: libc::__rlimit_resource_t, value: Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit, then reads it.
    unsafe {
        check(libc::getrlimit(what, &raw mut limit)).unwrap();
        limit.rlim_cur = value.unwrap_or(limit.rlim_max);
        check(libc::setrlimit(what, &raw const limit)).expect("a soft limit");
    }
}

#[test]
fn without_address_space_pages_stay_and_are_counted() {
    in_own_process("without_address_space_pages_stay_and_are_counted", || {
        for migrator in MIGRATORS {
            for kind in KINDS {
                let region = Region::filled(4 << 20, kind, 1);
                let frames = pfns(&region.range());
                let mover = mover(migrator);
                // Room for the heap, not for a staging range.
                let room = (status_kb("VmSize:") + 8192) << 10;
                limit(libc::RLIMIT_AS, Some(room as u64));
                let result = mover.move_range(region.range(), 0, &relocate());
                limit(libc::RLIMIT_AS, None);
                let result = result.expect("single pages, no error");
                assert_each_byte_once(&result, region.len);
                assert_eq!(
                    result.no_memory.bytes, region.len as u64,
                    "{migrator}, {kind:?}: {result:?}"
                );
                assert_pages_stayed(&frames, &region.range(), migrator);
                move_whole(&mover, &region.range(), &relocate(), "with room");
                assert_filled(region.addr, region.len, 1, migrator);
            }
        }
    });
}

#[test]
fn without_descriptors_nothing_moves_and_the_error_says_why() {
    in_own_process(
        "without_descriptors_nothing_moves_and_the_error_says_why",
        || {
            let region = Region::filled(4 << 20, Kind::Base, 1);
            let mover = mover("batch");
            // Every limit, from none on, until it works; what is open stays open.
            let frames = pfns(&region.range());
            let mut failed = 0;
            for most in 0..100 {
                limit(libc::RLIMIT_NOFILE, Some(most));
                let result = mover.move_range(region.range(), 0, &relocate());
                limit(libc::RLIMIT_NOFILE, None);
                match result {
                    Ok(result) => {
                        assert_eq!(result.moved.bytes, region.len as u64);
                        assert_filled(region.addr, region.len, 1, "moved");
                        assert!(failed > 0, "some were too few");
                        return;
                    }
                    Err(MoveError::System { source, .. }) => {
                        assert_eq!(source.raw_os_error(), Some(libc::EMFILE), "{source}");
                        assert_pages_stayed(&frames, &region.range(), "no descriptor");
                        assert_filled(region.addr, region.len, 1, "no descriptor");
                        failed += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            panic!("a hundred descriptors do not suffice");
        },
    );
}

fn with_pool(migrator: &str, pool_bytes: usize) -> memferry::Mover {
    memferry::Mover::new(options(migrator).pool_bytes(pool_bytes)).unwrap()
}

#[test]
fn a_pool_without_room_still_moves_everything() {
    for migrator in MIGRATORS {
        for kind in KINDS {
            for pool_bytes in [0, PAGE, 1 << 20, 3 << 20] {
                for source in both_sources() {
                    let what = format!("{migrator}, {kind:?}, pool of {pool_bytes}");
                    let region = Region::filled(8 << 20, kind, 1);
                    let mover = with_pool(migrator, pool_bytes);
                    for _ in 0..3 {
                        let frames = pfns(&region.range());
                        let options = relocate().source(source);
                        move_whole(&mover, &region.range(), &options, &what);
                        assert!(mover.pool_bytes() <= pool_bytes, "{what}");
                        assert_pages_changed(&frames, &region.range(), &what);
                        assert_filled(region.addr, region.len, 1, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn prefill_stops_at_the_pools_limit() {
    for migrator in MIGRATORS {
        for limit in [0, PAGE, 1 << 20, HUGE, 3 << 20, 5 << 20] {
            let mover = with_pool(migrator, limit);
            let kept = mover.prefill(0, PAGE, 4 << 20).unwrap();
            assert!(
                kept <= limit && kept + HUGE > limit.min(4 << 20),
                "{migrator}: {kept} kept of {limit}"
            );
            assert_eq!(mover.pool_bytes(), kept, "{migrator}");
            let kept_huge = mover.prefill(0, HUGE, 4 << 20).unwrap();
            assert_eq!(kept_huge % HUGE, 0, "{migrator}");
            assert!(mover.pool_bytes() <= limit, "{migrator}");
        }
    }
}

#[test]
fn the_pool_is_trimmed_to_what_is_asked() {
    let mover = with_pool("mtcopy", 16 << 20);
    assert_eq!(mover.prefill(0, PAGE, 16 << 20).unwrap(), 16 << 20);
    mover.trim_pool(5 << 20);
    assert!(mover.pool_bytes() <= 5 << 20, "{}", mover.pool_bytes());
    let region = Region::filled(8 << 20, Kind::Base, 1);
    let options = relocate().source(both_sources()[1]);
    move_whole(&mover, &region.range(), &options, "trimmed");
    mover.trim_pool(0);
    assert_eq!(mover.pool_bytes(), 0);
    assert_filled(region.addr, region.len, 1, "trimmed");
}

#[test]
fn a_dropped_mover_gives_its_memory_back() {
    in_own_process("a_dropped_mover_gives_its_memory_back", || {
        const POOL: usize = 64 << 20;
        // Whatever the first mover leaves in the allocator is no leak.
        drop(mover("mtcopy"));
        let (resident, size) = (status_kb("VmRSS:"), status_kb("VmSize:"));
        for kind in [PAGE, HUGE] {
            let mover = with_pool("mtcopy", POOL);
            assert_eq!(mover.prefill(0, kind, POOL).unwrap(), POOL);
            let full = status_kb("VmRSS:");
            assert!(
                full >= resident + (POOL >> 10) * 9 / 10,
                "{resident} kB, then {full}"
            );
            drop(mover);
            let after = status_kb("VmRSS:");
            assert!(
                after < resident + 4096,
                "{resident} kB before, {after} after"
            );
            let after = status_kb("VmSize:");
            assert!(
                after < size + 4096,
                "{size} kB of addresses before, {after} after"
            );
        }
    });
}

#[test]
fn a_move_needs_little_memory_beside_the_pool() {
    in_own_process("a_move_needs_little_memory_beside_the_pool", || {
        const LEN: usize = 256 << 20;
        const POOL: usize = 32 << 20;
        for migrator in MIGRATORS {
            for kind in KINDS {
                for source in both_sources() {
                    let what = format!("{migrator}, {kind:?}, {source:?}");
                    let region = Region::new(LEN, kind);
                    for page in region.range().step_by(PAGE) {
                        store(page, page as u64);
                    }
                    let mover = with_pool(migrator, POOL);
                    let before = status_kb("VmRSS:");
                    let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
                    let (samples, started) = (AtomicUsize::new(0), AtomicBool::new(false));
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            while !over.load(Ordering::Acquire) {
                                most.fetch_max(status_kb("VmRSS:"), Ordering::Relaxed);
                                samples.fetch_add(1, Ordering::Relaxed);
                                started.store(true, Ordering::Release);
                            }
                        });
                        let _raise = Raise(&over);
                        while !started.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                        let options = relocate().source(source);
                        // On a busy machine the sampler may get no CPU during the first ones.
                        for round in 0..200 {
                            if round >= 3 && samples.load(Ordering::Relaxed) > 3 {
                                break;
                            }
                            move_whole(&mover, &region.range(), &options, &what);
                        }
                    });
                    let extra = most.load(Ordering::Relaxed).saturating_sub(before);
                    assert!(
                        extra <= (POOL + (64 << 20)) >> 10,
                        "{what}: {extra} kB more while it moved"
                    );
                    assert!(samples.load(Ordering::Relaxed) > 3, "{what}");
                    for page in region.range().step_by(PAGE) {
                        assert_eq!(load(page), page as u64, "{what}");
                    }
                }
            }
        }
    });
}

#[test]
fn two_movers_move_neighbouring_ranges_at_once() {
    for kind in KINDS {
        let region = Region::filled(16 << 20, kind, 1);
        let middle = region.addr + (8 << 20);
        std::thread::scope(|scope| {
            for half in [region.addr..middle, middle..region.addr + region.len] {
                scope.spawn(move || {
                    let mover = mover("mtcopy");
                    for round in 0..60 {
                        let options = relocate().source(both_sources()[round % 2]);
                        move_whole(&mover, &half, &options, "a half");
                    }
                });
            }
        });
        assert_filled(region.addr, region.len, 1, "both halves");
    }
}

/// After its first part such a move waits for hours.
#[test]
fn a_move_with_a_rate_lets_others_go_before() {
    for migrator in MIGRATORS {
        let [slow, quick] = [1, 2].map(|seed| Region::filled(8 << 20, Kind::Base, seed));
        let mover = mover(migrator);
        let handle = mover
            .move_range_async(slow.range(), 0, &relocate().bytes_per_second(1))
            .unwrap();
        while handle.progress().0 == 0 {
            assert!(!handle.is_over());
            std::thread::yield_now();
        }
        for _ in 0..3 {
            move_whole(&mover, &quick.range(), &relocate(), migrator);
        }
        assert!(!handle.is_over());
        handle.cancel();
        let result = handle.wait().unwrap();
        assert_eq!(result.moved.bytes, HUGE as u64, "{migrator}");
        assert_eq!(result.cancelled_bytes, (slow.len - HUGE) as u64);
        assert_filled(slow.addr, slow.len, 1, migrator);
        assert_filled(quick.addr, quick.len, 2, migrator);
    }
}

#[test]
fn of_two_movers_of_one_range_one_is_refused_at_a_time() {
    let region = Region::filled(4 << 20, Kind::Base, 1);
    let watched = |error: &MoveError| matches!(error, MoveError::Watched { .. });

    // Begun copies are held up until they are let go.
    let flags = Arc::new([const { AtomicBool::new(false) }; 2]);
    let [copying, let_go] = &*flags;
    let of_copies = Arc::clone(&flags);
    let held = AtCopy(move |_| {
        let [copying, let_go] = &*of_copies;
        copying.store(true, Ordering::Release);
        while !let_go.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let (one, two) = (Mover::new(MoverOptions::new(held)).unwrap(), mover("batch"));
    // Copies are the migrator's where there are free pages.
    one.prefill(0, PAGE, region.len).unwrap();
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| move_whole(&one, &region.range(), &relocate(), "held"));
        let _raise = Raise(let_go);
        while !copying.load(Ordering::Acquire) {
            assert!(!moved.is_finished(), "it has moved without a copy");
            std::thread::yield_now();
        }
        let refused = two.move_range(region.range(), 0, &relocate());
        assert!(
            matches!(&refused, Err(MoveError::Watched { range }) if *range == region.range()),
            "{refused:?}"
        );
        let_go.store(true, Ordering::Release);
        moved.join().unwrap();
    });
    let what = "one after the other";
    move_whole(&two, &region.range(), &relocate(), what);
    assert_filled(region.addr, region.len, 1, what);

    let one = mover("mtcopy");
    let sum = while_moving(&one, &region.range(), &relocate(), watched, |_| {
        while_moving(&two, &region.range(), &relocate(), watched, |moving| {
            moving.wait_rounds(100);
            for page in region.range().step_by(PAGE) {
                store(page, load(page));
            }
        });
    });
    assert!(sum.of(Outcome::Moved) > 0, "{sum:?}");
    assert_filled(region.addr, region.len, 1, "two movers");
}
