// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of the hot region are while it is accessed, by move_pages(2), which moves nothing and marks nothing as
//! accessed; and what follows from that for the accesses.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memferry_linux::kernel::pghot;
use memferry_linux::numa;

use super::spec::{RegionSeen, Seen};
use crate::region::PAGE;

/// Pages that are looked at each time. Of larger regions every n-th page stands for its neighbours: the accesses are even
/// over a region, so the error of a share is below 1% (one standard deviation of a share of one half).
const MOST_LOOKED_AT: usize = 4096;

/// Between two looks lie so many times what one took: who looks must not take the CPU from those who promote.
const REST: u32 = 4;

/// The share of a hot set from which on it counts as arrived.
const ARRIVED: f64 = 0.95;

/// What is known of the region that is hot.
pub struct Watch<'a> {
    /// The pages that are looked at.
    pages: Vec<usize>,
    /// Pages that each of them stands for.
    stride: usize,
    top: &'a [u32],
    /// Counts pages promoted so far.
    promoted: fn() -> u64,
    in_top: Vec<bool>,
    status: Vec<i32>,
    /// Accesses to the region when it was looked at last.
    accesses: u64,
    seen: RegionSeen,
}

impl<'a> Watch<'a> {
    /// The region at `start`, with so many pages.
    pub fn new(start: usize, pages: usize, top: &'a [u32], promoted: fn() -> u64) -> Self {
        let stride = pages.div_ceil(MOST_LOOKED_AT).max(1);
        let pages: Vec<usize> = (0..pages)
            .step_by(stride)
            .map(|page| start + page * PAGE)
            .collect();
        Self {
            in_top: vec![false; pages.len()],
            status: vec![0; pages.len()],
            pages,
            stride,
            top,
            promoted,
            accesses: 0,
            seen: RegionSeen::default(),
        }
    }

    /// Looks once before the accesses; what is in the top tier already did not arrive there.
    pub fn begin(&mut self, started: Instant, book: &mut Seen) -> std::io::Result<()> {
        self.look()?;
        self.seen.arrived_pages = 0;
        self.note(started, book);
        Ok(())
    }

    fn note(&self, started: Instant, book: &mut Seen) {
        let at = started.elapsed().as_secs_f64();
        book.hot.push((at, self.seen.share));
        book.promoted.push((at, (self.promoted)()));
    }

    /// Looks, and gives the share in the top tier.
    fn look(&mut self) -> std::io::Result<f64> {
        numa::move_pages(0, &self.pages, None, &mut self.status, false)?;
        let mut arrived = 0;
        for (was, &status) in self.in_top.iter_mut().zip(&self.status) {
            // A negative status is a page on its way: it is where it was.
            let is = match u32::try_from(status) {
                Ok(node) => self.top.contains(&node),
                Err(_) => *was,
            };
            arrived += u64::from(is && !*was);
            *was = is;
        }
        self.seen.arrived_pages += arrived * self.stride as u64;
        let there = self.in_top.iter().filter(|&&is| is).count();
        self.seen.share = there as f64 / self.pages.len() as f64;
        Ok(self.seen.share)
    }

    /// Looks, and attributes the accesses since the last time to where the pages were then and are now.
    fn attribute(&mut self, accesses: u64, since: Duration) -> std::io::Result<f64> {
        let before = self.seen.share;
        let now = self.look()?;
        if now >= ARRIVED && self.seen.reached_s.is_none() {
            self.seen.reached_s = Some(since.as_secs_f64());
        }
        let made = accesses - self.accesses;
        self.accesses = accesses;
        Ok(made as f64 * f64::midpoint(before, now))
    }

    /// Looks every `period` until `done`, and books what it sees.
    pub fn follow(
        &mut self,
        period: Duration,
        made: &AtomicU64,
        done: &AtomicBool,
        started: Instant,
        book: &mut Seen,
    ) -> std::io::Result<()> {
        let from = Instant::now();
        let mut next = from;
        loop {
            // Read first: what comes after the last access is not lost.
            let last = done.load(Ordering::Acquire);
            let looked = Instant::now();
            let top = self.attribute(made.load(Ordering::Relaxed), from.elapsed())?;
            book.top_accesses += top;
            self.note(started, book);
            if last {
                book.accesses += self.accesses;
                book.regions.push(std::mem::take(&mut self.seen));
                return Ok(());
            }
            next = (next + period).max(Instant::now() + looked.elapsed() * REST);
            while !done.load(Ordering::Acquire) && Instant::now() < next {
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        }
    }
}

/// The kernel's count of promoted pages.
pub fn promoted() -> u64 {
    pghot::vmstat(Path::new("/")).map_or(0, |counters| promoted_of(&counters))
}

/// The same, of these counters: of all ways to promote, where the kernel counts that; else of pghot alone.
pub fn promoted_of(counters: &std::collections::BTreeMap<String, u64>) -> u64 {
    let names = ["pgpromote_success", "pghot_promoted"];
    let found = names.iter().find_map(|name| counters.get(*name));
    found.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    /// All memory of this machine is the top tier, or none is.
    fn watch(top: &[u32]) -> (Region, Watch<'_>) {
        let region = Region::new(2 << 20, false, 1).expect("memory");
        let watch = Watch::new(region.range().start, 512, top, || 0);
        (region, watch)
    }

    #[test]
    fn accesses_are_attributed_by_the_share_before_and_after() {
        let all: Vec<u32> = (0..64).collect();
        let (_region, mut watch) = watch(&all);
        // Not begun: nothing was known to be there, so half of the accesses were served by the top tier.
        let top = watch.attribute(1000, Duration::from_secs(1)).expect("look");
        assert!((top - 500.0).abs() < 1e-9, "{top}");
        assert_eq!(watch.seen.arrived_pages, 512);
        assert_eq!(watch.seen.reached_s, Some(1.0));
        let top = watch.attribute(1600, Duration::from_secs(2)).expect("look");
        assert!((top - 600.0).abs() < 1e-9, "{top}");
        assert_eq!(watch.seen.reached_s, Some(1.0), "the first time counts");
    }

    #[test]
    fn what_was_there_before_did_not_arrive() {
        let all: Vec<u32> = (0..64).collect();
        let (_region, mut watch) = watch(&all);
        let mut seen = Seen::default();
        watch.begin(Instant::now(), &mut seen).expect("look");
        assert_eq!(watch.seen.arrived_pages, 0);
        assert_eq!((seen.hot.len(), seen.hot[0].1), (1, 1.0));
    }

    #[test]
    fn the_lower_tier_serves_none() {
        let (_region, mut watch) = watch(&[]);
        let mut seen = Seen::default();
        watch.begin(Instant::now(), &mut seen).expect("look");
        let (made, done) = (AtomicU64::new(77), AtomicBool::new(true));
        let period = Duration::from_millis(1);
        watch
            .follow(period, &made, &done, Instant::now(), &mut seen)
            .expect("follow");
        assert_eq!((seen.accesses, seen.regions.len()), (77, 1));
        assert!(seen.top_accesses.abs() < 1e-9 && seen.regions[0].reached_s.is_none());
        assert_eq!((seen.hot.len(), seen.promoted.len()), (2, 2));
    }
}
