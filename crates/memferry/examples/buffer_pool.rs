// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small buffer pool of 16 KiB pages on two memory nodes: clients use some hundred pages most of the time, then others, and
//! `Tiering` keeps what they use in the faster node. The pool grows once and shrinks once while they use it. Prints what each
//! second brought, and at the end, as TAP 13, whether it came to what it should.
//!
//! `buffer_pool [TOP LOWER]`: the nodes; the first two with memory unless told. Exit status 1 when a check failed or the
//! machine has one node.

#![allow(clippy::unwrap_used, reason = "an example, and a check of the lab")]

use memferry::{Mover, MoverOptions, MtCopy, MtCopyOptions, Tiering, TieringOptions};
use memferry_linux::numa;
use memferry_linux::topology::Topology;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

const PAGE: usize = 16 << 10;
/// Of the pool when it is largest.
const PAGES: usize = 4096;
/// An eighth of that fits into the top tier.
const TOP: usize = PAGES / 8;
const HOT: usize = PAGES / 10;
const CLIENTS: usize = 2;
const ROUNDS: usize = 40;

/// What is so for some rounds.
struct Phase {
    rounds: usize,
    pages: usize,
    hot_from: usize,
}

/// The pool grows by pages that are hot then, and shrinks by others.
const PHASES: [Phase; 3] = [
    Phase {
        rounds: ROUNDS,
        pages: PAGES / 2,
        hot_from: 0,
    },
    Phase {
        rounds: ROUNDS,
        pages: PAGES,
        hot_from: PAGES / 2,
    },
    Phase {
        rounds: ROUNDS / 2,
        pages: PAGES * 3 / 4,
        hot_from: PAGES / 2,
    },
];

/// The pool: in its first word each page has its number, in the second how often it was used, in the last both.
struct Pool {
    start: usize,
}

impl Pool {
    fn new(lower: u32) -> Pool {
        // SAFETY: an anonymous mapping at an address that the kernel chooses.
        let start = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE, rights, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "no memory for the pool");
        // Pages of 16 KiB cannot leave a THP.
        // SAFETY: the pool's own mapping.
        unsafe { libc::madvise(start, PAGES * PAGE, libc::MADV_NOHUGEPAGE) };
        let pool = Pool {
            start: start.expose_provenance(),
        };
        numa::prefer(&pool.range(0..PAGES), lower).unwrap();
        pool
    }

    fn range(&self, pages: Range<usize>) -> Range<usize> {
        self.start + pages.start * PAGE..self.start + pages.end * PAGE
    }

    fn fill(&self, pages: Range<usize>) {
        for page in pages {
            for at in (0..PAGE).step_by(4096) {
                self.word(page, at / 8).store(page, Ordering::Relaxed);
            }
            self.write(page, 0);
        }
    }

    /// Gives memory back to the kernel. No client uses these pages, and none will.
    fn unmap(&self, pages: Range<usize>) {
        let range = self.range(pages);
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the pool's own mapping, in which nobody uses these pages any more.
        let failed = unsafe { libc::munmap(start, range.len()) };
        assert_eq!(failed, 0, "munmap");
    }

    fn word(&self, page: usize, word: usize) -> &AtomicUsize {
        let addr = self.start + page * PAGE + word * 8;
        // SAFETY: within the part of the pool that is mapped; all access to it is atomic.
        unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) }
    }

    fn write(&self, page: usize, uses: usize) {
        self.word(page, 1).store(uses, Ordering::Relaxed);
        let both = page ^ uses.rotate_left(32);
        self.word(page, PAGE / 8 - 1).store(both, Ordering::Relaxed);
    }

    /// Uses a page: one client per page at a time.
    fn access(&self, page: usize) -> bool {
        let uses = self.word(page, 1).load(Ordering::Relaxed);
        let whole = self.is_whole(page);
        self.write(page, uses + 1);
        whole
    }

    fn is_whole(&self, page: usize) -> bool {
        let uses = self.word(page, 1).load(Ordering::Relaxed);
        let both = self.word(page, PAGE / 8 - 1).load(Ordering::Relaxed);
        let words = (4096..PAGE - 4096).step_by(4096);
        let numbers = words.map(|at| self.word(page, at / 8).load(Ordering::Relaxed));
        both == page ^ uses.rotate_left(32)
            && self.word(page, 0).load(Ordering::Relaxed) == page
            && numbers.into_iter().all(|number| number == page)
    }

    /// Which of the first pages lie on a node.
    fn on(&self, node: u32, pages: usize) -> Vec<bool> {
        let pages: Vec<usize> = self.range(0..pages).step_by(PAGE).collect();
        let mut status = vec![0; pages.len()];
        numa::move_pages(0, &pages, None, &mut status, false).unwrap();
        status.iter().map(|&on| on == node as i32).collect()
    }
}

