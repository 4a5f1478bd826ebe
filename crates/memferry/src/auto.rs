// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lanes carry a move, and which routine copies: `memferry_core::choose` says so for each span of it, from what
//! earlier spans of that kind took. docs/design/choose.md has what a span is.
//!
//! `pipeline::span` measures; nothing here knows pages.

use crate::copy::{self, Routine};
use crate::pool::SEGMENT;
use crate::sys::list::{List, Pages};
use crate::sys::page_size;
use memferry_core::choose::{Batch, CHOOSE_OPTIONS, Choice, Choose, ChooseOption};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Bytes of a span: four batches of two lanes. The first one after a change of lanes still has the old ones in its time.
pub(crate) const SPAN: usize = 8 << 20;

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

/// What chooses for a pipeline and calls its lanes.
pub trait Chooser: Sync {
    /// How to carry the next span, of at most `bytes` bytes, and how long it is.
    fn choose(&self, kind: Kind, bytes: usize) -> (Way, Choice);

    /// How long `choice.bytes` took.
    fn learn(&self, kind: Kind, choice: &Choice, took: Duration);

    /// As [`Migrator::run`](crate::Migrator::run), but of lane 0 and those that are called meanwhile.
    fn run(&self, lane: &(dyn Fn(usize) + Sync));

    /// Has all lanes below this number run.
    fn call(&self, lanes: usize);
}

/// What spans took. Moves of several threads that meet here lose a sample or stay with the plain way: a lock would hold up
/// pages that are away, and a child of fork might wait for it for ever.
struct Costs {
    ways: List<Way>,
    kinds: List<Mutex<Choose>>,
}

impl Costs {
    /// Nothing is known yet of these lanes with these routines; the first of both are the plain way.
    fn new(lanes: &[usize], routines: &[Routine]) -> Costs {
        let mut ways = List::new_in(Pages);
        for &routine in routines {
            ways.extend(lanes.iter().map(|&lanes| Way { lanes, routine }));
        }
        let options: Vec<ChooseOption> = (ways.iter())
            .map(|way| ChooseOption {
                start_ns: if way.lanes > 1 { WAKE_NS } else { 0 },
                cpus: (way.lanes - 1) as u16,
                channels: 0,
            })
            .collect();
        let mut kinds = List::with_capacity_in(KINDS, Pages);
        kinds.resize_with(KINDS, || Mutex::new(Choose::new(&options)));
        Costs { ways, kinds }
    }

    /// What this process has learnt with the library's own settings. All its movers share it: they run on the same CPUs, and
    /// one that lives for a single move would never leave the plain way.
    fn of_process(cpus: usize) -> Known<'static> {
        static COSTS: OnceLock<Costs> = OnceLock::new();
        (COSTS.get_or_init(|| Costs::new(&counts(cpus), &routines()))).known()
    }

    fn known(&self) -> Known<'_> {
        (&self.ways, &self.kinds)
    }
}

/// The lists of `Costs`. They lie in memory that no move may touch, other than a static of the program.
type Known<'a> = (&'a [Way], &'a [Mutex<Choose>]);

/// 1, 2, 4 … below the CPUs, and all of them: at most as many as leave room for two routines.
fn counts(cpus: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |lanes| Some(lanes * 2));
    let mut counts: Vec<usize> = doubled.take_while(|&lanes| lanes < cpus).collect();
    counts.truncate(CHOOSE_OPTIONS / 2 - 1);
    counts.push(cpus.max(1));
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
    /// The most lanes that it may take.
    most: usize,
    costs: Whose,
}

enum Whose {
    Process(Known<'static>),
    Own(Costs),
}

impl Auto {
    /// With the library's own settings, in a process that may use so many CPUs.
    pub(crate) fn shared(most: usize, cpus: usize) -> Auto {
        let costs = Whose::Process(Costs::of_process(cpus));
        Auto { most, costs }
    }

    /// With costs of its own, as its workers or its routine are not those of other movers.
    pub(crate) fn alone(most: usize, cpus: usize, routine: Option<Routine>) -> Auto {
        let routines = routine.map_or_else(routines, |routine| vec![routine]);
        let costs = Whose::Own(Costs::new(&counts(cpus), &routines));
        Auto { most, costs }
    }

    fn known(&self) -> Known<'_> {
        match &self.costs {
            Whose::Process(known) => *known,
            Whose::Own(costs) => costs.known(),
        }
    }

