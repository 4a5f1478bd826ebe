// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench move` and `bench count` of the kernel: which cases there are, and the rows that they make. On a stock kernel the
//! one migrator is `none`.

use std::path::Path;

use memferry_linux::kernel::{DCBM, MOST_LANES, MTCOPY, Migration, NO_MIGRATOR};
use memferry_linux::topology::{ThpMode, Topology};

use super::between::{Between, Case, Control, Run};
use super::host;
use super::nodes;
use super::region::{PAGE, THP};
use super::rounds::{Rounds, ceilings};
use super::throughput::{COPIES, routine};
use crate::args::{CountArgs, MigratorName, MoveArgs, RunArgs};
use crate::failure::Failure;
use crate::schema::{BENCH_SCHEMA, BenchFile, Ceiling, Envelope, FromTo, MoveRow, Rows};
use crate::spread::mean_sd;
use crate::ui::Ui;
use crate::units::Size;

/// `bench move --backend kernel`: all folios in one call.
pub fn run_move(args: &MoveArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    let topology = host::topology()?;
    let mut bench = Bench::new(&topology, &args.run, ui)?;
    let wanted = match args.total {
        Some(total) => total.0,
        // About 0.3 GB/s, and each byte is written, moved twice and compared.
        None if topology.is_emulated() => 32 << 20,
        None => args.wanted_total().0,
    };
    let total = nodes::fitting(wanted, &topology, Some(bench.nodes), COPIES) as usize;
    bench.note(host::changed_total(wanted, total as u64));
    let folios = match args.folio.is_empty() {
        true => given_folios(&topology, args.run.quick),
        false => args.folios().iter().map(|size| size.0 as usize).collect(),
    };
    let groups = folios.iter().map(|&folio| Group {
        folio,
        bytes: total,
        calls: vec![(total / folio, 1)],
    });
    let rows = bench.measure("bench move", &groups.collect::<Vec<_>>())?;
    bench.finish(rows, Rows::Move)
}

/// The most calls of one run: enough for a median.
const CALLS: usize = 128;

/// The bytes of a run of `bench count`, if that is enough for the largest count; less where an emulator takes seconds for it.
fn count_bytes(topology: &Topology) -> usize {
    match topology.is_emulated() {
        true => 16 << 20,
        false => 64 << 20,
    }
}

/// `bench count --backend kernel`: so many folios in one call, as often as the memory allows.
pub fn run_count(args: &CountArgs, ui: &Ui) -> Result<BenchFile, Failure> {
    let topology = host::topology()?;
    let mut bench = Bench::new(&topology, &args.run, ui)?;
    let (folio, mut counts) = (args.folio.0 as usize, args.counts());
    let largest = counts
        .iter()
        .copied()
        .max()
        .unwrap_or(1)
        .saturating_mul(folio);
    let usual = count_bytes(&topology);
    let total = nodes::fitting(
        largest.max(usual) as u64,
        &topology,
        Some(bench.nodes),
        COPIES,
    ) as usize;
    let room = total / folio;
    let asked = counts.len();
    counts.retain(|&count| count <= room);
    if counts.is_empty() {
        return Err(Failure::new(
            "cannot measure any of these numbers of folios",
            format!("the nodes have room for {room} of {}", args.folio),
            "give smaller --folios",
        ));
    }
    bench
        .note((counts.len() < asked).then(|| {
            format!("Counts above {room} are left out: the nodes have no room for them.")
        }));
    let most = if args.run.quick { CALLS / 4 } else { CALLS };
    // A large count makes its memory large; small ones need not fill it.
    let calls = |count: usize| (usual.min(total) / folio / count).clamp(1, most);
    let group = Group {
        folio,
        bytes: total,
        calls: counts.iter().map(|&count| (count, calls(count))).collect(),
    };
    let mut rows = bench.measure("bench count", &[group])?;
    for row in &mut rows {
        row.row.folios = Some(row.case.folios);
    }
    bench.finish(rows, Rows::Count)
}

/// Cases that share their memory.
struct Group {
    folio: usize,
    bytes: usize,
    /// Folios of a call, calls of a run.
    calls: Vec<(usize, usize)>,
}

/// A case that was measured.
struct Measured {
    case: Case,
    runs: Vec<Run>,
    row: MoveRow,
}

/// What all cases share.
struct Bench<'a> {
    topology: &'a Topology,
    args: &'a RunArgs,
    ui: &'a Ui,
    nodes: FromTo,
    /// Migrators with their lanes.
    columns: Vec<(String, usize)>,
    control: Option<Control>,
    ceilings: Vec<Ceiling>,
    notes: Vec<String>,
    failure: Option<Failure>,
}

