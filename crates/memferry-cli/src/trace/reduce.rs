// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace reduce`: the same accesses in longer windows.

use memferry_replay::trace::{Limits, Reader, reduce};

use crate::cli::trace::ReduceArgs;
use crate::failure::Failure;
use crate::results::Target;

/// Reads a trace and writes a smaller one.
pub fn run(args: &ReduceArgs) -> Result<(), Failure> {
    let out = Target::open_beside(&args.output, std::slice::from_ref(&args.file))?.stream();
    let limits = Limits {
        events: u64::MAX,
        ..Limits::default()
    };
    let (out, totals) = Reader::new(super::open(&args.file)?, limits)
        .and_then(|reader| reduce(reader, out, args.window))
        .map_err(|error| super::failure(&args.file, &args.output, error))?;
    super::commit(out, &args.output, &totals)
}
