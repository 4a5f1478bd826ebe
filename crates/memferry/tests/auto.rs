// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's default: lanes that are chosen by measurement while pages move.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveResult, Mover};
use support::*;

const LEN: usize = 64 << 20;

/// More than enough for a trial: a kind of work is tried after 65 spans of 8 MiB at the earliest, once 64 of them have saved
/// up for it.
const MOST_MOVES: usize = 400;

fn lanes_that_copied(moved: &MoveResult) -> usize {
    let copied = moved.lanes.iter().filter(|lane| lane.copied_bytes > 0);
    copied.count()
}

/// Moves the region until two lanes have copied; how many moves one lane did alone.
fn moves_until_a_trial(mover: &Mover, region: &Region) -> usize {
    // SAFETY: nothing of the region is spliced or sent.
    let keep = unsafe { memferry::SourcePages::keep() };
    let ask = relocate().source(keep);
    for number in 0..MOST_MOVES {
        let moved = mover.move_range(region.range(), 0, &ask).unwrap();
        assert_eq!(moved.moved.bytes, LEN as u64);
        let copied: u64 = moved.lanes.iter().map(|lane| lane.copied_bytes).sum();
        assert_eq!((copied, moved.steps.copied_bytes), (LEN as u64, LEN as u64));
        if lanes_that_copied(&moved) > 1 {
            return number;
        }
    }
    panic!("no trial in {MOST_MOVES} moves");
}

#[test]
fn the_first_spans_have_one_lane_and_trials_have_more() {
    if memferry::default_lanes() < 2 {
        eprintln!("not run: one CPU has no lanes to choose from");
        return;
    }
    let mover = mover("auto");
    for kind in KINDS {
        let region = Region::filled(LEN, kind, 7);
        let alone = moves_until_a_trial(&mover, &region);
        // 64 spans of 8 MiB, the first few of which may be of cold pages.
        assert!(alone >= 7, "{kind:?}: after {alone} moves");
        assert_filled(region.addr, LEN, 7, "after a trial");
    }
    heap::assert_heap_unasked();
}

#[test]
fn single_folios_have_one_lane() {
    let mover = mover("auto");
    for (kind, len) in [(Kind::Base, PAGE), (Kind::Thp, HUGE)] {
        let region = Region::filled(HUGE, kind, 3);
        let folio = region.addr..region.addr + len;
        for _ in 0..200 {
            let moved = mover.move_range(folio.clone(), 0, &relocate()).unwrap();
            assert_eq!(moved.moved.bytes, len as u64);
            let batches: Vec<u64> = moved.lanes.iter().map(|lane| lane.batches).collect();
            assert_eq!((batches[0], batches.iter().sum()), (1, 1), "{batches:?}");
        }
        assert_filled(region.addr, HUGE, 3, "single folios");
    }
}
