// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as `memferry topology --json` writes it, schema `memferry-topology/1`.
//!
//! ```text
//! schema            "memferry-topology/1"
//! version, date, arguments, settings, complete
//!                   as in the files of benchmarks: who asked, when and how; complete is true
//! machine           cpu (null if unknown), cpus, kernel, virtual (null if no file tells), hypervisor (its
//!                   maker or null), memory_bytes, available_bytes, page_bytes
//! nodes[]           id, tier (index into tiers, or null), cpus[], has_memory, memory_bytes, free_bytes,
//!                   distances[] of {node, distance}, 10 being local
//! tiers[]           kernel_id (N of memory_tierN, or null), nodes[]; fastest first
//! cache_groups[]    cpus[], level, bytes, node; each of the last three may be null
//! thp               null without THPs; else enabled, defrag, pmd_bytes, sizes[] of {bytes, mode}
//! demotion          whether reclaim demotes, or null on a kernel that cannot
//! numa_balancing    null on a kernel without it; else placement, tiering
//! abilities[]       name, purpose, available, why (null if available; else the reason and what would
//!                   enable it)
//! move_cost         null where UFFDIO_MOVE does not work; else uffdio_move_ns (one way, for each base page),
//!                   beside_a_thread (another thread of the process ran meanwhile), bound_gbps (what it lets
//!                   through at most), between_nodes (null with one node; else userfaultfd_ns and
//!                   move_pages_ns, there with all that belongs to it)
//! notes[]           what limits the mover here, as text
//! migrators         null on a stock kernel; else active, all[]
//! dma_channels[]    name, driver (or null), node (or null), in_use
//! limits            max_map_count, unprivileged_userfaultfd (or null), overcommit_memory ("heuristic",
//!                   "always", "never"), nr_hugepages (or null)
//! copy              absent without --copy; else best, buffer_bytes, runs,
//!                   routines[] of {name, about},
//!                   rows[] of {routine, page_bytes, extent_bytes, threads, gbps (median), gbps_min, gbps_max}
//! ```
//! Names stay as they are within version 1; new ones may come. Sizes are bytes, GB is 1e9 bytes.

use std::path::Path;

use memferry_linux::topology::{Overcommit, ThpDefrag, ThpMode, Topology};
use schemars::JsonSchema;
use serde::Serialize;

use crate::schema::Envelope;

/// The value of [`Description::schema`].
pub const TOPOLOGY_SCHEMA: &str = "memferry-topology/1";

/// All that is known of a machine. The fields are explained at the head of this file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopologyFile")]
pub struct Description {
    #[schemars(extend("const" = TOPOLOGY_SCHEMA))]
    pub schema: &'static str,
    #[serde(flatten)]
    pub envelope: Envelope,
    pub machine: Machine,
    pub nodes: Vec<Node>,
    pub tiers: Vec<Tier>,
    pub cache_groups: Vec<CacheGroup>,
    pub thp: Option<Thp>,
    pub demotion: Option<bool>,
    pub numa_balancing: Option<NumaBalancing>,
    pub abilities: Vec<Capability>,
    pub move_cost: Option<MoveCost>,
    pub notes: Vec<String>,
    pub migrators: Option<Migrators>,
    pub dma_channels: Vec<DmaChannel>,
    pub limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copies>,
}

/// The machine as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Machine {
    pub cpu: Option<String>,
    pub cpus: usize,
    pub kernel: String,
    #[serde(rename = "virtual")]
    pub is_virtual: Option<bool>,
    pub hypervisor: Option<String>,
    pub memory_bytes: u64,
    pub available_bytes: u64,
    pub page_bytes: u64,
}

/// A memory node.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Node {
    pub id: u32,
    pub tier: Option<usize>,
    pub cpus: Vec<u32>,
    pub has_memory: bool,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub distances: Vec<Distance>,
}

/// How far one node is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Distance {
    pub node: u32,
    pub distance: u32,
}

/// Nodes of one speed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tier {
    pub kernel_id: Option<u32>,
    pub nodes: Vec<u32>,
}

/// CPUs that share a last-level cache.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CacheGroup {
    pub cpus: Vec<u32>,
    pub level: Option<u32>,
    pub bytes: Option<u64>,
    pub node: Option<u32>,
}

/// Transparent huge pages.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Thp {
    pub enabled: String,
    pub defrag: String,
    pub pmd_bytes: u64,
    pub sizes: Vec<ThpSize>,
}

