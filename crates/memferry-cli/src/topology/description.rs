// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as `memferry topology --json` writes it, schema `memferry-topology/1`.
//!
//! Nodes, tiers, caches, THPs, DMA channels and limits are the library's types, which say what their fields are; so does
//! docs/schema.json. Names stay as they are within version 1; new ones may come. Sizes are bytes, GB is 1e9 bytes.

use memferry_linux::topology::parse::Choice;
use memferry_linux::topology::{
    CacheGroup, DmaChannel, Limits, Node, NumaBalancing, Thp, Tier, Topology,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::file::Content;

/// All that is known of a machine.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopologyFile")]
pub struct Description {
    pub machine: Machine,
    pub nodes: Vec<Node>,
    /// Fastest first.
    pub tiers: Vec<Tier>,
    pub cache_groups: Vec<CacheGroup>,
    /// Null without THPs.
    pub thp: Option<Thp>,
    /// Whether reclaim demotes; null on a kernel that cannot.
    pub demotion: Option<bool>,
    /// Null on a kernel without it.
    pub numa_balancing: Option<NumaBalancing>,
    pub abilities: Vec<Capability>,
    /// Null where UFFDIO_MOVE does not work.
    pub move_cost: Option<MoveCost>,
    /// What limits the mover here.
    pub notes: Vec<String>,
    /// Null on a stock kernel.
    pub migrators: Option<Choice>,
    pub dma_channels: Vec<DmaChannel>,
    pub limits: Limits,
    /// With --copy only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copies>,
}

impl Content for Description {
    const SCHEMA: &'static str = "memferry-topology/1";
}

/// The machine as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Machine {
    /// Its model; null if unknown.
    pub cpu: Option<String>,
    pub cpus: usize,
    pub kernel: String,
    /// Null if no file tells.
    #[serde(rename = "virtual")]
    pub is_virtual: Option<bool>,
    /// Who made the virtual machine, or null.
    pub hypervisor: Option<String>,
    pub memory_bytes: u64,
    pub available_bytes: u64,
    pub page_bytes: u64,
}

/// What the kernel can or cannot do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Capability {
    pub name: &'static str,
    pub purpose: &'static str,
    pub available: bool,
    /// Null if available; else the reason, and what would enable it.
    pub why: Option<String>,
}

/// The measured copy routines.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Copies {
    pub best: &'static str,
    pub buffer_bytes: u64,
    pub runs: usize,
    pub routines: Vec<CopyRoutine>,
    pub rows: Vec<CopyRow>,
}

/// One copy routine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyRoutine {
    pub name: &'static str,
    pub about: &'static str,
}

/// How fast one routine copies.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CopyRow {
    pub routine: &'static str,
    pub page_bytes: u64,
    pub threads: usize,
    /// The median.
    pub gbps: f64,
    pub gbps_min: f64,
    pub gbps_max: f64,
}

/// What moving a base page takes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MoveCost {
    /// One way, for each base page.
    pub uffdio_move_ns: f64,
    /// Another thread of the process ran meanwhile.
    pub beside_a_thread: bool,
    /// What it lets through at most.
    pub bound_gbps: f64,
    /// Null with one node.
    pub between_nodes: Option<BetweenNodes>,
}

/// The same to another node, both ways, with all that belongs to it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BetweenNodes {
    pub userfaultfd_ns: f64,
    /// In pieces of 16 KiB, each by system calls of its own.
    pub userfaultfd_pieces_ns: f64,
    pub move_pages_ns: f64,
}

impl Description {
    /// The machine without its copy routines.
    pub fn new(topology: Topology, abilities: Vec<Capability>) -> Self {
        let move_cost = memferry::probe::move_cost(&topology).map(|cost| MoveCost {
            uffdio_move_ns: cost.uffdio_move_ns,
            beside_a_thread: cost.beside_a_thread,
            bound_gbps: cost.bound_gbps(),
            between_nodes: cost.between_nodes.map(|cost| BetweenNodes {
                userfaultfd_ns: cost.userfaultfd_ns,
                userfaultfd_pieces_ns: cost.userfaultfd_pieces_ns,
                move_pages_ns: cost.move_pages_ns,
            }),
        });
        let notes = memferry::probe::notes(&topology);
        let (cpus, memory) = (topology.cpus, topology.memory);
        let interface = topology.kernel_interface;
        Self {
            machine: Machine {
                cpu: cpus.model,
                cpus: cpus.online.len(),
                kernel: interface.release,
                is_virtual: cpus.hypervisor,
                hypervisor: cpus.hypervisor_name,
                memory_bytes: memory.total_bytes,
                available_bytes: memory.available_bytes,
                page_bytes: memory.page_bytes,
            },
            nodes: topology.nodes,
            tiers: topology.tiers,
            cache_groups: cpus.cache_groups,
            thp: topology.thp,
            demotion: topology.demotion_enabled,
            numa_balancing: interface.numa_balancing,
            abilities,
            move_cost,
            notes,
            migrators: interface.migrators,
            dma_channels: topology.dma_channels,
            limits: topology.limits,
            copy: None,
        }
    }
}
