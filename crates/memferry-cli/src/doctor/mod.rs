// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry doctor`: what of the machine's set-up keeps memory tiering from working, and the commands that mend it.
//!
//! The way is `machine` (what the kernel shows) -> `checks` -> `description` (the JSON's shape) -> text. It changes nothing.

mod checks;
mod cxl;
pub mod description;
mod machine;
#[cfg(test)]
mod tests;

use crate::cli::ShownArgs;
use crate::failure::Failure;
use crate::output::Results;
use crate::table::counted;
use crate::table::text::wrap;
use crate::ui::Ui;
use description::{Description, Severity};
use machine::Machine;

/// Checks the machine; [`Failure::Found`] if something is wrong with it.
pub fn run(args: &ShownArgs) -> Result<(), Failure> {
    let results = Results::open(&args.json, &[])?;
    let machine = Machine::read(&args.root)?;
    let found = Description::new(&machine);
    results.tell(&args.root, &found, || text(&found, Ui::columns()))?;
    match found.count(Severity::Wrong) {
        0 => Ok(()),
        _ => Err(Failure::Found),
    }
}

/// A paragraph for each finding, then a line that counts them. Commands are not broken, so that they can be copied.
fn text(found: &Description, columns: usize) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        let severity = finding.severity.name();
        let line = format!("{severity}: {}: {}", finding.what, finding.why);
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
    text + &wrap(&last, columns, "") + "\n"
}
