// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::profile::Profile;
use crate::{base, matrix, series};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
#[command(about = "Builds kernels with the series, boots them in virtual machines and tests them")]
pub struct Cli {
    #[command(subcommand)]
    pub task: Task,
    /// The Linux that the series is built on: a folder of kernel/hooks
    #[arg(long, value_name = "NAME", default_value = base::DEFAULT, global = true)]
    pub base: String,
    /// Linux's source, instead of Debian's package of it
    #[arg(long, value_name = "TARBALL", global = true)]
    pub source: Option<PathBuf>,
    /// Show the steps also when stderr is not a terminal
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Task {
    /// Build a kernel and print the path of its image
    Kernel {
        /// A machine that lab/NAME.toml describes
        #[arg(long, default_value = "x86_64", value_name = "NAME")]
        machine: String,
        /// What kind of kernel
        #[arg(long, value_enum, default_value = "release")]
        profile: Profile,
    },
    /// Build a kernel, boot it in a virtual machine and run the guest tests, or a command
    Lab(LabArgs),
    /// Run what is missing of the benchmarks of lab/timed/matrix.toml, on machines whose memory takes time; each says its own --base
    Timed(matrix::Args),
    /// Measure programs of Debian on a machine whose memory takes time, and print what each way of promotion gains
    Programs(matrix::ProgramArgs),
    /// Count the instructions that a migrated page takes while no migrator is active, with the
    /// series and without
    Compare,
    /// Write the series as mails, or check it
    Series(series::Args),
    /// Build Debian packages of a kernel with the series
    Deb {
        /// Make no packages; compile only the series' objects with that configuration
        #[arg(long)]
        quick: bool,
    },
}

#[derive(Args)]
pub struct LabArgs {
    /// A machine that lab/NAME.toml describes
    #[arg(long, default_value = "x86_64", value_name = "NAME")]
    pub machine: String,
    /// What kinds of kernel, one after the other
    #[arg(
        long = "profile",
        value_enum,
        default_value = "release",
        value_delimiter = ','
    )]
    pub profiles: Vec<Profile>,
    /// Run this test of kernel/selftests/suite.toml only; can be repeated
    #[arg(long = "test", value_name = "NAME", conflicts_with_all = ["shell", "command"])]
    pub tests: Vec<String>,
    /// Run Linux's own tests of memory management instead (kernel/selftests/suite.linux.toml)
    #[arg(long)]
    pub linux_tests: bool,
    /// Get a shell in the guest
    #[arg(long, conflicts_with = "command")]
    pub shell: bool,
    /// Check that the lab notices warnings, crashes and hangs, and tests that did not run
    #[arg(long, conflicts_with_all = ["tests", "shell", "command", "programs"])]
    pub self_test: bool,
    /// Leave out the tests that take long (`long` in kernel/selftests/suite.toml)
    #[arg(long, conflicts_with_all = ["tests", "shell", "command"])]
    pub short: bool,
    /// Multiply all time limits, on a machine busy with other things
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1000))]
    pub patience: u64,
    /// Deal the tests to so many guests that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..65))]
    pub guests: u16,
    /// More of the guest's kernel command line
    #[arg(long, value_name = "WORDS")]
    pub append: Option<String>,
    /// Replace a parameter of the table `[timed]` of a timed machine, as in latency_ps=100000,250000/250000,100000: a comma
    /// between integers, / between rows; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUES")]
    pub sets: Vec<String>,
    /// Put the static programs of this folder into the guest, before all others in PATH
    #[arg(long, value_name = "FOLDER")]
    pub programs: Option<PathBuf>,
    /// Emulate with a clock that counts instructions: slower, but no host is too busy for what depends on time, and QEMU
    /// executes no breakpoint that is gone
    #[arg(long)]
    pub steady_clock: bool,
    /// How long COMMAND may take on a release kernel, by the host's clock
    #[arg(long, value_name = "N", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1_000_000))]
    pub seconds: u64,
    /// Run this in the guest's shell, among the guest programs, instead of the tests
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// A mistake on the command line that clap cannot see: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn profiles_can_be_listed() {
        let cli = Cli::parse_from([
            "xtask",
            "lab",
            "--profile",
            "vanilla,release",
            "--",
            "a",
            "-b",
        ]);
        let Task::Lab(args) = cli.task else {
            panic!("not lab")
        };
        assert_eq!(args.profiles, [Profile::Vanilla, Profile::Release]);
        assert_eq!(args.command, ["a", "-b"]);
    }
}
