// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two memory nodes between which pages move: those that were asked for, else the nearest; and where pages lie.

use std::io;
use std::time::{Duration, Instant};

use memferry_linux::numa;
use memferry_linux::topology::{Node, Topology, parse};

use super::region::{Region, THP};
use crate::args::NodeArgs;
use crate::failure::{Failure, OrFail};
use crate::schema::FromTo;

/// Tries to bring all pages to where they should be: a page may be held for a moment, and is not any more at the next try.
pub const TRIES: usize = 10;

/// Chooses the nodes among those that the cpuset leaves to this process, or says why there are not two.
pub fn choose(topology: &Topology, args: &NodeArgs) -> Result<FromTo, Failure> {
    choose_of(topology, args, numa::is_allowed)
}

fn choose_of(
    topology: &Topology,
    args: &NodeArgs,
    is_allowed: fn(u32) -> bool,
) -> Result<FromTo, Failure> {
    let with_memory: Vec<u32> = topology.nodes_with_memory().map(|node| node.id).collect();
    let nodes = Vec::from_iter(allowed(topology, is_allowed));
    let ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
    let (all, listed) = (
        parse::format_id_list(&with_memory),
        parse::format_id_list(&ids),
    );
    let mut asked = args.from.iter().chain(&args.to);
    if let Some(&other) = asked.find(|node| !with_memory.contains(node)) {
        return Err(Failure::new(
            match topology.node(other) {
                Some(_) => format!("node {other} has no memory"),
                None => format!("there is no memory node {other}"),
            },
            format!("the nodes with memory are {all}"),
            "give one of those; `memferry topology` shows them",
        ));
    }
    let mut asked = args.from.iter().chain(&args.to);
    let forbidden = asked.find(|node| !ids.contains(node));
    if forbidden.is_some() || nodes.len() < 2 && with_memory.len() > 1 {
        return Err(Failure::new(
            match forbidden {
                Some(node) => format!("this process may not use node {node}"),
                None => "cannot measure moves between nodes here".to_owned(),
            },
            format!("of the memory nodes {all} its cpuset has {listed}"),
            "run it in a cpuset with the nodes in cpuset.mems",
        ));
    }
    if nodes.len() < 2 {
        return Err(Failure::new(
            "cannot measure moves between nodes here",
            format!("this machine has one memory node, {listed}"),
            "boot with numa=fake=2 (CONFIG_NUMA_EMU) or use a machine with two nodes; --backend user moves within the node if \
             no node is named",
        ));
    }
    let is_wanted = |node: u32, wanted: Option<u32>| wanted.is_none_or(|wanted| wanted == node);
    let distance = |a: &Node, b: u32| a.distance_to(b).unwrap_or(u32::MAX);
    let pairs = nodes.iter().flat_map(|a| ids.iter().map(move |&b| (*a, b)));
    let nearest = pairs
        .filter(|&(a, b)| a.id != b && is_wanted(a.id, args.from) && is_wanted(b, args.to))
        // Pages start where a process would have them: on a node with CPUs.
        .min_by_key(|&(a, b)| (distance(a, b), !a.has_cpu, a.id, b));
    match nearest {
        Some((a, to)) => Ok(FromTo { from: a.id, to }),
        None => Err(Failure::new(
            "cannot measure moves between nodes here",
            "the nodes are the same",
            "give --from and --to different nodes",
        )),
    }
}

/// The same for userfaultfd; `None`: this process has one node, and pages move within it.
pub fn choose_or_within(topology: &Topology, args: &NodeArgs) -> Result<Option<FromTo>, Failure> {
    choose_or_within_of(topology, args, numa::is_allowed)
}

fn choose_or_within_of(
    topology: &Topology,
    args: &NodeArgs,
    is_allowed: fn(u32) -> bool,
) -> Result<Option<FromTo>, Failure> {
    let within = allowed(topology, is_allowed).count() < 2;
    match within && args.from.is_none() && args.to.is_none() {
        true => Ok(None),
        false => choose_of(topology, args, is_allowed).map(Some),
    }
}

/// The nodes with memory that this process may use.
fn allowed(topology: &Topology, is_allowed: fn(u32) -> bool) -> impl Iterator<Item = &Node> {
    let nodes = topology.nodes_with_memory();
    nodes.filter(move |node| is_allowed(node.id))
}

