// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two memory nodes between which the kernel is measured: those that were asked for, else the nearest.

use memferry_linux::topology::{Node, Topology};

use crate::failure::Failure;
use crate::schema::FromTo;

/// Chooses the nodes, or says why there are not two.
pub fn choose(topology: &Topology, from: Option<u32>, to: Option<u32>) -> Result<FromTo, Failure> {
    let nodes: Vec<&Node> = topology.nodes_with_memory().collect();
    let ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
    let listed = memferry_linux::topology::parse::format_id_list(&ids);
    if nodes.len() < 2 {
        return Err(Failure::new(
            "cannot measure the kernel's moves here",
            format!(
                "move_pages(2) moves between memory nodes, and this machine has one, node {listed}"
            ),
            "boot with numa=fake=2 (CONFIG_NUMA_EMU), use a machine with two nodes, or measure --backend user",
        ));
    }
    if let Some(unknown) = from.iter().chain(&to).find(|node| !ids.contains(node)) {
        return Err(Failure::new(
            format!("there is no memory node {unknown}"),
            format!("the nodes with memory are {listed}"),
            "give one of those; `memferry topology` shows them",
        ));
    }
    let is_wanted = |node: u32, wanted: Option<u32>| wanted.is_none_or(|wanted| wanted == node);
    let distance = |a: &Node, b: u32| a.distance_to(b).unwrap_or(u32::MAX);
    let pairs = nodes.iter().flat_map(|a| ids.iter().map(move |&b| (*a, b)));
    let nearest = pairs
        .filter(|&(a, b)| a.id != b && is_wanted(a.id, from) && is_wanted(b, to))
        // Pages start where a process would have them: on a node with CPUs.
        .min_by_key(|&(a, b)| (distance(a, b), !a.has_cpu, a.id, b));
    match nearest {
        Some((a, to)) => Ok(FromTo { from: a.id, to }),
        None => Err(Failure::new(
            "cannot measure the kernel's moves here",
            "the nodes are the same",
            "give --from and --to different nodes",
        )),
    }
}

/// `wanted` bytes, or as many as the two nodes have room for: the region and its ceiling's target, the pages that it moves
/// to, and half of what is free left to others.
pub fn fitting(wanted: u64, topology: &Topology, nodes: FromTo) -> u64 {
    let free = |id| topology.node(id).map_or(0, |node| node.memory_free_bytes);
    let room = (free(nodes.from) / 2).min(free(nodes.to) / 4);
    let thp = super::region::THP as u64;
    let whole = wanted.checked_next_multiple_of(thp).unwrap_or(u64::MAX);
    (whole.min(room) / thp * thp).max(thp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memferry_linux::topology::Distance;

    /// This machine with invented nodes: two with CPUs, and one without that is nearer to node 1.
    fn three_nodes() -> Topology {
        let mut topology = Topology::read().expect("topology");
        let node = |id: u32, has_cpu, distances: [u32; 3]| Node {
            id,
            cpus: Vec::new(),
            has_cpu,
            has_memory: true,
            memory_total_bytes: 1 << 30,
            memory_free_bytes: 1 << 30,
            distances: (0..3)
                .zip(distances)
                .map(|(node, distance)| Distance { node, distance })
                .collect(),
            tier: None,
        };
        topology.nodes = vec![
            node(0, true, [10, 21, 24]),
            node(1, true, [21, 10, 14]),
            node(2, false, [24, 14, 10]),
        ];
        topology
    }

    #[test]
    fn the_nearest_nodes_are_chosen_among_those_asked_for() {
        let topology = three_nodes();
        let choose = |from, to| {
            let chosen = choose(&topology, from, to).expect("nodes");
            (chosen.from, chosen.to)
        };
        assert_eq!(choose(None, None), (1, 2));
        assert_eq!(choose(Some(0), None), (0, 1));
        assert_eq!(choose(None, Some(0)), (1, 0));
        assert_eq!(choose(Some(2), Some(0)), (2, 0));
    }

    #[test]
    fn a_machine_with_one_node_and_an_absent_node_are_told() {
        let mut topology = three_nodes();
        let error = choose(&topology, Some(7), None)
            .expect_err("node 7")
            .to_string();
        assert!(
            error.contains("no memory node 7") && error.contains("0-2"),
            "{error}"
        );
        topology.nodes.truncate(1);
        let error = choose(&topology, None, None)
            .expect_err("one node")
            .to_string();
        assert!(
            error.contains("this machine has one") && error.contains("numa=fake"),
            "{error}"
        );
    }

    #[test]
    fn a_total_leaves_room_on_both_nodes() {
        let mut topology = three_nodes();
        let nodes = FromTo { from: 0, to: 1 };
        assert_eq!(fitting(64 << 20, &topology, nodes), 64 << 20);
        assert_eq!(fitting(1 << 30, &topology, nodes), 256 << 20);
        topology.nodes[0].memory_free_bytes = 16 << 20;
        assert_eq!(fitting(1 << 30, &topology, nodes), 8 << 20);
    }
}
