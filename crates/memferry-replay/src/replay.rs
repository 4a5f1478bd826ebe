// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays a trace: hands each event to the policy, serves it from the tier where its page lies, and counts.
//!
//! It decides nothing: first touches go where the policy places them, moves are the policy's.

use std::time::{Duration, Instant};

use crate::event::Trace;
use crate::machine::{Machine, Timebase, accesses};
use crate::outcome::{Outcome, Run};
use crate::policy::{self, Kind, ParamError, Policy};
use crate::source::Sampler;
use crate::tiers::{BANDS, Tier, Tiers};
use crate::truth::{Slicer, Truth};

/// Replays a trace, which has accesses, under one policy and with a top tier of at least one page. `done` hears from time to time how many events are done, and says whether to go on.
pub fn replay(
    trace: &Trace,
    truth: &Truth,
    machine: &Machine,
    top_pages: u32,
    kind: Kind,
    done: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<Outcome>, ParamError> {
    let mut policy = policy::make(kind, trace, truth, machine, top_pages)?;
    let mut tiers = Tiers::new(trace.pages.len(), top_pages, machine.pays_after());
    let run = drive(trace, truth, machine, policy.as_mut(), &mut tiers, done);
    Ok(run.map(|run| Outcome::of(trace, truth, machine, top_pages, kind, &run)))
}

/// Events, walks and wakes between two calls of `done`: between two events there can be days of walks.
const TOLD_EVERY: u64 = 1 << 12;

/// Asks `done` from time to time whether to go on.
struct Asked<'a> {
    done: &'a mut dyn FnMut(usize) -> bool,
    event: usize,
    rounds: u64,
}

impl Asked<'_> {
    /// `None` to stop.
    fn round(&mut self) -> Option<()> {
        let goes_on = self.rounds % TOLD_EVERY != 0 || (self.done)(self.event);
        self.rounds += 1;
        goes_on.then_some(())
    }
}

/// Runs `policy` over a trace; nothing if it was stopped.
pub(crate) fn drive(
    trace: &Trace,
    truth: &Truth,
    machine: &Machine,
    policy: &mut dyn Policy,
    tiers: &mut Tiers,
    done: &mut dyn FnMut(usize) -> bool,
) -> Option<Run> {
    let base = Timebase::of(trace);
    let mut sampler = Sampler::new(machine.accesses_per_sample(), machine.seed);
    let mut slicer = Slicer::new(trace);
    let hot = truth.hot(tiers.capacity());
    let mut run = Run::default();
    let mut current = usize::MAX;
    let mut watch = Watch::new();
    let walk_ns = machine.walk_ns();
    let mut next_walk = walk_ns;
    let mut asked = Asked {
        done,
        event: 0,
        rounds: 0,
    };
    for (index, event) in trace.events.iter().enumerate() {
        asked.event = index;
        asked.round()?;
        let count = accesses(event);
        let slice = slicer.next(count);
        if slice != current {
            if current != usize::MAX {
                run.end_slice(current, &hot, tiers);
            }
            // Slices that no event begins in are passed over: an event can be longer than a slice.
            for passed in current.wrapping_add(1)..slice {
                run.end_slice(passed, &hot, tiers);
            }
            turn_hot(&hot, current, slice, tiers);
            policy.slice(slice, tiers);
            current = slice;
        }
        let now = base.at(event);
        while policy.samples() && next_walk <= now {
            asked.round()?;
            // What the policy does at the same time sees the walk's reports.
            wake_until(policy, next_walk - 1, tiers, &mut watch, &mut asked)?;
            let mut walks = false;
            watch.time(|| walks = policy.walks(tiers));
            if walks {
                watch.time(|| walk(policy, next_walk, tiers));
                run.walked += u64::from(tiers.pages());
            }
            next_walk += walk_ns;
        }
        wake_until(policy, now, tiers, &mut watch, &mut asked)?;
        if tiers.tier(event.page).is_none() {
            let wanted = policy.place(event.page, tiers);
            let tier = tiers.allocate(event.page, wanted);
            policy.allocated(event.page, tier);
        }
        // The access that a policy acts on is served where it finds its page; those after it where the page is then.
        let first = u64::from(count > 0);
        if count > 0 {
            run.serve(slice, tiers.tier(event.page), first);
            tiers.touch(event.page, first);
            policy.access(event.page, now, tiers);
        }
        run.serve(slice, tiers.tier(event.page), count - first);
        tiers.touch(event.page, count - first);
        let samples = sampler.take(count);
        if policy.samples() {
            for _ in 0..samples {
                watch.time(|| policy.sampled(event.page, now, tiers));
            }
        }
        debug_assert!(tiers.free() <= tiers.capacity());
    }
    run.end_slice(current, &hot, tiers);
    run.account = tiers.close();
    run.tracker_bytes = policy.tracker_bytes();
    run.tracker = watch.total();
    Some(run)
}

