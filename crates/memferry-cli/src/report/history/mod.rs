// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry report` of a daemon's history: its last day as a page or as tables.
//!
//! The way is `day` (records to what was done between them) -> `course` (charts) -> the page.

mod course;
mod day;

use std::time::{Duration, UNIX_EPOCH};

use memferry_daemon::status::UsedWithin;
use serde::Serialize;

pub use day::{Day, is_history, load};

use crate::chart::{Drawing, draw};
use crate::html::{self, Fact, Head};
use crate::table::text::{self, Align, printable, wrap};
use crate::table::{self, Table, counted, groups};
use crate::units::about;
use day::{Done, Moved};

/// The title of the table of memory by when it was last used.
const NEED: &str = "DRAM that the groups needed";

#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    head: Head,
    sections: Vec<Section>,
}

/// What one history shows.
#[derive(Serialize)]
struct Section {
    name: String,
    headline: String,
    incomplete: Option<String>,
    machine: String,
    charts: Vec<Drawing>,
    tables: Vec<Table>,
}

/// The page of these histories, and how many charts it has.
pub fn render(days: &[Day]) -> Result<(String, usize), minijinja::Error> {
    let section = |day: &Day| Section {
        name: day.name.clone(),
        headline: headline(day),
        incomplete: day.incomplete(),
        machine: machine(day),
        charts: course::charts(day).iter().filter_map(draw).collect(),
        tables: tables(day),
    };
    let sections: Vec<Section> = days.iter().map(section).collect();
    let charts = sections.iter().map(|section| section.charts.len()).sum();
    // The head speaks of the first.
    let page = Page {
        head: Head {
            command: "report",
            version: env!("CARGO_PKG_VERSION"),
            headline: days.first().map(headline).unwrap_or_default(),
            machine: days.first().map(machine).unwrap_or_default(),
            facts: days.first().map(facts).unwrap_or_default(),
        },
        sections,
    };
    Ok((html::render(include_str!("page.html"), &page)?, charts))
}

/// The tables of a history for a terminal.
pub fn text(day: &Day, columns: usize) -> String {
    let lines = [Some(machine(day)), day.incomplete(), Some(headline(day))];
    let lines = lines.into_iter().flatten();
    let mut text: String = lines
        .map(|line| wrap(&line, columns, "") + "\n\n")
        .collect();
    for table in tables(day) {
        text += &text::draw(&table, columns, Align::Right);
    }
    printable(&text)
}

fn machine(day: &Day) -> String {
    day.host.as_ref().map(table::machine).unwrap_or_default()
}

/// `2h 18m`.
fn duration(seconds: f64) -> String {
    let whole = match seconds {
        ..120.0 => seconds as u64,
        _ => (seconds / 60.0).round() as u64 * 60,
    };
    humantime::format_duration(Duration::from_secs(whole)).to_string()
}

/// `2026-11-25 21:30`, UTC.
fn date(seconds: f64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(seconds.max(0.0));
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.chars().take(16).collect::<String>().replace('T', " ")
}

/// A part in percent; a dash for none of nothing.
fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1}%", part / whole * 100.0),
        false => "–".to_owned(),
    }
}

fn sum(day: &Day, get: impl Fn(&Done) -> u64) -> u64 {
    day.steps.iter().map(|step| get(&step.done)).sum()
}

fn headline(day: &Day) -> String {
    let time = duration(day.known());
    let (up, down) = (sum(day, Done::up), sum(day, Done::down));
    let promoted = sum(day, |done| done.sum(|of| of.promoted));
    let wasted = sum(day, |done| done.sum(|of| of.wasted));
    let mut text = match day.steps.iter().any(|step| step.status.act) {
        true => format!("{} went up and {} down in {time}", about(up), about(down)),
        false => format!("The daemon only watched for {time}"),
    };
    if promoted > 0 {
        let waste = percent(wasted as f64, promoted as f64);
        text += &format!("; {waste} of what the daemon promoted was not used again");
    }
    if !day.gaps.is_empty() {
        text += &format!(". Of {} there is no record", duration(day.missing()));
    }
    text + "."
}

