// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a setting of /sys/kernel/mm/migration was refused, and what to try.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{Absence, DCBM};

/// A setting that was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The kernel has no batch migration, or no hot-page tracking.
    #[error(transparent)]
    Absent(#[from] Absence),
    /// No migrator of that name is registered.
    #[error("no migrator {name} is registered; there are {}", known.join(", "))]
    NoMigrator {
        /// The name.
        name: String,
        /// Those that are registered.
        known: Vec<String>,
    },
    /// A value that the kernel would refuse.
    #[error("{setting} cannot be {value}: it is {allowed}")]
    BadValue {
        /// The setting's file.
        setting: &'static str,
        /// The value.
        value: String,
        /// What is possible.
        allowed: String,
    },
    /// The kernel refused to write a file.
    #[error("{}: cannot write {value:?}: {error}{}", path.display(), Undone(not_restored))]
    Write {
        /// The file.
        path: PathBuf,
        /// The text.
        value: String,
        /// What the kernel answered.
        error: io::Error,
        /// What the kernel takes there.
        allowed: String,
        /// Files that were changed before and could not be written back.
        not_restored: Vec<PathBuf>,
    },
}

/// The end of a message: whether everything else is as it was.
struct Undone<'a>(&'a [PathBuf]);

impl fmt::Display for Undone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("; everything else is as it was");
        }
        f.write_str("; also not written back:")?;
        (self.0.iter()).try_for_each(|path| write!(f, " {}", path.display()))
    }
}

impl SettingError {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            Self::Absent(absence) => absence.hint(),
            Self::NoMigrator { name, .. } => {
                format!("if {name} is a module, load it: modprobe {name}")
            }
            Self::BadValue { allowed, .. } => format!("give {allowed}"),
            Self::Write {
                error,
                allowed,
                value,
                ..
            } => match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES | libc::EROFS) => {
                    "be root, outside of a container with a read-only /sys".to_owned()
                }
                Some(libc::EINVAL) => format!("give {allowed}"),
                Some(libc::ENODEV) if value == DCBM => {
                    "dcbm found no DMA channel that it can use: dcbm/devices tells why".to_owned()
                }
                Some(libc::ENODEV | libc::ENOENT) => {
                    "its module is being unloaded: load it with modprobe, then again".to_owned()
                }
                Some(libc::ENOMEM) => {
                    "free some memory, or give a smaller --max-batch-bytes".to_owned()
                }
                _ => "see the kernel's log: dmesg".to_owned(),
            },
        }
    }
}
