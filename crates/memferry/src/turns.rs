// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn it is: what one thread at a time has, in order of coming, those that hurry first.

use crate::sync::{Condvar, Mutex, Unpoisoned};

/// Who comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    Hurries,
    /// Lets all before that hurry, also who comes later.
    Bides,
}

/// Tickets of both kinds: which are given out, and which had their turn.
#[derive(Default)]
struct State {
    is_taken: bool,
    given: [u64; 2],
    had: [u64; 2],
}

#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    over: Condvar,
}

/// A turn, which ends when it is dropped.
pub(crate) struct Turn<'t>(&'t Turns);

impl Turns {
    /// Waits for a turn.
    pub(crate) fn take(&self, haste: Haste) -> Turn<'_> {
        let (own, first) = (haste as usize, Haste::Hurries as usize);
        let mut state = self.state.lock().unpoisoned();
        let ticket = state.given[own];
        state.given[own] += 1;
        while state.is_taken
            || state.had[own] != ticket
            || (own != first && state.had[first] != state.given[first])
        {
            state = self.over.wait(state).unpoisoned();
        }
        state.had[own] += 1;
        state.is_taken = true;
        Turn(self)
    }

    /// Whether who came now would wait.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.lock().unpoisoned().is_taken
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unpoisoned().is_taken = false;
        // Each has conditions of its own.
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_in_order_of_coming_and_those_that_hurry_are_first() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        assert!(!turns.is_taken());
        std::thread::scope(|scope| {
            let begun = turns.take(Haste::Bides);
            assert!(turns.is_taken());
            let come = [
                (Haste::Bides, 3),
                (Haste::Hurries, 1),
                (Haste::Bides, 4),
                (Haste::Hurries, 2),
            ];
            for (haste, number) in come {
                let given = || turns.state.lock().unwrap().given[haste as usize];
                let before = given();
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take(haste);
                    order.lock().unwrap().push(number);
                });
                while given() == before {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().unwrap().is_empty());
            drop(begun);
        });
        assert_eq!(order.into_inner().unwrap(), [1, 2, 3, 4]);
        assert!(!turns.is_taken());
    }
}
