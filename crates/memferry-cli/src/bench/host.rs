// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as a benchmark file describes it, and how much of its memory a benchmark may use.

use memferry::topology::Topology;

use crate::failure::Failure;
use crate::schema::Host;

/// Reads the topology, or says why it cannot be read.
pub fn topology() -> Result<Topology, Failure> {
    Topology::read().map_err(|error| {
        Failure::new(
            "cannot read the machine's topology",
            error,
            "mount /proc and /sys in this container",
        )
    })
}

/// Describes the machine. `copy` is the copy routine that the lanes use.
pub fn describe(topology: &Topology, copy: &str) -> Host {
    Host {
        cpu: topology
            .cpus
            .model
            .clone()
            .unwrap_or_else(|| "unknown".to_owned()),
        cpus: topology.cpus.online.len(),
        kernel: topology.kernel_interface.release.clone(),
        nodes: topology.nodes_with_memory().count(),
        page_size: topology.memory.page_bytes as usize,
        thp_bytes: topology
            .thp
            .as_ref()
            .map_or(0, |thp| thp.pmd_bytes as usize),
        memory_bytes: topology.memory.total_bytes,
        hypervisor: topology
            .cpus
            .hypervisor_name
            .clone()
            .or_else(|| (topology.cpus.hypervisor == Some(true)).then(|| "unnamed".to_owned())),
        copy: Some(copy.to_owned()),
    }
}

/// `wanted` bytes, or less where the machine is small: a run needs the region, its destination pages and the
/// ceiling's buffer, and half of the free memory is left to others. A multiple of 2 MiB.
pub fn fitting(wanted: u64, topology: &Topology, copies: u64) -> u64 {
    let room = topology.memory.available_bytes / 2 / copies;
    let thp = super::region::THP as u64;
    (wanted.min(room) / thp * thp).max(thp)
}
