// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread takes a part of the range elsewhere with mremap and brings it back while the range is moved.
//!
//! It has a program of its own: where the part was there is a gap, and a thread of another test that maps something there
//! would lose it when the part comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Unmovable};
use support::part::*;
use support::*;

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
