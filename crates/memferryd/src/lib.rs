// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `memferryd` is beside the daemon's own library: it reads the options, and writes the log to stderr, where the journal
//! takes it.
//!
//! It is a library for `memferry`, which makes the manual pages from [`args`], and shows the same [`page`] and [`files`].

pub mod args;
pub mod check;
pub mod explain;
pub mod files;
pub mod page;

use memferry_daemon::{DaemonError, Options};
use memferry_output::failure::{Cause, Failure};
use memferry_output::results::Results;
use memferry_output::signals;
use tracing_subscriber::filter::LevelFilter;

use args::{Cli, Command, Log, RunArgs};
use files::StatusFile;

/// Does what the command line asks for.
///
/// # Errors
/// The configuration or the machine is not right, or the daemon could not go on.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Explain(args)) => explain::run(args),
        None => daemon(&cli.run),
    }
}

/// Runs the daemon until it is asked to end.
fn daemon(args: &RunArgs) -> Result<(), Failure> {
    // The daemon handles signals itself: its settings come back before it ends.
    signals::end_the_command(false);
    let results = match args.once {
        true => Some(Results::open(&args.shown.json, &[])?),
        false => None,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level(args.log))
        .with_target(false)
        // They would be told on stderr as well, and a full disk behind it would end the daemon.
        .log_internal_errors(false)
        .with_ansi(false);
    // The journal has the time of each line.
    log.without_time().init();
    let options = Options {
        config: args.config.file.clone(),
        root: args.shown.root.clone(),
        dry_run: args.dry_run,
        once: args.once,
        head: files::head,
    };
    let status =
        memferry_daemon::run(&options).map_err(|error| told("the daemon ended", &error))?;
    signals::end_the_command(true);
    results.map_or(Ok(()), |results| {
        results.tell(&args.shown.root, &StatusFile { status: &status }, || {
            page::draw(&status, None, &page::View::default())
        })
    })
}

fn level(log: Log) -> LevelFilter {
    match log {
        Log::Error => LevelFilter::ERROR,
        Log::Warn => LevelFilter::WARN,
        Log::Info => LevelFilter::INFO,
        Log::Debug => LevelFilter::DEBUG,
    }
}

/// What the daemon's library says, in the form of all programs.
fn told(what: &str, error: &DaemonError) -> Failure {
    let cause = match error {
        DaemonError::Config { .. } | DaemonError::ConfigFile { .. } | DaemonError::Names { .. } => {
            Cause::Configuration
        }
        DaemonError::OneTier | DaemonError::NoSource { .. } => Cause::Machine,
        _ => Cause::Other,
    };
    Failure::new(what, error, error.hint()).because_of(cause)
}