/// One size of transparent huge pages.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ThpSize {
    pub bytes: u64,
    pub mode: String,
}

/// What NUMA balancing does.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NumaBalancing {
    pub placement: bool,
    pub tiering: bool,
}

/// What the kernel can or cannot do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Capability {
    pub name: &'static str,
    pub purpose: &'static str,
    pub available: bool,
    pub why: Option<String>,
}

/// The kernel's own migrators.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Migrators {
    pub active: String,
    pub all: Vec<String>,
}

/// A channel of a DMA engine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DmaChannel {
    pub name: String,
    pub driver: Option<String>,
    pub node: Option<u32>,
    pub in_use: bool,
}

/// Limits of /proc/sys/vm.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Limits {
    pub max_map_count: u64,
    pub unprivileged_userfaultfd: Option<bool>,
    pub overcommit_memory: &'static str,
    pub nr_hugepages: Option<u64>,
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
    pub extent_bytes: usize,
    pub threads: usize,
    pub gbps: f64,
    pub gbps_min: f64,
    pub gbps_max: f64,
}

/// What moving a base page takes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MoveCost {
    pub uffdio_move_ns: f64,
    pub beside_a_thread: bool,
    pub bound_gbps: f64,
    pub between_nodes: Option<BetweenNodes>,
}

/// The same to another node, both ways.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BetweenNodes {
    pub userfaultfd_ns: f64,
    pub move_pages_ns: f64,
}

impl Description {
    /// The machine without its copy routines.
    pub fn new(topology: &Topology, abilities: Vec<Capability>) -> Self {
        let cpus = &topology.cpus;
        let interface = &topology.kernel_interface;
        let limits = &topology.limits;
        Self {
            schema: TOPOLOGY_SCHEMA,
            envelope: Envelope::now(Path::new("/")).complete(),
            machine: Machine {
                cpu: cpus.model.clone(),
                cpus: cpus.online.len(),
                kernel: interface.release.clone(),
                is_virtual: cpus.hypervisor,
                hypervisor: cpus.hypervisor_name.clone(),
                memory_bytes: topology.memory.total_bytes,
                available_bytes: topology.memory.available_bytes,
                page_bytes: topology.memory.page_bytes,
            },
            nodes: topology.nodes.iter().map(Node::new).collect(),
            tiers: (topology.tiers.iter())
                .map(|tier| Tier {
                    kernel_id: tier.kernel_id,
                    nodes: tier.nodes.clone(),
                })
                .collect(),
            cache_groups: (cpus.cache_groups.iter())
                .map(|group| CacheGroup {
                    cpus: group.cpus.clone(),
                    level: group.level,
                    bytes: group.size_bytes,
                    node: group.node,
                })
                .collect(),
            thp: topology.thp.as_ref().map(Thp::new),
            demotion: topology.demotion_enabled,
            numa_balancing: interface.numa_balancing.map(|of| NumaBalancing {
                placement: of.placement,
                tiering: of.tiering,
            }),
            abilities,
            move_cost: memferry::probe::move_cost(topology).map(|cost| MoveCost {
                uffdio_move_ns: cost.uffdio_move_ns,
                beside_a_thread: cost.beside_a_thread,
                bound_gbps: cost.bound_gbps(),
                between_nodes: cost.between_nodes.map(|cost| BetweenNodes {
                    userfaultfd_ns: cost.userfaultfd_ns,
                    move_pages_ns: cost.move_pages_ns,
                }),
            }),
            notes: memferry::probe::notes(topology),
            migrators: interface.migrators.as_ref().map(|choice| Migrators {
                active: choice.active.clone(),
                all: choice.names.clone(),
            }),
            dma_channels: (topology.dma_channels.iter())
                .map(|channel| DmaChannel {
                    name: channel.name.clone(),
                    driver: channel.driver.clone(),
                    node: channel.node,
                    in_use: channel.in_use,
                })
                .collect(),
            limits: Limits {
                max_map_count: limits.max_map_count,
                unprivileged_userfaultfd: limits.unprivileged_userfaultfd,
                overcommit_memory: match limits.overcommit_memory {
                    Overcommit::Heuristic => "heuristic",
                    Overcommit::Always => "always",
                    Overcommit::Never => "never",
                },
                nr_hugepages: limits.nr_hugepages,
            },
            copy: None,
        }
    }
}

