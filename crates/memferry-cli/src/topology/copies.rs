// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `memferry topology --copy` measures: every copy routine, in seconds rather than the library's half minute.

use memferry::copy::{self, MeasureOptions, Pages, available};
use memferry::topology::Topology;

use super::description::{Copies, CopyRoutine, CopyRow};
use crate::failure::Failure;
use crate::schema::THP_BYTES;
use crate::table::counted;
use crate::ui::Ui;

/// Timed passes of each routine; their median is shown. The fewest that have one.
const RUNS: usize = 3;

/// Bytes of one call: a single page, a lane's granule, a THP.
const EXTENTS: [usize; 3] = [4 << 10, 64 << 10, THP_BYTES];

/// Measures all routines of this CPU.
pub fn measure(topology: &Topology, ui: &Ui) -> Result<Copies, Failure> {
    copy::requested().map_err(|error| {
        Failure::new(
            "unknown copy routine",
            error,
            "`memferry topology --copy` without the variable lists those of this machine",
        )
    })?;
    let buffer_bytes = buffer_bytes(topology);
    let usual = MeasureOptions::default();
    let cases: Vec<(Pages, usize, usize)> = (usual.pages.iter())
        .flat_map(|&pages| usual.threads.iter().map(move |&threads| (pages, threads)))
        .flat_map(|(pages, threads)| EXTENTS.map(|extent| (pages, threads, extent)))
        .collect();
    let bar = ui.bar("copy routines", cases.len() as u64);
    let mut rows = Vec::new();
    for (pages, threads, extent_bytes) in cases {
        let page_bytes = match pages {
            Pages::Small => topology.memory.page_bytes,
            Pages::Huge => THP_BYTES as u64,
        };
        let kind = match pages {
            Pages::Small => "base pages",
            Pages::Huge => "THPs",
        };
        bar.now(&format!("{kind}, {}", counted(threads, "thread")));
        let measured = copy::measure(&MeasureOptions {
            extent_bytes: vec![extent_bytes],
            threads: vec![threads],
            pages: vec![pages],
            buffer_bytes: buffer_bytes as usize,
            runs: RUNS,
            ..usual.clone()
        });
        rows.extend(measured.into_iter().map(|of| CopyRow {
            routine: of.routine,
            page_bytes,
            extent_bytes,
            threads,
            gbps: of.gbps,
            gbps_min: of.gbps_min,
            gbps_max: of.gbps_max,
        }));
        bar.step();
    }
    Ok(Copies {
        best: copy::best().name(),
        buffer_bytes,
        runs: RUNS,
        routines: (available().iter())
            .map(|routine| CopyRoutine {
                name: routine.name(),
                about: routine.describe(),
            })
            .collect(),
        rows,
    })
}

/// Bytes of the source, and again of the destination: together they are twice the largest cache, but never more than a
/// quarter of the free memory, and not so much that the measurement takes longer than some seconds.
fn buffer_bytes(topology: &Topology) -> u64 {
    let caches = topology.cpus.cache_groups.iter();
    let largest = caches.filter_map(|group| group.size_bytes).max();
    let wanted = largest.unwrap_or(0).clamp(64 << 20, 512 << 20);
    let room = topology.memory.available_bytes / 8;
    (wanted.min(room) / THP_BYTES as u64).max(1) * THP_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_outgrow_the_cache_and_fit_in_memory() {
        let mut topology = Topology::read().expect("topology");
        topology.memory.available_bytes = 64 << 30;
        for (cache, expected) in [(Some(1 << 20), 64), (Some(105 << 20), 104), (None, 64)] {
            for group in &mut topology.cpus.cache_groups {
                group.size_bytes = cache;
            }
            assert_eq!(buffer_bytes(&topology), expected << 20, "{cache:?}");
        }
        topology.memory.available_bytes = 128 << 20;
        assert_eq!(buffer_bytes(&topology), 16 << 20);
        topology.memory.available_bytes = 0;
        assert_eq!(buffer_bytes(&topology), 2 << 20);
    }
}
