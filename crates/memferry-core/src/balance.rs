// SPDX-License-Identifier: MIT OR Apache-2.0
//! Balance: what one round of tiering does, after the records were aged. The caller moves the pages.
//!
//! The order of a round: [`Balance::room`], [`Balance::fill`], then the exchange of [`Policy`] with [`bar`] for
//! pages that bounced.

pub use crate::sys::BalanceParams;

use crate::hotness::{Cut, Histogram, Params, Policy, Record};
use crate::sys::{self, BalanceState};
use std::mem::MaybeUninit;

/// Numbers for a source that walks page tables four times a second, and a round after each: those of the records, and those
/// of the rounds.
pub fn defaults<R: Record>() -> (Params, BalanceParams) {
    let (mut hot, mut params) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    sys::ferry_balance_defaults(R::FORMAT, &mut hot, &mut params);
    // SAFETY: the function writes both structures whole.
    unsafe { (hot.assume_init(), params.assume_init()) }
}

/// The state of one top tier.
#[derive(Clone, Debug)]
pub struct Balance {
    params: BalanceParams,
    state: BalanceState,
}

impl Balance {
    /// Begins with no room kept.
    ///
    /// # Panics
    /// If a shift is 64 or more.
    pub fn new(params: BalanceParams) -> Self {
        assert!(
            params.fade_shift < 64 && params.most_shift < 64,
            "shifts must be from 0 to 63: {params:?}"
        );
        Self {
            params,
            state: BalanceState::default(),
        }
    }

    /// The numbers.
    pub fn params(&self) -> &BalanceParams {
        &self.params
    }

    /// Pages of the top tier to demote, so that as many new ones find room as came lately: the coldest, of at most
    /// [`idle`] heat. `born` pages were touched first since the last round.
    pub fn room(&mut self, born: u64, capacity: u64, free: u64) -> u64 {
        sys::ferry_balance_room(&mut self.state, &self.params, born, capacity, free)
    }

    /// The hottest pages of the lower tier that fit the space that is free beyond that room, at most `budget`, and how many
    /// those can be.
    pub fn fill<R: Record>(
        &self,
        policy: &Policy<R>,
        lower: &Histogram,
        free: u64,
        budget: u64,
    ) -> (Cut, u64) {
        let mut cut = Cut::default();
        let params = policy.params();
        let pages = sys::ferry_balance_fill(&self.state, params, lower, free, budget, &mut cut);
        (cut, pages)
    }
}

/// Up to which heat a page makes room for a new one.
pub fn idle<R: Record>(policy: &Policy<R>) -> u32 {
    sys::ferry_balance_idle(policy.params())
}

/// The least heat with which a page of so many bounces takes part in an exchange whose border is `heat`.
pub fn bar<R: Record>(policy: &Policy<R>, heat: u32, bounces: u32) -> u32 {
    sys::ferry_balance_bar(policy.params(), heat, bounces)
}
