// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole pipelines over real memory with a kernel that fails where a script says so.
//!
//! After each pipeline every page must hold its bytes at its place, be booked once, and the pool must account for each of
//! its addresses.

mod failures;
mod owners;
mod panics;
mod scale;
mod spans;

use super::*;
use crate::auto::{Decision, Sample, Way};
use crate::forkgate::Away;
use crate::result::MoveResult;
use crate::sys::memory::{self, Mapping};
use crate::sys::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Message, Progress, Uffd};
use crate::vma::Vma;
use memferry_core::choose::Choice;
use memferry_linux::pagemap::{Pagemap, SWAPPED};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const PAGE: usize = 4096;

/// A call of the `Kernel` trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Site {
    Unmap,
    Remap,
    Fill,
    Zero,
    Release,
    Watches,
    Wake,
    Pending,
    Messages,
    Scan,
    Nodes,
    AreOn,
}

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing, and says why.
    Errno(i32),
    /// So many pages of it, then stops with EAGAIN as the kernel does.
    Partial(usize),
}

/// `count` calls from the `first` on fail.
#[derive(Clone, Copy, Debug)]
struct Injection {
    site: Site,
    first: usize,
    count: usize,
    fault: Fault,
}

fn inject(site: Site, first: usize, count: usize, fault: Fault) -> Injection {
    Injection {
        site,
        first,
        count,
        fault,
    }
}

type Act<'a> = dyn Fn(&Faulty<'_>, Site, usize, Range<usize>) + Sync + 'a;
type Hook<'a> = Box<Act<'a>>;

/// The running kernel, with failures.
struct Faulty<'a> {
    live: Live<'a>,
    script: Vec<Injection>,
    calls: Mutex<HashMap<Site, usize>>,
    /// Called before every call with the number of earlier calls of that site.
    hook: &'a Act<'a>,
    /// Faults that nobody had: the pipeline must not be fooled by them.
    stale: Mutex<Vec<Message>>,
    woken: Mutex<Vec<Range<usize>>>,
}

