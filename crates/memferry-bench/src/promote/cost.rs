// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel did and what it took, from before a run to after it: counters of /proc/vmstat, CPU time of its threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use memferry_linux::kernel::pghot::{status, vmstat};
use memferry_linux::process::cpu_seconds;

use crate::failure::{Failure, OrFail};

/// Counters and CPU times at one moment.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// All of /proc/vmstat, and the numbers of debugfs `pghot/status` with `pghot_` before their names.
    pub counters: BTreeMap<String, u64>,
    /// CPU seconds of the thread that walks page tables. It is gone when its source is off, so the kernel's own count is
    /// taken.
    pub tracker_s: f64,
    /// CPU seconds of `kmigrated`.
    pub migration_s: f64,
    /// CPU seconds of `kswapd`.
    pub demotion_s: f64,
}

impl Cost {
    /// Reads what the kernel below `root` says now.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let mut counters =
            vmstat(root).or_fail("cannot read the kernel's counters", "mount /proc")?;
        let told = status(root).into_iter();
        counters.extend(
            told.filter_map(|(name, value)| Some((format!("pghot_{name}"), value.parse().ok()?))),
        );
        let walked_us = counters.get("pghot_scan_us").copied().unwrap_or(0);
        let mut cost = Self {
            counters,
            tracker_s: walked_us as f64 / 1e6,
            ..Self::default()
        };
        for (name, seconds) in threads(root) {
            if name.starts_with("kmigrated") {
                cost.migration_s += seconds;
            } else if name.starts_with("kswapd") {
                cost.demotion_s += seconds;
            }
        }
        Ok(cost)
    }

    /// What came since `before`. A counter that a gauge lowered is 0.
    pub fn since(&self, before: &Self) -> Self {
        let rise = |(name, value): (&String, &u64)| {
            let was = before.counters.get(name).copied().unwrap_or(0);
            (name.clone(), value.saturating_sub(was))
        };
        Self {
            counters: self.counters.iter().map(rise).collect(),
            tracker_s: (self.tracker_s - before.tracker_s).max(0.0),
            migration_s: (self.migration_s - before.migration_s).max(0.0),
            demotion_s: (self.demotion_s - before.demotion_s).max(0.0),
        }
    }

    /// A counter; 0 where the kernel has none of this name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Pages demoted, whoever did it: reclaim, or `kmigrated`.
    pub fn demoted(&self) -> u64 {
        let of = self.counters.iter();
        of.filter(|(name, _)| name.starts_with("pgdemote_"))
            .map(|(_, count)| count)
            .sum()
    }

    /// The counters that tell of promotion, those that rose.
    pub fn told(&self) -> BTreeMap<String, u64> {
        let prefixes = ["pghot_", "pgpromote_", "pgdemote_", "numa_", "pgmigrate_"];
        let told = |(name, count): (&String, &u64)| {
            let wanted = *count > 0 && prefixes.iter().any(|prefix| name.starts_with(prefix));
            wanted.then(|| (name.clone(), *count))
        };
        self.counters.iter().filter_map(told).collect()
    }
}

/// The threads of the kernel that a run can make work, with their CPU seconds.
fn threads(root: &Path) -> Vec<(String, f64)> {
    let folders = fs::read_dir(root.join("proc"))
        .into_iter()
        .flatten()
        .flatten();
    let thread = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let folder = entry.path();
        let name = fs::read_to_string(folder.join("comm")).ok()?;
        let name = name.trim();
        let wanted = ["kmigrated", "kswapd"];
        if !wanted.iter().any(|of| name.starts_with(of)) {
            return None;
        }
        Some((name.to_owned(), thread_seconds(&folder)?))
    };
    folders.filter_map(thread).collect()
}

/// CPU seconds of the thread with this folder in /proc: to the nanosecond where the kernel keeps such accounts, else in ticks of 10 ms.
pub fn thread_seconds(folder: &Path) -> Option<f64> {
    let exact = fs::read_to_string(folder.join("schedstat")).ok();
    exact
        .and_then(|text| Some(text.split(' ').next()?.parse::<u64>().ok()? as f64 / 1e9))
        .or_else(|| cpu_seconds(&fs::read_to_string(folder.join("stat")).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{change, listed};

    #[test]
    fn threads_are_told_apart_by_name_and_counted_exactly_where_that_is_possible() {
        let root = listed(
            "proc/vmstat = pgpromote_success 5;nr_free_pages 100;pgdemote_kswapd 1;pghot_demoted 3
             sys/kernel/debug/pghot/status = format default;scan_us 500000
             proc/40/comm = kmigrated/2
             proc/40/schedstat = 2500000000 7 3
             proc/41/comm = kswapd0
             proc/41/stat = 41 (kswapd0) S 2 0 0 0 -1 1 0 0 0 0 30 70 0 0 20 0 1 0
             proc/43/comm = bash
             proc/43/schedstat = 900000000 7 3",
        );
        let before = Cost::read(root.path()).expect("cost");
        let times = [before.migration_s, before.demotion_s, before.tracker_s];
        for (time, expected) in times.iter().zip([2.5, 1.0, 0.5]) {
            assert!((time - expected).abs() < 1e-9, "{times:?}");
        }
        for line in [
            "proc/vmstat = pgpromote_success 12;nr_free_pages 90;pgdemote_kswapd 4;pgdemote_direct 2;pghot_promoted 7;pghot_demoted 13",
            "sys/kernel/debug/pghot/status = format default;scan_us 750000",
            "proc/40/schedstat = 3000000000 7 3",
        ] {
            change(root.path(), line);
        }
        let rise = Cost::read(root.path()).expect("cost").since(&before);
        assert_eq!((rise.counter("pgpromote_success"), rise.demoted()), (7, 5));
        assert_eq!(rise.counter("nr_free_pages"), 0);
        assert!((rise.migration_s - 0.5).abs() < 1e-9);
        assert!((rise.tracker_s - 0.25).abs() < 1e-9);
        let told: Vec<String> = rise.told().into_keys().collect();
        assert_eq!(
            told.join(" "),
            "pgdemote_direct pgdemote_kswapd pghot_demoted pghot_promoted pghot_scan_us pgpromote_success"
        );
    }
}
