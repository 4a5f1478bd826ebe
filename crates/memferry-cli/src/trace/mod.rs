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

use memferry_replay::trace::{ReadError, Totals, WriteError};

use crate::cli::trace::Trace;
use crate::failure::Failure;
use crate::output::{Stream, cannot_write};
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
        .map_err(|source| unreadable(path, &ReadError::Io { offset: 0, source }))?;
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

/// The failure to read a trace.
fn unreadable(path: &Path, error: &ReadError) -> Failure {
    let what = format!("{} is no trace that can be read", path.display());
    Failure::new(what, error, error.next())
}

/// The failure of a write to a trace file.
fn not_written(path: &Path, error: WriteError) -> Failure {
    match error {
        WriteError::Io(error) => cannot_write(path, error),
        error => Failure::new(
            format!("{} is not written", path.display()),
            error,
            "see `memferry trace import --help` for what each format can give",
        ),
    }
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
