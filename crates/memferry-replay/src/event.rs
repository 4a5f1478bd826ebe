// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace is made of, once it is in memory.

use schemars::JsonSchema;
use serde::Serialize;

/// What an [`Event`]'s time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Accesses since the start: the source knows no time.
    Accesses,
    /// Nanoseconds since the start.
    Nanoseconds,
}

/// Accesses to one page, close enough together to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the start, in units of the trace's [`Clock`]; never less than that of the event before.
    pub time: u64,
    /// Index into [`Trace::pages`].
    pub page: u32,
    /// Loads; where the source samples, samples.
    pub reads: u32,
    /// Stores.
    pub writes: u32,
}

/// A trace in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What was traced: a command line, or what the user calls it.
    pub name: String,
    /// What `Event::time` counts.
    pub clock: Clock,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Accesses that one reported access stands for; 1 where all are reported.
    pub sampling: u32,
    /// The virtual page number of each page that was accessed, ascending: neighbours in memory are neighbours here.
    pub pages: Vec<u64>,
    /// In order of time.
    pub events: Vec<Event>,
}
