// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench stall`: threads of the application read and write pages at random while they move; how long do they wait?
//!
//! Each thread adds 1 to a counter of its own in a random page, and times it. At the end every counter must hold the
//! number of additions: a lost write is a failure of the mover, not a statistic.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use memferry::{
    Backend, Batch, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, SourcePages,
};
use memferry_linux::topology::Topology;

use super::host;
use super::region::{PAGE, Region, THP};
use super::rig::{failed, one_by_one};
use super::throughput::routine;
use crate::cli::bench::{Length, Migrator, StallArgs, user_migrators};
use crate::failure::Failure;
use crate::schema::{BENCH_SCHEMA, BenchFile, Envelope, Quantiles, Rows, StallRow};
use crate::ui::Ui;

/// An access that takes longer has waited: it met a page on its way, or the CPU did something else (an interrupt, a
/// hypervisor that took it away). A cache miss with a TLB miss takes below 1 us.
const WAITED_NS: u64 = 5_000;

/// `bench stall`.
pub fn run_stall(args: &StallArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    let topology = host::topology()?;
    let routine = routine(args.copy.as_deref())?;
    let wanted = args.total.map_or(256 << 20, |size| size.0);
    let total = host::fitting(wanted, &topology, 2);
    let mut notes = vec![format!(
        "stall_ns counts the accesses that took longer than {} us; access_ns counts all.",
        WAITED_NS / 1000
    )];
    notes.extend(host::emulated_note(&topology));
    if let Some(note) = host::changed_total(wanted, total) {
        ui.warn(&note);
        notes.push(note);
    }
    let mut cells = Vec::new();
    for &folio in &args.folio {
        for migrator in user_migrators(&args.migrator) {
            let lanes: &[usize] = match migrator {
                Migrator::Mtcopy => &args.lanes,
                Migrator::Batch | Migrator::PerFolio => &[1],
            };
            let batches = match migrator {
                // Its batch is the folio, whatever the list says.
                Migrator::PerFolio => vec![folio],
                Migrator::Batch | Migrator::Mtcopy => args.batches(folio),
            };
            for &lanes in lanes {
                cells.extend(batches.iter().map(|&batch| (folio, migrator, lanes, batch)));
            }
        }
    }
    let bar = ui.bar("bench stall", cells.len() as u64);
    let mut rows = Vec::new();
    let mut failure = None;
    for (folio, migrator, lanes, batch) in cells {
        if ui.stopped() {
            break;
        }
        bar.now(&format!("{} x{lanes}, {batch} batches", migrator.name()));
        let cell = Cell {
            topology: &topology,
            total: total as usize,
            huge: folio.0 as usize >= THP,
            folio: folio.0 as usize,
            migrator,
            lanes,
            batch: batch.0 as usize,
            threads: args.threads(host::usable_cpus(&topology), lanes),
            length: args.length(),
            allow_faulty_kernel: args.allow_faulty_kernel,
        };
        match cell.measure(routine, ui) {
            Ok(row) => rows.extend(row),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        bar.step();
    }
    drop(bar);
    super::finish(
        BenchFile {
            schema: BENCH_SCHEMA.to_owned(),
            envelope: args
                .length()
                .told(Envelope::now(Path::new("/")).with("total_bytes", total)),
            host: host::describe(&topology, Some(routine.name())),
            ceiling: Vec::new(),
            rows: Rows::Stall(rows),
            like: None,
            notes,
        },
        args.quick,
        failure,
        ui,
    )
}

impl Length {
    /// Says how long each row was measured.
    fn told(self, envelope: Envelope) -> Envelope {
        match self {
            Self::Seconds(seconds) => envelope.with("seconds", seconds),
            Self::Rounds(rounds) => envelope.with("rounds", rounds),
        }
    }
}

/// One row of the table.
struct Cell<'a> {
    topology: &'a Topology,
    total: usize,
    huge: bool,
    folio: usize,
    migrator: Migrator,
    lanes: usize,
    batch: usize,
    threads: usize,
    length: Length,
    allow_faulty_kernel: bool,
}

