// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moving a page takes on this kernel, measured once in a process: 64 pages to and fro, of memory of its own.
//!
//! Before Linux 6.18 UFFDIO_MOVE flushes the TLB for each base page (`ptep_clear_flush` in `move_present_pte`), which costs
//! most where other CPUs run threads of the process. So a thread runs on another CPU meanwhile, if there is one.

use crate::forkgate::ParentOnly;
use crate::sync::MadeOnce;
use crate::sys::memory::{self, Mapping};
use crate::sys::page_size;
use crate::sys::uffd::{FEATURE_MOVE, Uffd};
use memferry_linux::numa;
use memferry_linux::pagemap::{Pagemap, Region};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const PAGES: usize = 64;

/// Base pages of a piece of 16 KiB.
const PIECE: usize = 4;

/// Rounds beside a running thread that count.
const ROUNDS: usize = 9;

/// Rounds at most: on a busy host the other thread may get no CPU.
const MOST_ROUNDS: usize = 500;

/// Nanoseconds for each base page.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MoveCost {
    /// UFFDIO_MOVE, one way, of the fastest round: on a busy machine the others wait, too. A page that is moved goes out to staging, and its copy comes in: twice this, and the copy.
    pub uffdio_move_ns: f64,
    /// Whether another thread of the process ran at the same time.
    pub beside_a_thread: bool,
    /// Both ways to another node; `None` on a machine with one node.
    pub between_nodes: Option<BetweenNodes>,
}

/// Nanoseconds for each base page that goes to another node, on one lane: each way's fastest of rounds that take all in turns.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BetweenNodes {
    /// Allocate, look for pages, move out, copy, move in, and free.
    pub userfaultfd_ns: f64,
    /// The same in pieces of 16 KiB, each looked for and moved by calls of its own.
    pub userfaultfd_pieces_ns: f64,
    /// move_pages(2), which takes the pages of many pieces in one call.
    pub move_pages_ns: f64,
}

impl MoveCost {
    /// GB/s that UFFDIO_MOVE lets through at most, if copying took no time.
    pub fn bound_gbps(&self) -> f64 {
        page_size() as f64 / (2.0 * self.uffdio_move_ns)
    }

    /// Whether move_pages(2) moves base pages between nodes faster than userfaultfd.
    pub fn favours_move_pages(&self) -> bool {
        (self.between_nodes).is_some_and(|cost| cost.move_pages_ns < cost.userfaultfd_ns)
    }

    /// The same of scattered pieces of a few pages.
    pub fn favours_move_pages_for_pieces(&self) -> bool {
        (self.between_nodes).is_some_and(|cost| cost.move_pages_ns < cost.userfaultfd_pieces_ns)
    }
}

/// The cost on this kernel, measured by the first call; `None` where UFFDIO_MOVE does not work. `nodes` have memory.
pub(crate) fn measured(nodes: &[u32]) -> Option<MoveCost> {
    static COST: MadeOnce<Option<MoveCost>> = MadeOnce::new();
    *COST.get(|| measure(nodes).ok())
}

