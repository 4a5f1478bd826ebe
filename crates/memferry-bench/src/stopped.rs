// SPDX-License-Identifier: MIT OR Apache-2.0
//! A benchmark that did not measure all that it was asked for.

use std::fmt;

use crate::failure::Failure;
use crate::schema::BenchFile;

/// Why it stopped, and what it had measured.
#[derive(Debug)]
pub struct Stopped {
    /// Why.
    pub failure: Failure,
    /// What was measured before; it is printed and saved, then the command fails.
    pub partial: Option<Box<BenchFile>>,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            partial: None,
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}
