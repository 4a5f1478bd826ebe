// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench move` and `bench count`: which cases there are, in which order they run, and the rows that they make.

use std::path::Path;
use std::time::Duration;

use memferry::copy::{self, Routine};
use memferry_linux::topology::Topology;

use super::host;
use super::nodes;
use super::region::{PAGE, THP};
use super::rig::{Case, Means, Pages, Rig, Run};
use super::rounds::{Rounds, ceilings};
use super::three_pass;
use crate::args::{Backend, CountArgs, Destination, Migrator, MigratorName, MoveArgs, RunArgs};
use crate::failure::Failure;
use crate::schema::{BENCH_SCHEMA, BenchFile, Ceiling, Envelope, FromTo, MoveRow, Rows, Steps};
use crate::spread::mean_sd;
use crate::ui::Ui;

/// `bench move`.
pub fn run_move(args: &MoveArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    if args.run.backend == Backend::Kernel {
        if args.anatomy {
            return Err(Failure::new(
                "cannot show where the kernel's time goes",
                "--anatomy is of this command's own moves",
                "leave it out, or take --backend user",
            ));
        }
        return super::kernel::run_move(args, ui);
    }
    let topology = host::topology()?;
    let wanted = args.wanted_total().0;
    let nodes = nodes::choose_or_within(&topology, &args.run.nodes)?;
    let total = nodes::fitting(wanted, &topology, nodes, COPIES);
    let mut notes = Vec::new();
    if let Some(note) = host::changed_total(wanted, total) {
        ui.warn(&note);
        notes.push(note);
    }
    let folios: Vec<usize> = args.folios().iter().map(|size| size.0 as usize).collect();
    let several = nodes.is_some();
    let all =
        args.destination() == Destination::All && args.run.migrator.contains(&MigratorName::All);
    if several && all {
        notes.push(
            "move_pages is one call of move_pages(2) for all pages, by this kernel as it is."
                .to_owned(),
        );
    }
    if !several && all {
        let note = match three_pass::is_allowed() {
            true => {
                "three-pass is a plain program that moves all pages out, copies them and moves them in, in three passes."
            }
            false => "There is no three-pass row: this process may not call userfaultfd(2).",
        };
        notes.push(note.to_owned());
    }
    let cases = |columns: &[(Migrator, usize)], pages: Pages| -> Vec<Case> {
        let mut means = columns_of(columns, pages);
        let most = columns.iter().map(|column| column.1).max().unwrap_or(1);
        match pages {
            Pages::Cold if several && all => means.push((Means::MovePages, 1)),
            Pages::Warm | Pages::Cold if !several && all && three_pass::is_allowed() => {
                means.push((Means::ThreePass, most));
            }
            _ => {}
        }
        // A THP that the range cuts does not move.
        let folios = (folios.iter()).filter(|&&folio| pages != Pages::Unaligned || folio == PAGE);
        let case = |&folio: &usize| {
            means.iter().map(move |&(means, lanes)| Case {
                means,
                lanes,
                folio,
                pages,
                bytes: total as usize,
                batch: 0,
            })
        };
        folios
            .flat_map(case)
            // What moves single folios by itself has the sizes that the kernel has.
            .filter(|case| {
                matches!(case.means, Means::Mover(_)) || [PAGE, THP].contains(&case.folio)
            })
            .collect()
    };
    if folios.iter().any(|&folio| folio != PAGE && folio != THP) {
        notes.push(
            "Folio sizes between 4 KiB and 2 MiB are made of base pages here: per-folio moves so many at a time, batch and \
             mtcopy move whole batches whatever the folio size."
                .to_owned(),
        );
    }
    let columns = migrators(&args.run, &topology);
    let measured = measure(
        &topology,
        nodes,
        &args.run,
        ui,
        "bench move",
        total as usize,
        (kinds(args.destination()).iter())
            .flat_map(|&pages| cases(&columns, pages))
            .collect(),
    )?;
    finish(&topology, &args.run, measured, Rows::Move, notes, ui)
}

