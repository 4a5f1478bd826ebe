// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the source shows of a trace: the truth of an oracle that hears no more than `pghot` and `ours` do.
//!
//! Each report of the source counts as many accesses as the trace has for each report, be it a sample or a page that a walk found
//! accessed; that is all that a report says. First touches are known: they are faults, which the kernel sees.

use crate::event::Trace;
use crate::machine::{Machine, Timebase, accesses};
use crate::source::Sampler;
use crate::truth::{SLICES, Slicer, Truth, Use, harvest};

/// The trace as samples, first touches and a walk at each time that it could be make it look.
pub(crate) fn seen(trace: &Trace, machine: &Machine) -> Truth {
    let pages = trace.pages.len();
    let base = Timebase::of(trace);
    let walk_ns = machine.walk_ns();
    let mut next_walk = walk_ns;
    let mut sampler = Sampler::new(machine.accesses_per_sample(), machine.seed);
    let mut slicer = Slicer::new(trace);
    let mut reports = vec![0; pages];
    let mut slices = vec![Vec::new(); SLICES];
    let mut born = vec![SLICES as u16; pages];
    let mut young = vec![false; pages];
    let mut any_young = false;
    let mut current = 0;
    for event in &trace.events {
        let count = accesses(event);
        let slice = slicer.next(count);
        // What a walk finds was accessed before it: it belongs to the slice that ends.
        let now = base.at(event);
        if next_walk <= now {
            // The walks after the first find nothing.
            if std::mem::take(&mut any_young) {
                for (young, count) in young.iter_mut().zip(&mut reports) {
                    *count += u64::from(std::mem::take(young));
                }
            }
            next_walk += ((now - next_walk) / walk_ns + 1) * walk_ns;
        }
        if slice != current {
            slices[current] = take_all(&mut reports);
            current = slice;
        }
        let page = event.page as usize;
        let first = born[page] == SLICES as u16;
        born[page] = born[page].min(slice as u16);
        young[page] |= count > 0;
        any_young |= count > 0;
        reports[page] += sampler.take(count).max(u64::from(first));
    }
    slices[current] = take_all(&mut reports);
    let total = slicer.total();
    let all: u64 = slices.iter().flatten().map(|used| used.accesses).sum();
    for used in slices.iter_mut().flatten() {
        let share = u128::from(used.accesses) * u128::from(total) / u128::from(all.max(1));
        used.accesses = (share as u64).max(1);
    }
    Truth {
        slices,
        born,
        accesses: total,
    }
}

/// The reports of a slice by page; the next slice has none yet.
fn take_all(reports: &mut [u64]) -> Vec<Use> {
    let mut touched = (0..reports.len() as u32).collect();
    let mut uses = harvest(&mut touched, reports);
    uses.retain(|used| used.accesses > 0);
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MS;
    use crate::synthetic;

    #[test]
    fn a_source_that_reports_every_access_shows_the_truth() {
        let trace = synthetic::phases(300, 30_000, 4, 1);
        let machine = Machine {
            sample_period: 1,
            accesses_per_miss: 1,
            walk_ms: 0,
            ..Machine::default()
        };
        let (shown, truth) = (seen(&trace, &machine), Truth::of(&trace));
        assert_eq!((shown.slices, shown.born), (truth.slices, truth.born));
    }

    #[test]
    fn a_source_that_reports_nothing_shows_first_touches() {
        let trace = synthetic::zipf(300, 30_000, 1);
        let machine = Machine {
            sample_period: 0,
            walk_ms: 0,
            ..Machine::default()
        };
        let shown = seen(&trace, &machine);
        let uses: Vec<_> = shown.slices.iter().flatten().collect();
        assert_eq!(uses.len(), 300);
        assert!(uses.iter().all(|used| used.accesses == uses[0].accesses));
    }

    #[test]
    fn a_walk_shows_each_page_once() {
        let trace = synthetic::zipf(300, 30_000, 1);
        let machine = Machine {
            sample_period: 0,
            ..Machine::default()
        };
        let shown = seen(&trace, &machine);
        let walks = Timebase::of(&trace).at(trace.events.last().expect("events")) / (250 * MS);
        let most = (walks + 1) * 300;
        let reports = shown.slices.iter().flatten().count() as u64;
        assert!(
            walks > 3 && reports > 600 && reports <= most,
            "{reports} of {most}"
        );
    }
}
