// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench cache`: what a thread loses whose data fits the last-level cache, while pages move beside it, by copy routine.
//!
//! The thread reads lines of its data in an order that no prefetcher knows. Before each move it has the cache and the CPUs' time
//! alone, and how many lines it reads in a second is counted; then while pages move, and while the same bytes are copied with no
//! page moved, which leaves out what moves cost besides: TLB flushes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memferry::copy::{self, Routine};
use memferry::{MoveOptions, Mover, MoverOptions, SourcePages};
use memferry_linux::affinity;
use memferry_linux::topology::{CacheGroup, Topology};

use super::host;
use super::nodes::{self, bring, missing};
use super::pinned::{PinnedThread, Since};
use super::region::{LINE, PAGE, Region};
use super::rig::{bug, ceiling, failed, new_mover, new_mtcopy, verify};
use super::throughput::routine;
use crate::Stopped;
use crate::args::LanesOn;
use crate::args::cache::CacheArgs;
use crate::failure::Failure;
use crate::schema::cache::CacheRow;
use crate::schema::{BenchFile, FromTo, Rows};
use crate::spread::mean_sd;
use crate::ui::Ui;
use crate::units::Size;

/// How long the thread reads alone before each move.
const ALONE: Duration = Duration::from_millis(100);

/// How often it reads all of its data before that, so that the cache has it again.
const WARM: u64 = 4;

/// `bench cache`.
pub fn run_cache(args: &CacheArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let topology = host::topology()?;
    let routines = match args.copy.is_empty() {
        true => copy::available().to_vec(),
        false => (args.copy.iter())
            .map(|name| routine(Some(name)))
            .collect::<Result<_, _>>()?,
    };
    let shared = Shared::choose(&topology, args.lanes)?;
    let working_set = match (args.working_set, shared.bytes) {
        (Some(size), _) => size.0,
        (None, Some(cache)) => cache / 2,
        (None, None) => {
            return Err(Failure::new(
                "the size of the last-level cache is not known",
                "this machine does not tell it",
                "give --working-set",
            )
            .into());
        }
    };
    let room = topology.memory.available_bytes / 4;
    if working_set > room {
        return Err(Failure::new(
            format!("a working set of {} has no room", Size(working_set)),
            format!(
                "a quarter of the memory that is available is {}",
                Size(room >> 20 << 20)
            ),
            "give a smaller --working-set, or free memory",
        )
        .into());
    }
    let nodes = nodes::choose_or_within(&topology, &args.nodes)?;
    let wanted = args.wanted_total();
    let total = nodes::fitting(wanted, &topology, nodes, 2);
    let mut notes: Vec<String> = host::emulated_note(&topology).into_iter().collect();
    notes.extend(host::quota_note(&topology));
    if let Some(note) = host::changed_total(wanted, total) {
        ui.warn(&note);
        notes.push(note);
    }
    let before = affinity::allowed().map_err(not_pinned)?;
    let file = shared.keep_off().map_err(Stopped::from).and_then(|()| {
        let reader = Reader::start(shared.reader, working_set)?;
        let bench = Bench {
            args,
            ui,
            topology: &topology,
            shared: &shared,
            nodes,
            total: total as usize,
            reader,
        };
        let mut cases: Vec<(Routine, Vec<Run>)> =
            routines.into_iter().map(|of| (of, Vec::new())).collect();
        let failure = bench.measure(&mut cases).err();
        let measured = cases.iter().filter(|(_, runs)| !runs.is_empty());
        let rows = measured.map(|(routine, runs)| bench.row(*routine, runs, working_set));
        let host = host::describe(&topology, None);
        let mut file = BenchFile::new(host, Rows::Cache(rows.collect()), notes);
        file.envelope = (file.envelope)
            .with("total_bytes", total)
            .with("reader_cpu", shared.reader);
        crate::finish(file, args.quick, failure, Ok(()), ui)
    });
    // The thread that asked for the benchmark runs on where it was.
    let _ = affinity::pin(&before);
    file
}

fn not_pinned(error: std::io::Error) -> Failure {
    Failure::new(
        "cannot keep threads on their CPUs",
        error,
        "allow sched_setaffinity(2) in this sandbox",
    )
}

/// The CPUs of one last-level cache.
struct Shared {
    /// The reading thread's.
    reader: u32,
    /// Those that copy.
    copiers: Vec<u32>,
    bytes: Option<u64>,
}

impl Shared {
    fn choose(topology: &Topology, lanes: usize) -> Result<Self, Failure> {
        let usable = affinity::allowed().map_err(not_pinned)?;
        Self::of(&topology.cpus.cache_groups, &usable, lanes)
    }

