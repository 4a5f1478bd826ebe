// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tracker::cell` under a model checker: every interleaving of a few threads that write records of one word.
//!
//! It compiles the same source with shuttle's atomics instead of the standard library's.
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicU64, Ordering};
}
#[allow(
    clippy::duplicate_mod,
    reason = "the same source with other atomics is what is checked"
)]
#[path = "tracker/cell.rs"]
mod cell;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};

/// One more, up to where records end.
fn next(record: u8) -> u8 {
    record.saturating_add(1)
}

/// Threads count in the records of one word, two in the same one, while a sweep doubles all of them once.
#[test]
fn a_sweep_reaches_every_record_once_between_the_accesses_of_threads() {
    let body = || {
        let word = Arc::new(AtomicU64::new(0x0101_0101_0101_0101));
        let threads: Vec<_> = [0, 0, 7]
            .into_iter()
            .map(|lane| {
                let word = Arc::clone(&word);
                shuttle::thread::spawn(move || cell::update::<u8>(&word, lane, next))
            })
            .collect();
        let seen = word.load(Ordering::Relaxed);
        let wanted = (0..8)
            .map(|lane| u64::from(cell::record::<u8>(seen, lane) * 2) << (8 * lane))
            .sum();
        cell::update_all::<u8>(&word, seen, wanted, |record| record * 2);
        for thread in threads {
            thread.join().unwrap();
        }
        let end = word.load(Ordering::Relaxed);
        // 1 and two more, and doubled before, between or after; 1 and one more, and doubled.
        assert!([4, 5, 6].contains(&cell::record::<u8>(end, 0)), "{end:x}");
        assert!([3, 4].contains(&cell::record::<u8>(end, 7)), "{end:x}");
        for lane in 1..7 {
            assert_eq!(cell::record::<u8>(end, lane), 2, "{end:x}");
        }
    };
    shuttle::check_dfs(body, Some(20_000));
    shuttle::check_random(body, 5_000);
}

#[test]
fn two_records_of_a_word_do_not_disturb_each_other() {
    let body = || {
        let word = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = [0, 1]
            .into_iter()
            .map(|lane| {
                let word = Arc::clone(&word);
                shuttle::thread::spawn(move || {
                    for value in 1..=2_u32 {
                        let (before, after) = cell::update::<u32>(&word, lane, |_| value);
                        assert_eq!((before, after), (value - 1, value));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(word.load(Ordering::Relaxed), 2 << 32 | 2);
    };
    shuttle::check_dfs(body, Some(20_000));
}
