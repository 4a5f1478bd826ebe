// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of the migrator `dcbm`, which copies with DMA channels, and the channels themselves.

use super::{DCBM, FOLDER};
use crate::topology::error::TopologyError;
use crate::topology::files::Root;
use crate::topology::parse;

/// The longest `dcbm/timeout_ms`.
pub(super) const LONGEST_TIMEOUT_MS: u64 = 60_000;

/// The most that `dcbm/poll_below_bytes` takes.
pub(super) const MOST_POLL_BYTES: u64 = 64 << 20;

/// The settings of the migrator `dcbm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dcbm {
    /// DMA channels that copy one batch at most.
    pub lanes: u64,
    /// How long a channel may take, milliseconds, before it is not used any more.
    pub timeout_ms: u64,
    /// Batches with fewer bytes are waited for without sleeping.
    pub poll_below_bytes: u64,
    /// The kernel's line for each channel that it has or could not take.
    pub channels: Vec<String>,
}

impl Dcbm {
    pub(super) fn read(root: &Root<'_>) -> Result<Self, TopologyError> {
        let file = |name: &str| format!("{FOLDER}/{DCBM}/{name}");
        let lines = |text: &str| Ok(text.lines().map(str::to_owned).collect());
        Ok(Self {
            lanes: root.required(&file("lanes"), "dcbm's lanes", parse::number)?,
            timeout_ms: root.required(&file("timeout_ms"), "milliseconds", parse::number)?,
            poll_below_bytes: root.required(&file("poll_below_bytes"), "bytes", parse::number)?,
            channels: root.required(&file("devices"), "DMA channels", lines)?,
        })
    }
}
