// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry daemon` and `memferry top`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::ShownArgs;

const DAEMON_HELP: &str = "\
Without `act = true` in the configuration it only watches, and says what it would move. docs/daemon.md explains every key.\n\
SIGHUP reads the configuration anew, and keeps the old one if it is wrong. SIGTERM ends it: every setting that it changed is \
put back. After SIGKILL the next start does that.\n\
Exit status: 0 the configuration is right, or it was ended; 1 it did not start, or a setting did not come back; 2 wrong usage.";

/// Options of `memferry daemon`.
#[derive(Debug, Args)]
#[command(after_help = DAEMON_HELP)]
pub struct DaemonArgs {
    /// Only read the configuration, and say whether it is right
    #[arg(value_enum)]
    pub only: Option<Only>,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/memferry/memferry.toml", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Watch (with DAMON, by a kdamond) and choose, and move and set nothing else, whatever the configuration says
    #[arg(long)]
    pub dry_run: bool,
    /// Log to stderr what is of this level or graver
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Log::Info)]
    pub log: Log,
    /// End after four seconds, and print what `memferry top` shows
    #[arg(long)]
    pub once: bool,
    /// What --once shows.
    #[command(flatten)]
    pub shown: ShownArgs,
}

impl DaemonArgs {
    /// Checks what clap cannot check alone.
    pub fn check(&self) -> Result<(), String> {
        match self.shown.json.json.is_some() && !self.once && self.only.is_none() {
            true => Err("--json is for --once and check; `memferry top --json` shows what a daemon does that runs".to_owned()),
            false => Ok(()),
        }
    }
}

/// A part of what the daemon does.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Only {
    /// Read the configuration
    Check,
}

/// Levels of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Log {
    /// What fails
    Error,
    /// What does not work as configured
    Warn,
    /// Starts, reloads and ends
    Info,
    /// Moves, and why one failed
    Debug,
}

/// Options of `memferry top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: q ends it, p pauses, s sorts by the next column, j and k or arrows mark a group, Enter opens it."
)]
pub struct TopArgs {
    /// Print it once, with totals; the default where stdout is no terminal
    #[arg(long)]
    pub once: bool,
    /// What is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}
