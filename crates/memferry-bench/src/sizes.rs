// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the benchmarks take by default on machines of 1 to 1,024 CPUs, read from files that such machines would show.

use memferry_linux::topology::Topology;

use super::promote::Place;
use super::{kernel, nodes};
use crate::args::{Bench, read};
use crate::synthetic::put;

/// A machine with so many CPUs, half of them on each of two fast nodes, and a slow node.
fn machine(cpus: u32) -> Topology {
    let root = tempfile::tempdir().expect("folder");
    let file = |path: &str, text: &str| put(root.path(), path, text);
    let list = |from: u32, to: u32| match from < to {
        true => format!("{from}-{}\n", to - 1),
        false => "\n".to_owned(),
    };
    let memory = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 8388608 kB\n";
    file("sys/devices/system/cpu/online", &list(0, cpus));
    file("sys/devices/system/node/has_memory", "0-2\n");
    let half = cpus.div_ceil(2);
    for (node, cpus, distance) in [
        (0, list(0, half), "10 20 30\n"),
        (1, list(half, cpus), "20 10 40\n"),
        (2, list(0, 0), "30 40 10\n"),
    ] {
        let folder = format!("sys/devices/system/node/node{node}");
        file(&format!("{folder}/cpulist"), &cpus);
        file(&format!("{folder}/distance"), distance);
        let of_node = memory.lines().map(|line| format!("Node {node} {line}\n"));
        file(&format!("{folder}/meminfo"), &of_node.collect::<String>());
    }
    let tiers = "sys/devices/virtual/memory_tiering/memory_tier";
    file(&format!("{tiers}4/nodelist"), "0-1\n");
    file(&format!("{tiers}22/nodelist"), "2\n");
    file(
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Fake CPU 9000\n",
    );
    file("proc/meminfo", memory);
    file("proc/sys/kernel/osrelease", "6.12.57\n");
    file("proc/sys/vm/max_map_count", "65530\n");
    file("proc/sys/vm/overcommit_memory", "0\n");
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
