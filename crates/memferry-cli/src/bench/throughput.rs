// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench move` and `bench count`: which cases there are, in which order they run, and the rows that they make.

use memferry::copy::{self, Routine};
use memferry::topology::Topology;

use super::host;
use super::region::{PAGE, THP};
use super::rig::{Case, Rig, Run, mean_sd};
use crate::cli::bench::{CountArgs, Destination, Migrator, MoveArgs, RunArgs};
use crate::failure::Failure;
use crate::schema::{BENCH_SCHEMA, BenchFile, Ceiling, MoveRow, Rows};
use crate::ui::Ui;
use crate::units::Size;

/// `bench move`.
pub fn run_move(args: &MoveArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    let topology = host::topology()?;
    let wanted = args.wanted_total().0;
    let total = host::fitting(wanted, &topology, COPIES);
    let mut notes = Vec::new();
    if total < wanted {
        notes.push(format!(
            "The total is {} instead of {}: this machine has no room for more.",
            Size(total),
            Size(wanted)
        ));
    }
    let folios: Vec<usize> = args.folios().iter().map(|size| size.0 as usize).collect();
    let cases = |lanes: &[(Migrator, usize)], warm: bool| -> Vec<Case> {
        let case = |&folio: &usize| {
            lanes.iter().map(move |&(migrator, lanes)| Case {
                migrator,
                lanes,
                folio,
                warm,
                bytes: total as usize,
                batch: 0,
            })
        };
        folios.iter().flat_map(case).collect()
    };
    if folios.iter().any(|&folio| folio != PAGE && folio != THP) {
        notes.push(
            "Folio sizes between 4 KiB and 2 MiB are made of base pages here: per-folio moves so many at a time, batch and \
             mtcopy move whole batches whatever the folio size."
                .to_owned(),
        );
    }
    let (ceiling, rows) = measure(
        &topology,
        &args.run,
        ui,
        "bench move",
        total as usize,
        &cases,
    )?;
    finish(&topology, &args.run, ceiling, Rows::Move(rows), notes, ui)
}

/// `bench count`.
pub fn run_count(args: &CountArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    let topology = host::topology()?;
    let folio = args.folio.0 as usize;
    let largest = args.folios.iter().copied().max().unwrap_or(1);
    let wanted = (largest as u64).saturating_mul(folio as u64);
    let total = host::fitting(wanted.max(THP as u64), &topology, COPIES) as usize;
    let mut counts = args.folios.clone();
    counts.retain(|&count| count.saturating_mul(folio) <= total);
    let mut notes = Vec::new();
    if counts.len() < args.folios.len() {
        notes.push(format!(
            "Counts above {} are left out: this machine has no room for them.",
            total / folio
        ));
    }
    let cases = |lanes: &[(Migrator, usize)], warm: bool| -> Vec<Case> {
        let case = |&count: &usize| {
            lanes.iter().map(move |&(migrator, lanes)| Case {
                migrator,
                lanes,
                folio,
                warm,
                bytes: count * folio,
                batch: 0,
            })
        };
        counts.iter().flat_map(case).collect()
    };
    let (ceiling, mut rows) = measure(&topology, &args.run, ui, "bench count", total, &cases)?;
    for row in &mut rows {
        row.folios = Some(row.bytes as usize / folio);
    }
    finish(&topology, &args.run, ceiling, Rows::Count(rows), notes, ui)
}

/// Region, warm destination, ceiling buffer.
const COPIES: u64 = 3;

type Table = (Vec<Ceiling>, Vec<MoveRow>);

