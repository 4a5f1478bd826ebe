// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `bench move` and `bench count` share: one region of one page size, its movers and its ceiling, and the runs of
//! each case, verified.
//!
//! Ceilings copy the same bytes between memory mapped the same way, with the same routine and as many threads, and move
//! no page.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memferry::copy::Routine;
use memferry::{
    Backend, Batch, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, Placement, SourcePages,
};
use memferry_linux::affinity;
use memferry_linux::kernel::{AUTO, DCBM, MTCOPY};
use memferry_linux::topology::Topology;

use super::busy::Spinners;
use super::host;
use super::nodes::{self, bring, missing};
use super::region::{PAGE, Region, THP, timed_in_parts};
use super::rounds::{Case, Run, Stand};
use super::threads::{self, not_started};
use super::three_pass::three_passes;
use crate::args::{self, LanesOn, Migrator, MigratorName, Priority, RunArgs, user_migrators};
use crate::failure::{Failure, OrFail};
use crate::schema::FromTo;
use crate::ui::Ui;
use crate::units::{Size, lanes};

/// Who moves.
#[derive(Clone, Debug, PartialEq)]
pub enum Means {
    /// The library, with this migrator.
    Mover(Migrator),
    /// A plain program in three passes (`three_pass`).
    ThreePass,
    /// The kernel, with one call of move_pages(2) for all pages.
    MovePages,
    /// The kernel with this migrator, which is set for the run.
    Kernel(String),
}

impl Means {
    /// Its name in files and tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Mover(migrator) => migrator.name(),
            Self::ThreePass => "three-pass",
            Self::MovePages => "move_pages",
            Self::Kernel(migrator) => migrator,
        }
    }

    /// Whether what copies is chosen while pages move.
    pub fn is_auto(&self) -> bool {
        match self {
            Self::Mover(migrator) => *migrator == Migrator::Auto,
            Self::Kernel(name) => name == AUTO,
            Self::ThreePass | Self::MovePages => false,
        }
    }

    /// The backend of its rows.
    pub fn backend(&self) -> &'static str {
        match self {
            Self::MovePages | Self::Kernel(_) => "kernel",
            Self::Mover(_) | Self::ThreePass => "user",
        }
    }
}

/// The library's migrators that are asked for, with their lanes, each of which needs one of the `cpus`.
///
/// # Errors
/// More lanes than that.
pub fn columns(
    asked: &[MigratorName],
    lanes: &[usize],
    cpus: usize,
) -> Result<Vec<(Means, usize)>, Failure> {
    let means = user_migrators(asked).into_iter().map(Means::Mover);
    let why = format!("this process may use {cpus} CPUs, and a lane needs one for itself");
    with_lanes(means, lanes, cpus, &why)
}

/// Who moves, each with all numbers of lanes that it can have; auto may take as many as the others have.
///
/// # Errors
/// More than `most` lanes, and why there are no more.
pub fn with_lanes(
    means: impl Iterator<Item = Means>,
    lanes: &[usize],
    most: usize,
    why: &str,
) -> Result<Vec<(Means, usize)>, Failure> {
    let columns = means.flat_map(|means| each_with_lanes(means, lanes));
    let columns: Vec<(Means, usize)> = columns.collect();
    match columns.iter().find(|(_, lanes)| *lanes > most) {
        Some((means, lanes)) => Err(Failure::new(
            format!("{} cannot have {lanes} lanes here", means.name()),
            why,
            format!("give --lanes up to {most}"),
        )),
        None => Ok(columns),
    }
}

fn each_with_lanes(means: Means, lanes: &[usize]) -> Vec<(Means, usize)> {
    let lanes = match means.name() {
        MTCOPY | DCBM => lanes.to_vec(),
        AUTO => vec![lanes.iter().copied().max().unwrap_or(1)],
        _ => vec![1],
    };
    let with = |lanes| (means.clone(), lanes);
    lanes.into_iter().map(with).collect()
}

/// Where destination pages come from, and what is moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pages {
    /// They were there before, recycled from earlier moves.
    Warm,
    /// The same, and the range begins a page after a multiple of 2 MiB.
    Unaligned,
    /// They are allocated inside the timed part, by a mover that keeps none.
    Cold,
    /// As options are unless told: source pages are given back, and the mover may keep 64 MiB.
    Default,
}

