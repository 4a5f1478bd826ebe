// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same move through move_pages(2): any process, any kernel, two nodes or more, in parallel callers.

use crate::error::{MoveError, check_range};
use crate::mover::MoveOptions;
use crate::result::{Ledger, MoveResult, Outcome};
use crate::sys::{errno, numa, page_size};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Pages of one system call: long enough to batch TLB flushes (512 base pages in Linux 6.12), short enough that the
/// process is not held up for long.
const PAGES_PER_CALL: usize = 512;

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
/// # Errors
/// A range that is empty, unaligned or beyond the last address of a process; a call that fails as a whole: no such
/// process, not permitted, no such node.
pub fn move_range(
    pid: i32,
    range: Range<usize>,
    node: u32,
    callers: usize,
    options: &MoveOptions,
) -> Result<MoveResult, MoveError> {
    check_range(&range)?;
    let started = Instant::now();
    let page = page_size();
    let ledger = Ledger::new(range.start, range.len(), options.list_pages);
    let never = AtomicBool::new(false);
    let cancel = options.cancel.as_deref().unwrap_or(&never);
    let next = AtomicUsize::new(range.start);
    let failure = std::sync::Mutex::new(None);
    let caller = || {
        let mut call = Call::new(node);
        while !cancel.load(Ordering::Relaxed) {
            let at = next.fetch_add(PAGES_PER_CALL * page, Ordering::Relaxed);
            if at >= range.end {
                return;
            }
            let end = (at + PAGES_PER_CALL * page).min(range.end);
            if let Err(error) = call.run(pid, at, end, &ledger, options.relocate) {
                *failure
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                next.store(range.end, Ordering::Relaxed);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..callers.max(1) {
            scope.spawn(caller);
        }
        caller();
    });
    if let Some(error) = failure
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
    {
        let hint = match errno(&error) {
            libc::EPERM => {
                "it needs the same user or CAP_SYS_NICE and ptrace access to the process"
            }
            libc::ESRCH => "the process is gone",
            libc::ENODEV => "the node is not in the process's cpuset",
            _ => "a container's seccomp profile may forbid it",
        };
        return Err(MoveError::system("move_pages", hint)(error));
    }
    let left = range.end.saturating_sub(next.load(Ordering::Relaxed));
    let mut result = ledger.close(started.elapsed());
    result.cancelled_bytes = left as u64;
    Ok(result)
}

/// The arrays of one caller.
struct Call {
    node: i32,
    addresses: Vec<usize>,
    nodes: Vec<i32>,
    before: Vec<i32>,
    status: Vec<i32>,
}

impl Call {
    fn new(node: u32) -> Call {
        let node = node as i32;
        let pages = PAGES_PER_CALL;
        Call {
            node,
            addresses: vec![0; pages],
            nodes: vec![node; pages],
            before: vec![0; pages],
            status: vec![0; pages],
        }
    }

    fn run(
        &mut self,
        pid: i32,
        start: usize,
        end: usize,
        ledger: &Ledger,
        relocate: bool,
    ) -> std::io::Result<()> {
        let page = page_size();
        let count = (end - start) / page;
        for (index, address) in self.addresses[..count].iter_mut().enumerate() {
            *address = start + index * page;
        }
        let addresses = &self.addresses[..count];
        numa::move_pages(pid, addresses, None, &mut self.before[..count])?;
        // The kernel leaves pages alone that it did not reach; a status of ours tells them apart.
        self.status[..count].fill(-libc::EAGAIN);
        let _ = relocate;
        numa::move_pages(
            pid,
            addresses,
            Some(&self.nodes[..count]),
            &mut self.status[..count],
        )?;
        for (index, &address) in addresses.iter().enumerate() {
            let (before, status) = (self.before[index], self.status[index]);
            let outcome = match status {
                _ if status == self.node && before == self.node => Outcome::AlreadyThere,
                _ if status == self.node => Outcome::Moved,
                _ => match -status {
                    libc::ENOENT | libc::EFAULT => Outcome::NotPresent,
                    libc::ENOMEM => Outcome::NoMemory,
                    libc::EINVAL | libc::ENODEV => Outcome::Unsupported,
                    _ => Outcome::Busy,
                },
            };
            ledger.book(outcome, address, page, page, status);
        }
        Ok(())
    }
}
