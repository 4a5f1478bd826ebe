// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot of a guest with a list of jobs: tells whose the lines are that it prints, holds it to
//! its time limits, and unpacks the files that it sends. What the lines say about success is for
//! `verdict`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::interrupted;
use crate::qemu::{Line, Next, Qemu};
use crate::wire::{self, Mark, Word};

/// How long the console's lines may lag behind the wire's.
const LAG: Duration = Duration::from_secs(2);

/// How long each part of a boot may take.
pub struct Limits {
    pub boot: Duration,
    /// The tests that there are, by name. Sending a test's files falls into its time.
    pub tests: Vec<(String, Duration)>,
    /// Between tests, and to go off after the last.
    pub between: Duration,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status, as a shell has it.
    Exit(i32),
    /// It was still running after its time.
    TimedOut(Duration),
    /// The machine went off.
    Died,
}

/// What a test did.
#[derive(Debug)]
pub struct Ran {
    pub name: String,
    pub output: Vec<String>,
    /// What the kernel said meanwhile.
    pub console: Vec<String>,
    pub end: End,
    pub took: Duration,
}

/// What a boot did.
#[derive(Debug)]
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
    pub log: &'a mut dyn Write,
    /// Where files go that the guest sends.
    pub results: &'a Path,
    /// Called with each line that a test prints.
    pub on_output: &'a mut dyn FnMut(&str),
    /// Called when a test begins: its name.
    pub on_begin: &'a mut dyn FnMut(&str),
}

/// Files on their way: size, sum, base64 so far.
type Files = (usize, String, Vec<String>);

/// What is known of a boot half-way.
struct Progress<'a> {
    boot: Boot,
    limits: &'a Limits,
    /// On the wire: the test that began and has not ended.
    running: Option<usize>,
    /// On the console, which may be ahead or behind: the test whose messages are coming.
    marked: Option<usize>,
    files: Option<Files>,
    /// Since when the current part of the boot lasts.
    since: Instant,
    done: bool,
}

impl Session<'_> {
    /// Follows `qemu` until it goes off or exceeds a limit.
    pub fn follow(&mut self, mut qemu: Qemu, limits: &Limits) -> Result<Boot> {
        let boot = Boot {
            console: Vec::new(),
            reached: None,
            tests: Vec::new(),
            complete: false,
            damaged: Vec::new(),
        };
        let mut now = Progress {
            boot,
            limits,
            running: None,
            marked: None,
            files: None,
            since: Instant::now(),
            done: false,
        };
        loop {
            if interrupted() {
                bail!("interrupted");
            }
            match qemu.next(Duration::from_millis(200)) {
                Next::Line(line) => self.take(&mut now, line)?,
                Next::Nothing => {}
                Next::Off => break,
            }
            let limit = now.limit();
            if now.since.elapsed() > limit {
                qemu.kill();
                self.drain(&mut now, &qemu)?;
                let _ = writeln!(self.log, "lab: killed after {} s", limit.as_secs());
                now.stop(End::TimedOut(limit));
                return Ok(now.boot);
            }
        }
        now.stop(End::Died);
        now.boot.complete = now.done;
        Ok(now.boot)
    }

    /// Takes what a killed machine had said.
    fn drain(&mut self, now: &mut Progress<'_>, qemu: &Qemu) -> Result<()> {
        while let Next::Line(line) = qemu.next(LAG) {
            self.take(now, line)?;
        }
        Ok(())
    }

    fn take(&mut self, now: &mut Progress<'_>, line: Line) -> Result<()> {
        match line {
            Line::Console(line) => {
                writeln!(self.log, "{line}")?;
                now.console(line);
            }
            Line::Wire(line) => self.wire(now, line)?,
        }
        Ok(())
    }

    fn wire(&mut self, now: &mut Progress<'_>, line: String) -> Result<()> {
        match wire::read(&line) {
            Some(Word::Boot) => {
                now.boot.reached = Some(now.since.elapsed());
                now.since = Instant::now();
            }
            Some(Word::Begin(name)) => {
                now.begin(name);
                (self.on_begin)(name);
            }
            Some(Word::End(_, status)) => now.end(End::Exit(status)),
            Some(Word::Files(size, sum)) => now.files = Some((size, sum.to_owned(), Vec::new())),
            Some(Word::Sent) => {
                if let Some((size, sum, lines)) = now.files.take() {
                    if let Err(error) = wire::unpack(&lines, size, &sum, self.results) {
                        now.boot.damaged.push(format!("{error:#}"));
                    }
                }
            }
            Some(Word::Done) => now.done = true,
            None => {
                if let Some((_, _, lines)) = &mut now.files {
                    lines.push(line);
                } else if let Some(test) = now.running {
                    writeln!(self.log, "| {line}")?;
                    (self.on_output)(&line);
                    now.boot.tests[test].output.push(line);
                }
            }
        }
        Ok(())
    }
}

