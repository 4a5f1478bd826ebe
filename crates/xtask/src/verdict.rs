// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says of each test whether it passed: by what it printed, how it ended, and what the kernel said
//! meanwhile. Nothing passes by not running.

use std::time::Duration;

use crate::session::{Boot, End, Ran};
use crate::splat;
use crate::tap::Tap;

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many results, and so many parts that it skipped.
    Passed { results: usize, skipped: usize },
    /// It ran and skipped everything.
    Skipped(String),
    /// Why, one reason a line.
    Failed(Vec<String>),
    /// It was not run, because this kernel is not for it.
    NotFor(String),
}

impl Outcome {
    /// Of so many results and skipped parts, unless there are `reasons` against it.
    fn of(reasons: Vec<String>, results: usize, skipped: usize) -> Self {
        if reasons.is_empty() {
            Self::Passed { results, skipped }
        } else {
            Self::Failed(reasons)
        }
    }
}

/// A test and what came of it.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub name: String,
    pub outcome: Outcome,
    pub took: Duration,
    /// The parts that it skipped, by name and reason.
    pub skipped: Vec<String>,
    /// How often it ran before, and lost its guest by a fault of QEMU.
    pub again: usize,
    /// What else the reader must know.
    pub remark: Option<String>,
    /// For a failure: the lines round what failed first, and the last of test and kernel.
    pub tail: Vec<String>,
}

/// How many lines of a failed test are shown, and of the kernel beside it.
const TAIL: usize = 15;

/// kselftest's status for "skipped".
const SKIP_STATUS: i32 = 4;

impl Verdict {
    /// A verdict without a run.
    pub fn new(name: &str, outcome: Outcome) -> Self {
        Self {
            name: name.to_owned(),
            outcome,
            took: Duration::ZERO,
            skipped: Vec::new(),
            again: 0,
            remark: None,
            tail: Vec::new(),
        }
    }

    /// The verdict on a test of the suite, which prints TAP.
    pub fn test(ran: &Ran) -> Self {
        let tap = Tap::read(&ran.output);
        let mut reasons = kernel_reasons(ran);
        reasons.extend(tap.failed.iter().map(|name| format!("not ok {name}")));
        let skipped_all = tap.skipped_all.is_some()
            || (tap.passed + tap.todo == 0 && !tap.skipped.is_empty() && tap.failed.is_empty());
        reasons.extend(tap.mistakes());
        match ran.end {
            End::Exit(0) => {}
            End::Exit(SKIP_STATUS) if skipped_all => {}
            End::Exit(status) => reasons.push(format!("ended with status {status}")),
            _ => {}
        }
        let outcome = if skipped_all && reasons.is_empty() {
            let why = tap.skipped_all.clone();
            Outcome::Skipped(why.unwrap_or_else(|| tap.skipped.join("; ")))
        } else {
            Outcome::of(reasons, tap.results(), tap.skipped.len())
        };
        Self::of(ran, outcome, tap.skipped)
    }

    /// The verdict on a command of the user: its status, and what the kernel says.
    pub fn command(ran: &Ran) -> Self {
        let mut reasons = kernel_reasons(ran);
        if let End::Exit(status) = ran.end {
            if status != 0 {
                reasons.push(format!("ended with status {status}"));
            }
        }
        let outcome = Outcome::of(reasons, 1, 0);
        Self::of(ran, outcome, Vec::new())
    }

    /// The verdict on a boot as such: what lies outside its tests.
    pub fn boot(boot: &Boot) -> Self {
        let mut reasons: Vec<_> = splat::find(&boot.console)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let failed_test = boot
            .tests
            .last()
            .is_some_and(|test| !matches!(test.end, End::Exit(_)));
        if boot.reached.is_none() {
            reasons.push("the kernel did not come to run its first process".to_owned());
        } else if !boot.complete && !failed_test {
            reasons.push("the machine went off or hung outside a test".to_owned());
        }
        reasons.extend(boot.damaged.iter().cloned());
        let mut verdict = Self::new("boot", Outcome::of(reasons, 1, 0));
        verdict.took = boot.reached.unwrap_or_default();
        verdict.remark = races(&boot.console);
        if verdict.is_failure() {
            verdict.tail = last(&boot.console).to_vec();
        }
        verdict
    }

