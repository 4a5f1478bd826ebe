// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that were never touched: they stay so, and who touches them while the range moves gets what the kernel would give.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::Outcome;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

#[test]
fn what_was_never_touched_stays_untouched() {
    for migrator in MIGRATORS {
        let region = Region::new(4 << 20, Kind::Base);
        for (index, page) in region.range().step_by(PAGE).enumerate() {
            if index % 3 == 0 {
                fill(page, PAGE, index as u64);
            }
        }
        let (there, frames) = (present(&region.range()), pfns(&region.range()));
        let bytes = present_bytes(&region.range());
        let mover = mover(migrator);
        for source in both_sources() {
            let options = relocate().source(source).list_pages(true);
            let result = move_all(&mover, &region.range(), &options);
            assert_eq!(result.moved.bytes, bytes, "{migrator}: {result:?}");
            assert_eq!(result.moved.folios, bytes / PAGE as u64, "{migrator}");
            assert_eq!(result.not_present.bytes, region.len as u64 - bytes);
            let of = |&there| {
                Some(if there {
                    Outcome::Moved
                } else {
                    Outcome::NotPresent
                })
            };
            let told: Vec<_> = there.iter().map(of).collect();
            assert_eq!(result.pages, Some(told), "{migrator}");
            assert_eq!(
                present(&region.range()),
                there,
                "{migrator}: no page more or less"
            );
        }
        assert!(
            frames.is_none() || frames != pfns(&region.range()),
            "{migrator}: pages moved"
        );
        for (index, page) in region.range().step_by(PAGE).enumerate() {
            if index % 3 == 0 {
                assert_filled(page, PAGE, index as u64, migrator);
            }
        }
    }
}

#[test]
fn the_zero_page_counts_as_not_present() {
    for migrator in MIGRATORS {
        let region = Region::new(1 << 20, Kind::Base);
        assert_zero(region.addr, region.len, "reading maps the zero page");
        store(region.addr + 5 * PAGE, 1);
        let options = relocate().list_pages(true);
        let result = move_all(&mover(migrator), &region.range(), &options);
        assert_eq!(result.moved.bytes, PAGE as u64, "{migrator}: {result:?}");
        assert_eq!(result.not_present.bytes, (region.len - PAGE) as u64);
        let pages = result.pages.unwrap();
        for (index, &told) in pages.iter().enumerate() {
            let moved = index == 5;
            let expected = if moved {
                Outcome::Moved
            } else {
                Outcome::NotPresent
            };
            assert_eq!(told, Some(expected), "{migrator}: page {index}");
        }
        store(region.addr + 5 * PAGE, 0);
        assert_zero(region.addr, region.len, migrator);
    }
}

#[test]
fn the_huge_zero_page_counts_as_not_present() {
    for migrator in MIGRATORS {
        let region = Region::new(2 * HUGE, Kind::Thp);
        assert_eq!(load(region.addr), 0);
        fill(region.addr + HUGE, HUGE, 3);
        let result = move_all(&mover(migrator), &region.range(), &relocate());
        assert_eq!(result.moved.bytes, HUGE as u64, "{migrator}: {result:?}");
        assert_eq!(result.moved.folios, 1, "{migrator}: {result:?}");
        assert_eq!(
            result.not_present.bytes, HUGE as u64,
            "{migrator}: {result:?}"
        );
        assert_zero(region.addr, HUGE, migrator);
        assert_filled(region.addr + HUGE, HUGE, 3, migrator);
    }
}

/// Touches the holes of a region in scattered order while it moves: each reads as zeroes and keeps what is written.
fn touch_holes(migrator: &str, kind: Kind, is_hole: impl Fn(usize) -> bool) {
    const LEN: usize = 8 << 20;
    for time in 0..6 {
        let region = Region::new(LEN, kind);
        for page in (0..LEN / PAGE).filter(|page| !is_hole(*page)) {
            fill(region.addr + page * PAGE, PAGE, page as u64);
        }
        let mut holes: Vec<usize> = (0..LEN / PAGE).filter(|page| is_hole(*page)).collect();
        holes.sort_by_key(|page| page * 7919 % 4001);
        let options = relocate().source(both_sources()[time % 2]);
        let mover = mover(migrator);
        let sum = while_moving(&mover, &region.range(), &options, no_error, |moving| {
            for (count, page) in holes.iter().enumerate() {
                let addr = region.addr + page * PAGE;
                if count % 2 == 0 {
                    assert_eq!(load(addr + 8), 0, "{migrator}: hole {page}");
                }
                store(addr, *page as u64 + 1);
                assert_eq!(load(addr), *page as u64 + 1, "{migrator}: hole {page}");
                if count % 64 == 0 {
                    moving.wait_rounds(1);
                }
            }
        });
        assert!(sum.of(Outcome::Moved) > 0, "{migrator}: {sum:?}");
        for page in 0..LEN / PAGE {
            let addr = region.addr + page * PAGE;
            if is_hole(page) {
                assert_eq!(load(addr), page as u64 + 1, "{migrator}: hole {page}");
                assert_zero(addr + 8, PAGE - 8, "the rest of a hole");
            } else {
                assert_filled(addr, PAGE, page as u64, "what was there before");
            }
        }
    }
}

#[test]
fn holes_touched_during_moves_read_as_zeroes_and_keep_writes() {
    for migrator in MIGRATORS {
        touch_holes(migrator, Kind::Base, |page| page % 3 == 1);
    }
}

#[test]
fn holes_in_a_thp_mapping_touched_during_moves_keep_writes() {
    for migrator in MIGRATORS {
        // Every other block of 2 MiB was never touched; the others are THPs.
        touch_holes(migrator, Kind::Thp, |page| page * PAGE / HUGE % 2 == 1);
    }
}

#[test]
fn an_untouched_block_of_a_thp_mapping_becomes_a_thp() {
    for migrator in MIGRATORS {
        let region = Region::new(16 * HUGE, Kind::Thp);
        for block in (0..16).step_by(2) {
            fill(region.addr + block * HUGE, HUGE, block as u64);
        }
        let mover = mover(migrator);
        while_moving(&mover, &region.range(), &relocate(), no_error, |moving| {
            for block in (1..16).step_by(2) {
                moving.wait_rounds(1);
                store(region.addr + block * HUGE + 77 * PAGE, 9);
            }
        });
        for block in 0..16 {
            let addr = region.addr + block * HUGE;
            if block % 2 == 0 {
                assert_filled(addr, HUGE, block as u64, migrator);
            } else {
                assert_eq!(load(addr + 77 * PAGE), 9, "{migrator}: block {block}");
                store(addr + 77 * PAGE, 0);
                assert_zero(addr, HUGE, migrator);
            }
        }
        assert_eq!(
            thp_bytes(&region.range()),
            region.len,
            "{migrator}: all are THPs"
        );
    }
}

#[test]
fn many_threads_touch_the_same_holes() {
    for migrator in MIGRATORS {
        let region = Region::new(4 << 20, Kind::Base);
        for page in region.range().step_by(2 * PAGE) {
            fill(page, PAGE, 1);
        }
        let mover = mover(migrator);
        let go = AtomicBool::new(false);
        while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !go.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        for page in region.range().step_by(PAGE).skip(1).step_by(2) {
                            counter(page).fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                go.store(true, Ordering::Release);
            });
        });
        for (index, page) in region.range().step_by(PAGE).enumerate() {
            if index % 2 == 0 {
                assert_filled(page, PAGE, 1, migrator);
            } else {
                assert_eq!(load(page), 3, "{migrator}: hole {index}");
                assert_zero(page + 8, PAGE - 8, migrator);
            }
        }
    }
}
