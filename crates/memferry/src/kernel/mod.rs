// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own batch migration, /sys/kernel/mm/migration: which migrators there are, how they are set, what they did. And
//! its hot-page tracking, in [`pghot`].
//!
//! `absence` says why a kernel has none of it, `statistics` reads what was done, `setting` changes it. Nothing here moves a
//! page, and nothing loads a module.

mod absence;
mod dcbm;
pub mod pghot;
mod refusal;
mod saved;
mod setting;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use crate::topology::error::{ParseError, TopologyError};
use crate::topology::files::Root;
use crate::topology::parse::{self, Choice};

pub use absence::Absence;
pub use dcbm::Dcbm;
pub use refusal::SettingError;
pub use saved::Saved;
pub use setting::{Change, PghotChange, Plan, Step};
pub use statistics::Statistics;

/// The folder of the interface, below the root.
pub(crate) const FOLDER: &str = "sys/kernel/mm/migration";

/// The name in `migrator` that stands for no migrator: pages are copied one by one, as in kernels without the interface.
pub const NO_MIGRATOR: &str = "none";

/// The migrator that is a module, and has a folder of settings of its own.
pub const MTCOPY: &str = "mtcopy";

/// The migrator that copies with DMA channels, a module with a folder of settings as well.
pub const DCBM: &str = "dcbm";

/// Why the kernel migrates, by the names of `migrate_reason_names[]` in Linux 6.12, in its order.
pub const REASONS: [&str; 10] = [
    "compaction",
    "memory_failure",
    "memory_hotplug",
    "syscall_or_cpuset",
    "mempolicy_mbind",
    "numa_misplaced",
    "contig_range",
    "longterm_pin",
    "demotion",
    "damon",
];

/// The largest `max_batch_bytes` that the interface takes, bytes: 64 MiB. Where a huge page is larger, its size is the only one.
pub const LARGEST_BATCH_BYTES: u64 = 64 << 20;

/// The most lanes that `mtcopy/lanes` and `dcbm/lanes` take.
pub const MOST_LANES: u64 = 64;

/// The interface as it is set now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The registered migrators and the active one; [`NO_MIGRATOR`] is always among them.
    pub migrators: Choice,
    /// For which reasons the active migrator copies.
    pub reasons: Reasons,
    /// Batches below so many bytes are copied folio by folio.
    pub min_batch_bytes: u64,
    /// Bytes that one batch unmaps at most.
    pub max_batch_bytes: u64,
    /// The smallest `max_batch_bytes` that this kernel takes: what one page-table entry maps at most.
    pub smallest_max_batch_bytes: u64,
    /// The settings of `mtcopy`; `None` while the module is not loaded.
    pub mtcopy: Option<Mtcopy>,
    /// The settings of `dcbm`; `None` while the module is not loaded.
    pub dcbm: Option<Dcbm>,
    /// Bytes that a DMA channel which does not answer may still write to, and which nobody else gets.
    pub quarantined_bytes: u64,
    /// What each migrator did, by reason.
    pub statistics: Vec<Statistics>,
}

/// The settings of the migrator `mtcopy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mtcopy {
    /// Parallel copiers of a batch, the calling task included.
    pub lanes: u64,
    /// The workqueue of the other lanes: `normal` or `high`.
    pub priority: Choice,
    /// `spread` over last-level caches, or `fill` one first.
    pub placement: Choice,
    /// Whether stores go around the caches.
    pub nontemporal: bool,
    /// Whether lanes run on idle CPUs only.
    pub idle_only: bool,
}

/// Reasons for which a migrator copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasons {
    /// All, also those that a newer kernel adds.
    All,
    /// None.
    None,
    /// These.
    Some(Vec<String>),
}

