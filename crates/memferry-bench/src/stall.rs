// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench stall`: threads of the application read and write pages at random while they move; how long do they wait?
//!
//! Each thread adds 1 to a counter of its own in a random page, and times it. All pages are there from the start, so an
//! access that takes a page fault met a page that was away. At the end every byte is compared: a lost write is a failure
//! of the mover, not a statistic. The kernel's moves are calls of move_pages(2) for all pages; its batches end at
//! max_batch_bytes.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use memferry::{Batch, MoveHandle, MoveOptions, Mover, MoverOptions, SourcePages};
use memferry_linux::kernel::NO_MIGRATOR;
use memferry_linux::topology::Topology;

use super::between::{Control, Done};
use super::cpu_time::of_thread;
use super::nodes::{self, bring, call_failed, missing, send};
use super::region::{PAGE, Region, THP};
use super::rig::{Means, bug, failed, new_mover, new_mtcopy, one_by_one};
use super::throughput::routine;
use super::trace::{Trace, Traced};
use super::{host, kernel, rig, threads};
use crate::Stopped;
use crate::args::{Backend, LanesOn, Length, Migrator, StallArgs, distinct};
use crate::failure::Failure;
use crate::schema::{BenchFile, FromTo, Quantiles, Rows, StallRow};
use crate::ui::Ui;
use crate::units::{LARGEST, Size};

/// Only after accesses that took longer the thread asks how many page faults it had: a fault that the kernel handles takes
/// more, even one that finds the page back already.
const FAULT_NS: u64 = 200;

/// How long the threads work with nothing moving, for comparison, at most.
const MOST_ALONE: Duration = Duration::from_secs(1);

/// What the application's threads do: accesses count, or not (pages come back), or the threads end.
const COUNTED: u8 = 0;
const UNCOUNTED: u8 = 1;
const ENDED: u8 = 2;

/// How often it is looked whether a move must end.
const LOOK: Duration = Duration::from_millis(10);

