// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a memory, and why its chunks stay or go: for those who ask. The rules are those of [`Round`](super::round::Round).

use std::collections::BTreeMap;

use memferry_core::balance;
use memferry_core::hotness::Record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GAP_ROUNDS, Memory, Move, Room, Tiering, Way};
use crate::daemon::ROUND;

/// Why memory below the top tier stays there, or what it waits for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DaemonBelow")]
pub enum Below {
    /// The cpuset allows no node of the top tier.
    NotAllowed,
    /// No report came for five seconds.
    NotWatched,
    /// The last moves failed: it is left alone for a while.
    WouldNotMove,
    /// It came down within two seconds.
    JustMoved,
    /// The last reports did not see it in use.
    Idle,
    /// It is in use, but less often than what goes up.
    RarelyUsed,
    /// It is used in bursts: it went up and came down before, and has not been in use for long enough since.
    Bursts,
    /// Its group has its limit: it waits for colder memory of the group to change places with.
    Limit,
    /// The rate of the group, or of the daemon, is nothing for the time being.
    NoRate,
    /// It is hot: it waits for room, its turn, or colder memory to change places with.
    Waiting,
}

/// What may become of memory in the top tier.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DaemonAbove")]
pub enum Above {
    /// Its group has more than its limit: the coldest goes.
    Limit,
    /// No report came for five seconds: it stays.
    NotWatched,
    /// It came up within two seconds, or would not move: it stays for a while.
    LeftAlone,
    /// Too few reports came to call it cold: it stays.
    Unknown,
    /// In use: only hotter memory takes its place.
    InUse,
    /// Idle, but what its group has is protected: it goes for hotter memory of its group alone.
    Protected,
    /// Idle: it goes if hot memory wants its place.
    Cold,
    /// Idle for a minute: new memory may have its place, too.
    Idle,
}

/// What is known of a memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DaemonMemoryState")]
pub struct MemoryState {
    /// Bytes that may move.
    pub resident: u64,
    /// Bytes in the top tier.
    pub top: u64,
    /// Nodes of the top tier where it may go, the nearest first.
    pub nodes: Vec<u32>,
    /// Reports so far.
    pub reports: u32,
    /// Seconds since the last one; null if none came.
    pub reported_seconds: Option<f64>,
    /// Bytes below the top tier, by what keeps them there.
    pub below: BTreeMap<Below, u64>,
    /// Bytes in the top tier, by what may become of them.
    pub above: BTreeMap<Above, u64>,
    /// Bytes that the last round chose to go up.
    pub chosen_up: u64,
    /// The same down.
    pub chosen_down: u64,
}

impl Tiering {
    /// What is known of a memory after a round in which so much was allowed and these moves were chosen; `None` of one that was not
    /// looked at.
    pub fn state(&self, memory: Memory, room: &Room, moves: &[Move]) -> Option<MemoryState> {
        let space = self.spaces.get(&memory)?;
        let account = &self.accounts[space.group];
        let tenant = &account.tenant;
        let budget = tenant
            .pressure
            .of(account.rate.of(self.waste.of(room.budget)));
        let threshold = self.policy.params().threshold;
        let is_watched = space.reports > 0 && self.number - space.reported <= GAP_ROUNDS;
        let mut state = MemoryState {
            nodes: space.nodes.iter().map(|near| near.node).collect(),
            reports: space.reports,
            reported_seconds: (space.reports > 0)
                .then(|| f64::from(self.number - space.reported) * ROUND.as_secs_f64()),
            ..MemoryState::default()
        };
        for (chunk, record) in space.chunks.iter().zip(&space.records) {
            let place = chunk.place;
            state.resident += place.resident;
            state.top += place.top;
            let view = record.view(space.now());
            let is_refused = chunk.is_refused(self.number);
            let just_moved = chunk.just_moved(self.number);
            let in_use = chunk.seen > 0;
            let below = if space.nodes.is_empty() {
                Below::NotAllowed
            } else if is_refused {
                Below::WouldNotMove
            } else if just_moved {
                Below::JustMoved
            } else if !is_watched {
                Below::NotWatched
            } else if !in_use {
                Below::Idle
            } else if chunk.seen < room.reports || u32::from(view.freq) < threshold {
                Below::RarelyUsed
            } else if !self.is_steady(memory, chunk) {
                Below::Bursts
            } else if tenant.used >= tenant.limit {
                Below::Limit
            } else if budget == 0 {
                Below::NoRate
            } else {
                Below::Waiting
            };
            let is_idle = space.is_idle(chunk, self.number);
            let above = if tenant.used > tenant.limit {
                Above::Limit
            } else if is_refused || just_moved {
                Above::LeftAlone
            } else if !is_watched {
                Above::NotWatched
            } else if in_use || self.policy.heat(view) > balance::idle(&self.policy) {
                Above::InUse
            } else if !space.is_known(chunk) {
                Above::Unknown
            } else if tenant.used < tenant.protect.saturating_add(place.top) {
                Above::Protected
            } else if is_idle {
                Above::Idle
            } else {
                Above::Cold
            };
            let rest = place.resident - place.top;
            if rest > 0 {
                *state.below.entry(below).or_default() += rest;
            }
            if place.top > 0 {
                *state.above.entry(above).or_default() += place.top;
            }
        }
        for of in moves.iter().filter(|of| of.memory == memory) {
            match of.way {
                Way::Up => state.chosen_up += of.bytes,
                Way::Down => state.chosen_down += of.bytes,
            }
        }
        Some(state)
    }
}
