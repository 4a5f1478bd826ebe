// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry doctor`: what of the machine's set-up keeps memory tiering from working, and the commands that mend it.
//!
//! The way is `machine` (what the kernel shows) -> `checks`, `cxl` and `start` (the daemon's) -> `description` (the JSON's shape) -> text. It
//! changes nothing.

mod checks;
mod cxl;
pub mod description;
mod machine;
mod start;
#[cfg(test)]
mod tests;

use crate::cli::{DoctorArgs, Use};
use crate::failure::Failure;
use crate::results::Results;
use crate::table::counted;
use crate::table::text::wrap;
use crate::ui::Ui;
use description::{Description, Severity};
use machine::Machine;

/// Checks the machine; [`Failure::Found`] if something is wrong with it.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let results = Results::open(&args.shown.json, &[])?;
    let root = &args.shown.root;
    let machine = Machine::read(root, args.purpose, args.config.as_deref())?;
    let found = Description::new(&machine);
    results.tell(root, &found, || text(&found, Ui::columns()))?;
    match found.count(Severity::Wrong) {
        0 => Ok(()),
        _ => Err(Failure::Found),
    }
}

/// A paragraph for each finding, a line that counts them, and the verdict. Commands and the verdict are lines of their own,
/// however long: scripts and people copy them.
fn text(found: &Description, columns: usize) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        let severity = finding.severity.name();
        let purposes: Vec<&str> = finding.purposes.iter().map(|of| of.name()).collect();
        let counts_for = match found.purpose.is_some() || purposes.len() == Use::ALL.len() {
            true => String::new(),
            false => format!(" for {}", purposes.join(", ")),
        };
        let line = format!("{severity}{counts_for}: {}: {}", finding.what, finding.why);
        text += &(wrap(&line, columns, "    ") + "\n");
        if let Some(mend) = &finding.mend {
            text += &format!("        {mend}\n");
        }
    }
    let quiet = |check: &&&str| {
        found
            .findings
            .iter()
            .all(|finding| finding.check != **check)
    };
    let last = format!(
        "{} wrong, {}; {} of {} found nothing",
        found.count(Severity::Wrong),
        counted(found.count(Severity::Note), "note"),
        found.checks.iter().filter(quiet).count(),
        counted(found.checks.len(), "check"),
    );
    text += &(wrap(&last, columns, "") + "\n");
    if let Some(verdict) = &found.verdict {
        text += &format!("{verdict}\n");
    }
    text
}
