// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the series costs where it can win nothing: while no migrator is active and no source of hot-page
//! tracking is on, and where mtcopy, dcbm or auto, which chooses between them, gets a single folio. Instructions per
//! migrated page and per page fault, against the same kernel without the series.
//! The engine that dcbm finds here copies in a thread, so that what it does is counted, too.
//!
//! Time says little about a percent on an emulated machine. But QEMU can let the guest's clock count
//! instructions, one nanosecond each, whatever the host does meanwhile; then what the project's
//! benchmark takes for time is work, and two boots agree to the last digits.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use crate::build;
use crate::guest::Programs;
use crate::lab::Lab;
use crate::profile::Profile;
use crate::qemu::Accelerator;
use crate::report;
use crate::run::{Kind, Place, Run};
use crate::suite::Entry;
use crate::verdict::Verdict;

/// How much more work a page may take, by migrator; the first two are of Linux without the series, too.
const LIMITS: [(&str, f64); 5] = [
    (FAULT, 1.01),
    ("none", 1.01),
    ("mtcopy", 1.02),
    ("dcbm", 1.02),
    ("auto", 1.02),
];

/// What stands for the migrator where pages come into being and none moves.
const FAULT: &str = "page fault";

/// What loads a migrator, and what it copies with; auto chooses among those before it.
const MODULES: [(&str, &str); 3] = [
    ("mtcopy", "modprobe mtcopy"),
    ("dcbm", "modprobe faultdma channels=2 && modprobe dcbm"),
    ("auto", "true"),
];

/// Keeps the shell, and so the benchmark, and what ends RCU's expedited grace periods, for which move_pages(2) waits, on one CPU: where
/// they are on two, which is chance, a call takes 1,820 instructions more.
const ONE_CPU: &str = "taskset -pc 0 $$ && \
    taskset -pc 0 $(grep -l ^rcu_exp_gp_ /proc/[0-9]*/comm | cut -d/ -f3)";

/// How long the benchmark may take in a guest.
const SECONDS: u64 = 300;

/// Folio sizes, and how many of them one call moves without a migrator: a single one, and batches.
const CASES: [(&str, &str); 2] = [("4K", "1,512"), ("2M", "1,16")];

/// What we read of the benchmark's file.
#[derive(Deserialize)]
struct Bench {
    rows: Vec<Row>,
}

#[derive(Clone, Deserialize)]
struct Row {
    migrator: String,
    lanes: u64,
    folio_bytes: u64,
    folios: u64,
    call_ns: f64,
}

/// Boots both kernels and prints the table. Returns whether every case is within the limit.
pub fn run(lab: &Lab) -> Result<bool> {
    let programs = Programs::build(lab)?;
    let mut all = Vec::new();
    for profile in [Profile::Vanilla, Profile::Release] {
        let run = Run {
            lab,
            profile,
            place: Place::take(lab, profile, "-counted")?,
            image: build::image(lab, profile)?,
            programs: programs.clone(),
            accelerator: Accelerator::Counting,
            model: None,
            patience: 1,
            guests: 1,
            short: false,
        };
        all.push(measure(&run)?);
    }
    let [before, after] = &all[..] else {
        bail!("two kernels are compared")
    };
    let (text, good) = table(before, after)?;
    print!("{text}");
    Ok(good)
}

/// The rows of two kernels side by side, and whether each is within its limit.
fn table(before: &[Row], after: &[Row]) -> Result<(String, bool)> {
    let count =
        |rows: &[Row], migrator: &str| rows.iter().filter(|row| row.migrator == migrator).count();
    let alone = before
        .iter()
        .filter(|row| row.migrator == "none" && row.folios == 1)
        .count();
    // Those of a migrator are as many for each number of lanes.
    let lacks = |name: &str| {
        let nr = count(before, name);
        nr == 0 || count(after, name) != nr
    };
    if lacks(FAULT) || lacks("none") || MODULES.iter().any(|(name, _)| count(after, name) < alone) {
        bail!(
            "{} cases without the series, {} with it; the folders target/lab/*-counted have both files",
            before.len(),
            after.len()
        );
    }
    let mut text = "instructions per page:\n".to_owned();
    let _ = writeln!(
        text,
        "{:>10} {:>6} {:>10} {:>8} {:>12} {:>12} {:>8}",
        "migrator", "lanes", "folio", "folios", "vanilla", "series", "ratio"
    );
    let mut good = true;
    for row in after {
        let same = |other: &&Row| {
            (other.folio_bytes, other.folios) == (row.folio_bytes, row.folios)
                && (other.migrator == FAULT) == (row.migrator == FAULT)
        };
        let vanilla = before.iter().find(same);
        let limit = LIMITS.iter().find(|(name, _)| *name == row.migrator);
        let (Some(vanilla), Some((_, limit))) = (vanilla, limit) else {
            bail!("the two kernels ran different cases");
        };
        let ratio = row.call_ns / vanilla.call_ns;
        let within = ratio <= *limit;
        good &= within;
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let pages = (row.folios * row.folio_bytes / 4096) as f64;
        let _ = writeln!(
            text,
            "{:>10} {:>6} {:>10} {:>8} {:>12.0} {:>12.0} {:>8.4}{}",
            row.migrator,
            row.lanes,
            row.folio_bytes,
            row.folios,
            vanilla.call_ns / pages,
            row.call_ns / pages,
            ratio,
            if within {
                String::new()
            } else {
                format!("  more than {limit}")
            }
        );
    }
    Ok((text, good))
}