impl Pages {
    /// Its name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Unaligned => "warm, unaligned range",
            Self::Cold => "cold",
            Self::Default => "default",
        }
    }

    fn is_warm(self) -> bool {
        matches!(self, Self::Warm | Self::Unaligned)
    }
}

/// Memory of one page size, ready to be moved.
pub struct Rig {
    region: Region,
    spare: Region,
    /// Where pages go that `three_passes` moves out, mapped by the first such run.
    empty: Option<Region>,
    huge: bool,
    warm: Mover,
    cold: Mover,
    default: Mover,
    /// Bytes of a batch; 0: the library's default.
    batch: usize,
    routine: Routine,
    threads: usize,
    /// Every timed move is from the first to the second; `None`: within the machine's one node.
    nodes: Option<FromTo>,
    /// Where pages move to.
    target: u32,
    /// Migrators that run, made once: their workers wait between runs.
    current: Option<(Migrator, usize)>,
    lanes_on: LanesOn,
    busy: Option<Arc<Spinners>>,
    /// The copy routine was asked for: auto has no other.
    routine_asked: bool,
    /// How long auto moves before it is measured, and what it has moved: of which pages, how many bytes at a time.
    learn: Duration,
    learnt: Vec<(Pages, usize)>,
}

impl Rig {
    /// Maps and warms up three times `bytes`: the region, its warm destination, and the ceiling's buffer.
    pub fn new(
        topology: &Topology,
        nodes: Option<FromTo>,
        bytes: usize,
        huge: bool,
        routine: Routine,
        args: &RunArgs,
        busy: Option<Arc<Spinners>>,
    ) -> Result<Rig, Failure> {
        let threads = host::usable_cpus(topology);
        let target = nodes::target(topology, nodes);
        let page = if huge { THP } else { PAGE };
        let region = nodes::map(nodes.map(|of| of.from), bytes, page, threads)?;
        let spare = nodes::map(nodes.map(|of| of.to), bytes, page, threads)?;
        check_pages(&region, huge, nodes.map(|of| of.from))?;
        check_pages(&spare, huge, nodes.map(|of| of.to))?;
        let mover = |pool_bytes: Option<usize>| {
            let options = MoverOptions::new(Batch::with_routine(routine));
            new_mover(options, pool_bytes, args.allow_faulty_kernel)
        };
        let mut warm = mover(Some(bytes + (64 << 20)))?;
        warm.set_migrator(new_mtcopy(threads, routine, args.lanes_on)?);
        warm.prefill(target, page, bytes).map_err(failed)?;
        if let Some(nodes) = nodes {
            bring(&Vec::from_iter(region.range().step_by(page)), nodes.from)?;
        }
        Ok(Rig {
            region,
            spare,
            warm,
            empty: None,
            huge,
            cold: mover(Some(0))?,
            default: mover(None)?,
            batch: args.batch.map_or(0, |size| size.0 as usize),
            routine,
            threads,
            nodes,
            target,
            current: None,
            lanes_on: args.lanes_on,
            busy,
            routine_asked: args.copy.is_some(),
            learn: args.learn(),
            learnt: Vec::new(),
        })
    }
}

impl Stand for Rig {
    fn copy(&mut self, lanes: usize) -> Result<f64, Failure> {
        ceiling(&self.region, &mut self.spare, self.routine, lanes)
    }

    fn first(&mut self, case: &Case, ui: &Ui) -> Result<Run, Failure> {
        // Larger moves are learnt of in spans of this size.
        let kind = (
            case.pages,
            case.moved().min(LARGEST_LEARNT).next_power_of_two(),
        );
        if case.means.is_auto() && !self.learnt.contains(&kind) {
            self.learnt.push(kind);
            let until = Instant::now() + self.learn;
            while Instant::now() < until && !ui.stopped() {
                self.by_mover(case, Migrator::Auto, self.target, &mut 0)?;
                self.back(case)?;
            }
        }
        self.run(case)
    }

    fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        self.region.fill(self.threads);
        let frames = self.region.frames(case.bytes());
        let mut extra_rss = 0;
        let moved = match &case.means {
            &Means::Mover(migrator) => self.by_mover(case, migrator, self.target, &mut extra_rss),
            Means::ThreePass => self.in_three_passes(case),
            Means::MovePages | Means::Kernel(_) => self.by_kernel(case),
        }?;
        if frames.is_some_and(|old| {
            let new = self.region.frames(case.bytes()).unwrap_or_default();
            // The page where an unaligned range would begin stays.
            let looked_at = old.iter().zip(&new).skip(usize::from(case.skipped() > 0));
            looked_at.into_iter().any(|(old, new)| old == new)
        }) {
            return Err(bug("a page that counts as moved lies where it lay"));
        }
        let verified = verify(&self.region, case.bytes(), self.threads)?;
        if let Some(nodes) = self.nodes {
            let pages: Vec<usize> = self.range(case).step_by(PAGE).collect();
            let away = missing(&pages, nodes.to)?;
            if away > 0 {
                return Err(bug(format!("{away} pages are not on node {}", nodes.to)));
            }
        }
        self.back(case)?;
        Ok(Run {
            gbps: case.moved() as f64 / moved.elapsed.as_secs_f64() / 1e9,
            verified,
            extra_rss,
            steps: moved.steps,
            lanes: moved.lanes,
            busy_lost: moved.busy_lost,
            ..Run::default()
        })
    }
}

/// Whether memory has pages of the wanted size: the ceiling's other half counts as much as what moves.
fn check_pages(region: &Region, huge: bool, node: Option<u32>) -> Result<(), Failure> {
    let is_right = region.is_made_of(huge).or_fail(
        "cannot see which pages the memory is made of",
        "mount /proc in this container",
    )?;
    if is_right {
        return Ok(());
    }
    let on = node.map_or_else(String::new, |node| format!(" on node {node}"));
    Err(Failure::new(
        if huge {
            format!("the memory{on} did not become THPs")
        } else {
            format!("the memory{on} became THPs against advice")
        },
        "transparent huge pages are off, or memory is too fragmented",
        if huge {
            "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, or leave 2M out of --folio"
        } else {
            "set /sys/kernel/mm/transparent_hugepage/enabled to madvise"
        },
    ))
}

/// What a timed move took.
#[derive(Default)]
struct Moved {
    elapsed: Duration,
    steps: memferry::Steps,
    lanes: Vec<memferry::Steps>,
    /// Of the threads of `--busy`, see [`Spinners::lost`].
    busy_lost: Option<f64>,
}

impl Rig {
    /// Brings what has moved to another node back.
    fn back(&mut self, case: &Case) -> Result<(), Failure> {
        let Some(nodes) = self.nodes else {
            return Ok(());
        };
        match case.means {
            // What it gets back is free on the second node again, for the next warm move.
            Means::Mover(migrator) if case.pages.is_warm() => {
                self.by_mover(case, migrator, nodes.from, &mut 0).map(drop)
            }
            _ => bring(&self.heads(case), nodes.from),
        }
    }

    fn range(&self, case: &Case) -> Range<usize> {
        let head = self.region.head(case.bytes());
        head.start + case.skipped()..head.end
    }

    /// The addresses of its folios.
    fn heads(&self, case: &Case) -> Vec<usize> {
        let unit = if self.huge { THP } else { PAGE };
        self.range(case).step_by(unit).collect()
    }

