// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is the kernel's own of `bench move` and `bench count`: its migrators and lanes, its folios, its calls, and how a migrator
//! compares with none.

use std::collections::BTreeMap;

use memferry_linux::kernel::{AUTO, Absence, MOST_LANES, Migration, NO_MIGRATOR};
use memferry_linux::topology::Topology;

use super::region::{PAGE, THP};
use super::rig::{Means, with_lanes};
use super::rounds::{Case, Run};
use crate::args::{MigratorName, RunArgs, value_name};
use crate::failure::{Failure, OrFail};
use crate::schema::MoveRow;
use crate::units::Size;

/// The bytes of a run of `bench count`, if that is enough for the largest count; less where an emulator takes seconds for it.
pub fn count_bytes(topology: &Topology) -> usize {
    match topology.is_emulated() {
        true => 16 << 20,
        false => 64 << 20,
    }
}

/// The calls of one run, of the `room` for them: at most enough for a median.
pub fn calls(room: usize, quick: bool) -> usize {
    room.clamp(1, if quick { 32 } else { 128 })
}

impl Run {
    /// The time of its median call.
    pub fn typical_ns(&self) -> Option<u64> {
        median(&mut self.call_ns.clone())
    }
}

/// How many times faster a case is than without a migrator, round by round, by the median call: drift of the machine hits both.
pub fn of_none(case: &Case, runs: &[Run], all: &[(Case, Vec<Run>)]) -> Option<f64> {
    let same = |(of, _): &&(Case, Vec<Run>)| {
        matches!(&of.means, Means::Kernel(name) if name == NO_MIGRATOR)
            && (of.folio, of.folios) == (case.folio, case.folios)
    };
    let (_, none) = all.iter().find(same)?;
    let ratio = |(none, own): (&Run, &Run)| {
        Some(none.typical_ns()?.max(1) as f64 / own.typical_ns()?.max(1) as f64)
    };
    let mut ratios: Vec<f64> = none.iter().zip(runs).filter_map(ratio).collect();
    // The median: one round in which the machine did something else must not count.
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    match ratios.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(ratios[middle]),
        _ => Some((ratios[middle - 1] + ratios[middle]) / 2.0),
    }
}

/// The rows that are not what their name says: the migrator left more than a tenth of the bytes to the plain copy. Calls of
/// less than a huge page do not count: they can be too small for a migrator. Nor does auto, whose choice the plain copy is.
pub fn not_copied(rows: &[MoveRow]) -> Option<String> {
    copied_by_others(rows, |row| {
        let beside = row.beside_disk.as_ref().and_then(|of| of.copied_bytes);
        let copied = row.copied_bytes?;
        let share = beside.map_or(copied, |beside| beside.min(copied)) as f64 / row.bytes_of_runs();
        let folio = Size(row.folio_bytes as u64);
        let folios = row.folios.unwrap_or(row.bytes as usize / row.folio_bytes);
        let (migrator, lanes, percent) = (&row.migrator, row.lanes, share * 100.0);
        (share < 0.9 && row.folio_bytes * folios >= THP && migrator != AUTO)
            .then(|| format!("{migrator} x{lanes}, {folios} of {folio}: {percent:.0}%"))
    })
}

/// What is said of rows that are not what their name says; `part` names such a row.
pub fn copied_by_others<R>(rows: &[R], part: impl Fn(&R) -> Option<String>) -> Option<String> {
    let parts: Vec<String> = rows.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "The named migrator did not copy all bytes, the kernel copied the rest folio by folio: {}.",
            parts.join("; ")
        )
    })
}

