// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks of `memferry bench`: they measure and fill a [`BenchFile`], and print nothing but progress.
//!
//! Tables and the report are made elsewhere from what these return. Reading order: `args` (what can be asked for), `schema` (the
//! file), then one benchmark: `throughput` (`move` and `count`, whose memory moves in `rig` through userfaultfd and in `between` by
//! the kernel), `stall`, `cache`, `promote`, `compaction`; `reproduce` runs one of them as a published table has it. The command takes from here also what its other parts share with them: `restore`, `ui`.

pub mod args;
mod between;
mod busy;
mod cache;
mod compaction;
pub mod cpu_time;
mod disk;
pub mod host;
mod kernel;
mod nodes;
mod pinned;
mod promote;
pub mod published;
pub mod region;
mod reproduce;
pub mod restore;
mod rig;
mod rounds;
pub mod schema;
#[cfg(test)]
mod sizes;
pub mod spread;
mod stall;
mod stopped;
#[cfg(any(test, feature = "synthetic"))]
pub mod synthetic;
mod threads;
mod three_pass;
mod throughput;
mod timed;
mod trace;
pub mod ui;

pub use promote::serve_promote;
pub use rig::ceiling;
pub use stopped::Stopped;

use args::Bench;
use memferry_output::failure::{self, Failure};
use memferry_output::{signals, units};
use schema::BenchFile;
use ui::Ui;

/// Runs a benchmark. `bench promote` starts its own program again for each run, as `promote-run SPEC`, which must call
/// [`serve_promote`].
///
/// # Errors
/// It could not be measured, or not all of it.
pub fn run(bench: &Bench, ui: &Ui) -> Result<BenchFile, Stopped> {
    match bench {
        Bench::Move(args) => throughput::run_move(args, ui),
        Bench::Count(args) => throughput::run_count(args, ui),
        Bench::Stall(args) => stall::run_stall(args, ui),
        Bench::Promote(args) => promote::run_promote(args, ui),
        Bench::Cache(args) => cache::run_cache(args, ui),
        Bench::Compaction(args) => compaction::run_compaction(args, ui),
        Bench::Reproduce(args) => reproduce::run_reproduce(args, ui),
    }
}

/// Ends a benchmark: with all of its rows, or with the failure and the rows that were measured before it. `restored` says whether
/// the kernel's settings are back.
fn finish(
    mut file: BenchFile,
    quick: bool,
    failure: Option<Failure>,
    restored: Result<(), Failure>,
    ui: &Ui,
) -> Result<BenchFile, Stopped> {
    // What failed first is told; this comes after it.
    if let (Some(_), Err(of_restore)) = (&failure, &restored) {
        ui.warn(&of_restore.to_string());
    }
    let empty = file.rows.is_empty();
    let failure = failure.or(restored.err()).or_else(|| {
        // The notes say what was left out.
        let nothing = || {
            Failure::new(
                "nothing was measured",
                file.notes.join(" "),
                "ask for what this machine has",
            )
        };
        (empty && !ui.stopped()).then(nothing)
    });
    if quick {
        let note = "A --quick run: it shows the shape and is not for publication.";
        file.notes.push(note.to_owned());
    }
    let failure = match failure {
        Some(failure) => {
            file.notes
                .push("Ended by a failure: cases or runs are missing.".to_owned());
            failure
        }
        None if !ui.stopped() => {
            file.envelope.complete = true;
            return Ok(file);
        }
        None => {
            file.notes
                .push("Stopped by the user: cases or runs are missing.".to_owned());
            let what = match empty {
                true => "stopped before anything was measured",
                false => "stopped half-way; what is shown is what was measured",
            };
            Failure::new(what, "interrupted", "run it again for the whole table")
        }
    };
    let partial = (!empty).then(|| Box::new(file));
    Err(Stopped { failure, partial })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Rows;

    #[test]
    fn a_benchmark_without_a_row_fails_with_its_notes() {
        let whole = synthetic::file("move");
        let note = "dcbm has 8 DMA channels: there are no rows of more.";
        let rows = Rows::Move(Vec::new());
        let empty = BenchFile::new(whole.host.clone(), rows, vec![note.to_owned()]);
        let ended = |file| finish(file, false, None, Ok(()), &Ui::quiet());
        let failure = ended(empty).expect_err("no row").to_string();
        assert!(failure.contains("nothing was measured"), "{failure}");
        assert!(failure.contains(note), "{failure}");
        assert!(ended(whole).expect("rows").envelope.complete);
    }
}
