// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench move` and `bench count`, through userfaultfd and of the kernel: which cases there are, in which order they run, and
//! the rows that they make. On a stock kernel the kernel's one migrator is `none`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memferry::copy::{self, Routine};
use memferry_linux::topology::Topology;

use super::between::{Between, Control};
use super::busy::Spinners;
use super::disk::{self, Disk};
use super::region::{PAGE, THP};
use super::rig::{Means, Pages, Rig};
use super::rounds::{Case, Rounds, Run, Stand, ceilings};
use super::trace::Traced;
use super::{host, kernel, nodes, rig};
use crate::Stopped;
use crate::args::{
    Backend, CountArgs, Destination, Migrator, MigratorName, MoveArgs, Priority, RunArgs,
    value_name,
};
use crate::failure::{Failure, OrFail};
use crate::schema::{BenchFile, Ceiling, FromTo, MoveRow, Rows, Steps};
use crate::spread::mean_sd;
use crate::ui::Ui;
use crate::units::Size;

/// `bench move`: all folios in one move.
pub fn run_move(args: &MoveArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let of_kernel = args.run.backend == Backend::Kernel;
    let topology = host::topology()?;
    let mut bench = Bench::new(&topology, &args.run, ui)?;
    let wanted = match args.total {
        // About 0.3 GB/s, and each byte is written, moved twice and compared.
        None if of_kernel && topology.is_emulated() => 32 << 20,
        _ => args.wanted_total().0,
    };
    let total = bench.fitting(wanted);
    bench.note(host::changed_total(wanted, total as u64));
    let folios = match of_kernel && args.folio.is_empty() {
        true => kernel::given_folios(&topology, args.run.quick),
        false => args.folios().iter().map(|size| size.0 as usize).collect(),
    };
    let baselines = !of_kernel
        && args.destination() == Destination::All
        && args.run.migrator.contains(&MigratorName::All);
    if baselines {
        let note = match bench.nodes {
            Some(_) => {
                "move_pages is one call of move_pages(2) for all pages, by this kernel as it is."
            }
            None => {
                "three-pass is a plain program that moves all pages out, copies them and moves them in, in three passes."
            }
        };
        bench.notes.push(note.to_owned());
    }
    let sizes: Vec<_> = (folios.iter())
        .map(|&folio| (folio, total / folio, 1))
        .collect();
    let cases = bench.cases(args.destination(), baselines, &sizes);
    bench.measure("bench move", total, cases);
    bench.finish(Rows::Move)
}

/// `bench count`: so many folios in one move; of the kernel as often as the memory allows.
pub fn run_count(args: &CountArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let topology = host::topology()?;
    let mut bench = Bench::new(&topology, &args.run, ui)?;
    bench.counts = true;
    let (folio, mut counts) = (args.folio.0 as usize, args.counts());
    let largest = counts.iter().copied().max().unwrap_or(1);
    // A large count makes the kernel's memory large; small ones need not fill it.
    let usual = match args.run.backend {
        Backend::User => THP,
        Backend::Kernel => kernel::count_bytes(&topology),
    };
    let wanted = largest.saturating_mul(folio).max(usual) as u64;
    let total = match bench.nodes {
        None if folio == THP => nodes::fitting_free(wanted, &topology, COPIES) as usize,
        _ => bench.fitting(wanted),
    };
    let (room, asked) = (total / folio, counts.len());
    counts.retain(|&count| count <= room);
    if counts.is_empty() {
        return Err(Failure::new(
            "cannot measure any of these numbers of folios",
            format!("there is room for {room} of {}", args.folio),
            "give smaller --folios",
        )
        .into());
    }
    bench.note(
        (counts.len() < asked)
            .then(|| format!("Counts above {room} are left out: there is no room for them.")),
    );
    let calls = |count: usize| match args.run.backend {
        Backend::User => 1,
        Backend::Kernel => kernel::calls(usual.min(total) / folio / count, args.run.quick),
    };
    let sizes: Vec<_> = (counts.iter())
        .map(|&count| (folio, count, calls(count)))
        .collect();
    let cases = bench.cases(args.run.destination(), false, &sizes);
    bench.measure("bench count", total, cases);
    bench.finish(Rows::Count)
}