/// Runs all cases, page size by page size, interleaved run by run with the ceilings.
fn measure(
    topology: &Topology,
    args: &RunArgs,
    ui: &Ui,
    title: &str,
    bytes: usize,
    cases: &dyn Fn(&[(Migrator, usize)], bool) -> Vec<Case>,
) -> Result<Table, Failure> {
    super::check_backend(args.backend, topology.nodes_with_memory().count())?;
    let routine = routine(args.copy.as_deref())?;
    let columns = migrators(args, &args.lanes(topology.cpus.online.len()));
    // One ceiling for every lane count that a row has.
    let mut lanes: Vec<usize> = columns.iter().map(|&(_, lanes)| lanes).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let mut all: Vec<Case> = Vec::new();
    for warm in [true, false] {
        if args.destination == Destination::Both || warm == (args.destination == Destination::Warm)
        {
            all.extend(cases(&columns, warm));
        }
    }
    let batch = args.batch.map_or(0, |size| size.0 as usize);
    all.iter_mut().for_each(|case| case.batch = batch);
    let steps = args.runs() * all.len();
    let bar = ui.bar(title, steps as u64);
    let (mut ceilings, mut rows) = (Vec::new(), Vec::new());
    for huge in [false, true] {
        let cases: Vec<Case> = all
            .iter()
            .copied()
            .filter(|case| (case.folio >= THP) == huge)
            .collect();
        if cases.is_empty() {
            continue;
        }
        if ui.stopped() {
            break;
        }
        bar.now("warming up the memory");
        let mut rig = Rig::new(topology, bytes, huge, routine)?;
        let mut copied: Vec<Vec<f64>> = vec![Vec::new(); lanes.len()];
        let mut ran: Vec<Vec<Run>> = vec![Vec::new(); cases.len()];
        // One round more than is counted: the first warms caches, page tables and the host's memory.
        for round in 0..=args.runs() {
            for (lanes, copied) in lanes.iter().zip(&mut copied) {
                let gbps = rig.ceiling(*lanes, rig.bytes());
                copied.extend((round > 0).then_some(gbps));
            }
            for (case, ran) in cases.iter().zip(&mut ran) {
                if ui.stopped() {
                    break;
                }
                if round == 0 && case.migrator == Migrator::PerFolio {
                    continue;
                }
                bar.now(&format!(
                    "{} x{}, {}",
                    case.migrator.name(),
                    case.lanes,
                    Size(case.folio as u64)
                ));
                let run = rig.run(case)?;
                if round > 0 {
                    ran.push(run);
                    bar.step();
                }
            }
        }
        let page_bytes = if huge { THP } else { PAGE };
        let own: Vec<Ceiling> = lanes
            .iter()
            .zip(&copied)
            .filter(|(_, copied)| !copied.is_empty())
            .map(|(&lanes, copied)| {
                let (gbps, gbps_sd) = mean_sd(copied);
                Ceiling {
                    lanes,
                    page_bytes,
                    gbps,
                    gbps_sd,
                }
            })
            .collect();
        rows.extend(
            cases
                .iter()
                .zip(&ran)
                .filter_map(|(case, runs)| row(case, runs, &own)),
        );
        ceilings.extend(own);
    }
    if rows.is_empty() && ui.stopped() {
        return Err(Failure::new(
            "stopped before anything was measured",
            "interrupted",
            "run it again",
        ));
    }
    Ok((ceilings, rows))
}

/// Which migrators run with how many lanes.
fn migrators(args: &RunArgs, lanes: &[usize]) -> Vec<(Migrator, usize)> {
    let mut columns = Vec::new();
    for &migrator in &args.migrator {
        match migrator {
            Migrator::Mtcopy => columns.extend(lanes.iter().map(|&lanes| (migrator, lanes))),
            _ => columns.push((migrator, 1)),
        }
    }
    columns
}

fn row(case: &Case, runs: &[Run], ceilings: &[Ceiling]) -> Option<MoveRow> {
    if runs.is_empty() {
        return None;
    }
    let (gbps, gbps_sd) = mean_sd(&runs.iter().map(|run| run.gbps).collect::<Vec<_>>());
    let ceiling = ceilings.iter().find(|c| c.lanes == case.lanes)?;
    Some(MoveRow {
        backend: "user".to_owned(),
        migrator: case.migrator.name().to_owned(),
        lanes: case.lanes,
        folio_bytes: case.folio,
        folios: None,
        destination: if case.warm { "warm" } else { "cold" }.to_owned(),
        bytes: case.bytes as u64,
        runs: runs.len(),
        gbps,
        gbps_sd,
        of_ceiling: gbps / ceiling.gbps,
        verified_bytes: runs.iter().map(|run| run.verified).sum(),
        extra_rss_bytes: runs.iter().map(|run| run.extra_rss).max(),
    })
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
    ceiling: Vec<Ceiling>,
    rows: Rows,
    mut notes: Vec<String>,
    ui: &Ui,
) -> Result<BenchFile, Failure> {
    if args.quick {
        notes.push("A --quick run: it shows the shape and is not for publication.".to_owned());
    }
    if ui.stopped() {
        notes.push("Stopped by the user: cases or runs are missing.".to_owned());
    }
    let copy = routine(args.copy.as_deref())?.name();
    let file = BenchFile {
        schema: BENCH_SCHEMA.to_owned(),
        host: host::describe(topology, copy),
        ceiling,
        rows,
        notes,
    };
    if ui.stopped() {
        let stopped = Failure::new(
            "stopped half-way",
            "interrupted",
            "run it again for the whole table",
        );
        return Err(stopped.with_partial(file));
    }
    Ok(file)
}
