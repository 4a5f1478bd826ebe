// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `bench move` and `bench count` share: one region of one page size, its movers and its ceiling, and the runs of
//! each case, verified.
//!
//! Ceilings copy the same bytes between memory mapped the same way, with the same routine and as many threads, and move
//! no page.

use std::ops::Range;
use std::time::Instant;

use memferry::copy::Routine;
use memferry::{
    Backend, Batch, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, SourcePages,
};
use memferry_linux::topology::Topology;

use super::host;
use super::region::{PAGE, Region, THP, in_parts};
use super::rounds::Stand;
use crate::cli::bench::Migrator;
use crate::failure::Failure;
use crate::units::{Size, lanes};

/// One case of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What copies.
    pub migrator: Migrator,
    /// Parallel copiers.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio: usize,
    /// Destination pages are recycled rather than allocated.
    pub warm: bool,
    /// Bytes moved.
    pub bytes: usize,
    /// Bytes of a batch; 0: the library's default.
    pub batch: usize,
}

/// What one run came to.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// GB/s.
    pub gbps: f64,
    /// Bytes compared afterwards.
    pub verified: u64,
    /// Largest resident memory beyond that before the move, bytes.
    pub extra_rss: u64,
    /// Where the time of the lanes went.
    pub steps: memferry::Steps,
}

/// Memory of one page size, ready to be moved.
pub struct Rig {
    region: Region,
    spare: Region,
    warm: Mover,
    cold: Mover,
    routine: Routine,
    threads: usize,
    /// Nodes to move between; one node is its own target.
    nodes: Vec<u32>,
    at: usize,
    /// Migrators that run, made once: their workers wait between runs.
    current: Option<(Migrator, usize)>,
}

impl Rig {
    /// Maps and warms up three times `bytes`: the region, its warm destination, and the ceiling's buffer.
    pub fn new(
        topology: &Topology,
        bytes: usize,
        huge: bool,
        routine: Routine,
        allow_faulty_kernel: bool,
    ) -> Result<Rig, Failure> {
        let threads = host::usable_cpus(topology);
        let memory = |error| {
            Failure::new(
                "cannot map the benchmark's memory",
                error,
                "give a smaller --total",
            )
        };
        // Fastest nodes first, so that the region starts where the pages of a new process usually lie.
        let nodes: Vec<u32> = topology
            .nodes_with_memory()
            .map(|node| node.id)
            .take(2)
            .collect();
        let target = nodes[nodes.len() - 1];
        let page = if huge { THP } else { PAGE };
        // Threads on CPUs of several nodes would each fill a part of their own node.
        let map = |node| match nodes.len() {
            1 => Region::new(bytes, huge, threads),
            _ => Region::on(node, bytes, page, threads),
        };
        let region = map(nodes[0]).map_err(memory)?;
        let spare = map(target).map_err(memory)?;
        if !region.is_made_of(huge).map_err(memory)? {
            return Err(Failure::new(
                if huge {
                    "the memory did not become THPs"
                } else {
                    "the memory became THPs against advice"
                },
                "transparent huge pages are off, or memory is too fragmented",
                if huge {
                    "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, or leave 2M out of --folio"
                } else {
                    "set /sys/kernel/mm/transparent_hugepage/enabled to madvise"
                },
            ));
        }
        let mover = |pool_bytes| {
            let mut options = MoverOptions::new(Batch::with_routine(routine));
            options.pool_bytes = pool_bytes;
            options.backend = Backend::Userfaultfd;
            options.allow_faulty_kernel = allow_faulty_kernel;
            Mover::new(options).map_err(|error| failed(&error))
        };
        let mut warm = mover(bytes + (64 << 20))?;
        warm.set_migrator(new_mtcopy(threads, routine)?);
        warm.prefill(target, page, bytes)
            .map_err(|error| failed(&error))?;
        Ok(Rig {
            region,
            spare,
            warm,
            cold: mover(0)?,
            routine,
            threads,
            nodes,
            at: 0,
            current: None,
        })
    }
}

impl Stand for Rig {
    type Case = Case;
    type Run = Run;

    fn copy(&mut self, lanes: usize) -> f64 {
        ceiling(&self.region, &mut self.spare, self.routine, lanes)
    }

    fn warms_up(case: &Case) -> bool {
        case.migrator != Migrator::PerFolio
    }

    fn name(case: &Case) -> String {
        let folio = Size(case.folio as u64);
        format!("{} x{}, {folio}", case.migrator.name(), case.lanes)
    }

    fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        self.region.fill(self.threads);
        let mover = if case.warm {
            &mut self.warm
        } else {
            &mut self.cold
        };
        if self.current != Some((case.migrator, case.lanes)) || !case.warm {
            match case.migrator {
                Migrator::PerFolio => mover.set_migrator(one_by_one()),
                Migrator::Batch => mover.set_migrator(Batch::with_routine(self.routine)),
                Migrator::Mtcopy => mover.set_migrator(new_mtcopy(case.lanes, self.routine)?),
            }
            self.current = case.warm.then_some((case.migrator, case.lanes));
        }
        let several = self.nodes.len() > 1;
        let target = if several { 1 - self.at } else { 0 };
        let batch = match case.migrator {
            Migrator::PerFolio => case.folio,
            _ => case.batch,
        };
        let source = match case.warm {
            // SAFETY: the region is plain memory of this program: nothing of it was spliced into a pipe or sent.
            true => unsafe { SourcePages::keep() },
            false => SourcePages::GIVE_BACK,
        };
        let options = MoveOptions::default()
            .batch_bytes(batch)
            .relocate(!several)
            .source(source);
        let frames = self.region.frames(case.bytes);
        let before = Memory::reset();
        let result = mover
            .move_range(self.region.head(case.bytes), self.nodes[target], &options)
            .map_err(|error| failed(&error))?;
        let extra_rss = before.growth();
        self.at = target;
        if result.moved.bytes != case.bytes as u64 {
            return Err(Failure::new(
                format!(
                    "only {} of {} bytes moved by {} with {}, folios of {}, {}",
                    result.moved.bytes,
                    case.bytes,
                    case.migrator.name(),
                    lanes(case.lanes),
                    Size(case.folio as u64),
                    if case.warm { "warm" } else { "cold" }
                ),
                format!("{result:?}"),
                "free memory on the target node, and look for swap or pinned pages",
            ));
        }
        if frames.is_some_and(|old| {
            let new = self.region.frames(case.bytes).unwrap_or_default();
            old.iter().zip(&new).any(|(old, new)| old == new)
        }) {
            return Err(bug("a page that counts as moved lies where it lay"));
        }
        let verified = self
            .region
            .check(case.bytes, self.threads)
            .map_err(|at| bug(format!("byte {at} is not what was written before the move")))?;
        let gbps = case.bytes as f64 / result.elapsed.as_secs_f64() / 1e9;
        Ok(Run {
            gbps,
            verified,
            extra_rss,
            steps: result.steps,
        })
    }
}

/// Copies all of `from` to `to`, which is as large, with `lanes` threads; GB/s.
pub fn ceiling(from: &Region, to: &mut Region, routine: Routine, lanes: usize) -> f64 {
    let (src, dst, bytes) = (
        from.range().start,
        to.range().start,
        from.range().len().min(to.range().len()),
    );
    let started = Instant::now();
    in_parts(bytes, lanes, &|part: Range<usize>| {
        let end = part.end;
        for at in part.step_by(SHARE) {
            let len = SHARE.min(end - at);
            // SAFETY: both regions are at least `bytes` long, and parts are disjoint.
            unsafe { routine.copy((src + at) as *const u8, (dst + at) as *mut u8, len) };
        }
    });
    bytes as f64 / started.elapsed().as_secs_f64() / 1e9
}

/// What a lane copies at a time in the ceiling: enough for the routine to run at full speed.
const SHARE: usize = 512 << 10;

/// What copies for `per-folio`, with batches of a folio: as kernels do.
pub fn one_by_one() -> Batch {
    Batch::with_routine(memferry::copy::memcpy())
}

fn new_mtcopy(lanes: usize, routine: Routine) -> Result<MtCopy, Failure> {
    MtCopy::new(MtCopyOptions::default().lanes(lanes).routine(routine))
        .map_err(|error| failed(&error))
}

/// A move that was refused.
pub fn failed(error: &memferry::MoveError) -> Failure {
    Failure::new(
        "the move was refused",
        error,
        "see `memferry topology` for what this kernel can do",
    )
}

pub fn bug(why: impl std::fmt::Display) -> Failure {
    Failure::new(
        "the move did not do what it reported",
        why,
        "report this with the machine's `memferry topology`",
    )
}

/// Resident memory by /proc/self/status.
struct Memory(u64);

impl Memory {
    /// Resets the kernel's high-water mark and notes the present size.
    fn reset() -> Memory {
        // 5 resets VmHWM (proc(5), clear_refs).
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Memory(status("VmRSS:"))
    }

    /// How far the high-water mark rose above the size at `reset`, bytes.
    fn growth(&self) -> u64 {
        status("VmHWM:").saturating_sub(self.0)
    }
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = value.and_then(|v| v.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
