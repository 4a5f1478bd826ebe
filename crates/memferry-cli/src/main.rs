// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `memferry` command.

mod chart;
mod cli;
mod daemon;
mod doctor;
mod file;
mod generate;
mod html;
mod kernel;
mod output;
mod process;
mod replay;
mod report;
mod table;
mod top;
mod topology;
mod trace;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use cli::{Cli, Command};
use failure::{Cause, Failure, worst};
use memferry_bench::args::Bench;
use memferry_bench::args::reproduce::ReproduceArgs;
#[cfg(test)]
use memferry_bench::synthetic;
use memferry_bench::{failure, published, restore, schema, signals, spread, ui, units};
use output::Results;
use ui::Ui;

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::FAILURE,
        // Help goes to stdout with status 0, wrong usage to stderr with status 2.
        Err(Failure::Usage(error)) if !error.use_stderr() && output::is_stdout_closed() => {
            tell(&Failure::no_stdout())
        }
        Err(Failure::Usage(error)) => match error.print() {
            Err(failed) if failed.kind() != io::ErrorKind::BrokenPipe => {
                tell(&Failure::stdout(failed))
            }
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        },
        Err(failure) => tell(&failure),
    }
}

/// Says why, and gives the status: as a shell has it for a command that a signal ended, if one asked to stop.
fn tell(failure: &Failure) -> ExitCode {
    // Without stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "memferry: {failure}");
    let status = match failure.cause() {
        Cause::Other => 1,
        Cause::Configuration => 3,
        Cause::Machine => 4,
    };
    ExitCode::from(signals::interrupted().map_or(status, |signal| 128 + signal))
}

fn run() -> Result<(), Failure> {
    match Cli::read(std::env::args_os())?.command {
        Command::Topology(args) => topology::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Kernel(command) => kernel::run(&command),
        Command::Move(args) => process::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Trace(command) => trace::run(&command),
        Command::Report(args) => report::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Bench(bench) => measure(&bench),
        Command::PromoteRun { spec } => memferry_bench::serve_promote(&spec),
    }
}

/// Shows which published tables there are.
fn list(args: &ReproduceArgs) -> Result<(), Failure> {
    let table = table::reproduced::list();
    let text = || table::text::draw(&table, Ui::columns(), table::text::Align::Left);
    Results::open(&args.json, &[])?.tell(Path::new("/"), &table, text)
}

/// Runs a benchmark, then prints and saves what it measured, also if it stopped half-way.
fn measure(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Reproduce(args) if args.list => return list(args),
        _ => {}
    }
    let ui = Ui::new();
    ui.catch_interrupts()?;
    // A file that cannot be written is told before the minutes of measuring.
    let (json, published) = bench.output();
    let results = Results::open(json, &[])?;
    let (file, failure) = match memferry_bench::run(bench, &ui) {
        Ok(file) => (Some(file), None),
        Err(mut failure) => (failure.take_partial(), Some(failure)),
    };
    let shown = file.map_or(Ok(()), |file| {
        let text = || table::text::benchmark(&file, bench.anatomy(), published, Ui::columns());
        results.write(&file, text)
    });
    if let (Some(_), Err(unsaved @ Failure::Told(_))) = (&failure, &shown) {
        tell(unsaved);
    }
    worst([failure.map_or(Ok(()), Err), shown])
}
