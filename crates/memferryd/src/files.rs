// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon writes in the envelope that all files have: its status as `--json` tells it, and the first line of a history.

use std::path::Path;

use memferry_daemon::Status;
use memferry_output::file::{Content, File};
use schemars::JsonSchema;
use serde::Serialize;

/// Everything; bytes and seconds, since the daemon began where no more is said.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DaemonFile")]
pub struct StatusFile<'a> {
    /// What the daemon does.
    #[serde(flatten)]
    pub status: &'a Status,
}

impl Content for StatusFile<'_> {
    const SCHEMA: &'static str = "memferry-daemon/1";
}

/// The head of a history, before the records of a daemon: which memferry writes it, when it began, and on which machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DaemonHistoryHead")]
pub struct History {}

impl Content for History {
    const SCHEMA: &'static str = "memferry-history/1";

    /// Records follow.
    fn is_complete(&self) -> bool {
        false
    }
}

/// The head of a history that begins now: one line.
pub fn head(root: &Path) -> String {
    // A head of texts and numbers is always JSON.
    serde_json::to_string(&File::now(root, History {})).unwrap_or_default()
}
