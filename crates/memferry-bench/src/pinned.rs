// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread on one CPU that works until nobody needs it, and counts what it did. What the work is, others say.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memferry_linux::affinity;

/// A thread that works until this value goes.
pub struct PinnedThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// On a cache line of its own: no thread waits for another's counter.
#[derive(Default)]
#[repr(align(128))]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
}

impl PinnedThread {
    /// Starts it on this CPU; `round` works for a moment and says how much that was.
    ///
    /// # Errors
    /// The thread cannot be started, or not bound to its CPU.
    pub fn start(
        name: String,
        cpu: u32,
        mut round: impl FnMut() -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let (ready, bound) = mpsc::channel();
        let work = move || {
            let pinned = affinity::pin(&[cpu]);
            let starts = pinned.is_ok();
            if ready.send(pinned).is_ok() && starts {
                while !own.stop.load(Ordering::Relaxed) {
                    own.done.fetch_add(round(), Ordering::Relaxed);
                }
            }
        };
        let thread = thread::Builder::new().name(name).spawn(work)?;
        bound.recv().unwrap_or(Ok(())).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("it may not run on CPU {cpu}: {error}"),
            )
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// How much it has done.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// How much it does in a second, over so long at least, and until it has done something: 0 would be no rate to compare with. 0
    /// if that ends it before.
    pub fn per_s(&self, least: Duration, ends: impl Fn() -> bool) -> f64 {
        let since = Since::now(self.done());
        while (since.at.elapsed() < least || self.done() == since.done) && !ends() {
            thread::sleep(Duration::from_millis(1));
        }
        since.per_s(self.done())
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of a thread that only counts changes no result.
            let _ = thread.join();
        }
    }
}

/// A moment, and how much threads had done.
pub struct Since {
    pub at: Instant,
    pub done: u64,
}

impl Since {
    /// Now.
    pub fn now(done: u64) -> Self {
        let at = Instant::now();
        Self { at, done }
    }

    /// How much they did in a second since then, of those that have done so much now.
    pub fn per_s(&self, done: u64) -> f64 {
        let more = done - self.done;
        more as f64 / self.at.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a disk that takes longer for a block than it is looked at.
    #[test]
    fn a_thread_whose_round_takes_long_has_a_rate() {
        let cpu = affinity::allowed().expect("CPUs")[0];
        let round = || {
            thread::sleep(Duration::from_millis(20));
            1
        };
        let slow = PinnedThread::start("slow".to_owned(), cpu, round).expect("thread");
        let rate = slow.per_s(Duration::ZERO, || false);
        assert!(rate > 0.0, "{rate}");
        assert_eq!(slow.per_s(Duration::MAX, || true), 0.0);
    }
}
