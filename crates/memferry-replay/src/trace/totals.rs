// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace file has altogether: its last chunk, and what `memferry trace info` prints.

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::Event;

use super::varint::{put, take};

/// Sums over a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Pages.
    pub pages: u64,
    /// Events.
    pub events: u64,
    /// Loads of all events.
    pub reads: u64,
    /// Stores of all events.
    pub writes: u64,
    /// When tracing ended, in units of the trace's clock.
    pub end: u64,
    /// Accesses of the program, those that were left out (hits of a modelled cache) among them; 0 if not known.
    #[serde(skip)]
    pub seen: u64,
}

impl Totals {
    /// Counts an event; times must not go back.
    pub(super) fn add(&mut self, event: &Event) {
        self.events += 1;
        self.reads = self.reads.saturating_add(event.reads.into());
        self.writes = self.writes.saturating_add(event.writes.into());
        self.end = event.time;
    }

    /// Reads and writes.
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [
            self.pages,
            self.events,
            self.reads,
            self.writes,
            self.end,
            self.seen,
        ] {
            put(&mut out, number);
        }
        out
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let totals = Self {
            pages: take(input)?,
            events: take(input)?,
            reads: take(input)?,
            writes: take(input)?,
            end: take(input)?,
            seen: take(input)?,
        };
        input.is_empty().then_some(totals)
    }
}
