// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests in guests: boots, and boots again when a test took its guest down, until every test
//! has its verdict. Leaves console, what tests printed and their files in
//! `target/lab/MACHINE-PROFILE`, what else was run in a folder of its own beside that.

use std::io::Write;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fs_err::{self as fs, File};

use crate::build::Image;
use crate::cache::Lock;
use crate::guest::{self, Programs};
use crate::lab::Lab;
use crate::model::{Model, Timing};
use crate::profile::Profile;
use crate::qemu::{self, Accelerator, Qemu};
use crate::report;
use crate::session::{Boot, End, Limits, Ran, Session};
use crate::splat;
use crate::suite::{self, Entry, Share};
use crate::ui::step;
use crate::verdict::{Outcome, Verdict};

/// How many guests may be lost before the rest of the tests is given up.
const REBOOTS: usize = 3;

/// How often a test is run again that lost its guest by a fault of QEMU. Those guests do not count as lost.
pub const AGAIN: usize = 5;

/// How long a guest may take between tests and to go off.
const BETWEEN_SECONDS: u64 = 60;

/// A kernel and all that is needed to boot it.
pub struct Run<'a> {
    pub lab: &'a Lab,
    pub profile: Profile,
    pub place: Place,
    pub image: Image,
    pub programs: Programs,
    pub accelerator: Accelerator,
    /// Of a timed machine.
    pub model: Option<&'a Model>,
    /// Multiplies every time limit.
    pub patience: u64,
    /// How many guests share the tests, at the same time.
    pub guests: usize,
    /// Whether tests that take long are left out.
    pub short: bool,
}

/// The folder of what a run leaves, `target/lab/MACHINE-PROFILE`; until dropped nobody else's.
pub struct Place {
    folder: PathBuf,
    _lock: Lock,
}

impl Place {
    /// Takes the folder of runs for the tests, or that with another `ending`, waiting for whoever has it.
    pub fn take(lab: &Lab, profile: Profile, ending: &str) -> Result<Self> {
        let folder = Self::folder(lab, profile, ending);
        let whom = format!("another run that leaves {}", folder.display());
        let _lock = Lock::take(&folder.with_extension("lock"), &whom)?;
        Ok(Self { folder, _lock })
    }

    /// Takes the first folder that nobody has: with the `ending` itself, then -2 behind it, and so on.
    pub fn take_free(lab: &Lab, profile: Profile, ending: &str) -> Result<Self> {
        let mut folder = Self::folder(lab, profile, ending);
        let mut number = 1;
        loop {
            if let Some(_lock) = Lock::try_take(&folder.with_extension("lock"))? {
                return Ok(Self { folder, _lock });
            }
            number += 1;
            folder = Self::folder(lab, profile, &format!("{ending}-{number}"));
        }
    }

    fn folder(lab: &Lab, profile: Profile, ending: &str) -> PathBuf {
        let name = format!(
            "{}-{profile}{}{ending}",
            lab.machine.name,
            lab.base.suffix()
        );
        lab.root.join("target/lab").join(name)
    }
}

/// How a run is judged and shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tests, which print TAP.
    Tests,
    /// A command of the user, who sees what it prints.
    Command,
    /// A command of ours, whose files we read.
    Quiet,
}