impl<'a> Bench<'a> {
    fn new(topology: &'a Topology, args: &'a RunArgs, ui: &'a Ui) -> Result<Self, Failure> {
        let nodes = nodes::choose(topology, &args.nodes)?;
        let found = Migration::read().map_err(|error| {
            Failure::new("cannot read the kernel's settings", error, "try again")
        })?;
        let lanes = lanes(args, host::usable_cpus(topology));
        let columns = match &found {
            Ok(now) => columns(args, &lanes, &now.migrators.names)?,
            Err(absence) => {
                let other =
                    |name: &&MigratorName| !matches!(name, MigratorName::None | MigratorName::All);
                if let Some(name) = args.migrator.iter().find(other) {
                    return Err(Failure::new(
                        format!("this kernel has no migrator {}", name.name()),
                        absence,
                        format!("{}; --migrator none measures it as it is", absence.hint()),
                    ));
                }
                vec![(NO_MIGRATOR.to_owned(), 1)]
            }
        };
        let mut bench = Self {
            topology,
            args,
            ui,
            nodes,
            columns,
            control: Some(Control::new(found.is_ok())?),
            ceilings: Vec::new(),
            notes: Vec::new(),
            failure: None,
        };
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

    /// Runs all cases, one folio size after the other, and makes their rows.
    fn measure(&mut self, title: &str, groups: &[Group]) -> Result<Vec<Measured>, Failure> {
        let routine = routine(self.args.copy.as_deref())?;
        let mut lanes: Vec<usize> = self.columns.iter().map(|&(_, lanes)| lanes).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let cases = |group: &Group| -> Vec<Case> {
            let case = |&(folios, calls): &(usize, usize)| {
                self.columns.iter().map(move |(migrator, lanes)| Case {
                    migrator: migrator.clone(),
                    lanes: *lanes,
                    folio: group.folio,
                    folios,
                    calls,
                })
            };
            group.calls.iter().flat_map(case).collect()
        };
        let steps: usize = groups.iter().map(|group| cases(group).len()).sum();
        let bar = self.ui.bar(title, (steps * self.args.runs()) as u64);
        let mut copied = [vec![Vec::new(); lanes.len()], vec![Vec::new(); lanes.len()]];
        let mut measured = Vec::new();
        let threads = host::usable_cpus(self.topology);
        for group in groups {
            if self.ui.stopped() || self.failure.is_some() {
                break;
            }
            bar.now("filling the memory");
            let cases = cases(group);
            let mut rounds = Rounds::new(lanes.len(), cases.len());
            let control = self
                .control
                .as_mut()
                .ok_or_else(|| super::rig::bug("no control"))?;
            self.failure = Between::new(
                self.nodes,
                group.bytes,
                group.folio,
                routine,
                threads,
                control,
            )
            .and_then(|mut rig| {
                rounds.run(&mut rig, &cases, &lanes, self.args.runs(), self.ui, &bar)
            })
            .err();
            let of_pages = &mut copied[usize::from(group.folio >= THP)];
            for (all, own) in of_pages.iter_mut().zip(rounds.copied) {
                all.extend(own);
            }
            measured.extend(cases.into_iter().zip(rounds.ran));
        }
        let [base, huge] = copied;
        self.ceilings = ceilings(&lanes, &base, PAGE);
        self.ceilings.extend(ceilings(&lanes, &huge, THP));
        let rows = self.rows(measured);
        self.note(not_copied(&rows));
        Ok(rows)
    }

    fn rows(&self, measured: Vec<(Case, Vec<Run>)>) -> Vec<Measured> {
        let row = |case: &Case, runs: &[Run]| -> Option<MoveRow> {
            let runs_gbps: Vec<f64> = runs.iter().map(|run| run.gbps).collect();
            let (gbps, gbps_sd) = mean_sd(&runs_gbps);
            let huge = case.folio >= THP;
            let mut ceilings = self.ceilings.iter();
            let ceiling = ceilings.find(|c| c.lanes == case.lanes && c.is_huge() == huge)?;
            let mut calls: Vec<u64> = runs.iter().flat_map(|run| run.call_ns.clone()).collect();
            Some(MoveRow {
                backend: "kernel".to_owned(),
                migrator: case.migrator.clone(),
                lanes: case.lanes,
                folio_bytes: case.folio,
                folios: None,
                destination: "cold".to_owned(),
                bytes: (case.folio * case.folios * case.calls) as u64,
                runs: runs.len(),
                gbps,
                gbps_sd,
                runs_gbps,
                of_ceiling: gbps / ceiling.gbps,
                verified_bytes: runs.iter().map(|run| run.verified).sum(),
                extra_rss_bytes: None,
                nodes: Some(self.nodes),
                copied_bytes: runs.iter().map(|run| run.copied).sum(),
                call_ns: Some(median(&mut calls)),
                runs_call_ns: runs.iter().map(Run::typical_ns).collect(),
                of_none: None,
                steps: None,
                lane_steps: Vec::new(),
            })
        };
        let mut rows: Vec<Measured> = measured
            .into_iter()
            .filter(|(_, runs)| !runs.is_empty())
            .filter_map(|(case, runs)| {
                let row = row(&case, &runs)?;
                Some(Measured { case, runs, row })
            })
            .collect();
        let ratios: Vec<Option<f64>> = rows.iter().map(|of| of.of_none(&rows)).collect();
        for (of, ratio) in rows.iter_mut().zip(ratios) {
            of.row.of_none = ratio;
        }
        rows
    }

    /// Sets the migrator back and makes the file.
    fn finish(
        mut self,
        rows: Vec<Measured>,
        make: impl Fn(Vec<MoveRow>) -> Rows,
    ) -> Result<BenchFile, Failure> {
        if let Some(Err(failure)) = self.control.take().map(Control::restore) {
            // What failed first is told; this comes after it.
            match &self.failure {
                Some(_) => self.ui.warn(&failure.to_string()),
                None => self.failure = Some(failure),
            }
        }
        let file = BenchFile {
            schema: BENCH_SCHEMA.to_owned(),
            envelope: Envelope::now(Path::new("/")),
            host: host::describe(
                self.topology,
                Some(routine(self.args.copy.as_deref())?.name()),
            ),
            ceiling: self.ceilings,
            rows: make(rows.into_iter().map(|of| of.row).collect()),
            like: None,
            notes: self.notes,
        };
        crate::finish(file, self.args.quick, self.failure, self.ui)
    }
}

impl Run {
    /// The time of its median call.
    fn typical_ns(&self) -> u64 {
        median(&mut self.call_ns.clone()).max(1)
    }
}

impl Measured {
    /// How many times faster than without a migrator, round by round, by the median call: drift of the machine hits both.
    fn of_none(&self, rows: &[Measured]) -> Option<f64> {
        let same = |of: &&Measured| {
            of.case.migrator == NO_MIGRATOR
                && (of.case.folio, of.case.folios) == (self.case.folio, self.case.folios)
        };
        let none = rows.iter().find(same)?;
        let rounds = none.runs.iter().zip(&self.runs);
        let mut ratios: Vec<f64> = rounds
            .map(|(none, own)| none.typical_ns() as f64 / own.typical_ns() as f64)
            .collect();
        // The median: one round in which the machine did something else must not count.
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        match ratios.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(ratios[middle]),
            _ => Some((ratios[middle - 1] + ratios[middle]) / 2.0),
        }
    }
}

