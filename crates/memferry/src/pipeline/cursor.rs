// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks the range once and cuts it into batches: runs of present pages of one size that lie on one node.
//!
//! Whatever need not or cannot be moved is booked here and never leaves its place.

use super::kernel::Kernel;
use crate::pool::{PageClass, SEGMENT};
use crate::result::{Account, Outcome};
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use crate::vma::Vma;
use memferry_linux::pagemap::{HUGE, PRESENT, Region, SWAPPED, ZERO};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Bytes that one look at the page tables covers: 20 us for 4 KiB pages, so that a lane is not held up.
const WINDOW: usize = 16 << 20;
/// Pages whose node is asked for at a time.
const NODES_AT_ONCE: usize = 512;
/// Looks for the node of a page that the kernel migrates; 2 ms altogether.
const LOOKS: u32 = 20;
/// Pages of a move for which that was too few, after which there is one look and no wait: the swap cache has them, and they stay there.
const FUTILE: u32 = 8;

/// Places of pages that are to be moved.
pub(crate) type Run = Range<usize>;

/// What one batch is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub class: PageClass,
    /// Which mapping of the walk: one call of the kernel fills or moves pages of one.
    mapping: usize,
}

/// What to move, and whereto.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Target node.
    pub node: u32,
    /// Move pages that lie on the target already (to measure, or to make them contiguous in a pool).
    pub relocate: bool,
    /// The machine has several nodes: ask where each page lies.
    pub ask_nodes: bool,
    /// Move THPs.
    pub huge_pages: bool,
}

/// Position of a move in what it is to move.
pub(crate) struct Cursor<'a> {
    kernel: &'a dyn Kernel,
    account: &'a Account,
    wanted: Wanted,
    vmas: &'a [Vma],
    /// What is to be moved, ascending.
    parts: &'a [Range<usize>],
    /// Next mapping, next part, and next address.
    vma: usize,
    part: usize,
    at: usize,
    end: usize,
    /// Cut, not yet taken: from `taken` on, so many bytes.
    pending: List<(Kind, Run)>,
    taken: usize,
    pending_bytes: usize,
    addresses: [usize; NODES_AT_ONCE],
    status: [i32; NODES_AT_ONCE],
    /// Pages that had no node however often it was asked for.
    futile: u32,
}

