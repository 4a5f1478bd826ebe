// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pace: how fast promotion to one target may go, and how recent an access must be for its page to ask.
//!
//! Times are milliseconds of a clock of the caller's; only their lowest 32 bits matter.

pub use crate::sys::{PACE_BYTES_MAX, PACE_RATE_MAX, PaceParams};

use crate::hotness::ParamError;
use crate::sys::{self, BadParam, PaceState};
use std::mem::MaybeUninit;

impl Default for PaceParams {
    fn default() -> Self {
        let mut params = MaybeUninit::uninit();
        sys::ferry_pace_defaults(&mut params);
        // SAFETY: the function writes the whole structure.
        unsafe { params.assume_init() }
    }
}

/// Bytes that may be moved. Give it to [`Pace::settle`] after the move; one that is lost stays charged.
#[derive(Debug)]
#[must_use = "settle it after the move, so that only what moved is charged"]
pub struct Reserved {
    bytes: u64,
}

impl Reserved {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The pace of one target.
#[derive(Clone, Debug)]
pub struct Pace {
    params: PaceParams,
    state: PaceState,
}

impl Pace {
    /// Begins with a full bucket and the threshold at its reference.
    ///
    /// # Errors
    /// The first number that is out of its range, and the range.
    pub fn new(params: PaceParams, now: u64) -> Result<Self, ParamError> {
        let mut bad = BadParam::default();
        if sys::ferry_pace_check(&params, &mut bad) == 0 {
            let mut state = PaceState::default();
            sys::ferry_pace_start(&mut state, &params, now as u32);
            return Ok(Self { params, state });
        }
        let (field, value) = match bad.field {
            1 => ("rate", params.rate),
            2 => ("burst_ms", params.burst_ms.into()),
            3 => ("window_ms", params.window_ms.into()),
            _ => ("reference_ms", params.reference_ms.into()),
        };
        Err(ParamError {
            field,
            value,
            least: bad.least,
            most: bad.most,
        })
    }

    /// The numbers.
    pub fn params(&self) -> &PaceParams {
        &self.params
    }

    /// How many bytes may be reserved now.
    pub fn budget(&mut self, now: u64) -> u64 {
        sys::ferry_pace_budget(&mut self.state, now as u32)
    }

    /// Reserves `bytes` of a page or a batch; None defers it, and changes nothing. What is larger than the bucket goes
    /// when the bucket is full, and the next waits until it is paid for. More than [`PACE_BYTES_MAX`] never goes.
    pub fn reserve(&mut self, now: u64, bytes: u64) -> Option<Reserved> {
        sys::ferry_pace_reserve(&mut self.state, now as u32, bytes).then_some(Reserved { bytes })
    }

    /// Gives back what did not move.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "a reservation is settled once"
    )]
    pub fn settle(&mut self, reserved: Reserved, moved: u64) {
        sys::ferry_pace_settle(&mut self.state, reserved.bytes, moved);
    }

    /// Counts a page of so many bytes that asks; once, not again each time it is deferred.
    pub fn candidate(&mut self, bytes: u64) {
        sys::ferry_pace_candidate(&mut self.state, bytes);
    }

    /// How recent an access must be for its page to ask, in ms. Adjusts itself once per window.
    pub fn threshold_ms(&mut self, now: u64) -> u32 {
        sys::ferry_pace_threshold(&mut self.state, &self.params, now as u32)
    }

    /// Is so much of the target free (`free` of `node` bytes, above `watermark`) that promotion needs no pace? If so, the
    /// threshold returns to its reference.
    pub fn bypass(&mut self, free: u64, node: u64, watermark: u64) -> bool {
        sys::ferry_pace_bypass(&mut self.state, &self.params, free, node, watermark)
    }
}
