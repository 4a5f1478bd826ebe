// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the topology: its parsers, fake machines of each kind, broken ones, and the one the test runs on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod fixture;
mod machines;
mod parse;

use super::Topology;

/// What holds for every machine that can be read.
fn assert_consistent(machine: &Topology) {
    let groups = machine.cpus.cache_groups.iter();
    let in_groups: Vec<&[u32]> = groups.map(|group| &group.cpus[..]).collect();
    for mut cpus in [in_groups.concat(), machine.cpus.cores.concat()] {
        cpus.sort_unstable();
        // Every online CPU is in one cache group and one core.
        assert_eq!(cpus, machine.cpus.online);
    }
    assert!(!machine.cpus.online.is_empty() && machine.cpus.online.is_sorted_by(|a, b| a < b));
    assert!(!machine.nodes.is_empty() && machine.nodes.is_sorted_by(|a, b| a.id < b.id));
    for node in &machine.nodes {
        assert_eq!(node.has_cpu, !node.cpus.is_empty());
        assert_eq!(node.distances.len(), machine.nodes.len());
        assert_eq!(
            node.tier,
            machine
                .tiers
                .iter()
                .position(|tier| tier.nodes.contains(&node.id))
        );
    }
    for (index, tier) in machine.tiers.iter().enumerate() {
        assert!(!tier.nodes.is_empty());
        assert!(
            tier.nodes
                .iter()
                .all(|&node| tier_of_node(machine, node) == Some(index))
        );
    }
    if let Some(thp) = &machine.thp {
        assert!(!thp.sizes.is_empty() && thp.sizes.is_sorted_by(|a, b| a.bytes < b.bytes));
    }
    assert!(machine.memory.page_bytes.is_power_of_two());
}

fn tier_of_node(machine: &Topology, id: u32) -> Option<usize> {
    machine.node(id)?.tier
}

#[test]
fn this_machine_is_consistent() {
    let machine = Topology::read().unwrap();
    assert_consistent(&machine);
    assert!(
        machine
            .nodes_with_memory()
            .any(|node| node.memory_total_bytes > 0)
    );
    assert!(machine.memory.available_bytes <= machine.memory.total_bytes);
    assert!(machine.limits.max_map_count > 0);
    if let Some(thp) = &machine.thp {
        assert_eq!(thp.pmd_bytes % machine.memory.page_bytes, 0);
    }
}
