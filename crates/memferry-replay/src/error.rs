// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a trace is not read, written, made or replayed, and where.

use std::io;

use thiserror::Error;

use crate::trace::VERSION;

/// What can be wrong. Offsets are bytes from the start of a trace file; lines, counted from 1, are those of the text that a trace is
/// made from.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "fields whose names say it")]
pub enum Error {
    /// A file of a trace cannot be read.
    #[error("cannot be read at byte {offset}: {source}")]
    Read { offset: u64, source: io::Error },
    /// It starts with something else.
    #[error("not a trace of memferry: its first bytes are another format's")]
    Foreign,
    /// It has another version of the format.
    #[error(
        "version {version} of the trace format at byte 8; this memferry reads version {VERSION}"
    )]
    Version { version: u16 },
    /// It ends early.
    #[error("ends at byte {offset}, in the middle of the trace")]
    Truncated { offset: u64 },
    /// Its contents are not what was written, from the part at the offset on.
    #[error("damaged at byte {offset}: {what}")]
    Damaged { offset: u64, what: &'static str },
    /// It is whole, but with the part at the offset more than this program is ready to hold in memory.
    #[error("more than {limit} {what} at byte {offset}")]
    TooLarge {
        offset: u64,
        limit: u64,
        what: &'static str,
    },
    /// A file of a trace cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// The header has an impossible value.
    #[error("a trace cannot have {0}")]
    Header(&'static str),
    /// An event, counted from 0, is earlier than the one before.
    #[error("event {event} is at {time}, before the one before it, at {before}")]
    TimeGoesBack { event: u64, time: u64, before: u64 },
    /// An event, counted from 0, without any access.
    #[error("event {event} has no access")]
    NoAccess { event: u64 },
    /// More pages than an event can name.
    #[error("more than {} pages", u32::MAX)]
    TooManyPages,
    /// A text cannot be read.
    #[error("cannot read line {line}: {source}")]
    Text { line: u64, source: io::Error },
    /// A line is something else than it must be; `found` is its start.
    #[error("line {line} is no {expected}: `{found}`")]
    Line {
        line: u64,
        expected: &'static str,
        found: String,
        next: &'static str,
    },
    /// What a line says cannot be part of one trace.
    #[error("line {line}: {why}")]
    Unusable {
        line: u64,
        why: String,
        next: &'static str,
    },
    /// The times of a trace that is to be reduced are no counts of accesses.
    #[error("windows are counted in accesses, and the trace has times in nanoseconds")]
    Clock,
    /// The windows that it has do not fit into the new ones.
    #[error(
        "windows of {window} accesses do not consist of whole windows of {has}, which the trace has"
    )]
    Window { window: u64, has: u64 },
    /// A top tier that holds no page of the trace.
    #[error(
        "a top tier of {bytes} bytes holds no page of {page_bytes} bytes; allowed: {page_bytes} bytes or more"
    )]
    NoPage { bytes: u64, page_bytes: u32 },
}

impl Error {
    /// The byte of the trace, or the line of the text, at which reading failed.
    pub fn at(&self) -> Option<u64> {
        match *self {
            Self::Foreign => Some(0),
            Self::Version { .. } => Some(8),
            Self::Read { offset, .. }
            | Self::Truncated { offset }
            | Self::Damaged { offset, .. }
            | Self::TooLarge { offset, .. } => Some(offset),
            Self::Text { line, .. } | Self::Line { line, .. } | Self::Unusable { line, .. } => {
                Some(line)
            }
            _ => None,
        }
    }

    /// What the user can try.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path and its permissions",
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
            Self::Write(_) => "name a file in a folder that you may write to, with space left",
            Self::Header(_)
            | Self::TimeGoesBack { .. }
            | Self::NoAccess { .. }
            | Self::TooManyPages => {
                "see `memferry trace import --help` for what each format can give"
            }
            Self::Text { .. } => "check the file and its permissions",
            Self::Line { next, .. } | Self::Unusable { next, .. } => next,
            Self::Clock | Self::Window { .. } => {
                "give --window a multiple of the window that `memferry trace info` shows; only traces of lackey have one"
            }
            Self::NoPage { .. } => "give a larger top tier",
        }
    }
}