impl<'a> Cursor<'a> {
    /// A cursor over what of `parts` lies in `vmas`, which have no gap between them.
    pub(crate) fn new(
        kernel: &'a dyn Kernel,
        account: &'a Account,
        wanted: Wanted,
        vmas: &'a [Vma],
        parts: &'a [Range<usize>],
    ) -> Cursor<'a> {
        let at = vmas.first().map_or(0, |vma| vma.range.start);
        Cursor {
            kernel,
            account,
            wanted,
            vmas,
            parts,
            vma: 0,
            part: parts.partition_point(|part| part.end <= at),
            at,
            end: vmas.last().map_or(0, |vma| vma.range.end),
            pending: List::new_in(Pages),
            taken: 0,
            pending_bytes: 0,
            addresses: [0; NODES_AT_ONCE],
            status: [0; NODES_AT_ONCE],
            futile: 0,
        }
    }

    /// Makes room for all that can be pending while so many batches are on their way: what a look finds, page by page, beside a
    /// batch that was not enough, and what the others give back.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn reserve(&mut self, slots: usize) -> io::Result<()> {
        let bytes = WINDOW + (slots + 1) * SEGMENT;
        let pages = bytes.min(self.end - self.at) / page_size();
        let reserved = self.pending.try_reserve_exact(pages + slots);
        reserved.map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.pending.capacity()
    }

    /// Bytes that a look has found and that are in no batch.
    pub(crate) fn found_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Fills `runs` with the next batch of at most `limit` bytes; `None` at the end of the range.
    pub(crate) fn next(&mut self, limit: usize, runs: &mut List<Run>) -> io::Result<Option<Kind>> {
        runs.clear();
        // Scattered parts share a batch, and so a copy by all lanes and a give-back.
        while self.pending_bytes < limit {
            self.pending.drain(..self.taken);
            self.taken = 0;
            if !self.look()? {
                break;
            }
        }
        let Some((kind, run)) = self.pending.get(self.taken) else {
            return Ok(None);
        };
        let kind = *kind;
        let mut room = if kind.class.huge { SEGMENT } else { limit };
        // The kernel moves pages of one page table at a time, with a TLB flush for each: a run that would fill the batch ends
        // it at the end of the table. Scattered runs fill it across tables.
        if run.len() >= room {
            room = room.min(SEGMENT - run.start % SEGMENT);
        }
        while room > 0 {
            match self.pending.get_mut(self.taken) {
                Some((next, run)) if *next == kind => {
                    let len = run.len().min(room);
                    runs.push(run.start..run.start + len);
                    room -= len;
                    self.pending_bytes -= len;
                    run.start += len;
                    if run.start == run.end {
                        self.taken += 1;
                    }
                }
                _ => break,
            }
        }
        Ok(Some(kind))
    }

    /// Gives back the end of a batch, from its byte `keep` on.
    pub(crate) fn give_back(&mut self, kind: Kind, runs: &mut List<Run>, keep: usize) {
        let mut bytes: usize = runs.iter().map(Range::len).sum();
        while bytes > keep {
            let Some(mut run) = runs.pop() else { return };
            bytes -= run.len();
            if bytes < keep {
                let stays = run.start..run.start + (keep - bytes);
                run.start = stays.end;
                runs.push(stays);
                bytes = keep;
            }
            self.pending_bytes += run.len();
            match self.taken.checked_sub(1) {
                Some(before) => {
                    self.pending[before] = (kind, run);
                    self.taken = before;
                }
                None => self.pending.insert(0, (kind, run)),
            }
        }
    }

    /// Looks at the next window; false at the end.
    fn look(&mut self) -> io::Result<bool> {
        let (vmas, parts) = (self.vmas, self.parts);
        let Some(part) = parts.get(self.part).filter(|p| p.start < self.end) else {
            return Ok(false);
        };
        self.at = self.at.max(part.start);
        self.vma += vmas[self.vma..].partition_point(|vma| vma.range.end <= self.at);
        let Some(vma) = vmas.get(self.vma) else {
            return Ok(false);
        };
        // A window that ended within a THP would cut it.
        let window = (self.at + WINDOW) / SEGMENT * SEGMENT;
        let stop = vma.range.end.min(part.end).min(window);
        let mut regions = [Region::default(); 128];
        // The kernel allocates as many as it is given.
        let regions = &mut regions[..((stop - self.at) / page_size() + 1).min(128)];
        let (count, walked) = self.kernel.scan(self.at, stop, regions)?;
        // A full list ends the walk early.
        let walked = if count == regions.len() {
            walked.clamp(self.at, stop)
        } else {
            stop
        };
        for region in &regions[..count] {
            let from = (region.start as usize).max(self.at);
            let to = (region.end as usize).min(walked);
            self.stays(Outcome::NotPresent, self.at, from);
            match region.categories & (SWAPPED | HUGE) {
                SWAPPED => self.sort_swapped(vma, from, to),
                // Only one that the kernel migrates: to move it now could crash the kernel (`known_faults`).
                both if both & SWAPPED != 0 => self.account.book(Outcome::Busy, from..to, SEGMENT),
                _ => self.sort(vma, from, to, region.categories),
            }
            self.at = to;
        }
        self.stays(Outcome::NotPresent, self.at, walked);
        self.at = walked;
        if self.at == part.end {
            self.part += 1;
        }
        Ok(true)
    }

    /// Books base pages that do not leave their place.
    fn stays(&self, outcome: Outcome, from: usize, to: usize) {
        self.account.book(outcome, from..to, page_size());
    }

    /// Tells base pages that the kernel migrates now from those that are swapped out: page tables have neither. Of the swap cache's
    /// pages, too, mincore(2) says that they are in memory, but they have no node.
    fn sort_swapped(&mut self, vma: &Vma, from: usize, to: usize) {
        let mut pages = [0; NODES_AT_ONCE];
        let mut at = from;
        while at < to {
            let count = ((to - at) / page_size()).min(NODES_AT_ONCE);
            let pages = &mut pages[..count];
            if self.kernel.residency(at, pages).is_err() {
                // Its mapping is gone.
                pages.fill(0);
            }
            for alike in pages.chunk_by(|a, b| (a ^ b) & 1 == 0) {
                let end = at + alike.len() * page_size();
                if alike[0] & 1 == 0 {
                    self.stays(Outcome::NotPresent, at, end);
                    at = end;
                }
                while at < end {
                    let next = at + page_size();
                    match self.node_after_migration(at) {
                        0.. => self.sort(vma, at, next, PRESENT),
                        errno => self.stays(no_node(errno), at, next),
                    }
                    at = next;
                }
            }
        }
    }

    /// Decides what becomes of a run of equal pages.
    fn sort(&mut self, vma: &Vma, from: usize, to: usize, categories: u64) {
        let class = |huge| PageClass {
            node: self.wanted.node,
            huge,
            locked: vma.locked,
        };
        if categories & PRESENT == 0 || categories & ZERO != 0 {
            self.stays(Outcome::NotPresent, from, to);
        } else if !vma.write || !vma.read || vma.exec {
            // UFFDIO_MOVE wants both mappings readable and writable alike.
            self.stays(Outcome::Unsupported, from, to);
        } else if !vma.watched {
            self.stays(Outcome::Busy, from, to);
        } else if categories & HUGE != 0 {
            let (first, last) = (
                from.next_multiple_of(SEGMENT).min(to),
                to / SEGMENT * SEGMENT,
            );
            if first >= last {
                return self.stays(Outcome::Unsupported, from, to);
            }
            // A THP that the range cuts would have to be split.
            self.stays(Outcome::Unsupported, from, first);
            self.plan(class(true), first, last);
            self.stays(Outcome::Unsupported, last, to);
        } else {
            self.plan(class(false), from, to);
        }
    }

    /// Queues movable pages, those already on the target left out. The class is that of pages which lie there.
    fn plan(&mut self, class: PageClass, from: usize, to: usize) {
        let unit = class.unit();
        if !self.wanted.ask_nodes {
            return self.plan_of_node(class, from..to);
        }
        let mut at = from;
        while at < to {
            let count = ((to - at) / unit).min(NODES_AT_ONCE);
            for index in 0..count {
                self.addresses[index] = at + index * unit;
            }
            let (addresses, status) = (&self.addresses[..count], &mut self.status[..count]);
            if let Err(error) = self.kernel.nodes(addresses, status) {
                status.fill(-crate::sys::errno(&error));
            }
            for index in 0..count {
                let (start, mut status) = (at + index * unit, self.status[index]);
                if status == -libc::ENOENT {
                    status = self.node_after_migration(start);
                }
                let page = start..start + unit;
                if status < 0 {
                    self.account.book(no_node(status), page, unit);
                } else {
                    let node = status as u32;
                    self.plan_of_node(PageClass { node, ..class }, page);
                }
            }
            at += count * unit;
        }
    }

    /// Node of a page that is on none, or -errno: -ENOENT of one that is not there, -EBUSY of one that still migrates.
    fn node_after_migration(&mut self, page: usize) -> i32 {
        let looks = if self.futile < FUTILE { LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            let (mut resident, mut status) = ([0], [-libc::ENOENT]);
            if self.kernel.residency(page, &mut resident).is_err() || resident[0] & 1 == 0 {
                return -libc::ENOENT;
            }
            if self.kernel.nodes(&[page], &mut status).is_ok() && status[0] != -libc::ENOENT {
                return status[0];
            }
        }
        self.futile += 1;
        -libc::EBUSY
    }

    /// Queues pages of one node, unless that is the target.
    fn plan_of_node(&mut self, class: PageClass, pages: Run) {
        if class.node == self.wanted.node && !self.wanted.relocate {
            let there = Outcome::AlreadyThere;
            return self.account.book(there, pages, class.unit());
        }
        if class.huge && !self.wanted.huge_pages {
            return (self.account).book(Outcome::Unsupported, pages, class.unit());
        }
        let mapping = self.vma;
        let kind = Kind { class, mapping };
        self.pending_bytes += pages.len();
        match self.pending.last_mut() {
            Some((last, run)) if *last == kind && run.end == pages.start => run.end = pages.end,
            _ => self.pending.push((kind, pages)),
        }
    }
}

