// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who does what next: the pipeline of batches over the lanes, as a state machine that knows no addresses.
//!
//! Each slot carries one batch through its steps. A lane asks for a task, does it and says so. It does no work itself;
//! `pipeline` does. Its locks come from the parent module, so that tests run the same file under a model checker.
//!
//! ```text
//! Free -> Preparing -> Ready -> Unmapping -> Copying (shares) -> Remapping -> Free
//! ```

use super::sync::{Condvar, Mutex, MutexGuard};
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};

/// What a lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Cut the next batch from the range and find destination pages for it. Nothing is away yet.
    Prepare {
        slot: usize,
        /// To be given to `exhausted`.
        epoch: u64,
    },
    /// Move the batch out to staging. One lane at a time: the kernel would serialise two on the range's lock anyway.
    Unmap { slot: usize },
    /// Copy one share of the batch.
    Copy { slot: usize, share: usize },
    /// Put the batch into its place.
    Remap { slot: usize },
    /// Someone forks: wait until that is over. No batch is away.
    AwaitFork,
    /// All batches are done.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Free,
    Preparing,
    Ready,
    Unmapping,
    Copying {
        shares: usize,
        claimed: usize,
        done: usize,
    },
    Remapping,
}

struct Slot {
    step: Step,
    /// Order of preparation: the oldest batch goes first at each step, so that none stays away for long.
    age: u64,
}

struct State {
    slots: List<Slot>,
    next_age: u64,
    /// The range has no further batch.
    no_more: bool,
    /// Counts the times that a lane gave a part of the range back.
    epoch: u64,
    /// Nobody wants a further batch.
    stopped: bool,
    /// An unmap was refused because someone forks.
    forking: bool,
    /// A lane waits for the end of that fork.
    awaiting: bool,
    /// Lanes that sleep. Waking nobody would still cost a system call.
    sleepers: usize,
    /// Lanes below this number take tasks; the others are parked.
    lanes: usize,
    /// Lanes that sleep because they are parked.
    parked: usize,
    /// A lane has found all batches done.
    over: bool,
}

/// Batches at a time of so many lanes: one for each, one that is prepared, and one that comes back.
pub(crate) fn slots_for(lanes: usize) -> usize {
    lanes + 2
}

/// The pipeline's state, shared by the lanes.
pub(crate) struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
    /// Of parked lanes, which no task of the others may wake.
    unparked: Condvar,
    /// How often an idle lane looks again before it sleeps. A sleeping lane takes tens of microseconds to come back,
    /// about as long as a task.
    spins: u32,
}

impl Schedule {
    /// A pipeline of `slots` batches, at least one, on `lanes` lanes.
    pub(crate) fn new(slots: usize, lanes: usize, spins: u32) -> Schedule {
        let mut list = List::new_in(Pages);
        list.resize_with(slots.max(1), || Slot {
            step: Step::Free,
            age: 0,
        });
        let state = State {
            slots: list,
            next_age: 0,
            no_more: false,
            epoch: 0,
            stopped: false,
            forking: false,
            awaiting: false,
            sleepers: 0,
            lanes,
            parked: 0,
            over: false,
        };
        Schedule {
            state: Mutex::new(state),
            changed: Condvar::new(),
            unparked: Condvar::new(),
            spins,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock.
        self.state.lock().unpoisoned()
    }

    /// The next task of a lane; waits while others hold all of them, or while the lane is parked. After `Finished` it leaves.
    pub(crate) fn next(&self, lane: usize) -> Task {
        for _ in 0..self.spins {
            let mut state = self.lock();
            if state.is_parked(lane) {
                break;
            }
            if let Some(task) = state.pick() {
                return self.hand_out(state, task);
            }
            drop(state);
            std::hint::spin_loop();
        }
        let mut state = self.lock();
        loop {
            if state.is_parked(lane) {
                state.parked += 1;
                state = self.unparked.wait(state).unpoisoned();
                state.parked -= 1;
            } else if let Some(task) = state.pick() {
                return self.hand_out(state, task);
            } else {
                state.sleepers += 1;
                state = self.changed.wait(state).unpoisoned();
                state.sleepers -= 1;
            }
        }
    }

    /// The first lane that is finished lets the parked ones finish, too.
    fn hand_out(&self, mut state: MutexGuard<'_, State>, task: Task) -> Task {
        if task == Task::Finished && !state.over {
            state.over = true;
            self.unpark(state);
        }
        task
    }

    fn unpark(&self, state: MutexGuard<'_, State>) {
        let parked = state.parked > 0;
        drop(state);
        if parked {
            self.unparked.notify_all();
        }
    }

    /// From now on so many lanes take tasks, at least one. A lane above them ends the task that it has.
    pub(crate) fn set_lanes(&self, lanes: usize) {
        let mut state = self.lock();
        state.lanes = lanes;
        self.unpark(state);
        // More lanes have more slots, and one of them may sleep for want of a free one.
        self.advance(|_| ());
    }

    fn advance(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let asleep = state.sleepers > 0;
        drop(state);
        if asleep {
            self.changed.notify_all();
        }
    }

    /// The batch of `slot` has pages to move and a place for them.
    pub(crate) fn prepared(&self, slot: usize) {
        self.advance(|s| s.slots[slot].step = Step::Ready);
    }

    /// There was no batch for `slot` in the `epoch` of its task: the range is done, unless a lane gave something back
    /// since.
    pub(crate) fn exhausted(&self, slot: usize, epoch: u64) {
        self.advance(|s| {
            s.slots[slot].step = Step::Free;
            s.no_more |= s.epoch == epoch;
        });
    }

    /// No batch is prepared from now on, and none that is not away leaves.
    pub(crate) fn stop(&self) {
        self.advance(|s| s.stopped = true);
    }

    /// A lane that prepares gave a part of its batch back, so that the range has one after all.
    pub(crate) fn more(&self) {
        self.advance(|s| {
            s.no_more = false;
            s.epoch += 1;
        });
    }

    /// The batch is away, to be copied in `shares` parts.
    pub(crate) fn unmapped(&self, slot: usize, shares: usize) {
        self.advance(|s| {
            s.slots[slot].step = Step::Copying {
                shares,
                claimed: 0,
                done: 0,
            }
        });
    }

    /// Not now, someone forks; nothing is away.
    pub(crate) fn unmap_refused(&self, slot: usize) {
        self.advance(|s| {
            s.slots[slot].step = Step::Ready;
            s.forking = true;
        });
    }

    /// The fork is over.
    pub(crate) fn fork_over(&self) {
        self.advance(|s| {
            s.forking = false;
            s.awaiting = false;
        });
    }

    /// One share is copied (or given up; the batch itself knows).
    pub(crate) fn copied(&self, slot: usize) {
        self.advance(|s| {
            if let Step::Copying { done, .. } = &mut s.slots[slot].step {
                *done += 1;
            }
        });
    }

    /// The slot is free: its batch is over, or there was no memory for one.
    pub(crate) fn free(&self, slot: usize) {
        self.advance(|s| s.slots[slot].step = Step::Free);
    }
}

impl State {
    /// Whether the lane takes no tasks now. What ends all lanes ends it, too.
    fn is_parked(&self, lane: usize) -> bool {
        lane >= self.lanes && !self.over
    }

