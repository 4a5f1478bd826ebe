// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at a process takes its mmap_lock for each call. A thread of the process that waits for it, as for mmap(2), is woken between two
//! calls, but a look that goes on at once has the lock again before that thread runs, until the kernel hands it over after 4 ms.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Calls go on for so long without a pause.
const BURST: Duration = Duration::from_micros(200);
/// A thread that was woken runs within it where a CPU is free; with the kernel's timer slack it takes some 100 us.
const PAUSE: Duration = Duration::from_micros(50);

/// A look's pauses.
#[derive(Debug)]
pub struct GiveWay(Cell<Instant>);

impl Default for GiveWay {
    fn default() -> Self {
        Self(Cell::new(Instant::now()))
    }
}

impl GiveWay {
    /// To be called between two calls that take the lock.
    pub fn between_calls(&self) {
        if self.0.get().elapsed() >= BURST {
            std::thread::sleep(PAUSE);
            self.0.set(Instant::now());
        }
    }
}