/// `wanted` bytes in whole THPs, or as many as there is room for: one copy on the first node and `copies` on the second, or
/// `copies` and one in the machine, and half of what is free left to others.
pub fn fitting(wanted: u64, topology: &Topology, nodes: Option<FromTo>, copies: u64) -> u64 {
    let free = |id| topology.node(id).map_or(0, |node| node.memory_free_bytes);
    let on_nodes = nodes.map(|of| (free(of.from) / 2).min(free(of.to) / 2 / copies));
    let room =
        (topology.memory.available_bytes / 2 / (copies + 1)).min(on_nodes.unwrap_or(u64::MAX));
    let whole = wanted
        .checked_next_multiple_of(THP as u64)
        .unwrap_or(u64::MAX);
    whole_thps(whole.min(room))
}

/// The same for moves of THPs on one node: the kernel may take back the page cache's memory in pieces that are no THP.
pub fn fitting_free(wanted: u64, topology: &Topology, copies: u64) -> u64 {
    let free: u64 = (topology.nodes_with_memory())
        .map(|node| node.memory_free_bytes)
        .sum();
    fitting(wanted.min(free / 2 / (copies + 1)), topology, None, copies)
}

/// So many bytes in whole THPs, one at least.
pub fn whole_thps(bytes: u64) -> u64 {
    let thp = THP as u64;
    (bytes / thp * thp).max(thp)
}

/// Where pages go to: to the second node, or of one node to that.
pub fn target(topology: &Topology, nodes: Option<FromTo>) -> u32 {
    let first = || allowed(topology, numa::is_allowed).next();
    nodes.map_or_else(|| first().map_or(0, |node| node.id), |nodes| nodes.to)
}

/// Maps and fills memory of folios of this size on a node, or where the threads that fill it run.
pub fn map(
    node: Option<u32>,
    bytes: usize,
    folio: usize,
    threads: usize,
) -> Result<Region, Failure> {
    let (region, where_to) = match node {
        None => (Region::new(bytes, folio >= THP, threads), String::new()),
        // Threads on CPUs of several nodes would each fill a part of their own node.
        Some(node) => (
            Region::on(node, bytes, folio, threads),
            format!(" on node {node}"),
        ),
    };
    region.or_fail(
        format!("cannot map the benchmark's memory{where_to}"),
        "give a smaller --total",
    )
}

/// Moves the folios at these addresses to a node with one call, which may leave some; how long the call took.
pub fn send(heads: &[usize], node: u32) -> io::Result<Duration> {
    let (target, mut status) = (vec![node as i32; heads.len()], vec![0; heads.len()]);
    let started = Instant::now();
    numa::move_pages(0, heads, Some(&target), &mut status, false)?;
    Ok(started.elapsed())
}

/// How many of the pages at these addresses are not on `node`.
pub fn missing(heads: &[usize], node: u32) -> Result<usize, Failure> {
    let mut status = vec![0; heads.len()];
    numa::move_pages(0, heads, None, &mut status, false).map_err(call_failed)?;
    Ok(status.iter().filter(|&&at| at != node as i32).count())
}

/// Brings the folios at these addresses to a node, outside of any time. A folio that may have been split needs the addresses of all
/// its pages.
pub fn bring(heads: &[usize], node: u32) -> Result<(), Failure> {
    let mut away = missing(heads, node)?;
    for _ in 0..TRIES {
        if away == 0 {
            return Ok(());
        }
        send(heads, node).map_err(call_failed)?;
        away = missing(heads, node)?;
    }
    Err(Failure::new(
        format!(
            "{away} of {} folios do not come to node {node}",
            heads.len()
        ),
        "the node is full, or something holds them",
        "free memory there (`memferry topology` shows it), or give a smaller --total or --size",
    ))
}

