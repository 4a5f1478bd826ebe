// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as files describe it.

use std::path::Path;

use memferry_linux::topology::Topology;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OrFail};

/// The machine that was measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Processor model as /proc/cpuinfo names it.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// NUMA nodes with memory.
    pub nodes: usize,
    /// Base page, bytes.
    pub page_size: usize,
    /// PMD-mapped transparent huge page, bytes; 0 where there is none.
    pub thp_bytes: usize,
    /// Memory, bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Hypervisor, where the CPU reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Whether an emulator runs the processor's instructions: times are good for ratios only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// The copy routine that won the measurement on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

/// Reads the topology, or says why it cannot be read.
pub fn read() -> Result<Topology, Failure> {
    read_from(Path::new("/"))
}

/// Reads the topology below `root`, or says why it cannot be read.
pub fn read_from(root: &Path) -> Result<Topology, Failure> {
    Topology::read_from(root).or_fail(
        "cannot read the machine's topology",
        "mount /proc and /sys in this container",
    )
}

/// Describes the machine. `copy` is the copy routine that the lanes use, if they copy.
pub fn describe(topology: &Topology, copy: Option<&str>) -> Host {
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
        emulated: topology.is_emulated(),
        copy: copy.map(str::to_owned),
    }
}