impl Node {
    fn new(node: &memferry_linux::topology::Node) -> Self {
        Self {
            id: node.id,
            tier: node.tier,
            cpus: node.cpus.clone(),
            has_memory: node.has_memory,
            memory_bytes: node.memory_total_bytes,
            free_bytes: node.memory_free_bytes,
            distances: (node.distances.iter())
                .map(|to| Distance {
                    node: to.node,
                    distance: to.distance,
                })
                .collect(),
        }
    }
}

impl Thp {
    fn new(thp: &memferry_linux::topology::Thp) -> Self {
        Self {
            enabled: mode(&thp.enabled).to_owned(),
            defrag: match &thp.defrag {
                ThpDefrag::Always => "always",
                ThpDefrag::Defer => "defer",
                ThpDefrag::DeferMadvise => "defer+madvise",
                ThpDefrag::Madvise => "madvise",
                ThpDefrag::Never => "never",
                ThpDefrag::Other(name) => name,
                _ => "unknown",
            }
            .to_owned(),
            pmd_bytes: thp.pmd_bytes,
            sizes: (thp.sizes.iter())
                .map(|size| ThpSize {
                    bytes: size.bytes,
                    mode: mode(&size.mode).to_owned(),
                })
                .collect(),
        }
    }
}

fn mode(mode: &ThpMode) -> &str {
    match mode {
        ThpMode::Always => "always",
        ThpMode::Madvise => "madvise",
        ThpMode::Never => "never",
        ThpMode::Other(name) => name,
        _ => "unknown",
    }
}

/// A machine with two DRAM nodes and one of CXL memory, for the tests; nobody has it.
#[cfg(test)]
pub mod synthetic {
    use super::*;

    /// The machine.
    pub fn machine() -> Description {
        let node = |id: u32, tier, cpus: &[u32], gib: u64, distances: [u32; 3]| Node {
            id,
            tier: Some(tier),
            cpus: cpus.to_vec(),
            has_memory: true,
            memory_bytes: gib << 30,
            free_bytes: gib << 29,
            distances: (0..3)
                .zip(distances)
                .map(|(node, distance)| Distance { node, distance })
                .collect(),
        };
        let topology = Topology::read().expect("topology");
        Description {
            machine: Machine {
                cpu: Some("Synthetic CPU (invented for tests)".to_owned()),
                cpus: 8,
                kernel: "6.12.0-synthetic".to_owned(),
                is_virtual: Some(true),
                hypervisor: None,
                memory_bytes: 96 << 30,
                available_bytes: 48 << 30,
                page_bytes: 4096,
            },
            nodes: vec![
                node(0, 0, &[0, 1, 2, 3], 16, [10, 21, 14]),
                node(1, 0, &[4, 5, 6, 7], 16, [21, 10, 24]),
                node(2, 1, &[], 64, [14, 24, 10]),
            ],
            tiers: vec![
                Tier {
                    kernel_id: Some(4),
                    nodes: vec![0, 1],
                },
                Tier {
                    kernel_id: Some(22),
                    nodes: vec![2],
                },
            ],
            cache_groups: vec![
                CacheGroup {
                    cpus: vec![0, 1, 2, 3],
                    level: Some(3),
                    bytes: Some(32 << 20),
                    node: Some(0),
                },
                CacheGroup {
                    cpus: vec![4, 6],
                    level: None,
                    bytes: None,
                    node: None,
                },
            ],
            thp: Some(Thp {
                enabled: "madvise".to_owned(),
                defrag: "defer+madvise".to_owned(),
                pmd_bytes: 2 << 20,
                sizes: [(64, "always"), (1024, "never"), (2048, "madvise")]
                    .map(|(kib, mode)| ThpSize {
                        bytes: kib << 10,
                        mode: mode.to_owned(),
                    })
                    .into(),
            }),
            dma_channels: [(0, true), (1, false), (2, false)]
                .map(|(number, in_use)| DmaChannel {
                    name: format!("dma0chan{number}"),
                    driver: Some("ioatdma".to_owned()),
                    node: Some(0),
                    in_use,
                })
                .into(),
            demotion: Some(true),
            numa_balancing: Some(NumaBalancing {
                placement: false,
                tiering: true,
            }),
            abilities: vec![
                Capability {
                    name: "UFFDIO_MOVE",
                    purpose: "unmap and remap in batches",
                    available: true,
                    why: None,
                },
                Capability {
                    name: "kernel migrators",
                    purpose: "batch copies inside the kernel",
                    available: false,
                    why: Some("stock kernel; Memferry's series for Linux 6.12 adds it".to_owned()),
                },
            ],
            ..Description::new(&topology, Vec::new())
        }
    }
}
