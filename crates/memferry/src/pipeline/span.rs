// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spans of a pipeline whose lanes and routine are chosen while it runs: what carries the next one, and how long one took.
//!
//! The lanes overlap the steps of several batches, so the time of one batch says nothing. A span's time goes from the end of
//! a batch to the end of a later one, with batches under way at both: that is the pipeline's throughput. After a change it begins with the first batch that
//! left its place later.

use super::Pipeline;
use crate::auto::{Chooser, Decision, Kind};
use crate::sync::Unpoisoned;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The spans of one pipeline.
pub(super) struct Spans<'a> {
    chooser: &'a dyn Chooser,
    state: Mutex<State>,
    begun: Instant,
    /// Bytes that the cursor has found and not cut.
    pub found: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// `None` while no batch is known that it would carry: who ends a move wakes no lane for nothing.
    now: Option<Span>,
    /// Spans begun.
    begun: u32,
    /// Batches that were cut and have not ended.
    under_way: usize,
}

/// The span that is under way.
struct Span {
    /// From 0 on.
    number: u32,
    kind: Kind,
    decision: Decision,
    /// Bytes whose batches ended in it, after `since`.
    measured: usize,
    /// `None` until a batch ends that left its place in this span.
    since: Option<Instant>,
    /// Batches of another kind were in it, or some that went back: its time is nobody's.
    mixed: bool,
}

/// How a batch that leaves its place now is carried.
#[derive(Clone, Copy)]
pub(super) struct Carried {
    pub lanes: usize,
    pub routine: crate::copy::Routine,
    pub span: u32,
}

/// What became of a batch.
pub(super) struct Settled {
    pub bytes: usize,
    pub kind: Kind,
    /// It went back as it was.
    pub failed: bool,
    /// Its [`Carried::span`].
    pub span: u32,
}

impl<'a> Spans<'a> {
    pub(super) fn new(chooser: &'a dyn Chooser) -> Spans<'a> {
        Spans {
            chooser,
            state: Mutex::default(),
            begun: Instant::now(),
            found: AtomicUsize::new(0),
        }
    }

    /// How what is cut or leaves its place now is carried; `None` while no batch is under way.
    pub(super) fn carried(&self) -> Option<Carried> {
        let state = self.state.lock().unpoisoned();
        state.now.as_ref().map(|now| Carried {
            lanes: now.decision.way.lanes,
            routine: now.decision.way.routine,
            span: now.number,
        })
    }

    /// A batch was cut. The first one tells what the pipeline is about; the number of lanes, if that was chosen.
    fn begin(&self, kind: Kind, bytes: usize) -> Option<usize> {
        let mut state = self.state.lock().unpoisoned();
        state.under_way += 1;
        if state.now.is_some() {
            return None;
        }
        let span = self.chooser.span();
        let (bytes, since) = match state.begun {
            // With what it takes to begin: small moves have little else.
            0 => {
                let found = self.found.load(Ordering::Relaxed);
                (bytes.saturating_add(found).min(span), self.begun)
            }
            _ => (span, Instant::now()),
        };
        let decision = self.chooser.choose(kind, bytes);
        state.begin(kind, decision, Some(since));
        Some(decision.way.lanes)
    }

    /// A batch has ended; the number of lanes, if that has changed.
    fn settle(&self, batch: &Settled) -> Option<usize> {
        let mut guard = self.state.lock().unpoisoned();
        let state = &mut *guard;
        state.under_way -= 1;
        let now = state.now.as_mut()?;
        now.mixed |= batch.failed || batch.kind != now.kind;
        match now.since {
            Some(_) => now.measured += batch.bytes,
            None if batch.span == now.number => now.since = Some(Instant::now()),
            None => {}
        }
        if (now.measured as u64) < now.decision.choice.bytes {
            return None;
        }
        let end = Instant::now();
        if let Some(since) = now.since.filter(|_| !now.mixed) {
            let took =
                (end - since).mul_f64(now.decision.choice.bytes as f64 / now.measured as f64);
            self.chooser.learn(now.kind, &now.decision, took);
        }
        let before = now.decision.way;
        if state.under_way == 0 && self.found.load(Ordering::Relaxed) == 0 {
            state.now = None;
            return None;
        }
        let decision = self.chooser.choose(batch.kind, self.chooser.span());
        let way = decision.way;
        state.begin(batch.kind, decision, (way == before).then_some(end));
        (way.lanes != before.lanes).then_some(way.lanes)
    }

    /// All batches have ended. A move of less than a span is measured as a whole.
    pub(super) fn end(&self) {
        let state = self.state.lock().unpoisoned();
        let whole = |now: &&Span| now.number == 0 && !now.mixed && now.measured > 0;
        if let Some(span) = state.now.as_ref().filter(whole) {
            let mut whole = span.decision;
            whole.choice.bytes = span.measured as u64;
            self.chooser.learn(span.kind, &whole, self.begun.elapsed());
        }
    }
}

impl State {
    fn begin(&mut self, kind: Kind, decision: Decision, since: Option<Instant>) {
        self.now = Some(Span {
            number: self.begun,
            kind,
            decision,
            measured: 0,
            since,
            mixed: false,
        });
        self.begun += 1;
    }
}

impl Pipeline<'_> {
    /// Tells the chooser, if there is one, of a batch that was cut.
    pub(super) fn begin_span(&self, kind: Kind, bytes: usize) {
        if let Some(spans) = &self.spans {
            self.take_lanes(spans.begin(kind, bytes));
        }
    }

