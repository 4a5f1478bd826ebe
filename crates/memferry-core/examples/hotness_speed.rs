// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast records are updated and swept on one core, and what tracking a TiB costs in real memory.
//!
//! `cargo run --release -p memferry-core --example hotness_speed [WORD]`, for figures with WORD in their names. Each figure is the best of several runs, as other work on the
//! machine only ever makes a run slower; the median is beside it.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made is to stop"
)]

use memferry_core::hotness::{Access, Record, Sweep};
use memferry_core::tracker::{Histogram, Policy, SECTION_PAGES, Source, Tracker, TrackerOptions};
use std::hint::black_box;
use std::time::Instant;

/// Accesses of a run of updates.
const ACCESSES: usize = 1 << 21;
/// Accesses of a millisecond of the tracked program's time, so that records change as often as in life.
const PER_MS: usize = 1 << 16;
const RUNS: usize = 15;
/// Base page, bytes, of the machines that were measured.
const PAGE: usize = 4096;

/// Whether the figure's name has the word that the command line asks for; all have no word.
fn wanted(what: &str) -> bool {
    std::env::args()
        .nth(1)
        .is_none_or(|word| what.contains(&word))
}

/// Best and median of what `run` says, in units per second.
fn measure(what: &str, unit: &str, scale: f64, mut run: impl FnMut() -> f64) {
    if !wanted(what) {
        return;
    }
    let mut rates: Vec<f64> = (0..RUNS).map(|_| run() / scale).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{what:<58} {:>8.1} {unit} (median {:.1})",
        rates[RUNS - 1],
        rates[RUNS / 2]
    );
}

/// A rate of `count` things that `work` does.
fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

/// Numbers that look random and are the same on every run (Steele's splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Pages of a section in random order, again and again.
fn pages() -> Vec<u32> {
    let mut state = 1;
    (0..ACCESSES)
        .map(|_| random(&mut state) as u32 % SECTION_PAGES as u32)
        .collect()
}

fn updates<R: Record>(mode: &str) {
    let pages = pages();
    let policy = Policy::<R>::default();
    let mut now = 1000;

    let mut records = vec![R::default(); SECTION_PAGES];
    measure(
        &format!("{mode}: core, one access at a time, not atomic"),
        "M/s",
        1e6,
        || {
            rate(ACCESSES, || {
                for pages in pages.chunks(PER_MS) {
                    now += 1;
                    let access = Access::at(now);
                    for &page in pages {
                        let record = &mut records[page as usize];
                        *record = record.accessed(&policy, &access);
                    }
                }
            })
        },
    );
    black_box(&records);

    let tracker = Tracker::<R>::new(TrackerOptions::default(), 0);
    for (what, spread) in [("of one section", 1), ("of 64 sections", 64)] {
        measure(
            &format!("{mode}: tracker, atomic, pages {what}"),
            "M/s",
            1e6,
            || {
                rate(ACCESSES, || {
                    for pages in pages.chunks(PER_MS) {
                        now += 1;
                        for &page in pages {
                            let page = u64::from(page) * spread;
                            black_box(tracker.record(page, Some(1), Source::Samples, now)).unwrap();
                        }
                    }
                })
            },
        );
    }
    let pages: Vec<u64> = pages.iter().map(|&page| page.into()).collect();
    measure(
        &format!("{mode}: tracker, atomic, a list of accesses"),
        "M/s",
        1e6,
        || {
            rate(ACCESSES, || {
                for pages in pages.chunks(PER_MS) {
                    now += 1;
                    black_box(tracker.record_all(pages, Some(1), Source::Samples, now)).unwrap();
                }
            })
        },
    );
}

/// A section's records: nothing known, every tenth page of memory in use, or any.
fn contents<R: Record>(kind: usize) -> Vec<R> {
    let mut state = 7;
    (0..64 * SECTION_PAGES)
        .map(|at| match kind {
            0 => R::default(),
            1 if (at >> 9) % 10 > 0 => R::default(),
            _ => R::from_bits(random(&mut state)),
        })
        .collect()
}

