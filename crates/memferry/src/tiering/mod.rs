// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiering of the process's own memory: the application reports what it uses, and a call per round moves what the core's
//! policy chooses.
//!
//! The policy is that of the replay's `ours` and of the kernel's series, a round after each walk of page tables: what was used
//! since the last round counts as one access. Its clock counts rounds, so a round that comes late makes nothing look old.

mod part;
mod round;
#[cfg(test)]
mod tests;
mod used;

use crate::error::{MoveError, check_range};
use crate::mover::Mover;
use crate::options::MoveOptions;
use crate::options::setters;
use crate::result::ListResult;
use crate::sync::Unpoisoned;
use crate::sys::page_size;
use memferry_linux::numa;
use round::State;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use used::Used;

/// How memory is tiered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TieringOptions {
    /// Node of the top tier.
    pub top: u32,
    /// Node of the lower tier.
    pub lower: u32,
    /// Bytes of the memory that may lie in the top tier.
    pub top_bytes: usize,
    /// Bytes of a unit: what the application uses as a whole, and what moves as a whole. A multiple of the base page.
    /// Units in THPs move only if they are whole THPs: take 2 MiB, or advise the memory against them (MADV_NOHUGEPAGE).
    pub unit_bytes: usize,
    /// Bytes promoted per second at most.
    pub bytes_per_second: u64,
    /// How pages are moved.
    pub moves: MoveOptions,
}

impl TieringOptions {
    /// Units of 16 KiB, 1 GB/s.
    pub fn new(top: u32, lower: u32, top_bytes: usize) -> TieringOptions {
        TieringOptions {
            top,
            lower,
            top_bytes,
            unit_bytes: 16 << 10,
            bytes_per_second: 1_000_000_000,
            moves: MoveOptions::default(),
        }
    }

    setters! {
        unit_bytes: usize,
        bytes_per_second: u64,
        moves: MoveOptions,
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Bytes that went up.
    pub promoted_bytes: u64,
    /// Bytes that went down.
    pub demoted_bytes: u64,
    /// Bytes that were chosen and stayed: busy, in part of a THP, or no memory on the node.
    pub stayed_bytes: u64,
    /// Bytes of the memory that lie in the top tier now, as far as is known.
    pub top_bytes: u64,
}

/// Keeps the hot part of some memory of this process in the top tier. The memory is any number of ranges, which may come and
/// go while threads use them.
///
/// ```no_run
/// use memferry::{Batch, Mover, MoverOptions, Tiering, TieringOptions};
///
/// # fn main() -> Result<(), memferry::MoveError> {
/// # let (pool, page, over) = (0x7f00_0000_0000..0x7f40_0000_0000, 0x7f00_0000_4000, false);
/// let mover = Mover::new(MoverOptions::new(Batch::default()))?;
/// let tiering = Tiering::new(mover, TieringOptions::new(0, 1, 16 << 30))?;
/// tiering.add(pool.clone())?;
/// // Any thread that uses memory of the pool:
/// tiering.record(page);
/// // One thread, four times a second:
/// while !over {
///     let round = tiering.round()?;
///     println!("{} bytes up, {} down", round.promoted_bytes, round.demoted_bytes);
///     std::thread::sleep(std::time::Duration::from_millis(250));
/// }
/// // Before the pool's second half is unmapped:
/// tiering.forget(pool.start + pool.len() / 2..pool.end)?;
/// # Ok(())
/// # }
/// ```
pub struct Tiering {
    used: Used,
    places: Box<dyn Places>,
    options: TieringOptions,
    state: Mutex<State>,
}

impl std::fmt::Debug for Tiering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiering")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What tiering asks of the machine.
trait Places: Send + Sync {
    /// Node or -errno of each page.
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()>;
    fn carry(&self, ranges: &[Range<usize>], to: u32) -> Result<ListResult, MoveError>;
}

struct Machine {
    mover: Arc<Mover>,
    moves: MoveOptions,
}

impl Places for Machine {
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        numa::move_pages(0, pages, None, status, false).map(drop)
    }

    fn carry(&self, ranges: &[Range<usize>], to: u32) -> Result<ListResult, MoveError> {
        self.mover.move_pages(ranges, to, &self.moves)
    }
}

