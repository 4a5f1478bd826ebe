// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread takes a part of the range elsewhere with mremap and brings it back while the range is moved.
//!
//! It has a program of its own: where the part was there is a gap, and a thread of another test that maps something there
//! would lose it when the part comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, MoveOptions, Outcome, Unmovable};
use support::*;

const LEN: usize = 8 << 20;
/// What goes and comes back: base pages before, inside and after a block of 2 MiB.
const PART: std::ops::Range<usize> = (3 << 20) + 5 * PAGE..(5 << 20) + 9 * PAGE;
const TIMES: u64 = 24;

/// Runs `body` beside moves for every migrator, kind of page and use of the source pages.
fn for_each(
    tolerate: impl Fn(&MoveError) -> bool + Sync,
    body: impl Fn(&Moving<'_>, &Region, &str),
) {
    for migrator in MIGRATORS {
        for kind in KINDS {
            for source in both_sources() {
                let what = format!("{migrator}, {kind:?}, {source:?}");
                let region = Region::filled(LEN, kind, 1);
                let mut mover = mover(migrator);
                let options = MoveOptions {
                    source,
                    list_pages: true,
                    ..relocate()
                };
                let sum =
                    while_moving(&mut mover, &region.range(), &options, &tolerate, |moving| {
                        body(moving, &region, &what)
                    });
                assert!(sum.of(Outcome::Moved) > 0, "{what}: {sum:?}");
                let before = region.addr..region.addr + PART.start;
                let after = region.addr + PART.end..region.addr + region.len;
                assert_filled_part(&region, &before, &what);
                assert_filled_part(&region, &after, &what);
            }
        }
    }
}

fn part(region: &Region) -> (usize, usize) {
    (region.addr + PART.start, PART.len())
}

/// Contents 1 of the whole region, looked at in a part.
fn assert_filled_part(region: &Region, range: &std::ops::Range<usize>, what: &str) {
    for at in range.clone().step_by(8) {
        let (index, found) = ((at - region.addr) / 8, load(at));
        assert!(
            found == word(1, index),
            "{what}: word {index} (page {}) is {found:#x}",
            index * 8 / PAGE
        );
    }
}

#[test]
fn contents_follow_mremap_and_come_back() {
    let gap = |error: &MoveError| {
        matches!(
            error,
            MoveError::Unmovable {
                what: Unmovable::Unmapped,
                ..
            }
        )
    };
    for_each(gap, |moving, region, what| {
        let (addr, len) = part(region);
        let other = Region::new(LEN, Kind::Base);
        let remap = |from: usize, to: usize| {
            // SAFETY: both ranges are the test's own.
            let got = unsafe {
                libc::mremap(
                    from as *mut _,
                    len,
                    len,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    to as *mut libc::c_void,
                )
            };
            assert_eq!(got as usize, to, "{what}: mremap");
        };
        // The contents of the whole region, looked at in the part, wherever that lies.
        let assert_follows = |at: usize, time: u64| {
            for byte in (0..len).step_by(8) {
                let found = load(at + byte);
                let wanted = word(1, (PART.start + byte) / 8);
                assert!(
                    found == wanted,
                    "{what}: time {time}: byte {byte:#x} of the part is {found:#x}"
                );
            }
        };
        for time in 0..TIMES {
            // Same offset in its 2 MiB block, so that THPs can move whole.
            let to = other.addr + PART.start;
            remap(addr, to);
            assert_follows(to, time);
            if time % 4 == 0 {
                moving.wait_rounds(1);
                assert_follows(to, time);
            }
            remap(to, addr);
            assert_follows(addr, time);
            if time % 4 == 1 {
                moving.wait_rounds(1);
                assert_follows(addr, time);
            }
        }
    });
}