/// Copies of a region where it moves to: the pages that it gets, and the ceiling's buffer.
const COPIES: u64 = 2;

/// The kinds of pages that are asked for.
fn kinds(destination: Destination) -> &'static [Pages] {
    match destination {
        Destination::Warm => &[Pages::Warm],
        Destination::Unaligned => &[Pages::Unaligned],
        Destination::Cold => &[Pages::Cold],
        Destination::Default => &[Pages::Default],
        Destination::Both => &[Pages::Warm, Pages::Cold],
        Destination::All => &[Pages::Warm, Pages::Unaligned, Pages::Cold, Pages::Default],
    }
}

/// What all cases share, and what they came to.
struct Bench<'a> {
    topology: &'a Topology,
    args: &'a RunArgs,
    ui: &'a Ui,
    routine: Routine,
    nodes: Option<FromTo>,
    /// Who moves, with how many lanes.
    columns: Vec<(Means, usize)>,
    /// The kernel's settings, where it moves.
    control: Option<Control>,
    /// The threads of `--busy`.
    busy: Option<Arc<Spinners>>,
    /// The file of `--disk`.
    disk: Option<Arc<Disk>>,
    /// Whether the rows differ by the number of folios.
    counts: bool,
    ceilings: Vec<Ceiling>,
    /// What tracepoints told of the cases that were measured.
    traced: Vec<Traced>,
    rows: Vec<MoveRow>,
    notes: Vec<String>,
    failure: Option<Failure>,
}

impl<'a> Bench<'a> {
    fn new(topology: &'a Topology, args: &'a RunArgs, ui: &'a Ui) -> Result<Self, Failure> {
        let usable = host::usable_cpus(topology);
        let in_quota = host::cpus_in_quota(topology);
        let mut bench = Self {
            topology,
            args,
            ui,
            routine: routine(args.copy.as_deref())?,
            nodes: None,
            columns: Vec::new(),
            control: None,
            busy: (args.lanes_on.busy.then(Spinners::start).transpose()?).map(Arc::new),
            disk: (args.disk.as_deref().map(Disk::new).transpose()?).map(Arc::new),
            counts: false,
            ceilings: Vec::new(),
            traced: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            failure: None,
        };
        bench.note(host::quota_note(topology));
        if args.backend == Backend::User {
            if args.lanes_on.priority == Some(Priority::High) {
                rig::check_high_priority()?;
            }
            bench.nodes = nodes::choose_or_within(topology, &args.nodes)?;
            bench.columns = rig::columns(&args.migrator, &args.lanes(in_quota), usable)?;
            bench.notes.extend(host::emulated_note(topology));
            return Ok(bench);
        }
        bench.nodes = Some(nodes::choose(topology, &args.nodes)?);
        let found = kernel::migration()?;
        let lanes = kernel::lanes(args, in_quota);
        bench.columns = kernel::columns(&args.migrator, &lanes, kernel::names(&found))?;
        let mut control = Control::new(found.is_ok(), args.lanes_on)?;
        let dropped = control.fit_channels(&mut bench.columns)?;
        bench.note(dropped);
        bench.control = Some(control);
        bench.notes.push(match found {
            Ok(now) => format!(
                "A batch has at most {} (max_batch_bytes).",
                Size(now.max_batch_bytes)
            ),
            Err(absence) => format!(
                "Only migrator none was measured: {absence}. `memferry kernel status` says what would bring more."
            ),
        });
        bench.note(host::emulated_note(topology));
        Ok(bench)
    }

    /// Says something at once, and again below the tables.
    fn note(&mut self, note: Option<String>) {
        if let Some(note) = &note {
            self.ui.warn(note);
        }
        self.notes.extend(note);
    }

    fn fitting(&self, wanted: u64) -> usize {
        nodes::fitting(wanted, self.topology, self.nodes, COPIES) as usize
    }

