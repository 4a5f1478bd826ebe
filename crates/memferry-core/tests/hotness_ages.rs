// SPDX-License-Identifier: MIT OR Apache-2.0
//! No old access looks recent, at any age; and how often it does with time modulo its range and no sweep.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memferry_core::hotness::{Access, Histogram, Params, Policy, Record, Sweep};

/// Follows one page through every millisecond of age from 0 to `most`, with sweeps as late as allowed, the first one
/// `phase` ms after the access. Returns at how many ages beyond the window it looked recent, and that it never looked
/// younger than it was.
fn false_recent<R: Record>(policy: &Policy<R>, start: u64, phase: u64, most: u64) -> u64 {
    let params = policy.params();
    let mut record = R::default().accessed(policy, &Access::at(start));
    let (mut last, mut next, mut number) = (start, start + phase, 0);
    let mut wrong = 0;
    for now in start..=start + most {
        if now == next {
            number += 1;
            let sweep = Sweep {
                now: now as u32,
                last: last as u32,
                number,
            };
            record = record.aged(policy, &sweep);
            last = now;
            next += u64::from(params.sweep_ms);
        }
        if let Some(told) = record.age_ms(now as u32) {
            assert!(u64::from(told) >= now - start, "{told} at {}", now - start);
            wrong += u64::from(told <= params.window_ms && now - start > params.window_ms.into());
        }
        // What the next access would make of it, too: it counts on only within the window.
        let again = record.accessed(policy, &Access::at(now)).view(now as u32);
        let restarts = again.freq == 1;
        wrong += u64::from(!restarts && now - start > params.window_ms.into());
    }
    wrong
}

/// The access at `step` times each of some offsets, with the first sweep as early and as late as allowed and in between.
fn no_age_looks_recent<R: Record>(windows: [u32; 4], offsets: u64, step: u64, most: u64) {
    for window_ms in windows {
        let widest = Params {
            recall: 0,
            window_ms,
            sweep_ms: u32::MAX,
            ..Params::of::<R>()
        };
        let sweep_ms = Policy::<R>::new(widest).unwrap_err().most as u32;
        let policy = Policy::<R>::new(Params { sweep_ms, ..widest }).unwrap();
        for offset in 0..offsets {
            let phase = 1 + offset * u64::from(sweep_ms - 1) / (offsets - 1);
            let start = (1 << 32) - most / 2 + step * offset;
            assert_eq!(false_recent(&policy, start, phase, most), 0);
        }
    }
}

/// Every age up to ten times the range of the time field, in default mode with the access at every millisecond of a bucket.
#[test]
fn no_age_looks_recent_in_either_mode() {
    no_age_looks_recent::<u8>([256, 1000, 3000, 3712], 128, 1, 40_960);
    no_age_looks_recent::<u32>([16, 1000, 5000, 15_000], 16, 1031, 163_840);
}

/// With time modulo its range alone an age of which only the rest is known is recent by chance: 73% and 31% of them. The
/// model of what is published, which the tests above would find.
#[test]
fn without_sweeps_old_ages_do_look_recent() {
    let of_range = |range: u64, window: u64, unit: u64| {
        let old = 10 * range..11 * range;
        let recent = old.filter(|age| age % range / unit * unit <= window);
        recent.count() as f64 / range as f64
    };
    assert!((of_range(4096, 3000, 128) - 0.73).abs() < 0.03);
    assert!((of_range(16384, 5000, 1) - 0.31).abs() < 0.01);
}

/// Everything that is stored of a page is gone in the end.
#[test]
fn a_page_that_is_never_used_again_is_forgotten() {
    fn sweeps_until_forgotten<R: Record>() -> u32 {
        let policy = Policy::<R>::default();
        let mut records = [R::default().accessed(&policy, &Access::at(0))];
        for number in 1.. {
            let mut histogram = Histogram::default();
            let now = number * policy.params().sweep_ms;
            let sweep = Sweep {
                now,
                last: now.wrapping_sub(policy.params().sweep_ms),
                number,
            };
            R::sweep(&mut records, &policy, &sweep, &mut histogram);
            if histogram.known() == 0 {
                assert_eq!(records, [R::default()]);
                return number;
            }
        }
        unreachable!()
    }
    assert_eq!(sweeps_until_forgotten::<u8>(), 256);
    assert_eq!(sweeps_until_forgotten::<u32>(), 1 << 15);
}
