// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of `bench move` and `bench count`: memory on one node, moved to another by move_pages(2), its ceiling,
//! and the migrator that the kernel uses, which is set for each run.
//!
//! Only the system call is timed. Afterwards every page's node is asked, every byte compared, and the pages brought back.

use std::path::Path;
use std::time::Instant;

use memferry::copy::Routine;
use memferry::kernel::{Change, DCBM, MTCOPY, Migration, Plan, Saved};
use memferry::move_pages;

use super::region::{PAGE, Region, THP};
use super::rig::{bug, ceiling};
use super::rounds::Stand;
use crate::failure::Failure;
use crate::kernel::refused;
use crate::schema::FromTo;
use crate::units::{Size, lanes};

/// Tries to bring all pages to where they should be: a page may be held for a moment, and is not any more at the next try.
const TRIES: usize = 10;

/// One case of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The migrator's name in sysfs.
    pub migrator: String,
    /// Parallel copiers.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio: usize,
    /// Folios of one system call.
    pub folios: usize,
    /// System calls of one run.
    pub calls: usize,
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// GB/s over all calls.
    pub gbps: f64,
    /// Bytes compared afterwards.
    pub verified: u64,
    /// Time of each call, nanoseconds.
    pub call_ns: Vec<u64>,
}

/// The kernel's migrators, set back when this value goes; on a stock kernel nothing is to be set.
pub struct Control(Option<Saved>);

impl Control {
    /// Remembers the settings.
    pub fn new(now: Option<&Migration>) -> Self {
        Self(now.map(|now| Saved::new(Path::new("/"), now)))
    }

    /// Activates a migrator.
    fn choose(&self, case: &Case) -> Result<(), Failure> {
        let root = Path::new("/");
        if self.0.is_none() {
            return Ok(());
        }
        let now = Migration::read_from(root)
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| bug("/sys/kernel/mm/migration cannot be read any more"))?;
        let change = Change {
            migrator: Some(case.migrator.clone()),
            lanes: (case.migrator == MTCOPY).then_some(case.lanes as u64),
            dcbm_lanes: (case.migrator == DCBM).then_some(case.lanes as u64),
            ..Change::default()
        };
        Plan::new(root, &now, &change)
            .and_then(|plan| plan.apply())
            .map_err(|error| refused(&error))
    }

    /// Sets everything as it was, and says if that fails.
    pub fn restore(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), |saved| {
            saved.restore().map_err(|error| {
                Failure::new(
                    "the kernel's migrator could not be set back",
                    &error,
                    format!("{}; then see `memferry kernel status`", error.hint()),
                )
            })
        })
    }
}

/// Memory of one folio size on one node, and as much on the other.
pub struct Between<'a> {
    region: Region,
    spare: Region,
    nodes: FromTo,
    folio: usize,
    routine: Routine,
    threads: usize,
    control: &'a Control,
}

impl<'a> Between<'a> {
    /// Maps and fills `bytes` on each node.
    pub fn new(
        nodes: FromTo,
        bytes: usize,
        folio: usize,
        routine: Routine,
        threads: usize,
        control: &'a Control,
    ) -> Result<Self, Failure> {
        let map = |node| {
            Region::on(node, bytes, folio, threads).map_err(|error| {
                Failure::new(
                    format!("cannot map the benchmark's memory on node {node}"),
                    error,
                    "give a smaller --total",
                )
            })
        };
        let between = Self {
            region: map(nodes.from)?,
            spare: map(nodes.to)?,
            nodes,
            folio,
            routine,
            threads,
            control,
        };
        between.check_folios()?;
        between.bring(&between.heads(bytes / folio), nodes.from)?;
        Ok(between)
    }

    /// Whether the kernel gave folios of the wanted size.
    fn check_folios(&self) -> Result<(), Failure> {
        let given = match self.folio {
            PAGE | THP => self.region.is_made_of(self.folio == THP).unwrap_or(true),
            // A single page may be elsewhere, of a kernel short of memory.
            folio => self
                .region
                .folios_of(folio)
                .is_none_or(|share| share > 0.99),
        };
        if given {
            return Ok(());
        }
        let size = Size(self.folio as u64);
        let file = match self.folio {
            PAGE | THP => "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
            folio => format!(
                "/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled",
                folio >> 10
            ),
        };
        Err(Failure::new(
            format!("the memory is not made of folios of {size}"),
            format!(
                "the kernel does not give them, or node {} is too fragmented",
                self.nodes.from
            ),
            format!("set {file} to madvise, or leave {size} out of --folio"),
        ))
    }

