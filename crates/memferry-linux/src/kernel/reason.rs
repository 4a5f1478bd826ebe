// SPDX-License-Identifier: MIT OR Apache-2.0
//! What copies for each reason to migrate: the lines of /sys/kernel/mm/migration/reasons, and changes of some of them.

use crate::topology::error::ParseError;

use super::{AUTO, NO_MIGRATOR, REASONS};

/// The choice that stands for what `migrator` says.
pub const DEFAULT: &str = "default";

/// The reason that stands for every reason.
pub const ALL_REASONS: &str = "all";

/// What copies for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ReasonChoice {
    /// One of [`REASONS`].
    pub reason: String,
    /// [`DEFAULT`], [`NO_MIGRATOR`], [`AUTO`] or a migrator's name.
    pub choice: String,
    /// No CPU copies for it instead: what the migrator does not copy stays where it is. With [`NO_MIGRATOR`] nothing moves for it, as
    /// after its migrator has left.
    pub only: bool,
}

impl ReasonChoice {
    /// One line without its end: `demotion dcbm`, `demotion dcbm only`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (reason, choice, only) = match words[..] {
            [reason, choice] => (reason, choice, false),
            [reason, choice, "only"] => (reason, choice, true),
            _ => return None,
        };
        Some(Self {
            reason: reason.to_owned(),
            choice: choice.to_owned(),
            only,
        })
    }

    /// The choice alone, as the kernel writes it: `dcbm only`.
    pub fn words(&self) -> String {
        let only = if self.only { " only" } else { "" };
        format!("{}{only}", self.choice)
    }

    /// The name of the migrator that must be registered for it.
    pub(super) fn needs(&self) -> Option<&str> {
        (![DEFAULT, NO_MIGRATOR].contains(&&*self.choice)).then_some(&self.choice)
    }

    /// Whether the kernel takes it, if its migrator is registered.
    fn is_sound(&self) -> bool {
        let known = self.reason == ALL_REASONS || REASONS.contains(&&*self.reason);
        known && !(self.only && [DEFAULT, AUTO].contains(&&*self.choice))
    }
}

impl std::fmt::Display for ReasonChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.reason, self.words())
    }
}

/// What the kernel writes: a line for each reason.
pub(super) fn lines(text: &str) -> Result<Vec<ReasonChoice>, ParseError> {
    let line = |(number, line): (usize, &str)| {
        let expected = "a reason and what copies for it";
        let choice = ReasonChoice::parse(line);
        choice.ok_or_else(|| ParseError::new(expected, line).at_line(number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// Changes, between commas or line ends; `None` if the kernel would refuse them whatever is registered.
pub(super) fn changes(text: &str) -> Option<Vec<ReasonChoice>> {
    let parts = text.split([',', '\n']);
    let parsed = parts.map(|part| ReasonChoice::parse(part).filter(ReasonChoice::is_sound));
    parsed.collect()
}

/// `now` with these changes; the later change of a reason counts.
pub(super) fn changed(now: &[ReasonChoice], changes: &[ReasonChoice]) -> Vec<ReasonChoice> {
    let after = |before: &ReasonChoice| {
        let meets = |of: &&ReasonChoice| of.reason == ALL_REASONS || of.reason == before.reason;
        let change = changes.iter().rev().find(meets).unwrap_or(before);
        ReasonChoice {
            reason: before.reason.clone(),
            ..change.clone()
        }
    };
    now.iter().map(after).collect()
}

/// Those of `now` that changes make different, before and after.
pub(super) fn differing(
    now: &[ReasonChoice],
    changes: &[ReasonChoice],
) -> (Vec<ReasonChoice>, Vec<ReasonChoice>) {
    let pairs = now.iter().cloned().zip(changed(now, changes));
    pairs.filter(|(before, after)| before != after).unzip()
}

/// As it is written: a line each.
pub(super) fn text(of: &[ReasonChoice]) -> String {
    let lines: Vec<String> = of.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<ReasonChoice> {
        lines(text).expect("lines")
    }

    #[test]
    fn what_is_read_is_written_back() {
        let all = "compaction default\ndemotion dcbm only\nsyscall_or_cpuset auto\ndamon none only";
        assert_eq!(text(&read(all)), all);
        assert_eq!(text(&changes(all).expect("changes")), all);
        let error = lines("compaction default\nall\n").expect_err("the old mask");
        assert_eq!(error.line, Some(2));
    }

    #[test]
    fn what_the_kernel_refuses_is_no_change() {
        for refused in [
            "",
            "demotion",
            "sunday dcbm",
            "demotion auto only",
            "all default only",
            "demotion dcbm sometimes",
            "demotion dcbm,",
        ] {
            assert_eq!(changes(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn only_what_differs_is_changed_and_the_last_word_counts() {
        let now = read("compaction default\ndemotion none\ndamon dcbm");
        let wanted = changes("all dcbm,demotion dcbm only").expect("changes");
        let (before, after) = differing(&now, &wanted);
        assert_eq!(text(&before), "compaction default\ndemotion none");
        assert_eq!(text(&after), "compaction dcbm\ndemotion dcbm only");
    }
}
