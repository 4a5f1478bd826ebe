// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between which nodes pages are promoted, and how much memory the scenarios may use there.

use std::collections::BTreeMap;

use memferry_linux::topology::{Node, Topology, parse};
use memferry_linux::zones::{above_watermarks, number, zones};

use crate::args::promote::{PromoteArgs, Scenario};
use crate::failure::{Failure, OrFail};
use crate::published::promotion::{Published, Scale};
use crate::region::{PAGE, THP};
use crate::units::{Size, about};

/// Free memory of the lower tier that stays for demoted pages and for other programs.
pub const LEFT_BELOW: u64 = 64 << 20;
/// Free memory of a filled node beyond its high watermark, so that filling it wakes nobody who makes room again.
const LEFT_ABOVE: u64 = 8 << 20;

/// Two tiers of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The node of the lower tier that pages begin on.
    pub lower: u32,
    /// The node of the top tier whose CPUs access them.
    pub near: u32,
    /// All nodes of the top tier.
    pub top: Vec<u32>,
    /// The CPUs of `near`.
    pub cpus: Vec<u32>,
}

impl Place {
    /// The tier below Linux's top one, there the node with the most free memory, and the CPUs that are nearest to it.
    pub fn choose(topology: &Topology) -> Result<Self, Failure> {
        let below = topology.top_tiers();
        let in_tiers = |tiers: std::ops::Range<usize>| {
            let nodes = topology.nodes_with_memory();
            nodes.filter(move |node| node.tier.is_some_and(|tier| tiers.contains(&tier)))
        };
        let lower = in_tiers(below..below + 1)
            .max_by_key(|node| (node.memory_free_bytes, std::cmp::Reverse(node.id)));
        let Some(lower) = lower else {
            let nodes: Vec<u32> = topology.nodes_with_memory().map(|node| node.id).collect();
            return Err(Failure::new(
                "cannot measure promotion here",
                format!(
                    "it moves pages to the tiers of memory that have CPUs and faster ones, and this machine has no slower one: {} {}",
                    if nodes.len() == 1 { "node" } else { "nodes" },
                    parse::format_id_list(&nodes)
                ),
                "use a machine whose kernel knows slower memory (CXL, persistent memory; `memferry topology` shows tiers), or \
                 the lab's: cargo xtask lab -- memferry bench promote --quick",
            ));
        };
        let distance = |node: &Node| node.distance_to(lower.id).unwrap_or(u32::MAX);
        let near = in_tiers(0..below)
            .filter(|node| node.has_cpu)
            .min_by_key(|node| (distance(node), node.id));
        let Some(near) = near else {
            return Err(Failure::new(
                "cannot measure promotion here",
                "no node of the top tier has a CPU",
                "see `memferry topology`",
            ));
        };
        Ok(Self {
            lower: lower.id,
            near: near.id,
            top: in_tiers(0..below).map(|node| node.id).collect(),
            cpus: near.cpus.clone(),
        })
    }

    /// Of the CPUs that access, those that taskset and cpusets leave, if they leave any.
    pub fn with_usable(mut self, usable: &[u32]) -> Self {
        let cpus = self.cpus.iter().copied();
        let left: Vec<u32> = cpus.filter(|cpu| usable.contains(cpu)).collect();
        if !left.is_empty() {
            self.cpus = left;
        }
        self
    }

    /// With more threads than `near` has CPUs, also those of the other nodes of the top tier, nearest first, until there are enough.
    pub fn with_cpus_for(mut self, topology: &Topology, threads: usize, usable: &[u32]) -> Self {
        let mut others: Vec<&Node> = (topology.nodes_with_memory())
            .filter(|node| self.top.contains(&node.id) && node.id != self.near)
            .collect();
        others.sort_by_key(|node| node.distance_to(self.near).unwrap_or(u32::MAX));
        let is_usable = |cpu: &&u32| usable.is_empty() || usable.contains(cpu);
        for node in others {
            let left = threads.saturating_sub(self.cpus.iter().filter(is_usable).count());
            let more = node.cpus.iter().filter(is_usable).take(left);
            self.cpus.extend(more);
        }
        self
    }