fn facts(day: &Day) -> Vec<Fact> {
    let fact = |value: String, label: &str| Fact {
        value,
        label: label.to_owned(),
    };
    let groups = || day.steps.iter().flat_map(|step| &step.status.groups);
    let top: f64 = groups().map(|of| of.top as f64).sum();
    let resident: f64 = groups().map(|of| of.resident as f64).sum();
    let demoted = sum(day, |done| done.sum(|of| of.demoted));
    let thrashed = sum(day, |done| done.sum(|of| of.thrashed));
    let seconds: f64 = day.steps.iter().map(day::Step::seconds).sum();
    let own: f64 = day.steps.iter().map(|step| step.done.cpu_seconds).sum();
    let source = day.steps.iter().filter_map(|step| step.done.source_seconds);
    let most = |get: fn(&memferry_daemon::Status) -> Option<f64>| {
        let values = day.steps.iter().filter_map(|step| get(&step.status));
        values.fold(0.0, f64::max)
    };
    vec![
        fact(
            percent(top, resident),
            "of the groups’ memory lay in the top tier, on average",
        ),
        fact(
            percent(thrashed as f64, demoted as f64),
            "of what the daemon demoted was in use 0.8 s later",
        ),
        fact(
            percent(own + source.sum::<f64>(), seconds),
            "of one CPU for the daemon and its source, where that can be told",
        ),
        fact(
            about(most(|of| Some(of.resident as f64)) as u64),
            "the daemon’s memory at most",
        ),
        fact(
            format!("{:.1}%", most(|of| of.memory_pressure)),
            "of ten seconds in which somebody waited for memory, at most",
        ),
    ]
}

