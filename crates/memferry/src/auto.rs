// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lanes carry a move, and which routine copies: `memferry_core::choose` says so for each span of it, from what
//! earlier spans of that kind took. docs/design/choose.md has what a span is, and what moves begin with.
//!
//! `pipeline::span` measures; nothing here knows pages.

use crate::copy::{self, Routine};
use crate::pool::SEGMENT;
use crate::sync::Unpoisoned;
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use memferry_core::choose::{Batch, CHOOSE_OPTIONS, Choice, Choose, ChooseOption};
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of a span of up to so many lanes: as many batches as they have under way, and as many again.
pub(crate) fn span(most: usize) -> usize {
    2 * SEGMENT * most.max(2).next_power_of_two()
}

/// Bytes from which on a move is a long one.
const LONG: usize = 8 << 20;

/// The most that calling further lanes takes: a sleeping thread of a virtual machine comes back within 50 us.
const WAKE_NS: u32 = 50_000;

/// What a span is made of; each kind has costs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// THPs, else base pages.
    pub huge: bool,
    /// The destination pages were there, else they are allocated.
    pub warm: bool,
}

/// How many there are.
const KINDS: usize = 4;

/// One way to carry a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub lanes: usize,
    pub routine: Routine,
}

/// How a span is carried.
#[derive(Clone, Copy)]
pub struct Decision {
    pub way: Way,
    pub choice: Choice,
    /// Of a move of at least a span.
    pub long: bool,
}

/// What chooses for a pipeline.
pub trait Chooser: Sync {
    /// Bytes of a span.
    fn span(&self) -> usize;

    /// How to carry the next span, of at most `bytes` bytes, and how long it is.
    fn choose(&self, kind: Kind, bytes: usize) -> Decision;

    /// How long `decision.choice.bytes` took.
    fn learn(&self, kind: Kind, decision: &Decision, took: Duration);
}

/// What spans of a kind took, of short moves or of long ones. Moves of several threads that meet here lose a sample or stay
/// with the plain way: a lock would hold up pages that are away, and a child of fork might wait for it for ever.
pub(crate) struct Class {
    /// The first one is the plain way.
    ways: List<Way>,
    choose: Mutex<Choose>,
}

impl Class {
    /// Nothing is known yet of these lanes with these routines. The first of both are the plain way.
    fn new(lanes: &[usize], routines: &[Routine]) -> Class {
        let mut ways = List::new_in(Pages);
        for &routine in routines {
            ways.extend(lanes.iter().map(|&lanes| Way { lanes, routine }));
        }
        let options: Vec<ChooseOption> = (ways.iter())
            .map(|way| ChooseOption {
                start_ns: if way.lanes > 1 { WAKE_NS } else { 0 },
                ..ChooseOption::default()
            })
            .collect();
        let choose = Mutex::new(Choose::new(&options));
        Class { ways, choose }
    }

    /// One for each [`Kind::class`]. Short moves begin with one lane: waking another may take longer than they do. Long ones
    /// begin with all. THPs to cold places begin with memcpy: the kernel has just zeroed the destination, in the caches.
    fn of_lanes(most: usize, routines: &[Routine]) -> List<Class> {
        let (up, down) = (counts(most), counts(most).into_iter().rev().collect());
        let cached: Vec<Routine> = routines.iter().rev().copied().collect();
        let mut classes = List::with_capacity_in(2 * KINDS, Pages);
        for lanes in [up, down] {
            for routines in [routines, routines, &cached, routines] {
                classes.push(Class::new(&lanes, routines));
            }
        }
        classes
    }

    /// What this process has learnt with up to `most` lanes and the library's own settings. Its movers share it: they run on
    /// the same CPUs, and one that lives for a single move would learn nothing.
    fn of_process(most: usize) -> &'static [Class] {
        static CLASSES: Mutex<Vec<(usize, &[Class])>> = Mutex::new(Vec::new());
        let mut known = CLASSES.lock().unpoisoned();
        if let Some((_, classes)) = known.iter().find(|(lanes, _)| *lanes == most) {
            return classes;
        }
        let classes = Class::of_lanes(most, &routines()).leak();
        known.push((most, classes));
        classes
    }
}

