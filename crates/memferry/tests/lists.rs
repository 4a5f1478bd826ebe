// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of ranges: what is listed moves, with one account per range; what lies between does not, and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{ListResult, Migrator, MoveError, Mover, MoverOptions, Outcome, Unmovable};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

const PIECE: usize = 16 << 10;

/// Every `step`-th piece of a region, in scattered order.
fn pieces(region: &Region, step: usize) -> Vec<Range<usize>> {
    let mut pieces: Vec<_> = (0..region.len / PIECE)
        .step_by(step)
        .map(|index| region.addr + index * PIECE..region.addr + (index + 1) * PIECE)
        .collect();
    pieces.sort_by_key(|piece| (piece.start / PIECE).wrapping_mul(7919) % 4099);
    pieces
}

/// Asserts that each range has an account of its own, that all of it has moved, and that the total is their sum.
fn assert_all_moved(result: &ListResult, list: &[Range<usize>], what: &str) {
    assert_eq!(result.ranges.len(), list.len(), "{what}");
    for (range, result) in list.iter().zip(&result.ranges) {
        let moved = result.moved.bytes;
        assert_eq!(moved, range.len() as u64, "{what}: {range:x?} {result:?}");
    }
    let bytes: u64 = list.iter().map(|range| range.len() as u64).sum();
    assert_eq!(result.total.moved.bytes, bytes, "{what}");
    assert_eq!(result.total.left_bytes(), 0, "{what}");
}

#[test]
fn what_is_listed_moves_and_nothing_else_beside_writers() {
    const LEN: usize = 16 << 20;
    for migrator in MIGRATORS {
        let region = Region::filled(LEN, Kind::Base, 5);
        let list = pieces(&region, 3);
        let mover = mover(migrator);
        let pages: Vec<usize> = region.range().step_by(PAGE).collect();
        for &page in &pages {
            store(page, 0);
        }
        let stop = AtomicBool::new(false);
        let passes = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut passes = 0;
                while !stop.load(Ordering::Acquire) {
                    for &page in &pages {
                        store(page, load(page) + 1);
                    }
                    passes += 1;
                }
                passes
            });
            let raise = Raise(&stop);
            for source in both_sources() {
                let options = relocate().source(source);
                for _ in 0..100 {
                    let before = pfns(&region.range());
                    let result = mover.move_pages(&list, 0, &options).unwrap();
                    assert_all_moved(&result, &list, migrator);
                    let is_between = |page: usize| page * PAGE / PIECE % 3 != 0;
                    assert_stay(&before, &region.range(), migrator, is_between);
                }
            }
            drop(raise);
            writer.join().unwrap()
        });
        for (index, &page) in pages.iter().enumerate() {
            assert_eq!(load(page), passes, "{migrator}: page {index}");
            assert_part(&region, &(page + 8..page + PAGE), 5, migrator);
        }
    }
}

#[test]
fn holes_between_the_ranges_can_be_touched_meanwhile() {
    for migrator in MIGRATORS {
        let region = Region::new(32 << 20, Kind::Base);
        let list = pieces(&region, 2);
        for range in &list {
            fill(range.start, PIECE, 1);
        }
        let mover = mover(migrator);
        std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                for range in &list {
                    let hole = range.end;
                    assert_zero(hole, PAGE, "a hole");
                    fill(hole + PAGE, PAGE, 2);
                }
            });
            let mut rounds = 0;
            while !owner.is_finished() || rounds < 3 {
                let result = mover.move_pages(&list, 0, &relocate()).unwrap();
                assert_all_moved(&result, &list, migrator);
                rounds += 1;
            }
            owner.join().unwrap();
        });
        for range in &list {
            assert_filled(range.start, PIECE, 1, migrator);
            assert_filled(range.end + PAGE, PAGE, 2, migrator);
        }
    }
}

/// What lies between the ranges may be anything: nothing, a file, memory of the mover itself.
#[test]
fn what_lies_between_does_not_matter() {
    for migrator in MIGRATORS {
        let region = Region::filled(8 << 20, Kind::Base, 7);
        let at = |mib: usize| region.addr + (mib << 20);
        // SAFETY: a fresh descriptor, and parts of the test's own region.
        let file = unsafe {
            let fd = libc::memfd_create(c"between".as_ptr(), libc::MFD_CLOEXEC);
            check(libc::ftruncate(fd, 1 << 20)).unwrap();
            check(libc::munmap(at(1) as *mut _, 1 << 20)).unwrap();
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: replaces a part of the test's own region.
        let mapped = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(at(3) as *mut _, 1 << 20, rights, flags, file.as_raw_fd(), 0)
        };
        assert_eq!(mapped as usize, at(3));
        protect(at(5), 1 << 20, libc::PROT_READ);
        let list = [at(0)..at(1), at(2)..at(3), at(4)..at(5), at(6)..at(8)];
        let mover = mover(migrator);
        let result = mover.move_pages(&list, 0, &relocate()).unwrap();
        assert_all_moved(&result, &list, migrator);
        for range in &list {
            assert_part(&region, range, 7, migrator);
        }
    }
}

/// A migrator that writes to a page of its own when its lanes begin.
struct Stands {
    on: Range<usize>,
}

// SAFETY: `copy` copies all of it, and `run` runs one lane to its end.
unsafe impl Migrator for Stands {
    fn name(&self) -> &'static str {
        "stands"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        store(self.on.start, 1);
        lane(0);
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        vec![self.on.clone()]
    }
}

