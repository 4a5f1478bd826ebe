// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choose: what copies a batch: the plain copy, a migrator with so many lanes, or CPU lanes and DMA channels together.
//!
//! One [`Choose`] per class of work: folios of about one size, pages that are warm or cold, a reason. It learns from the
//! times of the batches that it is told of, begins with the plain copy, and leaves it for what is measured to be faster.
//!
//! ```
//! use memferry_core::choose::{Batch, Choose, ChooseOption};
//!
//! let two_lanes = ChooseOption { start_ns: 20_000, cpus: 1, channels: 0 };
//! let mut class = Choose::new(&[ChooseOption::default(), two_lanes]);
//! let mut left = 2 << 20;
//! while left > 0 {
//!     let batch = Batch { bytes: left, folio_bytes: 4096, cpus: 1, channels: 0, urgent: false };
//!     let choice = class.choose(&batch);
//!     // Copy the next `choice.bytes` by `choice.option`, and measure that.
//!     class.learn(&choice, 150_000);
//!     left -= choice.bytes;
//! }
//! ```

pub use crate::sys::{Batch, CHOOSE_OPTIONS, CHOOSE_TRIAL, Choice, ChooseOption};

use crate::sys::{self, ChooseState};

/// What one class of work has learnt.
#[derive(Clone, Debug)]
pub struct Choose {
    state: ChooseState,
}

impl Choose {
    /// Begins with nothing known. The first of the options is the plain copy.
    ///
    /// # Panics
    /// If there is no option, or there are more than [`CHOOSE_OPTIONS`].
    pub fn new(options: &[ChooseOption]) -> Self {
        let nr = options.len();
        assert!((1..=CHOOSE_OPTIONS).contains(&nr), "{nr} options");
        let mut state = ChooseState::default();
        // SAFETY: there are so many options, and no more than fit.
        unsafe { sys::ferry_choose_start(&mut state, options.as_ptr(), nr as u32) };
        Self { state }
    }

    /// What copies this batch, or the first part of it: ask again for the rest.
    ///
    /// # Panics
    /// If the batch is empty or its folios' size is no power of two.
    pub fn choose(&mut self, batch: &Batch) -> Choice {
        assert!(
            batch.bytes > 0 && batch.folio_bytes.is_power_of_two(),
            "{batch:?}"
        );
        let mut choice = Choice::default();
        sys::ferry_choose(&mut self.state, batch, &mut choice);
        choice
    }

    /// How long copying the `bytes` of a choice took. A choice that was not followed is not told.
    ///
    /// # Panics
    /// If the choice is not one of this class.
    pub fn learn(&mut self, choice: &Choice, ns: u64) {
        self.check(choice);
        // SAFETY: checked.
        unsafe { sys::ferry_choose_learn(&mut self.state, choice, ns) };
    }

    /// How long each side of a split took, so that the next ones end at the same time.
    ///
    /// # Panics
    /// As [`Choose::learn`].
    pub fn learn_split(&mut self, choice: &Choice, cpu_ns: u64, channel_ns: u64) {
        self.check(choice);
        // SAFETY: checked.
        unsafe { sys::ferry_choose_learn_split(&mut self.state, choice, cpu_ns, channel_ns) };
    }

    fn check(&self, choice: &Choice) {
        let known = choice.bytes > 0 && choice.option < self.state.nr_options;
        assert!(known, "{choice:?} of {} options", self.state.nr_options);
    }
}
