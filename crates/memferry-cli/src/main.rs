// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `memferry` command.

mod chart;
mod cli;
mod doctor;
mod generate;
mod html;
mod kernel;
mod process;
mod replay;
mod report;
mod table;
mod top;
mod topology;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use cli::{Cli, Command};
use memferry_bench::args::Bench;
use memferry_bench::args::reproduce::ReproduceArgs;
#[cfg(test)]
use memferry_bench::synthetic;
use memferry_bench::{Stopped, published, restore, schema, spread, ui};
use memferry_output::exit;
use memferry_output::failure::{self, Failure, worst};
use memferry_output::results::{self, Results};
use memferry_output::{file, units};
use ui::Ui;

/// Before its messages.
const NAME: &str = "memferry";

fn main() -> ExitCode {
    exit::of(NAME, run())
}

fn run() -> Result<(), Failure> {
    match Cli::read(std::env::args_os())?.command {
        Command::Topology(args) => topology::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Kernel(command) => kernel::run(&command),
        Command::Move(args) => process::run(&args),
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
        Err(Stopped { failure, partial }) => (partial.map(|file| *file), Some(failure)),
    };
    let shown = file.map_or(Ok(()), |file| {
        let text = || table::text::benchmark(&file, bench.anatomy(), published, Ui::columns());
        results.write(&file, text)
    });
    if let (Some(_), Err(unsaved @ Failure::Told(_))) = (&failure, &shown) {
        exit::tell(NAME, unsaved);
    }
    worst([failure.map_or(Ok(()), Err), shown])
}
