// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the pages of a process may move: a token bucket that threads share. It never sleeps; it says how long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limit in bytes per second. What was moved is paid for afterwards, since only then it is known; so over a long time the
/// limit holds, and at no time more than one part per thread is moved above it.
pub(super) struct Pace {
    bytes_per_second: u64,
    /// When everything that was moved is paid for.
    free_at: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Pace {
        Pace {
            bytes_per_second: bytes_per_second.max(1),
            free_at: Mutex::new(now),
        }
    }

    /// How long to wait until the next part may begin.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        free_at.saturating_duration_since(now)
    }

    /// Pays for what was moved. Time that passed unused is not saved up.
    pub(super) fn pay(&self, now: Instant, bytes: u64) {
        let price = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*free_at).max(now);
        *free_at = from.checked_add(price).unwrap_or(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_paid_for_before_the_next_part() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let pace = Pace::new(100, start);
        assert_eq!(pace.wait(start), Duration::ZERO);
        pace.pay(start, 200);
        pace.pay(start, 100);
        assert_eq!(pace.wait(start), 3 * second);
        assert_eq!(pace.wait(start + second), 2 * second);
        // Idle time is gone.
        let late = start + 60 * second;
        assert_eq!(pace.wait(late), Duration::ZERO);
        pace.pay(late, 100);
        assert_eq!(pace.wait(late), second);
    }

    #[test]
    fn no_price_is_too_high() {
        let now = Instant::now();
        let pace = Pace::new(0, now);
        pace.pay(now, u64::MAX / 4);
        pace.pay(now, u64::MAX / 4);
        assert!(pace.wait(now) > Duration::ZERO);
    }
}
