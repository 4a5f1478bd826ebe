// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread takes a part of the range elsewhere with mremap and brings it back while the range is moved.
//!
//! It has a program of its own: where the part was there is a gap, and a thread of another test that maps something there
//! would lose it when the part comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::part::*;
use support::*;

#[test]
fn contents_follow_mremap_and_come_back() {
    for_each(is_gap, |moving, region, what| {
        let (addr, len) = part(region);
        let other = Region::new(LEN, Kind::Base);
        // The contents of the whole region, looked at in the part, wherever that lies.
        let assert_follows = |at: usize, time: u64| {
            let what = format!("{what}: time {time}");
            assert_words(at, len, 1, PART.start / 8, &what);
        };
        for time in 0..TIMES {
            // Same offset in its 2 MiB block, so that THPs can move whole.
            let to = other.addr + PART.start;
            remap(addr, to, len);
            assert_follows(to, time);
            if time % 4 == 0 {
                moving.wait_rounds(1);
                assert_follows(to, time);
            }
            remap(to, addr, len);
            assert_follows(addr, time);
            if time % 4 == 1 {
                moving.wait_rounds(1);
                assert_follows(addr, time);
            }
        }
    });
}