    /// The cases of these sizes: bytes of a folio, folios of a move, moves of a run.
    fn cases(
        &mut self,
        destination: Destination,
        baselines: bool,
        sizes: &[(usize, usize, usize)],
    ) -> Vec<Case> {
        let kinds = match self.args.backend {
            Backend::User => kinds(destination),
            Backend::Kernel => &[Pages::Cold],
        };
        let most = self.columns.iter().map(|column| column.1).max();
        let mut cases = Vec::new();
        if self.args.backend == Backend::User {
            let folios = sizes.iter().map(|of| of.0);
            self.notes.extend(rig::base_pages_note(folios));
        }
        if kinds.contains(&Pages::Unaligned) && sizes.iter().any(|of| (of.0, of.1) == (PAGE, 1)) {
            let note = "An unaligned range begins a page later: of one page there is none.";
            self.notes.push(note.to_owned());
        }
        for &pages in kinds {
            // The rows that only stand beside others have no baselines.
            let beside = matches!(pages, Pages::Unaligned | Pages::Default);
            let mut columns = self.columns.clone();
            let stands_alone =
                |means: &Means| matches!(means, Means::Mover(Migrator::PerFolio | Migrator::Batch));
            columns.retain(|(means, _)| !beside || !stands_alone(means));
            if baselines && self.nodes.is_some() && pages == Pages::Cold {
                columns.push((Means::MovePages, 1));
            } else if baselines && self.nodes.is_none() && !beside {
                columns.push((Means::ThreePass, most.unwrap_or(1)));
            }
            for &(folio, folios, calls) in sizes {
                let fits = |means: &Means| match means {
                    // A THP that the range cuts does not move, and of one page nothing is left.
                    Means::Mover(_) | Means::Kernel(_) => {
                        pages != Pages::Unaligned || folio == PAGE && folios > 1
                    }
                    // What moves single folios by itself has the sizes that the kernel has.
                    Means::ThreePass | Means::MovePages => [PAGE, THP].contains(&folio),
                };
                let fitting = columns.iter().filter(|(means, _)| fits(means));
                cases.extend(fitting.map(|(means, lanes)| Case {
                    means: means.clone(),
                    lanes: *lanes,
                    folio,
                    folios,
                    calls,
                    pages,
                }));
            }
        }
        cases
    }

    /// Runs all cases, one kind of memory after the other, interleaved run by run with the ceilings, and makes their rows.
    fn measure(&mut self, title: &str, bytes: usize, cases: Vec<Case>) {
        // One ceiling for every lane count that a row has.
        let mut lanes: Vec<usize> = cases.iter().map(|case| case.lanes).collect();
        lanes.sort_unstable();
        lanes.dedup();
        // Folios in between are made of base pages by the mover, and by the kernel itself.
        let memory = |case: &Case| match case.means {
            Means::Kernel(_) => case.folio,
            _ if case.folio >= THP => THP,
            _ => PAGE,
        };
        let mut kinds: Vec<usize> = cases.iter().map(memory).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let runs = self.args.runs();
        let bar = self.ui.bar(title, (cases.len() * runs) as u64);
        let mut copied = [vec![Vec::new(); lanes.len()], vec![Vec::new(); lanes.len()]];
        let mut measured = Vec::new();
        for folio in kinds {
            if self.ui.stopped() || self.failure.is_some() {
                break;
            }
            bar.now("filling the memory");
            let of = |case: &&Case| memory(case) == folio;
            let cases: Vec<Case> = cases.iter().filter(of).cloned().collect();
            let mut rounds = Rounds::new(lanes.len(), cases.len());
            let ui = self.ui;
            self.failure = self
                .stand(bytes, folio)
                .and_then(|mut stand| rounds.run(&mut *stand, &cases, &lanes, runs, ui, &bar))
                .err();
            let of_pages = &mut copied[usize::from(folio >= THP)];
            for (all, own) in of_pages.iter_mut().zip(rounds.copied) {
                all.extend(own);
            }
            self.traced.extend(rounds.traced);
            measured.extend(cases.into_iter().zip(rounds.ran));
        }
        let [base, huge] = copied;
        self.ceilings = ceilings(&lanes, &base, PAGE);
        self.ceilings.extend(ceilings(&lanes, &huge, THP));
        let rows = measured.iter().zip(&self.traced);
        self.rows = rows
            .filter_map(|((case, runs), traced)| {
                let row = self.row(case, runs, &measured)?;
                Some(MoveRow {
                    lanes_used: traced.lanes_used.or(row.lanes_used),
                    helpers_ns: traced.helpers_ns,
                    kernel_steps: traced.steps,
                    dma_round: traced.dma_round,
                    ..row
                })
            })
            .collect();
        self.note(kernel::not_copied(&self.rows));
        let split: usize = measured
            .iter()
            .flat_map(|(_, runs)| runs)
            .map(|run| run.split)
            .sum();
        self.note((split > 0).then(|| {
            format!(
                "The kernel split THPs while they moved: such runs were repeated, {split} in all."
            )
        }));
    }

