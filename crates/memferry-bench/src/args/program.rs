// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that `memferry bench promote --program` names.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A program that somebody else wrote, and that answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// redis-server
    Redis,
    /// memcached, with one thread
    Memcached,
    /// sqlite3, a data base in memory
    Sqlite,
}