/// The failure of the system call.
pub fn call_failed(error: io::Error) -> Failure {
    Failure::new(
        "move_pages(2) failed",
        error,
        "a container's seccomp profile may forbid it; `memferry topology` says what works",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::listed;

    /// Two nodes with CPUs, and one without that is nearer to node 1.
    fn three_nodes() -> Topology {
        let root = listed(
            "NODES/has_memory = 0-2
             NODES/node0/cpulist = 0
             NODES/node0/distance = 10 21 24
             NODES/node0/meminfo = Node 0 MemTotal: 1048576 kB;Node 0 MemFree: 1048576 kB
             NODES/node1/cpulist = 1
             NODES/node1/distance = 21 10 14
             NODES/node1/meminfo = Node 1 MemTotal: 1048576 kB;Node 1 MemFree: 1048576 kB
             NODES/node2/cpulist =
             NODES/node2/distance = 24 14 10
             NODES/node2/meminfo = Node 2 MemTotal: 1048576 kB;Node 2 MemFree: 1048576 kB
             sys/devices/system/cpu/online = 0-1",
        );
        Topology::read_from(root.path()).expect("topology")
    }

    #[test]
    fn the_nearest_nodes_are_chosen_among_those_asked_for() {
        let topology = three_nodes();
        let choose = |from, to| {
            let chosen = choose_of(&topology, &NodeArgs { from, to }, |_| true).expect("nodes");
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
        topology.nodes.push(Node {
            id: 3,
            has_memory: false,
            ..topology.nodes[0].clone()
        });
        let refused = |topology: &Topology, from, to| {
            let args = NodeArgs { from, to };
            let one = choose_of(topology, &args, |_| true);
            assert!(choose_or_within_of(topology, &args, |_| true).is_err());
            one.expect_err("refused").to_string()
        };
        for (from, to, what) in [
            (Some(7), None, "no memory node 7"),
            (Some(0), Some(7), "no memory node 7"),
            (Some(3), Some(0), "node 3 has no memory"),
        ] {
            let error = refused(&topology, from, to);
            assert!(error.contains(what) && error.contains("0-2"), "{error}");
        }
        topology.nodes.truncate(1);
        let within = choose_or_within_of(&topology, &NodeArgs::default(), |_| true);
        assert_eq!(within.expect("within the node"), None);
        let error = refused(&topology, Some(0), None);
        assert!(
            error.contains("one memory node") && error.contains("numa=fake"),
            "{error}"
        );
    }

    #[test]
    fn nodes_outside_of_the_cpuset_are_not_chosen() {
        let topology = three_nodes();
        let any = NodeArgs::default();
        let chosen = choose_of(&topology, &any, |node| node != 2).expect("nodes");
        assert_eq!((chosen.from, chosen.to), (0, 1));
        let args = NodeArgs {
            from: Some(2),
            to: None,
        };
        let refused = choose_or_within_of(&topology, &args, |node| node != 2);
        let told = refused.expect_err("node 2").to_string();
        assert!(told.contains("may not use node 2"), "{told}");
        assert!(told.contains("its cpuset has 0-1"), "{told}");
        let one = |node| node == 1;
        let told = choose_of(&topology, &any, one).expect_err("one node");
        assert!(told.to_string().contains("its cpuset has 1"), "{told}");
        let within = choose_or_within_of(&topology, &any, one);
        assert_eq!(within.expect("within the node"), None);
    }

    #[test]
    fn a_total_leaves_room_on_both_nodes() {
        let mut topology = three_nodes();
        let nodes = Some(FromTo { from: 0, to: 1 });
        assert_eq!(fitting(64 << 20, &topology, nodes, 2), 64 << 20);
        assert_eq!(fitting(1 << 30, &topology, nodes, 2), 256 << 20);
        topology.nodes[0].memory_free_bytes = 16 << 20;
        assert_eq!(fitting(1 << 30, &topology, nodes, 2), 8 << 20);
        // Of a cgroup, which has less than the nodes.
        topology.memory.available_bytes = 24 << 20;
        assert_eq!(fitting(1 << 30, &topology, nodes, 2), 4 << 20);
    }

    #[test]
    fn a_total_is_whole_thps_that_fit() {
        let mut topology = three_nodes();
        topology.memory.available_bytes = 1 << 30;
        assert_eq!(fitting(64 << 20, &topology, None, 2), 64 << 20);
        assert_eq!(fitting((64 << 20) - 1, &topology, None, 2), 64 << 20);
        assert_eq!(fitting(1 << 30, &topology, None, 3), 128 << 20);
        assert_eq!(fitting(u64::MAX, &topology, None, 3), 128 << 20);
        topology.memory.available_bytes = 0;
        assert_eq!(fitting(1, &topology, None, 2), 2 << 20);
    }
}
