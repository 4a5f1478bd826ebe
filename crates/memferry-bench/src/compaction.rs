// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench compaction`: how long the kernel takes to compact a fragmented node, what of it a migrator copies, and what a program
//! loses that shares the CPU.
//!
//! The memory is made as in the published experiment: base pages fill the node, and of a part of them every second page is given
//! back, so that free pages are in half-empty blocks of 2 MiB alone. One thread writes to the node's file `compact`, in whose system call Linux compacts; afterwards every byte is compared.

use std::fs;
use std::thread;
use std::time::Instant;

use memferry_linux::affinity;
use memferry_linux::kernel::AUTO;
use memferry_linux::topology::{Node, Topology};

use super::between::{Control, Done};
use super::cpu_time::CpuTicks;
use super::kernel::check_others;
use super::pinned::PinnedThread;
use super::region::{PAGE, Region, THP};
use super::rig::bug;
use super::trace::{Trace, Traced};
use super::{host, kernel, nodes, threads};
use crate::Stopped;
use crate::args::compaction::{CompactionArgs, Load};
use crate::args::{LanesOn, value_name};
use crate::failure::{Failure, OrFail};
use crate::schema::compaction::CompactionRow;
use crate::schema::{BenchFile, Rows};
use crate::spread::mean_sd;
use crate::ui::Ui;

/// `bench compaction`.
pub fn run_compaction(args: &CompactionArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let topology = host::topology()?;
    let place = Place::new(&topology, args)?;
    let found = kernel::migration()?;
    let migrators = kernel::named(&args.migrator, kernel::names(&found))?;
    let mut control = Control::new(found.is_ok(), LanesOn::default())?;
    let cases: Vec<Case> = (args.loads().into_iter())
        .flat_map(|load| migrators.iter().map(move |name| (name.as_str(), load)))
        .flat_map(|(migrator, load)| {
            let gathers = args.gathers(migrator).into_iter();
            gathers.map(move |gather| Case {
                migrator,
                load,
                gather,
            })
        })
        .collect();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); cases.len()];
    let bar = ui.bar("bench compaction", (cases.len() * args.runs()) as u64);
    bar.now("filling the node");
    let filler = place.fill(&topology)?;
    let mut measure = || {
        control.compact_alone()?;
        // One round more than is counted: the first finds memory as the boot left it.
        for round in 0..=args.runs() {
            for (case, runs) in cases.iter().zip(&mut runs) {
                if ui.stopped() {
                    return Ok(());
                }
                bar.now(&format!("{}, {}", case.migrator, value_name(case.load)));
                control.activate(case.migrator, args.lanes)?;
                case.gather.map_or(Ok(()), |on| control.gather(on))?;
                let run = place.run(case, filler.as_ref())?;
                if round > 0 {
                    runs.push(run);
                    bar.step();
                }
            }
        }
        Ok(())
    };
    let mut failure = measure().err();
    let checked = filler.as_ref().map_or(Ok(0), |filler| {
        filler.check(filler.range().len(), place.threads)
    });
    if let Err(at) = checked {
        failure = Some(bug(format!(
            "byte {at} of the idle memory is not what was written"
        )));
    }
    let restored = control.restore();
    let rows = cases.iter().zip(&runs);
    let mut notes: Vec<String> = host::emulated_note(&topology).into_iter().collect();
    notes.extend(host::quota_note(&topology));
    notes.extend(place.note.clone());
    let rows = Vec::from_iter(rows.filter_map(|(case, runs)| row(case, &place, runs)));
    notes.extend(not_copied(&rows));
    let host = host::describe(&topology, None);
    let file = BenchFile::new(host, Rows::Compaction(rows), notes);
    crate::finish(file, args.quick, failure, restored, ui)
}

