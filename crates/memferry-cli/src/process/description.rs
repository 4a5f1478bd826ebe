// SPDX-License-Identifier: MIT OR Apache-2.0
//! A move of a process's pages as `memferry move --json` writes it, schema `memferry-move/2`.
//!
//! ```text
//! schema            "memferry-move/2"
//! cgroup (null with --pid), from (null: all nodes), to, dry_run
//! processes[]       pid, name, mappings and resident_bytes (what it had when its move began), moved_bytes, stayed_bytes, end
//! Of all processes together; a page that two of them map counts twice:
//! mappings, resident_bytes
//! nodes[]           with dry_run only: node, pages, bytes
//! moved, already_there, elsewhere    {pages, bytes}: now on the target, before on the target, on a node that is not
//!                   `from`; a THP counts as one page
//! stayed[]          errno (its name), number, pages, bytes, why, next
//! end               null, or "interrupted", "process ended", "failed"
//! left_bytes        not looked at because of that
//! seconds           null with dry_run
//! ```

use memferry::Count;
use memferry::process::{Census, End, ProcessResult, Survey};
use serde::Serialize;

use super::cgroup::Cgroup;
use crate::cli::process::ProcessArgs;

/// A move. The fields are explained at the head of this file.
#[derive(Debug, Serialize)]
pub struct Description {
    pub schema: &'static str,
    pub cgroup: Option<String>,
    pub from: Option<u32>,
    pub to: u32,
    pub dry_run: bool,
    pub processes: Vec<OneProcess>,
    pub mappings: usize,
    pub resident_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<OnNode>,
    pub moved: Pages,
    pub already_there: Pages,
    pub elsewhere: Pages,
    pub stayed: Vec<Stayed>,
    pub end: Option<&'static str>,
    pub left_bytes: u64,
    pub seconds: Option<f64>,
}

/// What was done with one process.
#[derive(Debug, Serialize)]
pub struct OneProcess {
    pub pid: u32,
    pub name: Option<String>,
    pub mappings: usize,
    pub resident_bytes: u64,
    pub moved_bytes: u64,
    pub stayed_bytes: u64,
    pub end: Option<&'static str>,
}

/// Pages on one node.
#[derive(Debug, Serialize)]
pub struct OnNode {
    pub node: u32,
    pub pages: u64,
    pub bytes: u64,
}

/// Some pages.
#[derive(Debug, Default, Serialize)]
pub struct Pages {
    pub pages: u64,
    pub bytes: u64,
}

/// Pages that stayed for one reason.
#[derive(Debug, Serialize)]
pub struct Stayed {
    pub errno: &'static str,
    pub number: i32,
    pub pages: u64,
    pub bytes: u64,
    pub why: &'static str,
    pub next: &'static str,
}

impl Pages {
    fn add(&mut self, count: &Count) {
        self.pages += count.folios;
        self.bytes += count.bytes;
    }
}

impl Description {
    /// What is to be done, before it is.
    pub fn new(args: &ProcessArgs, cgroup: Option<&Cgroup>) -> Self {
        Self {
            schema: "memferry-move/2",
            cgroup: cgroup.map(|of| of.name.clone()),
            from: args.from,
            to: args.to,
            dry_run: args.dry_run,
            processes: Vec::new(),
            mappings: 0,
            resident_bytes: 0,
            nodes: Vec::new(),
            moved: Pages::default(),
            already_there: Pages::default(),
            elsewhere: Pages::default(),
            stayed: Vec::new(),
            end: None,
            left_bytes: 0,
            seconds: None,
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

    /// Adds where the pages of a process lie.
    pub fn count(&mut self, pid: u32, survey: &Survey, census: &Census) {
        self.add(pid, survey);
        for (&node, count) in &census.nodes {
            let at = self.nodes.iter_mut().find(|of| of.node == node);
            match at {
                Some(of) => {
                    of.pages += count.folios;
                    of.bytes += count.bytes;
                }
                None => self.nodes.push(OnNode {
                    node,
                    pages: count.folios,
                    bytes: count.bytes,
                }),
            }
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
            match self.stayed.iter_mut().find(|of| of.number == number) {
                Some(of) => {
                    of.pages += count.folios;
                    of.bytes += count.bytes;
                }
                None => self.stayed.push(Stayed {
                    errno: reason.name(),
                    number,
                    pages: count.folios,
                    bytes: count.bytes,
                    why: reason.why(),
                    next: super::advice(reason),
                }),
            }
        }
        self.stayed.sort_by_key(|of| std::cmp::Reverse(of.bytes));
        // A process of a cgroup may end; the others are moved all the same.
        let ended = self.cgroup.is_some() && matches!(result.end, Some(End::ProcessEnded));
        if !ended {
            self.end = end;
            self.left_bytes += result.left_bytes;
        }
        *self.seconds.get_or_insert(0.0) += result.elapsed.as_secs_f64();
    }
}