/// 1, 2, 4 … below `most`, and that: so few that there is room for two routines.
fn counts(most: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |lanes| Some(lanes * 2));
    let mut counts: Vec<usize> = doubled.take_while(|&lanes| lanes < most).collect();
    counts.truncate(CHOOSE_OPTIONS / 2 - 1);
    counts.push(most.max(1));
    counts
}

/// The fastest around the caches, and memcpy, which goes through them; the one that the environment names is alone.
fn routines() -> Vec<Routine> {
    let best = copy::best();
    let mut routines = vec![best];
    let is_asked_for = copy::requested().ok().flatten().is_some();
    routines.extend(Some(copy::memcpy()).filter(|other| *other != best && !is_asked_for));
    routines
}

/// What chooses for the moves of one `MtCopy`.
pub(crate) struct Auto {
    most: usize,
    classes: Classes,
}

enum Classes {
    Process(&'static [Class]),
    Own(List<Class>),
}

impl Auto {
    /// Of up to `most` lanes, with the library's own settings.
    pub(crate) fn shared(most: usize) -> Auto {
        let classes = Classes::Process(Class::of_process(most));
        Auto { most, classes }
    }

    /// With costs of its own, as its workers or its routine are not those of other movers.
    pub(crate) fn alone(most: usize, routine: Option<Routine>) -> Auto {
        let routines = routine.map_or_else(routines, |routine| vec![routine]);
        let classes = Classes::Own(Class::of_lanes(most, &routines));
        Auto { most, classes }
    }

    fn class(&self, kind: Kind, long: bool) -> &Class {
        let classes: &[Class] = match &self.classes {
            Classes::Process(classes) => classes,
            Classes::Own(classes) => classes,
        };
        &classes[kind.class(long)]
    }
}

impl Chooser for Auto {
    fn span(&self) -> usize {
        span(self.most)
    }

    fn choose(&self, kind: Kind, bytes: usize) -> Decision {
        let span = self.span();
        let long = bytes >= LONG;
        let batch = Batch {
            bytes: bytes as u64,
            // A part cannot be measured by itself: after a change of lanes it ends with the batches of those before.
            folio_bytes: span as u64,
            cpus: 0,
            channels: 0,
            // Nothing is to be gained, and whoever moves single pages waits for each.
            urgent: bytes <= page_size(),
        };
        let plain = Choice {
            bytes: batch.bytes,
            ..Choice::default()
        };
        let class = self.class(kind, long);
        let known = class.choose.try_lock();
        let choice = known.map_or(plain, |mut known| known.choose(&batch));
        let way = class.ways[choice.option as usize];
        Decision { way, choice, long }
    }