impl Faulty<'_> {
    fn fault(&self, site: Site, range: Range<usize>) -> Option<Fault> {
        let n = {
            let mut calls = self.calls.lock().unwrap();
            let n = calls.entry(site).or_default();
            *n += 1;
            *n - 1
        };
        (self.hook)(self, site, n, range);
        let hit = |i: &&Injection| i.site == site && (i.first..i.first + i.count).contains(&n);
        self.script.iter().find(hit).map(|i| i.fault)
    }

    fn progress(
        &self,
        site: Site,
        place: usize,
        len: usize,
        call: impl Fn(usize) -> Progress,
    ) -> Progress {
        match self.fault(site, place..place + len) {
            None => call(len),
            Some(Fault::Errno(errno)) => Progress::none(errno),
            Some(Fault::Partial(pages)) => {
                let part = pages * PAGE;
                if part >= len {
                    return call(len);
                }
                let mut progress = call(part);
                progress
                    .stopped
                    .get_or_insert_with(|| io::Error::from_raw_os_error(libc::EAGAIN));
                progress
            }
        }
    }

    fn result(&self, site: Site, range: Range<usize>) -> io::Result<()> {
        match self.fault(site, range) {
            Some(Fault::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}

impl Kernel for Faulty<'_> {
    fn uffd(&self) -> &Uffd {
        self.live.uffd
    }
    fn pagemap(&self) -> &Pagemap {
        self.live.pagemap
    }
    unsafe fn unmap(&self, staging: usize, place: usize, len: usize) -> Progress {
        self.progress(Site::Unmap, place, len, |len| {
            // SAFETY: the caller's promise.
            unsafe { self.live.unmap(staging, place, len) }
        })
    }
    unsafe fn remap(&self, place: usize, from: usize, len: usize) -> Progress {
        self.progress(Site::Remap, place, len, |len| {
            // SAFETY: the caller's promise.
            unsafe { self.live.remap(place, from, len) }
        })
    }
    unsafe fn fill(&self, place: usize, from: usize, len: usize) -> Progress {
        self.progress(Site::Fill, place, len, |len| {
            // SAFETY: the caller's promise.
            unsafe { self.live.fill(place, from, len) }
        })
    }
    fn zero(&self, place: usize, len: usize) -> io::Result<()> {
        self.result(Site::Zero, place..place + len)?;
        self.live.zero(place, len)
    }
    fn release(&self, place: usize, len: usize) -> io::Result<()> {
        self.result(Site::Release, place..place + len)?;
        self.live.release(place, len)
    }
    fn watches(&self, place: usize) -> io::Result<bool> {
        self.result(Site::Watches, place..place + PAGE)?;
        self.live.watches(place)
    }
    fn wake(&self, place: usize, len: usize) -> io::Result<()> {
        self.woken.lock().unwrap().push(place..place + len);
        self.result(Site::Wake, place..place + len)?;
        self.live.wake(place, len)
    }
    fn pending(&self) -> bool {
        match self.fault(Site::Pending, 0..0) {
            Some(Fault::Errno(_)) => false,
            Some(Fault::Partial(_)) => true,
            None => self.live.pending() || !self.stale.lock().unwrap().is_empty(),
        }
    }
    fn messages(&self, out: &mut [Message]) -> io::Result<usize> {
        self.result(Site::Messages, 0..0)?;
        if let Some(message) = self.stale.lock().unwrap().pop() {
            out[0] = message;
            return Ok(1);
        }
        self.live.messages(out)
    }
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        self.result(Site::Scan, start..end)?;
        self.live.scan(start, end, out)
    }
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        self.result(Site::Nodes, pages[0]..pages[0] + PAGE)?;
        // Two nodes in turn, 64 KiB each, wherever the pages lie.
        for (page, status) in pages.iter().zip(status) {
            *status = (page >> 16 & 1) as i32;
        }
        Ok(())
    }
    fn are_on(&self, pages: &Range<usize>, _: usize, _: u32) -> bool {
        self.result(Site::AreOn, pages.clone()).is_ok()
    }
}

/// Copies with memcpy; the copies of which `panics` names the number fail.
struct Copier {
    lanes: usize,
    panics: Range<usize>,
    copies: AtomicUsize,
}

// SAFETY: memcpy has copied everything when it returns.
unsafe impl Migrator for Copier {
    fn name(&self) -> &'static str {
        "test"
    }
    fn lanes(&self) -> usize {
        self.lanes
    }
    fn call(&self, lanes: usize) {
        assert!(lanes <= self.lanes);
    }
    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        let fails = (self.panics).contains(&self.copies.fetch_add(1, Ordering::Relaxed));
        // A copy that fails has copied a part.
        let copied = if fails { len / 2 } else { len };
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, copied) };
        if fails {
            // Without the hook's message.
            std::panic::resume_unwind(Box::new("the copy fails"));
        }
    }
}

/// What a segment of 2 MiB holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    /// Base pages.
    Pages,
    /// Base pages, each `n`-th a hole.
    Sieve(usize),
    Huge,
    Nothing,
    /// The zero page.
    Zeroes,
}

/// The memory that is moved.
struct Memory {
    mapping: Mapping,
    bytes: Vec<u8>,
    present: Vec<bool>,
}

