// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `memferry topology --copy` measures: every copy routine as the ceiling of `bench move`, in seconds rather than the
//! milliseconds in which the library chooses one.

use memferry::copy::{self, available};
use memferry_bench::ceiling;
use memferry_bench::region::Region;
use memferry_linux::affinity;
use memferry_linux::topology::Topology;

use super::description::{Copies, CopyRoutine, CopyRow};
use crate::failure::{Failure, OrFail};
use crate::schema::THP_BYTES;
use crate::table::counted;
use crate::ui::Ui;

/// Timed passes of each routine; their median is shown. The fewest that have one.
const RUNS: usize = 3;

/// Measures all routines of this CPU.
pub fn measure(topology: &Topology, ui: &Ui) -> Result<Copies, Failure> {
    copy::requested().or_fail(
        "unknown copy routine",
        "`memferry topology --copy` without the variable lists those of this machine",
    )?;
    let usable = affinity::allowed().unwrap_or_else(|_| topology.cpus.online.clone());
    let buffer_bytes = buffer_bytes(topology, &usable);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if cpus > 1 { vec![1, cpus] } else { vec![1] };
    let kinds = [
        (false, topology.memory.page_bytes),
        (true, THP_BYTES as u64),
    ];
    let bar = ui.bar("copy routines", (kinds.len() * threads.len()) as u64);
    let mut rows = Vec::new();
    for (huge, page_bytes) in kinds {
        let buffer = || {
            Region::new(buffer_bytes as usize, huge, cpus).map_err(|error| {
                Failure::new(
                    "no memory to copy",
                    format!("{buffer_bytes} bytes, twice: {error}"),
                    "free some memory, or raise the limit of the cgroup",
                )
            })
        };
        let (from, mut to) = (buffer()?, buffer()?);
        for &threads in &threads {
            bar.now(&counted(threads, "thread"));
            let mut speeds = vec![Vec::new(); available().len()];
            // Routines take turns, so that drift of the machine hits all alike.
            for _ in 0..RUNS {
                for (routine, speeds) in available().iter().zip(&mut speeds) {
                    speeds.push(ceiling(&from, &mut to, *routine, threads)?);
                }
            }
            rows.extend(available().iter().zip(speeds).map(|(routine, mut gbps)| {
                gbps.sort_by(f64::total_cmp);
                CopyRow {
                    routine: routine.name(),
                    page_bytes,
                    threads,
                    gbps: gbps[RUNS / 2],
                    gbps_min: gbps[0],
                    gbps_max: gbps[RUNS - 1],
                }
            }));
            bar.step();
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

/// Bytes of the source, and again of the destination: together they are twice the last-level caches of the usable CPUs, but
/// never more than a quarter of the free memory, and not so much that the measurement takes longer than some seconds.
fn buffer_bytes(topology: &Topology, usable: &[u32]) -> u64 {
    let mut caches = topology.cpus.cache_groups.clone();
    caches.retain(|group| group.cpus.iter().any(|cpu| usable.contains(cpu)));
    let all: u64 = caches.iter().filter_map(|group| group.size_bytes).sum();
    let wanted = all.clamp(64 << 20, 2 << 30);
    let room = topology.memory.available_bytes / 8;
    (wanted.min(room) / THP_BYTES as u64).max(1) * THP_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use memferry_linux::topology::CacheGroup;

    #[test]
    fn the_buffers_outgrow_the_cache_and_fit_in_memory() {
        let mut topology = Topology::read().expect("topology");
        let group = topology.cpus.cache_groups[0].clone();
        let mut bytes = |cache: Option<u64>, caches: u32, available: u64| {
            let group = |cpu| CacheGroup {
                cpus: vec![cpu],
                size_bytes: cache,
                ..group.clone()
            };
            // The last one is of a CPU that this process may not use.
            topology.cpus.cache_groups = (0..=caches).map(group).collect();
            topology.memory.available_bytes = available;
            buffer_bytes(&topology, &Vec::from_iter(0..caches)) >> 20
        };
        assert_eq!(bytes(Some(1 << 20), 1, 64 << 30), 64);
        assert_eq!(bytes(Some(105 << 20), 1, 64 << 30), 104);
        assert_eq!(bytes(Some(32 << 20), 16, 64 << 30), 512);
        assert_eq!(bytes(None, 1, 64 << 30), 64);
        assert_eq!(bytes(Some(32 << 20), 16, 128 << 20), 16);
        assert_eq!(bytes(None, 1, 0), 2);
    }
}
