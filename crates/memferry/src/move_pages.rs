// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same move through move_pages(2): any process, any kernel, two nodes or more, in parallel callers.

use crate::error::{MoveError, check_range};
use crate::mover::MoveOptions;
use crate::pool::SEGMENT;
use crate::result::{Ledger, MoveResult, Outcome};
use crate::sys::pagemap::{HUGE, PRESENT, Pagemap, Region, ZERO};
use crate::sys::{errno, numa, page_size};
use crate::vma;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one system call, and a multiple of them its end: whole THPs, long enough to batch TLB flushes (512 base
/// pages in Linux 6.12), short enough that the process is not held up for long.
const PART: usize = SEGMENT;

/// Looks at a page that seems to have gone meanwhile; 1 ms altogether.
const LOOKS: u32 = 20;

/// A status that the kernel never writes: it did not come to that page, or moved it and gave up later.
const UNTOLD: i32 = i32::MIN;

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
    check_range(&range)?;
    let started = Instant::now();
    check_target(pid, node)?;
    let process = match pid {
        0 => PathBuf::from("/proc/self"),
        pid => PathBuf::from(format!("/proc/{pid}")),
    };
    vma::mapped(&process.join("maps"), &range)?;
    let pagemap = Pagemap::of(&process)
        .ok()
        .filter(|pagemap| pagemap.scan(0, 0, &mut [Region::default()]).is_ok());
    let ledger = Ledger::new(range.start, range.len(), options.list_pages);
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
        let mut call = Call::new(pid, node, pagemap.as_ref());
        while !cancel.load(Ordering::Relaxed) {
            let Some(part) = claim() else { return };
            if let Err(error) = call.run(&part, &ledger) {
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
        _ => Ok(result),
    }
}

/// Finds what would fail the call as a whole, by a call for a page that nobody has.
fn check_target(pid: i32, node: u32) -> Result<(), MoveError> {
    let target = i32::try_from(node).unwrap_or(i32::MAX);
    let nowhere = usize::MAX - page_size() + 1;
    numa::move_pages(pid, &[nowhere], Some(&[target]), &mut [0])
        .map(drop)
        .map_err(|error| explain(error, node))
}

fn explain(error: io::Error, node: u32) -> MoveError {
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

/// A page, or a THP, and what became of it.
#[derive(Clone, Copy)]
struct Unit {
    addr: usize,
    len: usize,
    /// Where it was: a node or -errno.
    before: i32,
    /// Where it is, or why not on the target.
    status: i32,
}

/// The arrays of one caller.
struct Call<'a> {
    pid: i32,
    node: i32,
    /// Tells THPs from base pages.
    pagemap: Option<&'a Pagemap>,
    units: Vec<Unit>,
    regions: Vec<Region>,
    addresses: Vec<usize>,
    nodes: Vec<i32>,
    status: Vec<i32>,
}

impl Call<'_> {
    fn new(pid: i32, node: u32, pagemap: Option<&Pagemap>) -> Call<'_> {
        let pages = PART / page_size();
        Call {
            pid,
            node: node as i32,
            pagemap,
            units: Vec::with_capacity(pages),
            regions: vec![Region::default(); pages],
            addresses: Vec::with_capacity(pages),
            nodes: vec![node as i32; pages],
            status: vec![0; pages],
        }
    }

    /// Moves and books one part of the range.
    fn run(&mut self, part: &Range<usize>, ledger: &Ledger) -> io::Result<()> {
        self.find_units(part);
        let all: Vec<usize> = (0..self.units.len()).collect();
        self.ask(&all)?;
        for unit in &mut self.units {
            unit.before = unit.status;
        }
        // Pages that are not there would make the kernel flush its batch at each of them.
        let (huge, base): (Vec<usize>, Vec<usize>) = all
            .into_iter()
            .filter(|&i| self.units[i].before >= 0 && self.units[i].before != self.node)
            .partition(|&i| self.units[i].len > page_size());
        self.attempt(huge)?;
        self.attempt(base)?;
        let split = self.split_units()?;
        self.attempt(split)?;
        self.book(ledger);
        Ok(())
    }

    /// A page that was there and is not any more is gone, or at this moment the kernel moves it (compaction, another
    /// caller's need of 2 MiB): it says the same of both. The second passes.
    fn look_again(&mut self) -> io::Result<()> {
        for _ in 0..LOOKS {
            let units = self.units.iter().enumerate();
            let lost: Vec<usize> = units
                .filter(|(_, unit)| unit.before >= 0 && unit.status == -libc::ENOENT)
                .map(|(index, _)| index)
                .collect();
            if lost.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
            self.ask(&lost)?;
        }
        Ok(())
    }

    /// The part's THPs, as far as the kernel tells them, and its other pages.
    fn find_units(&mut self, part: &Range<usize>) {
        self.units.clear();
        let mut at = part.start;
        let scanned = self
            .pagemap
            .and_then(|p| p.scan(part.start, part.end, &mut self.regions).ok());
        let (count, _) = scanned.unwrap_or((0, 0));
        let is_huge = |r: &&Region| r.categories & (PRESENT | HUGE | ZERO) == PRESENT | HUGE;
        for region in self.regions[..count].iter().filter(is_huge) {
            // A part never crosses a THP's end.
            let (start, end) = (region.start as usize, region.end as usize);
            self.units.extend(base_units(at..start));
            self.units.push(Unit {
                addr: start,
                len: end - start,
                before: 0,
                status: 0,
            });
            at = end;
        }
        self.units.extend(base_units(at..part.end));
    }

    /// Notes where the units lie.
    fn ask(&mut self, units: &[usize]) -> io::Result<()> {
        if units.is_empty() {
            return Ok(());
        }
        self.addresses.clear();
        self.addresses
            .extend(units.iter().map(|&i| self.units[i].addr));
        let status = &mut self.status[..units.len()];
        numa::move_pages(self.pid, &self.addresses, None, status)?;
        for (&index, &status) in units.iter().zip(status.iter()) {
            self.units[index].status = status;
        }
        Ok(())
    }

    /// Moves units of one size.
    ///
    /// The kernel puts pages into batches, gives up at the first batch in which a page cannot go, and does not say
    /// which one. So ask, and try again what was not reached; where nothing moves at all, halve.
    fn attempt(&mut self, units: Vec<usize>) -> io::Result<()> {
        // With each list, whether it was tried in vain.
        let mut work = vec![(units, false)];
        while let Some((mut units, in_vain)) = work.pop() {
            if units.is_empty() {
                continue;
            }
            self.addresses.clear();
            self.addresses
                .extend(units.iter().map(|&i| self.units[i].addr));
            let count = units.len();
            self.status[..count].fill(UNTOLD);
            let called = numa::move_pages(
                self.pid,
                &self.addresses,
                Some(&self.nodes[..count]),
                &mut self.status[..count],
            );
            let why = match called {
                Ok(_) => -libc::EBUSY,
                Err(error) if errno(&error) == libc::ENOMEM => -libc::ENOMEM,
                Err(error) => return Err(error),
            };
            let told = self.status[..count].to_vec();
            if told.iter().all(|&status| status == self.node) {
                units.iter().for_each(|&i| self.units[i].status = self.node);
                continue;
            }
            // The second page of a folio is told -EBUSY, although it goes with the first: what counts is where it is.
            self.ask(&units)?;
            self.look_again()?;
            let mut index = 0;
            units.retain(|&unit| {
                let told = told[index];
                index += 1;
                let status = &mut self.units[unit].status;
                if *status == self.node || *status < 0 {
                    return false;
                }
                let sure = told != UNTOLD && told != -libc::EBUSY;
                *status = if sure { told } else { why };
                !sure
            });
            // A second page that is told -EBUSY belongs to the folio of the first. Where THPs cannot be told, that is one:
            // the kernel may have split it for want of 2 MiB in one piece; if not, each of its pages would fail alike.
            let one_folio = self.pagemap.is_none() && told.contains(&-libc::EBUSY);
            if units.len() < count {
                work.push((units, false));
            } else if count == 1 || why == -libc::ENOMEM || one_folio && in_vain {
                continue;
            } else if one_folio {
                work.push((units, true));
            } else {
                let second = units.split_off(count / 2);
                work.extend([(second, false), (units, false)]);
            }
        }
        Ok(())
    }

    /// Replaces THPs that the kernel split, since the target had no 2 MiB in one piece, by their base pages; returns those
    /// that are to be tried again.
    fn split_units(&mut self) -> io::Result<Vec<usize>> {
        let Some(pagemap) = self.pagemap else {
            return Ok(Vec::new());
        };
        let (mut again, mut at) = (Vec::new(), 0);
        while at < self.units.len() {
            let unit = self.units[at];
            let tried = unit.before >= 0 && unit.before != self.node;
            if unit.len == page_size() || !tried || pagemap.is_huge(unit.addr, unit.len)? {
                at += 1;
                continue;
            }
            let pages = base_units(unit.addr..unit.addr + unit.len);
            self.units.splice(at..=at, pages);
            let pages: Vec<usize> = (at..at + unit.len / page_size()).collect();
            self.ask(&pages)?;
            for &page in &pages {
                self.units[page].before = unit.before;
            }
            self.look_again()?;
            at += pages.len();
            again.extend(pages.into_iter().filter(|&page| {
                let status = self.units[page].status;
                status >= 0 && status != self.node
            }));
        }
        Ok(again)
    }

    /// Books the units, equal neighbours together.
    fn book(&self, ledger: &Ledger) {
        let end = |unit: &Unit| (unit.addr + unit.len, unit.len, self.outcome(unit));
        for run in self
            .units
            .chunk_by(|a, b| end(a) == (b.addr, b.len, self.outcome(b)))
        {
            let (outcome, status) = self.outcome(&run[0]);
            let bytes = run.iter().map(|unit| unit.len).sum();
            ledger.book(outcome, run[0].addr, bytes, run[0].len, status);
        }
    }

    fn outcome(&self, unit: &Unit) -> (Outcome, i32) {
        let outcome = match unit.status {
            status if status == self.node && unit.before == self.node => Outcome::AlreadyThere,
            status if status == self.node => Outcome::Moved,
            status => match -status {
                libc::ENOENT | libc::EFAULT => Outcome::NotPresent,
                libc::ENOMEM => Outcome::NoMemory,
                libc::EINVAL | libc::ENODEV => Outcome::Unsupported,
                _ => Outcome::Busy,
            },
        };
        // A page that came to another node meanwhile, by somebody else.
        let status = if outcome == Outcome::Busy && unit.status >= 0 {
            -libc::EBUSY
        } else {
            unit.status
        };
        (outcome, status)
    }
}

fn base_units(range: Range<usize>) -> impl Iterator<Item = Unit> {
    range.step_by(page_size()).map(|addr| Unit {
        addr,
        len: page_size(),
        before: 0,
        status: 0,
    })
}