impl Memory {
    fn new(segments: &[Filled]) -> Memory {
        let len = segments.len() * SEGMENT;
        let mapping = Mapping::new(len, SEGMENT).unwrap();
        let mut bytes = vec![0u8; len];
        let mut present = vec![false; len / PAGE];
        for (index, filled) in segments.iter().enumerate() {
            let addr = mapping.addr() + index * SEGMENT;
            memory::advise_thps(addr, SEGMENT, *filled == Filled::Huge).unwrap();
            for page in 0..SEGMENT / PAGE {
                let (at, offset) = (addr + page * PAGE, index * SEGMENT + page * PAGE);
                let touched = match filled {
                    Filled::Pages | Filled::Huge => true,
                    Filled::Sieve(n) => page % n != 0,
                    Filled::Nothing => false,
                    Filled::Zeroes => {
                        // SAFETY: the page is mapped; reading it maps the zero page.
                        unsafe { std::ptr::read_volatile(at as *const u8) };
                        false
                    }
                };
                if touched {
                    let seed = (offset / PAGE) as u32;
                    for word in 0..PAGE / 4 {
                        let value = seed
                            .wrapping_mul(2_654_435_761)
                            .wrapping_add(word as u32)
                            .to_ne_bytes();
                        bytes[offset + word * 4..][..4].copy_from_slice(&value);
                    }
                    present[offset / PAGE] = true;
                    // SAFETY: the page is mapped and this test's own.
                    unsafe {
                        std::ptr::copy_nonoverlapping(bytes[offset..].as_ptr(), at as *mut u8, PAGE)
                    };
                }
            }
        }
        Memory {
            mapping,
            bytes,
            present,
        }
    }

    fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    fn vmas(&self) -> crate::sys::list::List<Vma> {
        let mut vmas =
            crate::vma::movable(std::path::Path::new("/proc/self/maps"), &self.range()).unwrap();
        vmas.iter_mut().for_each(|vma| vma.watched = true);
        vmas
    }

    /// Addresses of some pages.
    fn pages(&self, pages: &Range<usize>) -> Range<usize> {
        let start = self.mapping.addr();
        start + pages.start * PAGE..start + pages.end * PAGE
    }

    /// Every page that was there is there, and every byte is what it was; `dropped` pages are not looked at.
    fn check(&self, pagemap: &Pagemap, dropped: &Range<usize>) {
        let mut regions = vec![Region::default(); self.present.len() + 1];
        let range = self.range();
        let (count, _) = pagemap.scan(range.start, range.end, &mut regions).unwrap();
        let mut there = vec![false; self.present.len()];
        for region in &regions[..count] {
            for at in (region.start as usize..region.end as usize).step_by(PAGE) {
                let page = (at - range.start) / PAGE;
                there[page] = !dropped.contains(&page);
                assert!(!there[page] || region.categories & SWAPPED == 0);
            }
        }
        for (page, (was, is)) in self.present.iter().zip(&there).enumerate() {
            assert!(
                !was || *is || dropped.contains(&page),
                "page {page} is lost"
            );
        }
        for (page, bytes) in self
            .bytes
            .chunks(PAGE)
            .enumerate()
            .filter(|(p, _)| there[*p])
        {
            // SAFETY: the page is mapped, and nobody writes to it.
            let now = unsafe {
                std::slice::from_raw_parts((range.start + page * PAGE) as *const u8, PAGE)
            };
            let first = |bytes: &[u8]| bytes[..8].to_vec();
            assert!(
                now == bytes,
                "page {page} holds {:x?}, not {:x?}",
                first(now),
                first(bytes)
            );
        }
    }
}

/// How one pipeline goes.
#[derive(Clone, Debug)]
struct Setup {
    segments: Vec<Filled>,
    lanes: usize,
    /// Bytes of a span of a chooser that changes its mind after each; `None`: all lanes carry all of it.
    span: Option<usize>,
    batch_bytes: usize,
    pool_limit: usize,
    /// Free base pages that the pool holds at first, in pieces of odd sizes.
    prefill: usize,
    recycle: bool,
    /// The machine has two nodes (destination pages), or one (the kernel fills places).
    ask_nodes: bool,
    slots: usize,
    script: Vec<Injection>,
    panics: Range<usize>,
    stale: Vec<usize>,
    /// Pages that their owner throws away during the pipeline.
    dropped: Range<usize>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            segments: vec![Filled::Pages, Filled::Sieve(3), Filled::Huge],
            lanes: 1,
            span: None,
            batch_bytes: 256 << 10,
            pool_limit: 8 << 20,
            prefill: 0,
            recycle: true,
            ask_nodes: true,
            slots: 3,
            script: vec![],
            panics: 0..0,
            stale: vec![],
            dropped: 0..0,
        }
    }
}

