// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of addresses, as the ranges that it is made of.

use crate::sys::list::{List, Pages};
use std::ops::Range;

/// Ranges with space between each other, ascending: an owner that empties the same pages again and again adds none.
pub(crate) struct Ranges(List<Range<usize>>);

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges(List::new_in(Pages))
    }
}

impl Ranges {
    pub(crate) fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|r| r.end < range.start);
        let behind = first + self.0[first..].partition_point(|r| r.start <= range.end);
        if first == behind {
            return self.0.insert(first, range);
        }
        let joined = range.start.min(self.0[first].start)..range.end.max(self.0[behind - 1].end);
        self.0[first] = joined;
        self.0.drain(first + 1..behind);
    }

    pub(crate) fn add_all(&mut self, ranges: &[Range<usize>]) {
        ranges.iter().for_each(|range| self.add(range.clone()));
    }

    /// The first of them that has an address of `range`.
    pub(crate) fn meeting(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let first = self.0.partition_point(|r| r.end <= range.start);
        self.0.get(first).filter(|r| r.start < range.end).cloned()
    }

    pub(crate) fn as_slice(&self) -> &[Range<usize>] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_the_set_of_what_was_added(
            added in prop::collection::vec((0usize..64, 0usize..12), 0..40),
            asked in (0usize..70, 1usize..8),
        ) {
            let mut ranges = Ranges::default();
            let mut set = [false; 80];
            for (start, len) in added {
                ranges.add(start..start + len);
                set[start..start + len].fill(true);
            }
            let listed: Vec<_> = ranges.as_slice().to_vec();
            prop_assert!(listed.windows(2).all(|w| w[0].end < w[1].start));
            for (at, there) in set.iter().enumerate() {
                prop_assert_eq!(listed.iter().any(|r| r.contains(&at)), *there);
            }
            let asked = asked.0..asked.0 + asked.1;
            let meets = listed.iter().find(|r| r.start < asked.end && asked.start < r.end);
            prop_assert_eq!(ranges.meeting(&asked), meets.cloned());
        }
    }
}
