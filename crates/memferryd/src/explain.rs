// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd explain`: what the daemon that runs knows of a process or a group, and why its memory stays where it is.

use std::fmt::Write;

use memferry_daemon::explain::{Explained, Explanation, ask};
use memferry_daemon::tiering::{Above, Below, MemoryState};
use memferry_output::failure::Failure;
use memferry_output::file::Content;
use memferry_output::printable::printable;
use memferry_output::results::Results;
use memferry_output::units::about;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::ExplainArgs;
use crate::page::reasons;

/// What the daemon answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DaemonExplainFile")]
#[serde(transparent)]
pub struct ExplainFile {
    /// All of it.
    pub known: Explanation,
}

impl Content for ExplainFile {
    const SCHEMA: &'static str = "memferry-daemon-explain/1";
}

/// Memories of a group that are shown one by one.
const MOST_SHOWN: usize = 10;

/// Asks, and shows.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let untold = |error| crate::told("the daemon did not explain it", &error);
    let known = ask(&args.shown.root, &args.what).map_err(untold)?;
    let file = ExplainFile { known };
    let results = Results::open(&args.shown.json, &[])?;
    results.tell(&args.shown.root, &file, || text(&file.known))
}

fn text(known: &Explanation) -> String {
    let group = &known.group;
    let does = match (known.act, known.kernel_moves) {
        (false, _) => "the daemon only watches: act is false",
        (true, true) => "the kernel moves, and tells of no use; the daemon keeps limits",
        (true, false) => "the daemon moves",
    };
    let limit = group
        .limit
        .map_or("no limit".to_owned(), |of| format!("limit {}", about(of)));
    let mut text = format!(
        "group {}: {} in memory, {} in the top tier; share {}, protected {}, {limit}\nsource {}: {}; {does}\n",
        group.name,
        about(group.resident),
        about(group.top),
        about(group.share),
        about(group.protect),
        known.source,
        known.why,
    );
    if !group.unmovable.is_empty() {
        let _ = writeln!(text, "cannot be moved: {}", reasons(&group.unmovable));
    }
    for of in known.memories.iter().take(MOST_SHOWN) {
        memory(&mut text, of);
    }
    let rest = known.memories.len().saturating_sub(MOST_SHOWN);
    if rest > 0 {
        let _ = writeln!(text, "and {rest} smaller ones; --json has all");
    }
    text
}

fn memory(text: &mut String, of: &Explained) {
    let name = printable(&of.name);
    let name = match of.pid {
        Some(pid) => format!("{pid} ({name})"),
        None => name,
    };
    let Some(state) = &of.state else {
        let _ = writeln!(text, "\n{name}: not looked at yet");
        return;
    };
    let nodes: Vec<String> = state.nodes.iter().map(u32::to_string).collect();
    let where_to = match nodes.is_empty() {
        true => "no node of the top tier is allowed".to_owned(),
        false => format!("may go up to node {}", nodes.join(", then ")),
    };
    let reported = state.reported_seconds.map_or_else(
        || "no report yet".to_owned(),
        |ago| format!("{} reports, the last one {ago:.1} s ago", state.reports),
    );
    let _ = writeln!(
        text,
        "\n{name}: {} in memory, {} in the top tier; {where_to}; {reported}",
        about(state.resident),
        about(state.top),
    );
    lines(text, state);
    for (reason, bytes) in &of.unmovable {
        let _ = writeln!(
            text,
            "  {:>10} cannot be moved: {}",
            about(*bytes),
            unmovable(reason)
        );
    }
}

/// What a reason means; one that this version does not know is told as it is.
fn unmovable(reason: &str) -> &str {
    match reason {
        "hugetlb" => "huge pages of hugetlbfs",
        "locked" => "locked by mlock, or secret",
        "policy" => "bound by a policy (numactl, mbind, set_mempolicy)",
        "device" => "a driver's",
        "shared" => "processes that are not of the group map it, too",
        "copies" => "several processes have it in private mappings, as after a fork",
        _ => reason,
    }
}

fn lines(text: &mut String, state: &MemoryState) {
    for (of, bytes) in &state.above {
        let _ = writeln!(
            text,
            "  {:>10} in the top tier: {}",
            about(*bytes),
            above(*of)
        );
    }
    for (of, bytes) in &state.below {
        let _ = writeln!(text, "  {:>10} below: {}", about(*bytes), below(*of));
    }
    for (bytes, way) in [(state.chosen_up, "up"), (state.chosen_down, "down")] {
        if bytes > 0 {
            let _ = writeln!(
                text,
                "  {:>10} chosen to go {way} in the last round",
                about(bytes)
            );
        }
    }
}