fn tables(day: &Day) -> Vec<Table> {
    let rows = course::groups(day).into_iter().map(|name| group(day, name));
    let groups = Table::new(
        "Groups",
        "Memory, top tier and protection: the mean. Below: time with less than 0.95 of its protection and more in use. Waste is of \
         what was promoted, thrash of what was demoted; stayed: chosen, and did not move.",
        &[
            "group",
            "memory",
            "top tier",
            "protected",
            "below",
            "promoted",
            "demoted",
            "stayed",
            "waste",
            "thrash",
        ],
        rows.collect(),
    );
    let need = course::groups(day)
        .into_iter()
        .filter_map(|name| need(day, name));
    let need = Table::new(
        NEED,
        "Memory that was last seen in use within ten minutes, and within an hour: the largest and the last of the day. Memory: the \
         largest. A daemon knows what was used within an hour after its first hour.",
        &[
            "group",
            "memory",
            "10 min, largest",
            "10 min, last",
            "1 h, largest",
            "1 h, last",
        ],
        need.collect(),
    );
    let gaps = day.gaps.iter().map(|gap| {
        let long = duration((gap.to - gap.from).abs());
        vec![date(gap.from), date(gap.to), long, gap.why.to_owned()]
    });
    let gaps = Table::new(
        "Times without records",
        "UTC. What a killed daemon did after its last record is not known.",
        &["from", "to", "time", "why"],
        gaps.collect(),
    );
    [daemon(day), groups, need, gaps]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// A group's row.
fn group(day: &Day, name: String) -> Vec<String> {
    let states = day.steps.iter().filter_map(|step| {
        let of = course::group(&step.status, &name)?;
        Some((step, of))
    });
    let count = states.clone().count().max(1) as u64;
    let mean = |get: fn(&memferry_daemon::status::GroupStatus) -> u64| {
        let sum: u128 = states.clone().map(|(_, of)| u128::from(get(of))).sum();
        (sum / u128::from(count)) as u64
    };
    let below = states
        .clone()
        .filter(|(_, of)| (of.top as f64) < 0.95 * of.protect as f64 && of.hot > of.top);
    let below: f64 = below.map(|(step, _)| step.seconds()).sum();
    let total = |get: fn(&Moved) -> u64| {
        sum(day, |done| {
            let of = done.groups.iter().find(|of| of.name == name);
            of.map_or(0, get)
        })
    };
    let (up, down) = (total(|of| of.promoted), total(|of| of.demoted));
    let part = |of: u64, whole: u64| percent(of as f64, whole as f64);
    let cells = [
        about(mean(|of| of.resident)),
        about(mean(|of| of.top)),
        about(mean(|of| of.protect)),
        duration(below),
        about(up),
        about(down),
        about(total(|of| of.stayed)),
        part(total(|of| of.wasted), up),
        part(total(|of| of.thrashed), down),
    ];
    std::iter::once(name.clone()).chain(cells).collect()
}

/// A group's row of memory by when it was last used; none where no record tells it.
fn need(day: &Day, name: String) -> Option<Vec<String>> {
    let states = (day.steps.iter()).filter_map(|step| course::group(&step.status, &name));
    let told: Vec<UsedWithin> = states.clone().filter_map(|of| of.used_within).collect();
    let last = told.last()?;
    let largest = |get: fn(&UsedWithin) -> u64| told.iter().map(get).max();
    let cells = [
        states.map(|of| of.resident).max()?,
        largest(|of| of.ten_minutes)?,
        last.ten_minutes,
        largest(|of| of.hour)?,
        last.hour,
    ];
    Some(
        std::iter::once(name.clone())
            .chain(cells.map(about))
            .collect(),
    )
}

/// What the daemon was and met.
fn daemon(day: &Day) -> Table {
    let (from, to) = day.span();
    let steps = || day.steps.iter();
    let sources = groups(&day.steps, |step| step.status.source.name.as_str());
    let sources = sources.into_iter().map(|(name, steps)| {
        let seconds: f64 = steps.into_iter().map(day::Step::seconds).sum();
        format!("{name} for {}", duration(seconds))
    });
    let acted: f64 = steps()
        .filter(|step| step.status.act)
        .map(day::Step::seconds)
        .sum();
    let troubles = steps().filter(|step| step.status.trouble.is_some()).count();
    let last = steps().rev().find_map(|step| step.status.trouble.clone());
    let rows = [
        ("from", date(from)),
        ("to", date(to)),
        ("recorded", duration(day.known())),
        ("records", day.steps.len().to_string()),
        ("starts of the daemon", day.starts.len().to_string()),
        ("acted for", duration(acted)),
        ("source", sources.collect::<Vec<_>>().join(", ")),
        (
            "trouble",
            match last {
                Some(last) => format!("in {}, at last: {last}", counted(troubles, "record")),
                None => "none".to_owned(),
            },
        ),
    ];
    Table::new(
        "The daemon",
        "Times are UTC.",
        &["what", "value"],
        rows.map(|(name, value)| vec![name.to_owned(), value])
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::day::tests::{day, record};
    use super::*;

    #[test]
    fn the_headline_says_what_moved_what_was_wasted_and_what_is_not_known() {
        let minutes =
            |pid, began, to| (began..=to).map(move |at| record(pid, began, at, Some(60.0)));
        let whole: Vec<_> = minutes(1, 0, 60).collect();
        assert_eq!(
            headline(&day(&whole)),
            "7 GiB went up and 3.5 GiB down in 1h; 10.0% of what the daemon promoted was not used again."
        );
        let broken: Vec<_> = minutes(1, 0, 30).chain(minutes(2, 45, 60)).collect();
        let day = day(&broken);
        let text = headline(&day);
        assert!(
            text.contains("in 45m;") && text.ends_with(" Of 15m there is no record."),
            "{text}"
        );
        let tables = tables(&day);
        assert_eq!(tables.len(), 3);
        let db: Vec<&str> = tables[1].rows[0].iter().map(String::as_str).collect();
        assert_eq!(
            db,
            [
                "db", "4 GiB", "1 GiB", "2 GiB", "45m", "2.6 GiB", "1.3 GiB", "0 bytes", "10.0%",
                "10.0%"
            ]
        );
        assert!(tables[2].rows[0][3].contains("killed"));
        let mut watched = record(1, 0, 5, Some(60.0));
        watched.status.act = false;
        watched.status.groups.clear();
        let text = headline(&super::day::tests::day(&[watched]));
        assert_eq!(text, "The daemon only watched for 0s.");
    }

    #[test]
    fn the_dram_that_a_group_needed_is_the_largest_and_the_last_of_the_day() {
        let used = |minute, hour| {
            let mut record = record(1, 0, minute, Some(60.0));
            record.status.groups[0].used_within = Some(UsedWithin {
                ten_minutes: hour / 2,
                hour,
                ..UsedWithin::default()
            });
            record
        };
        // The last record is of an older version.
        let records = [
            used(0, 1 << 30),
            used(1, 3 << 30),
            used(2, 2 << 30),
            record(1, 0, 3, Some(60.0)),
        ];
        let tables = tables(&day(&records));
        let need = tables.iter().find(|table| table.title == NEED);
        assert_eq!(
            need.expect("table").rows,
            [["db", "4 GiB", "1.5 GiB", "1 GiB", "3 GiB", "2 GiB"]]
        );
    }

    #[test]
    fn names_of_a_file_are_text_on_the_page_and_in_the_terminal() {
        let mut evil = record(1, 0, 0, Some(60.0));
        evil.status.groups[0].name = "<script>alert(1)</script>\u{1b}[2J".to_owned();
        evil.status.trouble = Some("<img src=x>".to_owned());
        let days = [day(&[evil])];
        let (html, charts) = render(&days).expect("page");
        assert!(
            !html.contains("<script") && !html.contains("<img"),
            "{html}"
        );
        assert!(charts >= 3, "{charts}");
        assert!(!text(&days[0], 100).contains('\u{1b}'));
    }
}
