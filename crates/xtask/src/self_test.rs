// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the lab itself: runs that go wrong in every way it must notice, each in a real guest, as
//! `lab/self-test/cases.toml` lists them.

use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;
use serde::Deserialize;

use crate::run::{self, Kind, Run};
use crate::suite::Entry;
use crate::verdict::{Outcome, Verdict};

/// What the kernel is told besides: memory that is added gets on line.
pub const APPEND: &str = " memhp_default_state=online_movable";

/// Its programs for the guest, in the checkout.
pub const PROGRAMS: &str = "lab/self-test/programs";

const CASES: &str = "lab/self-test/cases.toml";

/// Its guest dies each time, of what looks like a fault of QEMU.
const AGAIN: &str = "again";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    seconds: u64,
    /// What the lab must say of it: passed, skipped, or words of the reason for which it failed.
    wanted: String,
    command: String,
}

impl Case {
    fn is_right(&self, verdict: &Verdict, emulated: bool) -> bool {
        let again = if self.name == AGAIN && emulated {
            run::AGAIN
        } else {
            0
        };
        let outcome = match &verdict.outcome {
            Outcome::Passed { .. } => self.wanted == "passed",
            Outcome::Skipped(_) => self.wanted == "skipped",
            Outcome::Failed(reasons) => reasons.iter().any(|reason| reason.contains(&self.wanted)),
            Outcome::NotFor(_) => false,
        };
        outcome && verdict.again == again
    }
}

fn cases(root: &Path) -> Result<Vec<Case>> {
    let text = fs::read_to_string(root.join(CASES))?;
    let Cases { case } = basic_toml::from_str(&text).context(CASES)?;
    Ok(case)
}

/// Runs them. Returns the report, and whether the lab said what it must.
pub fn run(run: &Run) -> Result<(String, bool)> {
    let cases = cases(&run.lab.root)?;
    let direct = "LKDTM=/sys/kernel/debug/provoke-crash/DIRECT";
    let entries: Vec<_> = cases
        .iter()
        .map(|case| {
            Entry::new(
                &case.name,
                case.seconds,
                &format!("{direct}; {}", case.command),
            )
        })
        .collect();
    let verdicts = run.all(&entries, Kind::Tests)?;
    let mut text = format!("self-test of the lab on {}\n", run.title());
    let mut good = true;
    for case in &cases {
        let got = verdicts.iter().find(|verdict| verdict.name == case.name);
        let right = got.is_some_and(|verdict| case.is_right(verdict, run.emulates()));
        good &= right;
        let word = if right { "right" } else { "WRONG" };
        let said = got.map_or("no verdict".to_owned(), |verdict| said(&verdict.outcome));
        text += &format!("  {word}  {}: {said}\n", case.name);
    }
    let file = fs::read_to_string(run.folder("results/good")).unwrap_or_default();
    if file != "here\n" {
        good = false;
        text += "  WRONG  a file that a test left did not come out of the guest\n";
    }
    Ok((text, good))
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed { .. } => "passed".to_owned(),
        Outcome::Skipped(why) => format!("skipped, {why}"),
        Outcome::Failed(reasons) => format!("failed, {}", reasons.join("; ")),
        Outcome::NotFor(needs) => format!("not run, needs {needs}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_of_the_checkout_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cases = cases(&root).unwrap();
        assert!(cases.iter().any(|case| case.name == AGAIN));
    }
}
