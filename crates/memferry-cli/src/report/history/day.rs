// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last day of a daemon's history: its records, what was done between them, and where none was kept.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Sub;
use std::path::Path;
use std::time::UNIX_EPOCH;

use memferry_daemon::Status;
use memferry_daemon::history::{Record, older};
use memferry_daemon::status::GroupStatus;
use memferryd::files::History;
use serde::Deserialize;

use crate::failure::{Failure, OrFail};
use crate::file::Content;
use crate::results::file_name;
use crate::schema::Host;

/// Seconds that are drawn.
const DAY: f64 = 86_400.0;
/// Seconds until the next record that the daemon means where it does not say.
const EVERY: f64 = 60.0;
/// A first line is some kilobytes.
const LONGEST_HEAD: u64 = 1 << 20;

/// What a daemon recorded.
#[derive(Default)]
pub struct Day {
    /// The file's name without its folder.
    pub name: String,
    pub host: Option<Host>,
    pub steps: Vec<Step>,
    pub gaps: Vec<Gap>,
    /// Seconds since 1970 at which a daemon began.
    pub starts: Vec<f64>,
    /// Lines without a record that can be read: a kill or a full disk cut them, or another version wrote them.
    pub left_out: usize,
}

/// A record and what was done since the one before; times are seconds since 1970.
pub struct Step {
    pub from: f64,
    pub at: f64,
    /// Whether the line of records ends before it.
    pub is_after_gap: bool,
    /// Whether a daemon began with it.
    pub is_start: bool,
    pub status: Status,
    pub done: Done,
}

impl Step {
    /// Since when it is known how things went: not over a gap in the records of one daemon, although its totals are.
    pub fn known_from(&self) -> f64 {
        match self.is_after_gap && !self.is_start {
            true => self.at,
            false => self.from,
        }
    }

    /// Seconds that it tells of.
    pub fn seconds(&self) -> f64 {
        self.at - self.known_from()
    }
}

/// Bytes that moved and CPU time that it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    pub groups: Vec<Moved>,
    pub kernel_promoted: u64,
    pub kernel_demoted: u64,
    pub cpu_seconds: f64,
    /// None where that cannot be told.
    pub source_seconds: Option<f64>,
}

/// Of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    pub name: String,
    pub promoted: u64,
    pub demoted: u64,
    pub stayed: u64,
    pub wasted: u64,
    pub thrashed: u64,
}

/// A time without records.
pub struct Gap {
    pub from: f64,
    pub to: f64,
    pub why: &'static str,
}

#[derive(Deserialize)]
struct Head {
    schema: String,
    /// Of an older version it may lack what a [`Host`] has.
    host: Option<serde_json::Value>,
}

/// Whether a file begins as a history does.
pub fn is_history(path: &Path) -> bool {
    let mut line = String::new();
    let read = File::open(path).and_then(|file| {
        let head = BufReader::new(file.take(LONGEST_HEAD));
        head.take(LONGEST_HEAD).read_line(&mut line)
    });
    let head = serde_json::from_str::<Head>(&line);
    read.is_ok() && head.is_ok_and(|head| head.schema.starts_with("memferry-history/"))
}

/// Reads the last day of a history, with its older part where that lies beside it.
pub fn load(path: &Path) -> Result<Day, Failure> {
    let mut reader = Reader::default();
    for part in [older(path), path.to_owned()] {
        if part != path && !part.exists() {
            continue;
        }
        let what = format!("cannot use {}", part.display());
        let file = File::open(&part).or_fail(&what, "give a file that may be read")?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let length = lines.read_until(b'\n', &mut line);
            if length.or_fail(&what, "give a daemon's history")? == 0 {
                break;
            }
            reader.take(number, &line);
        }
    }
    if reader.records.is_empty() {
        let what = format!("cannot draw {}", path.display());
        return Err(match reader.why {
            Some(why) => Failure::new(
                what,
                why,
                "draw it with the version of memferry that wrote it",
            ),
            None => Failure::new(
                what,
                "it has no record yet",
                "wait until the daemon has run for a minute",
            ),
        });
    }
    Ok(reader.day(file_name(path)))
}