    /// How to carry the next span, of at most `bytes` bytes, and how long it is.
    pub(crate) fn choose(&self, kind: Kind, bytes: usize) -> (Way, Choice) {
        let (ways, kinds) = self.known();
        let batch = Batch {
            bytes: bytes as u64,
            // The largest batch of the pipeline: a part of it cannot be measured by itself.
            folio_bytes: SEGMENT as u64,
            cpus: (self.most - 1) as u16,
            channels: 0,
            // Whoever moves single folios waits for each.
            urgent: bytes <= kind.folio(),
        };
        let plain = Choice {
            bytes: batch.bytes,
            ..Choice::default()
        };
        let class = kinds[kind.index()].try_lock();
        let choice = class.map_or(plain, |mut class| class.choose(&batch));
        (ways[choice.option as usize], choice)
    }

    /// How long `choice.bytes` took.
    pub(crate) fn learn(&self, kind: Kind, choice: &Choice, took: Duration) {
        let (_, kinds) = self.known();
        if let Ok(mut class) = kinds[kind.index()].try_lock() {
            class.learn(choice, took.as_nanos() as u64);
        }
    }
}

impl Kind {
    fn index(self) -> usize {
        usize::from(self.huge) << 1 | usize::from(self.warm)
    }

    fn folio(self) -> usize {
        match self.huge {
            true => SEGMENT,
            false => page_size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM: Kind = Kind {
        huge: false,
        warm: true,
    };

    /// Spans of a kind that take these times by lanes, ns, until `spans` are over; how many had more than one lane.
    fn spans(auto: &Auto, kind: Kind, bytes: usize, spans: usize, ns: fn(usize) -> u64) -> usize {
        (0..spans)
            .filter(|_| {
                let (way, choice) = auto.choose(kind, bytes);
                auto.learn(kind, &choice, Duration::from_nanos(ns(way.lanes)));
                way.lanes > 1
            })
            .count()
    }

    fn two_lanes() -> Auto {
        Auto::alone(2, 2, Some(copy::memcpy()))
    }

    #[test]
    fn lanes_double_up_to_the_cpus_and_two_routines_fit() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(256), [1, 2, 4, 8, 16, 32, 64, 256]);
        assert!(routines().len() <= 2);
    }

    #[test]
    fn the_first_spans_are_plain_and_one_in_64_is_a_trial() {
        let auto = two_lanes();
        assert_eq!(spans(&auto, WARM, SPAN, 64, |_| 1_000_000), 0);
        // Two lanes are slower: they are tried, and not taken.
        let slower = |lanes| 1_000_000 + 300_000 * (lanes as u64 - 1);
        let tried = spans(&auto, WARM, SPAN, 6400, slower);
        assert!((1..=100).contains(&tried), "{tried}");
    }

    #[test]
    fn what_is_faster_is_taken_for_its_kind_alone() {
        let auto = two_lanes();
        let faster = |lanes| 1_000_000 / lanes as u64;
        spans(&auto, WARM, SPAN, 2000, faster);
        assert!(spans(&auto, WARM, SPAN, 100, faster) >= 98);
        let cold = Kind {
            warm: false,
            ..WARM
        };
        assert_eq!(spans(&auto, cold, SPAN, 64, faster), 0);
    }

    #[test]
    fn a_single_folio_is_never_tried_with_more_lanes() {
        for kind in [WARM, Kind { huge: true, ..WARM }] {
            let auto = two_lanes();
            let faster = |lanes| 300_000 / lanes as u64;
            assert_eq!(spans(&auto, kind, kind.folio(), 5000, faster), 0);
        }
    }

    #[test]
    fn no_more_lanes_are_taken_than_the_mover_may() {
        let auto = Auto::alone(2, 8, Some(copy::memcpy()));
        let widest = (0..5000).map(|_| {
            let (way, choice) = auto.choose(WARM, SPAN);
            auto.learn(
                WARM,
                &choice,
                Duration::from_micros(1000 / way.lanes as u64),
            );
            way.lanes
        });
        assert_eq!(widest.max(), Some(2));
    }

    #[test]
    fn what_one_mover_has_learnt_serves_the_next_one() {
        let cpus = memferry_linux::affinity::allowed().unwrap().len();
        let kind = Kind {
            huge: true,
            warm: false,
        };
        let plain = Choice {
            bytes: SPAN as u64,
            ..Choice::default()
        };
        let first = Auto::shared(1, cpus);
        (0..8).for_each(|_| first.learn(kind, &plain, Duration::from_millis(1)));
        drop(first);
        let (Whose::Process(one), Whose::Process(other)) =
            (Auto::shared(1, cpus).costs, Auto::shared(cpus, cpus).costs)
        else {
            panic!("of the process");
        };
        assert!(std::ptr::eq(one.1, other.1));
    }
}
