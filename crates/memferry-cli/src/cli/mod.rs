// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: one definition from which help, man pages and completions come.
//!
//! It says what can be asked for; what the benchmarks take is in `bench`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};

pub mod bench;
pub mod kernel;
pub mod process;
pub mod promote;
pub mod replay;
pub mod trace;

use bench::Bench;
use kernel::{Kernel, PlaceArgs};
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
    /// Move the pages of a running process to another memory node
    Move(ProcessArgs),
    /// Show or set how the kernel copies the pages that it migrates
    #[command(subcommand, arg_required_else_help = true)]
    Kernel(Kernel),
    /// Replay memory traces under tiering policies, and compare them
    Replay(ReplayArgs),
    /// Record which memory programs access, for `memferry replay`
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Trace),
    /// Make one HTML page, with charts, from benchmark files
    Report(ReportArgs),
    /// Write man pages, shell completions or the schema of files, for packagers
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Make the accesses of one run of `memferry bench promote`, which starts this
    #[command(hide = true)]
    PromoteRun {
        /// What to do, as JSON
        spec: String,
    },
}

/// How a result is shown.
#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Write JSON instead of text; with =FILE, JSON into that file besides the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-",
          value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

impl JsonArgs {
    /// The file, if JSON goes to one.
    pub fn file(&self) -> Option<&PathBuf> {
        self.json.as_ref().filter(|path| path.as_os_str() != "-")
    }
}

/// Options of `memferry topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Measure every copy routine and show the table
    #[arg(long)]
    pub copy: bool,
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Options of `memferry doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
    /// Where to look for files.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Options of `memferry report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that `memferry bench … --json=FILE` wrote
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
    /// With --text: show where the time of a page went, step by step (for `bench move --backend user`)
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
    /// One man page per command
    Man,
    /// Completions for bash, zsh and fish
    Completions,
    /// The JSON Schema of all files of measurements
    Schema,
}

impl Cli {
    /// Reads the command line; what clap cannot check alone is checked here.
    pub fn read(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(args)?;
        let wrong = |why| Self::command().error(ErrorKind::ValueValidation, why);
        match &cli.command {
            Command::Bench(Bench::Move(args)) => args.run.check().map_err(wrong)?,
            Command::Bench(Bench::Count(args)) => args.run.check().map_err(wrong)?,
            Command::Bench(Bench::Stall(args)) => {
                bench::check_user(&args.migrator).map_err(wrong)?;
            }
            Command::Trace(Trace::Import(args)) => args.check().map_err(wrong)?,
            _ => {}
        }
        let (batches, folios) = match &cli.command {
            Command::Bench(Bench::Move(args)) => (Vec::from_iter(args.run.batch), args.folios()),
            Command::Bench(Bench::Count(args)) => {
                (Vec::from_iter(args.run.batch), vec![args.folio])
            }
            Command::Bench(Bench::Stall(args)) => (args.batch.clone(), args.folio.clone()),
            Command::Move(args) if args.from == Some(args.to) => {
                return Err(wrong(format!(
                    "--from {0} --to {0} moves nothing; give another node, or leave --from out to bring the pages of \
                         all nodes to {0}",
                    args.to
                )));
            }
            _ => return Ok(cli),
        };
        match (batches.iter().min(), folios.iter().max()) {
            (Some(batch), Some(folio)) if batch < folio => Err(wrong(format!(
                "a batch of {batch} cannot hold a folio of {folio}; give --batch {folio} or \
                 more, or smaller folios with --folio"
            ))),
            _ => Ok(cli),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, clap::Error> {
        Cli::read(line.split(' ').map(Into::into)).map(|cli| cli.command)
    }

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_batch_smaller_than_a_folio_is_wrong_usage() {
        let error = read("memferry bench move --batch 64K").expect_err("2M folios");
        assert!(error.to_string().contains("--batch 2M or more"), "{error}");
        assert!(read("memferry bench move --batch 64K --folio 4K").is_ok());
        assert!(read("memferry bench stall --batch 64K --folio 2M").is_err());
    }
}
