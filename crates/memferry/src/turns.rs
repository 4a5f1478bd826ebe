// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn it is: what one thread at a time has, in order of coming, those that hurry first.

use crate::sync::{Condvar, Mutex, MutexGuard, Unpoisoned};
use crate::sys::list::{List, Pages};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Until a waiter looks again whether it is cancelled: below what a person notices.
const LOOK: Duration = Duration::from_millis(50);

/// Who comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    Hurries,
    /// Lets all before that hurry, also those that come later.
    Bides,
}

/// Tickets of both kinds.
struct State {
    is_taken: bool,
    /// How many were given out, and how many had their turn or gave it up.
    given: [u64; 2],
    had: [u64; 2],
    /// Those that were given up before their turn.
    gone: List<(usize, u64)>,
}

impl State {
    /// Passes over tickets that were given up.
    fn skip(&mut self) {
        while let Some(at) = (self.gone.iter()).position(|&(kind, of)| self.had[kind] == of) {
            let (kind, _) = self.gone.swap_remove(at);
            self.had[kind] += 1;
        }
    }

    fn is_next(&self, kind: usize, ticket: u64) -> bool {
        let first = Haste::Hurries as usize;
        let none_hurries = kind == first || self.had[first] == self.given[first];
        !self.is_taken && self.had[kind] == ticket && none_hurries
    }
}

pub(crate) struct Turns {
    state: Mutex<State>,
    over: Condvar,
    /// Those that take turns one after the other, and are between two of them or in one.
    under_way: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            state: Mutex::new(State {
                is_taken: false,
                given: [0; 2],
                had: [0; 2],
                gone: List::new_in(Pages),
            }),
            over: Condvar::new(),
            under_way: AtomicUsize::new(0),
        }
    }
}

/// A turn, which ends when it is dropped.
pub(crate) struct Turn<'t>(&'t Turns);

/// Somebody who takes several turns, until it is dropped.
pub(crate) struct UnderWay<'t>(&'t Turns);

impl Turns {
    /// Waits for a turn; `None` if `cancel` is raised before.
    pub(crate) fn take(&self, haste: Haste, cancel: &AtomicBool) -> Option<Turn<'_>> {
        let kind = haste as usize;
        let mut state = self.lock();
        let ticket = state.given[kind];
        state.given[kind] += 1;
        while !state.is_next(kind, ticket) {
            if cancel.load(Ordering::Relaxed) {
                state.gone.push((kind, ticket));
                state.skip();
                self.over.notify_all();
                return None;
            }
            let waited = self.over.wait_timeout(state, LOOK);
            state = waited.unpoisoned().0;
        }
        state.had[kind] += 1;
        state.skip();
        state.is_taken = true;
        Some(Turn(self))
    }

    /// Notes that turns are taken one after the other.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Whether who came now might wait for more than a moment.
    pub(crate) fn is_wanted(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0 || self.lock().is_taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_taken = false;
        // Each has conditions of its own.
        self.0.over.notify_all();
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_in_order_of_coming_and_those_that_hurry_are_first() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        let (never, cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
        assert!(!turns.is_wanted());
        std::thread::scope(|scope| {
            let begun = turns.take(Haste::Bides, &never);
            assert!(turns.is_wanted());
            let come = [
                (Haste::Bides, 3, &never),
                (Haste::Hurries, 1, &never),
                (Haste::Hurries, 5, &cancelled),
                (Haste::Bides, 6, &cancelled),
                (Haste::Bides, 4, &never),
                (Haste::Hurries, 2, &never),
            ];
            for (haste, number, cancel) in come {
                let given = || turns.lock().given[haste as usize];
                let before = given();
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let turn = turns.take(haste, cancel);
                    if turn.is_some() {
                        order.lock().unwrap().push(number);
                    }
                });
                while given() == before {
                    std::thread::yield_now();
                }
            }
            cancelled.store(true, Ordering::Relaxed);
            while turns.lock().gone.len() < 2 {
                std::thread::yield_now();
            }
            assert!(order.lock().unwrap().is_empty());
            drop(begun);
        });
        assert_eq!(order.into_inner().unwrap(), [1, 2, 3, 4]);
        assert!(!turns.is_wanted() && turns.lock().gone.is_empty());
    }

    #[test]
    fn one_that_bides_is_cancelled_while_others_hurry_all_the_time() {
        let (turns, cancel) = (Turns::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _hurries = turns.take(Haste::Hurries, &cancel);
            let biding = scope.spawn(|| turns.take(Haste::Bides, &cancel).is_none());
            cancel.store(true, Ordering::Relaxed);
            assert!(biding.join().unwrap());
        });
    }
}