fn above(of: Above) -> &'static str {
    match of {
        Above::Limit => "the group is above its limit: the coldest goes down",
        Above::NotWatched => "not looked at in the last 5 s: it stays",
        Above::LeftAlone => "came up less than 2 s ago, or would not move: it stays for a while",
        Above::Unknown => "looked at for less than 5 s: it stays",
        Above::InUse => "in use: only hotter memory takes its place",
        Above::Protected => "idle, but protected: it goes for hotter memory of the group alone",
        Above::Cold => "idle: it goes down if hot memory wants its place",
        Above::Idle => "idle for a minute: it goes down if hot or new memory wants its place",
    }
}

fn below(of: Below) -> &'static str {
    match of {
        Below::NotAllowed => "the cpuset allows no node of the top tier",
        Below::NotWatched => "not looked at in the last 5 s",
        Below::WouldNotMove => {
            "would not move: left alone for a while; `memferry top` has the reasons"
        }
        Below::JustMoved => "came down less than 2 s ago",
        Below::Idle => "the last reports did not see it in use",
        Below::RarelyUsed => "in use, but too rarely to go up",
        Below::Bursts => "in use, but in bursts: it went up and came down before",
        Below::Limit => {
            "in use; the group has its limit, so it waits for colder memory of the group to leave"
        }
        Below::NoRate => {
            "in use, but nothing may go up now: pressure, waste or thrash; `memferry top` says which"
        }
        Below::Waiting => {
            "in use: it waits for room, for the rate, or for colder memory to change places with"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memferry_daemon::status::GroupStatus;
    use std::collections::BTreeMap;

    #[test]
    fn each_memory_is_shown_with_what_keeps_it_where_it_is() {
        let state = MemoryState {
            resident: 3 << 30,
            top: 1 << 30,
            nodes: vec![0, 1],
            reports: 30,
            reported_seconds: Some(0.2),
            below: BTreeMap::from([(Below::Idle, 1 << 30), (Below::Waiting, 1 << 30)]),
            above: BTreeMap::from([(Above::InUse, 1 << 30)]),
            chosen_up: 2 << 20,
            ..MemoryState::default()
        };
        let named = |pid, name: &str, state| Explained {
            pid,
            name: name.to_owned(),
            unmovable: match pid {
                Some(7) => BTreeMap::from([("locked".to_owned(), 1 << 20)]),
                _ => BTreeMap::new(),
            },
            state,
        };
        let mut memories = vec![
            named(Some(7), "post\x1bgres", Some(state)),
            named(None, "shared memory 00:01 9", None),
        ];
        memories.extend((0..10).map(|pid| named(Some(pid), "x", None)));
        let known = Explanation {
            act: true,
            source: "damon".to_owned(),
            why: "DAMON is there and free".to_owned(),
            kernel_moves: false,
            group: GroupStatus {
                name: "db".to_owned(),
                resident: 3 << 30,
                top: 1 << 30,
                unmovable: BTreeMap::from([("locked".to_owned(), 1 << 20)]),
                ..GroupStatus::default()
            },
            memories,
        };
        let told = text(&known);
        let start = "group db: 3 GiB in memory, 1 GiB in the top tier; share 0 bytes, protected 0 bytes, no limit\n\
            source damon: DAMON is there and free; the daemon moves\n\
            cannot be moved: 1 MiB locked\n\n\
            7 (post\u{fffd}gres): 3 GiB in memory, 1 GiB in the top tier; may go up to node 0, then 1; 30 reports, the last one 0.2 s ago\n\
            \x20      1 GiB in the top tier: in use: only hotter memory takes its place\n\
            \x20      1 GiB below: the last reports did not see it in use\n\
            \x20      1 GiB below: in use: it waits for room, for the rate, or for colder memory to change places with\n\
            \x20      2 MiB chosen to go up in the last round\n\
            \x20      1 MiB cannot be moved: locked by mlock, or secret\n\n\
            shared memory 00:01 9: not looked at yet\n";
        assert!(told.starts_with(start), "{told}");
        assert!(
            told.ends_with("and 2 smaller ones; --json has all\n"),
            "{told}"
        );
    }
}
