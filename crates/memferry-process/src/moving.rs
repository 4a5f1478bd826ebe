// SPDX-License-Identifier: MIT OR Apache-2.0
//! The move of a process's pages: parts of a survey, dealt to threads, paced, counted by what became of each page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Process, Progress, Reason, Survey};
use memferry::move_pages::{Fate, Target, check_target, explain};
use memferry::{Count, MoveError, Outcome};

/// What is to be moved where.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProcessMove {
    /// Only pages of this node; `None`: of all nodes.
    pub from: Option<u32>,
    /// The target node.
    pub to: u32,
    /// Threads that call the kernel, at least 1.
    pub callers: usize,
    /// Bytes moved per second at most.
    pub bytes_per_second: Option<u64>,
    /// Also pages that other processes map (MPOL_MF_MOVE_ALL); needs CAP_SYS_NICE.
    pub shared: bool,
}

impl ProcessMove {
    /// Pages of all nodes, those that the process has alone, with one thread and as fast as it goes.
    pub fn new(to: u32) -> ProcessMove {
        ProcessMove {
            from: None,
            to,
            callers: 1,
            bytes_per_second: None,
            shared: false,
        }
    }
}

/// What became of the pages of a process.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ProcessResult {
    /// They lie on the target now.
    pub moved: Count,
    /// They lay there before.
    pub already_there: Count,
    /// They lie on a node from which nothing was to be moved.
    pub elsewhere: Count,
    /// They stayed on a wrong node.
    pub stayed: BTreeMap<Reason, Count>,
    /// Why it ended before all pages were dealt with, if it did.
    pub end: Option<End>,
    /// Bytes of the survey that were not dealt with then.
    pub left_bytes: u64,
    /// Time from the first system call to the last.
    pub elapsed: Duration,
}

/// Why a move ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The caller wished it.
    Cancelled,
    /// The process ended.
    ProcessEnded,
    /// The kernel refused to go on.
    Failed(MoveError),
}

impl ProcessResult {
    /// Pages that are on a wrong node, for whatever reason, but for those that were never looked at.
    pub fn stayed_bytes(&self) -> u64 {
        self.stayed.values().map(|count| count.bytes).sum()
    }

    fn book(&mut self, fate: &Fate, progress: &Progress) {
        let (folios, bytes) = (fate.folios(), fate.bytes as u64);
        match fate.outcome {
            // Gone since the survey, or holes of a part.
            Some(Outcome::NotPresent) => return,
            None => self.elsewhere.add(folios, bytes),
            Some(Outcome::AlreadyThere) => self.already_there.add(folios, bytes),
            Some(Outcome::Moved) => {
                self.moved.add(folios, bytes);
                progress.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Some(_) => self
                .stayed
                .entry(Reason::of(-fate.status))
                .or_default()
                .add(folios, bytes),
        }
        progress.looked_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Process {
    /// Moves the pages of a survey. When `cancel` is set, calls that have begun are finished and nothing is lost.
    ///
    /// # Errors
    /// No such node, not permitted, or the process has ended before anything was moved.
    pub fn move_pages(
        &self,
        survey: &Survey,
        options: &ProcessMove,
        progress: &Progress,
        cancel: &AtomicBool,
    ) -> Result<ProcessResult, MoveError> {
        let started = Instant::now();
        let target = self.target(options).map_err(|error| self.failed(error))?;
        let account = Mutex::new(ProcessResult::default());
        let limits = (cancel, options.bytes_per_second);
        let book = |fate: &Fate| {
            let account = account.lock();
            let mut account = account.unwrap_or_else(PoisonError::into_inner);
            account.book(fate, progress);
        };
        let ran = self.carry(survey, target, options.callers, limits, &book);
        let mut result = account.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.elapsed = started.elapsed();
        let looked = progress.looked_bytes.load(Ordering::Relaxed);
        result.end = match ran {
            // Whatever comes after the last part changes nothing.
            Ok(true) => None,
            _ if self.is_gone() => Some(End::ProcessEnded),
            Err(error) => Some(End::Failed(explain(error, options.to))),
            Ok(false) => Some(End::Cancelled),
        };
        if result.end.is_some() {
            result.left_bytes = survey.resident_bytes.saturating_sub(looked);
        }
        match result.end {
            Some(End::Failed(error)) if looked == 0 => Err(error),
            Some(End::ProcessEnded) if looked == 0 => Err(self.gone()),
            _ => Ok(result),
        }
    }

    fn target(&self, options: &ProcessMove) -> Result<Target, MoveError> {
        let node = check_target(self.pid, options.to, false)?;
        if options.shared {
            check_target(self.pid, options.to, true).map_err(|error| match error {
                MoveError::System { source, .. } => MoveError::System {
                    call: "move_pages with MPOL_MF_MOVE_ALL",
                    hint: "pages of other processes take CAP_SYS_NICE: be root, or leave them where they are",
                    source,
                },
                other => other,
            })?;
        }
        Ok(Target {
            pid: self.pid,
            from: options
                .from
                .map(|node| i32::try_from(node).unwrap_or(i32::MAX)),
            node,
            shared: options.shared,
        })
    }
}