    /// Bytes of the lower node that may become hot.
    fn below(&self, topology: &Topology) -> u64 {
        free(topology, self.lower).saturating_sub(LEFT_BELOW) / 4 * 3
    }

    /// The nodes of the top tier, those first whose CPUs access.
    pub fn top_near_first(&self) -> Vec<u32> {
        let mut top = self.top.clone();
        top.sort_by_key(|&node| node != self.near);
        top
    }

    /// Bytes of one region of a published scenario; refused where it does not fit, with what it needs. `room` says what may be
    /// filled of a node.
    pub fn region_like(
        &self,
        topology: &Topology,
        like: &Published,
        scale: Scale,
        room: impl Fn(u32) -> Result<usize, Failure>,
    ) -> Result<usize, Failure> {
        let below = self.below(topology);
        let near = room(self.near)? as u64;
        let rooms = self.top.iter().map(|&node| room(node));
        let top = rooms.sum::<Result<usize, _>>()? as u64;
        let needs = |scale| {
            let hot = like.region_bytes(scale) * like.regions as u64;
            // The hot pages must find room, or none but that of idle ones.
            let (idle, above) = match like.idle_bytes(scale) {
                0 => (0, 2 * hot),
                idle => (idle, 0),
            };
            (hot, idle, above)
        };
        let fits = |scale| {
            let (hot, idle, above) = needs(scale);
            hot > 0 && hot <= below && idle <= top && above <= near
        };
        if fits(scale) {
            return Ok(like.region_bytes(scale) as usize);
        }
        let (hot, idle, above) = needs(scale);
        let nodes = parse::format_id_list(&self.top);
        let why = match hot {
            0 => "a region would be smaller than 2 MiB".to_owned(),
            _ => format!(
                "it needs {} free on node {} of the lower tier, which has {}, and {} to fill or to promote to in the top tier \
                 (nodes {nodes}), which has {}",
                about(hot / 3 * 4 + LEFT_BELOW),
                self.lower,
                about(free(topology, self.lower)),
                about(idle.max(above)),
                about(if idle > 0 { top } else { near }),
            ),
        };
        let largest = (1..=4096).find(|&below| fits(Scale(1.0 / f64::from(below))));
        Err(Failure::new(
            format!("cannot run {} at scale {scale}", like.name),
            why,
            largest.map_or_else(
                || "use a machine with more memory; no scale fits here".to_owned(),
                |below| format!("--scale 1/{below}"),
            ),
        ))
    }

    /// How many regions of how many bytes a scenario has here; a note if that is less than usual.
    pub fn regions(
        &self,
        topology: &Topology,
        args: &PromoteArgs,
        scenario: Scenario,
    ) -> Result<(usize, usize, Option<String>), Failure> {
        let below = self.below(topology);
        let (count, room) = match scenario {
            // Enough room in the top tier: twice what goes there.
            Scenario::Room | Scenario::Even => (1, below.min(free(topology, self.near) / 2)),
            // Each region goes up in turn, and as much comes down.
            Scenario::Full => (args.regions(), below),
        };
        let wanted = match args.size {
            Some(size) => size.0,
            None if topology.is_emulated() => 64 << 20,
            None if args.quick => 512 << 20,
            None => 8 << 30,
        };
        let whole = |bytes: u64| bytes / count as u64 / THP as u64 * THP as u64;
        let region = whole(wanted).max(THP as u64);
        let most = whole(room);
        if region <= most {
            return Ok((count, region as usize, None));
        }
        if args.size.is_some() || most == 0 {
            return Err(Failure::new(
                format!("there is no memory for scenario {}", scenario.number()),
                format!(
                    "{} of the lower tier were to become hot, and there is room for {}: node {} has {} free, node {} of the \
                     top tier {}",
                    Size(region * count as u64),
                    Size(most * count as u64),
                    self.lower,
                    about(free(topology, self.lower)),
                    self.near,
                    about(free(topology, self.near))
                ),
                "give a smaller --size or fewer --regions, or end what uses the memory",
            ));
        }
        let note = format!(
            "Scenario {}: {} of the lower tier become hot instead of {}; the nodes have no room for more.",
            scenario.number(),
            Size(most * count as u64),
            Size(wanted)
        );
        Ok((count, most as usize, Some(note)))
    }
}

