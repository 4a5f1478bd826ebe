// SPDX-License-Identifier: MIT OR Apache-2.0
//! Online CPUs and the last-level caches they share, from /sys/devices/system/cpu, and what /proc/cpuinfo says of
//! them. Which CPUs this process may use (affinity, cgroups) is not asked here.

use super::error::{ParseError, TopologyError};
use super::files::Root;
use super::nodes::Node;
use super::parse;

const CPUS: &str = "sys/devices/system/cpu";

/// The machine's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Online CPUs, ascending; never empty.
    pub online: Vec<u32>,
    /// The online CPUs by the last-level cache they share, ascending by first CPU. Every online CPU is in
    /// exactly one group.
    pub cache_groups: Vec<CacheGroup>,
    /// The online CPUs by the core whose threads they are, ascending by first CPU. Every online CPU is in exactly one.
    pub cores: Vec<Vec<u32>>,
    /// The name of CPU 0's model; on arm64 its implementer and part; `None` where /proc/cpuinfo tells neither.
    pub model: Option<String>,
    /// Whether the machine is virtual; `None` where no file tells, as on arm64.
    pub hypervisor: Option<bool>,
    /// Who made the virtual machine, such as `QEMU` or `xen`; `None` on hardware and where no file tells.
    pub hypervisor_name: Option<String>,
}

/// CPUs that share one last-level cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct CacheGroup {
    /// The group's online CPUs, ascending; never empty.
    pub cpus: Vec<u32>,
    /// The cache's size in bytes; `None` where the firmware does not tell.
    #[cfg_attr(feature = "json", serde(rename = "bytes"))]
    pub size_bytes: Option<u64>,
    /// The cache's level, 3 on most servers. `None` for CPUs without any cache described: they are grouped by
    /// package, and those without a package too form one group.
    pub level: Option<u32>,
    /// The node that all CPUs of the group lie on; `None` where one cache serves several nodes, as with
    /// sub-NUMA clustering.
    pub node: Option<u32>,
}

/// The last-level cache of one CPU, and which CPUs share it.
struct LastLevel {
    level: u32,
    size_bytes: Option<u64>,
    shared: Vec<u32>,
}

/// Reads the list of online CPUs.
pub(super) fn read_online(root: &Root) -> Result<Vec<u32>, TopologyError> {
    root.required(
        &format!("{CPUS}/online"),
        "the list of online CPUs",
        |text| match parse::id_list(text) {
            Ok(cpus) if cpus.is_empty() => {
                Err(ParseError::new("at least one online CPU", text.trim()))
            }
            other => other,
        },
    )
}

/// Reads everything else about the CPUs `online`.
pub(super) fn read_cpus(
    root: &Root,
    online: Vec<u32>,
    nodes: &[Node],
) -> Result<Cpus, TopologyError> {
    let info = root.required("proc/cpuinfo", "the CPUs' model", |text| {
        Ok(parse::cpuinfo(text))
    })?;
    // Neither file matters enough to fail for: one unreadable counts as absent.
    let name_in = |file| {
        root.optional(file, "the hypervisor's name", text_line)
            .ok()
            .flatten()
    };
    let xen = name_in("sys/hypervisor/type");
    let hypervisor = if xen.is_some() {
        Some(true)
    } else {
        info.hypervisor
    };
    // On hardware the vendor is the maker of the machine, which is no hypervisor.
    let vendor = || name_in("sys/class/dmi/id/sys_vendor").filter(|_| hypervisor == Some(true));
    Ok(Cpus {
        cache_groups: read_cache_groups(root, &online, nodes)?,
        cores: read_cores(root, &online)?,
        online,
        model: info.model,
        hypervisor,
        hypervisor_name: xen.or_else(vendor),
    })
}

/// One line of text that is not empty.
pub(super) fn text_line(text: &str) -> Result<String, ParseError> {
    let text = text.trim();
    if text.is_empty() {
        Err(ParseError::new("a line of text", text))
    } else {
        Ok(text.to_owned())
    }
}