/// The rows that are not what their name says: the migrator left more than a tenth of the pages to the plain copy. Of the benchmark's
/// own pages where these are known: no migrator is offered page cache that no process has mapped.
fn not_copied(rows: &[CompactionRow]) -> Option<String> {
    kernel::copied_by_others(rows, |row| {
        let pages = row.own_pages.unwrap_or(row.pages_migrated);
        let share = row.migrator_pages? as f64 / pages.max(1) as f64;
        let (migrator, load, percent) = (&row.migrator, &row.load, share * 100.0);
        (share < 0.9 && migrator != AUTO).then(|| format!("{migrator}, {load}: {percent:.0}%"))
    })
}

/// What is measured: a row of the table.
struct Case<'a> {
    migrator: &'a str,
    load: Load,
    /// Whether larger batches are on; `None`: as it is set.
    gather: Option<bool>,
}

/// Which node is compacted, by a thread on which CPU, with how much memory.
struct Place {
    node: u32,
    cpu: u32,
    bytes: usize,
    threads: usize,
    note: Option<String>,
}

/// Free bytes of a node but for a sixteenth of it, which other programs need.
fn room(node: &Node) -> u64 {
    let kept = (node.memory_total_bytes / 16).max(64 << 20);
    node.memory_free_bytes.saturating_sub(kept)
}

/// What one compaction came to.
#[derive(Clone, Default)]
struct Run {
    wall_ms: f64,
    pages: u64,
    own: Option<u64>,
    copied: Option<u64>,
    hog: Option<u64>,
    cpu: CpuTicks,
    traced: Traced,
    verified: u64,
}

impl Place {
    fn new(topology: &Topology, args: &CompactionArgs) -> Result<Self, Failure> {
        let mut with_memory: Vec<&Node> = topology.nodes_with_memory().collect();
        with_memory.sort_by_key(|node| !node.has_cpu);
        let node = match args.node {
            None => with_memory.first(),
            Some(id) => with_memory.iter().find(|node| node.id == id),
        };
        let node = *node.ok_or_else(|| {
            Failure::new(
                "cannot measure compaction there",
                "the node has no memory",
                "`memferry topology` shows the nodes",
            )
        })?;
        let allowed = affinity::allowed().or_fail("cannot see this process's CPUs", "try again")?;
        let near = allowed.iter().find(|cpu| node.cpus.contains(cpu));
        let room = room(node);
        let wanted = args.total.map_or(room, |size| size.0);
        let bytes = nodes::whole_thps(wanted.min(room)) as usize;
        Ok(Self {
            node: node.id,
            cpu: *near.or(allowed.first()).unwrap_or(&0),
            bytes,
            threads: host::usable_cpus(topology),
            note: (args.total).and_then(|total| host::changed_total(total.0, bytes as u64)),
        })
    }

    /// Idle memory in the rest of the node: Linux would move the pages of few blocks into a node that is free, and stop.
    fn fill(&self, topology: &Topology) -> Result<Option<Region>, Failure> {
        let room = topology.node(self.node).map_or(0, room);
        let rest = room.saturating_sub(self.bytes as u64) as usize / THP * THP;
        let map = |rest| nodes::map(Some(self.node), rest, PAGE, self.threads);
        (rest > 0).then(|| map(rest)).transpose()
    }

    /// New memory, fragmented, compacted once.
    fn run(&self, case: &Case, filler: Option<&Region>) -> Result<Run, Failure> {
        let trace = Trace::of_batches();
        let mut region = nodes::map(Some(self.node), self.bytes, PAGE, self.threads)?;
        region.thin();
        let hog = match case.load {
            Load::Idle => None,
            Load::Hog => Some(hog(self.cpu)?),
        };
        let frames = || -> Option<Vec<u64>> {
            let own = std::iter::once(&region).chain(filler);
            let frames: Option<Vec<_>> = own.map(Region::page_frames).collect();
            Some(frames?.concat())
        };
        let old = frames();
        let before = Done::now()?;
        trace.iter().for_each(Trace::resume);
        let compacted = threads::alone(|| self.compact(hog.as_ref()))?;
        trace.iter().for_each(Trace::stop);
        let now = Done::now()?;
        drop(hog);
        let is_elsewhere = |(old, new): &(u64, u64)| *old != 0 && *new != 0 && old != new;
        let moved = |(old, new): (Vec<u64>, Vec<u64>)| {
            old.into_iter().zip(new).filter(is_elsewhere).count() as u64
        };
        let own = old.zip(frames()).map(moved);
        let verified = region.check_thinned(self.threads).map_err(|at| {
            bug(format!(
                "byte {at} is not what was written before the compaction"
            ))
        })?;
        let migrated = compacted.pages as usize * PAGE;
        check_others(case.migrator, migrated, &now.copied(&before))?;
        Ok(Run {
            own,
            copied: now.of(&before, case.migrator, |of| of.bytes),
            traced: trace.map_or_else(Traced::default, |trace| trace.read(0)),
            verified,
            ..compacted
        })
    }

