// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the benchmarks take by default on machines of 1 to 1,024 CPUs, read from files that such machines would show.

use memferry_linux::topology::Topology;

use super::promote::Place;
use super::{kernel, nodes};
use crate::args::{Bench, read};
use crate::synthetic::listed;

/// A machine with so many CPUs, half of them on each of two fast nodes, and a slow node.
fn machine(cpus: u32) -> Topology {
    let list = |from: u32, to: u32| match from < to {
        true => format!("{from}-{}", to - 1),
        false => String::new(),
    };
    let half = cpus.div_ceil(2);
    let (all, first, second) = (list(0, cpus), list(0, half), list(half, cpus));
    let root = listed(&format!(
        "sys/devices/system/cpu/online = {all}
         NODES/has_memory = 0-2
         NODES/node0/cpulist = {first}
         NODES/node0/distance = 10 20 30
         NODES/node0/meminfo = Node 0 MemTotal: 16777216 kB;Node 0 MemFree: 8388608 kB
         NODES/node1/cpulist = {second}
         NODES/node1/distance = 20 10 40
         NODES/node1/meminfo = Node 1 MemTotal: 16777216 kB;Node 1 MemFree: 8388608 kB
         NODES/node2/cpulist =
         NODES/node2/distance = 30 40 10
         NODES/node2/meminfo = Node 2 MemTotal: 16777216 kB;Node 2 MemFree: 8388608 kB
         TIERS/memory_tier4/nodelist = 0-1
         TIERS/memory_tier22/nodelist = 2"
    ));
    Topology::read_from(root.path()).expect("machine")
}

#[test]
fn defaults_on_machines_of_any_size() {
    let (Ok(Bench::Move(args)), Ok(Bench::Stall(stall))) = (read("move"), read("stall")) else {
        panic!("other benchmarks");
    };
    for cpus in [1, 66, 256, 1024] {
        let topology = machine(cpus);
        let online = &topology.cpus.online;
        let count = online.len();
        assert_eq!(count as u32, cpus);
        let lanes = args.run.lanes(count);
        assert_eq!((lanes[0], lanes.last()), (1, Some(&count)));
        assert!(lanes.is_sorted_by(|a, b| a < b), "{lanes:?}");
        let of_kernel = kernel::lanes(&args.run, count);
        assert_eq!(of_kernel.last(), Some(&count.min(64)));
        assert!(of_kernel.iter().all(|count| lanes.contains(count)));
        assert_eq!(stall.threads(count, 1), (count - 1).max(1));

        let place = Place::choose(&topology).expect("two tiers");
        let half = count.div_ceil(2);
        assert_eq!(place.cpus, online[..half]);
        // taskset leaves the last CPU of the node, or none of it.
        let one = &online[half - 1..half];
        assert_eq!(place.clone().with_usable(one).cpus, one);
        assert_eq!(place.clone().with_usable(&online[half..]).cpus, place.cpus);
    }
}

#[test]
fn thps_of_one_node_take_no_memory_of_the_page_cache() {
    let mut topology = machine(2);
    topology.memory.available_bytes = 1 << 40;
    let all = nodes::fitting(8 << 30, &topology, None, 2);
    assert_eq!(all, 8 << 30);
    // Three nodes of 8 GiB that are free, of which three copies take half.
    assert_eq!(nodes::fitting_free(8 << 30, &topology, 2), 4 << 30);
}
