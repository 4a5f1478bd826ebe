// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace import`: a trace from what another tool wrote.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use memferry_replay::event::Clock;
use memferry_replay::trace::source::{Skipped, import_damon, import_lackey, import_perf};
use memferry_replay::trace::{Header, Totals};

use crate::cli::trace::{Format, ImportArgs};
use crate::failure::{Failure, OrFail};
use crate::results::{Stream, Target, file_name};
use crate::ui::Ui;

use super::Counted;

/// Bytes read at once.
const BUFFER: usize = 1 << 20;

/// Reads the text and writes the trace.
pub fn run(args: &ImportArgs) -> Result<(), Failure> {
    let is_stdin = args.file.as_os_str() == "-";
    let (input, bytes): (Box<dyn Read>, u64) = if is_stdin {
        (Box::new(io::stdin()), 0)
    } else {
        open(&args.file)?
    };
    let out = Target::open_beside(&args.output, std::slice::from_ref(&args.file))?.stream();
    let ui = if is_stdin { Ui::quiet() } else { Ui::new() };
    let bar = ui.bytes_bar("import", bytes);
    let input = Counted::new(input, |bytes| bar.at(bytes));
    let text = BufReader::with_capacity(BUFFER, input);
    let name = match &args.name {
        Some(name) => name.clone(),
        None if is_stdin => "stdin".to_owned(),
        None => file_name(&args.file),
    };
    let (out, totals, skipped) = import(args, name, text, out)?;
    drop(bar);
    if totals.events == 0 {
        return Err(Failure::new(
            format!("no trace is made of {}", args.file.display()),
            "it has no access to a page of the program",
            "see `memferry trace import --help` for how to make the text",
        ));
    }
    tell(&ui, skipped);
    super::commit(out, &args.output, &totals)
}

fn import(
    args: &ImportArgs,
    name: String,
    text: impl io::BufRead,
    out: Stream,
) -> Result<(Stream, Totals, Skipped), Failure> {
    let (source, clock) = match args.format {
        Format::Lackey => ("lackey", Clock::Accesses),
        Format::Perf => ("perf", Clock::Nanoseconds),
        Format::Damon => ("damon", Clock::Nanoseconds),
    };
    let mut header = Header::new(name, source, clock);
    header.page_bytes = args.reduction.page.0 as u32;
    let made = match args.format {
        Format::Lackey => {
            header.cache = args.reduction.cache();
            header.window = args.reduction.window();
            header.instructions = !args.reduction.data_only;
            import_lackey(text, out, &header, args.reduction.span())
                .map(|(out, totals)| (out, totals, Skipped::default()))
        }
        Format::Perf => {
            header.sampling = args.sampling.unwrap_or(1);
            import_perf(text, out, &header, args.only)
        }
        Format::Damon => import_damon(text, out, &header, args.only)
            .map(|(out, totals)| (out, totals, Skipped::default())),
    };
    made.map_err(|error| super::failure(&args.file, &args.output, error))
}

fn open(path: &Path) -> Result<(Box<dyn Read>, u64), Failure> {
    let open = || {
        let file = File::open(path)?;
        let found = file.metadata()?;
        match found.is_dir() {
            true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            false => Ok((file, found.len())),
        }
    };
    let (file, bytes) = open().or_fail(
        format!("cannot read {}", path.display()),
        "name a file that exists and that you may read, or - for stdin",
    )?;
    Ok((Box::new(file), bytes))
}

/// Says what was left out.
fn tell(ui: &Ui, skipped: Skipped) {
    for (count, what) in [
        (
            skipped.no_address,
            "samples have no address and are left out: record with perf mem record, or perf record --data",
        ),
        (
            skipped.kernel,
            "samples of the kernel's memory are left out",
        ),
        (skipped.others, "samples of other processes are left out"),
    ] {
        if count > 0 {
            ui.warn(&format!("{count} {what}"));
        }
    }
}