/// It waits for itself for ever if the mover watches the page.
#[test]
fn what_the_mover_stands_on_may_lie_between() {
    let region = Region::filled(4 << 20, Kind::Base, 1);
    let (list, half) = (pieces(&region, 2), region.addr + (2 << 20));
    let on = half + PIECE..half + PIECE + PAGE;
    let mover = Mover::new(MoverOptions::new(Stands { on: on.clone() })).unwrap();
    for _ in 0..3 {
        advise(on.start, PAGE, libc::MADV_DONTNEED).unwrap();
        let result = mover.move_pages(&list, 0, &relocate()).unwrap();
        assert_all_moved(&result, &list, "beside");
    }
    for range in &list {
        assert_part(&region, range, 1, "beside");
    }
    let own = [list[0].clone(), on.clone()];
    let refused = mover.move_pages(&own, 0, &relocate());
    assert!(
        matches!(&refused, Err(MoveError::OwnMemory { range, .. }) if *range == on),
        "{refused:?}"
    );
}

#[test]
fn a_bad_range_refuses_the_list_before_anything_moves() {
    for migrator in MIGRATORS {
        let region = Region::filled(4 << 20, Kind::Base, 3);
        let frames = pfns(&region.range());
        let gap = region.addr + (3 << 20)..region.addr + region.len;
        // SAFETY: a part of the test's own region.
        check(unsafe { libc::munmap(gap.start as *mut _, gap.len()) }).unwrap();
        let piece = |index: usize| region.addr + index * PIECE..region.addr + (index + 1) * PIECE;
        let mover = mover(migrator);
        let refusal = |list: &[Range<usize>]| mover.move_pages(list, 0, &relocate()).unwrap_err();
        match refusal(&[piece(9), piece(4), gap.start..gap.start + PIECE]) {
            MoveError::Unmovable { range, what, .. } => {
                assert_eq!((range.start, what), (gap.start, Unmovable::Unmapped));
            }
            other => panic!("{migrator}: {other:?}"),
        }
        let across = piece(4).start + PAGE..piece(5).end;
        match refusal(&[across.clone(), piece(9), piece(4)]) {
            error @ MoveError::Overlap { .. } => {
                assert_eq!(error.errno(), libc::EINVAL);
                assert!(error.to_string().contains("give each page once"), "{error}");
            }
            other => panic!("{migrator}: {other:?}"),
        }
        let unaligned = piece(5).start..piece(5).end - 8;
        let refused = refusal(&[piece(2), unaligned]);
        assert!(matches!(refused, MoveError::BadRange { .. }), "{refused:?}");
        let there = region.addr..gap.start;
        let stayed = frames.map(|frames| frames[..there.len() / PAGE].to_vec());
        assert_pages_stayed(&stayed, &there, "nothing moves");
        let none = mover.move_pages(&[], 0, &relocate()).unwrap();
        assert!(none.ranges.is_empty() && none.total.moved.bytes == 0);
    }
}

#[test]
fn a_thp_moves_whole_or_stays_whole() {
    for migrator in MIGRATORS {
        let region = Region::filled(4 * HUGE, Kind::Thp, 9);
        if thp_bytes(&region.range()) < region.len {
            return;
        }
        let at = |huge: usize, offset: usize| region.addr + huge * HUGE + offset;
        let half = HUGE / 2;
        let list = [
            at(2, half)..at(3, 0),
            at(2, 0)..at(2, half),
            at(0, PIECE)..at(0, 2 * PIECE),
            at(3, half)..at(4, 0),
        ];
        let mover = mover(migrator);
        let result = mover.move_pages(&list, 0, &relocate()).unwrap();
        let whole = |index: usize| {
            let of = &result.ranges[index];
            (of.moved.bytes, of.unsupported.bytes)
        };
        let half = half as u64;
        assert_eq!((whole(0), whole(1)), ((half, 0), (half, 0)), "{migrator}");
        assert_eq!(
            (whole(2), whole(3)),
            ((0, PIECE as u64), (0, half)),
            "{migrator}"
        );
        assert_eq!(
            thp_bytes(&region.range()),
            region.len,
            "{migrator}: no THP is split"
        );
        assert_filled(region.addr, region.len, 9, migrator);
    }
}

#[test]
fn pages_are_listed_by_range() {
    for migrator in MIGRATORS {
        let region = Region::filled(1 << 20, Kind::Base, 4);
        let hole = region.addr + 5 * PAGE;
        advise(hole, PAGE, libc::MADV_DONTNEED).unwrap();
        let list = [hole..hole + 2 * PAGE, region.addr..region.addr + PAGE];
        let options = relocate().list_pages(true);
        let result = mover(migrator).move_pages(&list, 0, &options).unwrap();
        let pages: Vec<_> = result.ranges.iter().map(|of| of.pages.clone()).collect();
        assert_eq!(
            pages,
            [
                Some(vec![Some(Outcome::NotPresent), Some(Outcome::Moved)]),
                Some(vec![Some(Outcome::Moved)])
            ],
            "{migrator}"
        );
    }
}

#[test]
fn a_range_that_somebody_watches_stays_and_the_others_move() {
    let region = Region::filled(4 << 20, Kind::Base, 6);
    let list = pieces(&region, 4);
    let watched = list.iter().min_by_key(|range| range.start).unwrap().clone();
    let _other = watch(&watched);
    let result = mover("mtcopy").move_pages(&list, 0, &relocate()).unwrap();
    for (range, of) in list.iter().zip(&result.ranges) {
        let busy = if *range == watched { PIECE as u64 } else { 0 };
        assert_eq!((of.busy.bytes, of.moved.bytes), (busy, PIECE as u64 - busy));
    }
    let error = result.total.error.expect("it says why one stayed");
    assert!(matches!(*error, MoveError::Watched { .. }), "{error}");
    assert_filled(region.addr, region.len, 6, "watched");
}
