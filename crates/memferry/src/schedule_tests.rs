// SPDX-License-Identifier: MIT OR Apache-2.0
//! `schedule` under a model checker: every interleaving of small pipelines, and random ones of larger.
//!
//! It compiles the same source with shuttle's locks instead of the standard library's.
mod sync {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}
#[allow(
    clippy::duplicate_mod,
    reason = "the same source with other locks is what is checked"
)]
#[path = "schedule.rs"]
#[allow(dead_code, reason = "the model needs less than the mover")]
mod schedule;

use schedule::{Schedule, Task};
use shuttle::sync::{Arc, Mutex};

/// What the lanes did to each batch.
#[derive(Default)]
struct Log {
    prepared: usize,
    unmapped: usize,
    copied: Vec<usize>,
    remapped: usize,
    unmapping: bool,
    away: usize,
    refused: bool,
    waited: bool,
}

/// Runs `batches` batches of `shares` shares over `lanes` lanes and `slots` slots, and asserts that each step of
/// each batch happened once, in order; one unmap is refused as if someone forked.
fn pipeline(lanes: usize, slots: usize, batches: usize, shares: usize, fork: bool) {
    let work = Work {
        lanes,
        slots,
        batches,
        shares,
        fork,
    };
    let log = carry(lanes, work, None);
    let log = log.lock().unwrap();
    assert_eq!(
        (log.prepared, log.unmapped, log.remapped, log.away),
        (batches, batches, batches, 0)
    );
    assert_eq!((log.refused, log.waited), (fork, fork));
}

/// What the lanes of a model carry.
#[derive(Clone, Copy)]
struct Work {
    lanes: usize,
    slots: usize,
    batches: usize,
    shares: usize,
    fork: bool,
}

/// Carries the work with so many of its lanes at first, while a thread beside them does something to the schedule.
fn carry(lanes: usize, work: Work, beside: Option<fn(&Schedule)>) -> Arc<Mutex<Log>> {
    let schedule = Arc::new(Schedule::new(work.slots, lanes, 0));
    let log = Arc::new(Mutex::new(Log::default()));
    let lane = |number| {
        let (schedule, log) = (Arc::clone(&schedule), Arc::clone(&log));
        shuttle::thread::spawn(move || lane(number, &schedule, &log, work))
    };
    let mut threads: Vec<_> = (0..work.lanes).map(lane).collect();
    threads.extend(beside.map(|beside| {
        let schedule = Arc::clone(&schedule);
        shuttle::thread::spawn(move || beside(&schedule))
    }));
    for thread in threads {
        thread.join().unwrap();
    }
    log
}

fn lane(number: usize, schedule: &Schedule, log: &Mutex<Log>, work: Work) {
    loop {
        match schedule.next(number) {
            Task::Prepare { slot, epoch } => {
                let mut log = log.lock().unwrap();
                log.copied.resize(work.slots, 0);
                if log.prepared == work.batches {
                    drop(log);
                    schedule.exhausted(slot, epoch);
                } else {
                    log.prepared += 1;
                    drop(log);
                    schedule.prepared(slot);
                }
            }
            Task::Unmap { slot } => {
                {
                    let mut log = log.lock().unwrap();
                    if work.fork && !log.refused {
                        log.refused = true;
                        drop(log);
                        schedule.unmap_refused(slot);
                        continue;
                    }
                    assert!(!log.unmapping, "two lanes unmap at once");
                    log.unmapping = true;
                }
                {
                    let mut log = log.lock().unwrap();
                    log.unmapping = false;
                    log.unmapped += 1;
                    log.away += 1;
                    assert!(log.away <= work.lanes, "{} batches are away", log.away);
                    log.copied[slot] = 0;
                }
                schedule.unmapped(slot, work.shares);
            }
            Task::Copy { slot, share } => {
                assert!(share < work.shares);
                log.lock().unwrap().copied[slot] += 1;
                schedule.copied(slot);
            }
            Task::Remap { slot } => {
                let mut log = log.lock().unwrap();
                assert_eq!(
                    log.copied[slot], work.shares,
                    "remapped before all shares were copied"
                );
                log.remapped += 1;
                log.away -= 1;
                drop(log);
                schedule.free(slot);
            }
            Task::AwaitFork => {
                let mut log = log.lock().unwrap();
                assert_eq!(log.away, 0, "waits for a fork with pages away");
                log.waited = true;
                drop(log);
                schedule.fork_over();
            }
            Task::Finished => return,
        }
    }
}