/// What is left after a pipeline.
struct Ended {
    result: MoveResult,
    error: Option<io::Error>,
    woken: Vec<Range<usize>>,
    /// What the chooser was told of: which of its spans, of what, how many bytes.
    learnt: Vec<(usize, Kind, u64)>,
    /// How many spans it was asked about.
    chosen: usize,
}

impl Ended {
    /// Asserts that all pages of the range were moved, or were not there.
    fn assert_all_moved(&self, setup: &Setup) {
        let (moved, absent) = (self.result.moved, self.result.not_present);
        let bytes = (moved.bytes + absent.bytes) as usize;
        let all = setup.segments.len() * SEGMENT;
        assert_eq!(bytes, all, "{setup:?} {:?}", self.result);
    }
}

/// A chooser that goes through all numbers of lanes, and copies with memcpy.
struct Restless {
    lanes: usize,
    span: usize,
    spans: Mutex<usize>,
    learnt: Mutex<Vec<(usize, Kind, u64)>>,
}

impl Chooser for Restless {
    fn span(&self) -> usize {
        self.span
    }

    fn choose(&self, _: Kind, bytes: usize) -> Decision {
        let mut spans = self.spans.lock().unwrap();
        let option = *spans as u32;
        *spans += 1;
        let way = Way {
            lanes: 1 + option as usize % self.lanes,
            routine: crate::copy::memcpy(),
        };
        let choice = Choice {
            bytes: bytes as u64,
            option,
            ..Choice::default()
        };
        let long = false;
        Decision {
            way,
            choice,
            long,
            of: Sample::Lost,
        }
    }

    fn learn(&self, kind: Kind, decision: &Decision, took: Duration) {
        assert!(!took.is_zero());
        let choice = decision.choice;
        let told = (choice.option as usize, kind, choice.bytes);
        self.learnt.lock().unwrap().push(told);
    }
}

impl Setup {
    /// Moves all, with nobody else at work, and checks what must hold.
    fn run_pipeline(&self) -> Ended {
        self.run_with(&|_| Box::new(|_, _, _, _| {}))
    }

