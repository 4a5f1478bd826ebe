// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel lets this process do, found by trying; it changes nothing.

use memferry::probe;
use memferry_linux::pagemap::{Pagemap, Region};
use memferry_linux::topology::Topology;

use super::description::Capability;

/// Each ability, what it is for, and if it is missing why and what would enable it.
pub fn of(topology: &Topology) -> Vec<Capability> {
    let scan = Pagemap::open()
        .and_then(|pagemap| pagemap.scan(0, 0, &mut [Region::default()]))
        .map(drop)
        .map_err(|e| format!("{e}; Linux 6.7 has it"));
    let migrators = match &topology.kernel_interface.migrators {
        Some(_) => Ok(()),
        None => Err(
            "stock kernel; Memferry's series for Linux 6.12 and 7.3 adds it (`memferry kernel status`)"
                .to_owned(),
        ),
    };
    [
        (
            "userfaultfd",
            "watch pages on their way",
            probe::userfaultfd(),
        ),
        (
            "UFFDIO_MOVE",
            "unmap and remap in batches",
            probe::uffdio_move(topology),
        ),
        ("PAGEMAP_SCAN", "find pages and THPs", scan),
        (
            "move_pages",
            "move pages of any process",
            probe::move_pages(topology),
        ),
        (
            "kernel migrators",
            "batch copies inside the kernel",
            migrators,
        ),
    ]
    .map(|(name, purpose, state)| Capability {
        name,
        purpose,
        available: state.is_ok(),
        why: state.err(),
    })
    .into()
}