impl Run<'_> {
    /// Runs `entries`, those that this kernel is for.
    pub fn all(&self, entries: &[Entry], kind: Kind) -> Result<Vec<Verdict>> {
        let folder = self.folder("");
        let _ = fs::remove_dir_all(&folder);
        for part in ["tap", "results"] {
            let part = folder.join(part);
            fs::create_dir_all(&part)?;
        }

        let lacks = |entry: &Entry| match entry.lacks(self.profile, &self.lab.machine.guest.has) {
            None if self.short && entry.long => Some("a run without --short".to_owned()),
            lacking => lacking,
        };
        let fit: Vec<_> = entries
            .iter()
            .filter(|entry| lacks(entry).is_none())
            .collect();
        let counting = self.accelerator == Accelerator::Tcg;
        let shares = suite::deal(&fit, self.guests, counting);
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<_>> {
            let mut ran = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(share) = shares.get(number) else {
                    return Ok(ran);
                };
                ran.push(self.share(number + 1, share, kind)?);
            }
        };
        let ran = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.guests).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Result<Vec<_>>>()
        })?;

        let (boots, tests): (Vec<_>, Vec<_>) = ran.into_iter().flatten().unzip();
        let place = |verdict: &Verdict| {
            let is = |entry: &Entry| entry.name == verdict.name;
            entries.iter().position(is).unwrap_or(entries.len())
        };
        let mut tests: Vec<_> = tests.into_iter().flatten().collect();
        for entry in entries {
            if let Some(what) = lacks(entry) {
                tests.push(Verdict::new(&entry.name, Outcome::NotFor(what)));
            }
        }
        tests.sort_by_key(place);
        Ok(boots.into_iter().flatten().chain(tests).collect())
    }

    /// Runs one guest's share of the tests. Returns the verdicts on its boots, and on the tests.
    fn share(
        &self,
        guest: usize,
        share: &Share,
        kind: Kind,
    ) -> Result<(Vec<Verdict>, Vec<Verdict>)> {
        let accelerator = if share.steady_clock {
            Accelerator::Counting
        } else {
            self.accelerator
        };
        let folder = self.folder("");
        let log = match guest {
            1 => "console.log".to_owned(),
            _ => format!("console-{guest}.log"),
        };
        let mut log = File::create(folder.join(log))?;
        // They take a minute under emulation. One guest shows that they pass.
        let kunit = kind == Kind::Tests && guest == 1 && self.model.is_none();
        let mut left: Vec<_> = share.entries.iter().collect();
        let mut verdicts = Vec::new();
        let mut boots = Vec::new();
        let mut again: Vec<String> = Vec::new();
        let attempts =
            |again: &[String], name: &str| again.iter().filter(|lost| *lost == name).count();
        let mut booted = 0;
        let mut stale_boots = 0;
        while !left.is_empty() && booted <= REBOOTS + again.len() + stale_boots {
            booted += 1;
            let truth = match (guest, booted) {
                (1, 1) => "truth.json".to_owned(),
                _ => format!("truth-{guest}-{booted}.json"),
            };
            let timing = self.timing(&truth);
            let boot = self.boot(accelerator, timing, &left, kind, kunit, &mut log)?;
            for test in &boot.tests {
                let printed: String = test.output.iter().map(|line| format!("{line}\n")).collect();
                let lost = attempts(&again, &test.name);
                let repeats = self.blames_emulator(test) && lost < AGAIN;
                let attempt = if repeats {
                    format!(".lost{}", lost + 1)
                } else {
                    String::new()
                };
                let tap = format!("{}{attempt}.tap", test.name);
                fs::write(folder.join("tap").join(tap), printed)?;
                if repeats {
                    again.push(test.name.clone());
                    if kind == Kind::Command {
                        println!(
                            "lab: COMMAND runs again from its beginning: {}",
                            report::STALE
                        );
                    }
                    continue;
                }
                left.retain(|entry| entry.name != test.name);
                let mut verdict = match kind {
                    Kind::Tests => Verdict::test(test),
                    Kind::Command | Kind::Quiet => Verdict::command(test),
                };
                verdict.again = lost;
                verdicts.push(verdict);
            }
            // Outside every test the kernel patches its code, too: above all while it boots.
            if self.emulates() && splat::is_stale_breakpoint(&boot.console) && stale_boots < AGAIN {
                stale_boots += 1;
                continue;
            }
            let mut verdict = Verdict::boot(&boot);
            verdict.again = stale_boots;
            boots.push(verdict);
            if kunit && boots.len() == 1 && boot.reached.is_some() {
                boots.extend(Verdict::kunit(&boot, self.profile.suites()));
            }
        }
        for entry in left {
            let why = format!("not run: {REBOOTS} guests were lost before it");
            verdicts.push(Verdict::new(&entry.name, Outcome::Failed(vec![why])));
        }
        Ok((boots, verdicts))
    }

    /// Boots with the user at the console.
    pub fn shell(&self) -> Result<()> {
        let files = guest::file_system(&self.lab.root, &self.image, &self.programs, &[])?;
        qemu::interactive(
            &self.lab.machine,
            self.accelerator,
            self.timing("truth.json").as_ref(),
            &self.image.kernel(),
            &files,
        )
    }

    /// How time passes in a boot that leaves the model's totals as `truth` among the results.
    fn timing(&self, truth: &str) -> Option<Timing<'_>> {
        let model = self.model?;
        let truth = self.folder("results").join(truth);
        Some(Timing { model, truth })
    }

    /// Where `part` of what a run leaves is.
    pub fn folder(&self, part: &str) -> PathBuf {
        self.place.folder.join(part)
    }

    /// What ran, in a line.
    pub fn title(&self) -> String {
        let how = match self.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "emulated",
            Accelerator::Counting => "emulated, counting instructions",
            Accelerator::Timed => "emulated, modelled time",
        };
        format!(
            "{}, {}: Linux {}, {how}",
            self.lab.machine.name, self.profile, self.image.release
        )
    }

    fn boot(
        &self,
        accelerator: Accelerator,
        timing: Option<Timing>,
        entries: &[&Entry],
        kind: Kind,
        kunit: bool,
        log: &mut dyn Write,
    ) -> Result<Boot> {
        let files = guest::file_system(&self.lab.root, &self.image, &self.programs, entries)?;
        let scale = self.patience * self.profile.slowness() * accelerator.slowness();
        let seconds = |count: u64| Duration::from_secs(count * scale);
        let limits = Limits {
            boot: seconds(self.lab.machine.qemu.boot_seconds),
            tests: entries
                .iter()
                .map(|entry| (entry.name.clone(), seconds(entry.seconds)))
                .collect(),
            between: seconds(BETWEEN_SECONDS),
        };
        step!("booting {}", self.title());
        let kunit = if kunit { "" } else { "kunit.enable=0" };
        let append = format!("{} {kunit}", self.profile.append());
        let kernel = self.image.kernel();
        let machine = &self.lab.machine;
        let qemu = Qemu::start(
            machine,
            accelerator,
            timing.as_ref(),
            &kernel,
            &files,
            &append,
        )?;
        let results = self.folder("results");
        Session::new(&limits, log, &results, kind == Kind::Command).follow(qemu)
    }

    pub fn emulates(&self) -> bool {
        self.accelerator != Accelerator::Kvm
    }

    /// Whether a test lost its guest by a fault of the emulator.
    fn blames_emulator(&self, test: &Ran) -> bool {
        self.emulates() && test.end == End::Died && splat::is_stale_breakpoint(&test.console)
    }
}
