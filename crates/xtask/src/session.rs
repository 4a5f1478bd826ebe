// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot of a guest with a list of tests: tells whose the lines are that it prints, by what
//! `lab/guest/init` says on the wire and marks on the console, holds it to its time limits, and unpacks
//! the files that it sends. What the lines say about success is for `verdict`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::command::{self, interrupted};
use crate::qemu::{Line, Next, Qemu};
use crate::ui::step;

/// How long the console's lines may lag behind the wire's.
const LAG: Duration = Duration::from_secs(2);

/// How long each part of a boot may take.
pub struct Limits {
    pub boot: Duration,
    /// The tests that there are, by name. Sending a test's files falls into its time.
    pub tests: BTreeMap<String, Duration>,
    /// Between tests, and to go off after the last.
    pub between: Duration,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// With this status, as a shell has it.
    Exit(i32),
    /// It was still running after its time.
    TimedOut(Duration),
    /// The machine went off.
    #[default]
    Died,
}

/// What a test did.
#[derive(Debug, Default)]
pub struct Ran {
    pub name: String,
    pub output: Vec<String>,
    /// What the kernel said meanwhile.
    pub console: Vec<String>,
    pub end: End,
    pub took: Duration,
}

/// What a boot did.
#[derive(Debug, Default)]
pub struct Boot {
    /// The kernel's messages before the first test, between tests and after the last.
    pub console: Vec<String>,
    /// Whether the first process came to run, and how long that took.
    pub reached: Option<Duration>,
    pub tests: Vec<Ran>,
    /// Whether it went off by itself after the last test.
    pub complete: bool,
    /// Files that were sent and could not be unpacked.
    pub damaged: Vec<String>,
}

/// Follows a machine.
pub struct Session<'a> {
    /// Takes everything the machine says: messages as they are, what tests print after a bar.
    log: &'a mut dyn Write,
    /// Where files go that the guest sends.
    results: &'a Path,
    /// Whether the user sees each line that a test prints.
    shown: bool,
    limits: &'a Limits,
    boot: Boot,
    /// On the wire: the test that began and has not ended.
    running: Option<usize>,
    /// On the console, which may be ahead or behind: the test whose messages are coming.
    marked: Option<usize>,
    /// An archive on its way, in base64.
    files: Option<Vec<String>>,
    /// Since when the current part of the boot lasts.
    since: Instant,
    done: bool,
}

impl<'a> Session<'a> {
    pub fn new(limits: &'a Limits, log: &'a mut dyn Write, results: &'a Path, shown: bool) -> Self {
        Self {
            log,
            results,
            shown,
            limits,
            boot: Boot::default(),
            running: None,
            marked: None,
            files: None,
            since: Instant::now(),
            done: false,
        }
    }

    /// Follows `qemu` until it goes off or exceeds a limit.
    pub fn follow(mut self, mut qemu: Qemu) -> Result<Boot> {
        loop {
            if interrupted() {
                bail!("interrupted");
            }
            match qemu.next(Duration::from_millis(200)) {
                Next::Line(line) => self.take(line)?,
                Next::Nothing => {}
                Next::Off => break,
            }
            let limit = self.limit();
            if self.since.elapsed() > limit {
                qemu.kill();
                // What it had said.
                while let Next::Line(line) = qemu.next(LAG) {
                    self.take(line)?;
                }
                let _ = writeln!(self.log, "lab: killed after {} s", limit.as_secs());
                self.end(End::TimedOut(limit));
                return Ok(self.boot);
            }
        }
        Ok(self.off())
    }

    /// What the machine did, which has gone off.
    fn off(mut self) -> Boot {
        self.end(End::Died);
        self.boot.complete = self.done;
        self.boot
    }

    fn take(&mut self, line: Line) -> Result<()> {
        match line {
            Line::Console(line) => {
                writeln!(self.log, "{line}")?;
                self.console(line);
                Ok(())
            }
            Line::Wire(line) => self.wire(line),
        }
    }