impl Tiering {
    /// Tiers nothing yet. The mover may be one that the program also uses for other moves: an `Arc` of it.
    ///
    /// # Errors
    /// A unit that is no multiple of pages, a node without memory, the same node twice, or a rate of 0.
    pub fn new(
        mover: impl Into<Arc<Mover>>,
        options: TieringOptions,
    ) -> Result<Tiering, MoveError> {
        let mover = mover.into();
        mover.check_node(options.top)?;
        mover.check_node(options.lower)?;
        let moves = options.moves.clone();
        Tiering::on(Box::new(Machine { mover, moves }), options)
    }

    fn on(places: Box<dyn Places>, options: TieringOptions) -> Result<Tiering, MoveError> {
        let refuse = |name, value, why: String| MoveError::BadOption { name, value, why };
        if options.top == options.lower {
            let why = "the tiers are the same node; give two".to_owned();
            return Err(refuse("lower", options.lower as usize, why));
        }
        let unit = options.unit_bytes;
        if unit == 0 || unit % page_size() != 0 {
            let why = format!("it must be a multiple of {} bytes", page_size());
            return Err(refuse("unit_bytes", unit, why));
        }
        let state = State::new(options.bytes_per_second)
            .map_err(|error| refuse("bytes_per_second", error.value as usize, error.to_string()))?;
        Ok(Tiering {
            used: Used::new(unit),
            places,
            options,
            state: Mutex::new(state),
        })
    }

    /// Tiers `range` as well, whose pages may be touched before or later. Its units are counted from its start. Waits for a round
    /// that is under way.
    ///
    /// # Errors
    /// A range that is no multiple of pages or not one of units, has more than 2^32 of these, or has addresses that are
    /// tiered already ([`MoveError::Overlap`]).
    pub fn add(&self, range: Range<usize>) -> Result<(), MoveError> {
        check_range(&range)?;
        let unit = self.options.unit_bytes;
        if range.len() % unit != 0 {
            return Err(self.no_units(&range, "is no whole number of units"));
        }
        if u32::try_from(range.len() / unit).is_err() {
            return Err(self.no_units(&range, "has more than 2^32 units"));
        }
        let mut state = self.state.lock().unpoisoned();
        state.add(range, unit, &self.used)
    }

    /// Forgets what is known of `range`, where it is tiered: all of what was added, or a part. Its memory stays where it is. Waits
    /// for a round that is under way; later ones neither look at the range nor move it. Forget a range before it is unmapped:
    /// a round that is to move what is not there fails.
    ///
    /// # Errors
    /// A range that is no multiple of pages, or begins or ends within a unit; nothing is forgotten then.
    pub fn forget(&self, range: Range<usize>) -> Result<(), MoveError> {
        check_range(&range)?;
        let mut state = self.state.lock().unpoisoned();
        match state.forget(&range, self.options.unit_bytes, &self.used) {
            true => Ok(()),
            false => Err(self.no_units(&range, "begins or ends within a unit")),
        }
    }

    /// Notes that the memory at `addr` is used; addresses that are not tiered are ignored. Any thread may call it at any
    /// time, and none ever waits: some loads, and a store the first time since the last round. A use that meets
    /// [`Tiering::add`] or [`Tiering::forget`] of any range may be lost, or count for another unit. On memory that is used so much
    /// that most of it is used between any two rounds, report one use in so many.
    #[inline]
    pub fn record(&self, addr: usize) {
        self.used.record(addr);
    }

    /// Moves what should move now: idle memory down where new memory comes, the hottest into what is free of the top tier, then
    /// the hottest against the coldest while that gains more than it costs. Call it four times a second, from one thread.
    ///
    /// # Errors
    /// As [`Mover::move_pages`]; what was moved before is known, and the next round goes on.
    pub fn round(&self) -> Result<Round, MoveError> {
        let mut state = self.state.lock().unpoisoned();
        state.round(&*self.places, &self.options)
    }

    fn no_units(&self, range: &Range<usize>, what: &str) -> MoveError {
        MoveError::BadOption {
            name: "unit_bytes",
            value: self.options.unit_bytes,
            why: format!("range {:#x}-{:#x} {what}", range.start, range.end),
        }
    }
}