/// A record and its seconds since 1970.
fn dated(line: serde_json::Value) -> Result<(f64, Record), String> {
    let record: Record = serde_json::from_value(line).map_err(|error| error.to_string())?;
    let at = humantime::parse_rfc3339(&record.date)
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .ok_or_else(|| format!("{:?} is no date", record.date))?;
    Ok((at.as_secs_f64(), record))
}

#[derive(Default)]
struct Reader {
    host: Option<Host>,
    /// Of the last day, and one before.
    records: VecDeque<(f64, Record)>,
    left_out: usize,
    /// Why the last of them was left out.
    why: Option<String>,
    /// The schema of the records that follow, if it is not known.
    unknown: Option<String>,
}

impl Reader {
    fn take(&mut self, number: usize, line: &[u8]) {
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else {
            // The daemon may be writing the last one now.
            self.left_out += usize::from(line.ends_with(b"\n"));
            return;
        };
        if value.get("schema").is_some() {
            return self.head(value);
        }
        let read = match &self.unknown {
            Some(schema) => Err(format!(
                "its schema is {schema:?}, not {:?}",
                History::SCHEMA
            )),
            None => dated(value),
        };
        match read {
            Ok((at, record)) => {
                self.records.push_back((at, record));
                while self.records.get(1).is_some_and(|next| next.0 < at - DAY) {
                    self.records.pop_front();
                }
            }
            Err(why) => {
                self.left_out += 1;
                self.why = Some(format!("line {number}: {why}"));
            }
        }
    }

    fn head(&mut self, value: serde_json::Value) {
        let head: Option<Head> = serde_json::from_value(value).ok();
        let (schema, host) = head.map_or_else(Default::default, |head| (head.schema, head.host));
        self.unknown = (schema != History::SCHEMA).then_some(schema);
        let host = host.and_then(|host| serde_json::from_value(host).ok());
        self.host = host.or(self.host.take());
    }

    fn day(self, name: String) -> Day {
        let mut day = Day {
            name,
            host: self.host,
            left_out: self.left_out,
            ..Day::default()
        };
        let end = self.records.back().map_or(0.0, |record| record.0);
        let mut before: Option<&(f64, Record)> = None;
        for now in &self.records {
            let (at, record) = now;
            if *at >= end - DAY {
                day.add(before, *at, record);
            }
            before = Some(now);
        }
        day
    }
}

impl Day {
    fn add(&mut self, before: Option<&(f64, Record)>, at: f64, record: &Record) {
        let status = &record.status;
        let same = before.filter(|(then, of)| {
            of.status.pid == status.pid && of.status.seconds <= status.seconds && *then <= at
        });
        // What a daemon did before the first record that is left is in its totals, and not of this day.
        let is_start = same.is_none() && (before.is_some() || status.seconds <= EVERY);
        let from = match same {
            Some((then, _)) => *then,
            None if is_start => at - status.seconds,
            None => at,
        };
        let mut is_after_gap = false;
        if let Some((then, last)) = before {
            let silent = if same.is_some() {
                at - then
            } else {
                from - then
            };
            // Half as long again: a round may be late. Of a clock that was set back nothing is known.
            is_after_gap = silent.abs() > 1.5 * last.next.unwrap_or(EVERY);
            let why = match (same.is_some(), silent < 0.0, last.next) {
                (_, true, _) => "the clock was set back",
                (true, ..) => "the daemon ran and kept none: no space, or the machine slept",
                (false, _, None) => "the daemon was stopped",
                (false, _, Some(_)) => "the daemon was killed, or the machine went down",
            };
            if is_after_gap && !self.steps.is_empty() {
                let (from, to) = (*then, if same.is_some() { at } else { from });
                self.gaps.push(Gap { from, to, why });
            }
        }
        if is_start {
            self.starts.push(from);
        }
        let old = match (same, is_start) {
            (Some((_, old)), _) => Some(&old.status),
            (None, true) => None,
            (None, false) => Some(status),
        };
        self.steps.push(Step {
            from,
            at,
            is_after_gap,
            is_start,
            status: status.clone(),
            done: Done::between(old, status),
        });
    }

