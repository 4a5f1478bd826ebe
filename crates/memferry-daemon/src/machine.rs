// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's tiers, what is free of them, and how much programs wait. Files below a root folder; nothing is written.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use memferry_linux::topology::parse::{MemInfo, meminfo};
use memferry_linux::topology::{Tier, Topology};
use memferry_linux::zones::below_watermarks;

use crate::error::DaemonError;
use crate::tiering::{CHUNK, Near};

/// One part of so many of a top node stays free, and no less than the kernel's high watermarks, which are more than that on a small
/// one: below them moves fail, and kswapd takes what programs use.
const RESERVE: u64 = 64;

/// The text of a file below a root; `None` if it cannot be read.
pub(crate) fn text(root: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// Bytes that a process has by the number at `field` of its /proc/PID/statm: 0 is what it has mapped, 1 what is in memory.
pub(crate) fn bytes_of(root: &Path, pid: impl Display, field: usize) -> Option<u64> {
    let text = text(root, &format!("proc/{pid}/statm"))?;
    let pages: u64 = text.split_whitespace().nth(field)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Percent of the last ten seconds in which somebody waited, by a file of PSI; `None` on a kernel that does not tell: booted with
/// psi=0 it has no such file, or an empty one, or one that cannot be read.
pub fn pressure(root: &Path, file: &str) -> Option<f64> {
    let text = text(root, file)?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let avg10 = some
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))?;
    avg10.parse().ok()
}

/// A machine with two tiers or more.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder of `sys`, `proc` and `run`.
    pub root: PathBuf,
    /// Nodes of Linux's top tier; where none is slower, those of the fastest one.
    pub top: Vec<u32>,
    /// Nodes of all lower tiers.
    pub lower: Vec<u32>,
    /// Whether the kernel promotes from the lower tiers.
    pub kernel_promotes: bool,
    /// Bytes of each node.
    pub sizes: BTreeMap<u32, u64>,
    /// Free bytes of each top node that are not to be used.
    kept: BTreeMap<u32, u64>,
    /// CPUs of each node that has some.
    cpus: BTreeMap<u32, Vec<u32>>,
    /// Linux's distances, from a node to another.
    distances: BTreeMap<(u32, u32), u32>,
    /// What the kernel said of nodes and tiers.
    mark: Vec<Option<String>>,
}

/// What says which nodes are in which tier: a few files, where all that [`Topology`] reads are some for each CPU.
fn mark(root: &Path) -> Vec<Option<String>> {
    let folder = "sys/devices/virtual/memory_tiering";
    let tiers = fs::read_dir(root.join(folder)).into_iter().flatten();
    let mut lists: Vec<String> = tiers
        .flatten()
        .filter_map(|tier| tier.file_name().into_string().ok())
        .map(|tier| format!("{folder}/{tier}/nodelist"))
        .collect();
    lists.sort();
    let nodes = ["has_memory", "has_cpu"].map(|list| format!("sys/devices/system/node/{list}"));
    let mark = |list: &String| Some(format!("{list} {}", text(root, list)?));
    nodes.iter().chain(&lists).map(mark).collect()
}

impl Machine {
    /// Reads it.
    ///
    /// # Errors
    /// Files are missing, or there is one tier.
    pub fn read(root: &Path) -> Result<Self, DaemonError> {
        let mark = mark(root);
        let topology = Topology::read_from(root)?;
        let kernel_promotes = topology.tiers.len() > topology.top_tiers();
        let fastest = if kernel_promotes {
            topology.top_tiers()
        } else {
            1
        };
        let (top, lower) = topology.tiers.split_at(fastest.min(topology.tiers.len()));
        let nodes =
            |tiers: &[Tier]| Vec::from_iter(tiers.iter().flat_map(|tier| tier.nodes.clone()));
        let (top, lower) = (nodes(top), nodes(lower));
        if top.is_empty() || lower.is_empty() {
            return Err(DaemonError::OneTier);
        }
        let size = |id: &u32| Some((*id, topology.node(*id)?.memory_total_bytes));
        let mut machine = Self {
            root: root.to_owned(),
            sizes: top.iter().chain(&lower).filter_map(size).collect(),
            top,
            lower,
            kernel_promotes,
            kept: BTreeMap::new(),
            cpus: (topology.nodes.iter())
                .filter(|node| node.has_cpu)
                .map(|node| (node.id, node.cpus.clone()))
                .collect(),
            distances: (topology.nodes.iter())
                .flat_map(|node| {
                    node.distances
                        .iter()
                        .map(|to| ((node.id, to.node), to.distance))
                })
                .collect(),
            mark,
        };
        machine.look_at_watermarks();
        Ok(machine)
    }