    /// The most urgent task: what brings pages back comes first, what takes them away last; of each, the oldest batch. Looks at each
    /// slot once. A batch leaves only when all others that are away have a lane at work on each share, or all but one, of which the
    /// other lanes have less than a share each left: they would wait for the lane that unmaps, since that is one at a time. So each
    /// that is away then has a lane, no more are away than there are lanes, and a lane that waits for the fork gate keeps no batch
    /// away that another could bring back.
    fn pick(&mut self) -> Option<Task> {
        // Slot and age of the oldest, or of the first that is free.
        let [mut copied, mut unclaimed, mut ready, mut free] = [None; 4];
        let (mut unmapping, mut away, mut over, mut used) = (false, false, true, 0);
        // Shares that no lane has, and the batches that they are of; whether a lane is at work on each of these.
        let (mut left, mut waiting, mut worked) = (0, 0, true);
        for (index, slot) in self.slots.iter().enumerate() {
            away |= matches!(slot.step, Step::Copying { .. } | Step::Remapping);
            unmapping |= slot.step == Step::Unmapping;
            used += usize::from(slot.step != Step::Free);
            // What is only prepared when the pipeline is stopped stays where it is.
            over &= slot.step == Step::Free || self.stopped && slot.step == Step::Ready;
            if let Step::Copying {
                shares,
                claimed,
                done,
            } = slot.step
            {
                left += shares - claimed;
                waiting += usize::from(claimed < shares);
                worked &= claimed == shares || claimed > done;
            }
            let (oldest, age) = match slot.step {
                Step::Copying { shares, done, .. } if done == shares => (&mut copied, slot.age),
                Step::Copying {
                    shares, claimed, ..
                } if claimed < shares => (&mut unclaimed, slot.age),
                Step::Ready => (&mut ready, slot.age),
                Step::Free => (&mut free, 0),
                _ => continue,
            };
            if oldest.is_none_or(|(_, other)| age < other) {
                *oldest = Some((index, age));
            }
        }
        if let Some((slot, _)) = copied {
            self.slots[slot].step = Step::Remapping;
            return Some(Task::Remap { slot });
        }
        let ready = ready.filter(|_| !unmapping && !self.forking && !self.stopped);
        let early = waiting <= 1 && worked && left + 1 < self.lanes;
        if let Some((slot, _)) = unclaimed.filter(|_| ready.is_none() || !early) {
            if let Step::Copying { claimed, .. } = &mut self.slots[slot].step {
                let share = *claimed;
                *claimed += 1;
                return Some(Task::Copy { slot, share });
            }
        }
        if let Some((slot, _)) = ready {
            self.slots[slot].step = Step::Unmapping;
            return Some(Task::Unmap { slot });
        }
        if self.forking && !self.awaiting && !unmapping && !away {
            self.awaiting = true;
            return Some(Task::AwaitFork);
        }
        let has_room = used < slots_for(self.lanes) && !self.no_more && !self.stopped;
        if let Some((slot, _)) = free.filter(|_| has_room) {
            let age = self.next_age;
            self.next_age += 1;
            self.slots[slot] = Slot {
                step: Step::Preparing,
                age,
            };
            let epoch = self.epoch;
            return Some(Task::Prepare { slot, epoch });
        }
        ((self.no_more || self.stopped) && over).then_some(Task::Finished)
    }
}
