// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the series costs while no migrator is active: instructions per migrated page, against the same
//! kernel without the series.
//!
//! Time says little about a percent on an emulated machine. But QEMU can let the guest's clock count
//! instructions, one nanosecond each, whatever the host does meanwhile; then what the project's
//! benchmark takes for time is work, and two boots agree to the last digits.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::build::Image;
use crate::guest::Programs;
use crate::lab::{Kind, Lab};
use crate::machine::Machine;
use crate::profile::Profile;
use crate::qemu::Accelerator;
use crate::report;
use crate::suite::Entry;
use crate::ui::Ui;
use crate::verdict::Verdict;

/// How much more work a migrated page may take.
const LIMIT: f64 = 1.01;

/// How long the benchmark may take in a guest.
const SECONDS: u64 = 300;

/// Folio sizes, and how many of them one call moves: a single one, and batches.
const CASES: [(&str, &str); 2] = [("4K", "1,512"), ("2M", "1,16")];

/// What we read of the benchmark's file.
#[derive(Deserialize)]
struct Bench {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    folio_bytes: u64,
    folios: u64,
    call_ns: f64,
}

/// Boots both kernels and prints the table. Returns whether every case is within the limit.
pub fn run(
    root: &Path,
    machine: &Machine,
    images: [(Profile, Image); 2],
    programs: &Programs,
    ui: &Ui,
) -> Result<bool> {
    if machine.qemu.counting.is_empty() {
        bail!(
            "{}: lab/{}.toml has no qemu.counting, the arguments with which QEMU counts instructions",
            machine.name,
            machine.name
        );
    }
    let mut all = Vec::new();
    for (profile, image) in images {
        let lab = Lab {
            root,
            machine,
            profile,
            image,
            programs: programs.clone(),
            accelerator: Accelerator::Counting,
            // One thread emulates both CPUs.
            patience: 3,
            ui,
        };
        all.push(measure(&lab)?);
    }
    let [before, after] = &all[..] else {
        bail!("two kernels are compared")
    };
    if before.is_empty() || before.len() != after.len() {
        bail!(
            "{} cases without the series, {} with it; the folders target/lab/*-counted have both files",
            before.len(),
            after.len()
        );
    }
    println!("instructions per migrated page, no migrator active:");
    println!(
        "{:>10} {:>8} {:>12} {:>12} {:>8}",
        "folio", "folios", "vanilla", "series", "ratio"
    );
    let mut good = true;
    for (a, b) in before.iter().zip(after) {
        if (a.folio_bytes, a.folios) != (b.folio_bytes, b.folios) {
            bail!("the two kernels ran different cases");
        }
        let ratio = b.call_ns / a.call_ns;
        let within = ratio <= LIMIT;
        good &= within;
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let pages = (a.folios * a.folio_bytes / 4096) as f64;
        println!(
            "{:>10} {:>8} {:>12.0} {:>12.0} {:>8.4}{}",
            a.folio_bytes,
            a.folios,
            a.call_ns / pages,
            b.call_ns / pages,
            ratio,
            if within { "" } else { "  more than 1.01" }
        );
    }
    Ok(good)
}

/// Runs the benchmark in one guest.
fn measure(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let commands: Vec<_> = CASES
        .iter()
        .map(|(folio, folios)| {
            format!(
                "memferry bench count --backend kernel --migrator none --folio {folio} --folios {folios} \
                 --runs 5 --json $RESULTS/{folio}.json"
            )
        })
        .collect();
    let entry = Entry::new("count", SECONDS, &commands.join(" && "));
    let verdicts = lab.run(&[entry], Kind::Quiet)?;
    if verdicts.iter().any(Verdict::is_failure) {
        bail!("{}", report::text(&lab.title(), &verdicts));
    }
    let mut rows = Vec::new();
    for (folio, _) in CASES {
        let path = lab.folder("results").join(format!("{folio}.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let bench: Bench =
            serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
        rows.extend(bench.rows);
    }
    Ok(rows)
}
