// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of /sys/kernel/mm/migration at one moment, for whoever changes them only for a while.

use std::path::{Path, PathBuf};

use super::{Change, FOLDER, Migration, Plan, SettingError};

/// The settings at one moment; they come back with [`Saved::restore`], or when the value is dropped.
#[derive(Debug)]
pub struct Saved {
    root: PathBuf,
    change: Option<Change>,
}

impl Saved {
    /// Remembers all settings of the interface below `root`, which is `now`.
    pub fn new(root: &Path, now: &Migration) -> Self {
        let mtcopy = now.mtcopy.as_ref();
        let dcbm = now.dcbm.as_ref();
        Self {
            root: root.to_owned(),
            change: Some(Change {
                migrator: Some(now.migrators.active.clone()),
                reasons: Some(now.reasons.clone()),
                min_batch_bytes: Some(now.min_batch_bytes),
                max_batch_bytes: Some(now.max_batch_bytes),
                lanes: mtcopy.map(|of| of.lanes),
                priority: mtcopy.map(|of| of.priority.active.clone()),
                placement: mtcopy.map(|of| of.placement.active.clone()),
                nontemporal: mtcopy.map(|of| of.nontemporal),
                idle_only: mtcopy.map(|of| of.idle_only),
                dcbm_lanes: dcbm.map(|of| of.lanes),
                timeout_ms: dcbm.map(|of| of.timeout_ms),
                poll_below_bytes: dcbm.map(|of| of.poll_below_bytes),
                reset_statistics: false,
            }),
        }
    }

    /// Sets everything as it was.
    ///
    /// # Errors
    /// The interface cannot be read or a file not be written.
    pub fn restore(mut self) -> Result<(), SettingError> {
        self.bring_back()
    }

    fn bring_back(&mut self) -> Result<(), SettingError> {
        let Some(change) = self.change.take() else {
            return Ok(());
        };
        let now = Migration::read_from(&self.root)?.map_err(|_| SettingError::Gone {
            path: self.root.join(FOLDER),
        })?;
        Plan::new(&self.root, &now, &change)?.apply()
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // Whoever wants to hear of a failure calls `restore`.
        let _ = self.bring_back();
    }
}