fn sweeps<R: Record>(mode: &str) {
    let policy = Policy::<R>::default();
    for (kind, what) in ["nothing known", "one page in ten known", "any records"]
        .into_iter()
        .enumerate()
    {
        let fresh = contents::<R>(kind);
        let mut records = fresh.clone();
        let mut sweep = Sweep {
            now: 100_000,
            last: 99_900,
            number: 0,
        };
        let bytes = size_of_val(&*records);
        measure(
            &format!("{mode}: core, sweep with histogram, {what}"),
            "GB/s",
            1e9,
            || {
                records.copy_from_slice(&fresh);
                sweep.number += 1;
                let mut histogram = Histogram::default();
                let rate = rate(bytes, || {
                    // By the section, as they lie in memory.
                    for section in records.chunks_mut(SECTION_PAGES) {
                        R::sweep(section, &policy, &sweep, &mut histogram);
                    }
                });
                black_box(&histogram);
                rate
            },
        );
        measure(
            &format!("{mode}: core, histogram, {what}"),
            "GB/s",
            1e9,
            || {
                let mut histogram = Histogram::default();
                let rate = rate(bytes, || R::count(&records, sweep.now, &mut histogram));
                black_box(&histogram);
                rate
            },
        );
    }
    // The tracker's own records, of pages in use at different times.
    let tracker = Tracker::<R>::new(TrackerOptions::default(), 0);
    let pages = 64 * SECTION_PAGES as u64;
    let mut state = 3;
    let mut now = 0;
    for _ in 0..pages {
        let page = random(&mut state) % pages;
        tracker.record(page, None, Source::Samples, now).unwrap();
        now += u64::from(random(&mut state) % 4096 == 0);
    }
    let bytes = tracker.memory().records as usize;
    measure(
        &format!("{mode}: tracker, sweep with histogram, in use"),
        "GB/s",
        1e9,
        || {
            now += 100;
            rate(bytes, || {
                black_box(tracker.sweep(now));
            })
        },
    );
}

/// Real memory of this process, bytes: what the kernel gave it.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE as u64
}

/// Tracks `sections` with every page of the records in use.
fn memory<R: Record>(mode: &str, sections: u64) {
    if !wanted("memory") {
        return;
    }
    let before = resident();
    let tracker = Tracker::<R>::new(TrackerOptions::default(), 0);
    let step = PAGE / size_of::<R>();
    for page in (0..sections * SECTION_PAGES as u64).step_by(step) {
        tracker.record(page, Some(0), Source::Samples, 1).unwrap();
    }
    let per_tib = (resident() - before) as f64 * (8192.0 / sections as f64) / f64::from(1 << 20);
    let records = (8192 * SECTION_PAGES * size_of::<R>()) as f64 / f64::from(1 << 20);
    println!(
        "{mode}: real memory per TiB tracked {:>30.1} MiB ({:+.2} % on the records)",
        per_tib,
        (per_tib / records - 1.0) * 100.0
    );
}

/// What a round looks at, of each of `nodes` nodes with so many sections: all records are swept, and the 16,384 hottest
/// pages listed. One page in ten is in use, in pieces of 2 MiB, and one in a hundred hot.
fn rounds<R: Record>(mode: &str, nodes: u64, sections: u64) {
    if !wanted("rounds") {
        return;
    }
    let pages = sections * SECTION_PAGES as u64;
    let policy = TrackerOptions::<R>::default().policy;
    let (mut sweeps, mut lists, mut hot) = (Vec::new(), Vec::new(), 0);
    for _ in 0..nodes {
        let tracker = Tracker::<R>::new(TrackerOptions::default(), 0);
        for page in (0..pages).filter(|page| (page >> 9) % 10 == 0) {
            let accesses = 1 + u32::from((page >> 9) % 100 == 0) * policy.params().threshold;
            for n in 0..accesses {
                tracker
                    .record(page, None, Source::Samples, n.into())
                    .unwrap();
            }
        }
        // The first one meets page faults in what nobody wrote.
        black_box(tracker.sweep(125));
        let start = Instant::now();
        let swept = tracker.sweep(250);
        sweeps.push(start.elapsed());
        let start = Instant::now();
        let cut = policy.cut(&swept.histogram, policy.params().threshold, 16384);
        let found = tracker.hottest(250, cut.heat, 16384, |_| true).len();
        lists.push(start.elapsed());
        let in_use = (0..pages).filter(|page| (page >> 9) % 100 == 0).count();
        assert_eq!(found, in_use.min(16384), "a round lists the hottest pages");
        hot += found;
    }
    sweeps.sort_unstable();
    lists.sort_unstable();
    println!(
        "{mode}: rounds of {nodes} nodes of {} GiB: sweep {:.0} ms (worst {:.0}), list {:.0} ms (worst {:.0}), {hot} pages",
        pages >> 18,
        sweeps[sweeps.len() / 2].as_secs_f64() * 1e3,
        sweeps[sweeps.len() - 1].as_secs_f64() * 1e3,
        lists[lists.len() / 2].as_secs_f64() * 1e3,
        lists[lists.len() - 1].as_secs_f64() * 1e3,
    );
}

fn main() {
    memory::<u8>("default", 8192);
    memory::<u32>("precision", 2048);
    rounds::<u8>("default", 8, 1024);
    rounds::<u8>("default", 8, 8192);
    rounds::<u32>("precision", 8, 8192);
    updates::<u8>("default");
    updates::<u32>("precision");
    sweeps::<u8>("default");
    sweeps::<u32>("precision");
}