impl Reasons {
    /// Reads `all`, `none`, or names between white space.
    ///
    /// # Errors
    /// No name at all, or `all` or `none` beside others.
    pub fn parse(text: &str) -> Result<Reasons, ParseError> {
        let names: Vec<&str> = text.split_whitespace().collect();
        match names[..] {
            ["all"] => Ok(Reasons::All),
            ["none"] => Ok(Reasons::None),
            [] => Err(ParseError::new("all, none or names of reasons", text)),
            _ if names.contains(&"all") || names.contains(&"none") => Err(ParseError::new(
                "all or none alone, or names of reasons",
                text.trim(),
            )),
            _ => Ok(Reasons::Some(
                names.into_iter().map(str::to_owned).collect(),
            )),
        }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reasons::All => f.write_str("all"),
            Reasons::None => f.write_str("none"),
            Reasons::Some(names) => f.write_str(&names.join(" ")),
        }
    }
}

impl Migration {
    /// Reads the interface of this machine; the inner `Err` says why its kernel has none.
    ///
    /// # Errors
    /// A file is unreadable or not as documented. A module that is unloaded meanwhile can cause either; reading again is
    /// safe.
    pub fn read() -> Result<Result<Self, Absence>, TopologyError> {
        Self::read_from(Path::new("/"))
    }

    /// Reads the interface of the machine whose `sys`, `proc` and `boot` lie in the folder `root`.
    ///
    /// # Errors
    /// As [`Migration::read`]; paths in errors begin with `root`.
    pub fn read_from(root: &Path) -> Result<Result<Self, Absence>, TopologyError> {
        let root = &Root(root);
        let file = |name: &str| format!("{FOLDER}/{name}");
        let Some(migrators) = root.optional(&file("migrator"), "the migrators", parse::choice)?
        else {
            return Ok(Err(absence::find(root)));
        };
        let bytes = |name, expected| root.required(&file(name), expected, parse::number);
        Ok(Ok(Self {
            reasons: root.required(&file("reasons"), "the reasons", Reasons::parse)?,
            min_batch_bytes: bytes("min_batch_bytes", "the smallest batch")?,
            max_batch_bytes: bytes("max_batch_bytes", "the largest batch")?,
            // PMD_SIZE; without THPs the kernel's default of 2 MiB.
            smallest_max_batch_bytes: root
                .optional(
                    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
                    "the huge page size in bytes",
                    parse::number,
                )?
                .unwrap_or(2 << 20),
            mtcopy: match root.exists(&file(MTCOPY)) {
                true => Some(Mtcopy::read(root)?),
                false => None,
            },
            dcbm: match root.exists(&file(DCBM)) {
                true => Some(Dcbm::read(root)?),
                false => None,
            },
            // Kernels with an earlier series have no such file.
            quarantined_bytes: root
                .optional(
                    &file("quarantined_bytes"),
                    "bytes in quarantine",
                    parse::number,
                )?
                .unwrap_or(0),
            statistics: statistics::read(root)?,
            migrators,
        }))
    }

    /// The release of the kernel below `root`, such as `6.12.57`.
    ///
    /// # Errors
    /// /proc is not mounted there.
    pub fn release(root: &Path) -> Result<String, TopologyError> {
        let line = |text: &str| Ok(text.trim().to_owned());
        Root(root).required("proc/sys/kernel/osrelease", "the kernel's release", line)
    }

    /// Whether a migrator of this name is registered.
    pub fn has(&self, migrator: &str) -> bool {
        self.migrators.names.iter().any(|name| name == migrator)
    }
}

impl Mtcopy {
    fn read(root: &Root<'_>) -> Result<Self, TopologyError> {
        let file = |name: &str| format!("{FOLDER}/{MTCOPY}/{name}");
        Ok(Self {
            lanes: root.required(&file("lanes"), "mtcopy's lanes", parse::number)?,
            priority: root.required(&file("priority"), "mtcopy's priority", parse::choice)?,
            placement: root.required(&file("placement"), "mtcopy's placement", parse::choice)?,
            nontemporal: root.required(&file("nontemporal"), "a switch", parse::switch)?,
            idle_only: root.required(&file("idle_only"), "a switch", parse::switch)?,
        })
    }
}
