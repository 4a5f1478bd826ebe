// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace`: traces made from running programs and from other tools' output, and what is in them.
//!
//! The library parses, reduces and writes; this finds the inputs, runs valgrind and prints.

pub mod description;
mod import;
mod info;
mod pipe;
mod record;
mod reduce;
mod text;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use memferry_replay::Error;
use memferry_replay::trace::Totals;

use crate::cli::trace::Trace;
use crate::failure::Failure;
use crate::results::{Stream, cannot_write};
use crate::units::about;

/// Runs one of the commands.
pub fn run(command: &Trace) -> Result<(), Failure> {
    match command {
        Trace::Record(args) => record::run(args),
        Trace::Import(args) => import::run(args),
        Trace::Reduce(args) => reduce::run(args),
        Trace::Info(args) => info::run(args),
    }
}

/// A trace to read, or stdin.
fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path)
        .map_err(|source| failure(path, path, Error::Read { offset: 0, source }))?;
    Ok(Box::new(file))
}

/// Counts what is read, and tells it.
struct Counted<F> {
    input: Box<dyn Read>,
    bytes: u64,
    tell: F,
}

impl<F: Fn(u64)> Counted<F> {
    fn new(input: Box<dyn Read>, tell: F) -> Self {
        Self {
            input,
            bytes: 0,
            tell,
        }
    }
}

impl<F: Fn(u64)> Read for Counted<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.bytes += read as u64;
        (self.tell)(self.bytes);
        Ok(read)
    }
}

/// Why no trace was made from one file in the other.
fn failure(from: &Path, to: &Path, error: Error) -> Failure {
    let (from, out) = (from.display(), to.display());
    let what = match error {
        Error::Write(error) => return cannot_write(to, error),
        Error::Header(_)
        | Error::TimeGoesBack { .. }
        | Error::NoAccess { .. }
        | Error::TooManyPages => format!("{out} is not written"),
        Error::Text { .. } | Error::Line { .. } | Error::Unusable { .. } => {
            format!("no trace is made of {from}")
        }
        Error::Clock | Error::Window { .. } => format!("{from} is not reduced"),
        _ => format!("{from} is no trace that can be read"),
    };
    Failure::new(what, &error, error.next())
}

/// Puts the trace in its place and says on stderr what is in it; stdout may be the traced command's, or the trace.
fn commit(out: Stream, path: &Path, totals: &Totals) -> Result<(), Failure> {
    let bytes = out.commit()?;
    let size = bytes.map_or(String::new(), |bytes| format!(", {}", about(bytes)));
    // Without stderr there is nobody to tell.
    let _ = writeln!(
        io::stderr(),
        "memferry: {}: {} accesses to {} pages in {} events{size}",
        path.display(),
        totals.accesses(),
        totals.pages,
        totals.events,
    );
    Ok(())
}