impl Progress<'_> {
    /// The limit of the current part.
    fn limit(&self) -> Duration {
        if self.boot.reached.is_none() {
            return self.limits.boot;
        }
        let running = self.running.map(|test| &self.boot.tests[test].name);
        running
            .and_then(|name| self.known(name))
            .unwrap_or(self.limits.between)
    }

    /// The limit of the test `name`, if there is one of that name.
    fn known(&self, name: &str) -> Option<Duration> {
        let mut tests = self.limits.tests.iter();
        tests
            .find(|(known, _)| known == name)
            .map(|(_, limit)| *limit)
    }

    /// The test `name`, whether the wire or the console names it first.
    fn test(&mut self, name: &str) -> usize {
        let tests = &mut self.boot.tests;
        if let Some(known) = tests.iter().position(|test| test.name == name) {
            return known;
        }
        tests.push(Ran {
            name: name.to_owned(),
            output: Vec::new(),
            console: Vec::new(),
            end: End::Died,
            took: Duration::ZERO,
        });
        tests.len() - 1
    }

    fn begin(&mut self, name: &str) {
        self.running = Some(self.test(name));
        self.since = Instant::now();
    }

    fn end(&mut self, end: End) {
        if let Some(test) = self.running.take() {
            self.boot.tests[test].end = end;
            self.boot.tests[test].took = self.since.elapsed();
        }
        self.since = Instant::now();
    }

    /// The machine is off: a test that ran then ended so.
    fn stop(&mut self, end: End) {
        self.end(end);
    }

    fn console(&mut self, line: String) {
        match wire::mark(&line) {
            // A console can lose bytes. What is no test's name is a message.
            Some(Mark::Begin(name)) if self.known(name).is_some() => {
                let name = name.to_owned();
                self.marked = Some(self.test(&name));
            }
            Some(Mark::End(_)) => self.marked = None,
            Some(Mark::Begin(_)) | None => match self.marked {
                Some(test) => self.boot.tests[test].console.push(line),
                None => self.boot.console.push(line),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(lines: &[Line]) -> (Boot, String) {
        let limits = Limits {
            boot: Duration::from_secs(1),
            tests: ["one", "two"]
                .map(|name| (name.to_owned(), Duration::from_secs(2)))
                .to_vec(),
            between: Duration::from_secs(3),
        };
        let boot = Boot {
            console: Vec::new(),
            reached: None,
            tests: Vec::new(),
            complete: false,
            damaged: Vec::new(),
        };
        let mut now = Progress {
            boot,
            limits: &limits,
            running: None,
            marked: None,
            files: None,
            since: Instant::now(),
            done: false,
        };
        let mut log = Vec::new();
        let mut session = Session {
            log: &mut log,
            results: Path::new("/nonexistent"),
            on_output: &mut |_| {},
            on_begin: &mut |_| {},
        };
        for line in lines {
            let line = match line {
                Line::Console(text) => Line::Console(text.clone()),
                Line::Wire(text) => Line::Wire(text.clone()),
            };
            session.take(&mut now, line).unwrap();
        }
        now.stop(End::Died);
        (now.boot, String::from_utf8(log).unwrap())
    }

    fn console(text: &str) -> Line {
        Line::Console(text.to_owned())
    }

    fn wire(text: &str) -> Line {
        Line::Wire(text.to_owned())
    }

    #[test]
    fn messages_go_to_the_test_between_whose_marks_they_are() {
        let (boot, log) = progress(&[
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
        ]);
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
        let (boot, _) = progress(&[
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
        let (boot, _) = progress(&[
            wire("@@lab boot"),
            console("[ 1.0] lab: begin one"),
            console("x"),
        ]);
        assert_eq!(boot.tests[0].end, End::Died);
        assert_eq!(boot.tests[0].console, ["x"]);
    }

    #[test]
    fn a_name_that_the_console_cut_short_is_no_test() {
        let (boot, _) = progress(&[
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
    fn damaged_files_are_told() {
        let (boot, _) = progress(&[
            wire("@@lab boot"),
            wire("@@lab begin one"),
            wire("@@lab files 4 00"),
            wire("TWVt"),
            wire("@@lab sent"),
            wire("@@lab end one 0"),
        ]);
        assert_eq!(boot.damaged.len(), 1);
        assert!(boot.tests[0].output.is_empty());
    }
}
