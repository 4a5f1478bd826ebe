// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the trace itself says, whatever the policy: accesses by page and slice, which pages are hot when, and where one
//! phase ends and the next begins.
//!
//! The oracles and the figures read it; no policy that could be run on a machine may.

use crate::event::Trace;
use crate::machine::accesses;

/// Slices of a replay, equal in accesses. Enough that a phase of a twentieth of the trace has a dozen.
pub const SLICES: usize = 256;

/// The hot set of a slice are the fewest pages that take so many percent of its accesses, if the top tier can hold them.
const HOT_PERCENT: u64 = 90;

/// Slices that are looked at on either side of a change of phase.
const SIDE: usize = 8;

/// Two sides that have less than so many percent of their accesses on pages that both use are two phases.
const SAME_PERCENT: u64 = 50;

/// Divides a trace into slices.
#[derive(Clone, Copy, Debug)]
pub struct Slicer {
    total: u64,
    done: u64,
}

impl Slicer {
    /// For a trace.
    pub fn new(trace: &Trace) -> Self {
        Self {
            total: trace.events.iter().map(accesses).sum(),
            done: 0,
        }
    }

    /// Accesses of the whole trace.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The slice of the next event, which has so many accesses; it belongs to the slice that it begins in.
    pub fn next(&mut self, accesses: u64) -> usize {
        let slice = u128::from(self.done) * SLICES as u128 / u128::from(self.total.max(1));
        self.done += accesses;
        (slice as usize).min(SLICES - 1)
    }
}

/// Accesses of one page in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The page.
    pub page: u32,
    /// Its accesses.
    pub accesses: u64,
}

/// A trace by slice and page.
pub struct Truth {
    /// Pages that each slice touches, ascending, with their accesses.
    pub slices: Vec<Vec<Use>>,
    /// The slice that touches a page first; [`SLICES`] if none does.
    pub born: Vec<u16>,
    /// Accesses of the trace.
    pub accesses: u64,
}

impl Truth {
    /// Counts a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut slicer = Slicer::new(trace);
        let mut truth = Self {
            slices: vec![Vec::new(); SLICES],
            born: vec![SLICES as u16; trace.pages.len()],
            accesses: slicer.total(),
        };
        let mut counts = vec![0u64; trace.pages.len()];
        let mut touched: Vec<u32> = Vec::new();
        let mut current = 0;
        for event in &trace.events {
            let slice = slicer.next(accesses(event));
            if slice != current {
                truth.slices[current] = harvest(&mut touched, &mut counts);
                current = slice;
            }
            let page = event.page as usize;
            truth.born[page] = truth.born[page].min(slice as u16);
            if counts[page] == 0 && accesses(event) > 0 {
                touched.push(event.page);
            }
            counts[page] += accesses(event);
        }
        truth.slices[current] = harvest(&mut touched, &mut counts);
        truth
    }

    /// Accesses of each page over the whole trace.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.born.len()];
        for used in self.slices.iter().flatten() {
            totals[used.page as usize] += used.accesses;
        }
        totals
    }

    /// The hot set of each slice for a top tier of so many pages: the fewest pages with `HOT_PERCENT` of the accesses,
    /// never more than fit. Ascending.
    pub fn hot(&self, capacity: u32) -> Vec<Vec<u32>> {
        let of_slice = |uses: &Vec<Use>| {
            let mut uses = uses.clone();
            uses.sort_unstable_by_key(|used| (std::cmp::Reverse(used.accesses), used.page));
            let goal = uses.iter().map(|used| used.accesses).sum::<u64>() * HOT_PERCENT;
            let mut sum = 0;
            let needed = uses.iter().take_while(|used| {
                let short = sum * 100 < goal;
                sum += used.accesses;
                short
            });
            let mut hot: Vec<u32> = needed
                .take(capacity as usize)
                .map(|used| used.page)
                .collect();
            hot.sort_unstable();
            hot
        };
        self.slices.iter().map(of_slice).collect()
    }

    /// The slices at which a phase begins, without the first: places where the accesses of the slices before and after have
    /// the least in common, and less than half.
    pub fn changes(&self) -> Vec<usize> {
        let mut changes = Vec::new();
        let common: Vec<u64> = (0..SLICES).map(|at| self.common(at)).collect();
        for at in SIDE..SLICES - SIDE {
            let around = &common[at - SIDE + 1..at + SIDE];
            let least = around.iter().min() == Some(&common[at]);
            let far = changes.last().is_none_or(|&last| at - last >= SIDE);
            if common[at] < SAME_PERCENT && least && far {
                changes.push(at);
            }
        }
        changes
    }

    /// Percent of accesses that the slices on both sides of a boundary have in common: by page the lesser of both shares.
    fn common(&self, at: usize) -> u64 {
        if at < SIDE || at + SIDE > SLICES {
            return 100;
        }
        let sum = |range: std::ops::Range<usize>| {
            let mut uses: Vec<Use> = self.slices[range].concat();
            uses.sort_unstable_by_key(|used| used.page);
            uses.dedup_by(|next, kept| {
                let same = next.page == kept.page;
                kept.accesses += if same { next.accesses } else { 0 };
                same
            });
            uses
        };
        let (before, after) = (sum(at - SIDE..at), sum(at..at + SIDE));
        let total = |uses: &[Use]| uses.iter().map(|used| used.accesses).sum::<u64>().max(1);
        let (of_before, of_after) = (total(&before), total(&after));
        let mut common = 0u128;
        let mut left = before.iter().peekable();
        for used in &after {
            while left.next_if(|other| other.page < used.page).is_some() {}
            if let Some(other) = left.next_if(|other| other.page == used.page) {
                let shares = [(other.accesses, of_before), (used.accesses, of_after)];
                common += shares
                    .map(|(part, of)| u128::from(part) * 1_000_000 / u128::from(of))
                    .into_iter()
                    .min()
                    .unwrap_or(0);
            }
        }
        (common / 10_000) as u64
    }
}