    /// Takes anew what changes while the machine runs: tiers, sizes, what is not to be used. Returns whether the tiers are others now.
    ///
    /// # Errors
    /// As [`Machine::read`]; everything is as before.
    pub fn refresh(&mut self) -> Result<bool, DaemonError> {
        if mark(&self.root) != self.mark {
            let now = Self::read(&self.root)?;
            let is_other = (&now.top, &now.lower) != (&self.top, &self.lower);
            *self = now;
            return Ok(is_other);
        }
        let nodes = self.top.iter().chain(&self.lower);
        let size = |node: &u32| Some((*node, self.meminfo(*node)?.total_bytes));
        self.sizes
            .extend(nodes.filter_map(size).collect::<Vec<_>>());
        self.look_at_watermarks();
        Ok(false)
    }

    fn meminfo(&self, node: u32) -> Option<MemInfo> {
        let text = self.text(&format!("sys/devices/system/node/node{node}/meminfo"))?;
        meminfo(&text, Some(node)).ok()
    }

    /// Bytes of the top tier.
    pub fn top_bytes(&self) -> u64 {
        self.top
            .iter()
            .filter_map(|node| self.sizes.get(node))
            .sum()
    }

    /// Bytes of the top tier in so many of all tiers.
    pub fn top_part(&self, bytes: u64) -> u64 {
        let all: u64 = self.sizes.values().sum();
        let part = u128::from(bytes) * u128::from(self.top_bytes()) / u128::from(all.max(1));
        u64::try_from(part)
            .unwrap_or(u64::MAX)
            .min(self.top_bytes())
    }

    /// The text of a file that may be missing.
    pub fn text(&self, file: &str) -> Option<String> {
        text(&self.root, file)
    }

    /// Bytes that are free on a node; 0 if that cannot be told.
    pub fn free(&self, node: u32) -> u64 {
        self.meminfo(node).map_or(0, |of| of.free_bytes)
    }

    /// Notes what is not to be used, for [`Machine::room`]. The kernel writes a line for each CPU and zone to tell its watermarks.
    pub fn look_at_watermarks(&mut self) {
        let zoneinfo = self.text("proc/zoneinfo");
        let kept = |node: &u32| {
            let reserve = self.sizes.get(node).map_or(0, |size| size / RESERVE);
            let watermarks = (zoneinfo.as_deref()).map_or(0, |text| below_watermarks(text, *node));
            (*node, reserve.max(watermarks))
        };
        self.kept = self.top.iter().map(kept).collect();
    }

    /// Bytes of each node of the top tier that may be filled.
    pub fn room(&self) -> BTreeMap<u32, u64> {
        let kept = |node: &u32| self.kept.get(node).copied().unwrap_or(0);
        let room = |node: &u32| (*node, self.free(*node).saturating_sub(kept(node)));
        self.top.iter().map(room).collect()
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        self.distances.get(&(from, to)).copied().unwrap_or(u32::MAX)
    }

    /// The nodes of the top tier that some processes may use, the nearest to their CPUs first.
    pub fn near(&self, allowed: &[u32], cpus: &[u32]) -> Vec<Near> {
        let has_one = |of: &&Vec<u32>| of.iter().any(|cpu| cpus.contains(cpu));
        let sockets: Vec<u32> = (self.cpus.iter())
            .filter(|(_, of)| has_one(of))
            .map(|(node, _)| *node)
            .collect();
        let near = |node: &u32| Near {
            node: *node,
            distance: sockets
                .iter()
                .map(|from| self.distance(*from, *node))
                .min()
                .unwrap_or(u32::MAX),
        };
        let nodes = self.top.iter().filter(|node| allowed.contains(node));
        let mut nodes: Vec<Near> = nodes.map(near).collect();
        nodes.sort_by_key(|of| (of.distance, of.node));
        nodes
    }