/// `bench stall`.
pub fn run_stall(args: &StallArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let topology = host::topology()?;
    let cpus = host::usable_cpus(&topology);
    let routine = routine(args.copy.as_deref())?;
    let of_kernel = args.backend == Backend::Kernel;
    let usual = match of_kernel && topology.is_emulated() {
        // Each call takes seconds there.
        true => 16 << 20,
        false => 256 << 20,
    };
    let wanted = args.total.map_or(usual, |size| size.0);
    let nodes = match of_kernel {
        true => Some(nodes::choose(&topology, &args.nodes)?),
        false => nodes::choose_or_within(&topology, &args.nodes)?,
    };
    let total = nodes::fitting(wanted, &topology, nodes, 1);
    let mut notes = vec![
        "stall_ns counts the accesses that met a page on its way, which is a page fault; access_ns counts all.".to_owned(),
    ];
    notes.extend(host::emulated_note(&topology));
    if !of_kernel {
        let folios = args.folio.iter().map(|size| size.0 as usize);
        notes.extend(rig::base_pages_note(folios));
    }
    let mut say = |note: Option<String>| {
        note.iter().for_each(|note| ui.warn(note));
        notes.extend(note);
    };
    say(host::quota_note(&topology));
    say(host::changed_total(wanted, total));
    let mut control = None;
    let mut columns = match of_kernel {
        true => kernel_columns(args, &mut control, &mut say)?,
        false => rig::columns(args.migrators(), &distinct(&args.lanes), cpus)?,
    };
    // Its lanes are not fixed.
    columns.retain(|(means, _)| !means.is_auto());
    let fits = |batch: &Size| !of_kernel || batch.0 <= total;
    let mut cells = Vec::new();
    let mut larger = None;
    for folio in distinct(&args.folio) {
        for (means, lanes) in &columns {
            let batches = match means {
                // Its batch is the folio, whatever the list says.
                Means::Mover(Migrator::PerFolio) => vec![folio],
                // Linux without a migrator has batches of this size, whatever is set.
                Means::Kernel(name) if name == NO_MIGRATOR => vec![LARGEST],
                _ => args.batches(folio),
            };
            larger = larger.or(batches.iter().copied().find(|batch| !fits(batch)));
            let batches = batches.into_iter().filter(fits);
            cells.extend(batches.map(|batch| (folio, means, *lanes, batch)));
        }
    }
    say(larger.map(|_| {
        let total = Size(total);
        format!(
            "Larger batches than the {total} that move in a call are left out: --total is more."
        )
    }));
    let bar = ui.bar("bench stall", cells.len() as u64);
    let mut rows = Vec::new();
    let mut failure = None;
    for (folio, means, lanes, batch) in cells {
        if ui.stopped() {
            break;
        }
        bar.now(&format!("{} x{lanes}, {batch} batches", means.name()));
        if let Some(control) = &mut control {
            let set = control.activate(means.name(), Some(lanes));
            if let Err(error) = set.and_then(|()| control.batch(batch.0)) {
                failure = Some(error);
                break;
            }
        }
        let cell = Cell {
            topology: &topology,
            nodes,
            total: total as usize,
            huge: folio.0 as usize >= THP,
            folio: folio.0 as usize,
            means,
            lanes,
            batch: batch.0 as usize,
            threads: args.threads(host::cpus_in_quota(&topology), lanes),
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
    let restored = control.map_or(Ok(()), Control::restore);
    notes.extend(not_copied(&rows));
    let host = host::describe(&topology, Some(routine.name()));
    let mut file = BenchFile::new(host, Rows::Stall(rows), notes);
    let settings = file.envelope.with("total_bytes", total);
    file.envelope = match args.length() {
        Length::Seconds(seconds) => settings.with("seconds", seconds),
        Length::Rounds(rounds) => settings.with("rounds", rounds),
    };
    crate::finish(file, args.quick, failure, restored, ui)
}

/// The kernel's migrators with their lanes, and what sets them; nothing can be set without the series. Says what is left out.
fn kernel_columns(
    args: &StallArgs,
    control: &mut Option<Control>,
    say: &mut dyn FnMut(Option<String>),
) -> Result<Vec<(Means, usize)>, Failure> {
    let found = kernel::migration()?;
    let names = kernel::names(&found);
    let mut columns = kernel::columns(args.migrators(), &distinct(&args.lanes), names)?;
    if found.is_err() {
        if args.batch.iter().any(|&batch| batch != LARGEST) {
            return Err(Failure::new(
                "this kernel's batches have one size",
                format!("without the series they are of {LARGEST}"),
                "leave out --batch",
            ));
        }
        return Ok(columns);
    }
    let control = control.insert(Control::new(true, LanesOn::default())?);
    say(control.fit_channels(&mut columns)?);
    Ok(columns)
}

/// The rows that are not what their name says: the migrator left more than a tenth of the bytes to the plain copy.
fn not_copied(rows: &[StallRow]) -> Option<String> {
    kernel::copied_by_others(rows, |row: &StallRow| {
        let share = row.copied_bytes? as f64 / row.moved_bytes? as f64;
        let (migrator, lanes, percent) = (&row.migrator, row.lanes, share * 100.0);
        (share < 0.9).then(|| {
            format!(
                "{migrator} x{lanes}, {}: {percent:.0}%",
                Size(row.batch_bytes as u64)
            )
        })
    })
}

/// One row of the table.
struct Cell<'a> {
    topology: &'a Topology,
    /// Pages move from the first to the second, and come back outside of the times; `None`: within the machine's one node.
    nodes: Option<FromTo>,
    total: usize,
    huge: bool,
    folio: usize,
    means: &'a Means,
    lanes: usize,
    batch: usize,
    threads: usize,
    length: Length,
    allow_faulty_kernel: bool,
}

/// What one application thread saw.
struct Seen {
    /// Accesses that took a page fault.
    waited: Histogram<u64>,
    all: Histogram<u64>,
    /// What it added to its counter in each page.
    counts: Vec<u32>,
}

impl Cell<'_> {
    /// The row; none if the user stopped before anything moved.
    fn measure(
        &self,
        routine: memferry::copy::Routine,
        ui: &Ui,
    ) -> Result<Option<StallRow>, Failure> {
        let (pages, cpus) = (
            if self.huge { THP } else { PAGE },
            host::usable_cpus(self.topology),
        );
        let mut region = nodes::map(self.nodes.map(|of| of.from), self.total, pages, cpus)?;
        let target = nodes::target(self.topology, self.nodes);
        if !region.is_made_of(self.huge).unwrap_or(true) {
            return Err(Failure::new(
                format!(
                    "the memory is not made of folios of {}",
                    Size(self.folio as u64)
                ),
                "transparent huge pages are off or forced, or memory is too fragmented",
                "set /sys/kernel/mm/transparent_hugepage/enabled to madvise",
            ));
        }
        if let Some(nodes) = self.nodes {
            bring(&Vec::from_iter(region.range().step_by(pages)), nodes.from)?;
        }
        let mut mover = match self.means {
            &Means::Mover(migrator) => Some(self.mover(migrator, routine)?),
            _ => None,
        };
        if let Some(mover) = &mut mover {
            mover.prefill(target, pages, self.total).map_err(failed)?;
        }
        let counters = Counters {
            start: region.range().start,
            pages: self.total / PAGE,
        };
        let alone = self.while_working(counters, &mut |_: &AtomicU8| {
            let begun = Instant::now();
            while begun.elapsed() < self.alone() && !ui.stopped() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(begun.elapsed())
        })?;
        counters.check(&alone.seen, &region, self.threads)?;
        region.fill(self.threads);
        let mut moved = Moved::default();
        let trace = mover.is_none().then(Trace::of_batches).flatten();
        let moving = self.while_working(counters, &mut |phase| {
            let mut round = 0;
            while !self.is_over(round, moved.counted, ui) {
                round += 1;
                match (&mut mover, self.nodes) {
                    (None, Some(nodes)) => {
                        self.by_kernel(nodes, &region, phase, &mut moved, trace.as_ref())
                    }
                    (Some(mover), _) => {
                        self.by_mover(mover, &region, (target, round), phase, &mut moved, ui)
                    }
                    (None, None) => return Err(bug("the kernel has no second node")),
                }?;
            }
            Ok(moved.counted)
        })?;
        let bytes = moved.bytes;
        let traced = trace.map_or_else(Traced::default, |trace| trace.read(0));
        let verified = counters.check(&moving.seen, &region, self.threads)?;
        if bytes == 0 && ui.stopped() {
            return Ok(None);
        }
        if bytes == 0 {
            return Err(Failure::new(
                "no page moved beside the application's threads",
                "the moves ended, and each left all pages where they were",
                "look for pinned pages, and free memory on the target node",
            ));
        }
        let seen = &moving.seen;
        let mut waited = new_histogram();
        let mut all = new_histogram();
        for seen in seen {
            // Both have the same bounds.
            let _ = (waited.add(&seen.waited), all.add(&seen.all));
        }
        Ok(Some(StallRow {
            backend: self.means.backend().to_owned(),
            nodes: self.nodes,
            migrator: self.means.name().to_owned(),
            batch_bytes: self.batch,
            folio_bytes: self.folio,
            lanes: self.lanes,
            threads: self.threads,
            moved_bytes: Some(bytes),
            copied_bytes: moved.copied,
            lanes_used: traced.lanes_used,
            mean_batch_bytes: traced.batch_bytes,
            gbps: bytes as f64 / moved.time.as_secs_f64() / 1e9,
            stall_ns: quantiles(&waited),
            access_ns: quantiles(&all),
            accesses: all.len(),
            stalled: waited.len(),
            accesses_per_s: Some(moving.per_second()),
            alone_accesses_per_s: Some(alone.per_second()),
            verified_bytes: verified,
        }))
    }

    /// How long the threads work with nothing moving.
    fn alone(&self) -> Duration {
        match self.length {
            Length::Seconds(seconds) => Duration::from_secs(seconds).min(MOST_ALONE),
            Length::Rounds(_) => MOST_ALONE / 10,
        }
    }

    /// What the application's threads see while `act` runs, which says how long it was counted.
    fn while_working(
        &self,
        counters: Counters,
        act: &mut dyn FnMut(&AtomicU8) -> Result<Duration, Failure>,
    ) -> Result<Worked, Failure> {
        let phase = AtomicU8::new(COUNTED);
        let work = |thread, mut seen: Seen| {
            seen.work(counters, thread, &phase);
            seen
        };
        let act = || {
            let acted = act(&phase);
            phase.store(ENDED, Ordering::Relaxed);
            acted
        };
        let (acted, seen) =
            threads::together(self.threads, || Seen::new(counters.pages), work, act)
                .map_err(threads::not_started(self.threads))?;
        let time = acted?;
        Ok(Worked { seen, time })
    }

    fn mover(
        &self,
        migrator: Migrator,
        routine: memferry::copy::Routine,
    ) -> Result<Mover, Failure> {
        let options = match migrator {
            Migrator::PerFolio => MoverOptions::new(one_by_one()),
            Migrator::Batch => MoverOptions::new(Batch::with_routine(routine)),
            Migrator::Mtcopy | Migrator::Auto => {
                MoverOptions::new(new_mtcopy(self.lanes, routine, LanesOn::default())?)
            }
        };
        new_mover(
            options,
            Some(self.total + (64 << 20)),
            self.allow_faulty_kernel,
        )
    }

    /// Moves the region with one call, and brings it back outside of the times.
    fn by_kernel(
        &self,
        nodes: FromTo,
        region: &Region,
        phase: &AtomicU8,
        moved: &mut Moved,
        trace: Option<&Trace>,
    ) -> Result<(), Failure> {
        let heads = Vec::from_iter(region.range().step_by(self.folio));
        let pages = Vec::from_iter(region.range().step_by(PAGE));
        trace.iter().for_each(|trace| trace.resume());
        let begun = Instant::now();
        let before = Done::now()?;
        let took = send(&heads, nodes.to).map_err(call_failed)?;
        phase.store(UNCOUNTED, Ordering::Relaxed);
        moved.counted += begun.elapsed();
        trace.iter().for_each(|trace| trace.stop());
        let (done, migrator) = (Done::now()?, self.means.name());
        let bytes = (pages.len() - missing(&pages, nodes.to)?) * PAGE;
        kernel::check_others(migrator, bytes, &done.copied(&before))?;
        let copied = done.of(&before, migrator, |of| of.bytes);
        moved.copied = copied.map(|bytes| moved.copied.unwrap_or(0) + bytes);
        moved.bytes += bytes as u64;
        moved.time += took;
        // Of a THP that the kernel has split, the first page alone would come back.
        bring(&pages, nodes.from)?;
        phase.store(COUNTED, Ordering::Relaxed);
        Ok(())
    }

    /// Moves the region once, which ends when the time is over.
    fn by_mover(
        &self,
        mover: &mut Mover,
        region: &Region,
        (target, round): (u32, usize),
        phase: &AtomicU8,
        moved: &mut Moved,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let options = MoveOptions::default()
            .batch_bytes(self.batch)
            .relocate(self.nodes.is_none())
            // SAFETY: the region is plain memory of this program: nothing of it was spliced into a pipe or sent.
            .source(unsafe { SourcePages::keep() });
        let begun = Instant::now();
        let handle = mover
            .move_range_async(region.range(), target, &options)
            .map_err(failed)?;
        // With many more threads than CPUs one move of the whole memory takes minutes.
        while !ended_within(&handle, LOOK) {
            let in_time = !self.is_over(round - 1, moved.counted + begun.elapsed(), ui);
            if !in_time && (handle.progress().0 > 0 || ui.stopped()) {
                handle.cancel();
            }
        }
        let result = handle.wait().map_err(failed)?;
        moved.counted += begun.elapsed();
        moved.bytes += result.moved.bytes;
        moved.time += result.elapsed;
        let Some(nodes) = self.nodes else {
            return Ok(());
        };
        phase.store(UNCOUNTED, Ordering::Relaxed);
        let away = missing(&Vec::from_iter(region.range().step_by(PAGE)), nodes.to)?;
        let stayed = (region.range().len() as u64 - result.moved.bytes) / PAGE as u64;
        if away as u64 > stayed {
            return Err(bug(format!(
                "{away} pages are not on node {}, of which {stayed} count as not moved",
                nodes.to
            )));
        }
        mover
            .move_range(region.range(), nodes.from, &options)
            .map_err(failed)?;
        phase.store(COUNTED, Ordering::Relaxed);
        Ok(())
    }

    fn is_over(&self, rounds: usize, counted: Duration, ui: &Ui) -> bool {
        let done = match self.length {
            Length::Seconds(seconds) => counted >= Duration::from_secs(seconds),
            Length::Rounds(most) => rounds >= most,
        };
        done || ui.stopped()
    }
}

