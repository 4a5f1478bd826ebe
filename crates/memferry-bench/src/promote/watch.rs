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

/// Some pages, and which of them were in the top tier at the last look.
pub struct Pages<'a> {
    addresses: Vec<usize>,
    top: &'a [u32],
    in_top: Vec<bool>,
    status: Vec<i32>,
}

impl<'a> Pages<'a> {
    /// None was seen yet.
    pub fn new(addresses: Vec<usize>, top: &'a [u32]) -> Self {
        Self {
            in_top: vec![false; addresses.len()],
            status: vec![0; addresses.len()],
            addresses,
            top,
        }
    }

    /// Every n-th page of so many, and n: no more than `most`.
    pub fn even(start: usize, pages: usize, most: usize, top: &'a [u32]) -> (Self, usize) {
        let stride = pages.div_ceil(most).max(1);
        let of = (0..pages).step_by(stride).map(|page| start + page * PAGE);
        (Self::new(of.collect(), top), stride)
    }

    /// Looks; `changed` gets the place of each page that is in the other tier than before, and whether that is the top one.
    pub fn look(&mut self, mut changed: impl FnMut(usize, bool)) -> std::io::Result<()> {
        numa::move_pages(0, &self.addresses, None, &mut self.status, false)?;
        for (place, (was, &status)) in self.in_top.iter_mut().zip(&self.status).enumerate() {
            // A negative status is a page on its way: it is where it was.
            let is = match u32::try_from(status) {
                Ok(node) => self.top.contains(&node),
                Err(_) => *was,
            };
            if is != *was {
                changed(place, is);
            }
            *was = is;
        }
        Ok(())
    }

    /// How many of them were in the top tier.
    pub fn in_top(&self) -> usize {
        self.in_top.iter().filter(|&&is| is).count()
    }

    /// The share that was there.
    pub fn share(&self) -> f64 {
        self.in_top() as f64 / self.in_top.len().max(1) as f64
    }
}

/// Acts every `period` until `done`, and a last time after that, as `act` is told. It acts a fifth of the time at most.
pub fn every(
    period: Duration,
    done: &AtomicBool,
    mut act: impl FnMut(bool) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut next = Instant::now();
    loop {
        // Read first: what comes after the last access is not lost.
        let last = done.load(Ordering::Acquire);
        let began = Instant::now();
        act(last)?;
        if last {
            return Ok(());
        }
        next = (next + period).max(Instant::now() + began.elapsed() * REST);
        while !done.load(Ordering::Acquire) && Instant::now() < next {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// What is known of the region that is hot.
pub struct Watch<'a> {
    pages: Pages<'a>,
    /// Pages that each of those stands for.
    stride: usize,
    /// Counts pages promoted so far.
    promoted: fn() -> u64,
    /// Accesses to the region when it was looked at last.
    accesses: u64,
    seen: RegionSeen,
}

impl<'a> Watch<'a> {
    /// The region at `start`, with so many pages.
    pub fn new(start: usize, pages: usize, top: &'a [u32], promoted: fn() -> u64) -> Self {
        let (pages, stride) = Pages::even(start, pages, MOST_LOOKED_AT, top);
        Self {
            pages,
            stride,
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
        let mut arrived = 0;
        self.pages.look(|_, is| arrived += u64::from(is))?;
        self.seen.arrived_pages += arrived * self.stride as u64;
        self.seen.share = self.pages.share();
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
        every(period, done, |last| {
            let top = self.attribute(made.load(Ordering::Relaxed), from.elapsed())?;
            book.top_accesses += top;
            self.note(started, book);
            if last {
                book.accesses += self.accesses;
                book.regions.push(std::mem::take(&mut self.seen));
            }
            Ok(())
        })
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
