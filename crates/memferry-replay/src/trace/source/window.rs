// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses to one page that are close together, made into one.

use std::collections::HashMap;
use std::vec::Drain;

/// Accesses to one page within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Virtual page number.
    pub place: u64,
    /// Loads.
    pub reads: u32,
    /// Stores.
    pub writes: u32,
}

/// The accesses of the window that is open, by page.
#[derive(Default)]
pub struct Window {
    merged: Vec<Merged>,
    at: HashMap<u64, usize>,
    /// The page that was touched last is often touched again.
    last: usize,
}

impl Window {
    /// Counts an access.
    pub fn add(&mut self, place: u64, is_write: bool) {
        let same = |of: &Merged| of.place == place;
        if !self.merged.get(self.last).is_some_and(same) {
            self.last = *self.at.entry(place).or_insert(self.merged.len());
            if self.last == self.merged.len() {
                self.merged.push(Merged {
                    place,
                    reads: 0,
                    writes: 0,
                });
            }
        }
        let page = &mut self.merged[self.last];
        // A window is at most 2^31 accesses long, each of which reads and writes once at most.
        page.reads += u32::from(!is_write);
        page.writes += u32::from(is_write);
    }

    /// Takes what was counted, in this order; the next window starts empty.
    pub fn take<K: Ord>(&mut self, order: impl FnMut(&Merged) -> K) -> Drain<'_, Merged> {
        self.at.clear();
        self.last = 0;
        self.merged.sort_unstable_by_key(order);
        self.merged.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_once_with_all_its_accesses() {
        let mut window = Window::default();
        for (place, is_write) in [(9, false), (9, true), (3, false), (9, false), (3, false)] {
            window.add(place, is_write);
        }
        let merged = |place, reads, writes| Merged {
            place,
            reads,
            writes,
        };
        let take = |window: &mut Window| window.take(|page| page.place).collect::<Vec<_>>();
        assert_eq!(take(&mut window), [merged(3, 2, 0), merged(9, 2, 1)]);
        window.add(3, true);
        assert_eq!(take(&mut window), [merged(3, 0, 1)]);
        assert_eq!(take(&mut window), []);
    }
}