/// What a page counts as that has this -errno in place of a node.
fn no_node(errno: i32) -> Outcome {
    match -errno {
        libc::ENOENT | libc::EFAULT => Outcome::NotPresent,
        _ => Outcome::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::Ranges;
    use crate::result::ListResult;
    use crate::sys::uffd::Uffd;
    use memferry_linux::pagemap::{Pagemap, SWAPPED};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const BASE: usize = 1 << 40;
    const PAGES: usize = SEGMENT / 4096;
    const RELOCATE: Wanted = Wanted {
        node: 0,
        relocate: true,
        ask_nodes: false,
        huge_pages: true,
    };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Page {
        Hole,
        Zero,
        Swapped,
        /// A base page that the kernel migrates to this node: every third question for one finds it there.
        Migrates(i32),
        /// In the swap cache.
        Cached,
        /// A THP that the kernel migrates.
        HugeMigrates,
        /// A base page and what the kernel says of its node.
        Base(i32),
        Huge(i32),
    }

    impl Page {
        fn categories(self) -> u64 {
            match self {
                Page::Hole => 0,
                Page::Zero => PRESENT | ZERO,
                Page::Swapped | Page::Cached | Page::Migrates(_) => SWAPPED,
                Page::HugeMigrates => SWAPPED | HUGE,
                Page::Base(_) => PRESENT,
                Page::Huge(_) => PRESENT | HUGE,
            }
        }
    }

    impl Page {
        /// A base page that has no node was freed since the look at the page tables.
        fn is_absent(self) -> bool {
            matches!(self, Page::Hole | Page::Zero | Page::Swapped)
                || self == Page::Base(-libc::ENOENT)
        }
    }

    /// Page tables that exist nowhere, from `BASE` on.
    struct Tables {
        pages: Vec<Page>,
        /// Questions for the node of one page.
        asked: AtomicU32,
    }

    fn tables(pages: Vec<Page>) -> Tables {
        Tables {
            pages,
            asked: AtomicU32::new(0),
        }
    }

    impl Kernel for Tables {
        fn uffd(&self) -> &Uffd {
            unreachable!("a cursor watches nothing")
        }
        fn pagemap(&self) -> &Pagemap {
            unreachable!("the tables exist nowhere")
        }
        fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
            let mut count = 0;
            for at in (start..end).step_by(4096) {
                let categories = self.pages[(at - BASE) / 4096].categories();
                if categories == 0 {
                    continue;
                }
                if count > 0
                    && out[count - 1].end == at as u64
                    && out[count - 1].categories == categories
                {
                    out[count - 1].end += 4096;
                } else if count == out.len() {
                    return Ok((count, at));
                } else {
                    out[count] = Region {
                        start: at as u64,
                        end: at as u64 + 4096,
                        categories,
                    };
                    count += 1;
                }
            }
            Ok((count, end))
        }
        fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
            for (page, status) in pages.iter().zip(status) {
                *status = match self.pages[(page - BASE) / 4096] {
                    Page::Base(node) | Page::Huge(node) => node,
                    Page::Migrates(_) | Page::Cached if pages.len() > 1 => -libc::ENOENT,
                    page @ (Page::Migrates(_) | Page::Cached) => {
                        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
                        match page {
                            Page::Migrates(node) if asked % 3 == 2 => node,
                            _ => -libc::ENOENT,
                        }
                    }
                    _ => -libc::ENOENT,
                };
            }
            Ok(())
        }
        fn residency(&self, start: usize, pages: &mut [u8]) -> io::Result<()> {
            for (at, page) in ((start - BASE) / 4096..).zip(pages) {
                // The other bits mean nothing.
                *page = 0xa0 | u8::from(!self.pages[at].is_absent());
            }
            Ok(())
        }
    }

    fn vma(pages: Range<usize>, (write, watched): (bool, bool)) -> Vma {
        Vma {
            range: BASE + pages.start * 4096..BASE + pages.end * 4096,
            read: true,
            write,
            exec: false,
            locked: false,
            watched,
            unmovable: None,
        }
    }

    fn any_status() -> impl Strategy<Value = i32> {
        prop_oneof![4 => Just(0), 4 => Just(1), 1 => Just(-libc::ENOENT), 1 => Just(-libc::EACCES)]
    }

    /// One segment: a THP, or base pages in short runs or a sieve.
    fn any_segment() -> impl Strategy<Value = Vec<Page>> {
        let page = prop_oneof![
            4 => any_status().prop_map(Page::Base),
            2 => Just(Page::Hole),
            1 => Just(Page::Zero),
            1 => Just(Page::Swapped),
            1 => (0i32..2).prop_map(Page::Migrates),
        ];
        let runs = prop::collection::vec((page, 1usize..40), 1..60).prop_map(|runs| {
            let cycle = runs.iter().cycle();
            cycle
                .flat_map(|(page, n)| vec![*page; *n])
                .take(PAGES)
                .collect()
        });
        let sieve = (2usize..5).prop_map(|n| {
            let page = |i| {
                if i % n == 0 {
                    Page::Hole
                } else {
                    Page::Base(1)
                }
            };
            (0..PAGES).map(page).collect()
        });
        prop_oneof![
            2 => runs,
            1 => sieve,
            2 => (0i32..2).prop_map(|node| vec![Page::Huge(node); PAGES]),
            1 => Just(vec![Page::HugeMigrates; PAGES]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn every_page_is_booked_or_in_one_run(
            segments in prop::collection::vec(any_segment(), 1..12),
            cuts in (0usize..PAGES, 0usize..PAGES),
            borders in prop::collection::vec((any::<prop::sample::Index>(), any::<(bool, bool)>()), 0..3),
            ask_nodes: bool,
            relocate: bool,
            limits in prop::collection::vec((1usize..PAGES + 1, 0usize..PAGES + 1), 1..20),
            holes in prop::collection::vec((any::<prop::sample::Index>(), 1usize..700), 0..8),
        ) {
            let tables = tables(segments.concat());
            let (first, last) = (cuts.0, tables.pages.len() - cuts.1);
            prop_assume!(first < last);
            let mut starts = vec![(first, (true, true))];
            starts.extend(borders.iter().map(|(at, kind)| (first + at.index(last - first), *kind)));
            starts.sort_by_key(|(at, _)| *at);
            starts.dedup_by_key(|(at, _)| *at);
            let ends = starts.iter().skip(1).map(|s| s.0).chain([last]);
            let vmas: Vec<_> = starts.iter().zip(ends).map(|(s, end)| vma(s.0..end, s.1)).collect();
            let (start, end) = (BASE + first * 4096, BASE + last * 4096);
            let wanted = Wanted { node: 0, relocate, ask_nodes, huge_pages: true };
            // Parts, with pages between them that nobody asked for.
            let mut parts = Ranges::default();
            for (at, pages) in &holes {
                let from = first + at.index(last - first);
                parts.add(BASE + from * 4096..BASE + (from + pages).min(last) * 4096);
            }
            if holes.is_empty() {
                parts.add(start..end);
            }
            let asked = |page: usize| parts.meeting(&(BASE + page * 4096..BASE + (page + 1) * 4096)).is_some();
            let account = Account::new(parts.as_slice(), true, Arc::default());
            let mut cursor = Cursor::new(&tables, &account, wanted, &vmas, parts.as_slice());
            let mut taken = vec![0; tables.pages.len()];
            let mut runs = List::new_in(Pages);
            let mut limits = limits.iter().cycle();
            while let Some(kind) = {
                let limit = limits.next().unwrap().0 * 4096;
                cursor.next(limit, &mut runs).unwrap()
            } {
                let (limit, keep) = *limits.next().unwrap();
                let bytes: usize = runs.iter().map(Range::len).sum();
                prop_assert!(bytes > 0 && bytes <= SEGMENT);
                if !kind.class.huge && limit % 3 == 0 {
                    // At least a page, or the walk would not end.
                    cursor.give_back(kind, &mut runs, (keep * 4096).clamp(4096, bytes));
                    let kept: usize = runs.iter().map(Range::len).sum();
                    prop_assert_eq!(kept, (keep * 4096).clamp(4096, bytes));
                }
                let mut of_batch = None;
                for run in &runs {
                    prop_assert!(!kind.class.huge || run.start % SEGMENT == 0 && run.len() == SEGMENT);
                    let inside = |v: &Vma| v.range.start <= run.start && run.end <= v.range.end && v.write && v.watched;
                    let mapping = vmas.iter().position(inside);
                    prop_assert!(mapping.is_some(), "a run crosses mappings");
                    prop_assert_eq!(*of_batch.get_or_insert(mapping), mapping, "a batch has two mappings");
                    for at in run.clone().step_by(4096) {
                        let page = (at - BASE) / 4096;
                        taken[page] += 1;
                        prop_assert!(asked(page), "page {} was not asked for", page);
                        let expected = match tables.pages[page] {
                            Page::Base(node) | Page::Migrates(node) => (false, node),
                            Page::Huge(node) => (true, node),
                            other => return Err(TestCaseError::fail(format!("{other:?} is no page"))),
                        };
                        prop_assert_eq!(kind.class.huge, expected.0);
                        if ask_nodes {
                            prop_assert_eq!(kind.class.node as i32, expected.1);
                            prop_assert!(relocate || expected.1 != 0);
                        }
                    }
                }
            }
            let ListResult { total, ranges } = account.close(Duration::ZERO, None).unwrap();
            let in_runs = taken.iter().sum::<usize>() * 4096;
            prop_assert_eq!(total.cancelled_bytes as usize, in_runs);
            for (range, result) in parts.as_slice().iter().zip(ranges) {
                for (page, told) in ((range.start - BASE) / 4096..).zip(result.pages.unwrap()) {
                    prop_assert_eq!(taken[page], usize::from(told.is_none()), "page {}", page);
                    let segment = (BASE + page * 4096) / SEGMENT * SEGMENT;
                    let is_whole = |of: &Range<usize>| of.start <= segment && segment + SEGMENT <= of.end;
                    let mapped = vmas.iter().any(|vma| is_whole(&vma.range) && vma.write && vma.watched);
                    if matches!(tables.pages[page], Page::Huge(_)) && mapped && is_whole(range) {
                        prop_assert!(told != Some(Outcome::Unsupported), "a THP was cut");
                    }
                    prop_assert!(tables.pages[page].is_absent() || told != Some(Outcome::NotPresent), "{:?} is not there", tables.pages[page]);
                }
            }
        }
    }

    #[test]
    fn pages_of_the_swap_cache_are_waited_for_in_vain_a_few_times() {
        for ask_nodes in [false, true] {
            let tables = tables(vec![Page::Cached; 4 * PAGES]);
            let vmas = [vma(0..4 * PAGES, (true, true))];
            let parts = std::slice::from_ref(&vmas[0].range);
            let account = Account::new(parts, false, Arc::default());
            let wanted = Wanted {
                ask_nodes,
                ..RELOCATE
            };
            let mut cursor = Cursor::new(&tables, &account, wanted, &vmas, parts);
            let mut runs = List::new_in(Pages);
            assert!(cursor.next(SEGMENT, &mut runs).unwrap().is_none());
            let asked = tables.asked.load(Ordering::Relaxed);
            assert_eq!(asked, FUTILE * (LOOKS - 1) + 4 * PAGES as u32);
            let result = account.close(Duration::ZERO, None).unwrap().total;
            assert_eq!(result.busy.bytes, 4 * SEGMENT as u64);
        }
    }

    #[test]
    fn pages_of_a_mapping_that_nobody_is_known_to_watch_stay() {
        let tables = tables(vec![Page::Base(1); 10]);
        let vmas = [vma(0..4, (true, false)), vma(4..10, (true, true))];
        let range = BASE..BASE + 10 * 4096;
        let parts = std::slice::from_ref(&range);
        let account = Account::new(parts, false, Arc::default());
        let mut cursor = Cursor::new(&tables, &account, RELOCATE, &vmas, parts);
        let mut runs = List::new_in(Pages);
        cursor.next(SEGMENT, &mut runs).unwrap();
        let run = &(BASE + 4 * 4096..BASE + 10 * 4096);
        assert_eq!(*runs, *std::slice::from_ref(run));
        let result = account.close(Duration::ZERO, None).unwrap().total;
        assert_eq!(result.count(Outcome::Busy).bytes, 4 * 4096);
    }

    #[test]
    fn a_batch_of_one_run_crosses_no_page_table_and_scattered_runs_share_one() {
        let cut = |first: usize, every: usize, limit: usize| {
            let page = |i: usize| {
                if i % every == 0 {
                    Page::Hole
                } else {
                    Page::Base(1)
                }
            };
            let tables = tables((1..=4 * PAGES).map(page).collect());
            let vmas = [vma(first..4 * PAGES, (true, true))];
            let range = vmas[0].range.clone();
            let parts = std::slice::from_ref(&range);
            let account = Account::new(parts, false, Arc::default());
            let mut cursor = Cursor::new(&tables, &account, RELOCATE, &vmas, parts);
            let (mut runs, mut batches) = (List::new_in(Pages), Vec::new());
            while (cursor.next(limit, &mut runs)).unwrap().is_some() {
                let start = runs[0].start;
                let end = runs.last().unwrap().end;
                let pages = runs.iter().map(Range::len).sum::<usize>() / 4096;
                batches.push((pages, start / SEGMENT != (end - 1) / SEGMENT));
            }
            batches
        };
        let whole = usize::MAX;
        let of_one_table = [502, 512, 512, 512].map(|pages| (pages, false));
        assert_eq!(cut(10, whole, SEGMENT), of_one_table);
        assert!(cut(10, whole, SEGMENT / 2).iter().all(|batch| !batch.1));
        // Runs of 7 pages: full batches, wherever the tables end.
        let scattered = cut(10, 8, SEGMENT);
        assert!(
            scattered[..3].iter().all(|&(pages, _)| pages == PAGES),
            "{scattered:?}"
        );
    }

    #[test]
    fn what_is_given_back_comes_again() {
        let tables = tables(vec![Page::Base(1); 10]);
        let vmas = [vma(0..10, (true, true))];
        let range = BASE..BASE + 10 * 4096;
        let parts = std::slice::from_ref(&range);
        let account = Account::new(parts, false, Arc::default());
        let mut cursor = Cursor::new(&tables, &account, RELOCATE, &vmas, parts);
        let mut runs = List::new_in(Pages);
        let kind = cursor.next(3 * 4096, &mut runs).unwrap();
        cursor.give_back(kind.unwrap(), &mut runs, 4096);
        let kept = &(BASE..BASE + 4096);
        assert_eq!(*runs, *std::slice::from_ref(kept));
        let again = cursor.next(SEGMENT, &mut runs).unwrap();
        assert_eq!(again, kind);
        assert_eq!(runs.iter().map(Range::len).sum::<usize>(), 9 * 4096);
        assert_eq!(runs[0].start, BASE + 4096);
        assert!(cursor.next(SEGMENT, &mut runs).unwrap().is_none());
    }
}