    /// For each node of the top tier the node of the lower ones that is nearest to it and that processes may use: of those with room for
    /// a chunk, and of equals the emptiest. Nodes without one are left out.
    pub fn below(&self, allowed: &[u32]) -> Vec<(u32, u32)> {
        let lower = self.lower.iter().filter(|node| allowed.contains(node));
        // The kernel takes some 30 us to tell what is free on a node.
        let with_room: Vec<(u32, u64)> = lower
            .map(|node| (*node, self.free(*node)))
            .filter(|(_, free)| *free >= CHUNK as u64)
            .collect();
        let nearest = |from: &u32| {
            let nodes = with_room.iter();
            let best =
                nodes.min_by_key(|(node, free)| (self.distance(*from, *node), Reverse(*free)));
            best.map(|(to, _)| (*from, *to))
        };
        self.top.iter().filter_map(nearest).collect()
    }

    /// Percent of the last ten seconds in which somebody waited for a resource; see [`pressure`].
    pub fn pressure(&self, resource: &str) -> Option<f64> {
        pressure(&self.root, &format!("proc/pressure/{resource}"))
    }

    /// The same of a cgroup of version 2. The root cgroup is the machine.
    pub fn cgroup_pressure(&self, cgroup: &str, resource: &str) -> Option<f64> {
        let is_root = cgroup == "/";
        let file = format!("sys/fs/cgroup{cgroup}/{resource}.pressure");
        pressure(&self.root, &file).filter(|_| !is_root)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use memferry_linux::invented::put;
    use memferry_linux::invented::{change, changes, listed};

    use super::*;

    /// A tree of a machine with one CPU, a top node 0 of 1 GiB and a lower node 1 of 512 MiB.
    pub(crate) fn tree() -> tempfile::TempDir {
        listed(
            "proc/vmstat = pgpromote_success 0
             NODES/online = 0-1
             NODES/has_memory = 0-1
             NODES/has_cpu = 0
             NODES/node0/cpulist = 0
             NODES/node1/cpulist =
             NODES/node0/distance = 10 20
             NODES/node1/distance = 20 10
             NODES/node0/meminfo = Node 0 MemTotal: 1048576 kB;Node 0 MemFree: 524288 kB;Node 0 MemUsed: 0 kB
             NODES/node1/meminfo = Node 1 MemTotal: 524288 kB;Node 1 MemFree: 262144 kB;Node 1 MemUsed: 0 kB
             TIERS/memory_tier4/nodelist = 0
             TIERS/memory_tier22/nodelist = 1",
        )
    }

    #[test]
    fn memory_faster_than_that_of_the_cpus_is_in_the_top_tier_if_other_is_slower() {
        let root = tree();
        let tiers_now = || {
            let machine = Machine::read(root.path()).unwrap();
            (machine.top, machine.lower, machine.kernel_promotes)
        };
        // Node 1 is HBM, and node 2 joins below.
        let hbm = "TIERS/memory_tier22 = gone
             TIERS/memory_tier2/nodelist = 1";
        changes(root.path(), hbm);
        assert_eq!(tiers_now(), (vec![1], vec![0], false));
        let joins = "NODES/online = 0-2
             NODES/has_memory = 0-2
             NODES/node0/distance = 10 20 30
             NODES/node1/distance = 20 10 40
             NODES/node2/distance = 30 40 10
             NODES/node2/cpulist =
             NODES/node2/meminfo = Node 2 MemTotal: 4 kB;Node 2 MemFree: 4 kB
             TIERS/memory_tier22/nodelist = 2";
        changes(root.path(), joins);
        assert_eq!(tiers_now(), (vec![1, 0], vec![2], true));
    }

    /// Each of two sockets has two CPUs, DRAM, nodes 0 and 1, and slow memory, nodes 2 and 3.
    pub(crate) const SOCKETS: &str = "sys/devices/system/cpu/online = 0-3
        NODES/online = 0-3
        NODES/has_memory = 0-3
        NODES/has_cpu = 0-1
        NODES/node0/cpulist = 0-1
        NODES/node1/cpulist = 2-3
        NODES/node2/cpulist =
        NODES/node3/cpulist =
        NODES/node0/distance = 10 21 14 24
        NODES/node1/distance = 21 10 24 14
        NODES/node2/distance = 14 24 10 31
        NODES/node3/distance = 24 14 31 10
        TIERS/memory_tier4/nodelist = 0-1
        TIERS/memory_tier22/nodelist = 2-3";

    #[test]
    fn memory_goes_up_and_down_within_its_socket_where_that_is_allowed() {
        let root = tree();
        changes(root.path(), SOCKETS);
        let nodes = "NODES/node1/meminfo = Node 1 MemTotal: 1048576 kB;Node 1 MemFree: 524288 kB
             NODES/node2/meminfo = Node 2 MemTotal: 524288 kB;Node 2 MemFree: 262144 kB
             NODES/node3/meminfo = Node 3 MemTotal: 524288 kB;Node 3 MemFree: 262144 kB";
        changes(root.path(), nodes);
        let machine = Machine::read(root.path()).unwrap();
        let near = |allowed: &[u32], cpus: &[u32]| -> Vec<(u32, u32)> {
            let near = machine.near(allowed, cpus);
            near.iter().map(|of| (of.node, of.distance)).collect()
        };
        assert_eq!(near(&[0, 1, 2, 3], &[2]), [(1, 10), (0, 21)]);
        assert_eq!(near(&[0, 1, 2, 3], &[1, 3]), [(0, 10), (1, 10)]);
        assert_eq!(near(&[0, 2], &[2, 3]), [(0, 21)]);
        assert_eq!(near(&[2, 3], &[0]), []);
        let all = [0, 1, 2, 3];
        assert_eq!(machine.below(&all), [(0, 2), (1, 3)]);
        assert_eq!(machine.below(&[0, 1, 3]), [(0, 3), (1, 3)]);
        assert_eq!(machine.below(&[0, 1]), []);
        // Where the near one is full, the other one takes it.
        let full = "NODES/node2/meminfo = Node 2 MemTotal: 524288 kB;Node 2 MemFree: 1024 kB";
        changes(root.path(), full);
        assert_eq!(machine.below(&all), [(0, 3), (1, 3)]);
    }

    #[test]
    fn tiers_room_and_pressure_are_read() {
        let root = tree();
        let mut machine = Machine::read(root.path()).unwrap();
        assert_eq!((&machine.top[..], &machine.lower[..]), (&[0][..], &[1][..]));
        assert_eq!(
            (machine.top_bytes(), machine.sizes[&1]),
            (1 << 30, 512 << 20)
        );
        assert_eq!(machine.room()[&0], (512 << 20) - (16 << 20));
        // 300 MiB of the free 512 are above the watermarks.
        let zones = "Node 0, zone Normal\n  pages free 131072\n        min 1\n        low 2\n        high 54272\n        managed 131072\n";
        put(root.path(), "proc/zoneinfo", zones);
        machine.look_at_watermarks();
        assert_eq!(machine.room()[&0], 300 << 20);
        assert_eq!(machine.pressure("memory"), None);
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 avg300=0 total=0\n";
        put(root.path(), "proc/pressure/memory", text);
        assert_eq!(machine.pressure("memory"), Some(12.5));
        put(root.path(), "proc/pressure/memory", "");
        assert_eq!(machine.pressure("memory"), None);
        for file in ["a/b/memory.pressure", "memory.pressure"] {
            put(root.path(), &format!("sys/fs/cgroup/{file}"), text);
        }
        let found = ["/a/b", "/a", "/"].map(|of| machine.cgroup_pressure(of, "memory"));
        assert_eq!(found, [Some(12.5), None, None]);
    }

    #[test]
    fn a_machine_with_one_tier_is_refused() {
        let root = tree();
        let tiers = "sys/devices/virtual/memory_tiering";
        change(root.path(), &format!("{tiers}/memory_tier22 = gone"));
        put(
            root.path(),
            &format!("{tiers}/memory_tier4/nodelist"),
            "0-1\n",
        );
        assert!(matches!(
            Machine::read(root.path()),
            Err(DaemonError::OneTier)
        ));
    }
}
