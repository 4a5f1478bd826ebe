// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a trace, as text for a terminal.

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
            grouped(of.totals.pages),
            long(of.header.page_bytes.into()),
            about(of.footprint_bytes),
            grouped(of.half_pages),
            grouped(of.most_pages)
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
    let (reads, writes) = (grouped(of.totals.reads), grouped(of.totals.writes));
    let all = grouped(of.accesses);
    match of.seen {
        Some(seen) if seen != of.accesses => {
            format!(
                "{all} ({reads} reads, {writes} writes) of the program's {}",
                grouped(seen)
            )
        }
        _ => format!("{all} ({reads} reads, {writes} writes)"),
    }
}

fn events(of: &Description) -> String {
    match of.header.window {
        0 => grouped(of.totals.events),
        window => format!(
            "{}: accesses to one page within {} of the program's are one",
            grouped(of.totals.events),
            grouped(window)
        ),
    }
}

fn duration(of: &Description) -> String {
    match of.header.clock {
        Clock::Nanoseconds => time(of.totals.end),
        Clock::Accesses => format!("{} accesses", grouped(of.totals.end)),
    }
}

/// Digits in threes: `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