fn main() -> ExitCode {
    let given: Vec<u32> = std::env::args()
        .skip(1)
        .map(|a| a.parse().unwrap())
        .collect();
    let topology = Topology::read().unwrap();
    let nodes: Vec<u32> = topology.nodes_with_memory().map(|node| node.id).collect();
    let (top, lower) = match (&given[..], &nodes[..]) {
        (&[top, lower], _) | (&[], &[top, lower, ..]) => (top, lower),
        _ => {
            println!("Bail out! not run: this needs two memory nodes; the nodes are {nodes:?}");
            return ExitCode::FAILURE;
        }
    };
    let pool = Pool::new(lower);
    let mover = Mover::new(MoverOptions::new(
        MtCopy::new(MtCopyOptions::default()).unwrap(),
    ))
    .unwrap();
    println!("TAP version 13\n1..4");
    println!(
        "# pages on node {lower}, room for {TOP} on node {top}, through {:?}",
        mover.backend()
    );
    let options = TieringOptions::new(top, lower, TOP * PAGE);
    let tiering = Tiering::new(mover, options).unwrap();
    let mut pages = PHASES[0].pages;
    pool.fill(0..pages);
    tiering.add(pool.range(0..pages)).unwrap();

    let uses: Vec<AtomicU32> = (0..PAGES).map(|_| AtomicU32::new(0)).collect();
    let (hot_from, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (size, wrong) = (AtomicUsize::new(pages), AtomicUsize::new(0));
    // Uses that each client has ended.
    let ended = [const { AtomicUsize::new(0) }; CLIENTS];
    let mut shares = Vec::new();
    let (mut promoted, mut beyond) = (0, 0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (pool, tiering, uses, hot_from) = (&pool, &tiering, &uses, &hot_from);
            let (over, size, wrong, ended) = (&over, &size, &wrong, &ended[client]);
            scope.spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ client as u64;
                while !over.load(Ordering::Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let drawn = (random >> 33) as usize;
                    // Nine of ten uses are of the hot tenth; each client has its own half of all pages.
                    let page = if drawn % 10 < 9 {
                        hot_from.load(Ordering::Relaxed) + drawn / 10 % HOT
                    } else {
                        drawn / 10 % size.load(Ordering::SeqCst)
                    };
                    let page = page / CLIENTS * CLIENTS + client;
                    tiering.record(pool.start + page * PAGE);
                    uses[page].fetch_add(1, Ordering::Relaxed);
                    wrong.fetch_add(usize::from(!pool.access(page)), Ordering::Relaxed);
                    ended.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        for phase in PHASES {
            if phase.pages > pages {
                let more = pages..phase.pages;
                pool.fill(more.clone());
                tiering.add(pool.range(more)).unwrap();
                size.store(phase.pages, Ordering::SeqCst);
            } else if phase.pages < pages {
                let fewer = phase.pages..pages;
                size.store(phase.pages, Ordering::SeqCst);
                // A use that is under way may be of a page that goes; one that begins after it reads the new size.
                let before = ended.each_ref().map(|count| count.load(Ordering::SeqCst));
                while (ended.iter().zip(before))
                    .any(|(count, before)| count.load(Ordering::SeqCst) <= before)
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                tiering.forget(pool.range(fewer.clone())).unwrap();
                pool.unmap(fewer);
            }
            pages = phase.pages;
            let from = phase.hot_from;
            hot_from.store(from, Ordering::Relaxed);
            let mut late = (0, 0);
            for number in 1..=phase.rounds {
                std::thread::sleep(Duration::from_millis(250));
                let round = tiering.round().unwrap();
                promoted += round.promoted_bytes;
                let (on_top, mut served, mut all) = (pool.on(top, pages), 0, 0);
                beyond += usize::from(on_top.iter().filter(|on| **on).count() > TOP);
                for (page, uses) in uses[..pages].iter().enumerate() {
                    let uses = u64::from(uses.swap(0, Ordering::Relaxed));
                    all += uses;
                    served += if on_top[page] { uses } else { 0 };
                }
                let share = served as f64 / all.max(1) as f64;
                if number % 4 == 0 {
                    println!(
                        "# {pages} pages, hot from {from} on, round {number}: {:.1} MiB up, {:.1} MiB down, {:.0}% of {all} uses in the top tier",
                        round.promoted_bytes as f64 / (1 << 20) as f64,
                        round.demoted_bytes as f64 / (1 << 20) as f64,
                        share * 100.0
                    );
                }
                if number > phase.rounds * 3 / 4 {
                    late = (late.0 + served, late.1 + all);
                }
            }
            shares.push(late.0 as f64 / late.1.max(1) as f64);
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut failed = false;
    let mut check = |number: usize, holds: bool, what: String| {
        failed |= !holds;
        println!("{} {number} - {what}", if holds { "ok" } else { "not ok" });
    };
    let whole = (0..pages).filter(|&page| pool.is_whole(page)).count();
    let wrong = wrong.into_inner();
    check(
        1,
        whole == pages && wrong == 0,
        format!("{whole} of {pages} pages are whole, {wrong} uses found one that was not"),
    );
    check(
        2,
        shares.iter().all(|share| *share >= 0.8),
        format!("shares of uses in the top tier in the last quarter of each phase: {shares:.2?}"),
    );
    check(
        3,
        beyond == 0,
        format!("the top tier had more than its share in {beyond} rounds"),
    );
    // Two sets of pages are hot, one after the other.
    let most = (2 * 4 * HOT * PAGE) as u64;
    check(
        4,
        promoted <= most,
        format!("{promoted} bytes were promoted, at most {most} wanted"),
    );
    ExitCode::from(u8::from(failed))
}
