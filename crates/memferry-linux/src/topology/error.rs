// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong while reading a machine's topology. Every error holds the path of the file at fault.
//! No recovery here: the caller decides whether to read again (CPUs and nodes may come and go meanwhile).

use std::io;
use std::path::{Path, PathBuf};

/// The longest piece of a file that an error repeats, in characters; a terminal line has room for it.
const FOUND_MAX_CHARS: usize = 60;

/// A file of the machine could not be read or not be understood.
///
/// The message is whole: what lies below is in it, so there is no `source()` to print after it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The file or folder is missing or could not be read.
    #[error("{}: cannot read {expected}: {error}", path.display())]
    Read {
        /// The file or folder, the root folder included.
        path: PathBuf,
        /// What was expected there.
        expected: &'static str,
        /// What the system answered.
        error: io::Error,
    },
    /// The file was read, but its text is not what the kernel's documentation promises.
    #[error("{}{}: {error}", path.display(), error.line.map(|line| format!(":{line}")).unwrap_or_default())]
    Parse {
        /// The file, the root folder included.
        path: PathBuf,
        /// Where in the file, what was expected and what was found.
        error: ParseError,
    },
}

impl TopologyError {
    /// The file or folder at fault, the root folder included.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::Parse { path, .. } => path,
        }
    }
}

/// A text did not have the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct ParseError {
    /// The line, counted from 1; `None` where the text is one line by nature.
    pub line: Option<usize>,
    /// What was expected.
    pub expected: String,
    /// What was found, cut to 60 characters.
    pub found: String,
}

impl ParseError {
    /// An error about `found`, with no line.
    pub(crate) fn new(expected: impl Into<String>, found: &str) -> Self {
        let mut short: String = found.chars().take(FOUND_MAX_CHARS).collect();
        if short.len() < found.len() {
            short.push('…');
        }
        Self {
            line: None,
            expected: expected.into(),
            found: short,
        }
    }

    /// The same error, at `line` counted from 1.
    pub(crate) fn at_line(self, line: usize) -> Self {
        Self {
            line: Some(line),
            ..self
        }
    }
}
