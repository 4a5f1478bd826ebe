// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lanes carry a move, and which routine copies: `memferry_core::choose` says so for each span of it, from what
//! earlier spans of that kind took. docs/design/choose.md has what a span is, and what moves begin with.
//!
//! `pipeline::span` measures; nothing here knows pages.

use crate::copy::{self, Routine};
use crate::pool::SEGMENT;
use crate::sync::MadeOnce;
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

/// What a span's time tells of.
#[derive(Clone, Copy)]
pub enum Sample {
    /// The class was in use by another thread: nothing.
    Lost,
    /// The choice of lanes, of this routine if they race.
    Chosen(usize),
    /// The span of this number in a race.
    Raced(u32),
}

/// How a span is carried.
#[derive(Clone, Copy)]
pub struct Decision {
    pub way: Way,
    pub choice: Choice,
    /// Of a move of at least a span.
    pub long: bool,
    pub of: Sample,
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
    /// Each routine with all numbers of lanes. The first one is the plain way.
    ways: List<Way>,
    known: Mutex<Known>,
}

struct Known {
    /// The routines race, and have choices of their own; else all ways are options of one.
    race: Option<Race>,
    choose: List<Choose>,
    /// The option that was chosen last, if not for a trial.
    option: u32,
}

impl Class {
    /// Nothing is known yet of these lanes with these routines. The first of both are the plain way.
    fn new(lanes: &[usize], routines: &[Routine], race: bool) -> Class {
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
        let race = (race && routines.len() == 2).then(Race::default);
        let choices = 1 + usize::from(race.is_some());
        let mut choose = List::with_capacity_in(choices, Pages);
        choose.resize(choices, Choose::new(&options[..ways.len() / choices]));
        let known = Mutex::new(Known {
            race,
            choose,
            option: 0,
        });
        Class { ways, known }
    }

    /// One for each [`Kind::class`]. Short moves begin with one lane: waking another may take longer than they do. Long ones
    /// begin with all. For THPs to cold places memcpy may be twice as fast, as the kernel has just zeroed the destination, in
    /// the caches: short moves begin with it, and in long ones the routines race.
    fn of_lanes(most: usize, routines: &[Routine]) -> List<Class> {
        let (up, down) = (counts(most), counts(most).into_iter().rev().collect());
        let cached: Vec<Routine> = routines.iter().rev().copied().collect();
        let mut classes = List::with_capacity_in(2 * KINDS, Pages);
        for (lanes, for_cold_thps, race) in [(up, &cached[..], false), (down, routines, true)] {
            let class = |routines, race| Class::new(&lanes, routines, race);
            classes.extend([
                class(routines, false),
                class(routines, false),
                class(for_cold_thps, race),
                class(routines, false),
            ]);
        }
        classes
    }

    /// What this process has learnt with up to `most` lanes and the library's own settings. Its movers share it: they run on
    /// the same CPUs, and one that lives for a single move would learn nothing.
    fn of_process(most: usize) -> &'static [Class] {
        static FIRST: MadeOnce<OfProcess> = MadeOnce::new();
        let mut place = &FIRST;
        loop {
            let made = place.get(|| OfProcess {
                most,
                classes: Class::of_lanes(most, &routines()),
                next: MadeOnce::new(),
            });
            if made.most == most {
                return &made.classes;
            }
            place = &made.next;
        }
    }
}

/// What a process has learnt with up to `most` lanes; the next one is of another number.
struct OfProcess {
    most: usize,
    classes: List<Class>,
    next: MadeOnce<OfProcess>,
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
        let mut decision = Decision {
            way: class.ways[0],
            choice: plain,
            long,
            of: Sample::Lost,
        };
        let Ok(mut known) = class.known.try_lock() else {
            return decision;
        };
        let (routine, raced) = match &mut known.race {
            Some(race) => race.begin(),
            None => (0, None),
        };
        if let Some(span) = raced {
            decision.of = Sample::Raced(span);
            decision.choice.option = known.option;
        } else {
            decision.of = Sample::Chosen(routine);
            decision.choice = known.choose[routine].choose(&batch);
            if !decision.choice.trial {
                known.option = decision.choice.option;
            }
        }
        let first = routine * class.ways.len() / known.choose.len();
        decision.way = class.ways[first + decision.choice.option as usize];
        decision
    }

    fn learn(&self, kind: Kind, decision: &Decision, took: Duration) {
        let class = self.class(kind, decision.long);
        let Ok(mut known) = class.known.try_lock() else {
            return;
        };
        let (choice, ns) = (&decision.choice, took.as_nanos() as u64);
        match (decision.of, &mut known.race) {
            (Sample::Chosen(routine), _) => known.choose[routine].learn(choice, ns),
            (Sample::Raced(span), Some(race)) => race.learn(span, ns as f64 / choice.bytes as f64),
            _ => {}
        }
    }
}

/// Whether the second of two routines is far faster than the first. They take turns, with the lanes that are in use, and
/// medians count: a host may take a CPU away for a turn. Who copies through the caches may leave writing back to the spans
/// after, which do not count.
#[derive(Default)]
struct Race {
    /// Spans begun.
    spans: u32,
    /// Of each routine: spans of this race that count, and their times per byte, in ns.
    took: [(usize, [f64; Race::COUNTED]); 2],
    /// The routine that is used between races.
    winner: usize,
}

