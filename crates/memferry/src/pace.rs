// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast pages may move: a token bucket that threads share.

use crate::sync::Unpoisoned;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep before `cancel` is looked at again: below what a person notices.
const NAP: Duration = Duration::from_millis(50);

/// A limit in bytes per second, or none. What was moved is paid for afterwards, since only then it is known; so over a long time the
/// limit holds, and at no time more than one part per thread is moved above it.
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When everything that was moved is paid for.
    free_at: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace {
            bytes_per_second,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits until the next part may begin; false when it is cancelled.
    pub(crate) fn wait(&self, cancel: &AtomicBool) -> bool {
        while !cancel.load(Ordering::Relaxed) {
            let left = self.left(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
        false
    }

    /// How long the next part has to wait.
    fn left(&self, now: Instant) -> Duration {
        let free_at = self.free_at.lock().unpoisoned();
        free_at.saturating_duration_since(now)
    }

    /// Pays for what was moved. Time that passed unused is not saved up.
    pub(crate) fn pay(&self, now: Instant, bytes: u64) {
        let Some(rate) = self.bytes_per_second else {
            return;
        };
        let price = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let mut free_at = self.free_at.lock().unpoisoned();
        let from = (*free_at).max(now);
        *free_at = from.checked_add(price).unwrap_or(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_paid_for_before_the_next_part() {
        let pace = Pace::new(Some(100));
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(pace.left(start), Duration::ZERO);
        pace.pay(start, 200);
        pace.pay(start, 100);
        assert_eq!(pace.left(start), 3 * second);
        assert_eq!(pace.left(start + second), 2 * second);
        // Idle time is gone.
        let late = start + 60 * second;
        assert_eq!(pace.left(late), Duration::ZERO);
        pace.pay(late, 100);
        assert_eq!(pace.left(late), second);
    }

    #[test]
    fn no_price_is_too_high() {
        let pace = Pace::new(Some(0));
        let now = Instant::now();
        pace.pay(now, u64::MAX / 4);
        pace.pay(now, u64::MAX / 4);
        assert!(pace.left(now) > Duration::ZERO);
    }
}