/// Free bytes of a node.
pub fn free(topology: &Topology, node: u32) -> u64 {
    topology.node(node).map_or(0, |of| of.memory_free_bytes)
}

/// The bytes of a node that filling it takes: what is free, less what keeps the kernel from making room at once.
pub fn room_to_fill(node: u32) -> Result<usize, Failure> {
    let room = above_watermarks(&zoneinfo()?, node).saturating_sub(LEFT_ABOVE);
    Ok(room as usize / THP * THP)
}

/// The free bytes of a node that CPUs keep to themselves, in whole THPs for each CPU that has so much.
pub fn kept_by_cpus(node: u32) -> Result<BTreeMap<u32, usize>, Failure> {
    let kept = pages_of_cpus(&zoneinfo()?, node).into_iter();
    Ok(kept
        .map(|(cpu, pages)| (cpu, pages as usize * PAGE / THP * THP))
        .filter(|&(_, bytes)| bytes > 0)
        .collect())
}

fn zoneinfo() -> Result<String, Failure> {
    std::fs::read_to_string("/proc/zoneinfo").or_fail(
        "cannot read /proc/zoneinfo",
        "run it outside of the container that hides it",
    )
}

/// How many pages of a node each CPU keeps to itself (its page sets, which do not count as free).
fn pages_of_cpus(zoneinfo: &str, node: u32) -> BTreeMap<u32, u64> {
    let mut kept = BTreeMap::new();
    for zone in zones(zoneinfo, node) {
        let mut of = None;
        for line in zone.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["cpu:", cpu] => of = cpu.parse().ok(),
                ["count:", pages] => {
                    if let Some(cpu) = of {
                        *kept.entry(cpu).or_default() += number(pages);
                    }
                }
                _ => {}
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::listed;

    /// Two nodes with CPUs and two slow ones, the second with more free memory and nearer to node 1.
    fn tiers() -> Topology {
        let root = listed(
            "NODES/has_memory = 0-3
             NODES/node0/cpulist = 0
             NODES/node0/distance = 10 20 20 40
             NODES/node0/meminfo = Node 0 MemTotal: 2097152 kB;Node 0 MemFree: 1048576 kB
             NODES/node1/cpulist = 1
             NODES/node1/distance = 20 10 40 20
             NODES/node1/meminfo = Node 1 MemTotal: 2097152 kB;Node 1 MemFree: 1048576 kB
             NODES/node2/cpulist =
             NODES/node2/distance = 20 40 10 60
             NODES/node2/meminfo = Node 2 MemTotal: 2097152 kB;Node 2 MemFree: 131072 kB
             NODES/node3/cpulist =
             NODES/node3/distance = 40 20 60 10
             NODES/node3/meminfo = Node 3 MemTotal: 2097152 kB;Node 3 MemFree: 1048576 kB
             TIERS/memory_tier4/nodelist = 0-1
             TIERS/memory_tier22/nodelist = 2-3
             sys/devices/system/cpu/online = 0-1",
        );
        Topology::read_from(root.path()).expect("topology")
    }

    #[test]
    fn the_freest_slow_node_and_its_nearest_cpus_are_chosen() {
        let place = Place::choose(&tiers()).expect("tiers");
        let expected = Place {
            lower: 3,
            near: 1,
            top: vec![0, 1],
            cpus: vec![1],
        };
        assert_eq!(place, expected);
    }

    #[test]
    fn more_threads_than_near_cpus_take_others_of_the_top_tier() {
        let place = Place::choose(&tiers()).expect("tiers");
        let cpus = |threads, usable: &[u32]| {
            let place = place.clone();
            place.with_cpus_for(&tiers(), threads, usable).cpus
        };
        assert_eq!((cpus(1, &[]), cpus(2, &[])), (vec![1], vec![1, 0]));
        assert_eq!((cpus(3, &[0, 1]), cpus(3, &[1])), (vec![1, 0], vec![1]));
    }

    #[test]
    fn memory_faster_than_that_of_cpus_is_in_the_top_tier() {
        let mut topology = tiers();
        for node in &mut topology.nodes {
            // Node 2 is HBM.
            node.tier = Some([1, 1, 0, 2][node.id as usize]);
        }
        let place = Place::choose(&topology).expect("tiers");
        assert_eq!((place.lower, place.near, place.top), (3, 1, vec![0, 1, 2]));
    }

    #[test]
    fn one_tier_is_told_with_what_to_try() {
        let mut topology = tiers();
        for node in &mut topology.nodes {
            node.tier = Some(0);
        }
        let error = Place::choose(&topology).expect_err("one tier").to_string();
        for part in ["no slower one: nodes 0-3", "try: ", "memferry topology"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn sizes_fit_and_what_was_asked_for_is_not_reduced() {
        let topology = tiers();
        let place = Place::choose(&topology).expect("tiers");
        let of =
            |line: &str, scenario| place.regions(&topology, &PromoteArgs::read(line), scenario);
        // Half of node 1's free memory.
        let (count, bytes, note) = of("", Scenario::Room).expect("fits");
        assert_eq!((count, bytes), (1, 512 << 20));
        assert!(
            note.expect("note")
                .contains("512M of the lower tier become hot instead of 8G")
        );
        let (count, bytes, note) = of("--size 128M --regions 4", Scenario::Full).expect("fits");
        assert_eq!((count, bytes, note), (4, 32 << 20, None));
        let error = of("--size 4G", Scenario::Full)
            .expect_err("no room")
            .to_string();
        assert!(
            error.contains("no memory for scenario 2") && error.contains("smaller --size"),
            "{error}"
        );
    }

    #[test]
    fn a_published_scenario_says_what_it_needs_and_which_scale_fits() {
        let topology = tiers();
        let place = Place::choose(&topology).expect("tiers");
        assert_eq!(place.top_near_first(), [1, 0]);
        let of = |name: &str, scale: &str| {
            let like = crate::published::promotion::scenario(name).expect("known");
            let scale = scale.parse().expect("scale");
            place.region_like(&topology, like, scale, |_| Ok(900 << 20))
        };
        // 720 MiB of node 3 may become hot, and 1800 MiB of the top tier be idle: three times the hot ones.
        assert_eq!(of("pghot-v6-2", "1/128").expect("fits"), 8 << 20);
        let told = of("pghot-v6-2", "1").expect_err("too large").to_string();
        for part in [
            "cannot run pghot-v6-2 at scale 1",
            "53.4 GiB free on node 3",
            "which has 1 GiB",
            "120 GiB to fill",
            "(nodes 0-1), which has 1.8 GiB",
            "--scale 1/65",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = of("pghot-v6-2", "1/1024")
            .expect_err("too small")
            .to_string();
        assert!(told.contains("smaller than 2 MiB"), "{told}");
        // Twice what goes up, as node 1 has 900 MiB.
        assert_eq!(of("pghot-v6-1", "1/19").expect("fits"), 430 << 20);
        let told = of("pghot-v6-1", "1/16").expect_err("too large").to_string();
        assert!(told.contains("--scale 1/19"), "{told}");
    }

    #[test]
    fn filling_leaves_watermarks_and_what_a_zone_keeps() {
        let zones = "Node 0, zone      DMA\n  pages free     3840\n        high     36\n        protection: (0, 941, 941, 941)\n    \
                     pagesets\n    cpu: 0\n              count: 7\n              high:  9\n    cpu: 11\n              count:    600\n\
                     Node 0, zone    DMA32\n  pages free     9000\n        boost    0\n        high     700\n        \
                     protection: (0, 0, 0, 0)\n    cpu: 11\n              count: 40\nNode 1, zone   Normal\n  pages free     50\n        high     100\n        \
                     protection: (0, 0, 0, 0)\n";
        assert_eq!(above_watermarks(zones, 0), (3840 - 36 - 941 + 8300) * 4096);
        assert_eq!(above_watermarks(zones, 1), 0, "less than the watermark");
        assert_eq!(above_watermarks(zones, 2), 0);
        assert_eq!(pages_of_cpus(zones, 0), BTreeMap::from([(0, 7), (11, 640)]));
        assert_eq!(pages_of_cpus(zones, 1), BTreeMap::new());
    }
}