/// Whether a move ends within this time.
fn ended_within(handle: &MoveHandle, time: Duration) -> bool {
    let mut of = libc::pollfd {
        fd: handle.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel writes the one structure.
    unsafe { libc::poll(&raw mut of, 1, time.as_millis() as i32) };
    handle.is_over()
}

/// What all moves of a row came to.
#[derive(Default)]
struct Moved {
    bytes: u64,
    /// Of them, by the kernel's migrator; `None` for none and for the library's.
    copied: Option<u64>,
    /// Of the moves alone.
    time: Duration,
    /// In which accesses counted.
    counted: Duration,
}

/// What all application threads did in one go.
struct Worked {
    seen: Vec<Seen>,
    time: Duration,
}

impl Worked {
    fn per_second(&self) -> f64 {
        let accesses: u64 = self.seen.iter().map(|seen| seen.all.len()).sum();
        accesses as f64 / self.time.as_secs_f64()
    }
}

/// The application's data: in each page, one counter per thread, which counts on from what the page was filled with.
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

    /// Compares all counters with what the threads did, and every other byte with what the region was filled with; gives
    /// the bytes compared. The counters are back at their start then.
    fn check(self, seen: &[Seen], region: &Region, threads: usize) -> Result<u64, Failure> {
        let wrong = |what: &str, page: usize, why: String| {
            Failure::new(
                what,
                format!("page {page}: {why}"),
                "report this with the machine's `memferry topology`",
            )
        };
        for (thread, seen) in seen.iter().enumerate() {
            for (page, &count) in seen.counts.iter().enumerate() {
                if count == 0 {
                    continue;
                }
                let counter = self.at(page, thread);
                let at = counter as usize - self.start;
                // Of a little-endian word.
                let start = (region.written(at & !7) >> (at % 8 * 8)) as u32;
                // SAFETY: inside the region, and the threads have ended.
                let found = unsafe { counter.read() }.wrapping_sub(start);
                if found != count {
                    let why = format!("thread {thread} added {count}, its counter says {found}");
                    return Err(wrong("a write was lost", page, why));
                }
                // SAFETY: as above.
                unsafe { counter.write(start) };
            }
        }
        let checked = region.check(self.pages * PAGE, threads);
        checked.map_err(|at| {
            let why = format!("byte {} is not what was written there", at % PAGE);
            wrong("a page lost its contents", at / PAGE, why)
        })
    }
}

