// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists of guest tests, `kernel/selftests/suite.toml` and its like: which test runs on which kernels and
//! machines, how long it may take, and how tests are dealt to guests.

use std::path::Path;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use crate::machine::Feature;
use crate::profile::{Profile, name};

/// One test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Entry {
    pub name: String,
    /// How long it may take on a release kernel under emulation.
    pub seconds: u64,
    /// For the shell, in the folder of the guest programs.
    pub command: String,
    /// Whether only kernels with the series can run it.
    #[serde(default)]
    series: bool,
    /// The only kernels that can run it; none here for all.
    #[serde(default)]
    kernels: Vec<Profile>,
    /// All that its machine must have.
    #[serde(default)]
    needs: Vec<Feature>,
    /// Whether it needs pages that are grouped by mobility: CMA gets none otherwise, and compaction finds no place for any.
    #[serde(default)]
    mobility: bool,
    /// Whether it takes long, and others guard the data.
    #[serde(default)]
    pub long: bool,
    /// Whether what it checks depends on time, so that a busy host would fail it.
    #[serde(default)]
    steady_clock: bool,
    /// Whether every guest runs it, after all others.
    #[serde(skip)]
    everywhere: bool,
}

/// A list of tests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    test: Vec<Entry>,
}

/// What one guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub entries: Vec<Entry>,
    /// Whether the guest's clock shall not depend on the host.
    pub steady_clock: bool,
}

impl Entry {
    /// An entry that runs on every kernel.
    pub fn new(name: &str, seconds: u64, command: &str) -> Self {
        Self {
            name: name.to_owned(),
            seconds,
            command: command.to_owned(),
            ..Self::default()
        }
    }

    /// Whether its machine must have `feature`.
    pub fn needs(&self, feature: Feature) -> bool {
        self.needs.contains(&feature)
    }

    /// Why it cannot run on a kernel of `profile` in a machine that `has` so much, or None if it can.
    pub fn lacks(&self, profile: Profile, has: &[Feature]) -> Option<String> {
        let mut lacking = Vec::new();
        if self.series && !profile.has_series() {
            lacking.push("the series".to_owned());
        }
        if !self.kernels.is_empty() && !self.kernels.contains(&profile) {
            let names = self
                .kernels
                .iter()
                .map(|profile| format!("profile {profile}"));
            lacking.push(names.collect::<Vec<_>>().join(" or "));
        }
        if self.mobility && !profile.groups_by_mobility() {
            lacking.push("pages grouped by mobility".to_owned());
        }
        let missing = self.needs.iter().filter(|feature| !has.contains(feature));
        lacking.extend(missing.map(|feature| format!("a machine with {}", name(feature))));
        (!lacking.is_empty()).then(|| lacking.join(" and "))
    }
}

/// The list of the project's own tests.
pub const OURS: &str = "kernel/selftests/suite.toml";

/// Reads the list at `path`.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(path)?;
    parse(&text).with_context(|| format!("{}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let List { test: entries } = basic_toml::from_str(text)?;
    for (at, Entry { name, command, .. }) in entries.iter().enumerate() {
        // It names files, and stands in marks on the console.
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            bail!("{name:?} is not a name of letters, digits and - _ .");
        }
        if command.trim().is_empty() || command.contains('\n') {
            bail!("{name}: a command is one line");
        }
        if entries[..at].iter().any(|other| other.name == *name) {
            bail!("a second test {name}");
        }
    }
    if entries.is_empty() {
        bail!("it lists no test");
    }
    Ok(entries)
}

/// The test that comes after all others in a debug kernel: whether memory was lost.
pub fn kmemleak() -> Entry {
    Entry {
        kernels: vec![Profile::Debug],
        everywhere: true,
        ..Entry::new("kmemleak", 60, "/lab/kmemleak")
    }
}

