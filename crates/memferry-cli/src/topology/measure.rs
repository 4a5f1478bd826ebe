// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table behind `memferry topology --copy`: how fast each routine copies, by extent and by threads.
//! It takes seconds and gigabytes; the choice at start-up is the library's, not made here.

use memferry::copy::{Routine, available};
use memferry_bench::region::{PAGE, Region};
use std::io;
use std::sync::RwLock;
use std::time::Instant;

/// Which pages back the memory that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB pages (the base page), scattered over physical memory.
    Small,
    /// 2 MiB transparent huge pages, if the kernel grants them.
    Huge,
}

/// A row of the table: every routine of this CPU copies in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Threads that copy at the same time.
    pub threads: usize,
    /// Bytes of one call.
    pub extent_bytes: usize,
}

/// What a routine does, in 1e9 bytes copied per second, all threads together.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Median over the runs.
    pub gbps: f64,
    /// The slowest run.
    pub gbps_min: f64,
    /// The fastest run.
    pub gbps_max: f64,
}

/// A source and a destination.
pub struct Buffers {
    src: Region,
    dst: Region,
}

impl Buffers {
    /// Of `bytes` each, a multiple of 2 MiB. They are touched before anything is timed, small pages in random order, so that they
    /// end up scattered over physical memory as those of a long-lived process do.
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Buffers> {
        let region = |seed| {
            let order = shuffled(bytes / PAGE, seed);
            Region::touched(bytes, pages == Pages::Huge, order)
        };
        Ok(Buffers {
            src: region(1)?,
            dst: region(2)?,
        })
    }

    /// The speed of each routine on memory that is cold in every cache, over `runs` passes.
    ///
    /// Each pass copies the whole source once, in extents of random order; the routines take turns pass by pass, so that drift of
    /// the machine hits all alike.
    pub fn measure(&mut self, case: &Case, runs: usize) -> Vec<Speed> {
        let mut samples = vec![Vec::new(); available().len()];
        for run in 0..runs {
            let bytes = case.extent_bytes;
            let offsets = pairs(self.src.range().len() / bytes, bytes, run as u64);
            for (routine, speeds) in available().iter().zip(&mut samples) {
                let seconds = self.pass(*routine, case, &offsets);
                speeds.push((offsets.len() * bytes) as f64 / seconds / 1e9);
            }
        }
        let speed = |mut of: Vec<f64>| {
            of.sort_by(f64::total_cmp);
            Speed {
                gbps: of[of.len() / 2],
                gbps_min: of[0],
                gbps_max: of[of.len() - 1],
            }
        };
        samples.into_iter().map(speed).collect()
    }

    /// Copies all extents once with several threads; seconds from the first start to the last end.
    fn pass(&mut self, routine: Routine, case: &Case, offsets: &[(usize, usize)]) -> f64 {
        let (src, dst) = (self.src.range().start, self.dst.range().start);
        let (threads, bytes) = (case.threads, case.extent_bytes);
        let parts: Vec<_> = offsets
            .chunks(offsets.len().div_ceil(threads).max(1))
            .collect();
        // A lock and not a barrier: if a thread cannot be had, those that wait must still end.
        let gate = RwLock::new(());
        let work = |thread: usize| {
            let part = parts.get(thread).copied().unwrap_or_default();
            drop(gate.read());
            let start = Instant::now();
            for &(from, to) in part {
                // SAFETY: both extents lie inside their buffers, and no other one has the same destination.
                unsafe { routine.copy((src + from) as *const u8, (dst + to) as *mut u8, bytes) }
            }
            (start, Instant::now())
        };
        let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let closed = gate.write();
            let work = &work;
            let running: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            drop(closed);
            running.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        let start = spans.iter().map(|s| s.0).min();
        let end = spans.iter().map(|s| s.1).max();
        match (start, end) {
            // A clock too coarse to see the pass must not give an infinite speed.
            (Some(start), Some(end)) => (end - start).as_secs_f64().max(1e-9),
            _ => f64::INFINITY,
        }
    }
}

/// Offsets of every extent of the source, each with one of the destination, in random order.
fn pairs(n: usize, bytes: usize, seed: u64) -> Vec<(usize, usize)> {
    shuffled(n, 2 * seed)
        .into_iter()
        .zip(shuffled(n, 2 * seed + 1))
        .map(|(from, to)| (from * bytes, to * bytes))
        .collect()
}

/// The numbers below `n` in an order that depends on `seed` only.
fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_routine_has_a_speed() {
        let mut buffers = Buffers::new(4 << 20, Pages::Small).expect("memory");
        let case = Case {
            threads: 2,
            extent_bytes: 64 << 10,
        };
        let speeds = buffers.measure(&case, 3);
        assert_eq!(speeds.len(), available().len());
        for speed in speeds {
            assert!(speed.gbps_min > 0.0 && speed.gbps.is_finite(), "{speed:?}");
            assert!(speed.gbps_min <= speed.gbps && speed.gbps <= speed.gbps_max);
        }
    }

    #[test]
    fn every_extent_is_copied_once() {
        let mut offsets = pairs(100, 4096, 7);
        offsets.sort_unstable();
        assert!(
            offsets
                .iter()
                .enumerate()
                .all(|(i, &(from, _))| from == i * 4096)
        );
        offsets.sort_unstable_by_key(|&(_, to)| to);
        assert!(
            offsets
                .iter()
                .enumerate()
                .all(|(i, &(_, to))| to == i * 4096)
        );
    }
}