/// Page faults of the calling thread so far.
fn page_faults() -> i64 {
    let usage = of_thread();
    usage.ru_minflt + usage.ru_majflt
}

impl Seen {
    fn new(pages: usize) -> Seen {
        Seen {
            waited: new_histogram(),
            all: touched_histogram(),
            counts: vec![0; pages],
        }
    }

    /// Reads and writes random pages until the phase ends. An access counts if it began while accesses counted.
    fn work(&mut self, counters: Counters, thread: usize, phase: &AtomicU8) {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let mut faults = page_faults();
        loop {
            let counts = match phase.load(Ordering::Relaxed) {
                // One access counts of a thread that got no CPU in all that time: none is no rate.
                ENDED if !self.all.is_empty() => return,
                now => now != UNCOUNTED,
            };
            let page = random.usize(..counters.pages);
            let counter = counters.at(page, thread);
            let started = Instant::now();
            // SAFETY: inside the region; only this thread uses this counter. Volatile: both accesses must happen.
            unsafe { counter.write_volatile(counter.read_volatile().wrapping_add(1)) };
            let took = started.elapsed().as_nanos() as u64;
            self.counts[page] = self.counts[page].wrapping_add(1);
            if counts {
                self.all.saturating_record(took);
            }
            if took > FAULT_NS {
                let before = std::mem::replace(&mut faults, page_faults());
                if faults > before {
                    if counts {
                        self.waited.saturating_record(took);
                    }
                    // It may have touched a page of its own for the first time.
                    faults = page_faults();
                }
            }
        }
    }
}

