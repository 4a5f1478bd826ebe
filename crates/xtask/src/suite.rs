// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of guest tests, `kernel/selftests/suite`: one a line,
//! `NAME SECONDS NEEDS COMMAND...`, where NEEDS says on which kernels and machines it can run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::guest::Job;
use crate::machine::Feature;
use crate::profile::Profile;

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub job: Job,
    /// How long it may take on a release kernel under emulation.
    pub seconds: u64,
    /// The kernels, any of which will do.
    kernels: Vec<Need>,
    /// All that its machine must have.
    features: Vec<Feature>,
    /// Whether it takes long, and others guard the data.
    pub long: bool,
    /// Whether what it checks depends on time, so that a busy host would fail it.
    steady_clock: bool,
    /// Whether every guest runs it, after all others.
    everywhere: bool,
}

/// What one guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub entries: Vec<Entry>,
    /// Whether the guest's clock shall not depend on the host.
    pub steady_clock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Any,
    Series,
    Only(Profile),
}

impl Entry {
    /// An entry that runs on every kernel.
    pub fn new(name: &str, seconds: u64, command: &str) -> Self {
        let job = Job {
            name: name.to_owned(),
            command: command.to_owned(),
        };
        Self {
            job,
            seconds,
            kernels: vec![Need::Any],
            features: Vec::new(),
            long: false,
            steady_clock: false,
            everywhere: false,
        }
    }

    /// Why it cannot run on a kernel of `profile` in a machine that `has` so much, or None if it can.
    pub fn lacks(&self, profile: Profile, has: &[Feature]) -> Option<String> {
        let kernel = self.kernels.iter().any(|need| match need {
            Need::Any => true,
            Need::Series => profile.has_series(),
            Need::Only(only) => *only == profile,
        });
        let mut lacking = Vec::new();
        if !kernel {
            let names = self.kernels.iter().map(|need| match need {
                Need::Any => "any kernel".to_owned(),
                Need::Series => "the series".to_owned(),
                Need::Only(profile) => format!("profile {profile}"),
            });
            lacking.push(names.collect::<Vec<_>>().join(" or "));
        }
        let missing = self
            .features
            .iter()
            .filter(|feature| !has.contains(feature));
        lacking.extend(missing.map(|feature| format!("a machine with {}", feature.name())));
        (!lacking.is_empty()).then(|| lacking.join(" and "))
    }
}

/// What stands in the list for [`Entry::steady_clock`].
const STEADY_CLOCK: &str = "steady-clock";

/// What stands in the list for [`Entry::long`].
const LONG: &str = "long";

/// The list of the project's own tests.
pub const OURS: &str = "suite";

/// Reads the list `name` of the checkout `root`.
pub fn read(root: &Path, name: &str) -> Result<Vec<Entry>> {
    let path = root.join("kernel/selftests").join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("{}", path.display()))
}

/// The test that comes after all others in a debug kernel: whether memory was lost.
pub fn kmemleak() -> Entry {
    Entry {
        kernels: vec![Need::Only(Profile::Debug)],
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
                entry.job.name += &format!("-{}", number + 1);
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

fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = entry(line).with_context(|| format!("line {}: {line}", number + 1))?;
        if entries.iter().any(|other| other.job.name == entry.job.name) {
            bail!("line {}: a second test {}", number + 1, entry.job.name);
        }
        entries.push(entry);
    }
    if entries.is_empty() {
        bail!("it lists no test");
    }
    Ok(entries)
}