/// The counts of pages, ascending; they are 0 then.
pub(crate) fn harvest(touched: &mut Vec<u32>, counts: &mut [u64]) -> Vec<Use> {
    touched.sort_unstable();
    let take = |page| Use {
        page,
        accesses: std::mem::take(&mut counts[page as usize]),
    };
    touched.drain(..).map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn nothing_is_lost_between_slices() {
        let trace = synthetic::zipf(200, 20_000, 3);
        let truth = Truth::of(&trace);
        assert_eq!(truth.totals().iter().sum::<u64>(), 20_200 * 64);
        assert_eq!(truth.accesses, 20_200 * 64);
        assert!(
            truth
                .slices
                .iter()
                .all(|slice| slice.is_sorted_by_key(|used| used.page))
        );
        assert_eq!(truth.born[0], 0);
    }

    #[test]
    fn the_hot_set_is_the_fewest_pages_and_fits() {
        let truth = Truth::of(&synthetic::moving_hot_set(800, 200_000, 0, 3));
        let sizes: Vec<usize> = truth.hot(800)[64..].iter().map(Vec::len).collect();
        // An eighth of 800 pages takes 0.9125 of the accesses.
        assert!(
            sizes.iter().all(|size| (90..=110).contains(size)),
            "{sizes:?}"
        );
        assert!(truth.hot(50).iter().all(|hot| hot.len() <= 50));
    }

    #[test]
    fn changes_of_phase_are_found_and_only_those() {
        let truth = Truth::of(&synthetic::phases(300, 200_000, 4, 3));
        let changes = truth.changes();
        assert_eq!(changes.len(), 3, "{changes:?}");
        for (found, wanted) in changes.iter().zip([64, 128, 192]) {
            assert!(found.abs_diff(wanted) <= 1, "{changes:?}");
        }
        let none = Truth::of(&synthetic::zipf(300, 200_000, 3)).changes();
        assert!(none.len() <= 1, "only the end of the fill: {none:?}");
    }
}
