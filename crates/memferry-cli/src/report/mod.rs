// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry report`: one HTML page that needs nothing else, from one or several benchmark files, or from a daemon's
//! history.
//!
//! The way of the former is load -> figures and compare (which rows become which chart) -> page (HTML). Nothing is written unless every file was good.

mod compare;
mod data;
mod figures;
mod headline;
mod history;
mod load;
mod page;
mod promoted;
mod reproduced;

use std::io::{self, Write};
use std::path::Path;

use crate::cli::ReportArgs;
use crate::failure::Failure;
use crate::output::Target;
use crate::table::text::benchmark;
use crate::ui::Ui;

/// Reads the files and writes the page, or prints the tables.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let target = match args.text {
        true => Target::open(Path::new("-"))?,
        false => Target::open_beside(&args.output, &args.files)?,
    };
    let is_history: Vec<bool> = args
        .files
        .iter()
        .map(|path| history::is_history(path))
        .collect();
    if is_history.contains(&true) {
        if is_history.contains(&false) {
            return Err(Failure::new(
                "cannot draw these files on one page",
                "some are histories of daemons, and some are not",
                "give either of them alone",
            ));
        }
        let days = (args.files.iter())
            .map(|path| history::load(path))
            .collect::<Result<Vec<_>, _>>()?;
        if args.text {
            let texts = days.iter().map(|day| history::text(day, Ui::columns()));
            return target.write(&texts.collect::<Vec<_>>().join("\n"));
        }
        return write(args, target, history::render(&days));
    }
    let loaded = (args.files.iter())
        .map(|path| load::load(path))
        .collect::<Result<Vec<_>, _>>()?;
    if args.text {
        let texts = loaded
            .iter()
            .map(|loaded| benchmark(&loaded.file, args.anatomy, args.published, Ui::columns()));
        let texts: Vec<String> = texts.collect();
        return target.write(&texts.join("\n"));
    }
    write(args, target, page::render(&loaded))
}

/// Writes the page, and says so.
fn write(
    args: &ReportArgs,
    target: Target,
    page: Result<(String, usize), minijinja::Error>,
) -> Result<(), Failure> {
    let (html, charts) = page.map_err(|error| {
        Failure::new(
            "cannot make the page",
            format!("{error:#}"),
            "report this as a bug",
        )
    })?;
    target.write(&html)?;
    if args.output.as_os_str() != "-" {
        let page = args.output.display();
        // Without stderr there is nobody to tell.
        let _ = writeln!(io::stderr(), "memferry: wrote {page}, {charts} charts");
    }
    Ok(())
}
