// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry report`: one HTML page that needs nothing else, from one or several benchmark files, or from a daemon's
//! history.
//!
//! The way of the former is load -> figures and compare (which rows become which chart) -> page (HTML). Nothing is written unless every file was good.

mod compare;
mod data;
mod figures;
mod gained;
mod headline;
mod history;
mod load;
mod page;
mod promoted;
mod reproduced;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::ReportArgs;
use crate::failure::{Failure, OrFail};
use crate::results::Target;
use crate::table::text::benchmark;
use crate::ui::Ui;

/// Reads the files and writes the page, or prints the tables.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let target = match args.text {
        true => Target::open(Path::new("-"))?,
        false => Target::open_beside(&args.output, &args.files)?,
    };
    let is_history = |path: &&PathBuf| history::is_history(path);
    let (histories, files): (Vec<_>, Vec<_>) = args.files.iter().partition(is_history);
    if !histories.is_empty() && !files.is_empty() {
        return Err(Failure::new(
            "cannot draw these files on one page",
            "some are histories of daemons, and some are not",
            "give either of them alone",
        ));
    }
    let days = (histories.into_iter())
        .map(|path| history::load(path))
        .collect::<Result<Vec<_>, _>>()?;
    let loaded = load::load(&files)?;
    let columns = Ui::columns();
    if args.text {
        let days = days.iter().map(|day| history::text(day, columns));
        let files = loaded
            .iter()
            .map(|of| benchmark(&of.file, args.anatomy, args.published, columns));
        return target.write(&days.chain(files).collect::<Vec<_>>().join("\n"));
    }
    let page = match loaded.is_empty() {
        true => history::render(&days),
        false => page::render(&loaded),
    };
    let (html, charts) = page
        .map_err(|error| format!("{error:#}"))
        .or_fail("cannot make the page", "report this as a bug")?;
    target.write(&html)?;
    if args.output.as_os_str() != "-" {
        let page = args.output.display();
        // Without stderr there is nobody to tell.
        let _ = writeln!(io::stderr(), "memferry: wrote {page}, {charts} charts");
    }
    Ok(())
}