    /// Memory of folios of this size.
    fn stand(&mut self, bytes: usize, folio: usize) -> Result<Box<dyn Stand + '_>, Failure> {
        let (routine, threads) = (self.routine, host::usable_cpus(self.topology));
        Ok(match (&mut self.control, self.nodes) {
            (Some(control), Some(nodes)) => {
                let busy = self.busy.clone();
                let between = Between::new(nodes, bytes, folio, routine, threads, control, busy)?;
                let between = between.beside(self.disk.clone());
                Box::new(between.learning(self.args.learn()))
            }
            _ => Box::new(Rig::new(
                self.topology,
                self.nodes,
                bytes,
                folio >= THP,
                routine,
                self.args,
                self.busy.clone(),
            )?),
        })
    }

    fn row(&self, case: &Case, runs: &[Run], all: &[(Case, Vec<Run>)]) -> Option<MoveRow> {
        let first = runs.first()?;
        let runs_gbps: Vec<f64> = runs.iter().map(|run| run.gbps).collect();
        let (gbps, gbps_sd) = mean_sd(&runs_gbps);
        let huge = case.folio >= THP;
        let mut ceilings = self.ceilings.iter();
        let ceiling = ceilings.find(|c| c.lanes == case.lanes && c.is_huge() == huge)?;
        let ours = matches!(case.means, Means::Mover(_));
        let mut calls: Vec<u64> = runs.iter().flat_map(|run| run.call_ns.clone()).collect();
        Some(MoveRow {
            backend: case.means.backend().to_owned(),
            migrator: case.means.name().to_owned(),
            lanes: case.lanes,
            folio_bytes: case.folio,
            folios: self.counts.then_some(case.folios),
            destination: case.pages.name().to_owned(),
            bytes: case.moved() as u64,
            runs: runs.len(),
            gbps,
            gbps_sd,
            runs_gbps,
            of_ceiling: gbps / ceiling.gbps,
            verified_bytes: runs.iter().map(|run| run.verified).sum(),
            extra_rss_bytes: runs.iter().map(|run| run.extra_rss).max().filter(|_| ours),
            nodes: self.nodes,
            copied_bytes: runs.iter().map(|run| run.copied).sum(),
            copied_by: runs.iter().fold(BTreeMap::new(), |mut sum, run| {
                for (migrator, bytes) in &run.copied_by {
                    *sum.entry(migrator.clone()).or_default() += bytes;
                }
                sum
            }),
            declined_batches: runs.iter().map(|run| run.declined).sum(),
            lanes_used: lanes_that_copied(runs).filter(|_| case.means.is_auto()),
            helpers_ns: None,
            kernel_steps: None,
            dma_round: None,
            beside_disk: disk::beside(runs),
            cpu_ticks: (runs.iter().filter_map(|run| run.cpu)).reduce(|mut sum, run| {
                sum += run;
                sum
            }),
            busy_lost: mean_of(runs, |run| run.busy_lost),
            call_ns: kernel::median(&mut calls),
            runs_call_ns: runs.iter().filter_map(Run::typical_ns).collect(),
            of_none: kernel::of_none(case, runs, all),
            steps: ours.then(|| mean_steps(runs, |run| run.steps)),
            lane_steps: (0..first.lanes.len())
                .map(|lane| {
                    mean_steps(runs, |run| run.lanes.get(lane).copied().unwrap_or_default())
                })
                .collect(),
        })
    }

    /// Sets the migrator back and makes the file.
    fn finish(mut self, make: fn(Vec<MoveRow>) -> Rows) -> Result<BenchFile, Stopped> {
        let channels = self.control.as_ref().map(|of| of.taken.join(", "));
        let restored = self.control.take().map_or(Ok(()), Control::restore);
        let host = host::describe(self.topology, Some(self.routine.name()));
        let mut file = BenchFile::new(host, make(self.rows), self.notes);
        file.ceiling = self.ceilings;
        if self.columns.iter().any(|(means, _)| means.is_auto()) {
            let seconds = self.args.learn().as_secs();
            file.envelope = file.envelope.with("learn_seconds", seconds);
        }
        if self.args.backend == Backend::User {
            let batch = self.args.batch.map(|size| size.0.to_string());
            let batch = batch.as_deref().unwrap_or("default");
            file.envelope = file.envelope.with("batch_bytes", batch);
        }
        let on = self.args.lanes_on;
        let disk = (self.args.disk.as_ref()).map(|folder| folder.display().to_string());
        let busy = on.busy.then(|| "a thread on each CPU".to_owned());
        for (name, value) in [
            ("dcbm_channels", channels.filter(|names| !names.is_empty())),
            ("busy", busy),
            ("disk", disk),
            ("placement", on.placement.map(value_name)),
            ("priority", on.priority.map(value_name)),
            ("idle_only", on.idle_only.map(value_name)),
        ] {
            let settings = &mut file.envelope.settings;
            settings.extend(value.map(|value| (name.to_owned(), value)));
        }
        crate::finish(file, self.args.quick, self.failure, restored, self.ui)
    }
}

