// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages to move: the hottest that are ready, and the coldest, in order of heat.

use super::sweep::{CHUNK, copy, records};
use super::{Tracker, View, cell};
use crate::hotness::{HEATS, Record};
use std::collections::BinaryHeap;

/// A page that may be worth a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its number.
    pub page: u64,
    /// How hot it is, 0 to 127.
    pub heat: u32,
    /// Where it is used: its own last node, or the one that prevails in its section.
    pub node: Option<u16>,
}

/// The `limit` smallest of what is offered, by rank and page.
struct Best {
    limit: usize,
    heap: BinaryHeap<(u32, u64)>,
}

impl Best {
    /// Whether a page of this rank, which comes after all others by its number, would be among them.
    fn wants(&self, rank: u32) -> bool {
        self.heap.len() < self.limit || self.heap.peek().is_some_and(|worst| rank < worst.0)
    }

    fn offer(&mut self, rank: u32, page: u64) {
        self.heap.push((rank, page));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }
}

impl<R: Record> Tracker<R> {
    /// The hottest pages that are ready and not claimed, of at least `least` heat, for which `wanted` is true (those of the
    /// lower tier): at most `limit`, hottest first, of equal heat the lowest page first. Takes memory for `limit` pages
    /// and no more.
    ///
    /// Nothing is claimed: a page that is not moved keeps its record and is found again.
    pub fn hottest(
        &self,
        time: u64,
        least: u32,
        limit: usize,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Vec<Candidate> {
        let heats = (least.max(1), HEATS - 1);
        self.best(
            time,
            heats,
            limit,
            |view, heat| view.ready.then_some(HEATS - heat),
            &mut wanted,
        )
    }

    /// The coldest pages of the sections of which anything was recorded, of at most `most` heat, for which `wanted` is true
    /// (those of the top tier): at most `limit`, coldest first, of equal heat the lowest page first. Pages of which
    /// nothing is known are the coldest.
    pub fn coldest(
        &self,
        time: u64,
        most: u32,
        limit: usize,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Vec<Candidate> {
        self.best(time, (0, most), limit, |_, heat| Some(heat), &mut wanted)
    }

    /// The best pages of these heats, by `rank`, which leaves out those of which it knows none.
    fn best(
        &self,
        time: u64,
        heats: (u32, u32),
        limit: usize,
        rank: impl Fn(View, u32) -> Option<u32>,
        wanted: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<Candidate> {
        let (now, policy) = (time as u32, &self.options.policy);
        let mut best = Best {
            limit,
            heap: BinaryHeap::new(),
        };
        let (mut words, mut found) = ([0; CHUNK], [0; 512]);
        for (first, section) in self.map.sections() {
            for (chunk, cells) in section.words().chunks(CHUNK).enumerate() {
                copy(cells, &mut words);
                if heats.0 > 0 && words.iter().all(|&word| word == 0) {
                    continue;
                }
                let records = records::<R>(&mut words[..cells.len()]);
                let first = first + (chunk * CHUNK * cell::lanes::<R>()) as u64;
                let mut from = 0;
                while from < records.len() {
                    let n;
                    (n, from) = R::find(records, from, policy, now, heats, &mut found);
                    for &at in &found[..n] {
                        let view = records[at as usize].view(now);
                        let page = first + u64::from(at);
                        let rank = rank(view, policy.heat(view));
                        if let Some(rank) = rank.filter(|&rank| best.wants(rank)) {
                            if wanted(page) {
                                best.offer(rank, page);
                            }
                        }
                    }
                }
            }
        }
        let sorted = best.heap.into_sorted_vec();
        let pages = sorted.into_iter().map(|(_, page)| page);
        pages.map(|page| self.candidate(page, time)).collect()
    }

    fn candidate(&self, page: u64, time: u64) -> Candidate {
        let view = self.view(page, time);
        Candidate {
            page,
            heat: self.options.policy.heat(view),
            node: view.node,
        }
    }
}
