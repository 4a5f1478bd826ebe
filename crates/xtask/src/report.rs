// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the user what came of the tests: a line each, what is wrong with those that failed, and
//! the sums.

use std::fmt::Write;

use crate::verdict::{Outcome, Verdict};

/// How many reasons of one test are shown.
const REASONS: usize = 8;

/// Why something runs again.
pub const STALE: &str = "QEMU executed a breakpoint that memory did not have";

/// The report on `verdicts`, headed by `title`.
pub fn text(title: &str, verdicts: &[Verdict]) -> String {
    let mut text = format!("{title}\n");
    let width = verdicts
        .iter()
        .map(|verdict| verdict.name.len())
        .max()
        .unwrap_or(0);
    for verdict in verdicts {
        line(&mut text, verdict, width);
    }
    let _ = writeln!(text, "{}", sums(verdicts));
    text
}

fn line(text: &mut String, verdict: &Verdict, width: usize) {
    let (word, remark) = match &verdict.outcome {
        Outcome::Passed {
            results,
            skipped: 0,
        } => ("passed", format!("{results} results")),
        Outcome::Passed { results, skipped } => (
            "passed",
            format!("{} results, {skipped} SKIPPED", results - skipped),
        ),
        Outcome::Skipped(why) => ("SKIPPED", format!("all of it: {why}")),
        Outcome::Failed(_) => ("FAILED", String::new()),
        Outcome::NotFor(needs) => ("not run", format!("it needs {needs}")),
    };
    let seconds = verdict.took.as_secs_f64();
    let time = if seconds > 0.0 {
        format!("{seconds:6.1} s")
    } else {
        String::new()
    };
    let line = format!("  {word:<8} {:<width$} {time:>8}  {remark}", verdict.name);
    let _ = writeln!(text, "{}", line.trim_end());
    if verdict.again > 0 {
        let times = verdict.again + 1;
        let _ = writeln!(text, "             run {times} times: before, {STALE}");
    }
    if let Some(remark) = &verdict.remark {
        let _ = writeln!(text, "             {remark}");
    }
    if matches!(verdict.outcome, Outcome::Passed { .. }) {
        for part in &verdict.skipped {
            let _ = writeln!(text, "             skipped: {part}");
        }
    }
    if let Outcome::Failed(reasons) = &verdict.outcome {
        for reason in reasons.iter().take(REASONS) {
            let _ = writeln!(text, "             {reason}");
        }
        if reasons.len() > REASONS {
            let _ = writeln!(text, "             and {} more", reasons.len() - REASONS);
        }
        if !verdict.tail.is_empty() {
            let _ = writeln!(
                text,
                "           what it printed round its first failure, and last:"
            );
        }
        for said in &verdict.tail {
            let _ = writeln!(text, "             {said}");
        }
    }
}

/// How many of each.
fn sums(verdicts: &[Verdict]) -> String {
    let count = |is: fn(&Outcome) -> bool| verdicts.iter().filter(|v| is(&v.outcome)).count();
    let mut parts = vec![
        format!("{} passed", count(|o| matches!(o, Outcome::Passed { .. }))),
        format!("{} failed", count(|o| matches!(o, Outcome::Failed(_)))),
    ];
    let skipped = count(|o| matches!(o, Outcome::Skipped(_)));
    if skipped > 0 {
        parts.push(format!("{skipped} SKIPPED"));
    }
    let again = verdicts.iter().filter(|v| v.again > 0).count();
    if again > 0 {
        parts.push(format!("{again} run again"));
    }
    let not_for = count(|o| matches!(o, Outcome::NotFor(_)));
    if not_for > 0 {
        parts.push(format!("{not_for} not for this kernel"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_run_is_not_counted_as_passed() {
        let verdicts = [
            Verdict::new(
                "a",
                Outcome::Passed {
                    results: 3,
                    skipped: 1,
                },
            ),
            Verdict {
                again: 1,
                ..Verdict::new("b", Outcome::Skipped("no memory".into()))
            },
            Verdict::new("c", Outcome::NotFor("the series".into())),
            Verdict::new("d", Outcome::Failed(vec!["not ok 1".into()])),
        ];
        let text = text("title", &verdicts);
        assert!(
            text.contains("1 passed, 1 failed, 1 SKIPPED, 1 run again, 1 not for this kernel"),
            "{text}"
        );
        assert!(
            text.contains("2 results, 1 SKIPPED")
                && text.contains("not ok 1")
                && text.contains("run 2 times: before, QEMU"),
            "{text}"
        );
    }
}