    /// Tells the chooser, if there is one, of a batch that has ended.
    pub(super) fn settle_span(&self, batch: &Settled) {
        if let Some(spans) = &self.spans {
            self.take_lanes(spans.settle(batch));
        }
    }

    fn take_lanes(&self, lanes: Option<usize>) {
        if let Some(lanes) = lanes {
            self.schedule.set_lanes(lanes);
            self.plan.migrator.call(lanes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto::{Sample, Way, span};
    use crate::copy;
    use memferry_core::choose::Choice;
    use std::collections::VecDeque;
    use std::time::Duration;

    /// Halves the lanes for every second span.
    struct Alternating {
        most: usize,
        chosen: AtomicUsize,
        learnt: AtomicUsize,
    }

    impl Chooser for Alternating {
        fn span(&self) -> usize {
            span(self.most)
        }
        fn choose(&self, _: Kind, bytes: usize) -> Decision {
            let odd = self.chosen.fetch_add(1, Ordering::Relaxed) % 2;
            let (lanes, routine) = (self.most >> odd, copy::memcpy());
            let choice = Choice {
                bytes: bytes as u64,
                ..Choice::default()
            };
            Decision {
                way: Way { lanes, routine },
                choice,
                long: true,
                of: Sample::Lost,
            }
        }
        fn learn(&self, _: Kind, _: &Decision, _: Duration) {
            self.learnt.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_span_is_measured_however_many_batches_are_under_way() {
        let kind = Kind {
            huge: false,
            warm: false,
        };
        for most in [2, 4, 16, 64] {
            let chooser = Alternating {
                most,
                chosen: AtomicUsize::new(0),
                learnt: AtomicUsize::new(0),
            };
            let spans = Spans::new(&chooser);
            let batch = 2 << 20;
            spans.found.store(1 << 40, Ordering::Relaxed);
            let mut away = VecDeque::new();
            while chooser.chosen.load(Ordering::Relaxed) <= 20 {
                spans.begin(kind, batch);
                away.push_back(spans.carried().unwrap().span);
                while away.len() > spans.carried().unwrap().lanes + 1 {
                    spans.settle(&Settled {
                        bytes: batch,
                        kind,
                        failed: false,
                        span: away.pop_front().unwrap(),
                    });
                }
            }
            let learnt = chooser.learnt.load(Ordering::Relaxed);
            assert_eq!(learnt, 20, "of 20 spans of {most} lanes");
        }
    }
}
