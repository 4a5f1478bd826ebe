// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same move through move_pages(2): any process, any kernel, two nodes or more, in parallel callers.
//!
//! [`move_range`] moves a range and accounts for all of it; `part` makes its system calls.

mod part;

pub(crate) use part::{Call, Fate, PART, Target};

use crate::error::{MoveError, check_range};
use crate::options::MoveOptions;
use crate::pace::Pace;
use crate::result::{Account, ListResult, MoveResult, Outcome};
use crate::sync::Unpoisoned;
use crate::sys::{errno, page_size};
use crate::vma;
use memferry_linux::numa;
use memferry_linux::pagemap::Pagemap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Moves the pages of `range` of process `pid` (0: this one) to `node` with `callers` threads over disjoint parts.
///
/// Any private, shared or file memory that only this process maps can go. The kernel moves a folio whole, also one that
/// begins before or ends after the range. THPs count once where the kernel tells them apart (Linux 6.7), else, as smaller
/// folios always, by their base pages.
///
/// # Errors
/// A range that is empty, unaligned, not mapped as a whole or beyond the last address of a process; no such process or
/// node, not permitted. Nothing was moved then.
pub fn move_range(
    pid: i32,
    range: Range<usize>,
    node: u32,
    callers: usize,
    options: &MoveOptions,
) -> Result<MoveResult, MoveError> {
    check_range(&range)?;
    let started = Instant::now();
    let ranges = std::slice::from_ref(&range);
    let account = Account::new(ranges, options.list_pages, Arc::default());
    let never = AtomicBool::new(false);
    let by = Callers {
        pid,
        node,
        count: callers,
        cancel: options.cancel.as_deref().unwrap_or(&never),
        pace: options.bytes_per_second.map(Pace::new),
    };
    let failure = by.carry(ranges, &account).err();
    account
        .close(started.elapsed(), failure)
        .map(ListResult::into_range)
}

/// The threads that call for a process.
pub(crate) struct Callers<'a> {
    pub pid: i32,
    pub node: u32,
    pub count: usize,
    pub cancel: &'a AtomicBool,
    pub pace: Option<Pace>,
}

impl Callers<'_> {
    /// Moves checked ranges that ascend and have no address in common.
    pub(crate) fn carry(
        &self,
        ranges: &[Range<usize>],
        account: &Account,
    ) -> Result<(), MoveError> {
        let pid = self.pid;
        let target = Target {
            pid,
            from: None,
            node: check_target(pid, self.node, false)?,
            shared: false,
        };
        let process = match pid {
            0 => PathBuf::from("/proc/self"),
            pid => PathBuf::from(format!("/proc/{pid}")),
        };
        vma::all_mapped(&process.join("maps"), ranges)?;
        let pagemap = Pagemap::with_scan(&process);
        let failure = Mutex::new(None);
        let calls = Mutex::new(Calls::of(ranges));
        let caller = || {
            let mut call = Call::new(target, pagemap.as_ref());
            let mut parts = Vec::new();
            while self.pace.as_ref().is_none_or(|pace| pace.wait(self.cancel))
                && !self.cancel.load(Ordering::Relaxed)
            {
                let any = calls.lock().unpoisoned().next(&mut parts);
                if !any {
                    return;
                }
                let mut moved = 0;
                let mut book = |fate: Fate| {
                    if let Some(outcome) = fate.outcome {
                        account.book(outcome, fate.addr, fate.bytes, fate.folio);
                    }
                    if fate.outcome == Some(Outcome::Moved) {
                        moved += fate.bytes as u64;
                    }
                };
                if let Err(error) = call.run(&parts, &mut book) {
                    // The process has ended, or may not be looked at any more; so the other parts will fail fast.
                    for part in &parts {
                        account.book(Outcome::Busy, part.start, part.len(), page_size());
                    }
                    let mut failure = failure.lock().unpoisoned();
                    failure.get_or_insert(error);
                }
                if let Some(pace) = &self.pace {
                    pace.pay(Instant::now(), moved);
                }
            }
        };
        on_threads(self.count, caller);
        let failure = failure.into_inner().unpoisoned();
        failure.map_or(Ok(()), |error| Err(explain(error, self.node)))
    }
}

/// Calls `work` on so many threads, this one among them, and returns when all are done.
pub(crate) fn on_threads(count: usize, work: impl Fn() + Copy + Send) {
    std::thread::scope(|scope| {
        for _ in 1..count {
            // Without another thread the others do its part.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// What is left for calls to come.
struct Calls<'a> {
    ranges: &'a [Range<usize>],
    at: usize,
}

impl Calls<'_> {
    fn of(ranges: &[Range<usize>]) -> Calls<'_> {
        let at = ranges.first().map_or(0, |range| range.start);
        Calls { ranges, at }
    }

    /// What the next call is for: at most [`PART`] bytes, and no part with a multiple of it inside; false when there is no more.
    fn next(&mut self, parts: &mut Vec<Range<usize>>) -> bool {
        parts.clear();
        let mut bytes = 0;
        while let Some(range) = self.ranges.first() {
            let at = self.at.max(range.start);
            let end = ((at / PART + 1) * PART).min(range.end);
            if bytes + (end - at) > PART {
                break;
            }
            parts.push(at..end);
            bytes += end - at;
            self.at = end;
            if end == range.end {
                self.ranges = &self.ranges[1..];
            }
        }
        !parts.is_empty()
    }
}

/// Finds what would fail the call as a whole, by a call for a page that nobody has; gives the node as the kernel takes it.
pub(crate) fn check_target(pid: i32, node: u32, shared: bool) -> Result<i32, MoveError> {
    let target = i32::try_from(node).unwrap_or(i32::MAX);
    let nowhere = usize::MAX - page_size() + 1;
    numa::move_pages(pid, &[nowhere], Some(&[target]), &mut [0], shared)
        .map(|_| target)
        .map_err(|error| explain(error, node))
}

pub(crate) fn explain(error: io::Error, node: u32) -> MoveError {
    let hint = match errno(&error) {
        libc::ENODEV => {
            let why = "it is not there or has no memory";
            return MoveError::BadNode { node, why };
        }
        libc::EACCES => {
            let why = "the cpuset of the process does not allow it";
            return MoveError::BadNode { node, why };
        }
        libc::EPERM => "it needs the same user or CAP_SYS_NICE, and ptrace access to the process",
        libc::ESRCH => "the process is gone",
        _ => "a container's seccomp profile may forbid it",
    };
    MoveError::system("move_pages", hint)(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn calls_cover_the_ranges_once_and_cut_no_huge_page(
            ranges in prop::collection::vec((0usize..1500, 1usize..1500), 0..12),
        ) {
            let mut at = 0;
            let ranges: Vec<_> = ranges.iter().map(|(gap, pages)| {
                let start = at + gap * 4096;
                at = start + pages * 4096;
                start..at
            }).collect();
            let (mut calls, mut parts) = (Calls::of(&ranges), Vec::new());
            let mut left = ranges.clone();
            left.reverse();
            while calls.next(&mut parts) {
                prop_assert!(parts.iter().map(Range::len).sum::<usize>() <= PART);
                for part in &parts {
                    prop_assert_eq!(part.start / PART, (part.end - 1) / PART);
                    let range = left.last_mut().expect("a range that is not covered");
                    prop_assert_eq!(part.start, range.start);
                    prop_assert!(part.end == range.end || part.end % PART == 0 && part.end < range.end);
                    range.start = part.end;
                    if range.start == range.end {
                        left.pop();
                    }
                }
            }
            prop_assert!(left.is_empty());
        }
    }
}
