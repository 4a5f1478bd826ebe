// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channels of DMA engines, which the kernel's migrator `dcbm` can copy with. sysfs does not tell which of
//! them copy memory to memory: `dcbm` does, when it is chosen.

use super::cpus::text_line;
use super::error::TopologyError;
use super::files::Root;
use super::parse;

/// Where the kernel lists channels.
const CLASS: &str = "sys/class/dma";

/// A channel of a DMA engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct DmaChannel {
    /// The kernel's name, such as `dma0chan0`.
    pub name: String,
    /// The driver of its device; `None` for a device without one.
    pub driver: Option<String>,
    /// The node of its device; `None` where the firmware does not tell.
    pub node: Option<u32>,
    /// Whether somebody uses it, a driver or `dcbm`.
    pub in_use: bool,
}

/// Reads all channels, ascending by name as `dma2chan0` before `dma10chan0`.
pub(super) fn read_channels(root: &Root) -> Result<Vec<DmaChannel>, TopologyError> {
    let mut channels = Vec::new();
    for name in root.names(CLASS, "the DMA channels")? {
        let file = |file: &str| format!("{CLASS}/{name}/{file}");
        let (in_use, node) = (file("in_use"), file("device/numa_node"));
        let users = root.optional(&in_use, "the users of a DMA channel", parse::number)?;
        // A channel can go away while it is read.
        let Some(users) = users else { continue };
        let node = root.optional(&node, "the node of a DMA channel", text_line)?;
        channels.push(DmaChannel {
            driver: root.link_name(&file("device/driver")),
            // -1 where nobody knows.
            node: node.and_then(|node| node.parse().ok()),
            in_use: users > 0,
            name,
        });
    }
    channels.sort_by_key(|channel| numbers(&channel.name));
    Ok(channels)
}

/// The numbers in a name, so that names sort as people count.
fn numbers(name: &str) -> Vec<u64> {
    let digits = name.split(|letter: char| !letter.is_ascii_digit());
    digits.filter_map(|number| number.parse().ok()).collect()
}