    /// The first cache with the most usable CPUs.
    fn of(groups: &[CacheGroup], usable: &[u32], lanes: usize) -> Result<Self, Failure> {
        let cpus = |of: &CacheGroup| -> Vec<u32> {
            let cpus = of.cpus.iter().copied();
            cpus.filter(|cpu| usable.contains(cpu)).collect()
        };
        let most = groups.iter().map(|of| cpus(of).len()).max().unwrap_or(0);
        let group = groups
            .iter()
            .find(|of| cpus(of).len() == most && most > lanes);
        let Some(group) = group else {
            return Err(Failure::new(
                format!("{lanes} lanes and a thread beside them do not fit a cache"),
                format!("no last-level cache has more than {most} CPUs that this process may use"),
                "give fewer --lanes, or more CPUs by taskset(1)",
            ));
        };
        let mut copiers = cpus(group);
        // The machine's first CPU has most of its interrupts.
        let reader = copiers.pop().unwrap_or_default();
        Ok(Self {
            reader,
            copiers,
            bytes: group.size_bytes,
        })
    }

    /// Keeps this thread, and those that it starts, off the reader's CPU and out of other caches.
    fn keep_off(&self) -> Result<(), Failure> {
        affinity::pin(&self.copiers).map_err(not_pinned)
    }
}

/// What one run came to.
struct Run {
    gbps: f64,
    lost: f64,
    lost_copying: f64,
    alone_per_s: f64,
    verified: u64,
}

struct Bench<'a> {
    args: &'a CacheArgs,
    ui: &'a Ui,
    topology: &'a Topology,
    shared: &'a Shared,
    nodes: Option<FromTo>,
    total: usize,
    reader: Reader,
}

impl Bench<'_> {
    fn measure(&self, cases: &mut [(Routine, Vec<Run>)]) -> Result<(), Failure> {
        let threads = self.shared.copiers.len();
        let runs = self.args.runs();
        let bar = self.ui.bar("bench cache", (cases.len() * runs) as u64);
        bar.now("filling the memory");
        let mut region = nodes::map(self.nodes.map(|of| of.from), self.total, PAGE, threads)?;
        let mut spare = nodes::map(self.nodes.map(|of| of.to), self.total, PAGE, threads)?;
        let target = nodes::target(self.topology, self.nodes);
        let options = MoverOptions::new(new_mtcopy(
            self.args.lanes,
            copy::best(),
            LanesOn::default(),
        )?);
        let pool = Some(self.total + (64 << 20));
        let mut mover = new_mover(options, pool, self.args.allow_faulty_kernel)?;
        mover.prefill(target, PAGE, self.total).map_err(failed)?;
        if let Some(nodes) = self.nodes {
            bring(&Vec::from_iter(region.range().step_by(PAGE)), nodes.from)?;
        }
        // One round more than is counted: the first warms page tables and the host's memory.
        for round in 0..=runs {
            for (routine, ran) in &mut *cases {
                if self.ui.stopped() {
                    return Ok(());
                }
                bar.now(routine.name());
                let lanes = self.args.lanes;
                mover.set_migrator(new_mtcopy(lanes, *routine, LanesOn::default())?);
                region.fill(threads);
                let alone = self.reader.alone();
                let since = self.reader.since();
                let gbps = self.carry(&mut mover, &region, target)?;
                let moving = self.reader.per_s(&since);
                let verified = verify(&region, self.total, threads)?;
                self.back(&mut mover, &region, target)?;
                let alone_again = self.reader.alone();
                let since = self.reader.since();
                ceiling(&region, &mut spare, *routine, lanes)?;
                let copying = self.reader.per_s(&since);
                if round == 0 {
                    continue;
                }
                ran.push(Run {
                    gbps,
                    lost: 1.0 - moving / alone,
                    lost_copying: 1.0 - copying / alone_again,
                    alone_per_s: (alone + alone_again) / 2.0,
                    verified,
                });
                bar.step();
            }
        }
        self.reader.check()
    }

    fn options(&self) -> MoveOptions {
        MoveOptions::default()
            .relocate(self.nodes.is_none())
            // SAFETY: the region is plain memory of this program: nothing of it was spliced into a pipe or sent.
            .source(unsafe { SourcePages::keep() })
    }

    /// Moves all; GB/s.
    fn carry(&self, mover: &mut Mover, region: &Region, node: u32) -> Result<f64, Failure> {
        let result = mover
            .move_range(region.range(), node, &self.options())
            .map_err(failed)?;
        if result.moved.bytes != self.total as u64 {
            return Err(Failure::new(
                format!("only {} of {} bytes moved", result.moved.bytes, self.total),
                format!("{result:?}"),
                "free memory on the target node, and look for swap or pinned pages",
            ));
        }
        Ok(self.total as f64 / result.elapsed.as_secs_f64() / 1e9)
    }

    /// Brings all back to the first node, if there are two.
    fn back(&self, mover: &mut Mover, region: &Region, target: u32) -> Result<(), Failure> {
        let Some(nodes) = self.nodes else {
            return Ok(());
        };
        let away = missing(&Vec::from_iter(region.range().step_by(PAGE)), target)?;
        if away > 0 {
            return Err(bug(format!("{away} pages are not on node {target}")));
        }
        self.carry(mover, region, nodes.from).map(drop)
    }

    fn row(&self, routine: Routine, runs: &[Run], working_set: u64) -> CacheRow {
        let each = |of: fn(&Run) -> f64| Vec::from_iter(runs.iter().map(of));
        let runs_lost = each(|of| of.lost);
        let (gbps, gbps_sd) = mean_sd(&each(|of| of.gbps));
        let (lost, lost_sd) = mean_sd(&runs_lost);
        CacheRow {
            backend: "user".to_owned(),
            migrator: "mtcopy".to_owned(),
            copy: routine.name().to_owned(),
            bypasses_cache: routine.bypasses_cache(),
            lanes: self.args.lanes,
            folio_bytes: PAGE,
            bytes: self.total as u64,
            working_set_bytes: working_set,
            cache_bytes: self.shared.bytes,
            cpu: self.shared.reader,
            nodes: self.nodes,
            runs: runs.len(),
            gbps,
            gbps_sd,
            lost,
            lost_sd,
            runs_lost,
            lost_copying: mean_sd(&each(|of| of.lost_copying)).0,
            alone_reads_per_s: mean_sd(&each(|of| of.alone_per_s)).0,
            verified_bytes: runs.iter().map(|of| of.verified).sum(),
        }
    }
}

