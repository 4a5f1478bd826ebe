// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that a trace is replayed on: two tiers, what a move costs, what the source reports, and how the trace's
//! time and size relate to those of the machines that policies have their constants from.
//!
//! It holds numbers and checks them; it decides nothing.

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::event::{Clock, Event, Trace};

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1000 * MS;

/// How much smaller and shorter than the machine that policies are made for a trace is.
///
/// One page stands for so many pages, and one access for so many accesses, each to another of them. A trace of 64 MiB and
/// 0.3 s so stands for 64 GiB and 5 minutes. Sizes and rates of the policies (256 MB of a scan, 1 GiB of free space,
/// MB/s) are divided by it; times stay, because the trace's own time is multiplied.
pub const SCALE: u64 = 1024;

/// What one access of a trace without time takes, in nanoseconds before [`SCALE`]: the pace of one core that mostly hits
/// its caches.
pub const NS_PER_ACCESS: u64 = 1;

/// How large the top tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// A share of the trace's footprint, in thousandths: 1 to 1000.
    Share(u32),
    /// Bytes.
    Bytes(u64),
}

impl Top {
    /// Whole pages of the top tier for a trace, at least one.
    pub fn pages(self, trace: &Trace) -> Result<u32, Error> {
        let page_bytes = trace.page_bytes;
        let pages = match self {
            Self::Share(thousandths) => {
                (trace.pages.len() as u64 * u64::from(thousandths) / 1000).max(1)
            }
            Self::Bytes(bytes) => match bytes / u64::from(page_bytes) {
                0 => return Err(Error::NoPage { bytes, page_bytes }),
                pages => pages,
            },
        };
        Ok(u32::try_from(pages).unwrap_or(u32::MAX))
    }
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Machine {
    /// What a load that misses the caches waits in the top tier, ns.
    pub top_ns: u32,
    /// The same in the lower tier, ns: more.
    pub low_ns: u32,
    /// What moving one page up costs the machine, ns: unmap, flush, copy, remap.
    pub promote_ns: u32,
    /// What moving one page down costs, ns.
    pub demote_ns: u32,
    /// What one hint fault costs the thread that takes it, ns.
    pub fault_ns: u32,
    /// Of so many accesses of a trace that counts every load and store, one reaches memory.
    #[serde(skip)]
    pub accesses_per_miss: u32,
    /// The source of `pghot` and `ours` reports one miss in so many; 0 for none.
    pub sample_period: u32,
    /// The source of `pghot` and `ours` walks the page tables so often and reports the pages that were accessed, ms; 0 for
    /// never.
    pub walk_ms: u32,
    /// What a walk takes for each page, ns.
    pub walk_page_ns: u32,
    /// Where random numbers start: the source's jitter.
    pub seed: u64,
}

impl Default for Machine {
    /// Local DRAM and CXL memory; docs/design/replay.md says where each number is from.
    fn default() -> Self {
        Self {
            top_ns: 100,
            low_ns: 250,
            promote_ns: 2000,
            demote_ns: 2000,
            fault_ns: 1000,
            accesses_per_miss: 16,
            sample_period: 200,
            walk_ms: 250,
            walk_page_ns: 2,
            seed: 1,
        }
    }
}

impl Machine {
    /// Accesses of which the source reports one.
    pub fn accesses_per_sample(&self) -> u64 {
        u64::from(self.sample_period) * u64::from(self.accesses_per_miss)
    }

    /// Nanoseconds between two walks; longer than any trace if there is none.
    pub fn walk_ns(&self) -> u64 {
        match self.walk_ms {
            0 => u64::MAX / 2,
            ms => u64::from(ms) * MS,
        }
    }

    /// Accesses in the top tier after which a page has paid for its way up and down again.
    pub fn pays_after(&self) -> u64 {
        let cost = u64::from(self.promote_ns) + u64::from(self.demote_ns);
        (cost * u64::from(self.accesses_per_miss)).div_ceil(u64::from(self.low_ns - self.top_ns))
    }
}

/// A trace's time in the time that policies count in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timebase {
    ns_per_tick: u64,
    /// What sizes and rates of the policies are divided by.
    pub scale: u64,
}

impl Timebase {
    /// Of a trace: one that counts accesses is a model at [`SCALE`]; one that knows nanoseconds is taken as it is.
    pub fn of(trace: &Trace) -> Self {
        match trace.clock {
            Clock::Accesses => Self {
                ns_per_tick: NS_PER_ACCESS * SCALE,
                scale: SCALE,
            },
            Clock::Nanoseconds => Self {
                ns_per_tick: 1,
                scale: 1,
            },
        }
    }

    /// When an event happens, ns.
    pub fn at(self, event: &Event) -> u64 {
        event.time.saturating_mul(self.ns_per_tick)
    }

    /// Pages that a size in bytes of a real machine is here; at least one.
    pub fn pages(self, bytes: u64, page_bytes: u32) -> u32 {
        let pages = bytes / self.scale / u64::from(page_bytes.max(1));
        u32::try_from(pages).unwrap_or(u32::MAX).max(1)
    }
}

/// Accesses of an event.
pub fn accesses(event: &Event) -> u64 {
    u64::from(event.reads) + u64::from(event.writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_top_tier_of_nothing_is_refused() {
        let trace = synthetic::zipf(16, 1000, 1);
        for top in [Top::Bytes(0), Top::Bytes(4095)] {
            let text = top.pages(&trace).expect_err("refused").to_string();
            assert!(text.contains("allowed: 4096 bytes"), "{text}");
        }
        assert_eq!(Top::Share(1).pages(&trace).ok(), Some(1));
        assert_eq!(Top::Bytes(8192).pages(&trace).ok(), Some(2));
    }

    #[test]
    fn the_scan_of_a_second_is_a_thousandth_too() {
        let base = Timebase::of(&synthetic::zipf(16, 1000, 1));
        assert_eq!(base.pages(256 << 20, 4096), 64);
    }
}
