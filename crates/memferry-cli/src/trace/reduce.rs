// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace reduce`: the same accesses in longer windows.

use memferry_replay::trace::{Limits, Reader, ReduceError, reduce};

use crate::cli::trace::ReduceArgs;
use crate::failure::Failure;
use crate::output::Target;

/// Reads a trace and writes a smaller one.
pub fn run(args: &ReduceArgs) -> Result<(), Failure> {
    let out = Target::open_beside(&args.output, std::slice::from_ref(&args.file))?.stream();
    let limits = Limits {
        events: u64::MAX,
        ..Limits::default()
    };
    let reader = Reader::new(super::open(&args.file)?, limits)
        .map_err(|error| super::unreadable(&args.file, &error))?;
    let (out, totals) = reduce(reader, out, args.window).map_err(|error| match error {
        ReduceError::Read(error) => super::unreadable(&args.file, &error),
        ReduceError::Write(error) => super::not_written(&args.output, error),
        error => Failure::new(
            format!("{} is not reduced", args.file.display()),
            &error,
            "give --window a multiple of the window that `memferry trace info` shows; only traces of lackey have one",
        ),
    })?;
    super::commit(out, &args.output, &totals)
}
