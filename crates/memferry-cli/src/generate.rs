// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry generate`: man pages, shell completions and pages of all commands, from the definitions in `cli` and those of
//! `memferryd`, and the schema of files from theirs.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_markdown::{MarkdownOptions, help_markdown_command_custom};
use memferry_daemon::history::Record;
use memferryd::check::Right;
use memferryd::explain::ExplainFile;
use memferryd::files::{History, StatusFile};
use schemars::{JsonSchema, schema_for};

use crate::cli::{Cli, GenerateArgs, Generated};
use crate::doctor::description::Description as Findings;
use crate::failure::{Failure, OrFail};
use crate::file::File;
use crate::kernel::description::{Changes, Status as KernelStatus};
use crate::kernel::pghot::HeatFile;
use crate::process::description::Description as Move;
use crate::replay::description::Description as Replays;
use crate::schema::BenchFile;
use crate::table::Table;
use crate::topology::description::Description as Machine;
use crate::trace::description::Description as Trace;

/// A file that `--json` writes, or a line of the daemon's history.
#[derive(JsonSchema)]
#[schemars(untagged, title = "Files of memferry")]
#[expect(dead_code, reason = "the shape of files; none is made")]
enum AnyFile<'a> {
    Bench(BenchFile),
    Replay(File<Replays<'a>>),
    Topology(File<Machine>),
    Doctor(File<Findings>),
    Kernel(File<KernelStatus<'a>>),
    KernelSet(File<Changes<'a>>),
    Heat(File<HeatFile>),
    Trace(File<Trace>),
    Move(File<Move>),
    Daemon(File<StatusFile<'a>>),
    DaemonCheck(File<Right>),
    DaemonExplain(File<ExplainFile>),
    History(File<History>),
    Record(Record),
    Published(File<Table>),
}

/// Writes the files into the folder that was named.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(&args.out)?;
        match args.what {
            Generated::Man => {
                clap_mangen::generate_to(offered(), &args.out)?;
                manual_of_daemon(&args.out)
            }
            Generated::Completions => [Shell::Bash, Shell::Zsh, Shell::Fish]
                .into_iter()
                .try_for_each(|shell| {
                    for (mut command, name) in [(offered(), "memferry"), (daemon(), "memferryd")] {
                        clap_complete::generate_to(shell, &mut command, name, &args.out)?;
                    }
                    Ok(())
                }),
            Generated::Schema => {
                let schema = serde_json::to_string_pretty(&schema_for!(AnyFile<'_>))?;
                fs::write(args.out.join("schema.json"), schema + "\n")
            }
            Generated::Markdown => {
                let title = "The commands, as `memferry generate markdown` writes them";
                fs::write(args.out.join("command.md"), markdown(&offered(), title))?;
                let title =
                    "The options of `memferryd`, as `memferry generate markdown` writes them";
                fs::write(args.out.join("memferryd.md"), markdown(&daemon(), title))
            }
        }
    };
    write().or_fail(
        format!("cannot write into {}", args.out.display()),
        "name a folder that you may write to, with space left",
    )
}

/// Manual pages of the system's administration, where `clap_mangen::generate_to` makes those of user commands.
fn manual_of_daemon(out: &Path) -> io::Result<()> {
    let mut all = daemon();
    all.build();
    for command in all.get_subcommands().chain([&all]) {
        Man::new(command.clone()).section("8").generate_to(out)?;
    }
    Ok(())
}

/// A program's commands as one page. clap_markdown writes `--json <FILE>` where the help has `--json[=<FILE>]`, and
/// two usages as one.
fn markdown(program: &Command, title: &str) -> String {
    let options = MarkdownOptions::new();
    let options = options.title(title.to_owned()).show_footer(false);
    let page = help_markdown_command_custom(program, &options);
    page.replace("`--json <FILE>`", "`--json[=<FILE>]`")
        .replace("\n       memferryd ", "` or `memferryd ")
}

/// The command line of the daemon, which hides no command.
fn daemon() -> Command {
    memferryd::args::Cli::command()
}

/// The command line without its hidden commands, which completions would offer: a command cannot lose one, so
/// this is a new one with all else.
fn offered() -> Command {
    let all = Cli::command();
    let shown = (all.get_subcommands()).filter(|command| !command.is_hide_set());
    let mut offered = Command::new("memferry")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(all.get_arguments())
        .subcommands(shown);
    if let Some(about) = all.get_about() {
        offered = offered.about(about.clone());
    }
    if let Some(after) = all.get_after_help() {
        offered = offered.after_help(after.clone());
    }
    offered
}
