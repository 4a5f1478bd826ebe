// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of a throughput benchmark: every ceiling and every case once, and that again, so that drift of the machine
//! hits all alike. What a case does is its rig's business.

use crate::failure::Failure;
use crate::schema::Ceiling;
use crate::spread::mean_sd;
use crate::ui::{Bar, Ui};

/// Memory that can be moved and copied.
pub trait Stand {
    /// One case of a table.
    type Case;
    /// What one run of it came to.
    type Run;

    /// Copies the same bytes with `lanes` threads and moves no page; GB/s.
    fn copy(&mut self, lanes: usize) -> f64;

    /// One run: new contents, the timed move, every byte checked.
    fn run(&mut self, case: &Self::Case) -> Result<Self::Run, Failure>;

    /// Whether the first round, which is not counted, has the case.
    fn warms_up(case: &Self::Case) -> bool;

    /// What a progress bar calls the case.
    fn name(case: &Self::Case) -> String;
}

/// The runs of all cases on one rig.
pub struct Rounds<Run> {
    /// GB/s of each ceiling.
    pub copied: Vec<Vec<f64>>,
    /// Runs of each case.
    pub ran: Vec<Vec<Run>>,
}

impl<Run> Rounds<Run> {
    /// None yet, of so many ceilings and cases.
    pub fn new(ceilings: usize, cases: usize) -> Self {
        Self {
            copied: vec![Vec::new(); ceilings],
            ran: std::iter::repeat_with(Vec::new).take(cases).collect(),
        }
    }

    /// Runs every ceiling and every case once, and that `runs` times, until the user stops it.
    pub fn run<S: Stand<Run = Run>>(
        &mut self,
        stand: &mut S,
        cases: &[S::Case],
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
                let gbps = stand.copy(*lanes);
                copied.extend((round > 0).then_some(gbps));
            }
            for (case, ran) in cases.iter().zip(&mut self.ran) {
                if ui.stopped() {
                    return Ok(());
                }
                if round == 0 && !S::warms_up(case) {
                    continue;
                }
                bar.now(&S::name(case));
                let run = stand.run(case)?;
                if round > 0 {
                    ran.push(run);
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