/// 1 ns to 60 s, three digits.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds")
}

/// The same, with its memory there: recording takes no page fault.
fn touched_histogram() -> Histogram<u64> {
    let mut all = new_histogram();
    let mut value = all.low();
    while value < all.high() {
        all.saturating_record(value);
        value = all.next_non_equivalent(value);
    }
    all.reset();
    all
}

pub fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
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
    use crate::args::MOST_THREADS;

    #[test]
    fn a_lost_write_and_a_changed_byte_are_found() {
        let mut region = Region::new(THP, false, 1).expect("region");
        let counters = Counters {
            start: region.range().start,
            pages: THP / PAGE,
        };
        let work = |thread: usize| {
            let (stop, mut seen) = (AtomicU8::new(ENDED), Seen::new(counters.pages));
            for page in [0, 7, 7] {
                let counter = counters.at(page, thread);
                // SAFETY: inside the region, which is this test's.
                unsafe { counter.write(counter.read().wrapping_add(1)) };
                seen.counts[page] = seen.counts[page].wrapping_add(1);
            }
            seen.work(counters, thread, &stop);
            seen
        };
        let what = |seen: &[Seen], region: &Region| {
            let checked = counters.check(seen, region, 1);
            checked.map_err(|failure| failure.to_string())
        };
        let seen = [work(0), work(1)];
        assert_eq!(what(&seen, &region), Ok(THP as u64));
        let seen = [work(0)];
        // SAFETY: as above.
        unsafe { *counters.at(7, 0) -= 1 };
        let lost = what(&seen, &region).expect_err("lost");
        assert!(lost.contains("added 2, its counter says 1"), "{lost}");
        region.fill(1);
        let seen = [work(0)];
        // SAFETY: as above; no counter of thread 0 lies there.
        unsafe { *((counters.start + 3 * PAGE + 77) as *mut u8) ^= 1 };
        let changed = what(&seen, &region).expect_err("changed");
        assert!(changed.contains("page 3: byte 72"), "{changed}");
    }

    #[test]
    fn an_access_that_meets_a_missing_page_is_a_page_fault_and_others_are_not() {
        let region = Region::new(THP, false, 1).expect("region");
        let start = region.range().start;
        let touch = |page: usize| {
            let before = page_faults();
            // SAFETY: inside the region, which is this test's.
            unsafe { ((start + page * PAGE) as *mut u8).write_volatile(1) };
            page_faults() - before
        };
        assert_eq!((touch(4), touch(5)), (0, 0));
        // SAFETY: as above.
        unsafe { libc::madvise((start + 5 * PAGE) as *mut _, PAGE, libc::MADV_DONTNEED) };
        assert_eq!((touch(4), touch(5), touch(5)), (0, 1, 0));
    }

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
