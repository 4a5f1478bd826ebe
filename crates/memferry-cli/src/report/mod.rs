// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry report`: one HTML page that needs nothing else, from one or several benchmark files.
//!
//! The way is load -> figures and compare (which rows become which chart) -> page (HTML). Nothing is written unless every file was good.

mod compare;
mod data;
mod figures;
mod headline;
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
    let (html, charts) = page::render(&loaded).map_err(|error| {
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
