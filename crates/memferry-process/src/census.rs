// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which nodes the pages of a process lie. It asks and moves nothing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use super::{Process, Survey};
use memferry::move_pages::{Fate, NOWHERE, Target, explain};
use memferry::{Count, MoveError};

/// Where pages lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Pages by node; a THP counts as one where the kernel tells it apart.
    pub nodes: BTreeMap<u32, Count>,
}

impl Process {
    /// Asks where the pages of a survey lie, with `callers` threads, until `cancel` is set.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn census(
        &self,
        survey: &Survey,
        callers: usize,
        cancel: &AtomicBool,
    ) -> Result<Census, MoveError> {
        let target = Target {
            pid: self.pid,
            from: Some(NOWHERE),
            node: 0,
            shared: false,
        };
        let census = Mutex::new(Census::default());
        let book = |fate: &Fate| {
            if let Ok(node) = u32::try_from(fate.status) {
                let mut census = census.lock().unwrap_or_else(PoisonError::into_inner);
                let count = census.nodes.entry(node).or_default();
                count.add(fate.folios(), fate.bytes as u64);
            }
        };
        match self.carry(survey, target, callers, (cancel, None), &book) {
            Ok(false) | Err(_) if self.is_gone() => Err(self.gone()),
            Err(error) => Err(explain(error, 0)),
            // Also what was found until it was cancelled.
            Ok(_) => Ok(census.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
