// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the running kernel offers and allows: its release, the migration interface, NUMA balancing, limits.
//! Presence of a file is all that is told here; whether a call works is found by trying it, elsewhere.

use super::cpus::text_line;
use super::error::{ParseError, TopologyError};
use super::files::Root;
use super::parse::{self, Choice};

/// What the running kernel offers for moving pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInterface {
    /// The release, such as `6.12.57`.
    pub release: String,
    /// The migrators of /sys/kernel/mm/migration and the active one; `None` on a kernel without our series.
    pub migrators: Option<Choice>,
    /// What NUMA balancing does; `None` on a kernel without it.
    pub numa_balancing: Option<NumaBalancing>,
}

/// What NUMA balancing does (the bits of `kernel.numa_balancing`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct NumaBalancing {
    /// Bit 0: it places pages near the CPUs that use them. It may move pages back that were just moved.
    pub placement: bool,
    /// Bit 1: it promotes hot pages from slower tiers.
    pub tiering: bool,
}

/// Limits of `/proc/sys/vm` that a mover runs into.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Limits {
    /// The most mappings that one process may have.
    pub max_map_count: u64,
    /// Whether `userfaultfd(2)` also handles faults of the kernel itself for processes without `CAP_SYS_PTRACE`;
    /// `None` on kernels before 5.2 or without userfaultfd.
    pub unprivileged_userfaultfd: Option<bool>,
    /// What the kernel promises to a mapping.
    pub overcommit_memory: Overcommit,
    /// hugetlb pages of the default size; `None` on a kernel without hugetlb.
    pub nr_hugepages: Option<u64>,
}

/// How much memory mappings may promise (`vm.overcommit_memory`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
#[cfg_attr(feature = "json", serde(rename_all = "lowercase"))]
pub enum Overcommit {
    /// 0: obvious overcommits are refused.
    Heuristic,
    /// 1: everything is promised.
    Always,
    /// 2: not more than the commit limit is promised.
    Never,
}

/// Reads what the kernel offers.
pub(super) fn read_kernel_interface(root: &Root) -> Result<KernelInterface, TopologyError> {
    Ok(KernelInterface {
        release: root.required(
            "proc/sys/kernel/osrelease",
            "the kernel's release",
            text_line,
        )?,
        migrators: root.optional(
            "sys/kernel/mm/migration/migrator",
            "the migrators",
            parse::choice,
        )?,
        numa_balancing: root.optional(
            "proc/sys/kernel/numa_balancing",
            "the NUMA balancing mode",
            numa_balancing,
        )?,
    })
}

/// Reads whether reclaim demotes pages to slower tiers; `None` on a kernel that cannot.
pub(super) fn read_demotion_enabled(root: &Root) -> Result<Option<bool>, TopologyError> {
    root.optional(
        "sys/kernel/mm/numa/demotion_enabled",
        "the demotion switch",
        parse::switch,
    )
}

/// Reads the limits.
pub(super) fn read_limits(root: &Root) -> Result<Limits, TopologyError> {
    let file = |name: &str| format!("proc/sys/vm/{name}");
    let (mappings, mode) = (file("max_map_count"), file("overcommit_memory"));
    let (uffd, pages) = (file("unprivileged_userfaultfd"), file("nr_hugepages"));
    Ok(Limits {
        max_map_count: root.required(&mappings, "the limit of mappings", parse::number)?,
        unprivileged_userfaultfd: root.optional(&uffd, "the userfaultfd switch", parse::switch)?,
        overcommit_memory: root.required(&mode, "the overcommit mode", overcommit)?,
        nr_hugepages: root.optional(&pages, "the number of hugetlb pages", parse::number)?,
    })
}

fn numa_balancing(text: &str) -> Result<NumaBalancing, ParseError> {
    let bits = parse::number(text)?;
    Ok(NumaBalancing {
        placement: bits & 1 != 0,
        tiering: bits & 2 != 0,
    })
}

fn overcommit(text: &str) -> Result<Overcommit, ParseError> {
    match text.trim() {
        "0" => Ok(Overcommit::Heuristic),
        "1" => Ok(Overcommit::Always),
        "2" => Ok(Overcommit::Never),
        other => Err(ParseError::new("0, 1 or 2", other)),
    }
}
