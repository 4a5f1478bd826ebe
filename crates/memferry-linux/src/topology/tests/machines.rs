// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines of each kind, read whole from fake trees.

use super::super::*;
use super::fixture::Machine;
use super::{assert_consistent, tier_of_node};

fn node_of_cpu(machine: &Topology, cpu: u32) -> Option<u32> {
    let holds = |node: &&Node| node.cpus.contains(&cpu);
    machine.nodes.iter().find(holds).map(|node| node.id)
}

const GIB: u64 = 1 << 30;

fn groups(machine: &Topology) -> Vec<&[u32]> {
    machine
        .cpus
        .cache_groups
        .iter()
        .map(|group| &group.cpus[..])
        .collect()
}

fn tiers(machine: &Topology) -> Vec<(Option<u32>, &[u32])> {
    let tiers = machine.tiers.iter();
    tiers.map(|of| (of.kernel_id, &of.nodes[..])).collect()
}

fn hypervisor(machine: &Topology) -> (Option<bool>, Option<&str>) {
    let cpus = &machine.cpus;
    (cpus.hypervisor, cpus.hypervisor_name.as_deref())
}

#[test]
fn threads_of_a_core_are_told() {
    let machine = Machine::virtual_machine();
    assert_eq!(machine.read().unwrap().cpus.cores, [[0], [1]]);
    let siblings = "sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
    let machine = machine.file(siblings, "0-1\n").read().unwrap();
    assert_consistent(&machine);
    assert_eq!(machine.cpus.cores, [[0, 1]]);
}

#[test]
fn a_small_virtual_machine() {
    let machine = Machine::virtual_machine().read().unwrap();
    assert_consistent(&machine);
    let node = &machine.nodes[0];
    assert_eq!(
        (node.memory_total_bytes, node.memory_free_bytes),
        (4 * GIB, 3 * GIB)
    );
    assert_eq!(node.distance_to(0), Some(10));
    assert_eq!(tiers(&machine), [(Some(4), &[0][..])]);
    let l3 = CacheGroup {
        cpus: vec![0, 1],
        size_bytes: Some(266_240 << 10),
        level: Some(3),
        node: Some(0),
    };
    assert_eq!(machine.cpus.cache_groups, [l3]);
    assert_eq!(machine.cpus.model.as_deref(), Some("Fake CPU 9000"));
    assert_eq!(hypervisor(&machine), (Some(true), Some("QEMU")));
    assert_eq!(
        (machine.memory.total_bytes, machine.memory.available_bytes),
        (16 * GIB, 14 * GIB)
    );
    let limits = Limits {
        max_map_count: 65_530,
        unprivileged_userfaultfd: Some(false),
        overcommit_memory: Overcommit::Heuristic,
        nr_hugepages: Some(7),
    };
    assert_eq!(machine.limits, limits);
    assert_eq!(machine.demotion_enabled, Some(false));
    let kernel = KernelInterface {
        release: "6.12.57".into(),
        migrators: None,
        numa_balancing: Some(NumaBalancing {
            placement: false,
            tiering: false,
        }),
    };
    assert_eq!(machine.kernel_interface, kernel);
}