/// The rows that are not what their name says: the migrator left more than a tenth of the bytes to the plain copy. Calls of
/// less than a huge page do not count: they can be too small for a migrator.
fn not_copied(rows: &[Measured]) -> Option<String> {
    let part = |of: &Measured| {
        let (row, case) = (&of.row, &of.case);
        let share = row.copied_bytes? as f64 / (row.bytes * row.runs as u64) as f64;
        let folio = Size(case.folio as u64);
        let (migrator, lanes, percent) = (&case.migrator, case.lanes, share * 100.0);
        (share < 0.9 && case.folio * case.folios >= THP).then(|| {
            format!(
                "{migrator} x{lanes}, {} of {folio}: {percent:.0}%",
                case.folios
            )
        })
    };
    let parts: Vec<String> = rows.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "The named migrator did not copy all bytes, the kernel copied the rest folio by folio: {}.",
            parts.join("; ")
        )
    })
}

/// The median; the lower of two in the middle. 0 of nothing.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0)
}

/// The sizes of folios that a mapping can have here: base pages, and what THP settings allow those that ask.
fn given_folios(topology: &Topology, quick: bool) -> Vec<usize> {
    let sizes = topology.thp.iter().flat_map(|thp| &thp.sizes);
    let given = sizes.filter(|size| size.mode != ThpMode::Never && size.bytes <= THP as u64);
    let mut folios = vec![PAGE];
    folios.extend(given.map(|size| size.bytes as usize));
    if quick {
        folios.retain(|&folio| folio == PAGE || folio == THP || folio == 64 << 10);
    }
    folios
}