/// What one application thread saw.
struct Seen {
    waited: Histogram<u64>,
    all: Histogram<u64>,
    /// Additions per page.
    counts: Vec<u32>,
}

impl Cell<'_> {
    /// The row; none if the user stopped before anything moved.
    fn measure(
        &self,
        routine: memferry::copy::Routine,
        ui: &Ui,
    ) -> Result<Option<StallRow>, Failure> {
        let region = Region::new(self.total, self.huge, host::usable_cpus(self.topology)).map_err(
            |error| {
                Failure::new(
                    "cannot map the benchmark's memory",
                    error,
                    "give a smaller --total",
                )
            },
        )?;
        let mut mover = self.mover(routine)?;
        let nodes: Vec<u32> = self
            .topology
            .nodes_with_memory()
            .map(|node| node.id)
            .take(2)
            .collect();
        let pages = if self.huge { THP } else { PAGE };
        mover
            .prefill(nodes[nodes.len() - 1], pages, self.total)
            .map_err(|error| failed(&error))?;
        let counters = Counters {
            start: region.range().start,
            pages: self.total / PAGE,
        };
        counters.clear(self.threads);
        let (stop, ready) = (AtomicBool::new(false), Barrier::new(self.threads + 1));
        let accesses = AtomicU64::new(0);
        let (moved, seen) = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (stop, ready, accesses) = (&stop, &ready, &accesses);
                    scope.spawn(move || {
                        let mut seen = Seen::new(counters.pages);
                        ready.wait();
                        seen.work(counters, thread, stop);
                        accesses.fetch_add(seen.all.len(), Ordering::Relaxed);
                        seen
                    })
                })
                .collect();
            ready.wait();
            let moved = self.keep_moving(&mut mover, &region, &nodes, ui);
            stop.store(true, Ordering::Relaxed);
            let seen: Vec<Seen> = workers
                .into_iter()
                .filter_map(|worker| worker.join().ok())
                .collect();
            (moved, seen)
        });
        let (bytes, time) = moved?;
        if seen.len() != self.threads {
            return Err(Failure::new(
                "an application thread died",
                "it panicked",
                "report this",
            ));
        }
        let verified = counters.check(&seen)?;
        if bytes == 0 {
            return Ok(None);
        }
        let mut waited = new_histogram();
        let mut all = new_histogram();
        for seen in &seen {
            // Both have the same bounds.
            let _ = (waited.add(&seen.waited), all.add(&seen.all));
        }
        Ok(Some(StallRow {
            backend: "user".to_owned(),
            migrator: self.migrator.name().to_owned(),
            batch_bytes: self.batch,
            folio_bytes: self.folio,
            lanes: self.lanes,
            threads: self.threads,
            gbps: bytes as f64 / time.as_secs_f64() / 1e9,
            stall_ns: quantiles(&waited),
            access_ns: quantiles(&all),
            accesses: all.len(),
            stalled: waited.len(),
            verified_bytes: verified,
        }))
    }

    fn mover(&self, routine: memferry::copy::Routine) -> Result<Mover, Failure> {
        let mut options = match self.migrator {
            Migrator::PerFolio => MoverOptions::new(one_by_one()),
            Migrator::Batch => MoverOptions::new(Batch::with_routine(routine)),
            Migrator::Mtcopy => {
                let options = MtCopyOptions::default().lanes(self.lanes).routine(routine);
                MoverOptions::new(MtCopy::new(options).map_err(|error| failed(&error))?)
            }
        };
        options.pool_bytes = self.total + (64 << 20);
        options.backend = Backend::Userfaultfd;
        options.allow_faulty_kernel = self.allow_faulty_kernel;
        Mover::new(options).map_err(|error| failed(&error))
    }

    /// Moves the region again and again; bytes moved and the time it took.
    fn keep_moving(
        &self,
        mover: &mut Mover,
        region: &Region,
        nodes: &[u32],
        ui: &Ui,
    ) -> Result<(u64, Duration), Failure> {
        let options = MoveOptions::default()
            .batch_bytes(self.batch)
            .relocate(nodes.len() < 2)
            // SAFETY: the region is plain memory of this program: nothing of it was spliced into a pipe or sent.
            .source(unsafe { SourcePages::keep() });
        let started = Instant::now();
        let (mut bytes, mut time, mut round) = (0, Duration::ZERO, 0);
        loop {
            let done = match self.length {
                Length::Seconds(seconds) => started.elapsed() >= Duration::from_secs(seconds),
                Length::Rounds(rounds) => round >= rounds,
            };
            if done || ui.stopped() {
                return Ok((bytes, time));
            }
            round += 1;
            let result = mover
                .move_range(region.range(), nodes[round % nodes.len()], &options)
                .map_err(|error| failed(&error))?;
            bytes += result.moved.bytes;
            time += result.elapsed;
        }
    }
}

