// SPDX-License-Identifier: MIT OR Apache-2.0
//! What decides which page lies where: one file per policy, and what the replay asks of each.

mod admission;
mod hint_faults;
mod lru;
mod numab2;
mod oracle;
mod ours;
mod pghot;
mod walks;

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::Trace;
use crate::machine::{Machine, Timebase};
use crate::seen::seen;
use crate::tiers::{Tier, Tiers};
use crate::truth::Truth;

pub use memferry_core::hotness::ParamError;
pub use oracle::{Bound, bound};

/// A policy's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Pages stay where they were touched first.
    None,
    /// Second chance in both tiers.
    Lru,
    /// NUMA balancing's memory tiering mode.
    Numab2,
    /// pghot with one byte a page, as published.
    PghotDefault,
    /// pghot with four bytes a page, as published.
    PghotPrecise,
    /// pghot with one byte a page, fed by hint faults.
    PghotDefaultFaults,
    /// pghot with four bytes a page, fed by hint faults.
    PghotPreciseFaults,
    /// This project's, with one byte a page.
    OursDefault,
    /// This project's, with four bytes a page.
    Ours,
    /// The best placement that never changes; knows the trace.
    OracleStatic,
    /// The best placement that changes between slices and pays for moves, for all that the source shows of the trace.
    OracleSampled,
    /// The best placement that changes between slices and pays for moves; knows the trace.
    Oracle,
}

impl Kind {
    /// All of them, rivals first.
    pub const ALL: [Self; 12] = [
        Self::None,
        Self::Lru,
        Self::Numab2,
        Self::PghotDefault,
        Self::PghotPrecise,
        Self::PghotDefaultFaults,
        Self::PghotPreciseFaults,
        Self::OursDefault,
        Self::Ours,
        Self::OracleStatic,
        Self::OracleSampled,
        Self::Oracle,
    ];

    /// As the command line and files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lru => "lru",
            Self::Numab2 => "numab2",
            Self::PghotDefault => "pghot-default",
            Self::PghotPrecise => "pghot-precise",
            Self::PghotDefaultFaults => "pghot-default-faults",
            Self::PghotPreciseFaults => "pghot-precise-faults",
            Self::OursDefault => "ours-default",
            Self::Ours => "ours",
            Self::OracleStatic => "oracle-static",
            Self::OracleSampled => "oracle-sampled",
            Self::Oracle => "oracle",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the replay asks of a policy. All times are nanoseconds of the policy's time, see [`Timebase`].
pub trait Policy {
    /// Where a page goes that is touched first. Linux fills the top tier and then the lower one; so do all but the
    /// oracles, which know better.
    fn place(&mut self, _page: u32, _tiers: &Tiers) -> Tier {
        Tier::Top
    }

    /// A page was touched first and lies there.
    fn allocated(&mut self, _page: u32, _tier: Tier) {}

    /// The first access of an event has been served: the place of hint faults.
    fn access(&mut self, _page: u32, _now: u64, _tiers: &mut Tiers) {}

    /// Whether it wants to hear from the source.
    fn samples(&self) -> bool {
        false
    }

    /// Whether the source is to walk page tables, each time that it could.
    fn walks(&mut self, _tiers: &Tiers) -> bool {
        true
    }

    /// The source sampled an access.
    fn sampled(&mut self, page: u32, now: u64, tiers: &mut Tiers) {
        self.report(page, now, tiers);
    }

    /// The source reports an access, sampled or found by a walk.
    fn report(&mut self, _page: u32, _now: u64, _tiers: &mut Tiers) {}

    /// When it wants to work by itself next.
    fn next_wake(&self) -> u64 {
        u64::MAX
    }

    /// It is that time; afterwards `next_wake` is later.
    fn wake(&mut self, _now: u64, _tiers: &mut Tiers) {}

    /// A slice of the replay begins: for oracles.
    fn slice(&mut self, _slice: usize, _tiers: &mut Tiers) {}

    /// Bytes that it keeps about pages, beyond what a kernel has anyway (page flags, LRU lists).
    fn tracker_bytes(&self) -> u64 {
        0
    }
}

/// What a policy is built from.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) base: Timebase,
    pub(crate) pages: u32,
    pub(crate) page_bytes: u32,
    pub(crate) capacity: u32,
}

#[cfg(test)]
impl Site {
    /// For 4 KiB pages of a trace that counts accesses.
    fn synthetic(pages: u32, capacity: u32) -> Self {
        Self {
            base: Timebase::of(&crate::synthetic::zipf(16, 100, 1)),
            pages,
            page_bytes: 4096,
            capacity,
        }
    }
}

/// Builds a policy for a trace on a machine.
pub(crate) fn make<'a>(
    kind: Kind,
    trace: &Trace,
    truth: &'a Truth,
    machine: &Machine,
    capacity: u32,
) -> Result<Box<dyn Policy + 'a>, ParamError> {
    let site = Site {
        base: Timebase::of(trace),
        pages: trace.pages.len() as u32,
        page_bytes: trace.page_bytes,
        capacity,
    };
    let (default, precise) = (
        pghot::Tunables::default_mode(),
        pghot::Tunables::precise_mode(),
    );
    Ok(match kind {
        Kind::None => Box::new(Stay),
        Kind::Lru => Box::new(lru::Lru::new(site)),
        Kind::Numab2 => Box::new(numab2::Numab2::new(site)),
        Kind::PghotDefault => Box::new(pghot::Pghot::new(site, default)),
        Kind::PghotPrecise => Box::new(pghot::Pghot::new(site, precise)),
        Kind::PghotDefaultFaults => Box::new(pghot::Pghot::new(site, default.fed_by_faults())),
        Kind::PghotPreciseFaults => Box::new(pghot::Pghot::new(site, precise.fed_by_faults())),
        Kind::OursDefault => Box::new(ours::Ours::<u8>::new(site, machine)?),
        Kind::Ours => Box::new(ours::Ours::<u32>::new(site, machine)?),
        Kind::OracleStatic => Box::new(oracle::Static::new(truth, capacity)),
        Kind::OracleSampled => Box::new(oracle::Dynamic::new(
            &seen(trace, machine),
            capacity,
            machine.pays_after(),
        )),
        Kind::Oracle => Box::new(oracle::Dynamic::new(truth, capacity, machine.pays_after())),
    })
}

/// Policy `none`.
struct Stay;

impl Policy for Stay {}