/// Asks only the first CPU of each group, so that a machine with hundreds of CPUs costs tens of reads.
fn read_cache_groups(
    root: &Root,
    online: &[u32],
    nodes: &[Node],
) -> Result<Vec<CacheGroup>, TopologyError> {
    let mut groups: Vec<CacheGroup> = Vec::new();
    let mut without_cache: Vec<(Option<u64>, Vec<u32>)> = Vec::new();
    let mut left = online.to_vec();
    while let Some(&cpu) = left.first() {
        let mut cpus = vec![cpu];
        if let Some(cache) = read_last_level(root, cpu)? {
            cpus.extend(
                left[1..]
                    .iter()
                    .filter(|other| cache.shared.binary_search(other).is_ok()),
            );
            groups.push(CacheGroup {
                node: common_node(&cpus, nodes),
                size_bytes: cache.size_bytes,
                level: Some(cache.level),
                cpus: cpus.clone(),
            });
        } else {
            let package = read_package(root, cpu)?;
            match without_cache
                .iter_mut()
                .find(|(known, _)| *known == package)
            {
                Some((_, members)) => members.push(cpu),
                None => without_cache.push((package, vec![cpu])),
            }
        }
        left.retain(|other| cpus.binary_search(other).is_err());
    }
    groups.extend(without_cache.into_iter().map(|(_, cpus)| CacheGroup {
        node: common_node(&cpus, nodes),
        size_bytes: None,
        level: None,
        cpus,
    }));
    groups.sort_by_key(|group| group.cpus.first().copied());
    Ok(groups)
}

/// The highest data or unified cache of a CPU. The kernel leaves out the files it knows no value for
/// (drivers/base/cacheinfo.c), so a cache without type, level or CPUs counts as not described.
fn read_last_level(root: &Root, cpu: u32) -> Result<Option<LastLevel>, TopologyError> {
    let folder = format!("{CPUS}/cpu{cpu}/cache");
    let mut last: Option<LastLevel> = None;
    for index in root.numbered(&folder, "index", "", "the CPU's caches")? {
        let folder = format!("{folder}/index{index}");
        let holds_data =
            root.optional(&format!("{folder}/type"), "the cache's type", cache_type)?;
        let level = root.optional(&format!("{folder}/level"), "the cache's level", cache_level)?;
        let (Some(true), Some(level)) = (holds_data, level) else {
            continue;
        };
        if last.as_ref().is_some_and(|known| known.level >= level) {
            continue;
        }
        let shared = root.optional(
            &format!("{folder}/shared_cpu_list"),
            "the CPUs that share it",
            parse::id_list,
        )?;
        let Some(shared) = shared else { continue };
        let size_bytes =
            root.optional(&format!("{folder}/size"), "the cache's size", parse::size)?;
        last = Some(LastLevel {
            level,
            size_bytes,
            shared,
        });
    }
    Ok(last)
}

/// Whether a cache of this type holds data.
fn cache_type(text: &str) -> Result<bool, ParseError> {
    match text.trim() {
        "Data" | "Unified" => Ok(true),
        "Instruction" => Ok(false),
        other => Err(ParseError::new("Data, Instruction or Unified", other)),
    }
}

fn cache_level(text: &str) -> Result<u32, ParseError> {
    let level = parse::number(text).ok().and_then(|n| u32::try_from(n).ok());
    level.ok_or_else(|| ParseError::new("a cache level such as 3", text.trim()))
}

/// The package of a CPU; firmware that does not tell shows up as -1, a missing folder counts the same.
fn read_package(root: &Root, cpu: u32) -> Result<Option<u64>, TopologyError> {
    let file = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
    let package = root.optional(&file, "the CPU's package", |text| match text.trim() {
        "-1" => Ok(None),
        _ => parse::number(text).map(Some),
    })?;
    Ok(package.flatten())
}

/// A CPU whose siblings the firmware does not tell is a core.
fn read_cores(root: &Root, online: &[u32]) -> Result<Vec<Vec<u32>>, TopologyError> {
    let mut cores = Vec::new();
    let mut left = online.to_vec();
    while let Some(&cpu) = left.first() {
        let file = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let threads = root.optional(&file, "the threads of the CPU's core", parse::id_list)?;
        let threads = threads.unwrap_or_default();
        let of_core = |other: &u32| *other == cpu || threads.binary_search(other).is_ok();
        let (core, others) = left.into_iter().partition(of_core);
        cores.push(core);
        left = others;
    }
    Ok(cores)
}

fn common_node(cpus: &[u32], nodes: &[Node]) -> Option<u32> {
    let holds = |node: &&Node| cpus.iter().all(|cpu| node.cpus.binary_search(cpu).is_ok());
    nodes.iter().find(holds).map(|node| node.id)
}