/// Runs the benchmark in one guest.
fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let count = |migrator: &str, folio: &str, folios: &str| {
        format!(
            "memferry bench count --backend kernel --migrator {migrator} --lanes 1,2 --folio {folio} --folios {folios} \
             --runs 5 --json=$RESULTS/{}",
            file(migrator, folio)
        )
    };
    let mut commands = vec![
        ONE_CPU.to_owned(),
        format!("./fault_cost $RESULTS/{}", file(FAULT, "")),
    ];
    for (folio, folios) in CASES {
        commands.push(count("none", folio, folios));
    }
    if run.profile.has_series() {
        for (migrator, load) in MODULES {
            commands.push(load.to_owned());
            for (folio, _) in CASES {
                commands.push(count(migrator, folio, "1"));
            }
        }
    }
    let entry = Entry::new("count", SECONDS, &commands.join(" && "));
    let verdicts = run.all(&[entry], Kind::Quiet)?;
    if verdicts.iter().any(Verdict::is_failure) {
        bail!("{}", report::text(&run.title(), &verdicts));
    }
    let mut rows = Vec::new();
    let migrators = if run.profile.has_series() {
        &LIMITS[..]
    } else {
        &LIMITS[..2]
    };
    for (migrator, _) in migrators {
        let folios = match *migrator {
            FAULT => vec![""],
            _ => CASES.map(|(folio, _)| folio).to_vec(),
        };
        for folio in folios {
            let path = run.folder("results").join(file(migrator, folio));
            let text = fs::read_to_string(&path)?;
            let bench: Bench =
                serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
            rows.extend(bench.rows);
        }
    }
    Ok(rows)
}

/// The benchmark's file of a migrator and a folio size.
fn file(migrator: &str, folio: &str) -> String {
    format!("{}-{folio}.json", migrator.replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(migrator: &str, lanes: u64, folios: u64, call_ns: f64) -> Row {
        Row {
            migrator: migrator.to_owned(),
            lanes,
            folio_bytes: 4096,
            folios,
            call_ns,
        }
    }

    #[test]
    fn each_case_has_the_limit_of_its_migrator() {
        let before = [
            row(FAULT, 1, 1, 500.0),
            row("none", 1, 1, 1000.0),
            row("none", 1, 512, 100_000.0),
        ];
        let mut after = vec![
            row("none", 1, 1, 1009.0),
            row("none", 1, 512, 100_000.0),
            row("mtcopy", 1, 1, 1015.0),
            row("mtcopy", 2, 1, 1019.0),
            row("dcbm", 1, 1, 1018.0),
            row("auto", 1, 1, 1001.0),
            row(FAULT, 1, 1, 504.0),
        ];
        let (text, good) = table(&before, &after).unwrap();
        assert!(good, "{text}");
        assert!(text.contains("1.0150"), "{text}");
        after[3].call_ns = 1021.0;
        let (text, good) = table(&before, &after).unwrap();
        assert!(!good && text.contains("1.0210  more than 1.02"), "{text}");
        after[3].call_ns = 1019.0;
        after[1].call_ns = 101_100.0;
        let (text, good) = table(&before, &after).unwrap();
        assert!(!good && text.contains("1.0110  more than 1.01"), "{text}");
        after[1].call_ns = 100_000.0;
        after[6].call_ns = 506.0;
        let (text, good) = table(&before, &after).unwrap();
        assert!(!good && text.contains("1.0120  more than 1.01"), "{text}");
    }

    #[test]
    fn a_missing_case_is_an_error() {
        let before = [row(FAULT, 1, 1, 500.0), row("none", 1, 1, 1000.0)];
        assert!(table(&before, &[row("none", 1, 1, 1000.0)]).is_err());
        assert!(table(&[], &[]).is_err());
        let all = [
            row("none", 1, 1, 1000.0),
            row("mtcopy", 1, 1, 1000.0),
            row("dcbm", 1, 1, 1000.0),
            row("auto", 1, 1, 1000.0),
            row(FAULT, 1, 1, 500.0),
        ];
        assert!(table(&before, &all).is_ok());
        assert!(table(&before, &all[..4]).is_err());
        assert!(table(&before, &all[1..]).is_err());
        assert!(table(&before[1..], &all).is_err());
        let mut other = all.clone();
        other[0] = row("none", 1, 2, 1000.0);
        assert!(table(&before, &other).is_err());
    }
}