/// Lets a policy do what it has to do up to some time; `None` to stop.
fn wake_until(
    policy: &mut dyn Policy,
    now: u64,
    tiers: &mut Tiers,
    watch: &mut Watch,
    asked: &mut Asked<'_>,
) -> Option<()> {
    while policy.next_wake() <= now {
        asked.round()?;
        let at = policy.next_wake();
        watch.time(|| policy.wake(at, tiers));
    }
    Some(())
}

/// Reports the pages that were accessed since the last walk, in address order.
fn walk(policy: &mut dyn Policy, now: u64, tiers: &mut Tiers) {
    for page in 0..tiers.pages() {
        if tiers.take_young(page) {
            policy.report(page, now, tiers);
        }
    }
}

/// Tells the account which pages are hot in a slice or the next: a page promoted just before it is needed is not wrong.
fn turn_hot(hot: &[Vec<u32>], from: usize, to: usize, tiers: &mut Tiers) {
    let both = |slice: usize| {
        hot[slice]
            .iter()
            .chain(hot.get(slice + 1).into_iter().flatten())
            .copied()
    };
    if from != usize::MAX {
        both(from).for_each(|page| tiers.set_hot(page, false));
    }
    both(to).for_each(|page| tiers.set_hot(page, true));
}

impl Run {
    fn serve(&mut self, slice: usize, tier: Option<Tier>, accesses: u64) {
        self.slices[slice].accesses += accesses;
        if tier == Some(Tier::Top) {
            self.slices[slice].top += accesses;
        }
    }

    fn end_slice(&mut self, slice: usize, hot: &[Vec<u32>], tiers: &Tiers) {
        let Some(hot) = hot.get(slice) else {
            return;
        };
        let up = hot
            .iter()
            .filter(|&&page| tiers.tier(page) == Some(Tier::Top));
        self.hot_in_top += up.count() as u64;
        self.hot += hot.len() as u64;
        let account = tiers.close();
        let of = &mut self.slices[slice];
        (of.promoted, of.demoted) = (account.promoted, account.demoted);
        let bands: &[u32; BANDS] = tiers.bands();
        of.bands.clone_from(bands);
    }
}

/// Measures what a policy itself costs, without the cost of looking at the clock.
struct Watch {
    total: Duration,
    calls: u32,
    look: Duration,
}

impl Watch {
    fn new() -> Self {
        const LOOKS: u32 = 256;
        let start = Instant::now();
        for _ in 0..LOOKS {
            std::hint::black_box(Instant::now());
        }
        Self {
            total: Duration::ZERO,
            calls: 0,
            look: start.elapsed() / LOOKS,
        }
    }

    fn time(&mut self, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.total += start.elapsed();
        self.calls = self.calls.saturating_add(1);
    }

    fn total(&self) -> Duration {
        self.total.saturating_sub(self.look * self.calls)
    }
}