/// Refuses a run that is named after a migrator if others copied more than a tenth of its bytes. Less may be of another reason
/// to migrate.
pub fn check_others(
    migrator: &str,
    bytes: usize,
    copied_by: &BTreeMap<String, u64>,
) -> Result<(), Failure> {
    let others = copied_by.iter().filter(|(name, _)| *name != migrator);
    let others: Vec<(&String, &u64)> = others.filter(|_| migrator != AUTO).collect();
    let sum: u64 = others.iter().map(|(_, bytes)| **bytes).sum();
    let parts = others
        .iter()
        .map(|(name, copied)| format!("{name} {copied}"));
    if sum <= bytes as u64 / 10 {
        return Ok(());
    }
    let others = parts.collect::<Vec<_>>().join(", ");
    Err(Failure::new(
        format!("not only {migrator} copied, so its row would be no result"),
        format!("of {bytes} bytes there are those of {others}"),
        "end what else migrates pages, or what changes the kernel's migrators meanwhile",
    ))
}

/// The median; the lower of two in the middle.
pub fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// The sizes of folios that a mapping can have here: base pages, and what THP settings allow those that ask.
pub fn given_folios(topology: &Topology, quick: bool) -> Vec<usize> {
    let sizes = topology.thp.iter().flat_map(|thp| &thp.sizes);
    let given = sizes.filter(|size| size.mode != "never" && size.bytes <= THP as u64);
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

/// The kernel's migrators and their settings, or why it has none.
pub fn migration() -> Result<Result<Migration, Absence>, Failure> {
    Migration::read().or_fail("cannot read the kernel's settings", "try again")
}

/// The migrators that are asked for, the baseline first, of those that `found` has; without the series there is Linux's own copy.
///
/// # Errors
/// One of them is not registered, or the kernel has none.
pub fn named(
    asked: &[MigratorName],
    found: Result<&[String], Absence>,
) -> Result<Vec<String>, Failure> {
    let stock = [NO_MIGRATOR.to_owned()];
    let registered = found.unwrap_or(&stock);
    let mut wanted: Vec<String> = Vec::new();
    for name in asked {
        let named = match name {
            MigratorName::All => registered.to_vec(),
            name => vec![value_name(*name)],
        };
        for name in named {
            if !registered.contains(&name) {
                return Err(not_registered(&name, found));
            }
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    wanted.sort_by_key(|name| name != NO_MIGRATOR);
    Ok(wanted)
}

fn not_registered(name: &str, found: Result<&[String], Absence>) -> Failure {
    match found {
        Ok(registered) => Failure::new(
            format!("no migrator {name} is registered in this kernel"),
            format!("there are {}", registered.join(", ")),
            format!("load it: modprobe {name}"),
        ),
        Err(absence) => Failure::new(
            format!("this kernel has no migrator {name}"),
            absence,
            format!("{}; --migrator none measures it as it is", absence.hint()),
        ),
    }
}

/// The names of the migrators, or why there are none.
pub fn names(found: &Result<Migration, Absence>) -> Result<&[String], Absence> {
    let names = found.as_ref().map(|now| &now.migrators.names[..]);
    names.map_err(|absence| *absence)
}

/// Which migrators run with how many lanes, of those that `found` has.
pub fn columns(
    asked: &[MigratorName],
    lanes: &[usize],
    found: Result<&[String], Absence>,
) -> Result<Vec<(Means, usize)>, Failure> {
    let means = named(asked, found)?.into_iter().map(Means::Kernel);
    let why = format!("the kernel's migrators have {MOST_LANES} at most");
    with_lanes(means, lanes, MOST_LANES as usize, &why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Pages;
    use crate::synthetic::listed;

    #[test]
    fn the_median_of_few_calls() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [5]), Some(5));
        assert_eq!(median(&mut [9, 1, 5]), Some(5));
        assert_eq!(median(&mut [9, 1, 5, 7]), Some(5));
    }

    #[test]
    fn the_baseline_stands_first_and_modules_have_lanes() {
        let Ok(crate::args::Bench::Move(args)) = crate::args::read("move --backend kernel") else {
            panic!("move");
        };
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let all = columns(
            &args.run.migrator,
            &[1, 2],
            Ok(&names(&["auto", "dcbm", "kernel", "mtcopy", "none"])),
        )
        .expect("all");
        let all: Vec<(&str, usize)> = all.iter().map(|(of, lanes)| (of.name(), *lanes)).collect();
        assert_eq!(
            all,
            [
                ("none", 1),
                ("auto", 2),
                ("dcbm", 1),
                ("dcbm", 2),
                ("kernel", 1),
                ("mtcopy", 1),
                ("mtcopy", 2)
            ]
        );
    }

    #[test]
    fn a_migrator_of_a_stock_kernel_is_no_module_to_load() {
        let told = |found| {
            let refused = named(&[MigratorName::All, MigratorName::Dcbm], found);
            refused.expect_err("no dcbm").to_string()
        };
        let root = listed("sys/kernel/mm/x =");
        let absence = Migration::read_from(root.path())
            .expect("files")
            .expect_err("stock");
        let stock = told(Err(absence));
        assert!(
            stock.contains("stock kernel") && !stock.contains("modprobe"),
            "{stock}"
        );
        let none = [NO_MIGRATOR.to_owned()];
        assert!(told(Ok(&none)).contains("modprobe dcbm"));
        let all = named(&[MigratorName::All], Err(absence)).expect("Linux's own");
        assert_eq!(all, none);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let measured = |migrator: &str, calls: &[u64]| {
            let case = Case {
                means: Means::Kernel(migrator.to_owned()),
                lanes: 1,
                folio: PAGE,
                folios: 1,
                calls: 1,
                pages: Pages::Cold,
            };
            let run = |&ns: &u64| Run {
                call_ns: vec![ns],
                ..Run::default()
            };
            (case, calls.iter().map(run).collect::<Vec<_>>())
        };
        // The machine became half as fast in the second round.
        let all = [
            measured("none", &[100, 200]),
            measured("mtcopy", &[50, 100]),
        ];
        let ratio = |at: usize, all: &[(Case, Vec<Run>)]| of_none(&all[at].0, &all[at].1, all);
        assert_eq!((ratio(1, &all), ratio(0, &all)), (Some(2.0), Some(1.0)));
        assert_eq!(ratio(0, &all[1..]), None);
    }

    #[test]
    fn bytes_that_another_migrator_copied_are_no_result() {
        let told = |migrator, list: &[(&str, u64)]| {
            let copied = list
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes));
            check_others(migrator, 1000, &copied.collect()).map_err(|why| why.to_string())
        };
        assert_eq!(told("dcbm", &[("dcbm", 1000), ("mtcopy", 100)]), Ok(()));
        let list = [("dcbm", 899), ("kernel", 1), ("mtcopy", 100)];
        let why = told("dcbm", &list).expect_err("others");
        assert!(
            why.contains("of 1000 bytes there are those of kernel 1, mtcopy 100"),
            "{why}"
        );
        assert!(told("none", &list).is_err() && told("auto", &list).is_ok());
    }

    #[test]
    fn a_row_that_its_migrator_did_not_copy_is_told() {
        let row = |migrator: &str, folios: usize, copied: Option<u64>| -> MoveRow {
            serde_json::from_value(serde_json::json!({
                "backend": "kernel", "migrator": migrator, "lanes": 2, "folio_bytes": PAGE, "folios": folios,
                "destination": "cold", "bytes": folios * PAGE, "runs": 2, "gbps": 1.0, "gbps_sd": 0.0,
                "of_ceiling": 0.5, "verified_bytes": 0, "copied_bytes": copied
            }))
            .expect("row")
        };
        let two_mib = 2 << 20;
        let good = [
            row("none", 512, None),
            row("mtcopy", 512, Some(2 * two_mib)),
            row("mtcopy", 511, Some(0)),
            row("auto", 512, Some(two_mib)),
        ];
        assert_eq!(not_copied(&good), None);
        let large = MoveRow {
            bytes: u64::MAX,
            ..row("mtcopy", 512, Some(0))
        };
        assert!(!large.is_by_name());
        let told = not_copied(&[row("mtcopy", 512, Some(two_mib))]).expect("told");
        assert!(told.contains("mtcopy x2, 512 of 4K: 50%"), "{told}");
    }
}
