// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single pages of a chunk of a process: where they lie, and their addresses.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use memferry_linux::pagemap::Pages;

use super::{Kernel, nodes};
use crate::machine::Machine;
use crate::tiering::{CHUNK, PagePlaces, PageSet, ProcessId};

/// Addresses of the pages of a set within ranges that ascend.
pub(super) fn runs(number: usize, pages: &PageSet, ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let size = rustix::param::page_size();
    let mut runs: Vec<Range<usize>> = Vec::new();
    for page in pages.iter() {
        let at = number * CHUNK + page * size;
        let within = ranges.partition_point(|range| range.end <= at);
        if ranges.get(within).is_none_or(|range| range.start > at) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += size,
            _ => runs.push(at..at + size),
        }
    }
    runs
}

impl Kernel {
    /// Where the pages of a chunk lie that are the process's own and may move.
    pub(super) fn pages_of(
        &mut self,
        machine: &Machine,
        process: ProcessId,
        number: usize,
    ) -> io::Result<PagePlaces> {
        let size = rustix::param::page_size();
        let chunk = number * CHUNK..(number + 1) * CHUNK;
        let own = self.own(&machine.root, process, &chunk)?;
        let present = Pages::of(&machine.root.join(format!("proc/{}", process.pid)))?;
        let mut addresses: Vec<usize> = Vec::new();
        let mut add = |run: Range<usize>| addresses.extend(run.step_by(size));
        (own.iter()).try_for_each(|range| present.each_run(range, &mut add))?;
        let mut by_node = BTreeMap::<u32, PageSet>::new();
        for (at, node) in addresses.iter().zip(nodes(process, &addresses)?) {
            if let Ok(node) = u32::try_from(node) {
                by_node
                    .entry(node)
                    .or_default()
                    .insert((at - chunk.start) / size);
            }
        }
        let above = by_node
            .iter()
            .filter(|(node, _)| machine.top.contains(node));
        let most = above.max_by_key(|(_, pages)| pages.len());
        let (node, top) = most.map_or_else(Default::default, |(node, pages)| (*node, *pages));
        let below = by_node
            .iter()
            .filter(|(node, _)| machine.lower.contains(node));
        let below = below.flat_map(|(_, pages)| pages.iter()).collect();
        Ok(PagePlaces { node, top, below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_runs_within_what_may_move() {
        let page = rustix::param::page_size();
        let set: PageSet = [0, 1, 2, 5, 9, 10].into_iter().collect();
        let start = 3 * CHUNK;
        let ranges = [
            start + page..start + 6 * page,
            start + 10 * page..start + 20 * page,
        ];
        let found: Vec<Range<usize>> = runs(3, &set, &ranges)
            .iter()
            .map(|run| (run.start - start) / page..(run.end - start) / page)
            .collect();
        assert_eq!(found, [1..3, 5..6, 10..11]);
    }
}
