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
    for (number, record) in records.iter().enumerate() {
        let line = serde_json::to_string(record).expect("JSON");
        reader.take(number + 1, line.as_bytes());
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
fn a_line_that_cannot_be_read_costs_that_line() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("history.jsonl");
    let line = |minute| serde_json::to_string(&record(1, 0, minute, NEXT)).expect("JSON");
    let head = |version| {
        format!("{{\"schema\":\"memferry-history/{version}\",\"host\":{{\"cpu\":\"x\"}}}}")
    };
    let read = |lines: &[String]| {
        // The daemon is writing the last one.
        std::fs::write(&path, lines.join("\n") + "\n{\"date\":").expect("write");
        assert!(is_history(&path), "{lines:?}");
        load(&path)
    };
    let of_later = line(2).replacen("\"seconds\":", "\"second\":[],\"seconds\":", 1);
    let lines = [
        head(1),
        line(0),
        line(1).replacen("\"pid\":", "\"process\":", 1),
        of_later,
        "{\"date\":\"2026".to_owned(),
        line(3).replacen("\"groups\":[", "\"groups\":[7,", 1),
        "{\"date\":\"x\"}".to_owned(),
        head(2),
        line(4),
        head(1),
        line(5),
    ];
    let day = read(&lines).expect("day");
    assert_eq!((day.steps.len(), day.left_out), (4, 4));
    let told = day.incomplete().expect("incomplete");
    assert!(told.contains("left out: 4."), "{told}");
    // Where nothing can be read it is told why.
    for (lines, says) in [
        (
            [head(2), line(4)],
            "line 2: its schema is \"memferry-history/2\"",
        ),
        ([head(1), "{\"date\":\"x\"}".to_owned()], "is no date"),
        ([head(1), "{\"pid\":7}".to_owned()], "missing field `date`"),
    ] {
        let why = read(&lines).err().expect("refused").to_string();
        assert!(why.contains(says), "{why}");
    }
}
