// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory as a whole, its page sizes, and which sizes of transparent huge pages it gives.
//! What one node has is in `nodes`; nothing here changes a setting.

use super::error::{ParseError, TopologyError};
use super::files::Root;
use super::parse;

const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// All memory of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal` in bytes.
    pub total_bytes: u64,
    /// `MemAvailable` in bytes when it was read: what can be had without swapping.
    pub available_bytes: u64,
    /// The base page size in bytes.
    pub page_bytes: u64,
}

/// The settings of transparent huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Thp {
    /// Who gets huge pages, for the sizes that inherit it: a mode as that of a size.
    pub enabled: String,
    /// What a fault does when no huge page is free, by the kernel's word. `always`: it reclaims and compacts at once;
    /// `defer`: it wakes the background daemons and takes a small page; `defer+madvise`, `madvise`: it reclaims for mappings
    /// with `madvise(MADV_HUGEPAGE)`, and for others defers or takes a small page; `never`: it takes a small page.
    pub defrag: String,
    /// The size in bytes of a page that one PMD entry maps: 2 MiB on x86-64.
    pub pmd_bytes: u64,
    /// The sizes of anonymous huge pages, ascending. A kernel without a setting for each size (before 6.8) has
    /// the one of `pmd_bytes`, under `enabled`.
    pub sizes: Vec<ThpSize>,
}

/// One size of anonymous huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct ThpSize {
    /// The size in bytes.
    pub bytes: u64,
    /// Who gets pages of this size, by the kernel's word: `always` (every mapping that is large enough), `madvise` (those that
    /// ask with `madvise(MADV_HUGEPAGE)`), `never`. `inherit` is resolved.
    pub mode: String,
}

/// Reads `/proc/meminfo`.
pub(super) fn read_meminfo(root: &Root) -> Result<(parse::MemInfo, Memory), TopologyError> {
    let (info, available_bytes) =
        root.required("proc/meminfo", "the machine's memory", |text| {
            let info = parse::meminfo(text, None)?;
            let missing = || ParseError::new("a line MemAvailable: NUMBER kB", text.trim());
            Ok((info, info.available_bytes.ok_or_else(missing)?))
        })?;
    Ok((
        info,
        Memory {
            total_bytes: info.total_bytes,
            available_bytes,
            // No file tells it: it is this machine's, whatever the root folder.
            page_bytes: rustix::param::page_size() as u64,
        },
    ))
}

/// Reads the settings of transparent huge pages; `None` for a kernel or machine without them.
pub(super) fn read_thp(root: &Root) -> Result<Option<Thp>, TopologyError> {
    let Some(enabled) = root.optional(&format!("{THP}/enabled"), "the THP mode", parse::choice)?
    else {
        return Ok(None);
    };
    let enabled = enabled.active;
    let (defrag, size) = (format!("{THP}/defrag"), format!("{THP}/hpage_pmd_size"));
    let defrag = root.required(&defrag, "the THP defrag mode", parse::choice)?;
    let pmd_bytes = root.required(&size, "the huge page size in bytes", parse::number)?;
    let mut sizes = Vec::new();
    for kib in root.numbered(THP, "hugepages-", "kB", "the folder of THP settings")? {
        // A size that only shared memory can have shows no `enabled`.
        let file = format!("{THP}/hugepages-{kib}kB/enabled");
        let Some(choice) = root.optional(&file, "the mode of this THP size", parse::choice)? else {
            continue;
        };
        let mode = if choice.active == "inherit" {
            enabled.clone()
        } else {
            choice.active
        };
        sizes.push(ThpSize {
            bytes: u64::from(kib) * 1024,
            mode,
        });
    }
    if sizes.is_empty() {
        sizes.push(ThpSize {
            bytes: pmd_bytes,
            mode: enabled.clone(),
        });
    }
    Ok(Some(Thp {
        enabled,
        defrag: defrag.active,
        pmd_bytes,
        sizes,
    }))
}
