// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same move through move_pages(2): any process, any kernel, two nodes or more, in parallel callers.
//!
//! [`move_range`] moves a range and accounts for all of it; `part` makes its system calls. [`call`] is one system call alone.

mod part;

pub(crate) use part::{Call, Fate, PART, Target};

use crate::error::{MoveError, check_range};
use crate::mover::MoveOptions;
use crate::result::{Ledger, MoveResult, Outcome};
use crate::sys::pagemap::{Pagemap, Region};
use crate::sys::{errno, numa, page_size};
use crate::vma;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Why move_pages(2) does or does not do on a machine with so many memory nodes.
pub(crate) fn verdict(nodes: usize) -> String {
    if nodes < 2 {
        "this machine has one memory node, and move_pages(2) only moves between nodes".to_owned()
    } else {
        "usable".to_owned()
    }
}

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
    run(pid, range, node, callers, options, Arc::default())
}

/// The same, and adds the bytes whose fate is known to `booked`.
pub(crate) fn run(
    pid: i32,
    range: Range<usize>,
    node: u32,
    callers: usize,
    options: &MoveOptions,
    booked: Arc<AtomicU64>,
) -> Result<MoveResult, MoveError> {
    check_range(&range)?;
    let started = Instant::now();
    let target = Target {
        pid,
        from: None,
        node: check_target(pid, node, false)?,
        shared: false,
    };
    let process = match pid {
        0 => PathBuf::from("/proc/self"),
        pid => PathBuf::from(format!("/proc/{pid}")),
    };
    vma::mapped(&process.join("maps"), &range)?;
    let pagemap = Pagemap::of(&process)
        .ok()
        .filter(|pagemap| pagemap.scan(0, 0, &mut [Region::default()]).is_ok());
    let ledger = Ledger::telling(range.start, range.len(), options.list_pages, booked);
    let never = AtomicBool::new(false);
    let cancel = options.cancel.as_deref().unwrap_or(&never);
    let next = AtomicUsize::new(range.start);
    let claim = || {
        let end_of = |at: usize| ((at / PART + 1) * PART).min(range.end);
        let step = |at| (at < range.end).then(|| end_of(at));
        let at = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        at.ok().map(|at| at..end_of(at))
    };
    let failure = Mutex::new(None);
    let caller = || {
        let mut call = Call::new(target, pagemap.as_ref());
        while !cancel.load(Ordering::Relaxed) {
            let Some(part) = claim() else { return };
            let mut book = |fate: Fate| {
                if let Some(outcome) = fate.outcome {
                    ledger.book(outcome, fate.addr, fate.bytes, fate.folio, fate.status);
                }
            };
            if let Err(error) = call.run(&part, &mut book) {
                // The process has ended, or may not be looked at any more; so the other parts will fail fast.
                let status = -errno(&error);
                ledger.book(Outcome::Busy, part.start, part.len(), page_size(), status);
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..callers {
            // Without another thread the others do its parts.
            let _ = std::thread::Builder::new().spawn_scoped(scope, caller);
        }
        caller();
    });
    let left = range.end - next.load(Ordering::Relaxed);
    let mut result = ledger.close(started.elapsed());
    result.cancelled_bytes = left as u64;
    // An error means that nothing was moved; what was moved must not go unsaid.
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) if result.moved.bytes == 0 => Err(explain(error, node)),
        failure => {
            result.error = failure.map(|error| Arc::new(explain(error, node)));
            Ok(result)
        }
    }
}

/// One move_pages(2) call: moves the pages at these addresses of this process to `nodes`, or with `None` asks where they
/// are. Fills `status` with a node or -errno for each page that the kernel came to, and leaves the others' as they are;
/// returns the number of pages that it did not move. A folio goes whole: give one address of it.
///
/// For whoever measures the kernel. [`move_range`] tries again where the kernel gives up early, and knows what became of
/// every page.
///
/// # Errors
/// What the kernel says of the call as a whole.
///
/// # Panics
/// When the slices differ in length.
pub fn call(pages: &[usize], nodes: Option<&[i32]>, status: &mut [i32]) -> io::Result<usize> {
    numa::move_pages(0, pages, nodes, status, false)
}

/// Lets the future pages of a range of this process come from `node` as long as it has free ones, else from others.
///
/// # Errors
/// No such node, or the range is not mapped.
pub fn prefer(range: &Range<usize>, node: u32) -> io::Result<()> {
    numa::prefer(range.start, range.len(), node)
}

/// Takes back what [`prefer`] did, so that the kernel moves the pages of the range as any others. Pages that are there stay where
/// they are.
///
/// # Errors
/// The range is not mapped.
pub fn follow_task(range: &Range<usize>) -> io::Result<()> {
    numa::follow_task(range.start, range.len())
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
