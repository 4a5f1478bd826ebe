// SPDX-License-Identifier: MIT OR Apache-2.0
//! One part of a process's memory through move_pages(2): which pages it has, the calls that move them, and what became of
//! each. Who calls for which part, and what is counted, is decided elsewhere.

use crate::pool::SEGMENT;
use crate::result::Outcome;
use crate::sys::{errno, page_size};
use memferry_linux::numa;
use memferry_linux::pagemap::{HUGE, PRESENT, Pagemap, Region, ZERO};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Bytes of one system call, and a multiple of them its end: whole THPs, long enough to batch TLB flushes (512 base
/// pages in Linux 6.12), short enough that the process is not held up for long.
pub const PART: usize = SEGMENT;

/// Looks at a page that seems to have gone meanwhile; 1 ms altogether.
const LOOKS: u32 = 20;

/// A status that the kernel never writes: it did not come to that page, or moved it and gave up later.
const UNTOLD: i32 = i32::MIN;

/// A node on which nothing lies.
pub const NOWHERE: i32 = -1;

/// Which pages go where.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// 0: this process.
    pub pid: i32,
    /// Only pages of this node ([`NOWHERE`]: none at all); `None`: of all nodes.
    pub from: Option<i32>,
    /// Whereto.
    pub node: i32,
    /// Also pages that other processes map (MPOL_MF_MOVE_ALL).
    pub shared: bool,
}

/// Neighbours that fared alike.
pub struct Fate {
    /// Of the first one.
    pub addr: usize,
    /// Of all of them.
    pub bytes: usize,
    /// Bytes of each page or THP.
    pub folio: usize,
    /// `None`: they lie on a node from which nothing is to be moved.
    pub outcome: Option<Outcome>,
    /// The node, or -errno.
    pub status: i32,
}

impl Fate {
    /// How many they are.
    pub fn folios(&self) -> u64 {
        self.bytes.div_ceil(self.folio) as u64
    }
}

/// A page, or a THP, and what became of it.
#[derive(Clone, Copy, Default)]
struct Unit {
    addr: usize,
    len: usize,
    /// Where it was: a node or -errno.
    before: i32,
    /// Where it is, or why not on the target.
    status: i32,
}

/// The arrays of one caller.
pub(crate) struct Call<'a> {
    target: Target,
    /// Tells THPs from base pages.
    pagemap: Option<&'a Pagemap>,
    units: Vec<Unit>,
    regions: Vec<Region>,
    addresses: Vec<usize>,
    nodes: Vec<i32>,
    status: Vec<i32>,
}

impl Call<'_> {
    pub(crate) fn new(target: Target, pagemap: Option<&Pagemap>) -> Call<'_> {
        let pages = PART / page_size();
        Call {
            target,
            pagemap,
            units: Vec::with_capacity(pages),
            regions: vec![Region::default(); pages],
            addresses: Vec::with_capacity(pages),
            nodes: vec![target.node; pages],
            status: vec![0; pages],
        }
    }

    /// Moves the pages of parts, of [`PART`] bytes at most and with no multiple of that inside any, and tells what became of
    /// all of them.
    pub(crate) fn run(
        &mut self,
        parts: &[Range<usize>],
        book: &mut dyn FnMut(Fate),
    ) -> io::Result<()> {
        self.units.clear();
        parts.iter().for_each(|part| self.find_units(part));
        let all: Vec<usize> = (0..self.units.len()).collect();
        self.ask(&all)?;
        for unit in &mut self.units {
            unit.before = unit.status;
        }
        // Pages that are not there would make the kernel flush its batch at each of them.
        let (huge, base): (Vec<usize>, Vec<usize>) = all
            .into_iter()
            .filter(|&i| self.is_wanted(self.units[i].before))
            .partition(|&i| self.units[i].len > page_size());
        self.attempt(huge)?;
        self.attempt(base)?;
        let split = self.split_units()?;
        self.attempt(split)?;
        self.tell(book);
        Ok(())
    }

    /// Whether a page that lies there is to be moved.
    fn is_wanted(&self, before: i32) -> bool {
        let Target { from, node, .. } = self.target;
        before >= 0 && before != node && from.is_none_or(|from| before == from)
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

    /// Adds a part's THPs, as far as the kernel tells them, and its other pages.
    fn find_units(&mut self, part: &Range<usize>) {
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
                ..Unit::default()
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
        numa::move_pages(self.target.pid, &self.addresses, None, status, false)?;
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
                self.target.pid,
                &self.addresses,
                Some(&self.nodes[..count]),
                &mut self.status[..count],
                self.target.shared,
            );
            let why = match called {
                Ok(_) => -libc::EBUSY,
                Err(error) if errno(&error) == libc::ENOMEM => -libc::ENOMEM,
                Err(error) => return Err(error),
            };
            let told = self.status[..count].to_vec();
            if told.iter().all(|&status| status == self.target.node) {
                units
                    .iter()
                    .for_each(|&i| self.units[i].status = self.target.node);
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
                if *status == self.target.node || *status < 0 {
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
            let tried = self.is_wanted(unit.before);
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
                status >= 0 && status != self.target.node
            }));
        }
        Ok(again)
    }

    /// Tells of the units, equal neighbours together.
    fn tell(&self, book: &mut dyn FnMut(Fate)) {
        let end = |unit: &Unit| (unit.addr + unit.len, unit.len, self.outcome(unit));
        for run in self
            .units
            .chunk_by(|a, b| end(a) == (b.addr, b.len, self.outcome(b)))
        {
            let (outcome, status) = self.outcome(&run[0]);
            book(Fate {
                addr: run[0].addr,
                bytes: run.iter().map(|unit| unit.len).sum(),
                folio: run[0].len,
                outcome,
                status,
            });
        }
    }

    fn outcome(&self, unit: &Unit) -> (Option<Outcome>, i32) {
        let node = self.target.node;
        let outcome = match unit.status {
            status if status == node && unit.before == node => Outcome::AlreadyThere,
            status if status == node => Outcome::Moved,
            status if status >= 0 && unit.before >= 0 && !self.is_wanted(unit.before) => {
                return (None, status);
            }
            status => Outcome::of_errno(-status),
        };
        // A page that came to another node meanwhile, by somebody else.
        let status = if outcome == Outcome::Busy && unit.status >= 0 {
            -libc::EBUSY
        } else {
            unit.status
        };
        (Some(outcome), status)
    }
}

fn base_units(range: Range<usize>) -> impl Iterator<Item = Unit> {
    range.step_by(page_size()).map(|addr| Unit {
        addr,
        len: page_size(),
        ..Unit::default()
    })
}
