// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of a workload are while it runs, what share of the accesses that serves, and how long pages stay.

use std::io;

use super::pattern::Pattern;
use super::spec::Sample;
use crate::promote::watch::Pages;
use crate::region::PAGE;

/// Pages of each of the two lists that are looked at.
const LOOKED_AT: usize = 2048;
/// How long a page stays that counts as kept: churn is the pages promoted for each such one.
pub const STAY_S: f64 = 10.0;

/// What is looked at.
pub struct Looks<'a> {
    /// Every n-th page, and n.
    even: Pages<'a>,
    stride: usize,
    /// Since when each of them is in the top tier; infinite if it is not there, was there from the beginning, or is counted.
    since: Vec<f64>,
    stayed: u64,
    /// Pages of random accesses: the share of them in the top tier is that of the accesses.
    accessed: Pages<'a>,
    top: &'a [u32],
    start: usize,
    operations: u64,
    top_operations: f64,
    all_operations: u64,
    /// Counts pages promoted so far.
    promoted: fn() -> u64,
}

impl<'a> Looks<'a> {
    /// At memory from `start` on.
    pub fn new(start: usize, bytes: usize, top: &'a [u32], promoted: fn() -> u64) -> Self {
        let (even, stride) = Pages::even(start, bytes / PAGE, LOOKED_AT, top);
        Self {
            since: vec![f64::INFINITY; bytes.div_ceil(PAGE * stride)],
            even,
            stride,
            stayed: 0,
            accessed: Pages::new(Vec::new(), top),
            top,
            start,
            operations: 0,
            top_operations: 0.0,
            all_operations: 0,
            promoted,
        }
    }

    /// Looks once before a phase; the pages that are in the top tier before the first one did not come.
    pub fn begin(
        &mut self,
        pattern: &Pattern,
        phase: usize,
        load: impl Fn(usize) -> u64,
    ) -> io::Result<Sample> {
        // Accesses that no thread makes.
        let mut sequence =
            pattern.sequence(usize::from(u16::MAX), usize::from(u16::MAX) + 1, phase);
        let mut addresses = Vec::new();
        while addresses.len() < LOOKED_AT {
            sequence.jump();
            sequence.operation(&mut |at, _| {
                addresses.push(self.start + at / PAGE * PAGE);
                load(at)
            });
        }
        self.accessed = Pages::new(addresses, self.top);
        self.operations = 0;
        self.accessed.look(|_, _| ())?;
        if phase == 0 {
            self.even.look(|_, _| ())?;
        }
        Ok(Sample {
            promoted: (self.promoted)(),
            top_share: self.accessed.share(),
            ..Sample::default()
        })
    }

    /// Looks, so many seconds after the begin of the phase and of the run.
    pub fn look(
        &mut self,
        at_s: f64,
        run_s: f64,
        operations: u64,
        busy_ns: u64,
    ) -> io::Result<Sample> {
        let before = self.accessed.share();
        self.accessed.look(|_, _| ())?;
        let now = self.accessed.share();
        let made = operations - self.operations;
        self.operations = operations;
        self.all_operations += made;
        self.top_operations += made as f64 * f64::midpoint(before, now);
        let since = &mut self.since;
        self.even
            .look(|place, is| since[place] = if is { run_s } else { f64::INFINITY })?;
        for since in &mut self.since {
            if run_s - *since >= STAY_S {
                self.stayed += self.stride as u64;
                *since = f64::INFINITY;
            }
        }
        Ok(Sample {
            at_s,
            operations,
            busy_ns,
            promoted: (self.promoted)(),
            top_share: now,
        })
    }

    /// Share of the accesses that the top tier served.
    pub fn top_share(&self) -> f64 {
        self.top_operations / self.all_operations.max(1) as f64
    }

    /// Arrivals in the top tier that stayed.
    pub fn stayed(&self) -> u64 {
        self.stayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::workload::{Memory, Workload};
    use crate::region::Region;

    const BYTES: usize = 16 << 20;

    fn looks(region: &Region, top: &'static [u32]) -> Looks<'static> {
        let mut looks = Looks::new(region.range().start, BYTES, top, || 7);
        let pattern = Pattern::new(Workload::Zipf, Memory::Base, BYTES, 0.99, 1);
        let first = looks.begin(&pattern, 0, |_| 0).expect("looked");
        assert_eq!((first.promoted, first.operations), (7, 0));
        looks
    }

    #[test]
    fn accesses_are_served_by_where_their_pages_are() {
        let region = Region::new(BYTES, false, 1).expect("memory");
        for (top, share) in [(&[0][..], 1.0), (&[9][..], 0.0)] {
            let mut looks = looks(&region, top);
            let sample = looks.look(1.0, 1.0, 100, 50).expect("looked");
            assert_eq!((sample.operations, sample.top_share), (100, share));
            assert!((looks.top_share() - share).abs() < 1e-9);
        }
    }

    #[test]
    fn pages_that_came_and_are_there_ten_seconds_later_stayed() {
        let region = Region::new(BYTES, false, 1).expect("memory");
        let mut looks = looks(&region, &[0]);
        let at = |looks: &mut Looks<'_>, seconds| {
            looks.look(seconds, seconds, 0, 0).expect("looked");
            looks.stayed()
        };
        assert_eq!(
            at(&mut looks, 20.0),
            0,
            "they were there from the beginning"
        );
        // As if they had come.
        looks.since[..5].fill(21.0);
        assert_eq!(at(&mut looks, 30.5), 0);
        assert_eq!(at(&mut looks, 31.0), 5 * looks.stride as u64);
        assert_eq!(
            at(&mut looks, 45.0),
            5 * looks.stride as u64,
            "counted once"
        );
    }
}
