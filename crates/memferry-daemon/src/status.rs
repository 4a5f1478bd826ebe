// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon does, as it leaves it in a file each round for `memferry top`. Fields come with versions: a reader takes those that
//! are missing for their defaults, and leaves alone those that it does not know.

#![expect(missing_docs, reason = "fields whose names say it")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{DaemonError, file};
use crate::knobs::{FOLDER, replace};
use crate::{members, owner};

/// Everything; bytes and seconds, since the daemon began where no more is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "DaemonFile")]
pub struct Status {
    pub pid: u32,
    /// Clock ticks from boot to its start: with `pid` no other process has that. Null of version 0.1.0.
    pub start: Option<u64>,
    /// Whether it moves pages and changes settings, or only watches.
    pub act: bool,
    pub seconds: f64,
    pub rounds: u64,
    /// What the last round took, moves included.
    pub round_seconds: f64,
    pub cpu_seconds: f64,
    /// Resident memory of the daemon.
    pub resident: u64,
    pub source: SourceStatus,
    /// The top tier, then all others together.
    pub tiers: Vec<TierStatus>,
    /// Bytes per second that may go up now.
    pub bytes_per_second: u64,
    /// Thousandths of the configured rate that waste leaves.
    pub waste_rate: u64,
    /// The same of pressure.
    pub pressure_rate: u64,
    /// Percent of the last ten seconds in which somebody waited; null where the kernel does not tell.
    pub memory_pressure: Option<f64>,
    pub cpu_pressure: Option<f64>,
    /// What this round chose, moved or not.
    pub chosen_up: u64,
    pub chosen_down: u64,
    /// What the kernel moved since boot; null where the daemon does.
    pub kernel_promoted: Option<u64>,
    pub kernel_demoted: Option<u64>,
    /// Why the last reload, report, round or record failed; null if it did not.
    pub trouble: Option<String>,
    /// Whether the last reload was refused: the configuration before it holds.
    pub reload_refused: bool,
    pub refused_reloads: u64,
    /// Of the source, of settings and of files of status, each time.
    pub errors: u64,
    /// Records of the history that were not kept.
    pub history_errors: u64,
    pub groups: Vec<GroupStatus>,
}

/// What reports heat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SourceStatus {
    pub name: String,
    /// Why it is the one.
    pub why: String,
    /// Processes that it watches.
    pub watched: u64,
    /// Null where that cannot be told.
    pub cpu_seconds: Option<f64>,
    /// Percent of one CPU that it may take; null where the kernel moves, and of version 0.1.0.
    pub cpu_budget: Option<u32>,
    /// Pieces of memory at most that DAMON tells apart now; null of another source, and of version 0.1.0.
    pub regions: Option<u64>,
    /// Null of a source that takes no samples.
    pub samples: Option<SampleStatus>,
}

/// Samples of all CPUs, those of other processes included; of DAMON, the records of its tracepoint, one for each region in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SampleStatus {
    /// mem-loads, ibs_op, page-faults or damon_aggregated.
    pub event: String,
    /// One in so many events is sampled.
    pub period: u64,
    pub taken: u64,
    /// For which the rings had no room.
    pub lost: u64,
    /// How often the kernel stopped them until the next tick.
    pub throttled: u64,
}

/// Some nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TierStatus {
    pub nodes: Vec<NodeStatus>,
}

/// A node's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeStatus {
    pub node: u32,
    pub size: u64,
    pub free: u64,
}

impl TierStatus {
    /// Of all its nodes.
    pub fn size(&self) -> u64 {
        self.nodes.iter().map(|of| of.size).sum()
    }

    /// Of all its nodes.
    pub fn free(&self) -> u64 {
        self.nodes.iter().map(|of| of.free).sum()
    }
}

/// A tenant. Only memory counts that may move, but for `unmovable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupStatus {
    pub name: String,
    pub processes: u64,
    pub resident: u64,
    /// What cannot be moved, beside `resident`, by reason: `hugetlb`, `locked`, `policy`, `device`, `shared` with processes that are not of
    /// the group, `copies` that several processes have in private mappings and that count once for each.
    pub unmovable: BTreeMap<String, u64>,
    /// In the top tier.
    pub top: u64,
    /// Seen in use in this round.
    pub hot: u64,
    /// Null where the kernel moves, which reports no use, and of version 0.1.0.
    pub used_within: Option<UsedWithin>,
    /// Its share of the top tier as things are.
    pub share: u64,
    pub protect: u64,
    /// Null for no limit.
    pub limit: Option<u64>,
    pub promoted: u64,
    pub demoted: u64,
    /// Was chosen, and did not move.
    pub stayed: u64,
    /// The same by reason: the name of an errno of move_pages(2), or `cpuset`, `unmovable`, `error`.
    pub stayed_reasons: BTreeMap<String, u64>,
    /// Was promoted, and not used again within ten seconds.
    pub wasted: u64,
    /// Was demoted, and seen in use 0.8 seconds later.
    pub thrashed: u64,
    /// Thousandths of its rate that thrash leaves.
    pub rate: u64,
    /// Percent of the last ten seconds in which somebody in its cgroups waited, the largest of them; null where none tells.
    pub memory_pressure: Option<f64>,
    pub cpu_pressure: Option<f64>,
    /// Thousandths of its rate that these leave; null of version 0.1.0.
    pub pressure_rate: Option<u64>,
}