/// The lanes of mtcopy and dcbm. The kernel takes no helper outside of the task's cpuset; what taskset keeps from this
/// process is left out as well, for the ceiling has no more threads.
pub fn lanes(args: &RunArgs, usable: usize) -> Vec<usize> {
    args.lanes(usable.min(MOST_LANES as usize))
}

/// Which migrators run with how many lanes; the kernel's `names` are those that are registered.
fn columns(
    args: &RunArgs,
    lanes: &[usize],
    names: &[String],
) -> Result<Vec<(String, usize)>, Failure> {
    let mut wanted: Vec<String> = Vec::new();
    for name in &args.migrator {
        let named = match name {
            MigratorName::All => names.to_vec(),
            name => vec![name.name().to_owned()],
        };
        for name in named {
            if !names.contains(&name) {
                return Err(Failure::new(
                    format!("no migrator {name} is registered in this kernel"),
                    format!("there are {}", names.join(", ")),
                    format!("load it: modprobe {name}"),
                ));
            }
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    // The baseline stands first.
    wanted.sort_by_key(|name| name != NO_MIGRATOR);
    let of = |name: String| match name == MTCOPY || name == DCBM {
        true => lanes.iter().map(|&lanes| (name.clone(), lanes)).collect(),
        false => vec![(name, 1)],
    };
    Ok(wanted.into_iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few_calls() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [5]), 5);
        assert_eq!(median(&mut [9, 1, 5]), 5);
        assert_eq!(median(&mut [9, 1, 5, 7]), 5);
    }

    #[test]
    fn the_baseline_stands_first_and_modules_have_lanes() {
        let Ok(crate::args::Bench::Move(args)) = crate::args::read("move --backend kernel") else {
            panic!("move");
        };
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let all = columns(
            &args.run,
            &[1, 2],
            &names(&["dcbm", "kernel", "mtcopy", "none"]),
        )
        .expect("all");
        let all: Vec<(&str, usize)> = all.iter().map(|(name, lanes)| (&**name, *lanes)).collect();
        assert_eq!(
            all,
            [
                ("none", 1),
                ("dcbm", 1),
                ("dcbm", 2),
                ("kernel", 1),
                ("mtcopy", 1),
                ("mtcopy", 2)
            ]
        );
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let measured = |migrator: &str, calls: &[u64]| Measured {
            case: Case {
                migrator: migrator.to_owned(),
                lanes: 1,
                folio: PAGE,
                folios: 1,
                calls: 1,
            },
            runs: calls
                .iter()
                .map(|&ns| Run {
                    gbps: 1.0,
                    verified: 0,
                    copied: None,
                    call_ns: vec![ns],
                })
                .collect(),
            row: serde_json::from_value(serde_json::json!({
                "backend": "kernel", "migrator": migrator, "lanes": 1, "folio_bytes": 4096,
                "destination": "cold", "bytes": 4096, "runs": 2, "gbps": 1.0, "gbps_sd": 0.0,
                "of_ceiling": 0.5, "verified_bytes": 0
            }))
            .expect("row"),
        };
        // The machine became half as fast in the second round.
        let rows = [
            measured("none", &[100, 200]),
            measured("mtcopy", &[50, 100]),
        ];
        assert_eq!(rows[1].of_none(&rows), Some(2.0));
        assert_eq!(rows[0].of_none(&rows), Some(1.0));
        assert_eq!(rows[1].of_none(&rows[1..]), None);
    }

    #[test]
    fn a_row_that_its_migrator_did_not_copy_is_told() {
        let row = |migrator: &str, folios: usize, copied: Option<u64>| {
            let bytes = (folios * PAGE) as u64;
            Measured {
                case: Case {
                    migrator: migrator.to_owned(),
                    lanes: 2,
                    folio: PAGE,
                    folios,
                    calls: 1,
                },
                runs: Vec::new(),
                row: serde_json::from_value(serde_json::json!({
                    "backend": "kernel", "migrator": migrator, "lanes": 2, "folio_bytes": PAGE,
                    "destination": "cold", "bytes": bytes, "runs": 2, "gbps": 1.0, "gbps_sd": 0.0,
                    "of_ceiling": 0.5, "verified_bytes": 0, "copied_bytes": copied
                }))
                .expect("row"),
            }
        };
        let two_mib = 2 << 20;
        let good = [
            row("none", 512, None),
            row("mtcopy", 512, Some(2 * two_mib)),
            row("mtcopy", 511, Some(0)),
        ];
        assert_eq!(not_copied(&good), None);
        let told = not_copied(&[row("mtcopy", 512, Some(two_mib))]).expect("told");
        assert!(told.contains("mtcopy x2, 512 of 4K: 50%"), "{told}");
    }
}
