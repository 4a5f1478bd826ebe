// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of `memferryd --once` and `memferry top`, 80 columns wide: what the daemon does in a few lines, then a row for each group.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memferry_daemon::Status;
use memferry_daemon::status::{GroupStatus, UsedWithin};
use memferry_linux::topology::parse::format_id_list;
use memferry_output::units::about;

/// A column of bytes: its head, and its value of a group.
type Column = (&'static str, fn(&GroupStatus) -> u64);

const NOW: [Column; 4] = [
    ("memory", |of| of.resident),
    ("top", |of| of.top),
    ("hot", |of| of.hot),
    ("unmov.", GroupStatus::unmovable_bytes),
];

/// Totals, or per second.
const SUMS: [Column; 4] = [
    ("up", |of| of.promoted),
    ("down", |of| of.demoted),
    ("waste", |of| of.wasted),
    ("thrash", |of| of.thrashed),
];

/// What the keys have set.
#[derive(Default)]
pub struct View {
    /// How often the next column was asked for.
    pub sort: usize,
    /// The row of the marked group, if one can be marked.
    pub marked: Option<usize>,
    /// Whether the marked group is shown in full.
    pub is_open: bool,
}

/// The page; with the status before it sums are per second.
pub fn draw(now: &Status, before: Option<&Status>, view: &View) -> String {
    let mut page = head(now, before);
    let columns: Vec<Column> = NOW.into_iter().chain(SUMS).collect();
    let (sorted, key) = columns[(view.sort + 1) % columns.len()];
    let per = if before.is_some() { "/s" } else { "" };
    page += &format!("{:<12}{:>3}", "group", "n");
    for (index, (name, _)) in columns.iter().enumerate() {
        // The last one is the longest, and a mark and a unit together are too long.
        let width = if index + 1 < columns.len() { 8 } else { 9 };
        let head = match (*name == sorted, index < NOW.len()) {
            (true, _) => format!("*{name}"),
            (false, true) => (*name).to_owned(),
            (false, false) => format!("{name}{per}"),
        };
        page += &format!("{head:>width$}");
    }
    page += "\n";
    let mut groups: Vec<&GroupStatus> = now.groups.iter().collect();
    groups.sort_by_key(|group| Reverse(key(group)));
    let marked = (view.marked).map(|row| row.min(groups.len().saturating_sub(1)));
    for (row, group) in groups.iter().enumerate() {
        let name: String = group.name.chars().take(11).collect();
        let mark = if marked == Some(row) { '<' } else { ' ' };
        page += &format!("{name:<11}{mark}{:>3}", group.processes);
        for (_, value) in NOW {
            page += &format!("{:>8}", short(value(group)));
        }
        let old = before.and_then(|before| before.groups.iter().find(|old| old.name == group.name));
        let seconds = before.map_or(1.0, |before| (now.seconds - before.seconds).max(0.001));
        for (index, (_, value)) in SUMS.iter().enumerate() {
            let more = value(group).saturating_sub(old.map_or(0, value));
            let width = if index + 1 < SUMS.len() { 8 } else { 9 };
            let rate = more as f64 / seconds;
            page += &format!("{:>width$}", short(rate as u64));
        }
        page += "\n";
    }
    let open = marked.filter(|_| view.is_open);
    if let Some(group) = open.and_then(|row| groups.get(row)) {
        page += &details(group);
    }
    page
}

/// A group in full; moves since the daemon began.
fn details(of: &GroupStatus) -> String {
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    format!(
        "\n{}: {}, {}\n\
         in the top tier: {} ({:.0}% of its memory); share {}\n\
         protected: {}; limit: {}; thrash leaves {:.0}% of its rate\n\
         waiting for memory {}, cpu {}; pressure leaves {} of its rate\n\
         in use: {} ({:.0}% of its memory){}{}\n\
         moved: {} up, {} down, {} would not move{}\n\
         did not pay: {} that went up ({:.0}%), {} that went down ({:.0}%)\n",
        of.name,
        processes(of.processes),
        about(of.resident),
        about(of.top),
        percent(of.top, of.resident),
        about(of.share),
        about(of.protect),
        of.limit.map_or_else(|| "none".to_owned(), about),
        of.rate as f64 / 10.0,
        pressure(of.memory_pressure),
        pressure(of.cpu_pressure),
        pressure(of.pressure_rate.map(|rate| rate as f64 / 10.0)),
        about(of.hot),
        percent(of.hot, of.resident),
        used(of),
        by_reason("unmovable", &of.unmovable),
        about(of.promoted),
        about(of.demoted),
        about(of.stayed),
        by_reason("stayed", &of.stayed_reasons),
        about(of.wasted),
        percent(of.wasted, of.promoted),
        about(of.thrashed),
        percent(of.thrashed, of.demoted),
    )
}

/// How much was last seen in use within so long, as a line: `used within: 1s 1.2 GiB, 10s 2 GiB` and so on.
fn used(of: &GroupStatus) -> String {
    let text = |used: UsedWithin| {
        let ages = used.by_age();
        let texts = ages.map(|(age, bytes)| format!("{age} {}", about(bytes)));
        format!("\nused within: {}", texts.join(", "))
    };
    of.used_within.map_or_else(String::new, text)
}

/// Why memory stayed or cannot move, most of it first, as a line: `stayed: 3 MiB EBUSY, 4 KiB cpuset`.
fn by_reason(what: &str, of: &BTreeMap<String, u64>) -> String {
    match of.is_empty() {
        true => String::new(),
        false => format!("\n{what}: {}", reasons(of)),
    }
}

/// Bytes by reason, most of them first: `3 MiB EBUSY, 4 KiB cpuset`.
pub(crate) fn reasons(of: &BTreeMap<String, u64>) -> String {
    let mut reasons: Vec<(&String, &u64)> = of.iter().collect();
    reasons.sort_by_key(|(_, bytes)| Reverse(**bytes));
    let texts = (reasons.iter()).map(|(reason, bytes)| format!("{} {reason}", about(**bytes)));
    texts.collect::<Vec<_>>().join(", ")
}

/// An amount in seven columns at most, so that a space is before it: `1.5 GiB`, `37 MiB`.
fn short(bytes: u64) -> String {
    if bytes == 0 {
        return "-".to_owned();
    }
    let text = about(bytes).replace(" bytes", " B");
    match text.split_once('.') {
        _ if text.len() <= 7 => text,
        Some((whole, rest)) => format!("{whole}{}", &rest[1..]),
        None => text.replace(' ', ""),
    }
}

/// Percent of ten seconds, or of a rate.
fn pressure(percent: Option<f64>) -> String {
    percent.map_or("-".to_owned(), |percent| format!("{percent:.1}%"))
}

pub(crate) fn processes(count: u64) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

fn head(now: &Status, before: Option<&Status>) -> String {
    let does = if now.act { "acts" } else { "only watches" };
    let source = &now.source;
    let hours = now.seconds as u64 / 3600;
    let (minutes, seconds) = (now.seconds as u64 / 60 % 60, now.seconds as u64 % 60);
    let mut lines = vec![
        format!(
            "memferryd, pid {}, {does}, {hours}:{minutes:02}:{seconds:02}",
            now.pid
        ),
        format!(
            "source {} ({}), {}",
            source.name,
            source.why,
            processes(source.watched)
        ),
    ];
    let tiers = now.tiers.iter().enumerate().map(|(index, tier)| {
        let name = if index == 0 { "top tier" } else { "lower" };
        let nodes: Vec<u32> = tier.nodes.iter().map(|of| of.node).collect();
        format!(
            "{name}: node {}, {} free",
            format_id_list(&nodes),
            about(tier.free())
        )
    });
    lines.push(tiers.collect::<Vec<_>>().join("; "));
    lines.push(format!(
        "rate {}/s (waste leaves {}%, pressure {}%); waiting for memory {}, cpu {}",
        about(now.bytes_per_second),
        now.waste_rate / 10,
        now.pressure_rate / 10,
        pressure(now.memory_pressure),
        pressure(now.cpu_pressure)
    ));
    let old = before.map_or((0.0, 0.0, Some(0.0)), |of| {
        (of.seconds, of.cpu_seconds, of.source.cpu_seconds)
    });
    let seconds = (now.seconds - old.0).max(0.001);
    // What starting takes is no share of a first second that is not over.
    let percent = |cpu: f64| match before {
        None if seconds < 1.0 => "-".to_owned(),
        _ => format!("{:.1}%", cpu / seconds * 100.0),
    };
    let of_source = source
        .cpu_seconds
        .zip(old.2)
        .map_or("-".to_owned(), |(now, old)| percent(now - old));
    let budget = source
        .cpu_budget
        .map_or_else(String::new, |percent| format!(" of {percent}%"));
    lines.push(format!(
        "chosen: {} up, {} down; CPU: daemon {}, source {of_source}{budget}",
        about(now.chosen_up),
        about(now.chosen_down),
        percent(now.cpu_seconds - old.1)
    ));
    if let Some(samples) = &source.samples {
        let old = before.and_then(|before| before.source.samples.as_ref());
        let (taken, lost) = old.map_or((0, 0), |old| (old.taken, old.lost));
        let per = if before.is_some() { "/s" } else { "" };
        let rate = |now: u64, old: u64| {
            let more = now.saturating_sub(old) as f64;
            if before.is_some() {
                more / seconds
            } else {
                more
            }
        };
        lines.push(format!(
            "samples of {}: {:.0}{per}, {:.0}{per} lost; one in {}",
            samples.event,
            rate(samples.taken, taken),
            rate(samples.lost, lost),
            samples.period
        ));
    }
    if let (Some(up), Some(down)) = (now.kernel_promoted, now.kernel_demoted) {
        lines.push(format!(
            "the kernel moved since boot: {} up, {} down",
            about(up),
            about(down)
        ));
    }
    lines.extend(
        now.trouble
            .as_ref()
            .map(|trouble| format!("trouble: {trouble}")),
    );
    lines.join("\n") + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use memferry_daemon::status::{NodeStatus, SampleStatus, SourceStatus, TierStatus};

    fn status(seconds: f64, promoted: u64) -> Status {
        let group = |name: &str, top, promoted| GroupStatus {
            name: name.to_owned(),
            processes: 12,
            resident: 1023 << 30,
            top,
            share: 1 << 30,
            used_within: Some(UsedWithin {
                second: 5 << 20,
                ten_seconds: 1023 << 30,
                minute: 1023 << 30,
                ten_minutes: 1023 << 30,
                hour: 1023 << 30,
            }),
            promoted,
            unmovable: [("locked", 1 << 20), ("hugetlb", 1 << 30)]
                .map(|(reason, bytes)| (reason.to_owned(), bytes))
                .into(),
            stayed_reasons: [("EBUSY", 1 << 12), ("cpuset", 3 << 20)]
                .map(|(reason, bytes)| (reason.to_owned(), bytes))
                .into(),
            ..GroupStatus::default()
        };
        let tier = |nodes: &[u32]| TierStatus {
            nodes: (nodes.iter())
                .map(|node| NodeStatus {
                    node: *node,
                    size: 4 << 30,
                    free: 1 << 20,
                })
                .collect(),
        };
        Status {
            pid: 7,
            act: true,
            seconds,
            cpu_seconds: seconds / 100.0,
            source: SourceStatus {
                name: "damon".to_owned(),
                cpu_seconds: Some(seconds / 50.0),
                cpu_budget: Some(3),
                samples: Some(SampleStatus {
                    event: "page-faults".to_owned(),
                    period: 16,
                    taken: promoted,
                    lost: 7,
                    ..SampleStatus::default()
                }),
                ..SourceStatus::default()
            },
            tiers: vec![tier(&[0, 1]), tier(&[2])],
            groups: vec![
                group("small", 1 << 20, promoted),
                group("a-name-that-is-too-long", 2 << 20, promoted),
            ],
            ..Status::default()
        }
    }

    #[test]
    fn a_page_fits_80_by_24_and_sums_are_rates() {
        let page = draw(
            &status(12.0, 300 << 20),
            Some(&status(10.0, 100 << 20)),
            &View::default(),
        );
        assert!(
            page.lines().all(|line| line.chars().count() <= 80),
            "{page}"
        );
        assert!(page.lines().count() <= 24);
        assert!(page.contains("up/s") && page.contains("100 MiB"), "{page}");
        assert!(page.contains("daemon 1.0%, source 2.0% of 3%"), "{page}");
        let first = draw(&status(0.1, 0), None, &View::default());
        assert!(first.contains("daemon -, source -"), "{first}");
        let samples = "samples of page-faults: 104857600/s, 0/s lost; one in 16";
        assert!(page.contains(samples), "{page}");
        let rows: Vec<&str> = page.lines().rev().take(2).collect();
        assert!(
            rows[0].starts_with("small ") && rows[1].starts_with("a-name-that "),
            "{page}"
        );
    }

    #[test]
    fn no_head_touches_its_neighbour_whichever_is_sorted_by() {
        for sort in 0..NOW.len() + SUMS.len() {
            let view = View {
                sort,
                ..View::default()
            };
            let page = draw(&status(2.0, 2), Some(&status(1.0, 1)), &view);
            let head = page.lines().find(|line| line.starts_with("group")).unwrap();
            assert_eq!(head.split_whitespace().count(), 10, "{head}");
            assert!(head.contains('*') && head.len() <= 80, "{head}");
        }
    }

    #[test]
    fn no_amount_touches_its_neighbour() {
        for (bytes, shown) in [
            (0, "-"),
            (1023, "1023 B"),
            (38_900_000, "37 MiB"),
            (1_600_000_000, "1.5 GiB"),
            (1023 << 30, "1023GiB"),
        ] {
            assert_eq!(short(bytes), shown);
        }
    }

    #[test]
    fn the_marked_group_opens() {
        let now = status(12.0, 300 << 20);
        let mut view = View {
            marked: Some(7),
            ..View::default()
        };
        let closed = draw(&now, None, &view);
        assert!(closed.contains("\nsmall      < 12"), "{closed}");
        view.is_open = true;
        let open = draw(&now, None, &view);
        assert!(
            open.starts_with(&closed) && open.contains("\nsmall: 12 processes, 1023 GiB\n"),
            "{open}"
        );
        assert!(
            open.contains("\nstayed: 3 MiB cpuset, 4 KiB EBUSY\n"),
            "{open}"
        );
        assert!(
            closed.contains("unmov.") && closed.contains("1 GiB"),
            "{closed}"
        );
        assert!(
            open.contains("\nunmovable: 1 GiB hugetlb, 1 MiB locked\n"),
            "{open}"
        );
        let used =
            "\nused within: 1s 5 MiB, 10s 1023 GiB, 1m 1023 GiB, 10m 1023 GiB, 1h 1023 GiB\n";
        assert!(open.contains(used), "{open}");
        assert!(
            open.lines().all(|line| line.chars().count() <= 80) && open.lines().count() <= 24,
            "{open}"
        );
    }

    #[test]
    fn once_shows_totals_and_the_sorted_column() {
        let view = View {
            sort: 3,
            ..View::default()
        };
        let page = draw(&status(12.0, 300 << 20), None, &view);
        assert!(
            page.contains("300 MiB") && page.contains("*up") && !page.contains("up/s"),
            "{page}"
        );
    }
}
