// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spans of a pipeline whose lanes and routine are chosen while it runs: what carries the next one, and how long one took.
//!
//! The lanes overlap the steps of several batches, so the time of one batch says nothing. A span's time goes from the end of
//! a batch to the end of a later one, with batches under way at both: that is the pipeline's throughput. After a change it begins with the first batch that
//! left its place later.

use super::Pipeline;
use crate::auto::{Chooser, Decision, Kind, SPAN};
use crate::sync::Unpoisoned;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The spans of one pipeline.
pub(super) struct Spans<'a> {
    chooser: &'a dyn Chooser,
    now: Mutex<Option<Span>>,
    begun: Instant,
    /// Bytes that the cursor has found and not cut.
    pub found: AtomicUsize,
}

/// The span that is under way.
struct Span {
    /// From 0 on.
    number: u32,
    kind: Kind,
    decision: Decision,
    /// Bytes whose batches ended in it.
    passed: usize,
    /// Those of them after `since`.
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
            now: Mutex::new(None),
            begun: Instant::now(),
            found: AtomicUsize::new(0),
        }
    }

    /// How what is cut or leaves its place now is carried; `None` before the first batch.
    pub(super) fn carried(&self) -> Option<Carried> {
        let now = self.now.lock().unpoisoned();
        now.as_ref().map(|now| Carried {
            lanes: now.decision.way.lanes,
            routine: now.decision.way.routine,
            span: now.number,
        })
    }

    /// A batch was cut. The first one tells what the pipeline is about; the number of lanes, if that has changed.
    fn begin(&self, kind: Kind, bytes: usize) -> Option<usize> {
        let mut now = self.now.lock().unpoisoned();
        if now.is_some() {
            return None;
        }
        let bytes = bytes.saturating_add(self.found.load(Ordering::Relaxed));
        let decision = self.chooser.choose(kind, bytes.min(SPAN));
        *now = Some(Span {
            number: 0,
            kind,
            decision,
            passed: 0,
            measured: 0,
            // With what it takes to begin: small moves have little else.
            since: Some(self.begun),
            mixed: false,
        });
        Some(decision.way.lanes)
    }

    /// A batch has ended; the number of lanes, if that has changed.
    fn settle(&self, batch: &Settled) -> Option<usize> {
        let mut guard = self.now.lock().unpoisoned();
        let now = guard.as_mut()?;
        now.mixed |= batch.failed || batch.kind != now.kind;
        now.passed += batch.bytes;
        match now.since {
            Some(_) => now.measured += batch.bytes,
            None if batch.span == now.number => now.since = Some(Instant::now()),
            None => {}
        }
        if (now.passed as u64) < now.decision.choice.bytes {
            return None;
        }
        let end = Instant::now();
        if let Some(since) = now.since.filter(|_| !now.mixed && now.measured > 0) {
            // The first batches of it may lie before `since`; they took as long as the others.
            let took =
                (end - since).mul_f64(now.decision.choice.bytes as f64 / now.measured as f64);
            self.chooser.learn(now.kind, &now.decision, took);
        }
        let decision = self.chooser.choose(batch.kind, SPAN);
        let (way, before) = (decision.way, now.decision.way);
        let changed = way != before;
        let lanes = (way.lanes != before.lanes).then_some(way.lanes);
        *now = Span {
            number: now.number + 1,
            kind: batch.kind,
            decision,
            passed: 0,
            measured: 0,
            since: (!changed).then_some(end),
            mixed: false,
        };
        lanes
    }

    /// All batches have ended. A move of less than a span is measured as a whole.
    pub(super) fn end(&self) {
        let now = self.now.lock().unpoisoned();
        let whole = |now: &&Span| now.number == 0 && !now.mixed && now.passed > 0;
        if let Some(span) = now.as_ref().filter(whole) {
            let mut whole = span.decision;
            whole.choice.bytes = span.passed as u64;
            self.chooser.learn(span.kind, &whole, self.begun.elapsed());
        }
    }
}

impl Pipeline<'_> {
    /// Tells the chooser, if there is one, of a batch that was cut.
    pub(super) fn begin_span(&self, kind: Kind, bytes: usize) {
        if let Some(spans) = &self.spans {
            self.take_lanes(spans, spans.begin(kind, bytes));
        }
    }

    /// Tells the chooser, if there is one, of a batch that has ended.
    pub(super) fn settle_span(&self, batch: &Settled) {
        if let Some(spans) = &self.spans {
            self.take_lanes(spans, spans.settle(batch));
        }
    }

    fn take_lanes(&self, spans: &Spans<'_>, lanes: Option<usize>) {
        if let Some(lanes) = lanes {
            self.schedule.set_lanes(lanes);
            spans.chooser.call(lanes);
        }
    }
}
