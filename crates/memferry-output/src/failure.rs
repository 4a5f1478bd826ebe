// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a command did not do what it was asked to: what happened, why, and what to try.
//!
//! It carries the reason; [`crate::exit`] alone turns it into an exit status.

use std::fmt;
use std::io;

/// The reason a command ends without having done all of its work.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong, or asks for help, which clap reports the same way.
    Usage(clap::Error),
    /// The reader of stdout has gone, as in `memferry … | head`; nobody is left to tell.
    BrokenPipe,
    /// The result was written, and it says what is wrong.
    Found,
    /// Everything else.
    Told(Box<Told>),
}

/// A failure with a message.
#[derive(Debug)]
pub struct Told {
    /// What was not done.
    pub what: String,
    /// The reason.
    pub why: String,
    /// What the user can try.
    pub next: String,
    /// Where it lies.
    pub cause: Cause,
}

/// What has to change before the same command can succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Not known.
    #[default]
    Other,
    /// The configuration.
    Configuration,
    /// The machine, which lacks what the command needs.
    Machine,
}

impl Failure {
    /// A failure that says what was not done, why, and what to try.
    pub fn new(what: impl Into<String>, why: impl fmt::Display, next: impl Into<String>) -> Self {
        Self::Told(Box::new(Told {
            what: what.into(),
            why: why.to_string(),
            next: next.into(),
            cause: Cause::default(),
        }))
    }

    /// The same failure, of this cause.
    pub fn because_of(mut self, cause: Cause) -> Self {
        if let Self::Told(told) = &mut self {
            told.cause = cause;
        }
        self
    }

    /// Where it lies.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Told(told) => told.cause,
            Self::Usage(_) | Self::BrokenPipe | Self::Found => Cause::Other,
        }
    }

    /// The failure of a write to stdout.
    pub fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::new(
            "cannot write to stdout",
            error,
            "free some space, or send the output elsewhere",
        )
    }

    /// There is no stdout to write to.
    pub fn no_stdout() -> Self {
        Self::new(
            "cannot write to stdout",
            "stdout is closed",
            "leave it open, or send the output to a file or to /dev/null",
        )
    }
}

/// Says what was not done, and what to try, where the error is the reason.
pub trait OrFail<T> {
    /// The value, or the failure of this error.
    fn or_fail(self, what: impl Into<String>, next: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: impl Into<String>, next: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what, error, next))
    }
}

/// The result of several steps: a reader that has gone counts less than all else.
pub fn worst<const N: usize>(results: [Result<(), Failure>; N]) -> Result<(), Failure> {
    let failures = results.into_iter().filter_map(Result::err);
    let worst = failures.min_by_key(|failure| matches!(failure, Failure::BrokenPipe));
    worst.map_or(Ok(()), Err)
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::BrokenPipe => f.write_str("the reader of stdout has gone"),
            Self::Found => f.write_str("something is wrong"),
            Self::Told(told) => write!(
                f,
                "{}\n  why: {}\n  try: {}",
                told.what, told.why, told.next
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_no_message() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::stdout(gone), Failure::BrokenPipe));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let text = Failure::stdout(full).to_string();
        assert!(text.contains("why: ") && text.contains("try: "), "{text}");
    }

    /// As `memferry move … | head` where pages stayed.
    #[test]
    fn a_failure_counts_though_nobody_reads_on() {
        let stayed = || Err(Failure::new("2 pages stayed", "pinned", "run again"));
        for results in [
            [stayed(), Err(Failure::BrokenPipe)],
            [Err(Failure::BrokenPipe), stayed()],
            [stayed(), Ok(())],
        ] {
            assert!(matches!(worst(results), Err(Failure::Told(_))));
        }
        let gone = worst([Ok(()), Err(Failure::BrokenPipe)]);
        assert!(matches!(gone, Err(Failure::BrokenPipe)));
        assert!(worst([Ok(()), Ok(())]).is_ok());
    }
}
