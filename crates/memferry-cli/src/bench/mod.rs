// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks: they measure and fill a [`BenchFile`], and print nothing but progress.
//!
//! Tables, JSON and the report are made elsewhere from what these return.

mod between;
pub mod host;
mod kernel;
mod nodes;
mod promote;
pub mod region;
mod rig;
mod rounds;
#[cfg(test)]
mod sizes;
mod stall;
mod three_pass;
mod throughput;

pub use promote::{run_promote, serve_promote};
pub use stall::run_stall;
pub use throughput::{run_count, run_move};

use crate::failure::Failure;
use crate::schema::BenchFile;
use crate::ui::Ui;

/// Ends a benchmark: with all of its rows, or with the failure and the rows that were measured before it.
pub fn finish(
    mut file: BenchFile,
    quick: bool,
    failure: Option<Failure>,
    ui: &Ui,
) -> Result<BenchFile, Failure> {
    let empty = file.rows.is_empty();
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
    Err(if empty {
        failure
    } else {
        failure.with_partial(file)
    })
}
