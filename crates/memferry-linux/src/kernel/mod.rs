// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own batch migration, /sys/kernel/mm/migration: its migrators, their settings, what they copied. And its
//! hot-page tracking, in [`pghot`].
//!
//! `absence` says why a kernel has none of it, `setting` changes it. Nothing here moves a page, and nothing loads a module.

mod absence;
mod auto;
pub mod pghot;
mod reason;
mod refusal;
mod setting;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::Path;

use crate::topology::error::TopologyError;
use crate::topology::files::Root;
use crate::topology::parse::{self, Choice};

pub use absence::Absence;
pub use auto::{Learnt, NotTold};
pub use reason::{ALL_REASONS, DEFAULT, ReasonChoice};
pub use refusal::SettingError;
pub use setting::{Interfaces, Plan, Setting, Step};

/// The folder of the interface, below the root.
pub(crate) const FOLDER: &str = "sys/kernel/mm/migration";

/// What brings it.
const OPTION: &str = "CONFIG_MIGRATION_COPY_OFFLOAD";

/// The name in `migrator` that stands for no migrator: pages are copied one by one, as in kernels without the interface.
pub const NO_MIGRATOR: &str = "none";

/// The name in `migrator` that stands for the best of all migrators, as it is learnt from the batches.
pub const AUTO: &str = "auto";

/// The migrator that copies on several CPUs: a module.
pub const MTCOPY: &str = "mtcopy";

/// The migrator that copies with DMA channels: a module.
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

/// What `max_batch_bytes` takes, bytes: whole pages from 2 MiB to 32 MiB.
pub const BATCH_BYTES: RangeInclusive<u64> = 2 << 20..=32 << 20;

/// The most lanes that `mtcopy/lanes` and `dcbm/lanes` take.
pub const MOST_LANES: u64 = 64;

/// The interface as it is set now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The registered migrators and the active one; [`NO_MIGRATOR`] is always among them.
    pub migrators: Choice,
    /// What copies for each reason.
    pub reasons: Vec<ReasonChoice>,
    /// Bytes that one batch unmaps at most.
    pub max_batch_bytes: u64,
    /// CPUs that copy a batch of `mtcopy` at most; `None` while the module is not loaded.
    pub lanes: Option<u64>,
    /// The settings of `dcbm`; `None` while the module is not loaded.
    pub dcbm: Option<Dcbm>,
    /// Bytes that a DMA channel which does not answer may still write to, and which the kernel keeps from use.
    pub quarantined_bytes: u64,
    /// What each migrator did, in the order of their names.
    pub statistics: Vec<Statistics>,
}

/// The settings of the migrator `dcbm`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Dcbm {
    /// DMA channels that copy one batch at most.
    pub lanes: u64,
    /// The kernel's line for each channel that it has or could not take.
    pub channels: Vec<String>,
}

/// What one migrator did since it was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Statistics {
    /// The migrator.
    pub migrator: String,
    /// Folios that it copied.
    pub folios: u64,
    /// Bytes that it copied.
    pub bytes: u64,
    /// Folios that it was handed and did not copy.
    pub fallbacks: u64,
    /// Batches that it refused whole.
    pub declined: u64,
    /// Folios that stayed where they were, as no CPU may copy for their reason.
    pub refused: u64,
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
            return Ok(Err(Absence::find(root, OPTION, FOLDER)));
        };
        let number = |name: &str, expected| root.required(&file(name), expected, parse::number);
        let lines = |text: &str| Ok(text.lines().map(str::to_owned).collect());
        let dcbm = root.optional(&file("dcbm/lanes"), "dcbm's lanes", parse::number)?;
        Ok(Ok(Self {
            migrators,
            reasons: root.required(&file("reasons"), "the reasons", reason::lines)?,
            max_batch_bytes: number("max_batch_bytes", "the largest batch")?,
            lanes: root.optional(&file("mtcopy/lanes"), "mtcopy's lanes", parse::number)?,
            dcbm: match dcbm {
                None => None,
                Some(lanes) => Some(Dcbm {
                    lanes,
                    channels: root.required(&file("dcbm/devices"), "DMA channels", lines)?,
                }),
            },
            quarantined_bytes: number("quarantined_bytes", "bytes in quarantine")?,
            statistics: Statistics::read(root)?,
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

impl Statistics {
    fn read(root: &Root<'_>) -> Result<Vec<Self>, TopologyError> {
        let folder = format!("{FOLDER}/stats");
        let row = |migrator: String| {
            let count = |name| {
                let file = format!("{folder}/{migrator}/{name}");
                root.required(&file, "a count", parse::number)
            };
            Ok(Self {
                folios: count("folios")?,
                bytes: count("bytes")?,
                fallbacks: count("fallbacks")?,
                declined: count("declined")?,
                refused: count("refused")?,
                migrator,
            })
        };
        let migrators = root.names(&folder, "the statistics")?.into_iter();
        migrators.map(row).collect()
    }
}