/// A line of the thread's data: the next one to read, and where it lies.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u64,
    own: u64,
}

const _: () = assert!(size_of::<Line>() == LINE);

/// A thread that reads its data until this value goes.
struct Reader {
    /// Counts lines.
    thread: PinnedThread,
    lines: Arc<Vec<Line>>,
}

impl Reader {
    /// Starts it on this CPU.
    fn start(cpu: u32, bytes: u64) -> Result<Self, Failure> {
        let lines = Arc::new(chain((bytes / LINE as u64).max(2)));
        let (own, mut at) = (Arc::clone(&lines), 0);
        let read = move || {
            for _ in 0..1000 {
                at = own[at as usize].next;
            }
            std::hint::black_box(at);
            1000
        };
        let thread = PinnedThread::start("reader".to_owned(), cpu, read);
        let thread = thread.map_err(not_pinned)?;
        Ok(Self { thread, lines })
    }

    fn since(&self) -> Since {
        Since::now(self.thread.done())
    }

    /// Lines a second since then.
    fn per_s(&self, since: &Since) -> f64 {
        since.per_s(self.thread.done())
    }

    /// Waits until the cache has the data again, and for a moment more; lines a second in that moment.
    fn alone(&self) -> f64 {
        let enough = self.thread.done() + WARM * self.lines.len() as u64;
        while self.thread.done() < enough {
            thread::sleep(Duration::from_millis(1));
        }
        self.thread.per_s(ALONE, || false)
    }

    /// Whether its data is as it was.
    fn check(&self) -> Result<(), Failure> {
        let lines = self.lines.iter().enumerate();
        match lines.filter(|(at, line)| line.own != *at as u64).count() {
            0 => Ok(()),
            wrong => Err(bug(format!("{wrong} lines of the reading thread changed"))),
        }
    }
}

/// So many lines in one circle, in random order (Sattolo 1986).
fn chain(lines: u64) -> Vec<Line> {
    let mut next: Vec<u64> = (0..lines).collect();
    let mut random = fastrand::Rng::with_seed(lines);
    for at in (1..next.len()).rev() {
        next.swap(at, random.usize(..at));
    }
    let lines = next.into_iter().zip(0..);
    lines.map(|(next, own)| Line { next, own }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_before_it_begins_again() {
        let lines = chain(1000);
        let mut seen = vec![false; lines.len()];
        let mut at = 0;
        for _ in 0..lines.len() {
            assert!(!std::mem::replace(&mut seen[at as usize], true));
            at = lines[at as usize].next;
        }
        assert_eq!(at, 0);
    }

    fn group(cpus: &[u32]) -> CacheGroup {
        CacheGroup {
            cpus: cpus.to_vec(),
            size_bytes: Some(32 << 20),
            level: Some(3),
            node: Some(0),
        }
    }

    #[test]
    fn reader_and_copiers_share_a_cache_that_has_room_for_them() {
        let groups = [group(&[0, 1]), group(&[2, 3, 4]), group(&[5, 6, 7])];
        let chosen = Shared::of(&groups, &[0, 1, 2, 5, 6, 7], 2).expect("room");
        assert_eq!((chosen.reader, &chosen.copiers[..]), (7, &[5, 6][..]));
        let Err(refused) = Shared::of(&groups, &[0, 1, 2], 2) else {
            panic!("no cache has three usable CPUs");
        };
        assert!(
            refused.to_string().contains("more than 2 CPUs"),
            "{refused}"
        );
        assert!(Shared::of(&groups, &[4], 1).is_err());
    }

    #[test]
    fn the_reader_comes_on_and_its_data_stays() {
        let cpu = *affinity::allowed().expect("CPUs").last().expect("one");
        let reader = Reader::start(cpu, 64 << 10).expect("thread");
        assert!(reader.alone() > 0.0);
        reader
            .check()
            .map_err(|error| error.to_string())
            .expect("unchanged");
    }
}
