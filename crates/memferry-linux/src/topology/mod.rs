// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one machine has: nodes, tiers, CPUs and their caches, memory, huge pages, DMA channels, limits,
//! kernel interface.
//! All of it is read from sysfs and procfs below a root folder, so that tests can hand in a tree of their own.
//! It is a snapshot: nothing is watched, measured, probed with system calls, or changed.
//!
//! ```no_run
//! let machine = memferry_linux::topology::Topology::read()?;
//! for node in machine.nodes_with_memory() {
//!     println!("node {}: {} bytes, tier {:?}", node.id, node.memory_total_bytes, node.tier);
//! }
//! # Ok::<(), memferry_linux::topology::TopologyError>(())
//! ```

mod cpus;
mod dma;
pub(crate) mod error;
pub(crate) mod files;
mod kernel;
mod memory;
mod nodes;
pub mod parse;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use cpus::{CacheGroup, Cpus};
pub use dma::DmaChannel;
pub use error::{ParseError, TopologyError};
pub use kernel::{KernelInterface, Limits, NumaBalancing, Overcommit};
pub use memory::{Memory, Thp, ThpSize};
pub use nodes::{Distance, Node, Tier};

use files::Root;

/// What one machine has. Sizes are in bytes; CPUs and nodes are the kernel's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All online nodes, ascending by id; never empty. A machine without NUMA is one node 0.
    pub nodes: Vec<Node>,
    /// The tiers, fastest first; never empty unless no node has memory.
    pub tiers: Vec<Tier>,
    /// Whether the kernel's reclaim demotes pages to slower tiers; `None` on a kernel that cannot.
    pub demotion_enabled: Option<bool>,
    /// Online CPUs, their last-level caches, model and hypervisor.
    pub cpus: Cpus,
    /// The machine's memory as a whole.
    pub memory: Memory,
    /// Transparent huge pages; `None` on a machine without them.
    pub thp: Option<Thp>,
    /// Channels of DMA engines; most machines show none.
    pub dma_channels: Vec<DmaChannel>,
    /// Limits of `/proc/sys/vm`.
    pub limits: Limits,
    /// What the running kernel offers for moving pages.
    pub kernel_interface: KernelInterface,
}

impl Topology {
    /// Reads this machine.
    ///
    /// # Errors
    /// A file that every kernel has is missing or unreadable, or a file's text is not as documented. CPUs or nodes
    /// that go offline meanwhile can cause either; reading again is safe.
    pub fn read() -> Result<Self, TopologyError> {
        Self::read_from(Path::new("/"))
    }

    /// Reads the machine whose `sys`, `proc` and `dev` lie in the folder `root`. The page size is this machine's.
    ///
    /// # Errors
    /// As [`Topology::read`]; paths in errors begin with `root`.
    pub fn read_from(root: &Path) -> Result<Self, TopologyError> {
        let root = Root(root);
        let online = cpus::read_online(&root)?;
        let (meminfo, memory) = memory::read_meminfo(&root)?;
        let mut nodes = nodes::read_nodes(&root, &online, meminfo)?;
        let tiers = nodes::read_tiers(&root, &mut nodes)?;
        Ok(Self {
            cpus: cpus::read_cpus(&root, online, &nodes)?,
            nodes,
            tiers,
            demotion_enabled: kernel::read_demotion_enabled(&root)?,
            memory,
            thp: memory::read_thp(&root)?,
            dma_channels: dma::read_channels(&root)?,
            limits: kernel::read_limits(&root)?,
            kernel_interface: kernel::read_kernel_interface(&root)?,
        })
    }

    /// The node with the id `id`.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The nodes that pages can be moved to, ascending by id.
    pub fn nodes_with_memory(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.has_memory)
    }

    /// How many tiers, from the fastest on, are Linux's top tier: those up to the slowest that has CPUs, so HBM beside DRAM is in it
    /// (`establish_demotion_targets()` in mm/memory-tiers.c). The kernel promotes from the others, if there are any.
    pub fn top_tiers(&self) -> usize {
        let with_cpus = self.nodes.iter().filter(|node| node.has_cpu);
        let slowest = with_cpus.filter_map(|node| node.tier).max();
        slowest.map_or(1, |tier| tier + 1)
    }

    /// Whether an emulator runs this machine's instructions (QEMU's TCG), by its processor's name or by what CPUID says of the
    /// hypervisor. Times there are good for ratios only. Elsewhere than on x86 only a name that says so is found.
    pub fn is_emulated(&self) -> bool {
        let model = self.cpus.model.as_deref().unwrap_or_default();
        model.contains("QEMU TCG")
            || self.cpus.hypervisor == Some(true) && hypervisor_signature() == *b"TCGTCGTCGTCG"
    }
}

/// What CPUID leaf 0x40000000 says; only to be asked where the hypervisor bit is set.
#[cfg(target_arch = "x86_64")]
fn hypervisor_signature() -> [u8; 12] {
    // SAFETY: every x86-64 processor has the instruction. Newer compilers know that.
    #[allow(unused_unsafe, reason = "unsafe until Rust 1.93")]
    let leaf = unsafe { std::arch::x86_64::__cpuid(0x4000_0000) };
    let mut text = [0; 12];
    for (part, register) in text.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    text
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_signature() -> [u8; 12] {
    [0; 12]
}
