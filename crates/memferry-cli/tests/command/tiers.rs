// SPDX-License-Identifier: MIT OR Apache-2.0
//! An invented machine for the daemon, and its configuration. The tests of `memferryd` use it, too.

use std::path::Path;

use memferry_linux::invented::{listed, put};

/// A group that needs no process.
pub const GROUP: &str = "[[group]]\nname = \"db\"\nunits = [\"x\"]\n";

/// The configuration of a tree that has NUMA balancing and no other source.
pub fn configure(root: &Path, text: &str) {
    let source = "source = \"numa-balancing\"\n";
    let tables = text.find('[').filter(|_| !text.contains("source"));
    let (keys, tables) = text.split_at(tables.unwrap_or(text.len()));
    let source = if tables.is_empty() { "" } else { source };
    put(root, "memferry.toml", &format!("{keys}{source}{tables}"));
}

/// A machine with two tiers, which NUMA balancing serves.
pub fn tiered() -> tempfile::TempDir {
    listed(
        "proc/sys/kernel/osrelease = 6.12.0
         proc/sys/kernel/numa_balancing = 1
         proc/vmstat = pgpromote_success 1
         NODES/online = 0-1
         NODES/has_memory = 0-1
         NODES/node0/cpulist = 0
         NODES/node0/distance = 10 20
         NODES/node0/meminfo = Node 0 MemTotal: 1048576 kB;Node 0 MemFree: 524288 kB
         NODES/node1/cpulist =
         NODES/node1/distance = 20 10
         NODES/node1/meminfo = Node 1 MemTotal: 1048576 kB;Node 1 MemFree: 524288 kB
         TIERS/memory_tier4/nodelist = 0
         TIERS/memory_tier22/nodelist = 1",
    )
}