    /// The verdict on the KUnit tests that the kernel ran while it booted, the `suites` among them; none if there are none of
    /// either.
    pub fn kunit(boot: &Boot, suites: &[&str]) -> Option<Self> {
        let lines: Vec<_> = boot
            .console
            .iter()
            .map(|line| without_time(line).to_owned())
            .collect();
        let tap = Tap::read(&lines);
        let planned: usize = tap.plans.iter().sum();
        if planned + tap.results() + suites.len() == 0 {
            return None;
        }
        let mut reasons: Vec<_> = tap
            .failed
            .iter()
            .map(|name| format!("not ok {name}"))
            .collect();
        // Cases, which are indented: so that a reader sees which.
        let cases = lines.iter().map(|line| line.trim_start());
        reasons.extend(
            cases
                .filter(|line| line.starts_with("not ok"))
                .map(str::to_owned),
        );
        for suite in suites {
            let name = format!(" {suite}");
            let mut good = lines.iter().filter(|line| line.starts_with("ok "));
            if !good.any(|line| line.ends_with(&name)) {
                reasons.push(format!("the suite{name} did not pass"));
            }
        }
        if planned != tap.results() {
            reasons.push(format!("{planned} suites planned, {} ended", tap.results()));
        }
        let outcome = Outcome::of(reasons, tap.results(), tap.skipped.len());
        let mut verdict = Self::new("kunit-at-boot", outcome);
        verdict.skipped = tap.skipped;
        Some(verdict)
    }

    /// Whether it counts against success.
    pub fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    fn of(ran: &Ran, outcome: Outcome, skipped: Vec<String>) -> Self {
        let mut tail = Vec::new();
        if matches!(outcome, Outcome::Failed(_)) {
            tail.extend(shown(&ran.output));
            tail.extend_from_slice(last(&ran.console));
        }
        Self {
            name: ran.name.clone(),
            outcome,
            took: ran.took,
            skipped,
            again: 0,
            remark: races(&ran.console),
            tail,
        }
    }
}

/// What the kernel and the machine have against a test.
fn kernel_reasons(ran: &Ran) -> Vec<String> {
    let mut reasons = Vec::new();
    match ran.end {
        End::Exit(_) => {}
        End::TimedOut(limit) => reasons.push(format!("still running after {} s", limit.as_secs())),
        End::Died => reasons.push("the machine went off".to_owned()),
    }
    reasons.extend(
        splat::find(&ran.console)
            .into_iter()
            .map(|line| format!("the kernel said: {line}")),
    );
    reasons
}

/// A word on data races that do not count.
fn races(console: &[String]) -> Option<String> {
    let count = splat::races_of_linux(console);
    (count > 0)
        .then(|| format!("{count} data races in Linux itself, without the series: see console.log"))
}

/// What a reader needs of a test's output: the last lines, and those that lead to its first failure.
fn shown(output: &[String]) -> Vec<String> {
    let end = output.len().saturating_sub(TAIL);
    let first = output
        .iter()
        .position(|line| line.trim_start().starts_with("not ok"))
        .map_or(end..end, |at| {
            at.saturating_sub(TAIL).min(end)..(at + 2).min(end)
        });
    let mut lines: Vec<_> = output[first.clone()]
        .iter()
        .map(|line| format!("| {line}"))
        .collect();
    if !first.is_empty() && first.end < end {
        lines.push("| ...".to_owned());
    }
    lines.extend(output[end..].iter().map(|line| format!("| {line}")));
    lines
}

fn last(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(TAIL)..]
}