    fn by_mover(
        &mut self,
        case: &Case,
        migrator: Migrator,
        node: u32,
        extra_rss: &mut u64,
    ) -> Result<Moved, Failure> {
        let range = self.range(case);
        let warm = case.pages.is_warm();
        let mover = match case.pages {
            Pages::Warm | Pages::Unaligned => &mut self.warm,
            Pages::Cold => &mut self.cold,
            Pages::Default => &mut self.default,
        };
        if self.current != Some((migrator, case.lanes)) || !warm {
            match migrator {
                Migrator::PerFolio => mover.set_migrator(one_by_one()),
                Migrator::Batch => mover.set_migrator(Batch::with_routine(self.routine)),
                Migrator::Mtcopy => {
                    mover.set_migrator(new_mtcopy(case.lanes, self.routine, self.lanes_on)?);
                }
                Migrator::Auto => {
                    let mut options = mtcopy_options(self.lanes_on).most_lanes(case.lanes);
                    options.routine = self.routine_asked.then_some(self.routine);
                    mover.set_migrator(MtCopy::new(options).map_err(failed)?);
                }
            }
            self.current = warm.then_some((migrator, case.lanes));
        }
        let batch = match migrator {
            Migrator::PerFolio => case.folio,
            _ => self.batch,
        };
        let source = match warm {
            // SAFETY: the region is plain memory of this program: nothing of it was spliced into a pipe or sent.
            true => unsafe { SourcePages::keep() },
            false => SourcePages::GIVE_BACK,
        };
        let options = MoveOptions::default()
            .batch_bytes(batch)
            .relocate(self.nodes.is_none())
            .source(source);
        let before = Memory::reset();
        let work = || mover.move_range(range.clone(), node, &options);
        let (result, busy_lost) = beside(self.busy.as_deref(), work);
        let result = result.map_err(failed)?;
        *extra_rss = before.growth();
        if result.moved.bytes != range.len() as u64 {
            return Err(Failure::new(
                format!(
                    "only {} of {} bytes moved by {} with {}, folios of {}, {}",
                    result.moved.bytes,
                    range.len(),
                    migrator.name(),
                    lanes(case.lanes),
                    Size(case.folio as u64),
                    case.pages.name()
                ),
                format!("{result:?}"),
                "free memory on the target node, and look for swap or pinned pages",
            ));
        }
        Ok(Moved {
            elapsed: result.elapsed,
            steps: result.steps,
            lanes: result.lanes,
            busy_lost,
        })
    }

    fn in_three_passes(&mut self, case: &Case) -> Result<Moved, Failure> {
        let failed = |error: std::io::Error| {
            let next = "see `memferry topology` for what this kernel can do";
            Failure::new("the plain program's move failed", error, next)
        };
        let empty = match self.empty.take() {
            Some(empty) => empty,
            None => Region::like(&self.region, self.huge).map_err(failed)?,
        };
        if !case.pages.is_warm() {
            self.spare.clear();
        }
        let work = || three_passes(&self.region, &empty, &self.spare, self.routine, case.lanes);
        let (elapsed, busy_lost) = beside(self.busy.as_deref(), work);
        let elapsed = elapsed.map_err(failed)?;
        // The ceiling's pages are in the region now, and those of the region in its place.
        self.empty = Some(std::mem::replace(&mut self.spare, empty));
        Ok(Moved {
            elapsed,
            busy_lost,
            ..Moved::default()
        })
    }

    fn by_kernel(&mut self, case: &Case) -> Result<Moved, Failure> {
        let heads = self.heads(case);
        let not_moved = |why: String| {
            let next = "free memory on the target node, or give a smaller --total";
            Failure::new("move_pages(2) did not move all pages", why, next)
        };
        let work = || nodes::send(&heads, self.target);
        let (elapsed, busy_lost) = beside(self.busy.as_deref(), work);
        let elapsed = elapsed.map_err(|error| not_moved(error.to_string()))?;
        let stayed = missing(&heads, self.target)?;
        if stayed > 0 {
            return Err(not_moved(format!("{stayed} of {} pages stay", heads.len())));
        }
        Ok(Moved {
            elapsed,
            busy_lost,
            ..Moved::default()
        })
    }
}

/// Does what is measured, and nothing else, while it is counted what the threads of `--busy` lose.
fn beside<T>(busy: Option<&Spinners>, work: impl FnOnce() -> T) -> (T, Option<f64>) {
    let since = busy.map(Spinners::since);
    let done = work();
    let lost = busy.zip(since).map(|(busy, since)| busy.lost(&since));
    (done, lost)
}