/// `bench count`.
pub fn run_count(args: &CountArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    if args.run.backend == Backend::Kernel {
        return super::kernel::run_count(args, ui);
    }
    let topology = host::topology()?;
    let folio = args.folio.0 as usize;
    let wanted_counts = args.counts();
    let largest = wanted_counts.iter().copied().max().unwrap_or(1);
    let wanted = (largest as u64).saturating_mul(folio as u64);
    let nodes = nodes::choose_or_within(&topology, &args.run.nodes)?;
    let total = nodes::fitting(wanted, &topology, nodes, COPIES) as usize;
    let mut counts = wanted_counts.clone();
    counts.retain(|&count| count.saturating_mul(folio) <= total);
    let mut notes = Vec::new();
    if counts.is_empty() {
        return Err(Failure::new(
            "cannot measure any of these numbers of folios",
            format!(
                "this machine has room for {} of {}",
                total / folio,
                args.folio
            ),
            "give smaller --folios",
        ));
    }
    if counts.len() < wanted_counts.len() {
        let note = format!(
            "Counts above {} are left out: this machine has no room for them.",
            total / folio
        );
        ui.warn(&note);
        notes.push(note);
    }
    let cases = |columns: &[(Migrator, usize)], pages: Pages| -> Vec<Case> {
        let means = columns_of(columns, pages);
        let case = |&count: &usize| {
            let means = means.clone().into_iter();
            means.map(move |(means, lanes)| Case {
                means,
                lanes,
                folio,
                pages,
                bytes: count * folio,
                batch: 0,
            })
        };
        counts.iter().flat_map(case).collect()
    };
    let columns = migrators(&args.run, &topology);
    let mut measured = measure(
        &topology,
        nodes,
        &args.run,
        ui,
        "bench count",
        total,
        (kinds(args.run.destination()).iter())
            .flat_map(|&pages| cases(&columns, pages))
            .collect(),
    )?;
    for row in &mut measured.rows {
        row.folios = Some(row.bytes as usize / folio);
    }
    finish(&topology, &args.run, measured, Rows::Count, notes, ui)
}

/// Copies of a region where it moves to: the pages that it gets, and the ceiling's buffer.
pub const COPIES: u64 = 2;

/// Who moves into pages of one kind: the rows that only stand beside others have no baselines.
fn columns_of(columns: &[(Migrator, usize)], pages: Pages) -> Vec<(Means, usize)> {
    let beside = matches!(pages, Pages::Unaligned | Pages::Default);
    let columns = (columns.iter()).filter(|of| !beside || of.0 == Migrator::Mtcopy);
    columns
        .map(|&(of, lanes)| (Means::Mover(of), lanes))
        .collect()
}

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

/// What was measured, up to the failure if there was one.
#[derive(Default)]
struct Measured {
    ceilings: Vec<Ceiling>,
    rows: Vec<MoveRow>,
    failure: Option<Failure>,
}

/// Runs all cases, page size by page size, interleaved run by run with the ceilings.
fn measure(
    topology: &Topology,
    nodes: Option<FromTo>,
    args: &RunArgs,
    ui: &Ui,
    title: &str,
    bytes: usize,
    mut all: Vec<Case>,
) -> Result<Measured, Failure> {
    let routine = routine(args.copy.as_deref())?;
    // One ceiling for every lane count that a row has.
    let mut lanes: Vec<usize> = all.iter().map(|case| case.lanes).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let batch = args.batch.map_or(0, |size| size.0 as usize);
    all.iter_mut().for_each(|case| case.batch = batch);
    let steps = args.runs() * all.len();
    let bar = ui.bar(title, steps as u64);
    let mut measured = Measured::default();
    for huge in [false, true] {
        let cases: Vec<Case> = all
            .iter()
            .copied()
            .filter(|case| (case.folio >= THP) == huge)
            .collect();
        if cases.is_empty() || ui.stopped() || measured.failure.is_some() {
            continue;
        }
        bar.now("warming up the memory");
        let mut rounds = Rounds::new(lanes.len(), cases.len());
        measured.failure = Rig::new(
            topology,
            nodes,
            bytes,
            huge,
            routine,
            args.allow_faulty_kernel,
        )
        .and_then(|mut rig| rounds.run(&mut rig, &cases, &lanes, args.runs(), ui, &bar))
        .err();
        let own = ceilings(&lanes, &rounds.copied, if huge { THP } else { PAGE });
        let rows = cases.iter().zip(&rounds.ran);
        (measured.rows).extend(rows.filter_map(|(case, runs)| row(case, runs, &own, nodes)));
        measured.ceilings.extend(own);
    }
    Ok(measured)
}

