// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same move through move_pages(2): any process, any kernel, two nodes or more, in parallel callers.
//!
//! [`move_range`] moves a range and accounts for all of it; `part` makes its system calls. What is hidden here serves the crate
//! `memferry-process`.

mod part;

use part::Call;
#[doc(hidden)]
pub use part::{Fate, NOWHERE, PART, Target};

use crate::error::{MoveError, Unmovable, check_page_size, check_range};
use crate::options::MoveOptions;
use crate::pace::Pace;
use crate::result::{Account, ListResult, MoveResult, Outcome};
use crate::stretches::Stretches;
use crate::sync::Unpoisoned;
use crate::sys::{errno, page_size};
use crate::vma;
use memferry_linux::numa;
use memferry_linux::pagemap::Pagemap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
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
/// Base pages that are not of 4 KiB; a range that is empty, unaligned, not mapped as a whole or beyond the last address of a process; no such process or
/// node, not permitted. Nothing was moved then.
pub fn move_range(
    pid: i32,
    range: Range<usize>,
    node: u32,
    callers: usize,
    options: &MoveOptions,
) -> Result<MoveResult, MoveError> {
    check_page_size(page_size())?;
    check_range(&range)?;
    let started = Instant::now();
    let ranges = std::slice::from_ref(&range);
    let account = Account::new(ranges, options.list_pages, Arc::default());
    let never = AtomicBool::new(false);
    let cancel = options.cancel.as_deref().unwrap_or(&never);
    check_target(pid, node, false)?;
    vma::all_mapped(&folder(pid).join("maps"), ranges)?;
    let failure = carry(
        pid,
        node,
        callers,
        (cancel, options.bytes_per_second),
        ranges,
        &account,
    );
    account
        .close(started.elapsed(), failure.err())
        .map(ListResult::into_range)
}

/// The process's below /proc; 0: this one.
fn folder(pid: i32) -> PathBuf {
    match pid {
        0 => PathBuf::from("/proc/self"),
        pid => PathBuf::from(format!("/proc/{pid}")),
    }
}

/// Moves checked ranges of process `pid` that ascend and have no address in common. Pages of a mapping that is gone meanwhile count as
/// not present.
pub(crate) fn carry(
    pid: i32,
    node: u32,
    callers: usize,
    (cancel, bytes_per_second): (&AtomicBool, Option<u64>),
    ranges: &[Range<usize>],
    account: &Account,
) -> Result<(), MoveError> {
    let target = Target {
        pid,
        from: None,
        node: check_target(pid, node, false)?,
        shared: false,
    };
    let folder = folder(pid);
    let by = Callers {
        target,
        folder: &folder,
        count: callers,
        cancel,
        bytes_per_second,
        has_ended: &|| false,
    };
    let book = |fate: &Fate| {
        if let Some(outcome) = fate.outcome {
            account.book(outcome, fate.addr..fate.addr + fate.bytes, fate.folio);
        }
    };
    // The process has ended, or may not be looked at any more; so the other parts will fail fast.
    let failed = |parts: &[Range<usize>]| {
        for part in parts {
            account.book(Outcome::Busy, part.clone(), page_size());
        }
        true
    };
    by.run(ranges, &book, &failed)
        .map(drop)
        .map_err(|error| explain(error, node))
}

/// Addresses of a mapping, and why userfaultfd could not move it, if it could not.
#[doc(hidden)]
pub type Mapping = (Range<usize>, Option<Unmovable>);

/// The mappings of the process with this folder below /proc, ascending.
///
/// # Errors
/// They may not be read.
#[doc(hidden)]
pub fn mappings(process: &Path) -> Result<Vec<Mapping>, MoveError> {
    let text = vma::read(&process.join("maps"))?;
    let mappings = vma::parse(&text).map(|vma| (vma.range, vma.unmovable));
    Ok(mappings.collect())
}

/// The threads that call for a process.
#[doc(hidden)]
pub struct Callers<'a> {
    pub target: Target,
    /// Of the process below /proc.
    pub folder: &'a Path,
    pub count: usize,
    pub cancel: &'a AtomicBool,
    pub bytes_per_second: Option<u64>,
    /// Whether the process is known to have ended: its number may be another one's soon.
    pub has_ended: &'a (dyn Fn() -> bool + Sync),
}

