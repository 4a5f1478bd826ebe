// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what a test prints: the Test Anything Protocol, in the form that the kernel's tests use.
//! Indented lines belong to subtests, whose result the line after them sums up.

/// What a test printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tap {
    /// How many results it announced; more than one announcement is a mistake.
    pub plans: Vec<usize>,
    /// The plan's reason to skip all, if it announced none.
    pub skipped_all: Option<String>,
    pub passed: usize,
    /// Names and reasons.
    pub skipped: Vec<String>,
    /// Names of failures.
    pub failed: Vec<String>,
    /// Failures that are known and marked so.
    pub todo: usize,
    pub bailed_out: Option<String>,
}

impl Tap {
    /// Reads all that a test printed.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a String>) -> Self {
        let mut tap = Self::default();
        for line in lines {
            tap.line(line);
        }
        tap
    }

    /// How many results there were.
    pub fn results(&self) -> usize {
        self.passed + self.skipped.len() + self.failed.len() + self.todo
    }

    /// What is wrong with the protocol, failed tests aside.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if let Some(why) = &self.bailed_out {
            mistakes.push(format!("bailed out: {why}"));
        }
        match *self.plans {
            [] => mistakes.push("printed no plan (1..N)".to_owned()),
            [plan] if plan != self.results() => {
                mistakes.push(format!(
                    "planned {plan} results and printed {}",
                    self.results()
                ));
            }
            [0] if self.skipped_all.is_none() => mistakes.push("planned no test".to_owned()),
            [_] => {}
            _ => mistakes.push(format!("printed {} plans", self.plans.len())),
        }
        mistakes
    }

    fn line(&mut self, line: &str) {
        if let Some(why) = line.strip_prefix("Bail out!") {
            self.bailed_out = Some(why.trim().to_owned());
        } else if let Some(rest) = result(line, "not ok") {
            match directive(rest) {
                Some(("TODO", _)) => self.todo += 1,
                // A test that could not be skipped properly did not pass.
                _ => self.failed.push(rest.to_owned()),
            }
        } else if let Some(rest) = result(line, "ok") {
            match directive(rest) {
                Some(("SKIP", _)) => self.skipped.push(rest.to_owned()),
                _ => self.passed += 1,
            }
        } else if let Some(rest) = line.strip_prefix("1..") {
            let (count, rest) = rest.split_once([' ', '#']).unwrap_or((rest, ""));
            if let Ok(count) = count.trim().parse() {
                self.plans.push(count);
                let rest = rest.trim_start_matches(['#', ' ']);
                if count == 0 && rest.to_ascii_uppercase().starts_with("SKIP") {
                    self.skipped_all = Some(rest[4..].trim().to_owned());
                }
            }
        }
    }
}

/// The rest of a result line that begins with `word`: its number and name.
fn result<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    if rest.is_empty() {
        Some(rest)
    } else {
        rest.strip_prefix(' ').map(str::trim)
    }
}

/// The directive of a result, SKIP or TODO, and why. Names and reasons may hold a `#` as well.
fn directive(rest: &str) -> Option<(&'static str, &str)> {
    rest.match_indices('#').find_map(|(at, _)| {
        let after = rest[at + 1..].trim_start();
        ["SKIP", "TODO"].into_iter().find_map(|word| {
            let head = after.get(..word.len())?;
            let reason = &after[word.len()..];
            let ends = !reason.starts_with(char::is_alphanumeric);
            (head.eq_ignore_ascii_case(word) && ends).then(|| (word, reason.trim()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tap {
        Tap::read(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_good_test_with_its_plan_at_either_end() {
        for text in [
            "TAP version 13\n1..2\nok 1 a\nok 2 b\n",
            "ok 1 a\n# note\nok 2\n1..2\n",
        ] {
            let tap = read(text);
            assert_eq!(tap.passed, 2, "{text}");
            assert!(tap.mistakes().is_empty(), "{text}");
        }
    }

    #[test]
    fn failures_are_named_and_known_ones_are_not_failures() {
        let tap = read("1..3\nnot ok 1 a\nnot ok 2 b # TODO later\nok 3 c\n");
        assert_eq!(tap.failed, ["1 a"]);
        assert_eq!((tap.todo, tap.passed, tap.results()), (1, 1, 3));
        assert!(tap.mistakes().is_empty());
    }

    #[test]
    fn skipped_is_neither_passed_nor_failed() {
        let tap = read("1..3\nok 1 a #1 # SKIP no page #7\nok 2 b # skip\nok 3 c #5 works\n");
        assert_eq!(tap.skipped.len(), 2);
        assert_eq!(tap.passed, 1);
        let all = read("1..0 # SKIP no memory\n");
        assert_eq!(all.skipped_all.as_deref(), Some("no memory"));
        assert!(all.mistakes().is_empty());
    }

    #[test]
    fn what_does_not_keep_to_the_plan_is_a_mistake() {
        for (text, why) in [
            ("ok 1 a\n", "no plan"),
            ("", "no plan"),
            ("1..2\nok 1 a\n", "planned 2"),
            ("1..0\n", "planned no test"),
            ("1..1\nok 1 a\n1..1\n", "2 plans"),
            ("1..1\nok 1 a\nBail out! no node\n", "no node"),
        ] {
            let mistakes = read(text).mistakes().join("; ");
            assert!(mistakes.contains(why), "{text:?}: {mistakes}");
        }
    }

    #[test]
    fn only_whole_words_at_the_line_s_beginning_count() {
        let tap = read("1..1\n    ok 1 sub\n    not ok 2 sub\nokay\n# ok 3\nok 1 sum\n");
        assert_eq!((tap.passed, tap.failed.len()), (1, 0));
    }
}
