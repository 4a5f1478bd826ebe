// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table behind `memferry topology --copy`: how fast each routine copies, by extent and by threads.
//! It takes seconds and gigabytes; the choice at start-up is `best`'s, not made here.

use super::buffer::{Buffer, shuffled};
use super::{Routine, available};
use memferry_core::share;
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

/// What to measure: every combination of the lists.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// The routines; by default all that are available.
    pub routines: Vec<Routine>,
    /// Lengths of the extents in bytes; by default 4 KiB, 256 KiB and 2 MiB.
    pub extent_bytes: Vec<usize>,
    /// Numbers of copying threads; by default one, and as many as there are CPUs for the process.
    pub threads: Vec<usize>,
    /// Kinds of pages; by default both.
    pub pages: Vec<Pages>,
    /// Size of the source and of the destination, in bytes, rounded up to 2 MiB; by default 1 GiB, well
    /// above any last-level cache. Twice as much memory is needed.
    pub buffer_bytes: usize,
    /// Timed passes over the buffer for each row, at least 1; by default 5.
    pub runs: usize,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            routines: available().to_vec(),
            extent_bytes: vec![4 << 10, 256 << 10, 2 << 20],
            threads: if cpus > 1 { vec![1, cpus] } else { vec![1] },
            pages: vec![Pages::Small, Pages::Huge],
            buffer_bytes: 1 << 30,
            runs: 5,
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The routine's name.
    pub routine: &'static str,
    /// The pages that backed source and destination.
    pub pages: Pages,
    /// Length of each extent, in bytes.
    pub extent_bytes: usize,
    /// Threads that copied at the same time.
    pub threads: usize,
    /// Median over the runs, in 1e9 bytes copied per second, all threads together.
    pub gbps: f64,
    /// The slowest run.
    pub gbps_min: f64,
    /// The fastest run.
    pub gbps_max: f64,
}

/// Measures how fast routines copy memory that is cold in every cache.
///
/// Each run copies the whole source once, in extents of random order; the routines take turns run by run, so
/// that drift of the machine hits all alike. Memory is allocated and touched before anything is timed, which
/// alone can take seconds on a virtual machine. Combinations that make no sense (no thread, an empty extent,
/// an extent that is larger than a thread's share of the buffer) give no row. Rows come by pages, threads and
/// extent, then in the order of the routines.
///
/// # Panics
///
/// If the operating system refuses a thread. Aborts, like any allocation, if memory runs out.
pub fn measure(options: &MeasureOptions) -> Vec<Measurement> {
    let mut rows = Vec::new();
    for &pages in &options.pages {
        let src = Buffer::new(options.buffer_bytes, pages);
        let dst = Buffer::new(options.buffer_bytes, pages);
        for &threads in &options.threads {
            for &extent_bytes in &options.extent_bytes {
                if extent_bytes == 0 || threads == 0 || src.bytes() / extent_bytes < threads {
                    continue;
                }
                let samples = take_turns(options, &src, &dst, threads, extent_bytes);
                for (routine, mut speeds) in options.routines.iter().zip(samples) {
                    speeds.sort_by(f64::total_cmp);
                    rows.push(Measurement {
                        routine: routine.name(),
                        pages,
                        extent_bytes,
                        threads,
                        gbps: speeds[speeds.len() / 2],
                        gbps_min: speeds[0],
                        gbps_max: speeds[speeds.len() - 1],
                    });
                }
            }
        }
    }
    rows
}

/// The speeds of every routine, run by run, in GB/s.
fn take_turns(
    options: &MeasureOptions,
    src: &Buffer,
    dst: &Buffer,
    threads: usize,
    extent_bytes: usize,
) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::new(); options.routines.len()];
    for run in 0..options.runs.max(1) {
        let offsets = pairs(src.bytes() / extent_bytes, extent_bytes, run as u64);
        for (routine, speeds) in options.routines.iter().zip(&mut samples) {
            let seconds = pass(*routine, src, dst, &offsets, extent_bytes, threads);
            speeds.push((offsets.len() * extent_bytes) as f64 / seconds / 1e9);
        }
    }
    samples
}

/// Offsets of every extent of the source, each with one of the destination, in random order.
fn pairs(n: usize, bytes: usize, seed: u64) -> Vec<(usize, usize)> {
    shuffled(n, 2 * seed)
        .into_iter()
        .zip(shuffled(n, 2 * seed + 1))
        .map(|(from, to)| (from * bytes, to * bytes))
        .collect()
}

/// Copies all extents once with several threads; seconds from the first start to the last end.
fn pass(
    routine: Routine,
    src: &Buffer,
    dst: &Buffer,
    offsets: &[(usize, usize)],
    bytes: usize,
    threads: usize,
) -> f64 {
    // A lock and not a barrier: if a thread cannot be had, those that wait must still end.
    let gate = RwLock::new(());
    let work = |thread: usize| {
        let part = &offsets[share(offsets.len(), threads, 1, thread)];
        drop(gate.read());
        let start = Instant::now();
        for &(from, to) in part {
            // SAFETY: both extents lie inside their buffers, and no other one has the same destination.
            unsafe { routine.copy(src.start().add(from), dst.start().add(to), bytes) }
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
