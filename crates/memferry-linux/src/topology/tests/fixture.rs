// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds fake machines for tests: trees of sysfs and procfs files in a folder that goes with the value.
//! Texts are laid out as kernels write them, trailing newlines and blanks included.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{Topology, TopologyError};

/// A fake machine under construction.
pub(super) struct Machine(tempfile::TempDir);

impl Machine {
    /// What every kernel has: the CPUs of the list `online`, 16 GiB of memory, no NUMA, no THP, no caches.
    pub(super) fn new(online: &str) -> Self {
        Self(tempfile::tempdir().unwrap())
            .file("sys/devices/system/cpu/online", format!("{online}\n"))
            .file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fake CPU 9000\nflags\t\t: fpu sse2\n\nprocessor\t: 1\n")
            .file("proc/meminfo", meminfo("", 16 << 20, 12 << 20, "MemAvailable:   14680064 kB\n"))
            .file("proc/sys/kernel/osrelease", "6.12.57\n")
            .file("proc/sys/vm/max_map_count", "65530\n")
            .file("proc/sys/vm/overcommit_memory", "0\n")
    }

    /// Writes one file.
    pub(super) fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A DMA channel with a driver, a node and a number of users.
    pub(super) fn dma_channel(self, name: &str, driver: &str, node: &str, users: u32) -> Self {
        let folder = format!("sys/class/dma/{name}");
        let machine = self
            .file(&format!("{folder}/in_use"), format!("{users}\n"))
            .file(&format!("{folder}/device/numa_node"), format!("{node}\n"));
        let link = machine.root().join(folder).join("device/driver");
        std::os::unix::fs::symlink(format!("../../bus/platform/drivers/{driver}"), link).unwrap();
        machine
    }

    /// Removes one file.
    pub(super) fn without(self, path: &str) -> Self {
        fs::remove_file(self.root().join(path)).unwrap();
        self
    }

    /// A node with `total` and `free` KiB.
    pub(super) fn node(self, id: u32, cpus: &str, total: u64, free: u64, distance: &str) -> Self {
        let folder = format!("sys/devices/system/node/node{id}");
        self.file(&format!("{folder}/cpulist"), format!("{cpus}\n"))
            .file(&format!("{folder}/distance"), format!("{distance}\n"))
            .file(
                &format!("{folder}/meminfo"),
                meminfo(&format!("Node {id} "), total, free, ""),
            )
    }

    /// A tier.
    pub(super) fn tier(self, number: u32, nodes: &str) -> Self {
        self.file(
            &format!("sys/devices/virtual/memory_tiering/memory_tier{number}/nodelist"),
            format!("{nodes}\n"),
        )
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
    pub(super) fn cache(mut self, cpu: u32, index: u32, texts: [&str; 4]) -> Self {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        for (name, text) in ["level", "type", "size", "shared_cpu_list"]
            .into_iter()
            .zip(texts)
        {
            self = self.file(&format!("{folder}/{name}"), format!("{text}\n"));
        }
        self
    }

    /// THP on request, its sizes never but for 2 MiB, which inherits.
    pub(super) fn thp(self) -> Self {
        let folder = "sys/kernel/mm/transparent_hugepage";
        let files = [
            ("enabled", "always [madvise] never\n"),
            ("defrag", "always defer [defer+madvise] madvise never\n"),
            ("hpage_pmd_size", "2097152\n"),
            ("khugepaged/defrag", "1\n"),
            (
                "hugepages-2048kB/enabled",
                "always [inherit] madvise never\n",
            ),
            ("hugepages-64kB/enabled", "always inherit madvise [never]\n"),
            ("hugepages-16kB/enabled", "[always] inherit madvise never\n"),
            (
                "hugepages-8kB/shmem_enabled",
                "always inherit within_size advise [never]\n",
            ),
        ];
        files.into_iter().fold(self, |machine, (file, text)| {
            machine.file(&format!("{folder}/{file}"), text)
        })
    }

    /// A small virtual machine: one node, two CPUs, one L3.
    pub(super) fn virtual_machine() -> Self {
        Self::new("0-1")
            .node(0, "0-1", 4 << 20, 3 << 20, "10")
            .file("sys/devices/system/node/has_memory", "0\n")
            .tier(4, "0")
            .caches(0, "266240K", "0-1")
            .caches(1, "266240K", "0-1")
            .thp()
            .file("sys/kernel/mm/numa/demotion_enabled", "false\n")
            .file(
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Fake CPU 9000\nflags\t\t: fpu hypervisor sse2\n",
            )
            .file("sys/class/dmi/id/sys_vendor", "QEMU\n")
            .file("proc/sys/vm/unprivileged_userfaultfd", "0\n")
            .file("proc/sys/vm/nr_hugepages", "7\n")
            .file("proc/sys/kernel/numa_balancing", "0\n")
    }

    /// Two sockets of four CPUs with two L3 each, and CXL memory without CPUs in a slower tier; our kernel.
    pub(super) fn two_sockets_and_cxl() -> Self {
        let mut machine = Self::new("0-7")
            .node(0, "0-3", 8 << 20, 1 << 20, "10 21 14")
            .node(1, "4-7", 8 << 20, 2 << 20, "21 10 24")
            .node(2, "", 32 << 20, 31 << 20, "14 24 10")
            .file("sys/devices/system/node/has_memory", "0-2\n")
            .tier(22, "2")
            .tier(4, "0-1")
            .thp()
            .file("sys/kernel/mm/numa/demotion_enabled", "true\n")
            .file("sys/kernel/mm/migration/migrator", "kernel [mtcopy] dcbm\n")
            .file("sys/class/dmi/id/sys_vendor", "Maker of servers\n")
            .file("proc/sys/kernel/numa_balancing", "2\n");
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

fn meminfo(prefix: &str, total: u64, free: u64, more: &str) -> String {
    format!(
        "{prefix}MemTotal:       {total:8} kB\n{prefix}MemFree:        {free:8} kB\n{more}\
         {prefix}Active(anon):       1528 kB\n{prefix}HugePages_Total:     0\n"
    )
}
