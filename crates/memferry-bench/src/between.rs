// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of `bench move` and `bench count`: memory on one node, moved to another by move_pages(2), its ceiling,
//! and the migrator that the kernel uses, which is set for each run.
//!
//! Only the system call is timed. Afterwards every page's node is asked, every byte compared, and the pages brought back.

use std::path::Path;

use memferry::copy::Routine;
use memferry_linux::kernel::{Change, DCBM, MTCOPY, Migration, NO_MIGRATOR, Plan, SettingError};

use super::nodes::{TRIES, bring, call_failed, map, missing, send};
use super::region::{PAGE, Region, THP};
use super::rig::{bug, ceiling};
use super::rounds::{Case, Run, Stand};
use crate::failure::Failure;
use crate::restore::Restore;
use crate::schema::FromTo;
use crate::units::{Size, lanes};

/// The active migrator and the lanes, set back when this value goes; `None` on a stock kernel, where nothing can be set.
pub struct Control(Option<Restore>);

impl Control {
    /// Nothing is changed yet.
    ///
    /// # Errors
    /// See [`Restore::new`].
    pub fn new(can_be_set: bool) -> Result<Self, Failure> {
        const FILES: &[&str] = &[
            "sys/kernel/mm/migration/mtcopy/lanes",
            "sys/kernel/mm/migration/dcbm/lanes",
            "sys/kernel/mm/migration/migrator",
        ];
        let before = can_be_set.then(|| Restore::new(Path::new("/"), FILES));
        before.transpose().map(Self)
    }

    /// Activates a migrator.
    fn choose(&mut self, case: &Case) -> Result<(), Failure> {
        let Some(before) = &mut self.0 else {
            return Ok(());
        };
        let migrator = case.means.name();
        let change = Change {
            migrator: Some(migrator.to_owned()),
            lanes: (migrator == MTCOPY).then_some(case.lanes as u64),
            dcbm_lanes: (migrator == DCBM).then_some(case.lanes as u64),
            ..Change::default()
        };
        let what = "the kernel's migrator could not be set";
        let failed = |error: SettingError| Failure::new(what, &error, error.hint());
        let plan = Plan::new(Path::new("/"), &migration(what)?, &change).map_err(failed)?;
        if plan.steps.is_empty() {
            return Ok(());
        }
        before.begin()?;
        plan.apply().map_err(failed)
    }

    /// Sets everything as it was, and says if that fails.
    pub fn restore(mut self) -> Result<(), Failure> {
        self.0.as_mut().map_or(Ok(()), Restore::bring_back)
    }
}

fn migration(what: &str) -> Result<Migration, Failure> {
    let next = "see `memferry kernel status`";
    Migration::read()
        .map_err(|error| Failure::new(what, &error, next))?
        .map_err(|absence| Failure::new(what, absence, next))
}

/// Bytes that a migrator has copied since it was registered; `None` for migrator none.
fn copied(migrator: &str) -> Result<Option<u64>, Failure> {
    if migrator == NO_MIGRATOR {
        return Ok(None);
    }
    let now = migration("the kernel's statistics could not be read")?;
    let row = now.statistics.iter().find(|row| row.migrator == migrator);
    Ok(row.map(|row| row.bytes))
}

/// Memory of one folio size on one node, and as much on the other.
pub struct Between<'a> {
    region: Region,
    spare: Region,
    nodes: FromTo,
    folio: usize,
    routine: Routine,
    threads: usize,
    control: &'a mut Control,
}

impl<'a> Between<'a> {
    /// Maps and fills `bytes` on each node.
    pub fn new(
        nodes: FromTo,
        bytes: usize,
        folio: usize,
        routine: Routine,
        threads: usize,
        control: &'a mut Control,
    ) -> Result<Self, Failure> {
        let map = |node| map(Some(node), bytes, folio, threads);
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
        bring(&between.heads(bytes / folio), nodes.from)?;
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

    /// Makes the next run find its memory as this one did. Linux 6.12 splits folios between 4 KiB and 2 MiB when they migrate
    /// again (docs/kernel.md, Limits), so these are mapped anew.
    fn renew(&mut self, heads: &[usize]) -> Result<(), Failure> {
        if self.folio == PAGE || self.folio == THP {
            return bring(heads, self.nodes.from);
        }
        let bytes = self.region.range().len();
        self.region = map(Some(self.nodes.from), bytes, self.folio, self.threads)?;
        self.check_folios()
    }

    /// The timed calls; `None` when a folio stayed where it was.
    fn carry(&self, case: &Case, heads: &[usize]) -> Result<Option<Vec<u64>>, Failure> {
        let mut times = Vec::with_capacity(case.calls);
        for part in heads.chunks(case.folios) {
            let took = send(part, self.nodes.to).map_err(|error| call_failed(&error))?;
            times.push(took.as_nanos() as u64);
        }
        Ok((missing(heads, self.nodes.to)? == 0).then_some(times))
    }
}

impl Stand for Between<'_> {
    fn copy(&mut self, lanes: usize) -> f64 {
        ceiling(&self.region, &mut self.spare, self.routine, lanes)
    }

    fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        let (folios, bytes) = (case.folios * case.calls, case.bytes());
        self.control.choose(case)?;
        for _ in 0..TRIES {
            let heads = self.heads(folios);
            self.region.fill_head(bytes, self.threads);
            let before = copied(case.means.name())?;
            let times = self.carry(case, &heads)?;
            let after = copied(case.means.name())?;
            let verified = self
                .region
                .check(bytes, self.threads)
                .map_err(|at| bug(format!("byte {at} is not what was written before the move")))?;
            self.renew(&heads)?;
            if let Some(call_ns) = times {
                let total: u64 = call_ns.iter().sum();
                return Ok(Run {
                    gbps: bytes as f64 / total.max(1) as f64,
                    verified,
                    copied: after
                        .zip(before)
                        .map(|(after, before)| after.saturating_sub(before)),
                    call_ns,
                    ..Run::default()
                });
            }
        }
        Err(Failure::new(
            format!(
                "folios of {} stay on node {} with {}, {}",
                Size(case.folio as u64),
                self.nodes.from,
                case.means.name(),
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
