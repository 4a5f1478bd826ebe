// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each migrator of the kernel did, by reason: /sys/kernel/mm/migration/stats. Clearing it is `setting`'s work.

use crate::topology::error::TopologyError;
use crate::topology::files::Root;
use crate::topology::parse;

/// What one migrator did for one reason, since it was registered or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// The migrator.
    pub migrator: String,
    /// Why the kernel migrated.
    pub reason: String,
    /// Batches of which it copied something.
    pub batches: u64,
    /// Folios that it copied.
    pub folios: u64,
    /// Bytes that it copied.
    pub bytes: u64,
    /// Folios that it was handed and left to the plain copy.
    pub fallbacks: u64,
    /// Batches that it refused whole.
    pub declined: u64,
}

impl Statistics {
    /// Whether nothing happened.
    pub fn is_zero(&self) -> bool {
        [
            self.batches,
            self.folios,
            self.bytes,
            self.fallbacks,
            self.declined,
        ] == [0; 5]
    }
}

/// Reads all rows, by migrator and reason in the order of the alphabet.
pub(super) fn read(root: &Root<'_>) -> Result<Vec<Statistics>, TopologyError> {
    let folder = format!("{}/stats", super::FOLDER);
    let mut rows = Vec::new();
    for migrator in root.names(&folder, "the statistics")? {
        let folder = format!("{folder}/{migrator}");
        for reason in root.names(&folder, "the migrator's statistics")? {
            let of = format!("{folder}/{reason}");
            // Beside the reasons' folders lies the file `reset`.
            let Some(batches) = count(root, &of, "batches")? else {
                continue;
            };
            let count = |name| Ok(count(root, &of, name)?.unwrap_or(0));
            rows.push(Statistics {
                migrator: migrator.clone(),
                batches,
                folios: count("folios")?,
                bytes: count("bytes")?,
                fallbacks: count("fallbacks")?,
                declined: count("declined")?,
                reason,
            });
        }
    }
    Ok(rows)
}

fn count(root: &Root<'_>, folder: &str, name: &str) -> Result<Option<u64>, TopologyError> {
    root.optional(&format!("{folder}/{name}"), "a count", parse::number)
}