    fn compact(&self, hog: Option<&PinnedThread>) -> Result<Run, Failure> {
        let file = format!("/sys/devices/system/node/node{}/compact", self.node);
        let failed = |error: std::io::Error| {
            let next = "be root, on a kernel with CONFIG_COMPACTION";
            Failure::new(format!("cannot compact node {}", self.node), error, next)
        };
        affinity::pin(&[self.cpu]).map_err(failed)?;
        let pages = migrated_pages();
        let (rounds, ticks) = (hog.map(PinnedThread::done), CpuTicks::of_cpu(self.cpu));
        let started = Instant::now();
        fs::write(&file, "1").map_err(failed)?;
        let wall = started.elapsed();
        Ok(Run {
            wall_ms: wall.as_secs_f64() * 1e3,
            cpu: CpuTicks::of_cpu(self.cpu) - ticks,
            hog: hog.zip(rounds).map(|(hog, before)| hog.done() - before),
            pages: migrated_pages() - pages,
            ..Run::default()
        })
    }
}

/// Base pages that Linux has migrated since boot.
fn migrated_pages() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("pgmigrate_success "));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A thread that counts on one CPU until this value goes.
fn hog(cpu: u32) -> Result<PinnedThread, Failure> {
    let hog = PinnedThread::start("hog".to_owned(), cpu, || 1)
        .or_fail("cannot start the hog", "raise RLIMIT_NPROC")?;
    // It shares the CPU from the first moment on.
    while hog.done() == 0 {
        thread::yield_now();
    }
    Ok(hog)
}

fn row(case: &Case, place: &Place, runs: &[Run]) -> Option<CompactionRow> {
    let first = runs.first()?;
    let walls: Vec<f64> = runs.iter().map(|run| run.wall_ms).collect();
    let (wall_ms, wall_ms_sd) = mean_sd(&walls);
    let mut cpu = CpuTicks::default();
    runs.iter().for_each(|run| cpu += run.cpu);
    let mean = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() / runs.len() as u64;
    let lanes = Vec::from_iter(runs.iter().filter_map(|run| run.traced.lanes_used));
    let batch = first.traced.batch_bytes;
    Some(CompactionRow {
        migrator: case.migrator.to_owned(),
        load: value_name(case.load),
        gather: case.gather,
        node: place.node,
        cpu: place.cpu,
        bytes: place.bytes as u64,
        runs: runs.len(),
        wall_ms,
        wall_ms_sd,
        runs_wall_ms: walls,
        pages_migrated: mean(&|run| run.pages),
        own_pages: (first.own).map(|_| mean(&|run| run.own.unwrap_or(0))),
        migrator_pages: first
            .copied
            .map(|_| mean(&|run| run.copied.unwrap_or(0)) / PAGE as u64),
        lanes_used: (!lanes.is_empty()).then(|| mean_sd(&lanes).0),
        mean_batch_bytes: batch.map(|_| mean(&|run| run.traced.batch_bytes.unwrap_or(0))),
        hog_iterations: first.hog.map(|_| mean(&|run| run.hog.unwrap_or(0))),
        cpu_ticks: cpu,
        verified_bytes: runs.iter().map(|run| run.verified).sum(),
    })
}
