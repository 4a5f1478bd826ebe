// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `memferryd`: one definition from which help, man pages and completions come.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use memferry_output::args::{self, ShownArgs};

/// Keeps hot pages of other processes in the top tier, cold ones below, and tenants at their shares.
#[derive(Debug, Parser)]
#[command(
    name = "memferryd",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Without `act = true` in the configuration it only watches, and says what it would move. docs/daemon.md explains every key.\n\
                  SIGHUP reads the configuration anew, and keeps the old one if it is wrong. SIGTERM ends it: every setting that it changed is \
                  put back. After SIGKILL the next start does that. `memferry top` shows what it does.\n\
                  Exit status: 0 the configuration is right, or it was ended; 1 it did not start, or a setting did not come back; 2 wrong usage; \
                  3 the configuration is not right; 4 this machine has one memory tier, or not the source that is configured."
)]
pub struct Cli {
    /// What to do; without it, the daemon runs.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How it runs.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What is done beside running the daemon.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the configuration, and say what each group matches now
    Check(CheckArgs),
    /// Say what the daemon that runs knows of a process or a group, and why its memory stays where it is
    Explain(ExplainArgs),
}

/// Options of the daemon that runs.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
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

/// Options of `memferryd check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// How it is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Options of `memferryd explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The number of a process, or the name of a group
    #[arg(value_name = "PID|GROUP")]
    pub what: String,
    /// How it is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Which configuration is read.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The configuration
    #[arg(long = "config", value_name = "FILE", default_value = "/etc/memferry/memferry.toml", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
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

impl Cli {
    /// Reads the command line; what clap cannot check alone is checked here.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let cli: Self = args::read(args)?;
        match cli.command.is_none() && cli.run.shown.json.json.is_some() && !cli.run.once {
            true => Err(args::wrong(
                "--json is for --once and check; `memferry top --json` shows what a daemon does that runs",
            )),
            false => Ok(cli),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }
}
