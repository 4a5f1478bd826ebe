// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache between a program and its memory: accesses that hit it never reach a page.
//!
//! Programs touch a few pages, their stack and their code, thousands of times more often than any other, and none of
//! that reaches memory. A trace with all of it would be served well by any policy. The model is set-associative with
//! least-recently-used replacement, allocates on loads and stores, and indexes by virtual address. It does not
//! prefetch, and what it writes back is not counted: no instruction waits for it.

use crate::trace::Cache;

/// The state of a cache.
pub struct CacheModel {
    /// By set, the most recently used first.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
    line_shift: u32,
}

/// A line that no address has: addresses have at most 58 bits of line number.
const NONE: u64 = u64::MAX;

impl CacheModel {
    /// An empty cache; `None` if sizes do not fit each other, see [`Cache::is_possible`].
    pub fn new(cache: Cache) -> Option<Self> {
        if !cache.is_possible() {
            return None;
        }
        let lines = usize::try_from(cache.bytes / u64::from(cache.line_bytes)).ok()?;
        Some(Self {
            lines: vec![NONE; lines],
            ways: cache.ways as usize,
            sets: lines as u64 / u64::from(cache.ways),
            line_shift: cache.line_bytes.trailing_zeros(),
        })
    }

    /// Log2 of the bytes of a line.
    pub fn line_shift(&self) -> u32 {
        self.line_shift
    }

    /// Touches the line with this number (address over line size); whether it was there.
    pub fn touch(&mut self, line: u64) -> bool {
        let first = (line & (self.sets - 1)) as usize * self.ways;
        let set = &mut self.lines[first..first + self.ways];
        match set.iter().position(|&held| held == line) {
            Some(0) => true,
            Some(at) => {
                set[..=at].rotate_right(1);
                true
            }
            None => {
                set.rotate_right(1);
                set[0] = line;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(bytes: u64, ways: u32) -> CacheModel {
        CacheModel::new(Cache {
            bytes,
            ways,
            line_bytes: 64,
        })
        .expect("possible")
    }

    #[test]
    fn the_least_recently_used_line_goes() {
        // Two sets of two ways: even lines share a set.
        let mut cache = model(256, 2);
        assert!(!cache.touch(0) && !cache.touch(2));
        assert!(cache.touch(0));
        // 2 was used longer ago than 0.
        assert!(!cache.touch(4));
        assert!(cache.touch(0) && !cache.touch(2));
        // The other set is untouched by all that.
        assert!(!cache.touch(1) && cache.touch(1));
    }

    #[test]
    fn what_fits_is_missed_once_and_what_does_not_always() {
        let mut cache = model(64 << 10, 16);
        let mut misses = |lines: u64| (0..lines).filter(|&line| !cache.touch(line)).count();
        assert_eq!(misses(1024), 1024);
        assert_eq!(misses(1024), 0);
        assert_eq!(misses(2048), 1024);
        assert_eq!(misses(2048), 2048);
    }

    #[test]
    fn impossible_sizes_are_no_cache() {
        for (bytes, ways) in [(0, 1), (1 << 20, 0), (3 << 20, 16), (100, 1)] {
            let line_bytes = 64;
            let cache = Cache {
                bytes,
                ways,
                line_bytes,
            };
            assert!(CacheModel::new(cache).is_none(), "{cache:?}");
        }
    }
}
