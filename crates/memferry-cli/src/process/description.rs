// SPDX-License-Identifier: MIT OR Apache-2.0
//! A move of a process's pages as `memferry move --json` writes it, schema `memferry-move/1`.
//!
//! ```text
//! schema            "memferry-move/1"
//! pid, name, from (null: all nodes), to, dry_run
//! mappings, resident_bytes     what the process had when the move began
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

use crate::cli::process::ProcessArgs;

/// A move. The fields are explained at the head of this file.
#[derive(Debug, Serialize)]
pub struct Description {
    pub schema: &'static str,
    pub pid: u32,
    pub name: Option<String>,
    pub from: Option<u32>,
    pub to: u32,
    pub dry_run: bool,
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

impl From<Count> for Pages {
    fn from(count: Count) -> Self {
        Self {
            pages: count.folios,
            bytes: count.bytes,
        }
    }
}

impl Description {
    /// What is to be done, before it is.
    pub fn new(args: &ProcessArgs, survey: &Survey) -> Self {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", args.pid)).ok();
        Self {
            schema: "memferry-move/1",
            pid: args.pid,
            name: name.map(|name| name.trim().to_owned()),
            from: args.from,
            to: args.to,
            dry_run: args.dry_run,
            mappings: survey.mappings,
            resident_bytes: survey.resident_bytes,
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

    /// Adds where the pages lie.
    pub fn count(&mut self, census: &Census) {
        let nodes = super::by_node(census);
        self.nodes = nodes
            .map(|(node, pages, bytes)| OnNode { node, pages, bytes })
            .collect();
    }

    /// Adds what became of the pages.
    pub fn account(&mut self, result: &ProcessResult) {
        self.moved = result.moved.into();
        self.already_there = result.already_there.into();
        self.elsewhere = result.elsewhere.into();
        let mut stayed: Vec<_> = result.stayed.iter().collect();
        stayed.sort_by_key(|(_, count)| std::cmp::Reverse(count.bytes));
        let stayed = stayed.into_iter().map(|(&reason, count)| Stayed {
            errno: reason.name(),
            number: reason.errno(),
            pages: count.folios,
            bytes: count.bytes,
            why: reason.why(),
            next: super::advice(reason),
        });
        self.stayed = stayed.collect();
        self.end = result.end.as_ref().map(|end| match end {
            End::Cancelled => "interrupted",
            End::ProcessEnded => "process ended",
            _ => "failed",
        });
        self.left_bytes = result.left_bytes;
        self.seconds = Some(result.elapsed.as_secs_f64());
    }
}
