// SPDX-License-Identifier: MIT OR Apache-2.0
//! What fills the top tier: idle memory, and locked memory in place of what the tier is not to have.

use memferry_linux::{affinity, numa};

use super::place;
use super::workload::spec::Placing;
use crate::failure::{Failure, OrFail};
use crate::region::{PAGE, Region};
use crate::threads;

/// How often the top tier is looked at again, at most, after it was filled.
const FILLS: usize = 8;

/// What stays free beside the pages that the oracle places, in bytes: other programs take some meanwhile, and nothing is promoted into it.
const BESIDE_ORACLE: u64 = 32 << 20;

/// Bytes of the top tier that stay free for a workload that has so much room.
pub fn left_for(placing: Placing, room: u64) -> u64 {
    match placing {
        Placing::Best(_) => room + BESIDE_ORACLE,
        _ => room,
    }
}

/// Memory of the top tier that nothing accesses.
#[derive(Default)]
pub struct Filling {
    idle: Vec<Region>,
    locked: Vec<Region>,
}

/// How the top tier is filled.
pub struct Want<'a> {
    /// Its nodes, in this order.
    pub top: &'a [u32],
    /// Threads that write idle memory.
    pub threads: usize,
    /// Bytes of idle memory; all, if not set. Beyond them memory is locked.
    pub idle_bytes: Option<u64>,
    /// Bytes of the nodes that stay free, the first node's first.
    pub left_bytes: u64,
}

impl Want<'_> {
    /// What is to be filled of each node now.
    fn rooms(&self) -> Result<Vec<(u32, usize)>, Failure> {
        let mut left = self.left_bytes as usize;
        let room = |&node| {
            let free = place::room_to_fill(node)?;
            let stays = left.min(free);
            left -= stays;
            Ok((node, free - stays))
        };
        self.top.iter().map(room).collect()
    }
}

impl Filling {
    /// Fills the top tier.
    pub fn new(want: &Want<'_>) -> Result<Self, Failure> {
        let mut filling = Self::default();
        let mut idle = want.idle_bytes.map_or(usize::MAX, |bytes| bytes as usize);
        filling.take_free(want, &mut idle)?;
        // What a CPU has freed it keeps to itself, up to an eighth of a zone: it has to take that itself.
        for &node in want.top {
            for (cpu, kept) in place::kept_by_cpus(node)? {
                // A CPU that is not allowed keeps what it has.
                let take = || {
                    let pinned = affinity::pin(&[cpu]);
                    pinned.map_or(Ok(()), |()| filling.take(node, kept, 1, &mut idle))
                };
                threads::alone(take)?;
            }
        }
        // What others freed meanwhile.
        for _ in 0..FILLS {
            if filling.take_free(want, &mut idle)? == 0 {
                break;
            }
        }
        match want.idle_bytes {
            Some(_) if idle > 0 => Err(Failure::new(
                "cannot fill the top tier",
                format!("{} MiB of idle memory found no room", idle >> 20),
                "end what uses the memory, or give a smaller --scale",
            )),
            _ => Ok(filling),
        }
    }

    /// Takes what is free in the top tier; gives how many bytes that was.
    fn take_free(&mut self, want: &Want<'_>, idle: &mut usize) -> Result<usize, Failure> {
        let rooms = want.rooms()?;
        for &(node, room) in &rooms {
            self.take(node, room, want.threads, idle)?;
        }
        Ok(rooms.iter().map(|of| of.1).sum())
    }

    /// Takes memory of a node: what is still to be idle of it, and locks the rest.
    fn take(
        &mut self,
        node: u32,
        bytes: usize,
        threads: usize,
        idle: &mut usize,
    ) -> Result<(), Failure> {
        let unlocked = bytes.min(*idle);
        if unlocked > 0 {
            self.idle.push(on(node, unlocked, threads)?);
        }
        if bytes > unlocked {
            let bytes = bytes - unlocked;
            let region = Region::locked(node, bytes).or_fail(
                format!("cannot lock {} MiB on node {node}", bytes >> 20),
                "be root, with CAP_IPC_LOCK, and free memory",
            )?;
            self.locked.push(region);
        }
        *idle -= unlocked;
        Ok(())
    }

    /// Whether the top tier is as full as it was to be, but for `allowed` bytes of each node: what others freed meanwhile would be
    /// room for promotion.
    pub fn check_full(&self, want: &Want<'_>, allowed: usize) -> Result<(), Failure> {
        let rooms = want.rooms()?;
        match rooms.iter().find(|of| of.1 > allowed) {
            Some((node, left)) => Err(Failure::new(
                format!("cannot fill node {node} of the top tier"),
                format!("{} MiB are free that were to be filled", left >> 20),
                "end what frees memory meanwhile, or run --scenario 1 alone",
            )),
            None => Ok(()),
        }
    }

    /// Bytes of it, idle and locked.
    pub fn bytes(&self) -> u64 {
        total(&self.idle) + self.locked_bytes()
    }

    /// Bytes that cannot be demoted.
    pub fn locked_bytes(&self) -> u64 {
        total(&self.locked)
    }

    /// Compares the idle memory with what was written; gives its bytes, or the offset of a wrong one.
    pub fn check(&self, threads: usize) -> Result<u64, usize> {
        let check = |region: &Region| region.check(region.range().len(), threads);
        self.idle.iter().map(check).sum()
    }
}

fn total(regions: &[Region]) -> u64 {
    let lengths = regions.iter().map(|region| region.range().len() as u64);
    lengths.sum()
}

/// Memory of base pages on a node, which the kernel may move as any other afterwards.
pub fn on(node: u32, bytes: usize, threads: usize) -> Result<Region, Failure> {
    Region::on(node, bytes, PAGE, threads)
        .and_then(|region| numa::follow_task(&region.range()).map(|()| region))
        .or_fail(
            format!("cannot map {} MiB on node {node}", bytes >> 20),
            "free memory, or give a smaller --size",
        )
}

/// Addresses that new mappings stay below, enough for what fills the top tier; no page is touched.
///
/// NUMA balancing scans from the lowest address on: the hot memory, not the idle one, comes first.
pub fn reserve(top: &[u32]) -> Result<Region, Failure> {
    let mut bytes = 64 << 20;
    for &node in top {
        bytes += place::room_to_fill(node)?;
        bytes += place::kept_by_cpus(node)?.values().sum::<usize>();
    }
    Region::map(bytes).or_fail(
        format!("cannot reserve {} MiB of addresses", bytes >> 20),
        "raise the limit of virtual memory (ulimit -v)",
    )
}