impl Callers<'_> {
    /// Moves ranges that ascend and have no address in common, and tells `book` what became of their pages. `failed` is given
    /// the parts of a call that failed, and says whether others are tried. Returns whether nothing is left.
    ///
    /// # Errors
    /// That of the first call that failed.
    pub fn run(
        &self,
        ranges: &[Range<usize>],
        book: &(dyn Fn(&Fate) + Sync),
        failed: &(dyn Fn(&[Range<usize>]) -> bool + Sync),
    ) -> io::Result<bool> {
        let pagemap = Pagemap::with_scan(self.folder);
        let pace = Pace::new(self.bytes_per_second);
        let calls = Stretches::new(ranges, PART, |_| true);
        let (calls, failure) = (Mutex::new(calls), Mutex::new(None));
        let stopped = AtomicBool::new(false);
        let may_call =
            || pace.wait(self.cancel) && !stopped.load(Ordering::Relaxed) && !(self.has_ended)();
        let caller = || {
            let mut call = Call::new(self.target, pagemap.as_ref());
            while may_call() {
                let next = calls.lock().unpoisoned().next();
                let Some(next) = next else {
                    return;
                };
                let parts: Vec<_> = next.of(ranges).collect();
                let mut moved = 0;
                let mut tell = |fate: Fate| {
                    if fate.outcome == Some(Outcome::Moved) {
                        moved += fate.bytes as u64;
                    }
                    book(&fate);
                };
                if let Err(error) = call.run(&parts, &mut tell) {
                    failure.lock().unpoisoned().get_or_insert(error);
                    if !failed(&parts) {
                        stopped.store(true, Ordering::Relaxed);
                    }
                }
                pace.pay(Instant::now(), moved);
            }
        };
        std::thread::scope(|scope| {
            let bytes: usize = ranges.iter().map(Range::len).sum();
            for _ in 1..self.count.min(bytes.div_ceil(PART)) {
                // Without another thread the others do its part.
                let _ = std::thread::Builder::new().spawn_scoped(scope, caller);
            }
            caller();
        });
        let all = calls.into_inner().unpoisoned().next().is_none();
        failure.into_inner().unpoisoned().map_or(Ok(all), Err)
    }
}

/// Finds what would fail the call as a whole, by a call for a page that nobody has; gives the node as the kernel takes it.
///
/// # Errors
/// No such node or process, or not permitted.
#[doc(hidden)]
pub fn check_target(pid: i32, node: u32, shared: bool) -> Result<i32, MoveError> {
    let target = i32::try_from(node).unwrap_or(i32::MAX);
    let nowhere = usize::MAX - page_size() + 1;
    numa::move_pages(pid, &[nowhere], Some(&[target]), &mut [0], shared)
        .map(|_| target)
        .map_err(|error| explain(error, node))
}

/// What an error of a call for that target node means.
#[doc(hidden)]
pub fn explain(error: io::Error, node: u32) -> MoveError {
    let hint = match errno(&error) {
        libc::ENODEV => {
            let why = "it is not there or has no memory";
            return MoveError::BadNode { node, why };
        }
        libc::EACCES => {
            let why = "the cpuset of the process does not allow it";
            return MoveError::BadNode { node, why };
        }
        libc::EPERM => {
            "it needs ptrace access to the process (the same user, or CAP_SYS_PTRACE), and CAP_SYS_NICE for pages that others map"
        }
        libc::ESRCH => "the process is gone",
        _ => "a container's seccomp profile may forbid it",
    };
    MoveError::system("move_pages", hint)(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::{Mapping, populate};

    /// Another thread may unmap a part after the ranges were checked. Nothing is ever mapped as low as this one.
    #[test]
    fn a_part_that_is_unmapped_meanwhile_keeps_no_other_from_being_counted() {
        let page = page_size();
        let memory = Mapping::new(2 * page, page).unwrap();
        populate(memory.addr(), memory.len()).unwrap();
        let ranges = [4 * page..5 * page, memory.range()];
        let account = Account::new(&ranges, false, Arc::default());
        let never = AtomicBool::new(false);
        carry(0, 0, 2, (&never, None), &ranges, &account).unwrap();
        let result = account.close(Instant::now().elapsed(), None).unwrap().total;
        assert_eq!(result.already_there.bytes, 2 * page as u64);
        assert_eq!(result.not_present.bytes, page as u64);
    }
}
