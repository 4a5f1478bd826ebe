// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's default: lanes that are chosen by measurement while pages move.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveResult, Mover};
use support::*;

/// Many more than it takes until both lanes have copied in one move. Of a short one, a trial of two lanes that was dear twice
/// waits until the moves have paid for its whole price; and the other lane may get no CPU for as long as one lasts.
const MOST_MOVES: usize = 100_000;

/// No other lanes are tried before as many moves.
const ALONE: usize = 64;

fn lanes_that_copied(moved: &MoveResult) -> usize {
    let copied = moved.lanes.iter().filter(|lane| lane.copied_bytes > 0);
    copied.count()
}

/// Moves all of the region until two lanes have copied, at most so often; how many moves one lane did alone.
fn moves_of_one_lane(mover: &Mover, region: &Region, len: usize, most: usize) -> usize {
    // SAFETY: nothing of the region is spliced or sent.
    let keep = unsafe { memferry::SourcePages::keep() };
    let ask = relocate().source(keep);
    for number in 0..most {
        let moved = mover.move_range(region.range(), 0, &ask).unwrap();
        assert_eq!(moved.moved.bytes, len as u64);
        let copied: u64 = moved.lanes.iter().map(|lane| lane.copied_bytes).sum();
        assert_eq!((copied, moved.steps.copied_bytes), (len as u64, len as u64));
        if lanes_that_copied(&moved) > 1 {
            return number;
        }
    }
    most
}

#[test]
fn long_moves_begin_with_all_lanes_and_short_ones_with_one() {
    if memferry::default_lanes() < 2 {
        eprintln!("not run: one CPU has no lanes to choose from");
        return;
    }
    let mover = mover("auto");
    for kind in KINDS {
        let [long, short] = [64 << 20, 4 << 20];
        let region = Region::filled(long, kind, 7);
        let moves = moves_of_one_lane(&mover, &region, long, MOST_MOVES);
        assert!(moves < MOST_MOVES, "{kind:?}: one lane copied all moves");
        assert_filled(region.addr, long, 7, "after two lanes");
        let region = Region::filled(short, kind, 9);
        // A huge page is copied before another lane is awake, so that a trial of two may seem to be one.
        let most = if kind == Kind::Base {
            MOST_MOVES
        } else {
            ALONE
        };
        let moves = moves_of_one_lane(&mover, &region, short, most);
        assert!(
            moves >= ALONE,
            "{kind:?}: two lanes after {moves} short moves"
        );
        assert!(
            moves < MOST_MOVES,
            "{kind:?}: one lane copied all short moves"
        );
        assert_filled(region.addr, short, 9, "after short moves");
    }
    heap::assert_heap_unasked();
}

#[test]
fn single_pages_have_one_lane() {
    let mover = mover("auto");
    let region = Region::filled(HUGE, Kind::Base, 3);
    for _ in 0..200 {
        let page = region.addr..region.addr + PAGE;
        let moved = mover.move_range(page, 0, &relocate()).unwrap();
        assert_eq!(moved.moved.bytes, PAGE as u64);
        let batches: Vec<u64> = moved.lanes.iter().map(|lane| lane.batches).collect();
        assert_eq!((batches[0], batches.iter().sum()), (1, 1), "{batches:?}");
    }
    assert_filled(region.addr, HUGE, 3, "single pages");
}