    /// The same, with `hook` before every call.
    fn run_with<'h>(&self, hook: &dyn Fn(&Memory) -> Hook<'h>) -> Ended {
        self.run_and_check(hook, &|_| {})
    }

    /// The same, and checks what `check` adds.
    fn run_and_check<'h>(
        &self,
        hook: &dyn Fn(&Memory) -> Hook<'h>,
        check: &dyn Fn(&Memory),
    ) -> Ended {
        self.run_until(&AtomicBool::new(false), hook, check)
    }

    /// The same, until `cancel` is set.
    fn run_until<'h>(
        &self,
        cancel: &AtomicBool,
        hook: &dyn Fn(&Memory) -> Hook<'h>,
        check: &dyn Fn(&Memory),
    ) -> Ended {
        let pagemap = Pagemap::open().unwrap();
        let memory = Memory::new(&self.segments);
        let pool = PagePool::new(self.pool_limit, false);
        self.prefill(&pool);
        let ended = {
            let hook = hook(&memory);
            self.run_over(&memory, &memory.vmas(), &pool, &pagemap, cancel, &*hook)
        };
        memory.check(&pagemap, &self.dropped);
        check(&memory);
        pool.audit(&pagemap);
        ended
    }

    fn prefill(&self, pool: &PagePool) {
        let mut bytes = 0;
        for pages in [1, 3, 17, 64, 5, 512].into_iter().cycle() {
            if bytes >= self.prefill {
                break;
            }
            let piece = pool
                .allocate(PageClass::default(), pages * PAGE, |_| true)
                .unwrap();
            // SAFETY: the piece was populated. What lies in a free page must never be seen.
            unsafe { std::ptr::write_bytes(piece.addr() as *mut u8, 0xEE, piece.len()) };
            bytes += piece.len();
            pool.put_full(piece);
        }
    }

    fn run_over(
        &self,
        memory: &Memory,
        vmas: &[Vma],
        pool: &PagePool,
        pagemap: &Pagemap,
        cancel: &AtomicBool,
        hook: &Act<'_>,
    ) -> Ended {
        let range = memory.range();
        let uffd = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
        uffd.register(range.start, range.len()).unwrap();
        let faulty = Faulty {
            live: Live {
                uffd: &uffd,
                pagemap,
            },
            script: self.script.clone(),
            calls: Mutex::default(),
            hook,
            stale: Mutex::new(
                self.stale
                    .iter()
                    .map(|page| Message::Fault {
                        addr: range.start + page % memory.present.len() * PAGE,
                        thread: 0,
                    })
                    .collect(),
            ),
            woken: Mutex::default(),
        };
        let parts = [range.clone()];
        let account = Account::new(&parts, true, Arc::default());
        let migrator = Copier {
            lanes: self.lanes,
            panics: self.panics.clone(),
            copies: AtomicUsize::new(0),
        };
        let wanted = Wanted {
            node: 0,
            relocate: true,
            ask_nodes: self.ask_nodes,
            huge_pages: true,
        };
        let restless = Restless {
            lanes: self.lanes,
            span: self.span.unwrap_or(SEGMENT),
            spans: Mutex::default(),
            learnt: Mutex::default(),
        };
        let plan = Plan {
            kernel: &faulty,
            pool,
            account: &account,
            migrator: &migrator,
            range: range.clone(),
            vmas,
            parts: &parts,
            excluded: &[],
            batch_bytes: self.batch_bytes,
            lanes: self.lanes,
            chooser: self.span.map(|_| &restless as &dyn Chooser),
            batch_grows: false,
            wanted,
            recycle: self.recycle,
            cancel,
        };
        let pipeline = Pipeline::new(plan, self.slots).unwrap();
        let room = pipeline.cursor.lock().unwrap().room();
        std::thread::scope(|scope| {
            let pipeline = &pipeline;
            for lane in 1..self.lanes {
                scope.spawn(move || pipeline.run_lane(lane));
            }
            pipeline.run_lane(0);
        });
        for batch in &pipeline.batches {
            let batch = batch.read().unwrap();
            assert!(batch.gate.is_none(), "a fork would wait for ever");
            assert!(batch.away.runs().is_empty() && batch.away.bytes() == 0);
            // Nothing grows while pages are away.
            assert_eq!(batch.away.room(), SEGMENT / PAGE);
            assert_eq!(batch.planned.capacity(), SEGMENT / PAGE);
        }
        assert_eq!(pipeline.cursor.lock().unwrap().room(), room);
        let error = pipeline.finish().error;
        let learnt = restless.learnt.into_inner().unwrap();
        let woken = faulty.woken.into_inner().unwrap();
        let result = account
            .close(std::time::Duration::ZERO, None)
            .unwrap()
            .into_range();
        let booked: u64 = Outcome::ALL.iter().map(|o| result.count(*o).bytes).sum();
        let looked_at = result.pages.iter().flatten().flatten().count();
        assert_eq!(booked as usize, looked_at * PAGE, "pages are booked twice");
        Ended {
            chosen: *restless.spans.lock().unwrap(),
            result,
            error,
            woken,
            learnt,
        }
    }
}

/// At call `n` of `site`, lets the pipeline read a message of the test's.
fn tell(site: Site, n: usize, message: Message) -> Hook<'static> {
    Box::new(move |kernel, at, number, _| {
        if at == site && number == n {
            kernel.stale.lock().unwrap().push(message);
        }
    })
}
