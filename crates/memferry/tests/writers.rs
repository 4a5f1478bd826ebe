// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads count in every page at full speed while the pages are moved: no count is lost.
//!
//! `MEMFERRY_ROUNDS` sets the moves per migrator and kind of page (1,000 unless set), split over what becomes of the
//! source pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveOptions, Outcome};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

const WRITERS: usize = 2;
/// Words of a page that the writers use; the others keep their contents.
const SHARED: usize = 0;
const OWNED: usize = 8;
const CANARY: usize = 16;

fn rounds() -> u64 {
    std::env::var("MEMFERRY_ROUNDS").ok().map_or(1000, |text| {
        text.parse().expect("MEMFERRY_ROUNDS is a number")
    })
}

/// Counts in each page until told to stop; returns how often.
fn write(pages: &[usize], own: impl Fn(usize) -> bool, stop: &AtomicBool) -> u64 {
    let mut passes = 0;
    loop {
        for (index, &page) in pages.iter().enumerate() {
            counter(page + SHARED).fetch_add(1, Ordering::Relaxed);
            if own(index) {
                // Not atomic: a move that copied between the read and the write would lose it.
                store(page + OWNED, load(page + OWNED) + 1);
            }
        }
        passes += 1;
        if stop.load(Ordering::Acquire) {
            return passes;
        }
    }
}

/// Makes `pages` of `range` exist, with no count in them; the others are holes.
fn prepare(range: &Range<usize>, pages: &[usize]) {
    for &page in pages {
        fill(page, PAGE, page as u64);
        store(page + SHARED, 0);
        store(page + OWNED, 0);
    }
    assert_eq!(present_bytes(range), (pages.len() * PAGE) as u64);
}

/// Moves `range`, of which `pages` were prepared, beside writers.
fn storm(migrator: &str, batch_bytes: usize, range: &Range<usize>, pages: &[usize]) {
    let mover = mover(migrator);
    let stop = AtomicBool::new(false);
    let passes: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || write(pages, |index| index % WRITERS == writer, stop))
            })
            .collect();
        {
            let _raise = Raise(&stop);
            for source in both_sources() {
                let options = relocate().batch_bytes(batch_bytes).source(source);
                for round in 0..rounds().div_ceil(2) {
                    let before = (round == 0).then(|| pfns(range));
                    let there = present_bytes(range);
                    let result = move_all(&mover, range, &options);
                    assert_eq!(
                        result.not_present.bytes + result.moved.bytes,
                        range.len() as u64,
                        "round {round}, {source:?}: every page moves: {result:?}"
                    );
                    // khugepaged makes THPs of base pages and holes, at any moment, if it may.
                    assert!(
                        [there, present_bytes(range)].contains(&result.moved.bytes),
                        "round {round}, {source:?}: the holes: {there} bytes before, {result:?}"
                    );
                    if let Some(before) = before {
                        assert_pages_changed(&before, range, migrator);
                    }
                }
            }
        }
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer"))
            .collect()
    });
    let all: u64 = passes.iter().sum();
    for (index, &page) in pages.iter().enumerate() {
        assert_eq!(
            load(page + SHARED),
            all,
            "{migrator}: atomic counts of page {index}"
        );
        assert_eq!(
            load(page + OWNED),
            passes[index % WRITERS],
            "{migrator}: plain counts of page {index}"
        );
        let what = format!("contents of page {index}");
        assert_words(page + CANARY, PAGE - CANARY, page as u64, CANARY / 8, &what);
    }
    assert!(passes.iter().all(|p| *p > 0), "every writer wrote");
}

/// 4 KiB pages, every seventh one never touched.
fn base_pages(migrator: &str, batch_bytes: usize) {
    let region = Region::new(1 << 20, Kind::Base);
    let pages: Vec<usize> = region
        .range()
        .step_by(PAGE)
        .enumerate()
        .filter(|(index, _)| index % 7 != 3)
        .map(|(_, page)| page)
        .collect();
    prepare(&region.range(), &pages);
    storm(migrator, batch_bytes, &region.range(), &pages);
}

/// Two THPs with a hole of 2 MiB between them.
fn thps(migrator: &str, batch_bytes: usize) {
    let region = Region::new(3 * HUGE, Kind::Thp);
    let pages: Vec<usize> = region
        .range()
        .step_by(PAGE)
        .filter(|page| (page - region.addr) / HUGE != 1)
        .collect();
    prepare(&region.range(), &pages);
    storm(migrator, batch_bytes, &region.range(), &pages);
    assert_eq!(
        thp_bytes(&region.range()),
        2 * HUGE,
        "THPs are THPs after all the moves"
    );
}

/// Migrators and bytes of their batches; 0: the default.
const WAYS: [(&str, usize); 3] = [("batch", PAGE), ("batch", 0), ("mtcopy", 0)];

#[test]
fn no_count_is_lost_in_base_pages() {
    for (migrator, batch_bytes) in WAYS {
        base_pages(migrator, batch_bytes);
    }
}

#[test]
fn no_count_is_lost_in_thps() {
    for (migrator, batch_bytes) in WAYS {
        thps(migrator, batch_bytes);
    }
}

#[test]
fn a_mixed_range_loses_no_count() {
    for migrator in MIGRATORS {
        let region = Region::new(3 * HUGE, Kind::Thp);
        // The middle block becomes base pages with holes: only a few are touched while THPs are not allowed there.
        let middle = region.addr + HUGE;
        advise(middle, HUGE, libc::MADV_NOHUGEPAGE).unwrap();
        let pages: Vec<usize> = region
            .range()
            .step_by(PAGE)
            .filter(|page| (page - region.addr) / HUGE != 1 || (page - middle) % (3 * PAGE) == 0)
            .collect();
        prepare(&region.range(), &pages);
        // From here on khugepaged may fill the holes.
        advise(middle, HUGE, libc::MADV_HUGEPAGE).unwrap();
        storm(migrator, 0, &region.range(), &pages);
    }
}

#[test]
fn writers_beside_a_move_that_only_looks_see_nothing() {
    let region = Region::filled(1 << 20, Kind::Base, 7);
    let before = pfns(&region.range());
    let mover = mover("batch");
    let sum = while_moving(
        &mover,
        &region.range(),
        &MoveOptions::default(),
        no_error,
        |moving| moving.wait_rounds(10),
    );
    assert_eq!(sum.of(Outcome::AlreadyThere), sum.ok * region.len as u64);
    assert_pages_stayed(&before, &region.range(), "already there");
    assert_filled(region.addr, region.len, 7, "already there");
}
