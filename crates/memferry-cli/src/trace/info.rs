// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace info`: reads all of a trace, which checks it, and says what is in it.

use std::path::Path;

use memferry_replay::trace::{Limits, Reader};

use crate::cli::trace::InfoArgs;
use crate::failure::Failure;
use crate::results::Results;
use crate::ui::Ui;

use super::description::Description;
use super::{Counted, text};

/// Prints what a trace has.
pub fn run(args: &InfoArgs) -> Result<(), Failure> {
    let failed = |error| super::failure(&args.file, &args.file, error);
    let results = Results::open(&args.json, std::slice::from_ref(&args.file))?;
    let mut counted = Counted::new(super::open(&args.file)?, drop);
    // It is read block by block: events need no memory.
    let limits = Limits {
        events: u64::MAX,
        ..Limits::default()
    };
    let mut reader = Reader::new(&mut counted, limits).map_err(failed)?;
    let mut counts = Vec::new();
    let mut events = Vec::new();
    while reader.block(&mut events).map_err(failed)? {
        counts.resize(reader.places().len(), 0u64);
        for event in events.drain(..) {
            let count = &mut counts[event.page as usize];
            *count = count.saturating_add(u64::from(event.reads) + u64::from(event.writes));
        }
    }
    let (header, totals) = (reader.header().clone(), *reader.totals());
    let description = Description::new(&args.file, counted.bytes, &header, &totals, counts);
    results.tell(Path::new("/"), &description, || {
        text::description(&description, Ui::columns())
    })
}
