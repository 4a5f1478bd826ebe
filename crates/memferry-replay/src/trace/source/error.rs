// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with the text that a trace is made from, and on which line.

use std::io;

use thiserror::Error;

use crate::trace::WriteError;

/// A line that cannot be read, or one that no trace can be made from.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The text cannot be read.
    #[error("cannot read line {line}: {source}")]
    Io {
        /// Counted from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line is something else than it must be.
    #[error("line {line} is no {expected}: `{found}`")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What it should be.
        expected: &'static str,
        /// The start of what it is.
        found: String,
        /// What the user can try.
        next: &'static str,
    },
    /// What a line says cannot be part of one trace.
    #[error("line {line}: {why}")]
    Unusable {
        /// Counted from 1.
        line: u64,
        /// Why not.
        why: String,
        /// What the user can try.
        next: &'static str,
    },
}

impl SourceError {
    /// The line, counted from 1.
    pub fn line(&self) -> u64 {
        match *self {
            Self::Io { line, .. } | Self::Line { line, .. } | Self::Unusable { line, .. } => line,
        }
    }

    /// What the user can try.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the file and its permissions",
            Self::Line { next, .. } | Self::Unusable { next, .. } => next,
        }
    }
}

/// Why no trace was made of a text.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The text is not right.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}
