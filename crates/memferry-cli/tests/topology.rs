// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry topology` on the machine that runs the tests.

mod command;

use command::{done, fails, has, json, memferry, stdout};
use memferry_bench::synthetic::listed;

#[test]
fn json_agrees_with_the_kernel() {
    let json = json(&memferry("topology --json"));
    assert_eq!(json["schema"], "memferry-topology/1");
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("read");
    assert_eq!(json["limits"]["max_map_count"].to_string(), limit.trim());
    let cpus = json["nodes"].as_array().expect("nodes").iter();
    let cpus: usize = cpus
        .map(|node| node["cpus"].as_array().expect("cpus").len())
        .sum();
    assert_eq!(json["machine"]["cpus"], cpus);
    for ability in json["abilities"].as_array().expect("abilities") {
        let available = ability["available"].as_bool().expect("available");
        assert_eq!(available, ability["why"].is_null(), "{ability}");
    }
    assert!(json.get("copy").is_none());
    let abilities = json["abilities"].as_array().expect("abilities");
    let can_move = abilities
        .iter()
        .any(|ability| ability["name"] == "UFFDIO_MOVE" && ability["available"] == true);
    let cost = json["move_cost"]["uffdio_move_ns"].as_f64();
    assert_eq!(cost.is_some_and(|ns| ns > 0.0), can_move, "{cost:?}");
}

/// Two DRAM nodes, and one of CXL memory.
const MACHINE: &str = "
sys/devices/system/cpu/online = 0-7
CPU0/cache/index3/type = Unified
CPU0/cache/index3/level = 3
CPU0/cache/index3/size = 32768K
CPU0/cache/index3/shared_cpu_list = 0-5
proc/cpuinfo = processor : 0;model name : Fake CPU 9000;flags : hypervisor
proc/meminfo = MemTotal: 100663296 kB;MemFree: 50331648 kB;MemAvailable: 50331648 kB
proc/sys/kernel/numa_balancing = 2
NODES/has_memory = 0-2
NODES/node0/cpulist = 0-3
NODES/node0/distance = 10 21 14
NODES/node0/meminfo = Node 0 MemTotal: 16777216 kB;Node 0 MemFree: 8388608 kB
NODES/node1/cpulist = 4-7
NODES/node1/distance = 21 10 24
NODES/node1/meminfo = Node 1 MemTotal: 16777216 kB;Node 1 MemFree: 8388608 kB
NODES/node2/cpulist =
NODES/node2/distance = 14 24 10
NODES/node2/meminfo = Node 2 MemTotal: 67108864 kB;Node 2 MemFree: 33554432 kB
TIERS/memory_tier4/nodelist = 0-1
TIERS/memory_tier22/nodelist = 2
sys/kernel/mm/numa/demotion_enabled = true
THP/enabled = always [madvise] never
THP/defrag = always defer [defer+madvise] madvise never
THP/hpage_pmd_size = 2097152
THP/hugepages-64kB/enabled = [always] inherit madvise never
THP/hugepages-1024kB/enabled = always inherit madvise [never]
THP/hugepages-2048kB/enabled = always [inherit] madvise never
sys/class/dma/dma0chan0/in_use = 1
sys/class/dma/dma0chan0/device/driver = ->../ioatdma
sys/class/dma/dma0chan0/device/numa_node = 0
sys/class/dma/dma0chan1/in_use = 0
sys/class/dma/dma0chan1/device/driver = ->../ioatdma
sys/class/dma/dma0chan1/device/numa_node = 0
";

#[test]
fn every_part_of_a_machine_is_shown_in_lines_that_fit() {
    let files = MACHINE.replace("THP", "sys/kernel/mm/transparent_hugepage");
    let root = listed(&files.replace("CPU0", "sys/devices/system/cpu/cpu0"));
    for columns in [80, 100, 140] {
        let mut topology = command::command();
        topology.args(["topology", "--root"]).arg(root.path());
        let output = topology.env("COLUMNS", columns.to_string()).output();
        let text = done(&output.expect("start"));
        for line in text.lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        has(
            &words,
            "Fake CPU 9000, 8 CPUs, 3 memory nodes, 96 GiB of memory (48 GiB available) | Linux 6.12.57, virtual",
        );
        has(
            &words,
            "0 0 0-3 16 GiB 8 GiB 10 21 14 | 2 1 none 64 GiB 32 GiB 14 24 10 | 1 2 memory_tier22",
        );
        has(&words, "0-5 L3 32 MiB several | 6-7 – – 1 | ioatdma 0 2 1");
        has(
            &words,
            "64K always: every | 1M never | 2M madvise: mappings that ask | none is free: defer+madvise",
        );
        has(
            &words,
            "kernel migrators batch copies inside the kernel no | no kernel migrators: stock kernel",
        );
        has(
            &words,
            "kernel.numa_balancing tiering | demotion_enabled on | kernel's migrator stock kernel",
        );
    }
}

#[test]
fn an_unknown_copy_routine_is_told_before_anything_is_measured() {
    let output = command::command()
        .args(["topology", "--copy"])
        .env("MEMFERRY_COPY", "bad")
        .output()
        .expect("start");
    fails(&output, "MEMFERRY_COPY=bad | memcpy");
    assert_eq!(stdout(&output), "");
}