#[test]
fn two_sockets_with_cxl_in_a_slower_tier() {
    let machine = Machine::two_sockets_and_cxl().read().unwrap();
    assert_consistent(&machine);
    let fastest_first = [(Some(4), &[0, 1][..]), (Some(22), &[2])];
    assert_eq!(tiers(&machine), fastest_first);
    let of_nodes = [1, 2, 3].map(|node| tier_of_node(&machine, node));
    assert_eq!(of_nodes, [Some(0), Some(1), None]);
    let cxl = machine.node(2).unwrap();
    assert!(cxl.has_memory && !cxl.has_cpu && cxl.cpus.is_empty());
    assert_eq!(cxl.memory_total_bytes, 32 * GIB);
    let distances = [0, 1, 2].map(|node| cxl.distance_to(node));
    assert_eq!(distances, [14, 24, 10].map(Some));
    assert_eq!(node_of_cpu(&machine, 5), Some(1));
    assert_eq!(node_of_cpu(&machine, 8), None);
    assert_eq!(groups(&machine), [&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
    let caches = machine.cpus.cache_groups.iter();
    let caches: Vec<_> = caches.map(|g| (g.size_bytes, g.level, g.node)).collect();
    let on = |node| (Some(36 << 20), Some(3), Some(node));
    assert_eq!(caches, [0, 0, 1, 1].map(on));
    assert_eq!(machine.demotion_enabled, Some(true));
    let migrators = machine.kernel_interface.migrators.as_ref().unwrap();
    assert_eq!((migrators.names.len(), &*migrators.active), (3, "mtcopy"));
    let balancing = machine.kernel_interface.numa_balancing.unwrap();
    assert!(!balancing.placement && balancing.tiering);
    // A vendor is no hypervisor.
    assert_eq!(hypervisor(&machine), (Some(false), None));
}

#[test]
fn no_numa_and_no_thp() {
    let machine = Machine::new("0-2").read().unwrap();
    assert_consistent(&machine);
    let node = Node {
        id: 0,
        cpus: vec![0, 1, 2],
        has_cpu: true,
        has_memory: true,
        memory_total_bytes: 16 * GIB,
        memory_free_bytes: 12 * GIB,
        distances: vec![Distance {
            node: 0,
            distance: 10,
        }],
        tier: Some(0),
    };
    assert_eq!(machine.nodes, [node]);
    assert_eq!(tiers(&machine), [(None, &[0][..])]);
    assert_eq!((machine.thp, machine.demotion_enabled), (None, None));
    let limits = machine.limits;
    assert_eq!(
        (limits.unprivileged_userfaultfd, limits.nr_hugepages),
        (None, None)
    );
    let kernel = machine.kernel_interface;
    assert_eq!((kernel.numa_balancing, kernel.migrators), (None, None));
}

#[test]
fn offline_cpus_and_sparse_nodes() {
    let machine = Machine::new("0-1,6")
        .node(0, "0-1", 1 << 20, 1 << 10, "10 20")
        .node(4, "6-7", 1 << 20, 1 << 10, "20 10")
        .file("sys/devices/system/node/possible", "0-7\n")
        .caches(0, "1024K", "0-3")
        .caches(1, "1024K", "0-3")
        .caches(6, "1024K", "6")
        .read()
        .unwrap();
    assert_consistent(&machine);
    assert_eq!(groups(&machine), [&[0, 1][..], &[6]]);
    assert_eq!(machine.node(4).unwrap().cpus, [6], "CPU 7 is not online");
    assert_eq!(machine.node(0).unwrap().distance_to(4), Some(20));
    assert_eq!(node_of_cpu(&machine, 6), Some(4));
    let offline = [2, 7].map(|cpu| node_of_cpu(&machine, cpu));
    assert_eq!((offline, machine.node(1)), ([None, None], None));
    assert_eq!(tiers(&machine), [(None, &[0, 4][..])], "no tier folder");
}

#[test]
fn nodes_without_memory_are_in_no_tier() {
    let tree = || {
        Machine::new("0-1")
            .node(0, "0", 1 << 20, 1, "10 20")
            .node(1, "1", 0, 0, "20 10")
    };
    for machine in [
        tree(),
        tree()
            .file("sys/devices/system/node/has_memory", "0\n")
            .tier(4, "0,9")
            .tier(5, ""),
    ] {
        let machine = machine.read().unwrap();
        assert_consistent(&machine);
        let nodes: Vec<u32> = machine.nodes_with_memory().map(|node| node.id).collect();
        assert_eq!((nodes, machine.tiers.len()), (vec![0], 1));
        let of_nodes = [0, 1].map(|node| tier_of_node(&machine, node));
        assert_eq!(of_nodes, [Some(0), None]);
    }
}

#[test]
fn a_node_listed_twice_is_in_the_faster_tier() {
    let machine = Machine::two_sockets_and_cxl().tier(22, "1-2");
    let machine = machine.read().unwrap();
    assert_consistent(&machine);
    assert_eq!(machine.tiers[1].nodes, [2]);
    assert_eq!(tier_of_node(&machine, 1), Some(0));
}

#[test]
fn folders_with_other_names_are_not_nodes() {
    let tree = Machine::virtual_machine();
    let expected = tree.read().unwrap().nodes;
    let mut tree = tree.file("sys/devices/system/node/power/control", "auto\n");
    for name in ["node00", "node", "node+0", "node4294967296", "nodes"] {
        tree = tree.file(&format!("sys/devices/system/node/{name}/cpulist"), "0\n");
    }
    assert_eq!(tree.read().unwrap().nodes, expected);
}

#[test]
fn cpus_without_caches_are_grouped_by_package() {
    let package = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
    let machine = Machine::new("0-6")
        .file(&package(0), "0\n")
        .file(&package(1), "1\n")
        .file(&package(2), "0\n")
        .file(&package(3), "-1\n")
        .caches(5, "64K", "5-6")
        .cache(4, 0, ["1", "Instruction", "32K", "4"])
        .read()
        .unwrap();
    assert_consistent(&machine);
    assert_eq!(groups(&machine), [&[0, 2][..], &[1], &[3, 4], &[5, 6]]);
    let levels: Vec<_> = machine.cpus.cache_groups.iter().map(|g| g.level).collect();
    assert_eq!(levels, [None, None, None, Some(3)]);
}

#[test]
fn small_cores_without_l3_group_by_l2() {
    let machine = Machine::new("0-2")
        .caches(0, "8192K", "0")
        .cache(1, 0, ["1", "Data", "32K", "1"])
        .cache(1, 1, ["2", "Unified", "2048K", "1-2"])
        .without("sys/devices/system/cpu/cpu1/cache/index1/size")
        .read()
        .unwrap();
    assert_eq!(groups(&machine), [&[0][..], &[1, 2]]);
    let small = &machine.cpus.cache_groups[1];
    assert_eq!(
        (small.level, small.size_bytes),
        (Some(2), None),
        "arm64 firmware often tells no size"
    );
}

#[test]
fn a_cache_over_two_nodes_has_no_node() {
    let machine = Machine::new("0-1")
        .node(0, "0", 1, 1, "10 12")
        .node(1, "1", 1, 1, "12 10")
        .caches(0, "1K", "0-1");
    let machine = machine.read().unwrap();
    assert_eq!(groups(&machine), [&[0, 1]]);
    assert_eq!(machine.cpus.cache_groups[0].node, None);
}

#[test]
fn thp_sizes_resolve_inherit() {
    let thp = Machine::new("0").thp().read().unwrap().thp.unwrap();
    assert_eq!(
        (&*thp.enabled, &*thp.defrag, thp.pmd_bytes),
        ("madvise", "defer+madvise", 2 << 20)
    );
    let size = |bytes, mode: &str| ThpSize {
        bytes,
        mode: mode.to_owned(),
    };
    let expected = [
        size(16 << 10, "always"),
        size(64 << 10, "never"),
        size(2 << 20, "madvise"),
    ];
    assert_eq!(thp.sizes, expected, "8 KiB is for shared memory only");
}

#[test]
fn thp_of_older_and_newer_kernels() {
    let folder = "sys/kernel/mm/transparent_hugepage";
    let old = Machine::new("0")
        .file(&format!("{folder}/enabled"), "[always] madvise never\n")
        .file(&format!("{folder}/defrag"), "always madvise [never]\n")
        .file(&format!("{folder}/hpage_pmd_size"), "2097152\n");
    let thp = old.read().unwrap().thp.unwrap();
    assert_eq!(
        thp.sizes,
        [ThpSize {
            bytes: 2 << 20,
            mode: "always".to_owned()
        }]
    );
    let new = old.file(&format!("{folder}/enabled"), "always [guess] never\n");
    assert_eq!(new.read().unwrap().thp.unwrap().enabled, "guess");
}

#[test]
fn xen_names_itself() {
    let machine = Machine::new("0")
        .file("sys/hypervisor/type", "xen\n")
        .read()
        .unwrap();
    assert_eq!(hypervisor(&machine), (Some(true), Some("xen")));
}

#[test]
fn a_machine_with_dma_engines() {
    let machine = Machine::virtual_machine()
        .dma_channel("dma10chan0", "idxd", "1", 0)
        .dma_channel("dma2chan1", "ioatdma", "-1", 1)
        .dma_channel("dma2chan0", "ioatdma", "-1", 0)
        .file("sys/class/dma/dma3chan0/bytes_transferred", "0\n")
        .read()
        .unwrap();
    let channel = |name: &str, driver: &str, node, in_use| DmaChannel {
        name: name.to_owned(),
        driver: Some(driver.to_owned()),
        node,
        in_use,
    };
    // What goes away while it is read is left out.
    assert_eq!(
        machine.dma_channels,
        [
            channel("dma2chan0", "ioatdma", None, false),
            channel("dma2chan1", "ioatdma", None, true),
            channel("dma10chan0", "idxd", Some(1), false),
        ]
    );
    assert_eq!(Machine::virtual_machine().read().unwrap().dma_channels, []);
}