/// The application's data: in each page, one counter per thread.
#[derive(Clone, Copy)]
struct Counters {
    start: usize,
    pages: usize,
}

impl Counters {
    /// The counter of one thread in one page. Pages begin with them, a cache line apart while there are lines.
    fn at(self, page: usize, thread: usize) -> *mut u32 {
        const LINE: usize = 64;
        const LINES: usize = PAGE / LINE;
        let offset = thread % LINES * LINE + thread / LINES * size_of::<u32>();
        (self.start + page * PAGE + offset) as *mut u32
    }

    fn clear(self, threads: usize) {
        for page in 0..self.pages {
            for thread in 0..threads {
                // SAFETY: inside the region, which no thread uses yet.
                unsafe { self.at(page, thread).write(0) };
            }
        }
    }

    /// Compares all counters with what the threads did; gives the bytes compared.
    fn check(self, seen: &[Seen]) -> Result<u64, Failure> {
        for (thread, seen) in seen.iter().enumerate() {
            for (page, &count) in seen.counts.iter().enumerate() {
                // SAFETY: inside the region; the threads have ended.
                let found = unsafe { self.at(page, thread).read() };
                if found != count {
                    return Err(Failure::new(
                        "a write was lost",
                        format!("page {page}, thread {thread}: {found} instead of {count}"),
                        "report this with the machine's `memferry topology`",
                    ));
                }
            }
        }
        Ok((self.pages * seen.len() * size_of::<u32>()) as u64)
    }
}

impl Seen {
    fn new(pages: usize) -> Seen {
        Seen {
            waited: new_histogram(),
            all: new_histogram(),
            counts: vec![0; pages],
        }
    }

    /// Reads and writes random pages until `stop`.
    fn work(&mut self, counters: Counters, thread: usize, stop: &AtomicBool) {
        // xorshift64* (Vigna 2016): the page sequence only has to be cheap and without a pattern.
        let mut random = 0x2545_F491_4F6C_DD1D_u64 ^ (thread as u64) << 32 | 1;
        while !stop.load(Ordering::Relaxed) {
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            let page = (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 20) as usize % counters.pages;
            let counter = counters.at(page, thread);
            let started = Instant::now();
            // SAFETY: inside the region; only this thread uses this counter. Volatile: both accesses must happen.
            unsafe { counter.write_volatile(counter.read_volatile().wrapping_add(1)) };
            let took = started.elapsed().as_nanos() as u64;
            self.counts[page] = self.counts[page].wrapping_add(1);
            self.all.saturating_record(took);
            if took > WAITED_NS {
                self.waited.saturating_record(took);
            }
        }
    }
}

/// 1 ns to 60 s, three digits.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds")
}

fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
    if histogram.is_empty() {
        return Quantiles::default();
    }
    Quantiles {
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::bench::MOST_THREADS;

    #[test]
    fn no_two_threads_share_a_counter() {
        for threads in [1, 2, 64, 65, 66, 256, MOST_THREADS] {
            let counters = Counters {
                start: 0x10000,
                pages: 2,
            };
            let places: BTreeSet<usize> = (0..2)
                .flat_map(|page| (0..threads).map(move |thread| counters.at(page, thread) as usize))
                .collect();
            assert_eq!(places.len(), 2 * threads, "{threads}");
            let end = counters.start + counters.pages * PAGE;
            assert!(
                places
                    .iter()
                    .all(|place| (counters.start..end).contains(place))
            );
        }
    }
}
