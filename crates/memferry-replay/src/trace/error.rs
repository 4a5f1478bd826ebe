// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with a trace file, and where.

use std::io;

use thiserror::Error;

use super::VERSION;

/// Why a file is not read as a trace. Offsets are bytes from the start of the file.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file itself cannot be read.
    #[error("cannot be read at byte {offset}: {source}")]
    Io {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It starts with something else.
    #[error("not a trace of memferry: its first bytes are another format's")]
    Foreign,
    /// It has another version of the format.
    #[error(
        "version {version} of the trace format at byte 8; this memferry reads version {VERSION}"
    )]
    Version {
        /// The version it has.
        version: u16,
    },
    /// It ends early.
    #[error("ends at byte {offset}, in the middle of the trace")]
    Truncated {
        /// The file's end.
        offset: u64,
    },
    /// Its contents are not what was written.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// The start of the part that is damaged.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// It is whole, but more than this program is ready to hold in memory.
    #[error("more than {limit} {what} at byte {offset}")]
    TooLarge {
        /// The start of the part that exceeds the limit.
        offset: u64,
        /// The most that is read.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
}

impl ReadError {
    /// The byte of the file at which reading failed.
    pub fn offset(&self) -> u64 {
        match *self {
            Self::Foreign => 0,
            Self::Version { .. } => 8,
            Self::Io { offset, .. }
            | Self::Truncated { offset }
            | Self::Damaged { offset, .. }
            | Self::TooLarge { offset, .. } => offset,
        }
    }

    /// What the user can try.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path and its permissions",
            Self::Foreign => {
                "name a file that `memferry trace` wrote; `memferry trace import` reads the text of lackey, perf and DAMON"
            }
            Self::Version { version } if *version > VERSION => {
                "read it with the memferry that wrote it, or a newer one"
            }
            Self::Version { .. } => "record it anew",
            Self::Truncated { .. } => "copy it again from where it came from, or record it anew",
            Self::Damaged { .. } => {
                "copy it again from where it came from (in binary mode), or record it anew"
            }
            Self::TooLarge { .. } => {
                "record less of the program (--max-accesses), or merge more of it (--window)"
            }
        }
    }
}

/// Why an event is not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header has an impossible value.
    #[error("a trace cannot have {0}")]
    Header(&'static str),
    /// An event is earlier than the one before.
    #[error("event {event} is at {time}, before the one before it, at {before}")]
    TimeGoesBack {
        /// Counted from 0.
        event: u64,
        /// Its time.
        time: u64,
        /// The time of the one before.
        before: u64,
    },
    /// An event without any access.
    #[error("event {event} has no access")]
    NoAccess {
        /// Counted from 0.
        event: u64,
    },
    /// More pages than an event can name.
    #[error("more than {} pages", u32::MAX)]
    TooManyPages,
}
