// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of shared memory lie: each process that maps it has in its page tables what it used itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use memferry_linux::pagemap::Pages;

use super::{Kernel, SAMPLES, nodes, samples, top_of, without};
use crate::machine::Machine;
use crate::owner::Unmovable;
use crate::shared::{Mapping, SharedMemory};
use crate::tiering::{CHUNK, Memory, Placed, ProcessId};

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

/// Processes with mappings of a shared memory.
pub(super) type Lenders = Vec<(ProcessId, Vec<Mapping>)>;

/// By chunk: present runs by offset, each once, who of the lenders has it, and how far its addresses are from its offsets there.
type Present = BTreeMap<usize, Vec<(Range<usize>, usize, usize)>>;

/// The mappings of a shared memory by what may be done with them.
#[derive(Default)]
pub(super) struct Sorted {
    /// What may move.
    pub(super) free: Lenders,
    /// What may not: locked by one of them, or with a policy of its own, memory stays for all.
    pub(super) barred: BTreeMap<Unmovable, Lenders>,
}

/// What of the mappings of some processes is in their page tables.
pub(super) fn present(root: &Path, lenders: &[(ProcessId, Vec<Mapping>)]) -> Present {
    let mut present = Present::new();
    for (lender, (process, mappings)) in lenders.iter().enumerate() {
        let Ok(pages) = Pages::of(&root.join(format!("proc/{}", process.pid))) else {
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
    present
}

/// Bytes that are there, each once.
pub(super) fn bytes(present: &Present) -> u64 {
    let runs = present.values().flatten();
    runs.map(|(run, ..)| run.len() as u64).sum()
}

impl Kernel {
    /// The processes by which shared memory is looked at, and their mappings in a range of it.
    pub(super) fn lenders(
        &mut self,
        root: &Path,
        shared: &SharedMemory,
        within: &Range<usize>,
    ) -> Sorted {
        let mut lenders: Lenders = Vec::new();
        // Without a reason where a mapping is so new that its owner was not asked yet.
        let mut bars: BTreeMap<Option<Unmovable>, Vec<Range<usize>>> = BTreeMap::new();
        for mapper in shared.mappers.iter().take(MAPPERS) {
            // It may have ended.
            let Ok(owner) = self.owner(root, mapper.process) else {
                continue;
            };
            let overlap = |of: &&Mapping| of.addresses(within).is_some();
            let mappings: Vec<Mapping> = mapper.mappings.iter().filter(overlap).cloned().collect();
            for of in &mappings {
                if owner.within(&of.range) != std::slice::from_ref(&of.range) {
                    let bar = bars.entry(owner.why_left(&of.range)).or_default();
                    bar.push(of.offsets());
                }
            }
            lenders.push((mapper.process, mappings));
        }
        for of in bars.values_mut() {
            *of = union(std::mem::take(of));
        }
        let overlaps = |bars: &[Range<usize>], own: &Range<usize>| {
            let first = bars.partition_point(|bar| bar.end <= own.start);
            bars.get(first).is_some_and(|bar| bar.start < own.end)
        };
        let mut sorted = Sorted::default();
        for (process, mappings) in lenders {
            let mut free = Vec::new();
            let mut barred: BTreeMap<Unmovable, Vec<Mapping>> = BTreeMap::new();
            for of in mappings {
                let own = of.offsets();
                let mut above = bars.iter().filter(|(_, bars)| overlaps(bars, &own));
                match above.clone().find_map(|(why, _)| *why) {
                    Some(why) => barred.entry(why).or_default().push(of),
                    None if above.next().is_none() => free.push(of),
                    None => {}
                }
            }
            sorted.free.push((process, free));
            for (why, mappings) in barred {
                sorted
                    .barred
                    .entry(why)
                    .or_default()
                    .push((process, mappings));
            }
        }
        sorted
    }

    /// What a process has not used is not in its page tables, so the others are asked for it.
    pub(super) fn look_at_shared(
        &mut self,
        machine: &Machine,
        shared: &SharedMemory,
    ) -> Vec<Placed> {
        let Sorted {
            free: lenders,
            barred,
        } = self.lenders(&machine.root, shared, &(0..usize::MAX));
        let left = (barred.iter())
            .map(|(why, lenders)| (*why, bytes(&present(&machine.root, lenders))))
            .collect();
        self.left.insert(Memory::Shared(shared.object), left);
        let present = present(&machine.root, &lenders);
        // The pages to be asked for, by who has them, and their chunks.
        let mut asked: Vec<(Vec<usize>, Vec<usize>)> = vec![Default::default(); lenders.len()];
        let mut places: BTreeMap<usize, (u64, Vec<i32>)> = BTreeMap::new();
        for (number, runs) in &present {
            let all: Vec<Range<usize>> = runs.iter().map(|(run, ..)| run.clone()).collect();
            let bytes: usize = all.iter().map(Range::len).sum();
            places.insert(*number, (bytes as u64, Vec::new()));
            for offset in samples(&all, SAMPLES) {
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