impl Race {
    const TURN: u32 = 8;
    /// The first spans of a turn do not count.
    const CARRIED_OVER: u32 = 4;
    const SPANS: u32 = 8 * Race::TURN;
    const COUNTED: usize =
        (Race::SPANS / 2 / Race::TURN * (Race::TURN - Race::CARRIED_OVER)) as usize;
    /// A race begins every so many spans, as hosts change.
    const EVERY: u32 = 4096;
    /// The second routine wins if the first one takes so many times as long: less is noise, or not worth the caches.
    const CLEAR: f64 = 1.25;

    /// The routine of the next span, and the span's number in its race; `None` between races.
    fn begin(&mut self) -> (usize, Option<u32>) {
        let span = self.spans % Race::EVERY;
        self.spans = self.spans.wrapping_add(1);
        if span == 0 {
            self.took = Default::default();
        }
        if span == Race::SPANS {
            let [first, second] = self.took.each_mut().map(|(count, took)| {
                let took = &mut took[..*count];
                took.sort_unstable_by(f64::total_cmp);
                took.get(took.len() / 2).copied()
            });
            let clear = |(first, second)| first > second * Race::CLEAR;
            self.winner = usize::from(first.zip(second).is_some_and(clear));
        }
        match span < Race::SPANS {
            true => (Race::routine(span), Some(span)),
            false => (self.winner, None),
        }
    }

    fn routine(span: u32) -> usize {
        (span / Race::TURN) as usize % 2
    }

    fn learn(&mut self, span: u32, ns_per_byte: f64) {
        let (count, took) = &mut self.took[Race::routine(span)];
        if span % Race::TURN >= Race::CARRIED_OVER && *count < Race::COUNTED {
            took[*count] = ns_per_byte;
            *count += 1;
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
    const COLD_THPS: Kind = Kind {
        huge: true,
        warm: false,
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
    fn short_moves_of_thps_to_cold_places_begin_with_memcpy_and_all_others_go_around_the_caches() {
        for (huge, warm) in [(false, false), (false, true), (true, false), (true, true)] {
            let (kind, best) = (Kind { huge, warm }, *routines().first().unwrap());
            for bytes in [SPAN / 2, SPAN] {
                let cached = kind == COLD_THPS && bytes < SPAN;
                let begins_with = if cached { copy::memcpy() } else { best };
                let way = Auto::alone(2, None).choose(kind, bytes).way;
                assert_eq!(way.routine, begins_with, "{kind:?}");
            }
            let asked = Auto::alone(2, Some(best)).choose(kind, SPAN).way;
            assert_eq!(asked.routine, best);
        }
    }

    /// Spans of THPs to cold places, of which `ns` has the time by number and routine; which of them memcpy carried.
    fn raced(spans: u32, ns: impl Fn(u32, bool) -> u64) -> Vec<u32> {
        let auto = Auto::alone(2, None);
        let cached = (0..spans).filter(|&span| {
            let decision = auto.choose(COLD_THPS, SPAN);
            let cached = decision.way.routine == copy::memcpy();
            // One lane takes longer: that nobody chooses.
            let lanes = 3 - decision.way.lanes as u64;
            let took = Duration::from_nanos(lanes * ns(span, cached));
            auto.learn(COLD_THPS, &decision, took);
            cached
        });
        cached.collect()
    }

    const RACE: u32 = Race::SPANS;

    #[test]
    fn the_caches_are_used_for_cold_thps_where_that_is_far_faster() {
        let twice = raced(1000, |_, cached| if cached { 400_000 } else { 800_000 });
        assert_eq!(twice.len() as u32, RACE / 2 + 1000 - RACE);
        let little = raced(1000, |_, cached| if cached { 700_000 } else { 800_000 });
        assert_eq!(little.len() as u32, RACE / 2);
    }

    #[test]
    fn a_race_is_not_won_by_a_cpu_that_is_taken_away_nor_by_what_others_write_back() {
        for lost in 0..RACE / Race::TURN {
            let slow = |span| span / Race::TURN == lost;
            let times = |span: u32, _| if slow(span) { 8_000_000 } else { 800_000 };
            assert_eq!(raced(1000, times).len() as u32, RACE / 2, "turn {lost}");
        }
        // What memcpy left is written back in the first spans after it.
        let times = |span: u32, cached: bool| match (cached, span % Race::TURN) {
            (true, 0..4) => 400_000,
            (false, 0..4) => 1_600_000,
            _ => 800_000,
        };
        assert_eq!(raced(1000, times).len() as u32, RACE / 2);
    }

    #[test]
    fn a_later_race_finds_a_change() {
        let changed = 2 * RACE;
        let times = |span, cached| match cached == (span < changed) {
            true => 400_000,
            false => 800_000,
        };
        let cached = raced(Race::EVERY + changed, times);
        let between = (cached.iter()).filter(|&span| (RACE..Race::EVERY).contains(span));
        assert_eq!(between.count() as u32, Race::EVERY - RACE);
        let after = cached.iter().filter(|&&span| span >= Race::EVERY + RACE);
        assert_eq!(after.count(), 0);
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