impl GroupStatus {
    /// All that cannot be moved.
    pub fn unmovable_bytes(&self) -> u64 {
        self.unmovable.values().sum()
    }
}

/// Bytes of memory that was last seen in use within so long, each with those before it. Memory that was never seen in use since the
/// daemon began, or the groups changed, is in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UsedWithin {
    pub second: u64,
    pub ten_seconds: u64,
    pub minute: u64,
    pub ten_minutes: u64,
    pub hour: u64,
}

impl UsedWithin {
    /// With short names of the ages.
    pub fn by_age(&self) -> [(&'static str, u64); 5] {
        [
            ("1s", self.second),
            ("10s", self.ten_seconds),
            ("1m", self.minute),
            ("10m", self.ten_minutes),
            ("1h", self.hour),
        ]
    }
}

fn path(root: &Path) -> PathBuf {
    root.join(FOLDER).join("status.json")
}

impl Status {
    /// Reads the file of the daemon that runs below `root`.
    ///
    /// # Errors
    /// None has run since boot, or the file is not as documented.
    pub fn read(root: &Path) -> Result<Self, DaemonError> {
        let path = path(root);
        let bytes =
            fs::read(&path).map_err(file(&path, "read what the daemon does; does it run?"))?;
        let parsed = serde_json::from_slice(&bytes).map_err(io::Error::from);
        parsed.map_err(file(&path, "understand what the daemon does"))
    }

    /// Whether the daemon that wrote it is a process below `root`. One that was killed has left its last status, and its number may be
    /// another process's by now.
    pub fn is_of_a_process(&self, root: &Path) -> bool {
        let Ok(stat) = owner::read(root, self.pid, "stat") else {
            // A /proc with hidepid shows no process of another user.
            let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
            let is_hidden = |pid| test_kill_process(pid) == Err(Errno::PERM);
            return root == Path::new("/") && pid.is_some_and(is_hidden);
        };
        match self.start {
            Some(start) => members::start(root, self.pid) == Some(start),
            None => stat.starts_with(&format!("{} (memferry) ", self.pid)),
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, root: &Path) -> Result<(), DaemonError> {
        let written = replace(&path(root), self, 0o644);
        written.map_err(file(path(root), "write what the daemon does"))
    }

    /// Removes it: the daemon has ended.
    pub(crate) fn remove(root: &Path) {
        // Without it there is nothing to remove.
        let _ = fs::remove_file(path(root));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Record;
    use crate::machine::tests::put;

    /// A record of version 0.1.0, but for its end.
    const OLDER: &str = r#"{"date":"2026-11-28T10:00:00Z","next":60.0,"pid":7,"act":true,"seconds":0.2,"rounds":1,
        "round_seconds":0.01,"cpu_seconds":0.01,"resident":4096,"source":{"name":"damon","why":"it is there","watched":1,
        "cpu_seconds":0.01,"samples":{"event":"ibs_op","period":9,"taken":8,"lost":7,"throttled":6}},
        "tiers":[{"nodes":[{"node":0,"size":2,"free":1}]},{"nodes":[{"node":1,"size":4,"free":3}]}],
        "bytes_per_second":268435456,"waste_rate":1000,"pressure_rate":1000,"memory_pressure":null,"cpu_pressure":12.5,
        "chosen_up":0,"chosen_down":0,"kernel_promoted":null,"kernel_demoted":null,"trouble":null,"reload_refused":false,
        "refused_reloads":0,"errors":0,"history_errors":0,"groups":[{"name":"db","processes":1,"resident":8,"top":4,"hot":2,
        "share":4,"protect":0,"limit":null,"promoted":4096,"demoted":0,"stayed":5,"wasted":0,"thrashed":0,"rate":1000}]}"#;

    /// Each field but the date may be missing or come later; `null` where a value was never is no other shape.
    #[test]
    fn a_state_of_another_version_is_read() {
        let whole: Record = serde_json::from_str(OLDER).unwrap();
        let group = &whole.status.groups[0];
        assert_eq!((group.promoted, group.stayed, group.rate), (4096, 5, 1000));
        for name in [
            "next",
            "pid",
            "act",
            "resident",
            "errors",
            "why",
            "samples",
            "throttled",
            "nodes",
            "free",
            "groups",
            "stayed",
            "limit",
            "history_errors",
        ] {
            let other = OLDER.replace(&format!("\"{name}\":"), "\"of_another_version\":");
            let record: Record = serde_json::from_str(&other).unwrap();
            assert_eq!(record.date, whole.date, "{name}");
            let root = tempfile::tempdir().unwrap();
            put(root.path(), &format!("{FOLDER}/status.json"), &other);
            assert_eq!(Status::read(root.path()).unwrap(), record.status, "{name}");
        }
    }

    #[test]
    fn a_number_that_another_process_has_now_is_no_daemon() {
        let root = tempfile::tempdir().unwrap();
        let status = |start| Status {
            pid: 7,
            start,
            ..Status::default()
        };
        let is_there = |start| status(start).is_of_a_process(root.path());
        assert!(!is_there(Some(900)) && !is_there(None));
        for (name, of_older) in [("memferry", true), ("a) (memferry) S", false)] {
            let stat = format!("7 ({name}) S {}900 0\n", "0 ".repeat(18));
            put(root.path(), "proc/7/stat", &stat);
            let found = [Some(900), Some(901), None].map(is_there);
            assert_eq!(found, [true, false, of_older], "{name}");
        }
    }
}
