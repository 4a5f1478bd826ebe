// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that is measured: what the benchmarks may take of it, and what a reader of their figures must know.

use std::cmp::Ordering;
use std::path::Path;
use std::thread;

use memferry_linux::cgroup;
use memferry_linux::topology::Topology;
pub use memferry_output::host::{describe, read};

use super::region::PAGE;
use crate::failure::Failure;
use crate::units::Size;

/// Reads the topology of a machine whose pages the benchmarks know, or says why it cannot be read. Available is what this process may
/// take: its cgroups can leave it less than the machine has.
pub fn topology() -> Result<Topology, Failure> {
    let mut topology = read()?;
    let room = cgroup::memory_room(Path::new("/")).unwrap_or(u64::MAX);
    topology.memory.available_bytes = topology.memory.available_bytes.min(room);
    let page = topology.memory.page_bytes;
    if page != PAGE as u64 {
        return Err(Failure::new(
            "cannot measure here",
            format!("the base page is {page} bytes, and the benchmarks' folios are made of {PAGE}"),
            "use a kernel with 4 KiB pages",
        ));
    }
    Ok(topology)
}

/// How many CPUs the benchmark's threads may run on: taskset and cpusets can leave it fewer than are online.
pub fn usable_cpus(topology: &Topology) -> usize {
    memferry_linux::affinity::allowed().map_or(topology.cpus.online.len(), |cpus| cpus.len())
}

/// The same, but no more than the CPU quota of its cgroups (`cpu.max`), rounded down: the kernel stops threads beyond that for the rest
/// of each period.
pub fn cpus_in_quota(topology: &Topology) -> usize {
    let usable = usable_cpus(topology);
    thread::available_parallelism().map_or(usable, |of| of.get().min(usable))
}

/// What a reader must know of figures under a quota.
pub fn quota_note(topology: &Topology) -> Option<String> {
    of_quota(usable_cpus(topology), cpus_in_quota(topology))
}

fn of_quota(usable: usize, in_quota: usize) -> Option<String> {
    (in_quota < usable).then(|| {
        format!(
            "The cgroup's CPU quota (cpu.max) is {in_quota} of the {usable} CPUs that this process may run on: the kernel stops \
             threads beyond that for the rest of each period."
        )
    })
}

/// What a reader must know of figures from an emulated processor.
pub fn emulated_note(topology: &Topology) -> Option<String> {
    topology.is_emulated().then(|| {
        "An emulator runs this processor: the figures are good for ratios within this run only."
            .to_owned()
    })
}

/// What a reader must know where `total` is not what was asked for.
pub fn changed_total(wanted: u64, total: u64) -> Option<String> {
    let why = match total.cmp(&wanted) {
        Ordering::Equal => return None,
        Ordering::Less => "this machine, or the cgroup, has no room for more",
        Ordering::Greater => "it is moved in whole THPs",
    };
    Some(format!(
        "The total is {} instead of {}: {why}.",
        Size(total),
        Size(wanted)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_of_fewer_cpus_is_told() {
        assert_eq!(of_quota(4, 4), None);
        let text = of_quota(16, 2).expect("quota");
        assert!(text.contains("2 of the 16 CPUs"), "{text}");
    }

    #[test]
    fn a_changed_total_has_its_reason() {
        assert_eq!(changed_total(2 << 20, 2 << 20), None);
        let text = changed_total(1 << 30, 128 << 20).expect("less");
        assert!(
            text.contains("128M instead of 1G") && text.contains("no room"),
            "{text}"
        );
        let text = changed_total(1 << 20, 2 << 20).expect("more");
        assert!(text.contains("whole THPs"), "{text}");
    }
}