    fn wire(&mut self, line: String) -> Result<()> {
        let words = line.strip_prefix("@@lab ").unwrap_or_default();
        match words.split(' ').collect::<Vec<_>>()[..] {
            ["boot"] => {
                self.boot.reached = Some(self.since.elapsed());
                self.since = Instant::now();
            }
            ["begin", name] => {
                step!("  {name}");
                self.running = Some(self.test(name));
                self.since = Instant::now();
            }
            ["end", _, status] => self.end(End::Exit(status.parse().unwrap_or(-1))),
            ["files"] => self.files = Some(Vec::new()),
            ["sent"] => {
                if let Some(lines) = self.files.take() {
                    if let Err(error) = unpack(&lines, self.results) {
                        self.boot.damaged.push(format!("{error:#}"));
                    }
                }
            }
            ["done"] => self.done = true,
            _ => {
                if let Some(lines) = &mut self.files {
                    lines.push(line);
                } else if let Some(test) = self.running {
                    writeln!(self.log, "| {line}")?;
                    if self.shown {
                        let _ = writeln!(std::io::stdout(), "{line}");
                    }
                    self.boot.tests[test].output.push(line);
                }
            }
        }
        Ok(())
    }

    fn console(&mut self, line: String) {
        let mark = line.split_once("lab: ").map(|(_, mark)| mark.trim_end());
        match mark.and_then(|mark| mark.split_once(' ')) {
            // A console can lose bytes. What is no test's name is a message.
            Some(("begin", name)) if self.limits.tests.contains_key(name) => {
                self.marked = Some(self.test(name));
            }
            Some(("end", _)) => self.marked = None,
            _ => match self.marked {
                Some(test) => self.boot.tests[test].console.push(line),
                None => self.boot.console.push(line),
            },
        }
    }

    /// The limit of the current part.
    fn limit(&self) -> Duration {
        if self.boot.reached.is_none() {
            return self.limits.boot;
        }
        let running = self.running.map(|test| &self.boot.tests[test].name);
        let limit = running.and_then(|name| self.limits.tests.get(name));
        limit.copied().unwrap_or(self.limits.between)
    }

    /// The test `name`, whether the wire or the console names it first.
    fn test(&mut self, name: &str) -> usize {
        let tests = &mut self.boot.tests;
        if let Some(known) = tests.iter().position(|test| test.name == name) {
            return known;
        }
        tests.push(Ran {
            name: name.to_owned(),
            ..Ran::default()
        });
        tests.len() - 1
    }

    /// A test that runs has ended so.
    fn end(&mut self, end: End) {
        if let Some(test) = self.running.take() {
            self.boot.tests[test].end = end;
            self.boot.tests[test].took = self.since.elapsed();
        }
        self.since = Instant::now();
    }
}