/// How many lanes shared the bytes, as evenly as the busiest of them had them: mean over the runs.
fn lanes_that_copied(runs: &[Run]) -> Option<f64> {
    mean_of(runs, |run| {
        let of = |lane: &memferry::Steps| lane.copied_bytes;
        let (all, most) = (
            run.lanes.iter().map(of).sum::<u64>(),
            run.lanes.iter().map(of).max()?,
        );
        (most > 0).then(|| all as f64 / most as f64)
    })
}

/// The mean over the runs that have it.
fn mean_of(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| mean_sd(&values).0)
}

fn mean_steps(runs: &[Run], of: impl Fn(&Run) -> memferry::Steps) -> Steps {
    let mut sum = memferry::Steps::default();
    runs.iter().for_each(|run| sum += of(run));
    let count = runs.len().max(1) as u64;
    let ns = |of: Duration| of.as_nanos() as u64 / count;
    Steps {
        set_up_ns: ns(sum.set_up),
        scan_ns: ns(sum.scan),
        populate_ns: ns(sum.populate),
        register_ns: ns(sum.register),
        unmap_ns: ns(sum.unmap),
        copy_ns: ns(sum.copy),
        fill_ns: ns(sum.fill),
        remap_ns: ns(sum.remap),
        give_back_ns: ns(sum.give_back),
        answer_ns: ns(sum.answer),
        wait_ns: ns(sum.wait),
        batches: sum.batches / count,
        copied_bytes: sum.copied_bytes / count,
        eagains: sum.eagains / count,
        retries: sum.retries / count,
    }
}

/// The copy routine of the ceiling and of batch and mtcopy.
pub fn routine(name: Option<&str>) -> Result<Routine, Failure> {
    let found = match name {
        Some(name) => copy::by_name(name).ok_or_else(|| format!("{name} is not one of this CPU's")),
        None => (copy::requested().map(|_| copy::best())).map_err(|error| error.to_string()),
    };
    let next = "`memferry topology --copy` lists those of this machine";
    found.or_fail("unknown copy routine", next)
}