fn measure(nodes: &[u32]) -> io::Result<MoveCost> {
    let ticks = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let beside = (cpus > 1).then(|| {
            std::thread::Builder::new().spawn_scoped(scope, || {
                let _ = crate::sys::thread::block_signals();
                while !over.load(Ordering::Relaxed) {
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let runs = matches!(beside, Some(Ok(_)));
        // A thread takes longer to start than all rounds.
        while runs && ticks.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let result = Bench::new().and_then(|bench| bench.measure(nodes, runs.then_some(&ticks)));
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// What the rounds in which the other thread ran came to, else all of them; and whether it ran.
fn rounds<T>(
    ticks: Option<&AtomicU64>,
    mut round: impl FnMut() -> io::Result<T>,
) -> io::Result<(Vec<T>, bool)> {
    let now = || ticks.map_or(0, |ticks| ticks.load(Ordering::Relaxed));
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for number in 0..MOST_ROUNDS {
        let before = now();
        let value = round()?;
        let ran = now() > before;
        if ran { &mut beside } else { &mut alone }.push(value);
        if beside.len() == ROUNDS || ticks.is_none() && number + 1 == ROUNDS {
            break;
        }
    }
    Ok(match beside.is_empty() {
        true => (alone, false),
        false => (beside, true),
    })
}

/// What else the machine does only adds to a time, and adds most where the other thread shares the CPU: so the least counts.
fn least(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// Memory to measure with: 64 pages, where they go out to, and where their copies lie.
struct Bench {
    // Before the mappings: what it watches is let go before it is unmapped.
    uffd: ParentOnly<Uffd>,
    pagemap: Pagemap,
    place: Mapping,
    staging: Mapping,
    copies: Mapping,
}

impl Bench {
    fn new() -> io::Result<Bench> {
        let bytes = PAGES * page_size();
        let map = || {
            let mapping = Mapping::new(bytes, page_size())?;
            mapping.empty()?;
            Ok::<_, io::Error>(mapping)
        };
        let bench = Bench {
            uffd: ParentOnly::open(|| Uffd::open(FEATURE_MOVE))?,
            pagemap: Pagemap::open()?,
            place: map()?,
            staging: map()?,
            copies: map()?,
        };
        memory::populate(bench.place.addr(), bytes)?;
        bench.uffd.register(bench.place.addr(), bytes)?;
        bench.uffd.register(bench.staging.addr(), bytes)?;
        Ok(bench)
    }

    fn measure(&self, nodes: &[u32], ticks: Option<&AtomicU64>) -> io::Result<MoveCost> {
        let (times, beside_a_thread) = rounds(ticks, || {
            let begun = Instant::now();
            self.shift(&self.staging, &self.place, PAGES)?;
            self.shift(&self.place, &self.staging, PAGES)?;
            Ok(begun.elapsed().as_nanos() as f64 / (2 * PAGES) as f64)
        })?;
        let uffdio_move_ns = least(times.into_iter());
        let between_nodes = match nodes {
            // A cpuset or a full node may be in the way; then nothing is compared.
            [first, second, ..] => self.between([*first, *second], ticks).ok(),
            _ => None,
        };
        Ok(MoveCost {
            uffdio_move_ns,
            beside_a_thread,
            between_nodes,
        })
    }

    /// Moves all pages by calls for so many of them.
    fn shift(&self, to: &Mapping, from: &Mapping, pages: usize) -> io::Result<()> {
        let bytes = pages * page_size();
        for at in (0..from.len()).step_by(bytes) {
            // SAFETY: both mappings belong to this value, and nobody refers to their contents meanwhile.
            let moved = unsafe { (self.uffd).move_pages(to.addr() + at, from.addr() + at, bytes) };
            moved.stopped.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// All ways in each round, so that whatever else the machine does meets all of them. Three ways between two nodes: in the
    /// next round each goes to the other node.
    fn between(&self, nodes: [u32; 2], ticks: Option<&AtomicU64>) -> io::Result<BetweenNodes> {
        self.by_kernel(nodes[0])?;
        let mut there = true;
        let mut timed = |way: &dyn Fn(u32) -> io::Result<()>| {
            let begun = Instant::now();
            way(nodes[usize::from(there)])?;
            there = !there;
            Ok::<_, io::Error>(begun.elapsed().as_nanos() as f64 / PAGES as f64)
        };
        let (times, _) = rounds(ticks, || {
            Ok([
                timed(&|node| self.by_faults(node, PAGES))?,
                timed(&|node| self.by_faults(node, PIECE))?,
                timed(&|node| self.by_kernel(node))?,
            ])
        })?;
        let [userfaultfd_ns, userfaultfd_pieces_ns, move_pages_ns] =
            [0, 1, 2].map(|way| least(times.iter().map(|ns| ns[way])));
        Ok(BetweenNodes {
            userfaultfd_ns,
            userfaultfd_pieces_ns,
            move_pages_ns,
        })
    }

    fn by_kernel(&self, node: u32) -> io::Result<()> {
        let addresses: [usize; PAGES] =
            std::array::from_fn(|page| self.place.addr() + page * page_size());
        let node = node as i32;
        let mut status = [0; PAGES];
        numa::move_pages(0, &addresses, Some(&[node; PAGES]), &mut status, false)?;
        match status == [node; PAGES] {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }

    fn by_faults(&self, node: u32, pages: usize) -> io::Result<()> {
        let (at, bytes) = (self.copies.addr(), self.copies.len());
        numa::prefer(&(at..at + bytes), node)?;
        memory::populate(at, bytes)?;
        let piece = pages * page_size();
        for at in (self.place.range()).step_by(piece) {
            (self.pagemap).scan(at, at + piece, &mut [Region::default(); PIECE])?;
        }
        self.shift(&self.staging, &self.place, pages)?;
        // SAFETY: both hold 64 pages of this value, which no one else knows.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.staging.addr() as *const u8,
                self.copies.addr() as *mut u8,
                bytes,
            );
        }
        self.shift(&self.place, &self.copies, pages)?;
        self.staging.empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_costs_something_and_the_pages_are_back() {
        let bench = Bench::new().unwrap();
        let start = bench.place.addr();
        for page in 0..PAGES {
            // SAFETY: the page belongs to the bench and is there.
            unsafe { ((start + page * page_size()) as *mut usize).write(page + 1) };
        }
        let cost = bench.measure(&[0], None).unwrap();
        assert!(
            cost.uffdio_move_ns > 0.0 && cost.bound_gbps() > 0.0,
            "{cost:?}"
        );
        assert!(!cost.beside_a_thread && cost.between_nodes.is_none());
        for page in 0..PAGES {
            // SAFETY: as above.
            let word = unsafe { ((start + page * page_size()) as *const usize).read() };
            assert_eq!(word, page + 1);
        }
    }

    #[test]
    fn it_is_measured_once() {
        let first = measured(&[0]).unwrap();
        assert_eq!(measured(&[0]), Some(first));
    }

    #[test]
    fn the_faster_way_is_favoured() {
        let favours = |between_nodes| {
            let cost = MoveCost {
                uffdio_move_ns: 50.0,
                beside_a_thread: true,
                between_nodes,
            };
            let of_pieces = cost.favours_move_pages_for_pieces();
            (cost.favours_move_pages(), of_pieces)
        };
        let between = |move_pages_ns| BetweenNodes {
            userfaultfd_ns: 1000.0,
            userfaultfd_pieces_ns: 2000.0,
            move_pages_ns,
        };
        assert_eq!(favours(Some(between(900.0))), (true, true));
        assert_eq!(favours(Some(between(1500.0))), (false, true));
        assert_eq!(favours(Some(between(2500.0))), (false, false));
        assert_eq!(favours(None), (false, false));
    }

    #[test]
    fn rounds_beside_a_thread_that_ran_count() {
        let ticks = AtomicU64::new(0);
        let mut number = 0;
        let slow_beside = rounds(Some(&ticks), || {
            number += 1;
            if number % 2 == 0 {
                ticks.fetch_add(1, Ordering::Relaxed);
                return Ok(9.0);
            }
            Ok(1.0)
        });
        assert_eq!(slow_beside.unwrap(), (vec![9.0; ROUNDS], true));
        assert_eq!(number, 2 * ROUNDS);
        let never = rounds(Some(&ticks), || Ok(3.0));
        assert_eq!(never.unwrap(), (vec![3.0; MOST_ROUNDS], false));
    }

    #[test]
    fn each_way_is_measured_and_leaves_the_pages_as_they_were() {
        let bench = Bench::new().unwrap();
        let word = |page| (bench.place.addr() + page * page_size()) as *mut usize;
        for page in 0..PAGES {
            // SAFETY: the page belongs to the bench and is there.
            unsafe { word(page).write(page + 1) };
        }
        // A machine with one node: move_pages(2) finds the pages there.
        let cost = bench.between([0, 0], None).unwrap();
        let ways = [
            cost.userfaultfd_ns,
            cost.userfaultfd_pieces_ns,
            cost.move_pages_ns,
        ];
        assert!(
            ways.iter().all(|ns| *ns > 0.0 && ns.is_finite()),
            "{cost:?}"
        );
        for page in 0..PAGES {
            // SAFETY: as above.
            assert_eq!(unsafe { word(page).read() }, page + 1);
        }
        assert_eq!(least([3.0, 1.0, 1000.0].into_iter()), 1.0);
    }
}
