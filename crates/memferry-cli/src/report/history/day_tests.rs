// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up days: daemons that were killed, stopped, or could not write.

use super::*;
use memferry_daemon::status::{NodeStatus, SourceStatus, TierStatus};

/// A record at so many minutes after the first, of a daemon that began at `began`.
pub fn record(pid: u32, began: u64, minute: u64, next: Option<f64>) -> Record {
    let ran = minute - began;
    let at = UNIX_EPOCH + std::time::Duration::from_secs(1_764_000_000 + minute * 60);
    let group = |name: &str, protect: u64| GroupStatus {
        name: name.to_owned(),
        resident: 4 << 30,
        top: 1 << 30,
        hot: 2 << 30,
        protect,
        promoted: ran * (60 << 20),
        demoted: ran * (30 << 20),
        wasted: ran * (6 << 20),
        thrashed: ran * (3 << 20),
        ..GroupStatus::default()
    };
    let tier = |size, free| TierStatus {
        nodes: vec![NodeStatus {
            node: 0,
            size,
            free,
        }],
    };
    let status = Status {
        pid,
        act: true,
        seconds: (ran * 60) as f64,
        cpu_seconds: (ran * 60) as f64 / 100.0,
        source: SourceStatus {
            name: "damon".to_owned(),
            cpu_seconds: Some((ran * 60) as f64 / 50.0),
            ..SourceStatus::default()
        },
        tiers: vec![tier(8 << 30, 2 << 30), tier(16 << 30, 8 << 30)],
        memory_pressure: Some(1.5),
        cpu_pressure: Some(12.5),
        waste_rate: 1000,
        pressure_rate: 500,
        groups: vec![group("db", 2 << 30), group("batch", 0)],
        ..Status::default()
    };
    Record {
        date: humantime::format_rfc3339_seconds(at).to_string(),
        next,
        status,
    }
}

pub fn day(records: &[Record]) -> Day {
    let mut reader = Reader::default();
    for record in records {
        let line = serde_json::to_string(record).expect("JSON");
        reader.take(line.as_bytes()).expect("record");
    }
    reader.day("history.jsonl".to_owned())
}

const NEXT: Option<f64> = Some(60.0);

#[test]
fn totals_are_told_apart_by_daemon_and_gaps_by_their_reason() {
    let mut late = record(2, 40, 140, NEXT);
    late.status.groups[0].promoted = 7;
    let records = [
        record(1, 0, 0, NEXT),
        record(1, 0, 1, NEXT),
        // Killed, down for 8 minutes.
        record(1, 10, 10, NEXT),
        record(1, 10, 11, None),
        // Stopped.
        record(2, 40, 40, NEXT),
        // Slept, and the groups were changed.
        late,
    ];
    let day = day(&records);
    let promoted = |at: usize| day.steps[at].done.groups[0].promoted;
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(promoted),
        [0, 60 << 20, 0, 60 << 20, 0, 7]
    );
    let gaps: Vec<(u64, &str)> = (day.gaps.iter())
        .map(|gap| (((gap.to - gap.from) / 60.0) as u64, gap.why))
        .collect();
    assert_eq!(
        gaps.iter().map(|gap| gap.0).collect::<Vec<_>>(),
        [9, 29, 100]
    );
    for ((_, why), says) in gaps.iter().zip(["killed", "stopped", "slept"]) {
        assert!(why.contains(says), "{why}");
    }
    assert_eq!((day.missing(), day.known()), (138.0 * 60.0, 2.0 * 60.0));
    assert_eq!(day.starts.len(), 3);
    assert!(day.incomplete().is_some_and(|text| text.contains("2h 18m")));
}

#[test]
fn what_is_older_than_a_day_is_only_the_start_of_the_first_step() {
    let records: Vec<Record> = (0..2000).map(|minute| record(1, 0, minute, NEXT)).collect();
    let day = day(&records);
    assert_eq!(day.steps.len(), 1441);
    assert!(
        day.steps
            .iter()
            .all(|step| step.done.groups[0].promoted == 60 << 20)
    );
    assert!(day.incomplete().is_none() && day.starts.is_empty());
}

#[test]
fn a_daemon_whose_older_records_are_gone_has_done_nothing_before_the_first() {
    let day = day(&[record(1, 0, 500, NEXT), record(1, 0, 501, NEXT)]);
    assert_eq!(day.steps[0].done.up(), 0);
    assert_eq!(day.steps[1].done.up(), 2 * (60 << 20));
    assert_eq!(day.known(), 60.0);
}

#[test]
fn cut_lines_are_counted_but_for_the_last() {
    let mut reader = Reader::default();
    reader.take(b"{\"date\":\"2026\n").expect("cut");
    reader.take(b"{\"date\":").expect("being written");
    assert_eq!(reader.cut, 1);
    for (line, says) in [
        ("{\"schema\":\"memferry-history/2\"}", "memferry-history/2"),
        ("{\"date\":\"x\"}", "missing field"),
    ] {
        let why = reader.take(line.as_bytes()).expect_err("refused");
        assert!(why.contains(says), "{why}");
    }
}
