// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory nodes and the tiers they form, from /sys/devices/system/node and /sys/devices/virtual/memory_tiering.
//! It reports what the kernel says and measures nothing: a tier is as good as the firmware's tables.

use super::error::{ParseError, TopologyError};
use super::files::Root;
use super::parse;

const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// The distance of a node to itself (`LOCAL_DISTANCE` in include/linux/topology.h).
const LOCAL_DISTANCE: u32 = 10;

/// A NUMA node: CPUs, memory or both that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Node {
    /// The kernel's id; ids may be sparse.
    pub id: u32,
    /// The node's online CPUs, ascending; none for a node of memory only, such as CXL.
    pub cpus: Vec<u32>,
    /// Whether `cpus` holds any.
    #[cfg_attr(feature = "json", serde(skip))]
    pub has_cpu: bool,
    /// Whether pages can be moved here (the kernel's `N_MEMORY`).
    pub has_memory: bool,
    /// `MemTotal` in bytes. It changes while memory is hot-plugged.
    #[cfg_attr(feature = "json", serde(rename = "memory_bytes"))]
    pub memory_total_bytes: u64,
    /// `MemFree` in bytes, when it was read.
    #[cfg_attr(feature = "json", serde(rename = "free_bytes"))]
    pub memory_free_bytes: u64,
    /// The distance to every node, itself included, ascending by node id.
    pub distances: Vec<Distance>,
    /// The index into the machine's tiers; `None` for a node that no tier lists, as one without memory.
    pub tier: Option<usize>,
}

impl Node {
    /// The distance from this node to the node `id`, in units where 10 is local; `None` for an unknown node.
    pub fn distance_to(&self, id: u32) -> Option<u32> {
        self.distances
            .iter()
            .find(|d| d.node == id)
            .map(|d| d.distance)
    }
}

/// How far one node is, as the firmware tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Distance {
    /// The id of the other node.
    pub node: u32,
    /// Relative distance: 10 is local, 20 is twice as slow.
    pub distance: u32,
}

/// Memory nodes of one speed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Tier {
    /// N of the kernel's `memory_tierN`; `None` where the kernel names no tiers and all memory is taken as one.
    pub kernel_id: Option<u32>,
    /// The ids of the tier's nodes, ascending. A node is in one tier at most.
    pub nodes: Vec<u32>,
}

/// Reads all online nodes, ascending by id, without their tiers.
///
/// A machine without NUMA has no node folder: it is one node 0 with all CPUs and the machine's memory.
pub(super) fn read_nodes(
    root: &Root,
    online: &[u32],
    memory: parse::MemInfo,
) -> Result<Vec<Node>, TopologyError> {
    let ids = root.numbered(NODES, "node", "", "the folder of NUMA nodes")?;
    if ids.is_empty() {
        return Ok(vec![Node {
            id: 0,
            cpus: online.to_vec(),
            has_cpu: true,
            has_memory: true,
            memory_total_bytes: memory.total_bytes,
            memory_free_bytes: memory.free_bytes,
            distances: vec![Distance {
                node: 0,
                distance: LOCAL_DISTANCE,
            }],
            tier: None,
        }]);
    }
    let list = format!("{NODES}/has_memory");
    let with_memory = root.optional(&list, "the list of nodes with memory", parse::id_list)?;
    ids.iter()
        .map(|&id| read_node(root, id, &ids, online, with_memory.as_deref()))
        .collect()
}

fn read_node(
    root: &Root,
    id: u32,
    ids: &[u32],
    online: &[u32],
    with_memory: Option<&[u32]>,
) -> Result<Node, TopologyError> {
    let file = |name: &str| format!("{NODES}/node{id}/{name}");
    let mut cpus = root.required(&file("cpulist"), "the node's CPUs", parse::id_list)?;
    // A container's view of cpu/online can be narrower than this list.
    cpus.retain(|cpu| online.binary_search(cpu).is_ok());
    let meminfo = |text: &str| parse::meminfo(text, Some(id));
    let memory = root.required(&file("meminfo"), "the node's memory", meminfo)?;
    let distances = |text: &str| distances_to(ids, text);
    let distances = root.required(&file("distance"), "the node's distances", distances)?;
    Ok(Node {
        id,
        has_cpu: !cpus.is_empty(),
        cpus,
        has_memory: with_memory.map_or(memory.total_bytes > 0, |list| {
            list.binary_search(&id).is_ok()
        }),
        memory_total_bytes: memory.total_bytes,
        memory_free_bytes: memory.free_bytes,
        distances,
        tier: None,
    })
}

/// The kernel writes one column for each online node, ascending; the ids are not in the file.
fn distances_to(ids: &[u32], text: &str) -> Result<Vec<Distance>, ParseError> {
    let values = parse::distances(text)?;
    if values.len() != ids.len() {
        let nodes = parse::format_id_list(ids);
        let expected = format!("{} distances, one for each of the nodes {nodes}", ids.len());
        return Err(ParseError::new(expected, text.trim()));
    }
    Ok(ids
        .iter()
        .zip(values)
        .map(|(&node, distance)| Distance { node, distance })
        .collect())
}

/// Reads the tiers, fastest first, and notes in each node which one it belongs to.
///
/// The N of `memory_tierN` is the tier's abstract distance divided by 128 (mm/memory-tiers.c), and smaller
/// abstract distances mean faster memory (include/linux/memory-tiers.h), so ascending N is fastest first. Plain
/// DRAM is `memory_tier4`. A kernel without the folder (before 6.1, or without NUMA) has one tier with every node
/// that has memory. Nodes that left meanwhile and tiers without nodes are left out.
pub(super) fn read_tiers(root: &Root, nodes: &mut [Node]) -> Result<Vec<Tier>, TopologyError> {
    let mut named = Vec::new();
    for number in root.numbered(TIERS, "memory_tier", "", "the folder of memory tiers")? {
        let file = format!("{TIERS}/memory_tier{number}/nodelist");
        named.push((
            Some(number),
            root.required(&file, "the tier's nodes", parse::id_list)?,
        ));
    }
    if named.is_empty() {
        named.push((
            None,
            nodes
                .iter()
                .filter(|n| n.has_memory)
                .map(|n| n.id)
                .collect(),
        ));
    }
    let mut tiers = Vec::new();
    for (kernel_id, listed) in named {
        let mut tier = Tier {
            kernel_id,
            nodes: Vec::new(),
        };
        for node in nodes
            .iter_mut()
            .filter(|n| n.tier.is_none() && listed.binary_search(&n.id).is_ok())
        {
            node.tier = Some(tiers.len());
            tier.nodes.push(node.id);
        }
        if !tier.nodes.is_empty() {
            tiers.push(tier);
        }
    }
    Ok(tiers)
}
