// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread changes the mappings of a range while it is moved: what it did stands, and all else keeps its data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::part::*;
use support::*;

#[test]
fn pages_that_were_thrown_away_stay_away() {
    for_each(no_error, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            advise(addr, len, libc::MADV_DONTNEED).unwrap();
            // Twice, with moves between: what was away when it was thrown away must not come back.
            assert_zero(addr, len, what);
            if time % 4 == 0 {
                moving.wait_rounds(1);
                assert_zero(addr, len, what);
            }
            fill(addr, len, time + 2);
            moving.wait_each_fourth(time, 1);
            assert_filled(addr, len, time + 2, what);
        }
    });
}

#[test]
fn pages_thrown_away_and_written_at_once_keep_the_write() {
    for_each(no_error, |_, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES * 20 {
            // One page at a time, all over the part.
            let page = addr + (time as usize * 7919 % (len / PAGE)) * PAGE;
            advise(page, PAGE, libc::MADV_DONTNEED).unwrap();
            store(page + 8, time + 1);
            assert_eq!(load(page), 0, "{what}: time {time}");
            assert_eq!(load(page + 8), time + 1, "{what}: time {time}");
        }
    });
}

/// The kernel takes pages back only while nobody changes a mapping of the watch. A move may be refused before any page leaves.
#[test]
fn threads_that_empty_pages_without_pause_end_no_move() {
    let keeps_changing = |error: &MoveError| error.errno() == libc::EAGAIN;
    for_each(keeps_changing, |moving, region, what| {
        let (addr, len) = part(region);
        let stop = AtomicBool::new(false);
        let empties = |page: usize| {
            while !stop.load(Ordering::Acquire) {
                advise(page, PAGE, libc::MADV_DONTNEED).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| empties(addr));
            scope.spawn(|| empties(addr + len - PAGE));
            let _raise = Raise(&stop);
            moving.wait_rounds(4);
        });
        assert_zero(addr, PAGE, what);
        assert_part(region, &(addr + PAGE..addr + len - PAGE), 1, what);
        assert_zero(addr + len - PAGE, PAGE, what);
    });
}

#[test]
fn a_part_that_was_unmapped_stays_unmapped() {
    for_each(is_gap, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            // SAFETY: the region is the test's own.
            check(unsafe { libc::munmap(addr as *mut _, len) }).unwrap();
            let mut vector = 0u8;
            // SAFETY: the kernel writes one byte.
            let mapped = unsafe { libc::mincore(addr as *mut _, PAGE, &raw mut vector) };
            assert_eq!(mapped, -1, "{what}: nothing is mapped there");
            moving.wait_each_fourth(time, 0);
            map_fixed(addr, len);
            assert_zero(addr, len, what);
            fill(addr, len, time + 2);
            moving.wait_each_fourth(time, 1);
            assert_filled(addr, len, time + 2, what);
        }
    });
}

#[test]
fn a_new_mapping_over_a_part_keeps_its_contents() {
    for_each(no_error, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            map_fixed(addr, len);
            assert_zero(addr, len, what);
            fill(addr, len, time + 2);
            moving.wait_each_fourth(time, 0);
            assert_filled(addr, len, time + 2, what);
        }
    });
}

#[test]
fn small_new_mappings_keep_their_contents() {
    for_each(no_error, |_, region, what| {
        let (addr, len) = part(region);
        map_fixed(addr, len);
        fill(addr, len, 1);
        for time in 0..TIMES * 50 {
            let page = addr + (time as usize * 7919 % (len / PAGE)) * PAGE;
            map_fixed(page, PAGE);
            for line in (page..page + PAGE).step_by(64) {
                assert_eq!(load(line), 0, "{what}: time {time}");
                store(line, time + 1);
            }
            for line in (page..page + PAGE).step_by(64) {
                assert_eq!(load(line), time + 1, "{what}: time {time}");
            }
        }
    });
}

#[test]
fn a_part_that_becomes_read_only_and_back_keeps_its_contents() {
    for_each(no_error, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            protect(addr, len, libc::PROT_READ);
            assert_part(region, &(addr..addr + len), 1, what);
            moving.wait_each_fourth(time, 0);
            protect(addr, len, libc::PROT_READ | libc::PROT_WRITE);
            assert_part(region, &(addr..addr + len), 1, what);
            for page in (addr..addr + len).step_by(PAGE) {
                store(page, load(page));
            }
        }
    });
}

#[test]
fn pages_that_mremap_puts_over_a_part_win() {
    for_each(no_error, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            let other = Region::new(LEN, Kind::Base);
            let from = other.addr + PART.start;
            fill(from, len, time + 2);
            remap(from, addr, len);
            assert_filled(addr, len, time + 2, what);
            if time % 4 == 0 {
                moving.wait_rounds(1);
                assert_filled(addr, len, time + 2, what);
            }
        }
    });
}

