// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of shared memory lie: each process that maps it has in its page tables what it used itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use memferry_linux::pagemap::Pages;

use super::{Kernel, nodes, samples, top_of, without};
use crate::machine::Machine;
use crate::shared::{Mapping, SharedMemory};
use crate::tiering::{CHUNK, Placed, ProcessId};

/// Processes by which shared pages are looked for, and moved.
pub(super) const MAPPERS: usize = 8;

/// What some ranges cover: ascending, none touches another.
fn union(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|of| of.start);
    ranges.dedup_by(|next, last| {
        let is_part = next.start <= last.end;
        if is_part {
            last.end = last.end.max(next.end);
        }
        is_part
    });
    ranges
}

impl Kernel {
    /// The processes by which shared memory is looked at, and what may move of their mappings in a range of it.
    pub(super) fn lenders(
        &mut self,
        root: &Path,
        shared: &SharedMemory,
        within: &Range<usize>,
    ) -> Vec<(ProcessId, Vec<Mapping>)> {
        let (mut lenders, mut bars) = (Vec::new(), Vec::new());
        for mapper in shared.mappers.iter().take(MAPPERS) {
            // It may have ended.
            let Ok(owner) = self.owner(root, mapper.process) else {
                continue;
            };
            let overlap = |of: &&Mapping| of.addresses(within).is_some();
            let mappings: Vec<Mapping> = mapper.mappings.iter().filter(overlap).cloned().collect();
            // Locked by one, or with a policy of its own, it stays.
            let is_barred =
                |of: &&Mapping| owner.within(&of.range) != std::slice::from_ref(&of.range);
            bars.extend(mappings.iter().filter(is_barred).map(Mapping::offsets));
            lenders.push((mapper.process, mappings));
        }
        let bars = union(bars);
        let is_free = |of: &Mapping| {
            let own = of.offsets();
            let first = bars.partition_point(|bar| bar.end <= own.start);
            bars.get(first).is_none_or(|bar| own.end <= bar.start)
        };
        for (_, mappings) in &mut lenders {
            mappings.retain(is_free);
        }
        lenders
    }

    /// What a process has not used is not in its page tables, so the others are asked for it.
    pub(super) fn look_at_shared(
        &mut self,
        machine: &Machine,
        shared: &SharedMemory,
    ) -> Vec<Placed> {
        let lenders = self.lenders(&machine.root, shared, &(0..usize::MAX));
        // By chunk: present runs by offset, each once, who has it, and how far its addresses are from its offsets there.
        let mut present: BTreeMap<usize, Vec<(Range<usize>, usize, usize)>> = BTreeMap::new();
        for (lender, (process, mappings)) in lenders.iter().enumerate() {
            let Ok(pages) = Pages::of(&machine.root.join(format!("proc/{}", process.pid))) else {
                continue;
            };
            for mapping in mappings {
                let distance = mapping.range.start.wrapping_sub(mapping.offset);
                let mut add = |run: Range<usize>| {
                    let mut at = run.start.wrapping_sub(distance);
                    let run_end = at + run.len();
                    while at < run_end {
                        let end = run_end.min((at / CHUNK + 1) * CHUNK);
                        let known = present.entry(at / CHUNK).or_default();
                        let mut holes: Vec<Range<usize>> =
                            known.iter().map(|(of, ..)| of.clone()).collect();
                        holes.sort_by_key(|of| of.start);
                        let new = without(std::iter::once(at..end), &holes);
                        known.extend(new.into_iter().map(|run| (run, lender, distance)));
                        at = end;
                    }
                };
                // It has ended, if that fails.
                let _ = pages.each_run(&mapping.range, &mut add);
            }
        }
        // The pages to be asked for, by who has them, and their chunks.
        let mut asked: Vec<(Vec<usize>, Vec<usize>)> = vec![Default::default(); lenders.len()];
        let mut places: BTreeMap<usize, (u64, Vec<i32>)> = BTreeMap::new();
        for (number, runs) in &present {
            let all: Vec<Range<usize>> = runs.iter().map(|(run, ..)| run.clone()).collect();
            let bytes: usize = all.iter().map(Range::len).sum();
            places.insert(*number, (bytes as u64, Vec::new()));
            for offset in samples(&all) {
                let mut runs = runs.iter();
                let Some((_, lender, distance)) = runs.find(|(run, ..)| run.contains(&offset))
                else {
                    continue;
                };
                let (numbers, pages) = &mut asked[*lender];
                numbers.push(*number);
                pages.push(offset.wrapping_add(*distance));
            }
        }
        for ((process, _), (numbers, pages)) in lenders.iter().zip(&asked) {
            let nodes = nodes(*process, pages).unwrap_or_default();
            for (number, node) in numbers.iter().zip(nodes).filter(|(_, node)| *node >= 0) {
                places.entry(*number).or_default().1.push(node);
            }
        }
        let place = |(number, (bytes, nodes)): (usize, (u64, Vec<i32>))| {
            let (count, node) = top_of(machine, nodes.iter().copied());
            Placed {
                number,
                resident: if nodes.is_empty() { 0 } else { bytes },
                top: bytes * count / nodes.len().max(1) as u64,
                node,
            }
        };
        places.into_iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(
            union(vec![5..9, 0..2, 6..7, 9..12, 3..4]),
            [0..2, 3..4, 5..12]
        );
        assert_eq!(union(Vec::new()), []);
    }
}
