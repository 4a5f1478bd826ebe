// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `memferry topology --copy` measures: every copy routine, in seconds rather than the library's half minute.

use memferry::copy::{self, available};
use memferry_linux::topology::Topology;

use super::description::{Copies, CopyRoutine, CopyRow};
use super::measure::{Buffers, Case, Pages};
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
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if cpus > 1 { vec![1, cpus] } else { vec![1] };
    let kinds = [
        (Pages::Small, topology.memory.page_bytes, "base pages"),
        (Pages::Huge, THP_BYTES as u64, "THPs"),
    ];
    let steps = kinds.len() * threads.len() * EXTENTS.len();
    let bar = ui.bar("copy routines", steps as u64);
    let mut rows = Vec::new();
    for (pages, page_bytes, kind) in kinds {
        let mut buffers = Buffers::new(buffer_bytes as usize, pages).map_err(|error| {
            Failure::new(
                "no memory to copy",
                format!("{} bytes, twice: {error}", buffer_bytes),
                "free some memory, or raise the limit of the cgroup",
            )
        })?;
        for &threads in &threads {
            for extent_bytes in EXTENTS {
                bar.now(&format!("{kind}, {}", counted(threads, "thread")));
                let case = Case {
                    threads,
                    extent_bytes,
                };
                let speeds = buffers.measure(&case, RUNS);
                let speeds = speeds.into_iter().zip(available());
                rows.extend(speeds.map(|(speed, routine)| CopyRow {
                    routine: routine.name(),
                    page_bytes,
                    extent_bytes,
                    threads,
                    gbps: speed.gbps,
                    gbps_min: speed.gbps_min,
                    gbps_max: speed.gbps_max,
                }));
                bar.step();
            }
        }
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
