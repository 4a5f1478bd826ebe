// SPDX-License-Identifier: MIT OR Apache-2.0
//! A move of a process's pages as `memferry move --json` writes it, schema `memferry-move/2`.

use memferry::Count;
use memferry_process::{Census, End, ProcessResult, Survey};
use schemars::JsonSchema;
use serde::Serialize;

use super::cgroup::Cgroup;
use crate::cli::process::ProcessArgs;
use crate::failure::Failure;
use crate::file::Content;

/// A move, of all processes together; a page that two of them map counts twice.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "MoveFile")]
pub struct Description {
    /// Null with --pid.
    pub cgroup: Option<String>,
    /// Null: all nodes.
    pub from: Option<u32>,
    pub to: u32,
    pub dry_run: bool,
    pub processes: Vec<OneProcess>,
    /// Those of the cgroup that could not be looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    pub mappings: usize,
    pub resident_bytes: u64,
    /// With dry_run only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<OnNode>,
    /// Now on the target.
    pub moved: Pages,
    /// Before on the target.
    pub already_there: Pages,
    /// On a node that is not `from`.
    pub elsewhere: Pages,
    pub stayed: Vec<Stayed>,
    /// Null, or "interrupted", "process ended", "failed".
    pub end: Option<&'static str>,
    /// Not looked at because of that.
    pub left_bytes: u64,
    /// Null with dry_run.
    pub seconds: Option<f64>,
}

/// What was done with one process.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OneProcess {
    pub pid: u32,
    pub name: Option<String>,
    /// What it had when its move began.
    pub mappings: usize,
    /// The same.
    pub resident_bytes: u64,
    pub moved_bytes: u64,
    pub stayed_bytes: u64,
    pub end: Option<&'static str>,
}

/// A process whose pages are not in the account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Refused {
    pub pid: u32,
    pub why: String,
}

/// Pages on one node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OnNode {
    pub node: u32,
    #[serde(flatten)]
    pub all: Pages,
}

/// Some pages; a THP counts as one.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Pages {
    pub pages: u64,
    pub bytes: u64,
}

/// Pages that stayed for one reason.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Stayed {
    /// Its name.
    pub errno: &'static str,
    pub number: i32,
    #[serde(flatten)]
    pub all: Pages,
    pub why: &'static str,
    pub next: &'static str,
}

impl Pages {
    fn add(&mut self, count: &Count) {
        self.pages += count.folios;
        self.bytes += count.bytes;
    }
}

impl Content for Description {
    const SCHEMA: &'static str = "memferry-move/2";

    fn is_complete(&self) -> bool {
        self.end.is_none() && self.refused.is_empty()
    }
}

impl Description {
    /// What is to be done, before it is.
    pub fn new(args: &ProcessArgs, cgroup: Option<&Cgroup>) -> Self {
        Self {
            cgroup: cgroup.map(|of| of.name.clone()),
            from: args.from,
            to: args.to,
            dry_run: args.dry_run,
            ..Self::default()
        }
    }

    /// Adds a process, with nothing moved.
    fn add(&mut self, pid: u32, survey: &Survey) -> &mut OneProcess {
        self.mappings += survey.mappings;
        self.resident_bytes += survey.resident_bytes;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        self.processes.push(OneProcess {
            pid,
            name: name.map(|name| name.trim().to_owned()),
            mappings: survey.mappings,
            resident_bytes: survey.resident_bytes,
            moved_bytes: 0,
            stayed_bytes: 0,
            end: None,
        });
        let last = self.processes.len() - 1;
        &mut self.processes[last]
    }

    /// Adds a process that is not in the account yet, and why it will not be.
    pub fn refuse(&mut self, pid: u32, failure: &Failure) {
        let is_known = self.processes.last().is_some_and(|last| last.pid == pid);
        if let (Failure::Told(told), false) = (failure, is_known) {
            let why = told.why.clone();
            self.refused.push(Refused { pid, why });
        }
    }

    /// Adds where the pages of a process lie.
    pub fn count(&mut self, pid: u32, survey: &Survey, census: &Census) {
        self.add(pid, survey);
        for (&node, count) in &census.nodes {
            let new = || OnNode {
                node,
                all: Pages::default(),
            };
            found_or(&mut self.nodes, |of| of.node == node, new)
                .all
                .add(count);
        }
        self.nodes.sort_by_key(|of| of.node);
    }

    /// Adds what became of the pages of a process.
    pub fn account(&mut self, pid: u32, survey: &Survey, result: &ProcessResult) {
        let end = result.end.as_ref().map(|end| match end {
            End::Cancelled => "interrupted",
            End::ProcessEnded => "process ended",
            _ => "failed",
        });
        let process = self.add(pid, survey);
        process.moved_bytes = result.moved.bytes;
        process.stayed_bytes = result.stayed_bytes();
        process.end = end;
        self.moved.add(&result.moved);
        self.already_there.add(&result.already_there);
        self.elsewhere.add(&result.elsewhere);
        for (&reason, count) in &result.stayed {
            let number = reason.errno();
            let new = || Stayed {
                errno: reason.name(),
                number,
                all: Pages::default(),
                why: reason.why(),
                next: super::advice(reason),
            };
            found_or(&mut self.stayed, |of| of.number == number, new)
                .all
                .add(count);
        }
        self.stayed
            .sort_by_key(|of| std::cmp::Reverse(of.all.bytes));
        // A process of a cgroup may end; the others are moved all the same.
        let ended = self.cgroup.is_some() && matches!(result.end, Some(End::ProcessEnded));
        if !ended {
            self.end = self.end.or(end);
            self.left_bytes += result.left_bytes;
        }
        *self.seconds.get_or_insert(0.0) += result.elapsed.as_secs_f64();
    }
}

/// The entry that is meant, a new one if there is none.
fn found_or<T>(
    list: &mut Vec<T>,
    is_meant: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    let at = list.iter().position(is_meant).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}