/// Copies all of `from` to `to`, which is as large, with `lanes` threads; GB/s. As the workers of a migrator, the threads run
/// before.
///
/// # Errors
/// A thread cannot be started.
pub fn ceiling(
    from: &Region,
    to: &mut Region,
    routine: Routine,
    lanes: usize,
) -> Result<f64, Failure> {
    let (src, dst, bytes) = (
        from.range().start,
        to.range().start,
        from.range().len().min(to.range().len()),
    );
    let copied = timed_in_parts(bytes, lanes, &|part: Range<usize>| {
        let end = part.end;
        for at in part.step_by(SHARE) {
            let len = SHARE.min(end - at);
            // SAFETY: both regions are at least `bytes` long, and parts are disjoint.
            unsafe { routine.copy((src + at) as *const u8, (dst + at) as *mut u8, len) };
        }
    });
    let took = copied.map_err(not_started(lanes))?;
    Ok(bytes as f64 / took.as_secs_f64() / 1e9)
}

/// The most bytes of which auto learns together: a span of the library.
const LARGEST_LEARNT: usize = 8 << 20;

/// What a lane copies at a time in the ceiling: enough for the routine to run at full speed.
const SHARE: usize = 512 << 10;

/// What copies for `per-folio`, with batches of a folio.
pub fn one_by_one() -> Batch {
    Batch::with_routine(memferry::copy::memcpy())
}

/// A mover through userfaultfd that keeps so many bytes, or as many as the library does by default.
pub fn new_mover(
    mut options: MoverOptions,
    pool_bytes: Option<usize>,
    allow_faulty_kernel: bool,
) -> Result<Mover, Failure> {
    options.pool_bytes = pool_bytes.unwrap_or(options.pool_bytes);
    options.backend = Backend::Userfaultfd;
    options.allow_faulty_kernel = allow_faulty_kernel;
    // Whoever measures them has asked for them by their size.
    options.allow_huge_pages = true;
    Mover::new(options).map_err(failed)
}

/// A migrator with so many lanes.
pub fn new_mtcopy(lanes: usize, routine: Routine, on: LanesOn) -> Result<MtCopy, Failure> {
    let options = mtcopy_options(on).lanes(lanes).routine(routine);
    MtCopy::new(options).map_err(failed)
}

fn mtcopy_options(on: LanesOn) -> MtCopyOptions {
    let placement = match on.placement {
        Some(args::Placement::Fill) => Placement::Fill,
        Some(args::Placement::Spread) | None => Placement::Spread,
    };
    let nice = if on.priority == Some(Priority::High) {
        -20
    } else {
        0
    };
    MtCopyOptions::default().placement(placement).nice(nice)
}

/// Whether lanes can have the priority high, of which the library says nothing when they do not get it.
///
/// # Errors
/// This process may not raise priorities.
pub fn check_high_priority() -> Result<(), Failure> {
    // Of a thread of its own: a raised priority stays.
    threads::alone(|| {
        let raised =
            affinity::set_nice(-20).map_err(|error| format!("it needs CAP_SYS_NICE: {error}"));
        raised.or_fail(
            "lanes cannot have the priority high here",
            "run it as root or with that capability, or leave out --priority high",
        )
    })
}

/// What a reader must know of other folios than those that the mover has.
pub fn base_pages_note(mut folios: impl Iterator<Item = usize>) -> Option<String> {
    folios.any(|folio| folio != PAGE && folio != THP).then(|| {
        "Folio sizes between 4 KiB and 2 MiB are made of base pages here: per-folio moves so many at a time, batch and \
         mtcopy move whole batches whatever the folio size."
            .to_owned()
    })
}

/// A move that was refused.
pub fn failed(error: memferry::MoveError) -> Failure {
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

/// Compares what was moved with what was written before; gives the number of bytes.
pub fn verify(region: &Region, bytes: usize, threads: usize) -> Result<u64, Failure> {
    let wrong = |at| bug(format!("byte {at} is not what was written before the move"));
    region.check(bytes, threads).map_err(wrong)
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

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn a_priority_that_lanes_would_not_get_is_refused() {
        // The capabilities are this thread's alone.
        let told = threads::alone(|| {
            let mut sets = capabilities(None).expect("capabilities");
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).expect("one less");
            Ok(check_high_priority().map_err(|failure| failure.to_string()))
        });
        let told = told.expect("thread").expect_err("refused");
        assert!(told.contains("needs CAP_SYS_NICE"), "{told}");
    }
}