/// Which migrators run with how many lanes.
fn migrators(args: &RunArgs, topology: &Topology) -> Vec<(Migrator, usize)> {
    let lanes = args.lanes(host::usable_cpus(topology));
    let mut columns = Vec::new();
    for migrator in args.user_migrators() {
        match migrator {
            Migrator::Mtcopy => columns.extend(lanes.iter().map(|&lanes| (migrator, lanes))),
            _ => columns.push((migrator, 1)),
        }
    }
    columns
}

fn row(case: &Case, runs: &[Run], ceilings: &[Ceiling], nodes: Option<FromTo>) -> Option<MoveRow> {
    if runs.is_empty() {
        return None;
    }
    let runs_gbps: Vec<f64> = runs.iter().map(|run| run.gbps).collect();
    let (gbps, gbps_sd) = mean_sd(&runs_gbps);
    let ceiling = ceilings.iter().find(|c| c.lanes == case.lanes)?;
    let ours = matches!(case.means, Means::Mover(_));
    Some(MoveRow {
        backend: case.means.backend().to_owned(),
        migrator: case.means.name().to_owned(),
        lanes: case.lanes,
        folio_bytes: case.folio,
        folios: None,
        destination: case.pages.name().to_owned(),
        bytes: case.moved() as u64,
        runs: runs.len(),
        gbps,
        gbps_sd,
        runs_gbps,
        of_ceiling: gbps / ceiling.gbps,
        verified_bytes: runs.iter().map(|run| run.verified).sum(),
        extra_rss_bytes: runs.iter().map(|run| run.extra_rss).max().filter(|_| ours),
        nodes,
        copied_bytes: None,
        call_ns: None,
        runs_call_ns: Vec::new(),
        of_none: None,
        steps: ours.then(|| mean_steps(runs, |run| run.steps)),
        lane_steps: (0..runs[0].lanes.len())
            .map(|lane| mean_steps(runs, |run| run.lanes.get(lane).copied().unwrap_or_default()))
            .collect(),
    })
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
        eagains: sum.eagains / count,
        retries: sum.retries / count,
    }
}

/// The copy routine of the ceiling and of batch and mtcopy.
pub fn routine(name: Option<&str>) -> Result<Routine, Failure> {
    let unknown = |error: &dyn std::fmt::Display| {
        Failure::new(
            "unknown copy routine",
            error,
            "`memferry topology --copy` lists those of this machine",
        )
    };
    match name {
        Some(name) => {
            copy::by_name(name).ok_or_else(|| unknown(&format!("{name} is not one of this CPU's")))
        }
        None => {
            copy::requested().map_err(|error| unknown(&error))?;
            Ok(copy::best())
        }
    }
}

fn finish(
    topology: &Topology,
    args: &RunArgs,
    measured: Measured,
    rows: impl Fn(Vec<MoveRow>) -> Rows,
    notes: Vec<String>,
    ui: &Ui,
) -> Result<BenchFile, Failure> {
    let mut notes = notes;
    notes.extend(host::emulated_note(topology));
    let batch = args.batch.map(|size| size.0.to_string());
    let file = BenchFile {
        schema: BENCH_SCHEMA.to_owned(),
        envelope: Envelope::now(Path::new("/"))
            .with("batch_bytes", batch.as_deref().unwrap_or("default")),
        host: host::describe(topology, Some(routine(args.copy.as_deref())?.name())),
        ceiling: measured.ceilings,
        rows: rows(measured.rows),
        like: None,
        notes,
    };
    crate::finish(file, args.quick, measured.failure, ui)
}
