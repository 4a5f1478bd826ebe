// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: one definition from which help, man pages and completions come.
//!
//! It says what can be asked for; what the benchmarks take is in `memferry_bench::args`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use memferry_bench::args::Bench;
pub use memferry_output::args::{self, JsonArgs, ShownArgs};
use schemars::JsonSchema;
use serde::Serialize;

pub mod kernel;
pub mod process;
pub mod replay;
pub mod trace;

use kernel::Kernel;
use process::ProcessArgs;
use replay::ReplayArgs;
use trace::Trace;

/// Moves memory pages between the tiers of a machine at the speed of its memory.
#[derive(Debug, Parser)]
#[command(
    name = "memferry",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Exit status: 0 done, 1 failed or partly done (the message says what, why and \
                  what to try), 2 wrong usage, 130 interrupted (128 and the signal's number).\nSizes are bytes, or a number with K, M, G \
                  or T (powers of 1024): 4K, 64KiB, 1.5G, 1GiB."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the memory nodes, caches, tiers and what this kernel lets memferry do
    Topology(TopologyArgs),
    /// Check what keeps memory tiering from working here, and say which commands mend it
    #[command(
        after_help = "Exit status: 0 nothing is wrong, 1 something is (each finding says what, why it matters, and the \
                            command for root's shell that mends it), 2 wrong usage. Notes change no status."
    )]
    Doctor(DoctorArgs),
    /// Measure how fast pages move on this machine
    #[command(subcommand, arg_required_else_help = true)]
    Bench(Bench),
    /// Move the pages of a running process, or of a cgroup's, to another memory node
    Move(ProcessArgs),
    /// Show or set how the kernel copies the pages that it migrates
    #[command(subcommand, arg_required_else_help = true)]
    Kernel(Kernel),
    /// Show what the daemon does, live
    Top(TopArgs),
    /// Replay memory traces under tiering policies, and compare them
    Replay(ReplayArgs),
    /// Record which memory programs access, for `memferry replay`
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Trace),
    /// Make one HTML page, with charts, from benchmark files
    Report(ReportArgs),
    /// Write man pages, shell completions, the schema of files or the pages of all commands
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Make the accesses of one run of `memferry bench promote`, which starts this
    #[command(hide = true)]
    PromoteRun {
        /// What to do, as JSON
        spec: String,
    },
}

/// Options of `memferry topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Measure every copy routine and show the table
    #[arg(long)]
    pub copy: bool,
    /// What is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Options of `memferry doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// What the machine is to do; without it, it is judged for all, and each finding says for what it counts
    #[arg(long = "for", value_enum, value_name = "USE")]
    pub purpose: Option<Use>,
    /// With --for daemon: the daemon's configuration, if not /etc/memferry/memferry.toml
    #[arg(long, value_name = "FILE", requires = "purpose", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// How it is shown.
    #[command(flatten)]
    pub shown: ShownArgs,
}

impl DoctorArgs {
    /// Checks what clap cannot check alone.
    fn check(&self) -> Result<(), String> {
        match self.config.is_some() && self.purpose != Some(Use::Daemon) {
            true => Err("--config is for --for daemon".to_owned()),
            false => Ok(()),
        }
    }
}

/// What a machine is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// `memferryd` keeps hot pages in the top tier
    Daemon,
    /// The kernel does: by NUMA balancing, pghot and demotion
    Kernel,
    /// Pages are moved by `memferry move` and the library
    Move,
}

impl Use {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Daemon, Self::Kernel, Self::Move];

    /// Its name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Kernel => "kernel",
            Self::Move => "move",
        }
    }
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

/// Options of `memferry report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that `memferry bench … --json=FILE` wrote, or a daemon's history, of which the last day is drawn
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// The page to write; - is stdout
    #[arg(short, long, value_name = "HTML", default_value = "memferry-report.html",
          value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Print the tables on the terminal and write no page
    #[arg(long, conflicts_with = "output")]
    pub text: bool,
    /// With --text: print the published tables after ours (a page always has them)
    #[arg(long, requires = "text")]
    pub published: bool,
    /// With --text: show where the time of a page went, step by step (for `bench move`)
    #[arg(long, requires = "text")]
    pub anatomy: bool,
}

/// Options of `memferry generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write
    pub what: Generated,
    /// The folder to write into; it is made if it is missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
}

/// What `memferry generate` writes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Generated {
    /// One man page per command, and for `memferryd`
    Man,
    /// Completions for bash, zsh and fish
    Completions,
    /// The JSON Schema of all files of measurements
    Schema,
    /// All commands and their options as one page of Markdown, and those of `memferryd` as another
    Markdown,
}

impl Cli {
    /// Reads the command line; what clap cannot check alone is checked here.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let cli: Self = args::read(args).map_err(with_name_of_daemon)?;
        match &cli.command {
            Command::Bench(bench) => bench.check(),
            Command::Trace(Trace::Import(args)) => args.check(),
            Command::Move(args) if args.from == Some(args.to) => Err(format!(
                "--from {0} --to {0} moves nothing; give another node, or leave --from out to bring the pages of all nodes to \
                 {0}",
                args.to
            )),
            Command::Doctor(args) => args.check(),
            _ => Ok(()),
        }
        .map_err(|why| args::wrong(&why))?;
        Ok(cli)
    }
}

/// Names the program that `memferry daemon` has become.
fn with_name_of_daemon(mut error: clap::Error) -> clap::Error {
    let unknown = error.get(ContextKind::InvalidSubcommand);
    if unknown == Some(&ContextValue::String("daemon".to_owned())) {
        let advice = "the daemon is a program of its own now: `memferryd`, and `memferryd check` for its configuration";
        let advice = ContextValue::StyledStrs(vec![advice.into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
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