/// Deals `entries` to guests, of which at most `guests` run at the same time: each to the one that has the least to do so
/// far, by the limits. With `counting`, those that need a steady clock get guests of their own, which come after the others.
/// Nobody gets nothing but what every guest runs.
pub fn deal(entries: &[&Entry], guests: usize, counting: bool) -> Vec<Share> {
    let (everywhere, once): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().partition(|entry| entry.everywhere);
    let (steady, others): (Vec<&Entry>, Vec<&Entry>) = once
        .iter()
        .partition(|entry| counting && entry.steady_clock);
    let mut shares = Vec::new();
    if !others.is_empty() || steady.is_empty() {
        shares.extend(split(&others, guests, false));
    }
    if !steady.is_empty() {
        shares.extend(split(&steady, guests, true));
    }
    for (number, share) in shares.iter_mut().enumerate() {
        share.entries.extend(everywhere.iter().map(|entry| {
            let mut entry = (*entry).clone();
            if number > 0 {
                entry.name += &format!("-{}", number + 1);
            }
            entry
        }));
    }
    shares
}

fn split(entries: &[&Entry], guests: usize, steady_clock: bool) -> Vec<Share> {
    let share = Share {
        entries: Vec::new(),
        steady_clock,
    };
    let mut shares = vec![(0, share); guests.clamp(1, entries.len().max(1))];
    for entry in entries {
        if let Some((seconds, share)) = shares.iter_mut().min_by_key(|(seconds, _)| *seconds) {
            *seconds += entry.seconds;
            share.entries.push((*entry).clone());
        }
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// A list of tests that are called so, take so many seconds, and have these fields, too.
    fn list(tests: &[(&str, u64, &str)]) -> Vec<Entry> {
        let line = |(name, seconds, more): &(&str, u64, &str)| {
            format!("{{ name = '{name}', seconds = {seconds}, command = './{name} 1 2'{more} }},\n")
        };
        let lines: String = tests.iter().map(line).collect();
        parse(&format!("test = [\n{lines}]\n")).unwrap()
    }

    #[test]
    fn a_test_runs_where_it_can() {
        let list = list(&[
            ("a", 60, ""),
            ("b", 5, ", series = true"),
            ("c", 5, ", kernels = ['debug', 'kcsan']"),
            ("d", 5, ", mobility = true"),
        ]);
        let runs = |profile| -> String {
            list.iter()
                .filter(|e| e.lacks(profile, &[]).is_none())
                .map(|e| e.name.as_str())
                .collect()
        };
        assert_eq!(runs(Profile::Vanilla), "ad");
        assert_eq!(runs(Profile::Release), "abd");
        assert_eq!(runs(Profile::Release64k), "ab");
        assert_eq!(runs(Profile::Debug), "abcd");
        assert_eq!(list[0].command, "./a 1 2");
        assert_eq!(list[0].seconds, 60);
    }

    #[test]
    fn a_test_that_its_machine_is_not_for_says_why() {
        let more = ", series = true, kernels = ['release', 'kcsan'], needs = ['slow-tier', 'rust']";
        let list = list(&[("a", 60, more)]);
        let lacks = |profile, has: &[Feature]| list[0].lacks(profile, has);
        let all = [Feature::Rust, Feature::SlowTier];
        assert_eq!(lacks(Profile::Release, &all), None);
        assert_eq!(
            lacks(Profile::Release, &all[..1]).unwrap(),
            "a machine with slow-tier"
        );
        assert_eq!(
            lacks(Profile::Vanilla, &[Feature::DmaChannels]).unwrap(),
            "the series and profile release or profile kcsan and a machine with slow-tier and \
             a machine with rust"
        );
    }

    #[test]
    fn every_test_is_dealt_to_one_guest_and_every_guest_looks_for_leaks() {
        let mut list = list(&[("a", 60, ""), ("b", 20, ""), ("c", 30, ""), ("d", 20, "")]);
        list.push(kmemleak());
        let all: Vec<&Entry> = list.iter().collect();
        let names = |share: &Share| {
            let names = share.entries.iter().map(|entry| entry.name.as_str());
            names.collect::<Vec<_>>().join(" ")
        };
        let dealt =
            |guests| -> Vec<String> { deal(&all, guests, true).iter().map(names).collect() };
        assert_eq!(dealt(1), ["a b c d kmemleak"]);
        assert_eq!(dealt(2), ["a kmemleak", "b c d kmemleak-2"]);
        assert_eq!(dealt(9).len(), 4);
        assert_eq!(deal(&all[4..], 2, true).len(), 1);
        assert!(deal(&[], 2, true)[0].entries.is_empty());
    }

    #[test]
    fn a_test_may_be_long() {
        let list = list(&[("a", 60, ", long = true, needs = ['rust']"), ("b", 20, "")]);
        assert!(list[0].long && !list[1].long);
        assert_eq!(list[0].lacks(Profile::Release, &[Feature::Rust]), None);
    }

    #[test]
    fn a_test_of_time_has_a_guest_whose_clock_is_steady() {
        let mut list = list(&[("a", 60, ""), ("b", 20, ", steady-clock = true")]);
        list.push(kmemleak());
        let all: Vec<&Entry> = list.iter().collect();
        let dealt = |entries: &[&Entry], counting| -> Vec<(String, bool)> {
            let share = |share: Share| {
                let names = share.entries.into_iter().map(|entry| entry.name);
                (names.collect::<Vec<_>>().join(" "), share.steady_clock)
            };
            deal(entries, 2, counting).into_iter().map(share).collect()
        };
        let share = |names: &str, steady| (names.to_owned(), steady);
        assert_eq!(
            dealt(&all, true),
            [share("a kmemleak", false), share("b kmemleak-2", true)]
        );
        assert_eq!(dealt(&all[1..], true), [share("b kmemleak", true)]);
        assert_eq!(
            dealt(&all, false),
            [share("a kmemleak", false), share("b kmemleak-2", false)]
        );
    }

    #[test]
    fn a_wrong_test_is_told() {
        let good = "{ name = 'a', seconds = 60, command = 'a' }";
        for (test, why) in [
            ("{ name = 'a', seconds = 60 }", "missing field `command`"),
            ("{ name = 'a', seconds = 'x', command = 'a' }", "line 2"),
            ("{ name = 'a', seconds = 60, command = ' ' }", "one line"),
            (
                "{ name = 'a', seconds = 60, command = \"a\\nb\" }",
                "one line",
            ),
            (
                "{ name = 'a', seconds = 60, command = 'a', kernels = ['all'] }",
                "`kcsan`",
            ),
            (
                "{ name = 'a', seconds = 60, command = 'a', needs = ['gold'] }",
                "unknown variant `gold`",
            ),
            (
                "{ name = 'a', seconds = 60, command = 'a', fast = true }",
                "unknown field `fast`",
            ),
            (
                "{ name = 'a/b', seconds = 60, command = 'a' }",
                "not a name",
            ),
            (&format!("{good}, {good}"), "a second test a"),
            ("", "no test"),
        ] {
            let error = format!("{:#}", parse(&format!("test = [\n{test}]")).unwrap_err());
            assert!(error.contains(why), "{test:?}: {error}");
        }
    }

    #[test]
    fn the_files_call_machines_features_and_profiles_as_the_reports_do() {
        for feature in Feature::value_variants() {
            let list = list(&[("a", 1, &format!(", needs = ['{}']", name(feature)))]);
            assert_eq!(list[0].needs, [*feature]);
        }
        for profile in Profile::value_variants() {
            let list = list(&[("a", 1, &format!(", kernels = ['{profile}']"))]);
            assert_eq!(list[0].kernels, [*profile]);
        }
    }

    #[test]
    fn the_lists_in_the_checkout_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in [OURS, crate::linux_tests::SUITE] {
            read(&root.join(name)).unwrap();
        }
    }
}
