// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of a throughput benchmark: every ceiling and every case once, and that again, so that drift of the machine
//! hits all alike. What a case does is its rig's business.

use std::collections::BTreeMap;

use super::cpu_time::CpuTicks;
use super::disk::DiskRun;
use super::region::PAGE;
use super::rig::{Means, Pages};
use super::trace::Traced;
use crate::args::Migrator;
use crate::failure::Failure;
use crate::schema::Ceiling;
use crate::spread::mean_sd;
use crate::ui::{Bar, Ui};
use crate::units::Size;

/// One case of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Who moves.
    pub means: Means,
    /// Parallel copiers.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio: usize,
    /// Folios of one move.
    pub folios: usize,
    /// Moves of one run, each of other folios.
    pub calls: usize,
    /// Where destination pages come from.
    pub pages: Pages,
}

impl Case {
    /// Bytes of the region that a run is about.
    pub fn bytes(&self) -> usize {
        self.folio * self.folios * self.calls
    }

    /// Bytes that move.
    pub fn moved(&self) -> usize {
        self.bytes() - self.skipped()
    }

    /// Bytes at the start that stay, where the range is unaligned.
    pub fn skipped(&self) -> usize {
        match self.pages {
            Pages::Unaligned => PAGE,
            _ => 0,
        }
    }
}

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// GB/s over all calls.
    pub gbps: f64,
    /// Bytes compared afterwards.
    pub verified: u64,
    /// Largest resident memory beyond that before the move, bytes.
    pub extra_rss: u64,
    /// Where the time of the lanes went.
    pub steps: memferry::Steps,
    /// The same lane by lane.
    pub lanes: Vec<memferry::Steps>,
    /// Bytes that the kernel says the migrator copied meanwhile; `None` for migrator none.
    pub copied: Option<u64>,
    /// Bytes that each migrator of the kernel copied meanwhile, those that copied some.
    pub copied_by: BTreeMap<String, u64>,
    /// Batches that the migrator refused whole meanwhile; `None` for migrator none.
    pub declined: Option<u64>,
    /// What tracepoints told, of the first run alone.
    pub traced: Traced,
    /// Time of all CPUs meanwhile.
    pub cpu: Option<CpuTicks>,
    /// The part of their work that busy threads did not do meanwhile.
    pub busy_lost: Option<f64>,
    /// Bytes a second that the disk of `--disk` had meanwhile.
    pub disk_per_s: Option<f64>,
    /// The same case right after, beside that disk.
    pub beside_disk: Option<DiskRun>,
    /// Tries before it in which the kernel split THPs, and which do not count.
    pub split: usize,
    /// Time of each call of the kernel, nanoseconds.
    pub call_ns: Vec<u64>,
}

/// Memory that can be moved and copied.
pub trait Stand {
    /// Copies the same bytes with `lanes` threads and moves no page; GB/s.
    fn copy(&mut self, lanes: usize) -> Result<f64, Failure>;

    /// One run: new contents, the timed move, every byte checked.
    fn run(&mut self, case: &Case) -> Result<Run, Failure>;

    /// The first run of a case, which does not count: it may look closer at what happens, and what it does before ends when the user
    /// stops it.
    fn first(&mut self, case: &Case, ui: &Ui) -> Result<Run, Failure>;
}

/// The runs of all cases on one rig.
pub struct Rounds {
    /// GB/s of each ceiling.
    pub copied: Vec<Vec<f64>>,
    /// Runs of each case.
    pub ran: Vec<Vec<Run>>,
    /// What tracepoints told of each case.
    pub traced: Vec<Traced>,
}

impl Rounds {
    /// None yet, of so many ceilings and cases.
    pub fn new(ceilings: usize, cases: usize) -> Self {
        Self {
            copied: vec![Vec::new(); ceilings],
            ran: vec![Vec::new(); cases],
            traced: vec![Traced::default(); cases],
        }
    }

    /// Runs every ceiling and every case once, and that `runs` times, until the user stops it.
    pub fn run(
        &mut self,
        stand: &mut dyn Stand,
        cases: &[Case],
        lanes: &[usize],
        runs: usize,
        ui: &Ui,
        bar: &Bar,
    ) -> Result<(), Failure> {
        // One round more than is counted: the first warms caches, page tables and the host's memory.
        for round in 0..=runs {
            for (lanes, copied) in lanes.iter().zip(&mut self.copied) {
                if ui.stopped() {
                    return Ok(());
                }
                let gbps = stand.copy(*lanes)?;
                copied.extend((round > 0).then_some(gbps));
            }
            let kept = self.ran.iter_mut().zip(&mut self.traced);
            for (case, (ran, traced)) in cases.iter().zip(kept) {
                if ui.stopped() {
                    return Ok(());
                }
                // The slowest case needs no warm memory.
                if round == 0 && case.means == Means::Mover(Migrator::PerFolio) {
                    continue;
                }
                let Case { lanes, folios, .. } = case;
                let folio = Size(case.folio as u64);
                bar.now(&format!(
                    "{} x{lanes}, {folios} of {folio}",
                    case.means.name()
                ));
                if round == 0 {
                    *traced = stand.first(case, ui)?.traced;
                } else {
                    ran.push(stand.run(case)?);
                    bar.step();
                }
            }
        }
        Ok(())
    }
}

/// The ceilings of some lane counts on pages of one size, those that were measured.
pub fn ceilings(lanes: &[usize], copied: &[Vec<f64>], page_bytes: usize) -> Vec<Ceiling> {
    let measured = lanes.iter().zip(copied);
    measured
        .filter(|(_, copied)| !copied.is_empty())
        .map(|(&lanes, copied)| {
            let (gbps, gbps_sd) = mean_sd(copied);
            Ceiling {
                lanes,
                page_bytes,
                gbps,
                gbps_sd,
                runs_gbps: copied.clone(),
            }
        })
        .collect()
}
