// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a trace, as text for a terminal.

use indicatif::HumanCount;
use memferry_replay::event::Clock;

use super::description::Description;
use crate::table::text::paragraphs;
use crate::units::{about, long, time};

/// One line per fact.
pub fn description(of: &Description, columns: usize) -> String {
    let mut lines = vec![
        format!("{}: {}", of.file, of.header.name),
        format!("source: {}", source(of)),
    ];
    if let Some(cache) = &of.header.cache {
        lines.push(format!(
            "cache: {}, {} ways, lines of {} bytes: what it serves is left out",
            long(cache.bytes),
            cache.ways,
            cache.line_bytes
        ));
    }
    lines.extend([
        format!(
            "pages: {} of {}: {}; half of the accesses go to {} of them, nine tenths to {}",
            HumanCount(of.totals.pages),
            long(of.header.page_bytes.into()),
            about(of.footprint_bytes),
            HumanCount(of.half_pages),
            HumanCount(of.most_pages)
        ),
        format!("accesses: {}", accesses(of)),
        format!("events: {}", events(of)),
        format!("duration: {}", duration(of)),
        format!(
            "file: {}, {:.3} bytes per access",
            about(of.file_bytes),
            of.bytes_per_access
        ),
    ]);
    // A file from elsewhere must not steer the terminal.
    let printable = |line: String| line.replace(|c: char| c.is_control(), "\u{fffd}");
    paragraphs(lines.into_iter().map(printable), columns)
}

fn source(of: &Description) -> String {
    let sampled = match of.header.sampling {
        1 => String::new(),
        every => format!(", one of {every} accesses"),
    };
    let fetches = match of.header.instructions {
        true => ", instruction fetches among its accesses",
        false => "",
    };
    format!("{}{sampled}{fetches}", of.header.source)
}

fn accesses(of: &Description) -> String {
    let (reads, writes) = (HumanCount(of.totals.reads), HumanCount(of.totals.writes));
    let all = HumanCount(of.accesses);
    match of.seen {
        Some(seen) if seen != of.accesses => {
            format!(
                "{all} ({reads} reads, {writes} writes) of the program's {}",
                HumanCount(seen)
            )
        }
        _ => format!("{all} ({reads} reads, {writes} writes)"),
    }
}

fn events(of: &Description) -> String {
    match of.header.window {
        0 => HumanCount(of.totals.events).to_string(),
        window => format!(
            "{}: accesses to one page within {} of the program's are one",
            HumanCount(of.totals.events),
            HumanCount(window)
        ),
    }
}

fn duration(of: &Description) -> String {
    match of.header.clock {
        Clock::Nanoseconds => time(of.totals.end),
        Clock::Accesses => format!("{} accesses", HumanCount(of.totals.end)),
    }
}