#[test]
fn every_interleaving_of_two_lanes_carries_each_batch_once() {
    shuttle::check_dfs(|| pipeline(2, 1, 1, 2, false), Some(20_000));
    shuttle::check_dfs(|| pipeline(2, 2, 2, 1, false), Some(20_000));
}

#[test]
fn random_interleavings_of_more_lanes_carry_each_batch_once() {
    shuttle::check_random(|| pipeline(4, 6, 9, 4, false), 2_000);
    shuttle::check_pct(|| pipeline(3, 5, 6, 3, false), 2_000, 3);
}

#[test]
fn a_fork_waits_for_all_pages_and_the_pipeline_goes_on() {
    shuttle::check_random(|| pipeline(3, 5, 6, 3, true), 2_000);
    shuttle::check_dfs(|| pipeline(2, 2, 1, 2, true), Some(20_000));
}

/// A range of two batches whose first preparation cuts one too large and gives the rest back: by then another lane may
/// have found the end.
#[test]
fn what_a_lane_gives_back_is_carried_too() {
    let body = || {
        let schedule = Arc::new(Schedule::new(3, 2, 0));
        // Batches in the range, and batches brought back.
        let range = Arc::new(Mutex::new((1, 0)));
        let lanes: Vec<_> = (0..2)
            .map(|number| {
                let (schedule, range) = (Arc::clone(&schedule), Arc::clone(&range));
                shuttle::thread::spawn(move || {
                    let mut gave = false;
                    loop {
                        match schedule.next(number) {
                            Task::Prepare { slot, epoch } => {
                                let mut left = range.lock().unwrap();
                                if left.0 == 0 {
                                    drop(left);
                                    schedule.exhausted(slot, epoch);
                                    continue;
                                }
                                left.0 -= 1;
                                let first = left.1 == 0 && !gave;
                                drop(left);
                                if first {
                                    gave = true;
                                    range.lock().unwrap().0 += 1;
                                    schedule.more();
                                }
                                schedule.prepared(slot);
                            }
                            Task::Unmap { slot } => schedule.unmapped(slot, 1),
                            Task::Copy { slot, .. } => schedule.copied(slot),
                            Task::Remap { slot } => {
                                range.lock().unwrap().1 += 1;
                                schedule.free(slot);
                            }
                            Task::AwaitFork => unreachable!("nobody forks"),
                            Task::Finished => return,
                        }
                    }
                })
            })
            .collect();
        for lane in lanes {
            lane.join().unwrap();
        }
        let range = range.lock().unwrap();
        assert!(range.0 == 0 && range.1 >= 2, "{range:?}");
    };
    shuttle::check_random(body, 3_000);
    shuttle::check_pct(body, 3_000, 3);
}

#[test]
fn a_stopped_pipeline_brings_back_what_is_away() {
    let body = || {
        let work = Work {
            lanes: 2,
            slots: 3,
            batches: 50,
            shares: 2,
            fork: false,
        };
        let log = carry(2, work, Some(Schedule::stop));
        let log = log.lock().unwrap();
        assert_eq!((log.unmapped, log.away), (log.remapped, 0));
    };
    shuttle::check_random(body, 2_000);
}

/// Lanes come and go while batches are on their way, as a thread beside them says.
#[test]
fn lanes_that_are_parked_and_called_again_carry_each_batch_once() {
    let body = || {
        let work = Work {
            lanes: 3,
            slots: 5,
            batches: 6,
            shares: 2,
            fork: false,
        };
        let come_and_go = |schedule: &Schedule| {
            for lanes in [3, 1, 2, 1] {
                schedule.set_lanes(lanes);
            }
        };
        let log = carry(1, work, Some(come_and_go));
        let log = log.lock().unwrap();
        assert_eq!(
            (log.prepared, log.unmapped, log.remapped, log.away),
            (6, 6, 6, 0)
        );
    };
    shuttle::check_random(body, 3_000);
    shuttle::check_pct(body, 3_000, 3);
}
