// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's history for `memferry report`: a file of JSON, one record a line, that keeps a day in a bounded number of bytes.
//!
//! Two parts of half the bytes each: a full one takes the place of the older one. A failure is told and tried again at the
//! next record; it keeps the daemon from nothing.

#![expect(missing_docs, reason = "fields whose names say it")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::HistoryPlace;
use crate::error::{DaemonError, file};
use crate::status::Status;

/// Seconds between two records, unless a day of them is more than half the bytes.
const EVERY: f64 = 60.0;
/// How each head begins.
const BEGIN: &str = "{\"schema\":\"";
/// What is kept at least.
const DAY: f64 = 86_400.0;

/// What the daemon did until a moment. Totals are those since it began. Of another version fields may be missing or unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DaemonRecord")]
pub struct Record {
    /// When, UTC (RFC 3339).
    pub date: String,
    /// Seconds until the next record; null for the last one of a daemon that was asked to end.
    pub next: Option<f64>,
    #[serde(flatten)]
    pub status: Status,
}

impl Record {
    fn new(status: &Status, now: SystemTime, next: Option<f64>) -> Self {
        Self {
            date: humantime::format_rfc3339_seconds(now).to_string(),
            next,
            status: status.clone(),
        }
    }

    fn line(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The older part of a history.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The history that is being written.
pub(crate) struct History {
    path: PathBuf,
    bytes: u64,
    /// Makes the first line of a file, and of what a daemon adds to one.
    head: fn(&Path) -> String,
    root: PathBuf,
    is_begun: bool,
    /// The status's seconds at which the next record is due.
    due: f64,
    /// Why the last record was not written.
    pub(crate) trouble: Option<String>,
}

impl History {
    pub(crate) fn new(place: &HistoryPlace, root: &Path, head: fn(&Path) -> String) -> Self {
        let below = place.file.strip_prefix("/").unwrap_or(&place.file);
        Self {
            path: root.join(below),
            bytes: place.bytes,
            head,
            root: root.to_owned(),
            is_begun: false,
            due: 0.0,
            trouble: None,
        }
    }

    /// Adds a record if one is due, or if it is the last. Returns whether one failed.
    pub(crate) fn keep(&mut self, status: &Status, now: SystemTime, is_last: bool) -> bool {
        if !is_last && status.seconds < self.due {
            return false;
        }
        let mut next = EVERY;
        let added = Record::new(status, now, None).line().and_then(|line| {
            next = EVERY.max((DAY * line.len() as f64 / (self.bytes / 2) as f64).ceil());
            self.add(&Record::new(status, now, (!is_last).then_some(next)).line()?)
        });
        self.due = status.seconds + next;
        match added.map_err(file(&self.path, "keep the history")) {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    tracing::info!("the history goes on");
                }
                false
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &DaemonError) -> bool {
        // Once, not for every record.
        if self.trouble.is_none() {
            tracing::error!("{error}; it is tried again");
        }
        self.trouble = Some(error.to_string());
        true
    }

    /// What is there already is a history, or is left alone; of one with more bytes before, what is too large goes.
    fn look(&self) -> io::Result<()> {
        for path in [self.path.clone(), older(&self.path)] {
            let Ok(about) = fs::metadata(&path) else {
                continue;
            };
            let mut first = Vec::new();
            // A pipe could be waited for.
            if about.is_file() {
                let mut begin = File::open(&path)?.take(BEGIN.len() as u64);
                begin.read_to_end(&mut first)?;
            }
            if !about.is_file() || !BEGIN.as_bytes().starts_with(&first) {
                let what = format!("{} is there and no history", path.display());
                return Err(io::Error::other(what));
            }
            if about.len() > self.bytes / 2 {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, line: &str) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        if !self.is_begun {
            self.look()?;
        }
        let (mut part, mut length) = open(&self.path)?;
        let make_head = || (self.head)(&self.root) + "\n";
        let mut head = match self.is_begun {
            true => String::new(),
            false => make_head(),
        };
        if length > 0 && length + (1 + head.len() + line.len()) as u64 > self.bytes / 2 {
            fs::rename(&self.path, older(&self.path))?;
            (part, length) = open(&self.path)?;
        }
        if length == 0 && head.is_empty() {
            head = make_head();
        }
        let mut text = String::new();
        if length > 0 && !ends_whole(&part, length)? {
            // A killed daemon, or a full disk, has cut the last line.
            text.push('\n');
        }
        text += &head;
        text += line;
        if length + text.len() as u64 > self.bytes / 2 {
            return Err(io::Error::other("one record is more than half of `bytes`"));
        }
        if let Err(error) = part.write_all(text.as_bytes()) {
            // What was written of it; if it stays, it is a line that is cut.
            let _ = part.set_len(length);
            return Err(error);
        }
        self.is_begun = true;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let part = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let length = part.metadata()?.len();
    Ok((part, length))
}

fn ends_whole(part: &File, length: u64) -> io::Result<bool> {
    let mut last = [0];
    part.read_exact_at(&mut last, length - 1)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{GroupStatus, UsedWithin};
    use std::time::Duration;

    /// More than a machine of today has, and moves in a day.
    const TERABYTES: u64 = 1 << 44;

    fn status(groups: usize, seconds: f64) -> Status {
        let group = |number| GroupStatus {
            name: format!("group-{number}"),
            resident: TERABYTES,
            unmovable: ["locked", "hugetlb", "copies"]
                .map(|reason| (reason.to_owned(), TERABYTES))
                .into(),
            top: TERABYTES,
            hot: TERABYTES,
            used_within: Some(UsedWithin {
                second: TERABYTES,
                ten_seconds: TERABYTES,
                minute: TERABYTES,
                ten_minutes: TERABYTES,
                hour: TERABYTES,
            }),
            share: TERABYTES,
            protect: TERABYTES,
            limit: Some(TERABYTES),
            promoted: TERABYTES,
            demoted: TERABYTES,
            stayed: TERABYTES,
            stayed_reasons: ["EBUSY", "EACCES"]
                .map(|reason| (reason.to_owned(), TERABYTES))
                .into(),
            memory_pressure: Some(12.25),
            cpu_pressure: Some(12.25),
            pressure_rate: Some(1000),
            wasted: TERABYTES,
            thrashed: TERABYTES,
            ..GroupStatus::default()
        };
        Status {
            seconds,
            groups: (0..groups).map(group).collect(),
            ..Status::default()
        }
    }

    fn history(root: &Path, bytes: u64) -> History {
        let place = HistoryPlace {
            file: "/var/lib/memferry/history.jsonl".into(),
            bytes,
        };
        History::new(&place, root, |_| "{\"schema\":\"x\"}".to_owned())
    }

    fn at(seconds: f64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds)
    }

    /// Heads and records of a part.
    fn lines(path: &Path) -> (usize, Vec<Record>) {
        let text = fs::read_to_string(path).unwrap_or_default();
        let records = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let heads = text.lines().filter(|line| line.contains("\"schema\""));
        (heads.count(), records.collect())
    }

    /// Six days, with 7 groups in the default's bytes, and with less than a day at one record a minute takes.
    #[test]
    fn the_bytes_are_bounded_and_the_last_day_is_there() {
        for (bytes, groups, least) in [
            (16 << 20, 7, 60.0),
            (1 << 20, 2, 100.0),
            (1 << 20, 40, 600.0),
        ] {
            let root = tempfile::tempdir().unwrap();
            let mut history = history(root.path(), bytes);
            let size = |path: &Path| fs::metadata(path).map_or(0, |of| of.len());
            let (mut seconds, mut largest) = (0.0, 0);
            while seconds < 6.0 * DAY {
                assert!(!history.keep(&status(groups, seconds), at(seconds), false));
                let now = size(&history.path) + size(&older(&history.path));
                assert!(now <= bytes, "{now} of {bytes} bytes");
                largest = now.max(largest);
                let next = history.due - seconds;
                assert!(
                    next >= least && (next == EVERY || bytes == 1 << 20),
                    "{next}"
                );
                seconds = history.due;
                let kept = [older(&history.path), history.path.clone()];
                if seconds > DAY && (seconds as u64 / 60) % 977 == 0 {
                    let first = kept.iter().find_map(|path| lines(path).1.first().cloned());
                    let first = first.unwrap().status.seconds;
                    assert!(first <= seconds - 0.98 * DAY, "{first} at {seconds}");
                }
            }
            assert!(
                largest > bytes / 2 || bytes > 1 << 20,
                "both parts were in use"
            );
        }
    }

    #[test]
    fn a_line_that_was_cut_ends_and_the_next_daemon_says_its_head() {
        let root = tempfile::tempdir().unwrap();
        let mut killed = history(root.path(), 1 << 20);
        killed.keep(&status(1, 0.0), at(0.0), false);
        killed.keep(&status(1, 600.0), at(600.0), false);
        let path = killed.path.clone();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 20]).unwrap();
        let mut next = history(root.path(), 1 << 20);
        next.keep(&status(1, 0.0), at(700.0), false);
        next.keep(&status(1, 30.0), at(730.0), true);
        let (heads, records) = lines(&path);
        let told: Vec<(f64, Option<f64>)> = (records.iter())
            .map(|of| (of.status.seconds, of.next))
            .collect();
        let minute = Some(60.0);
        let next = records[0].next;
        assert!(next > minute, "a day of 1 MiB");
        assert_eq!(
            (heads, told),
            (2, vec![(0.0, next), (0.0, next), (30.0, None)])
        );
    }

    #[test]
    fn what_cannot_be_written_is_told_once_and_tried_again() {
        let root = tempfile::tempdir().unwrap();
        let mut history = history(root.path(), 1 << 20);
        fs::create_dir_all(&history.path).unwrap();
        assert!(history.keep(&status(1, 0.0), at(0.0), false));
        assert!(history.trouble.as_ref().unwrap().contains("history.jsonl"));
        assert!(!history.keep(&status(1, 1.0), at(1.0), false), "not due");
        assert!(history.keep(&status(1, history.due), at(60.0), false));
        fs::remove_dir(&history.path).unwrap();
        assert!(!history.keep(&status(1, history.due), at(120.0), false));
        assert!(history.trouble.is_none() && lines(&history.path).1.len() == 1);
        // A record that is too large harms nothing that was kept.
        assert!(history.keep(&status(5000, history.due), at(180.0), false));
        assert_eq!(
            lines(&older(&history.path)).1.len() + lines(&history.path).1.len(),
            1
        );
    }

    #[test]
    fn fewer_bytes_hold_at_once_and_what_is_no_history_stays() {
        let root = tempfile::tempdir().unwrap();
        let place = history(root.path(), 1 << 20);
        fs::create_dir_all(place.path.parent().unwrap()).unwrap();
        let large = BEGIN.to_owned() + &"x".repeat(600 << 10);
        fs::write(older(&place.path), large).unwrap();
        let mut small = history(root.path(), 1 << 20);
        assert!(!small.keep(&status(1, 0.0), at(0.0), false));
        assert!(!older(&place.path).exists() && lines(&place.path).1.len() == 1);
        for path in [older(&place.path), place.path.clone()] {
            fs::write(&path, "root:x:0:0").unwrap();
            let mut other = history(root.path(), 1 << 20);
            assert!(other.keep(&status(1, 0.0), at(0.0), false));
            assert!(other.trouble.unwrap().contains("no history"));
            assert_eq!(fs::read_to_string(&path).unwrap(), "root:x:0:0");
            fs::remove_file(&path).unwrap();
        }
    }
}
