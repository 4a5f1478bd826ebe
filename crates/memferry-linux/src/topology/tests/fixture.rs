// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds fake machines for tests: trees of sysfs and procfs files in a folder that goes with the value.
//! Texts are laid out as kernels write them, trailing newlines and blanks included; lists of files as `invented` reads them.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{Topology, TopologyError};
use crate::invented::{changes, listed, put};

/// A fake machine under construction.
pub(super) struct Machine(tempfile::TempDir);

impl Machine {
    /// What every kernel has: the CPUs of the list `online`, 16 GiB of memory, no NUMA, no THP, no caches.
    pub(super) fn new(online: &str) -> Self {
        Self(listed(&format!(
            "sys/devices/system/cpu/online = {online}
             proc/cpuinfo = processor\t: 0;model name\t: Fake CPU 9000;flags\t\t: fpu sse2;;processor\t: 1
             proc/meminfo = MemTotal:       16777216 kB;MemFree:        12582912 kB;MemAvailable:   14680064 kB;Active(anon): 1 kB"
        )))
    }

    /// Writes one file.
    pub(super) fn file(self, path: &str, text: impl AsRef<str>) -> Self {
        put(self.root(), path, text.as_ref());
        self
    }

    /// Does the changes of a list.
    pub(super) fn with(self, files: &str) -> Self {
        changes(self.root(), files);
        self
    }

    /// A DMA channel with a driver, a node and a number of users.
    pub(super) fn dma_channel(self, name: &str, driver: &str, node: &str, users: u32) -> Self {
        self.with(&format!(
            "sys/class/dma/{name}/in_use = {users}
             sys/class/dma/{name}/device/numa_node = {node}
             sys/class/dma/{name}/device/driver = ->../../bus/platform/drivers/{driver}"
        ))
    }

    /// Removes one file.
    pub(super) fn without(self, path: &str) -> Self {
        fs::remove_file(self.root().join(path)).unwrap();
        self
    }

    /// A node with `total` and `free` KiB.
    pub(super) fn node(self, id: u32, cpus: &str, total: u64, free: u64, distance: &str) -> Self {
        self.with(&format!(
            "NODES/node{id}/cpulist = {cpus}
             NODES/node{id}/distance = {distance}
             NODES/node{id}/meminfo = Node {id} MemTotal: {total:8} kB;Node {id} MemFree: {free:8} kB;Node {id} HugePages_Total: 0"
        ))
    }

    /// A tier.
    pub(super) fn tier(self, number: u32, nodes: &str) -> Self {
        self.with(&format!("TIERS/memory_tier{number}/nodelist = {nodes}"))
    }

    /// The CPU's own L1 and L2, and an L3 shared with the CPUs of a list.
    pub(super) fn caches(self, cpu: u32, l3_size: &str, l3_shared: &str) -> Self {
        let own = cpu.to_string();
        self.cache(cpu, 0, ["1", "Data", "48K", &own])
            .cache(cpu, 1, ["1", "Instruction", "32K", &own])
            .cache(cpu, 2, ["2", "Unified", "2048K", &own])
            .cache(cpu, 3, ["3", "Unified", l3_size, l3_shared])
    }

    /// One cache: level, type, size, shared_cpu_list.
    pub(super) fn cache(self, cpu: u32, index: u32, texts: [&str; 4]) -> Self {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let [level, kind, size, shared] = texts;
        self.with(&format!(
            "{folder}/level = {level}
             {folder}/type = {kind}
             {folder}/size = {size}
             {folder}/shared_cpu_list = {shared}"
        ))
    }

    /// THP on request, its sizes never but for 2 MiB, which inherits.
    pub(super) fn thp(self) -> Self {
        let files = "
THP/enabled = always [madvise] never
THP/defrag = always defer [defer+madvise] madvise never
THP/hpage_pmd_size = 2097152
THP/khugepaged/defrag = 1
THP/hugepages-2048kB/enabled = always [inherit] madvise never
THP/hugepages-64kB/enabled = always inherit madvise [never]
THP/hugepages-16kB/enabled = [always] inherit madvise never
THP/hugepages-8kB/shmem_enabled = always inherit within_size advise [never]
";
        self.with(&files.replace("THP", "sys/kernel/mm/transparent_hugepage"))
    }

    /// A small virtual machine: one node, two CPUs, one L3.
    pub(super) fn virtual_machine() -> Self {
        Self::new("0-1")
            .node(0, "0-1", 4 << 20, 3 << 20, "10")
            .tier(4, "0")
            .caches(0, "266240K", "0-1")
            .caches(1, "266240K", "0-1")
            .thp()
            .with(
                "NODES/has_memory = 0
                 sys/kernel/mm/numa/demotion_enabled = false
                 proc/cpuinfo = processor\t: 0;model name\t: Fake CPU 9000;flags\t\t: fpu hypervisor sse2
                 sys/class/dmi/id/sys_vendor = QEMU
                 proc/sys/vm/unprivileged_userfaultfd = 0
                 proc/sys/vm/nr_hugepages = 7
                 proc/sys/kernel/numa_balancing = 0",
            )
    }

    /// Two sockets of four CPUs with two L3 each, and CXL memory without CPUs in a slower tier; our kernel.
    pub(super) fn two_sockets_and_cxl() -> Self {
        let mut machine = Self::new("0-7")
            .node(0, "0-3", 8 << 20, 1 << 20, "10 21 14")
            .node(1, "4-7", 8 << 20, 2 << 20, "21 10 24")
            .node(2, "", 32 << 20, 31 << 20, "14 24 10")
            .tier(22, "2")
            .tier(4, "0-1")
            .thp()
            .with(
                "NODES/has_memory = 0-2
                 sys/kernel/mm/numa/demotion_enabled = true
                 sys/kernel/mm/migration/migrator = kernel [mtcopy] dcbm
                 sys/class/dmi/id/sys_vendor = Maker of servers
                 proc/sys/kernel/numa_balancing = 2",
            );
        for cpu in 0..8 {
            let first = cpu / 2 * 2;
            machine = machine.caches(cpu, "36864K", &format!("{first}-{}", first + 1));
        }
        machine
    }

    /// The folder of the tree.
    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Reads the tree.
    pub(super) fn read(&self) -> Result<Topology, TopologyError> {
        Topology::read_from(self.root())
    }

    /// Every file of the tree, relative to its root, in a fixed order.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.root().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(self.root()).unwrap().to_path_buf());
                }
            }
        }
        files.sort();
        files
    }
}
