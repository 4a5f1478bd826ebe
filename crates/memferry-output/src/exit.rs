// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit statuses: the one place that turns failures into them.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::{Cause, Failure};
use crate::{results, signals};

/// Tells how the program of this name ended, and gives its status.
pub fn of(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::FAILURE,
        // Help goes to stdout with status 0, wrong usage to stderr with status 2.
        Err(Failure::Usage(error)) if !error.use_stderr() && results::is_stdout_closed() => {
            tell(program, &Failure::no_stdout())
        }
        Err(Failure::Usage(error)) => match error.print() {
            Err(failed) if failed.kind() != io::ErrorKind::BrokenPipe => {
                tell(program, &Failure::stdout(failed))
            }
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        },
        Err(failure) => tell(program, &failure),
    }
}

/// Says why, and gives the status: as a shell has it for a command that a signal ended, if one asked to stop.
pub fn tell(program: &str, failure: &Failure) -> ExitCode {
    // Without stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "{program}: {failure}");
    let status = match failure.cause() {
        Cause::Other => 1,
        Cause::Configuration => 3,
        Cause::Machine => 4,
    };
    ExitCode::from(signals::interrupted().map_or(status, |signal| 128 + signal))
}
