// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hotness: what is known of the accesses to a page, in a byte ([`u8`], default mode) or four ([`u32`], precision mode).
//!
//! Decides what accesses and sweeps make of records, and how pages rank. It stores nothing: the tracker of the crate
//! `memferry` does. Times are milliseconds; only their lowest 32 bits matter.
//!
//! ```
//! use memferry_core::hotness::{Access, Histogram, Policy, Record};
//!
//! let policy = Policy::<u8>::default();
//! let mut records = [0_u8; 1000];
//! for time in [100, 200] {
//!     records[7] = records[7].accessed(&policy, &Access::at(time));
//! }
//! assert!(records[7].ready());
//! let mut histogram = Histogram::default();
//! u8::count(&records, 200, &mut histogram);
//! // Of one page of room the one that was accessed takes it.
//! let cut = policy.cut(&histogram, 1, 1);
//! assert_eq!((cut.heat, cut.above), (0, 1));
//! ```

mod bounces;
mod record;

pub use crate::sys::{
    AGES, Cut, EIGHTHS, Exchange, HEATS, Histogram, IDLE_AGE, Params, SECTION_PAGES, Sweep,
    WEIGHT_MAX,
};
pub use bounces::{Bounces, Majority};
pub use record::{Access, Record, View};

use crate::sys::{self, BadParam};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// A number of the policy that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: it must be from {least} to {most}{}", if *.field == "sweep_ms" { " with this window" } else { "" })]
pub struct ParamError {
    /// The field of [`Params`] or of [`PaceParams`](crate::pace::PaceParams).
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The smallest allowed value.
    pub least: u64,
    /// The largest allowed value.
    pub most: u64,
}

/// [`Params`] that are sound for records of type `R`.
pub struct Policy<R> {
    params: Params,
    records: PhantomData<fn(R)>,
}

impl<R> Clone for Policy<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Policy<R> {}

impl<R> fmt::Debug for Policy<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.params.fmt(f)
    }
}

impl<R: Record> Default for Policy<R> {
    fn default() -> Self {
        Self {
            params: Params::of::<R>(),
            records: PhantomData,
        }
    }
}

impl Params {
    /// The numbers to begin with for records of type `R`.
    pub fn of<R: Record>() -> Self {
        let mut params = MaybeUninit::uninit();
        sys::ferry_hot_defaults(R::FORMAT, &mut params);
        // SAFETY: the function writes the whole structure.
        unsafe { params.assume_init() }
    }
}

impl<R: Record> Policy<R> {
    /// Checks the numbers.
    ///
    /// # Errors
    /// The first number that is out of its range, and the range.
    pub fn new(params: Params) -> Result<Self, ParamError> {
        let mut bad = BadParam::default();
        if sys::ferry_hot_check(R::FORMAT, &params, &mut bad) == 0 {
            return Ok(Self {
                params,
                records: PhantomData,
            });
        }
        let fields = [
            ("format", R::FORMAT),
            ("window_ms", params.window_ms),
            ("threshold", params.threshold),
            ("recall", params.recall),
            ("step", params.step),
            ("sweep_ms", params.sweep_ms),
            ("cool_sweeps", params.cool_sweeps),
            ("freq_shift", params.freq_shift),
            ("cost", params.cost),
            ("damp", params.damp),
        ];
        let (field, value) = fields[bad.field as usize % fields.len()];
        Err(ParamError {
            field,
            value: value.into(),
            least: bad.least,
            most: bad.most,
        })
    }

    /// The numbers.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// How hot a frequency and an age class are together: 0 for frequency 0, else 1 to [`HEATS`] - 1.
    pub fn heat(&self, view: View) -> u32 {
        sys::ferry_hot_heat(&self.params, view.eighths.into(), view.age.into())
    }

    /// The records with a heat from the first to the last of `heats`, ascending: each one's heat and index.
    pub fn find(&self, records: &[R], now: u32, heats: (u32, u32)) -> Vec<(u32, usize)> {
        let (mut found, mut space, mut from) = (Vec::new(), [0; 512], 0);
        while from < records.len() {
            let count;
            (count, from) = R::find(records, from, self, now, heats, &mut space);
            let indices = space[..count].iter().map(|&index| index as usize);
            found.extend(indices.map(|index| (self.heat(records[index].view(now)), index)));
        }
        found
    }

    /// The threshold that fits `budget` pages: of those of at least `least_freq`, the hottest.
    pub fn cut(&self, histogram: &Histogram, least_freq: u32, budget: u64) -> Cut {
        let mut cut = Cut::default();
        sys::ferry_hot_cut(&self.params, histogram, least_freq, budget, &mut cut);
        cut
    }

    /// Which pages the top tier and the lower one should exchange, at most `budget` each way: the hottest of the lower
    /// that reached the threshold against the coldest of the top, while the gain exceeds the cost.
    pub fn exchange(&self, top: &Histogram, lower: &Histogram, budget: u64) -> Exchange {
        let mut exchange = Exchange::default();
        sys::ferry_hot_exchange(&self.params, top, lower, budget, &mut exchange);
        exchange
    }
}

impl Histogram {
    /// Pages of which anything is known.
    pub fn known(&self) -> u64 {
        self.pages[1..].iter().flatten().sum()
    }

    /// All pages.
    pub fn total(&self) -> u64 {
        self.pages.iter().flatten().sum()
    }

    /// Adds the pages of another.
    pub fn add(&mut self, other: &Self) {
        let theirs = other.pages.iter().flatten();
        for (mine, theirs) in self.pages.iter_mut().flatten().zip(theirs) {
            *mine += theirs;
        }
    }
}