/// Unpacks the archive that the guest sent as `lines` into `folder`. gzip's checksum tells whether all of it came.
fn unpack(lines: &[String], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut unpack = Command::new("sh");
    unpack
        .args(["-c", "base64 --decode | tar -xz --no-same-owner -C \"$0\""])
        .arg(folder);
    command::output(&mut unpack, &lines.join("\n"))
        .context("the guest's result files came damaged")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Said<'a> = (fn(String) -> Line, &'a str);

    fn progress(lines: &[Said<'_>], results: &Path) -> (Boot, String) {
        let limits = Limits {
            boot: Duration::from_secs(1),
            tests: ["one", "two"]
                .map(|name| (name.to_owned(), Duration::from_secs(2)))
                .into(),
            between: Duration::from_secs(3),
        };
        let mut log = Vec::new();
        let mut session = Session::new(&limits, &mut log, results, false);
        for (line, text) in lines {
            session.take(line((*text).to_owned())).unwrap();
        }
        let boot = session.off();
        (boot, String::from_utf8(log).unwrap())
    }

    fn console(text: &str) -> Said<'_> {
        (Line::Console, text)
    }

    fn wire(text: &str) -> Said<'_> {
        (Line::Wire, text)
    }

    fn boot(lines: &[Said<'_>]) -> Boot {
        progress(lines, Path::new("/nonexistent")).0
    }

    #[test]
    fn messages_go_to_the_test_between_whose_marks_they_are() {
        let (boot, log) = progress(
            &[
                console("[ 0.1] Linux"),
                wire("@@lab boot"),
                console("[ 1.0] lab: begin one"),
                wire("@@lab begin one"),
                wire("ok 1 x"),
                console("[ 1.1] WARNING: x"),
                wire("@@lab end one 0"),
                // The console lags.
                console("[ 1.2] late"),
                console("[ 1.3] lab: end one"),
                console("[ 1.4] between"),
                wire("@@lab begin two"),
                console("[ 1.5] lab: begin two"),
                wire("ok 1 y"),
            ],
            Path::new("/nonexistent"),
        );
        assert_eq!(boot.console, ["[ 0.1] Linux", "[ 1.4] between"]);
        assert_eq!(boot.tests.len(), 2);
        assert_eq!(boot.tests[0].console, ["[ 1.1] WARNING: x", "[ 1.2] late"]);
        assert_eq!(boot.tests[0].output, ["ok 1 x"]);
        assert_eq!(boot.tests[0].end, End::Exit(0));
        assert_eq!(boot.tests[1].output, ["ok 1 y"]);
        assert_eq!(boot.tests[1].end, End::Died);
        assert!(
            log.contains("| ok 1 x\n") && log.contains("\n[ 1.4] between\n"),
            "{log}"
        );
    }

    #[test]
    fn a_console_that_is_ahead_takes_nothing_from_a_test() {
        let boot = boot(&[
            wire("@@lab boot"),
            console("[ 1.0] lab: begin one"),
            console("[ 1.1] lab: end one"),
            wire("@@lab begin one"),
            console("[ 1.2] lab: begin two"),
            console("[ 1.3] BUG: of two"),
            wire("ok 1 x"),
            wire("@@lab end one 3"),
            wire("@@lab begin two"),
            wire("@@lab end two 0"),
        ]);
        let [one, two] = &boot.tests[..] else {
            panic!("two tests")
        };
        assert_eq!((one.end, two.end), (End::Exit(3), End::Exit(0)));
        assert_eq!(one.output, ["ok 1 x"]);
        assert!(one.console.is_empty() && two.console == ["[ 1.3] BUG: of two"]);
    }

    #[test]
    fn a_test_that_the_console_named_but_that_never_began_counts_as_dead() {
        let boot = boot(&[
            wire("@@lab boot"),
            console("[ 1.0] lab: begin one"),
            console("x"),
        ]);
        assert_eq!(boot.tests[0].end, End::Died);
        assert_eq!(boot.tests[0].console, ["x"]);
    }

    #[test]
    fn a_name_that_the_console_cut_short_is_no_test() {
        let boot = boot(&[
            wire("@@lab boot"),
            console("[ 1.0] lab: begin on"),
            wire("@@lab begin one"),
            wire("@@lab end one 0"),
        ]);
        assert_eq!(boot.tests.len(), 1);
        assert_eq!(boot.tests[0].end, End::Exit(0));
        assert_eq!(boot.console, ["[ 1.0] lab: begin on"]);
    }

    #[test]
    fn what_a_test_prints_is_not_taken_for_the_guest_s() {
        let lines = [
            "ok 1 begin",
            " @@lab done",
            "@@lab",
            "@@lab end x",
            "@@lab begin a b",
        ];
        let mut all = vec![wire("@@lab boot"), wire("@@lab begin one")];
        all.extend(lines.map(wire));
        all.push(console("[ 3.3] slab: 3 begin"));
        all.push(wire("@@lab end one 137"));
        let boot = boot(&all);
        assert_eq!(boot.tests[0].output, lines);
        assert_eq!(boot.tests[0].end, End::Exit(137));
        assert_eq!(boot.console, ["[ 3.3] slab: 3 begin"]);
    }

    #[test]
    fn files_come_whole_or_are_told() {
        // A file `a` that holds `b`.
        let archive = [
            "H4sIAAAAAAACA+3OMQ6DMAwFUM+cIkeIKhrOk14AKYX7EzpVDDC1EtJ7y7e+PbjG7+WujOMnu2N2",
            "j69576fyzJHyH36L9b3UllK0eV7O7q72N/UaAgAAAAAAAAAAgBvaAHARmooAKAAA",
        ];
        let results = tempfile::tempdir().unwrap();
        let file = results.path().join("a");
        let send = |lines: &[&str]| {
            let mut all = vec![wire("@@lab boot"), wire("@@lab begin one")];
            all.push(wire("@@lab files"));
            all.extend(lines.iter().map(|line| wire(line)));
            all.extend([wire("@@lab sent"), wire("@@lab end one 0")]);
            let (boot, _) = progress(&all, results.path());
            assert!(boot.tests[0].output.is_empty());
            boot.damaged.join("")
        };
        assert_eq!(send(&archive), "");
        assert_eq!(fs::read_to_string(&file).unwrap(), "b\n");
        let flipped = archive[0].replace("KYX7", "KYX8");
        for damaged in [
            &archive[..1],
            &["", archive[1]],
            &[&flipped, archive[1]],
            &["[ 3.1]"],
            &[],
        ] {
            assert!(send(damaged).contains("came damaged"), "{damaged:?}");
        }
    }
}
