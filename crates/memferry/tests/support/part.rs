// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of the tests in which another thread changes a part of a range while the range is moved.

use super::*;
use memferry::{MoveError, Outcome, Unmovable};

/// Bytes of the region.
pub const LEN: usize = 8 << 20;
/// What the other thread changes or takes away: the end of one block of 2 MiB, and the beginning of the next.
pub const PART: std::ops::Range<usize> = (3 << 20) + 5 * PAGE..(5 << 20) + 9 * PAGE;
/// Disturbances of one case.
pub const TIMES: u64 = 24;

/// Runs `body` beside moves for every migrator, kind of page and use of the source pages.
pub fn for_each(
    tolerate: impl Fn(&MoveError) -> bool + Sync,
    body: impl Fn(&Moving<'_>, &Region, &str),
) {
    for migrator in MIGRATORS {
        for kind in KINDS {
            for source in both_sources() {
                let what = format!("{migrator}, {kind:?}, {source:?}");
                let region = Region::filled(LEN, kind, 1);
                let mover = mover(migrator);
                let options = relocate().source(source).list_pages(true);
                let sum = while_moving(&mover, &region.range(), &options, &tolerate, |moving| {
                    body(moving, &region, &what)
                });
                assert!(sum.of(Outcome::Moved) > 0, "{what}: {sum:?}");
                let before = region.addr..region.addr + PART.start;
                let after = region.addr + PART.end..region.addr + region.len;
                assert_part(&region, &before, 1, &what);
                assert_part(&region, &after, 1, &what);
            }
        }
    }
}

/// Address and length of [`PART`] in a region.
pub fn part(region: &Region) -> (usize, usize) {
    (region.addr + PART.start, PART.len())
}

/// Whether a move met the gap that a part leaves which was unmapped or went elsewhere.
pub fn is_gap(error: &MoveError) -> bool {
    let unmapped = Unmovable::Unmapped;
    matches!(error, MoveError::Unmovable { what, .. } if *what == unmapped)
}

/// Puts the pages of one range over another one with mremap(2).
pub fn remap(from: usize, to: usize, len: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the tests pass ranges of a `Region` of theirs.
    let got = unsafe { libc::mremap(from as *mut _, len, len, flags, to as *mut libc::c_void) };
    assert_eq!(got as usize, to, "mremap");
}