    fn learn(&self, kind: Kind, decision: &Decision, took: Duration) {
        if let Ok(mut known) = self.class(kind, decision.long).choose.try_lock() {
            known.learn(&decision.choice, took.as_nanos() as u64);
        }
    }
}

impl Kind {
    fn class(self, long: bool) -> usize {
        usize::from(long) * KINDS + (usize::from(self.huge) << 1 | usize::from(self.warm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: usize = LONG;
    const WARM: Kind = Kind {
        huge: false,
        warm: true,
    };

    /// `count` times `bytes` of a kind, which take these times by lanes, ns; how many had other than `plain` lanes.
    fn other_than(
        plain: usize,
        auto: &Auto,
        (kind, bytes): (Kind, usize),
        count: usize,
        ns: fn(usize) -> u64,
    ) -> usize {
        (0..count)
            .filter(|_| {
                let decision = auto.choose(kind, bytes);
                let lanes = decision.way.lanes;
                auto.learn(kind, &decision, Duration::from_nanos(ns(lanes)));
                lanes != plain
            })
            .count()
    }

    fn two_lanes() -> Auto {
        Auto::alone(2, Some(copy::memcpy()))
    }

    /// Twice the lanes take half the time, and the other way round.
    const FASTER: fn(usize) -> u64 = |lanes| 2_000_000 / lanes as u64;
    const SLOWER: fn(usize) -> u64 = |lanes| 1_000_000 * lanes as u64;

    #[test]
    fn lanes_double_up_to_the_most_and_two_routines_fit() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(256), [1, 2, 4, 8, 16, 32, 64, 256]);
        assert!(routines().len() <= 2);
    }

    #[test]
    fn short_moves_begin_with_one_lane_and_long_ones_with_all() {
        for most in [1, 2, 3, 8] {
            let auto = Auto::alone(most, None);
            for bytes in [page_size(), 1 << 20, LONG - 1, LONG] {
                let plain = if bytes < LONG { 1 } else { most };
                assert_eq!(auto.choose(WARM, bytes).way.lanes, plain);
                assert_eq!(other_than(plain, &auto, (WARM, bytes), 64, FASTER), 0);
            }
        }
    }

    #[test]
    fn thps_to_cold_places_begin_with_memcpy_and_all_others_go_around_the_caches() {
        for (huge, warm) in [(false, false), (false, true), (true, false), (true, true)] {
            let (kind, best) = (Kind { huge, warm }, *routines().first().unwrap());
            let through = if huge && !warm { copy::memcpy() } else { best };
            for bytes in [SPAN / 2, SPAN] {
                let way = Auto::alone(2, None).choose(kind, bytes).way;
                assert_eq!(way.routine, through, "{kind:?}");
            }
            let asked = Auto::alone(2, Some(best)).choose(kind, SPAN).way;
            assert_eq!(asked.routine, best);
        }
    }

    #[test]
    fn what_is_slower_is_tried_at_most_once_in_64_and_not_taken() {
        let auto = two_lanes();
        let tried = other_than(2, &auto, (WARM, SPAN), 6400, FASTER);
        assert!((1..=100).contains(&tried), "{tried}");
        let tried = other_than(1, &auto, (WARM, SPAN / 2), 6400, SLOWER);
        assert!((1..=100).contains(&tried), "{tried}");
    }

    #[test]
    fn what_is_faster_is_taken_for_its_kind_and_length_alone() {
        let auto = two_lanes();
        other_than(2, &auto, (WARM, SPAN), 2000, SLOWER);
        assert!(other_than(2, &auto, (WARM, SPAN), 100, SLOWER) >= 98);
        other_than(1, &auto, (WARM, SPAN / 2), 2000, FASTER);
        assert!(other_than(1, &auto, (WARM, SPAN / 2), 100, FASTER) >= 98);
        let cold = Kind {
            warm: false,
            ..WARM
        };
        assert_eq!(other_than(2, &auto, (cold, SPAN), 64, SLOWER), 0);
        assert_eq!(other_than(1, &auto, (cold, SPAN / 2), 64, FASTER), 0);
    }

    #[test]
    fn a_single_page_is_never_tried_with_more_lanes_and_a_thp_is() {
        let page = (WARM, page_size());
        assert_eq!(other_than(1, &two_lanes(), page, 5000, FASTER), 0);
        let thp = (Kind { huge: true, ..WARM }, SEGMENT);
        assert!(other_than(1, &two_lanes(), thp, 5000, FASTER) >= 4000);
    }

    #[test]
    fn what_is_tried_is_as_long_as_what_is_measured() {
        let auto = two_lanes();
        for bytes in [SPAN / 2, SPAN] {
            let mut trials = 0;
            for _ in 0..2000 {
                let decision = auto.choose(WARM, bytes);
                assert_eq!(decision.choice.bytes, bytes as u64);
                trials += usize::from(decision.choice.trial);
                auto.learn(WARM, &decision, Duration::from_micros(1500));
            }
            assert!(trials > 5, "{trials}");
        }
    }

    #[test]
    fn movers_of_as_many_lanes_learn_together() {
        let list = |auto: &Auto| std::ptr::from_ref(auto.class(WARM, true));
        let own = Auto::alone(2, None);
        let first = list(&Auto::shared(2));
        assert_eq!(first, list(&Auto::shared(2)));
        assert_ne!(first, list(&Auto::shared(3)));
        assert_ne!(first, list(&own));
    }
}