fn entry(line: &str) -> Result<Entry> {
    let (name, rest) = word(line);
    let (seconds, rest) = word(rest);
    let (needs, command) = word(rest);
    if command.is_empty() {
        bail!("a test is NAME SECONDS NEEDS COMMAND...");
    }
    // It names files, and stands in marks on the console.
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        bail!("{name:?} is not a name of letters, digits and - _ .");
    }
    let seconds = seconds
        .parse()
        .with_context(|| format!("{seconds:?} is no number of seconds"))?;
    let mut needs = needs.split('+');
    let kernels = needs
        .next()
        .unwrap_or_default()
        .split(',')
        .map(|need| {
            Ok(match need {
                "any" => Need::Any,
                "series" => Need::Series,
                "vanilla" => Need::Only(Profile::Vanilla),
                "release" => Need::Only(Profile::Release),
                "debug" => Need::Only(Profile::Debug),
                "kcsan" => Need::Only(Profile::Kcsan),
                _ => bail!("{need:?} is none of: any, series, vanilla, release, debug, kcsan"),
            })
        })
        .collect::<Result<_>>()?;
    let (mut steady_clock, mut long) = (false, false);
    let features = needs
        .filter(|name| {
            steady_clock |= *name == STEADY_CLOCK;
            long |= *name == LONG;
            ![STEADY_CLOCK, LONG].contains(name)
        })
        .map(|name| {
            let all = Feature::ALL;
            let found = all.into_iter().find(|feature| feature.name() == name);
            found.with_context(|| {
                let names = all.map(Feature::name).join(", ");
                format!("a test may need {names}, {STEADY_CLOCK} or {LONG}, not {name:?}")
            })
        })
        .collect::<Result<_>>()?;
    Ok(Entry {
        job: Job {
            name: name.to_owned(),
            command: command.to_owned(),
        },
        seconds,
        kernels,
        features,
        long,
        steady_clock,
        everywhere: false,
    })
}

/// The first word and what follows it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_where_it_can() {
        let list =
            parse("# x\na 60 any ./a 1 2\n\nb  5 series,vanilla ./b\nc 5 debug ./c\n").unwrap();
        let runs = |profile| -> String {
            list.iter()
                .filter(|e| e.lacks(profile, &[]).is_none())
                .map(|e| e.job.name.as_str())
                .collect()
        };
        assert_eq!(runs(Profile::Vanilla), "ab");
        assert_eq!(runs(Profile::Release), "ab");
        assert_eq!(runs(Profile::Debug), "abc");
        assert_eq!(list[0].job.command, "./a 1 2");
        assert_eq!(list[0].seconds, 60);
    }

    #[test]
    fn a_test_that_its_machine_is_not_for_says_why() {
        let list = parse("a 60 release+slow-tier+rust ./a\n").unwrap();
        let lacks = |profile, has: &[Feature]| list[0].lacks(profile, has);
        let all = [Feature::Rust, Feature::SlowTier];
        assert_eq!(lacks(Profile::Release, &all), None);
        assert_eq!(
            lacks(Profile::Release, &all[..1]).unwrap(),
            "a machine with slow-tier"
        );
        assert_eq!(
            lacks(Profile::Debug, &[Feature::DmaChannels]).unwrap(),
            "profile release and a machine with slow-tier and a machine with rust"
        );
    }

    #[test]
    fn every_test_is_dealt_to_one_guest_and_every_guest_looks_for_leaks() {
        let mut list = parse("a 60 any a\nb 20 any b\nc 30 any c\nd 20 any d\n").unwrap();
        list.push(kmemleak());
        let all: Vec<&Entry> = list.iter().collect();
        let names = |share: &Share| {
            let names = share.entries.iter().map(|entry| entry.job.name.as_str());
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
        let list = parse("a 60 any+long+rust a\nb 20 series b\n").unwrap();
        assert!(list[0].long && !list[1].long);
        assert_eq!(list[0].lacks(Profile::Release, &[Feature::Rust]), None);
    }

    #[test]
    fn a_test_of_time_has_a_guest_whose_clock_is_steady() {
        let mut list = parse("a 60 any a\nb 20 series+steady-clock+rust b\n").unwrap();
        list.push(kmemleak());
        let all: Vec<&Entry> = list.iter().collect();
        let dealt = |entries: &[&Entry], counting| -> Vec<(String, bool)> {
            let share = |share: Share| {
                let names = share.entries.into_iter().map(|entry| entry.job.name);
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
    fn a_wrong_line_is_told_with_its_number() {
        for (text, why) in [
            ("a 60 any", "COMMAND"),
            ("a x any ./a", "no number"),
            ("a 60 all ./a", "none of"),
            ("a 60 any+gold ./a", "steady-clock or long, not \"gold\""),
            ("a/b 60 any ./a", "not a name"),
            ("a 60 any ./a\na 60 any ./b", "a second test"),
            ("# nothing", "no test"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_lists_in_the_checkout_can_be_read() {
        for name in [OURS, crate::linux_tests::SUITE] {
            read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), name).unwrap();
        }
    }
}