    /// From when to when, seconds since 1970.
    pub fn span(&self) -> (f64, f64) {
        let from = self.steps.iter().map(|step| step.from);
        let to = self.steps.iter().map(|step| step.at);
        (from.fold(f64::INFINITY, f64::min), to.fold(0.0, f64::max))
    }

    /// Seconds of the span without records.
    pub fn missing(&self) -> f64 {
        let gaps = self.gaps.iter().map(|gap| gap.to - gap.from);
        gaps.filter(|seconds| *seconds > 0.0).sum()
    }

    /// Seconds that records tell of.
    pub fn known(&self) -> f64 {
        let (from, to) = self.span();
        to - from - self.missing()
    }

    /// What is lacking, in a sentence.
    pub fn incomplete(&self) -> Option<String> {
        (!self.gaps.is_empty() || self.left_out > 0).then(|| {
            let missing = super::duration(self.missing());
            match self.left_out {
                0 => format!("NOT COMPLETE: no record of {missing}."),
                lines => format!(
                    "NOT COMPLETE: no record of {missing}; lines that cannot be read and are left out: {lines}."
                ),
            }
        })
    }
}

/// What a total grew by; it begins anew where the configuration or the source changed.
fn grown<T: PartialOrd + Copy + Sub<Output = T>>(now: T, before: T) -> T {
    if now >= before { now - before } else { now }
}

impl Done {
    /// Since an older status of the same daemon, or since it began.
    fn between(old: Option<&Status>, now: &Status) -> Self {
        let group = |of: &GroupStatus| {
            let old = old.and_then(|old| old.groups.iter().find(|old| old.name == of.name));
            let since = |get: fn(&GroupStatus) -> u64| grown(get(of), old.map_or(0, get));
            Moved {
                name: of.name.clone(),
                promoted: since(|of| of.promoted),
                demoted: since(|of| of.demoted),
                stayed: since(|of| of.stayed),
                wasted: since(|of| of.wasted),
                thrashed: since(|of| of.thrashed),
            }
        };
        // The kernel's are since boot, so that a daemon's first says nothing.
        let kernel = |get: fn(&Status) -> Option<u64>| {
            get(now)
                .zip(old.and_then(get))
                .map_or(0, |(now, old)| grown(now, old))
        };
        let source = now.source.cpu_seconds.map(|seconds| {
            let same = old.filter(|old| old.source.name == now.source.name);
            grown(
                seconds,
                same.and_then(|old| old.source.cpu_seconds).unwrap_or(0.0),
            )
        });
        Self {
            groups: now.groups.iter().map(group).collect(),
            kernel_promoted: kernel(|of| of.kernel_promoted),
            kernel_demoted: kernel(|of| of.kernel_demoted),
            cpu_seconds: grown(now.cpu_seconds, old.map_or(0.0, |old| old.cpu_seconds)),
            source_seconds: source,
        }
    }

    /// A sum over the groups.
    pub fn sum(&self, get: fn(&Moved) -> u64) -> u64 {
        self.groups.iter().map(get).sum()
    }

    /// Bytes that went up, by the daemon or the kernel.
    pub fn up(&self) -> u64 {
        self.sum(|of| of.promoted) + self.kernel_promoted
    }

    pub fn down(&self) -> u64 {
        self.sum(|of| of.demoted) + self.kernel_demoted
    }
}

#[cfg(test)]
#[path = "day_tests.rs"]
pub mod tests;