/// A console's line without the `[   12.345678] ` before it.
fn without_time(line: &str) -> &str {
    let Some(rest) = line.strip_prefix('[') else {
        return line;
    };
    match rest.split_once("] ") {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(output: &str, console: &str, end: End) -> Ran {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        Ran {
            name: "t".into(),
            output: lines(output),
            console: lines(console),
            end,
            took: Duration::ZERO,
        }
    }

    fn boot(console: &str) -> Boot {
        Boot {
            console: console.lines().map(str::to_owned).collect(),
            reached: Some(Duration::ZERO),
            tests: Vec::new(),
            complete: true,
            damaged: Vec::new(),
        }
    }

    const GOOD: &str = "1..1\nok 1 a\n";

    #[test]
    fn only_a_clean_run_passes() {
        let good = Verdict::test(&ran(GOOD, "[ 1.0] fine", End::Exit(0)));
        assert_eq!(
            good.outcome,
            Outcome::Passed {
                results: 1,
                skipped: 0
            }
        );
        for (output, console, end, why) in [
            ("ok 1 a\n", "", End::Exit(0), "no plan"),
            ("1..1\nnot ok 1 a\n", "", End::Exit(0), "not ok 1 a"),
            (GOOD, "", End::Exit(1), "status 1"),
            (GOOD, "", End::Exit(4), "status 4"),
            (GOOD, "[ 1.0] WARNING: CPU: 0", End::Exit(0), "WARNING"),
            (GOOD, "", End::TimedOut(Duration::from_secs(9)), "9 s"),
            (GOOD, "", End::Died, "went off"),
            (
                "1..1\nok 1 a # SKIP x\n",
                "[ 1.0] BUG: x",
                End::Exit(0),
                "BUG",
            ),
        ] {
            match Verdict::test(&ran(output, console, end)).outcome {
                Outcome::Failed(reasons) => assert!(reasons.join("\n").contains(why), "{why}"),
                other => panic!("{why}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_led_to_the_first_failure_is_shown() {
        let many = |from: usize, to: usize| -> String {
            (from..=to).map(|n| format!("ok {n} a\n")).collect()
        };
        let output = format!(
            "{}panicked\nnot ok 30 a\n# why\n{}",
            many(1, 29),
            many(31, 60)
        );
        let tail = Verdict::test(&ran(&output, "", End::Exit(1))).tail;
        for line in [
            "| panicked",
            "| not ok 30 a",
            "| # why",
            "| ...",
            "| ok 46 a",
            "| ok 60 a",
        ] {
            assert!(tail.iter().any(|shown| shown == line), "{line}: {tail:?}");
        }
        assert!(!tail.contains(&"| ok 31 a".to_owned()), "{tail:?}");
        // Near the end nothing is shown twice.
        let tail = Verdict::test(&ran("1..2\nnot ok 1 a\nok 2 b\n", "", End::Exit(1))).tail;
        assert_eq!(tail, ["| 1..2", "| not ok 1 a", "| ok 2 b"]);
    }

    #[test]
    fn a_test_that_skips_everything_has_not_passed() {
        for (output, status) in [("1..1\nok 1 a # SKIP no x\n", 0), ("1..0 # SKIP no x\n", 4)] {
            let verdict = Verdict::test(&ran(output, "", End::Exit(status)));
            assert!(
                matches!(&verdict.outcome, Outcome::Skipped(why) if why.contains("no x")),
                "{verdict:?}"
            );
        }
        let partly = Verdict::test(&ran("1..2\nok 1 a\nok 2 b # SKIP x\n", "", End::Exit(0)));
        assert_eq!(
            partly.outcome,
            Outcome::Passed {
                results: 2,
                skipped: 1
            }
        );
        assert_eq!(partly.skipped.len(), 1);
    }

    #[test]
    fn a_report_outside_the_tests_fails_the_boot() {
        assert!(!Verdict::boot(&boot("[ 0.1] Linux")).is_failure());
        assert!(Verdict::boot(&boot("[ 0.1] WARNING: CPU: 0")).is_failure());
        let unreached = Boot {
            reached: None,
            ..boot("")
        };
        assert!(Verdict::boot(&unreached).is_failure());
        let hung = Boot {
            complete: false,
            ..boot("")
        };
        assert!(Verdict::boot(&hung).is_failure());
    }

    #[test]
    fn kunit_results_on_the_console_count() {
        let good = "[    0.5] KTAP version 1\n[    0.5] 1..1\n[    0.5]     KTAP version 1\n\
            [    0.5]     1..1\n[    0.5]     ok 1 case\n[    0.5] ok 1 migrator";
        let kunit = |console: &str| Verdict::kunit(&boot(console), &["migrator"]).unwrap();
        assert!(!kunit(good).is_failure());
        let bad = good.replace("ok 1", "not ok 1");
        assert!(kunit(&bad).is_failure());
        let cut = good.replace("[    0.5] ok 1 migrator", "");
        assert!(kunit(&cut).is_failure());
        assert!(kunit(&good.replace("migrator", "other")).is_failure());
        for none in [
            "[    0.5] Linux",
            "[    0.5] KTAP version 1\n[    0.5] 1..0",
        ] {
            assert!(Verdict::kunit(&boot(none), &[]).is_none());
            assert!(kunit(none).is_failure());
        }
    }
}