#[test]
fn a_part_that_is_locked_meanwhile_keeps_its_contents() {
    for_each(no_error, |moving, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            // SAFETY: locking changes no contents.
            check(unsafe { libc::mlock(addr as *const _, len) })
                .expect("root, or a RLIMIT_MEMLOCK above 3 MiB");
            assert_part(region, &(addr..addr + len), 1, what);
            moving.wait_each_fourth(time, 0);
            // SAFETY: unlocking changes no contents.
            check(unsafe { libc::munlock(addr as *const _, len) }).unwrap();
            assert_part(region, &(addr..addr + len), 1, what);
        }
    });
}

#[test]
fn advice_on_parts_changes_nothing() {
    for_each(no_error, |_, region, what| {
        let (addr, len) = part(region);
        for time in 0..TIMES {
            for advice in [
                libc::MADV_DONTDUMP,
                libc::MADV_COLD,
                libc::MADV_DODUMP,
                libc::MADV_NOHUGEPAGE,
                libc::MADV_RANDOM,
                libc::MADV_HUGEPAGE,
                libc::MADV_NORMAL,
            ] {
                advise(addr, len, advice).unwrap();
            }
            // It may find no memory, or pages away.
            let _ = advise(region.addr, region.len, libc::MADV_COLLAPSE);
            assert_part(region, &(addr..addr + len), 1, &format!("{what}: {time}"));
        }
    });
}

#[test]
fn all_at_once_keeps_what_nobody_changed() {
    // Each disturbing thread has pages of its own.
    for migrator in MIGRATORS {
        let region = Region::filled(LEN, Kind::Base, 1);
        let mover = mover(migrator);
        let pages = |thread: usize| {
            (0..LEN / PAGE)
                .filter(move |page| page % 8 == thread)
                .map(|page| region.addr + page * PAGE)
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let gone = scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    for page in pages(0) {
                        advise(page, PAGE, libc::MADV_DONTNEED).unwrap();
                        assert_eq!(load(page), 0, "{migrator}: thrown away");
                        store(page, 5);
                        assert_eq!(load(page), 5, "{migrator}: written again");
                    }
                }
            });
            let replaced = scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    for page in pages(2) {
                        map_fixed(page, PAGE);
                        assert_eq!(load(page + 8), 0, "{migrator}: replaced");
                        store(page + 8, 6);
                        assert_eq!(load(page + 8), 6, "{migrator}: written again");
                    }
                }
            });
            let _raise = Raise(&stop);
            // The mappings never rest, so a move may find no moment to begin; it counts for nothing then.
            let refused = AtomicU64::new(0);
            let keep_changing = |error: &MoveError| {
                let is_that = matches!(
                    error,
                    MoveError::System { call: "watching the range", source, .. }
                        if source.raw_os_error() == Some(libc::EAGAIN)
                );
                refused.fetch_add(u64::from(is_that), Ordering::Release);
                is_that
            };
            let sum = while_moving(
                &mover,
                &region.range(),
                &relocate(),
                keep_changing,
                |moving| {
                    let moves = || {
                        moving
                            .rounds()
                            .saturating_sub(refused.load(Ordering::Acquire))
                    };
                    let goal = moves() + 31;
                    while moves() < goal {
                        moving.wait_rounds(1);
                    }
                },
            );
            assert!(sum.of(Outcome::Moved) > 0, "{sum:?}");
            stop.store(true, Ordering::Release);
            gone.join().unwrap();
            replaced.join().unwrap();
        });
        for thread in [1, 3, 4, 5, 6, 7] {
            for page in pages(thread) {
                assert_part(&region, &(page..page + PAGE), 1, migrator);
            }
        }
    }
}

/// While the kernel migrates a page, for compaction here (as root), page tables have no page there.
#[test]
fn what_the_kernel_migrates_is_not_called_absent() {
    const LEN: usize = 128 << 20;
    for migrator in MIGRATORS {
        let region = Region::filled(LEN, Kind::Base, 1);
        // Every second page, so that there is much to compact.
        for page in (region.addr..region.addr + LEN).step_by(2 * PAGE) {
            advise(page, PAGE, libc::MADV_DONTNEED).unwrap();
        }
        let mover = mover(migrator);
        let sum = while_moving(&mover, &region.range(), &relocate(), no_error, |moving| {
            while moving.rounds() < 50 {
                if is_root() {
                    std::fs::write("/proc/sys/vm/compact_memory", "1").unwrap();
                } else {
                    moving.wait_rounds(1);
                }
            }
        });
        assert_eq!(
            sum.of(Outcome::NotPresent),
            sum.ok * LEN as u64 / 2,
            "{migrator}: {sum:?}"
        );
        for page in (region.addr + PAGE..region.addr + LEN).step_by(2 * PAGE) {
            assert_part(&region, &(page..page + PAGE), 1, migrator);
        }
    }
}
