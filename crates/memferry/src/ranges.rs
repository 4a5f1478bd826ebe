// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of addresses, as the ranges that it is made of; and what ranges have in common.

use crate::sys::list::{List, Pages};
use std::io;
use std::ops::Range;

/// The addresses that both have; an empty range if there are none.
pub(crate) fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// Which of some items, whose ranges ascend and have no address in common, have an address of `range`.
pub(crate) fn meeting<T>(
    items: &[T],
    of: impl Fn(&T) -> &Range<usize>,
    range: &Range<usize>,
) -> Range<usize> {
    let first = items.partition_point(|item| of(item).end <= range.start);
    let count = items[first..].partition_point(|item| of(item).start < range.end);
    first..first + count
}

/// Ranges with space between each other, ascending: an owner that empties the same pages again and again adds none.
pub(crate) struct Ranges {
    list: List<Range<usize>>,
    most: usize,
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges {
            list: List::new_in(Pages),
            most: usize::MAX,
        }
    }
}

impl Ranges {
    /// An empty set that is not allocated for until it has more ranges than that.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn with_room(ranges: usize) -> io::Result<Ranges> {
        let mut set = Ranges::default();
        let reserved = set.list.try_reserve_exact(ranges);
        reserved.map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(set)
    }

    /// An empty set of so many ranges at most, at least 1, in memory that it has from the start: with one more it also takes in what
    /// lies between the two that are nearest to each other.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn at_most(ranges: usize) -> io::Result<Ranges> {
        Ok(Ranges {
            most: ranges,
            ..Ranges::with_room(ranges + 1)?
        })
    }

    pub(crate) fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.list.partition_point(|r| r.end < range.start);
        let behind = first + self.list[first..].partition_point(|r| r.start <= range.end);
        if first < behind {
            let joined =
                range.start.min(self.list[first].start)..range.end.max(self.list[behind - 1].end);
            self.list[first] = joined;
            self.list.drain(first + 1..behind);
            return;
        }
        self.list.insert(first, range);
        if self.list.len() > self.most {
            let gap = |at: &usize| self.list[at + 1].start - self.list[*at].end;
            if let Some(at) = (0..self.list.len() - 1).min_by_key(gap) {
                self.list[at].end = self.list.remove(at + 1).end;
            }
        }
    }

    pub(crate) fn add_all(&mut self, ranges: &[Range<usize>]) {
        ranges.iter().for_each(|range| self.add(range.clone()));
    }

    /// The first of them that has an address of `range`.
    pub(crate) fn meeting(&self, range: &Range<usize>) -> Option<Range<usize>> {
        self.list[meeting(&self.list, |r| r, range)]
            .first()
            .cloned()
    }

    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.list.capacity()
    }

    pub(crate) fn as_slice(&self) -> &[Range<usize>] {
        &self.list
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

        #[test]
        fn a_full_set_has_all_that_was_added_and_does_not_grow(
            added in prop::collection::vec((0usize..1000, 1usize..12), 1..60),
            most in 1usize..8,
        ) {
            let (mut ranges, mut exact) = (Ranges::at_most(most).unwrap(), Ranges::default());
            let room = ranges.room();
            for (start, len) in added {
                exact.add(start..start + len);
                ranges.add(start..start + len);
                let listed = ranges.as_slice();
                prop_assert!(listed.len() <= most);
                prop_assert!(listed.windows(2).all(|w| w[0].end < w[1].start));
                for range in exact.as_slice() {
                    let whole = ranges.meeting(range);
                    prop_assert!(whole.is_some_and(|r| r.start <= range.start && range.end <= r.end));
                }
                // Nothing outside of the first and the last.
                let ends = |ranges: &Ranges| (ranges.list[0].start, ranges.list.last().unwrap().end);
                prop_assert_eq!(ends(&ranges), ends(&exact));
            }
            prop_assert_eq!(ranges.room(), room);
        }
    }
}
