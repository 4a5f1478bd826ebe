// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which nodes the pages of a process lie. It asks and moves nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Process, Survey};
use crate::error::MoveError;
use crate::move_pages::{Call, Fate, Target, explain, on_threads};
use crate::result::Count;
use crate::sync::Unpoisoned;
use memferry_linux::pagemap::Pagemap;

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
            from: None,
            node: 0,
            shared: false,
        };
        let census = Mutex::new(Census::default());
        let failure = Mutex::new(None);
        self.each_part(survey, target, callers, cancel, &|call, part| {
            let mut found: Vec<(u32, u64)> = Vec::new();
            let mut book = |fate: Fate| {
                if let Ok(node) = u32::try_from(fate.status) {
                    found.push((node, fate.bytes as u64));
                }
            };
            if let Err(error) = call.look(part, &mut book) {
                let mut failure = failure.lock().unpoisoned();
                failure.get_or_insert(error);
                return false;
            }
            let mut census = census.lock().unpoisoned();
            for (node, bytes) in found {
                census.nodes.entry(node).or_default().add(1, bytes);
            }
            true
        });
        match failure.into_inner().unpoisoned() {
            Some(_) if self.has_ended() => Err(self.gone()),
            Some(error) => Err(explain(error, 0)),
            None => Ok(census.into_inner().unpoisoned()),
        }
    }

    /// It ended before anything was done.
    pub(super) fn gone(&self) -> MoveError {
        MoveError::NoProcess {
            pid: self.pid(),
            why: "it has ended",
            hint: "give the number of a running program",
        }
    }

    /// Gives each part of a survey to one of `callers` threads, until one of them returns false or `cancel` is set; says
    /// whether all parts were done.
    pub(super) fn each_part(
        &self,
        survey: &Survey,
        target: Target,
        callers: usize,
        cancel: &AtomicBool,
        work: &(dyn Fn(&mut Call<'_>, &std::ops::Range<usize>) -> bool + Sync),
    ) -> bool {
        let pagemap = Pagemap::with_scan(&self.folder);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        let caller = || {
            let mut call = Call::new(target, pagemap.as_ref());
            while !stop.load(Ordering::Relaxed) && !cancel.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = survey.parts.get(index) else {
                    return;
                };
                if work(&mut call, part) {
                    done.fetch_add(1, Ordering::Relaxed);
                } else {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        on_threads(callers, caller);
        done.into_inner() == survey.parts.len()
    }
}