    /// The addresses of the first folios.
    fn heads(&self, folios: usize) -> Vec<usize> {
        let range = self.region.head(folios * self.folio);
        range.step_by(self.folio).collect()
    }

    /// How many of the folios at `heads` are not on `node`.
    fn missing(&self, heads: &[usize], node: u32) -> Result<usize, Failure> {
        let mut status = vec![0; heads.len()];
        move_pages::call(heads, None, &mut status).map_err(|error| call_failed(&error))?;
        Ok(status.iter().filter(|&&at| at != node as i32).count())
    }

    /// Brings folios to a node, outside of any time.
    fn bring(&self, heads: &[usize], node: u32) -> Result<(), Failure> {
        let mut missing = self.missing(heads, node)?;
        for _ in 0..TRIES {
            if missing == 0 {
                return Ok(());
            }
            let target = vec![node as i32; heads.len()];
            let mut status = vec![0; heads.len()];
            move_pages::call(heads, Some(&target), &mut status)
                .map_err(|error| call_failed(&error))?;
            missing = self.missing(heads, node)?;
        }
        Err(Failure::new(
            format!(
                "{missing} of {} folios do not come to node {node}",
                heads.len()
            ),
            "the node is full, or something holds them",
            "free memory there (`memferry topology` shows it), or give a smaller --total",
        ))
    }

    /// The timed calls; `None` when a folio stayed where it was.
    fn carry(&self, case: &Case, heads: &[usize]) -> Result<Option<Vec<u64>>, Failure> {
        let target = vec![self.nodes.to as i32; case.folios];
        let mut status = vec![0; case.folios];
        let mut times = Vec::with_capacity(case.calls);
        for part in heads.chunks(case.folios) {
            let started = Instant::now();
            let called =
                move_pages::call(part, Some(&target[..part.len()]), &mut status[..part.len()]);
            times.push(started.elapsed().as_nanos() as u64);
            called.map_err(|error| call_failed(&error))?;
        }
        Ok((self.missing(heads, self.nodes.to)? == 0).then_some(times))
    }
}

impl Stand for Between<'_> {
    type Case = Case;
    type Run = Run;

    fn copy(&mut self, lanes: usize) -> f64 {
        ceiling(&self.region, &mut self.spare, self.routine, lanes)
    }

    fn warms_up(_: &Case) -> bool {
        true
    }

    fn name(case: &Case) -> String {
        let folio = Size(case.folio as u64);
        format!(
            "{} x{}, {} of {folio}",
            case.migrator, case.lanes, case.folios
        )
    }

    fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        let heads = self.heads(case.folios * case.calls);
        let bytes = heads.len() * case.folio;
        self.control.choose(case)?;
        for _ in 0..TRIES {
            self.region.fill_head(bytes, self.threads);
            let times = self.carry(case, &heads)?;
            let verified = self
                .region
                .check(bytes, self.threads)
                .map_err(|at| bug(format!("byte {at} is not what was written before the move")))?;
            self.bring(&heads, self.nodes.from)?;
            if let Some(call_ns) = times {
                let total: u64 = call_ns.iter().sum();
                return Ok(Run {
                    gbps: bytes as f64 / total.max(1) as f64,
                    verified,
                    call_ns,
                });
            }
        }
        Err(Failure::new(
            format!(
                "folios of {} stay on node {} with {}, {}",
                Size(case.folio as u64),
                self.nodes.from,
                case.migrator,
                lanes(case.lanes)
            ),
            format!("in {TRIES} tries the kernel never moved all of them"),
            format!(
                "free memory on node {}, or give a smaller --total",
                self.nodes.to
            ),
        ))
    }
}

fn call_failed(error: &std::io::Error) -> Failure {
    Failure::new(
        "move_pages(2) failed",
        error,
        "a container's seccomp profile may forbid it; `memferry topology` says what works",
    )
}
