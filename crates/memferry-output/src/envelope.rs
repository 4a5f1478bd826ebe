// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every file says of itself: which memferry wrote it, when, how it was called, under which settings, and whether it is
//! complete.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use memferry_linux::affinity;
use memferry_linux::topology::parse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The head of a file. Files of before it have none of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "")]
pub struct Envelope {
    /// The version of memferry that wrote it.
    #[serde(default)]
    pub version: String,
    /// When it was written, UTC (RFC 3339); in files of benchmarks older than this field the day alone.
    #[serde(default)]
    pub date: String,
    /// The command line without the program's name.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// What the figures depend on: options as they came to be, and by their paths the kernel's files outside of the runs.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Whether it has all that was asked for, and all cases and runs ended well.
    #[serde(default)]
    pub complete: bool,
}

/// Files of the kernel whose text changes what a move or a promotion costs, below the root.
const FILES: [&str; 26] = [
    "proc/sys/kernel/numa_balancing",
    "proc/sys/vm/pghot_enabled_sources",
    "proc/sys/vm/pghot_promote_freq_window_ms",
    "proc/sys/vm/pghot_promote_rate_limit_MBps",
    "proc/sys/vm/pghot_target_nid",
    "proc/sys/vm/swappiness",
    "proc/sys/vm/zone_reclaim_mode",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/smt/control",
    "sys/kernel/debug/pghot/freq_threshold",
    "sys/kernel/debug/sched/numa_balancing/scan_size_mb",
    "sys/kernel/mm/lru_gen/enabled",
    "sys/kernel/mm/migration/dcbm/lanes",
    "sys/kernel/mm/migration/max_batch_bytes",
    "sys/kernel/mm/migration/migrator",
    "sys/kernel/mm/migration/mtcopy/lanes",
    "sys/kernel/mm/migration/reasons",
    "sys/kernel/mm/numa/demotion_enabled",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/module/dcbm/parameters/slack_ms",
    "sys/module/migrator/parameters/gather",
    "sys/module/migrator/parameters/min_batch_bytes",
    "sys/module/mtcopy/parameters/fill",
    "sys/module/mtcopy/parameters/high_priority",
    "sys/module/mtcopy/parameters/idle_only",
    "sys/module/mtcopy/parameters/nontemporal",
];

impl Envelope {
    /// Of this command, now; not complete yet.
    pub fn now(root: &Path) -> Self {
        let file = |file: &&str| {
            let text = fs::read_to_string(root.join(file)).ok()?;
            Some(((*file).to_owned(), text.trim().to_owned()))
        };
        let mut settings: BTreeMap<String, String> = FILES.iter().filter_map(file).collect();
        if let Ok(cpus) = affinity::allowed() {
            settings.insert("usable_cpus".to_owned(), parse::format_id_list(&cpus));
        }
        let arguments = std::env::args_os().skip(1);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            arguments: arguments
                .map(|of| of.to_string_lossy().into_owned())
                .collect(),
            settings,
            complete: false,
        }
    }

    /// The same with one more setting.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.settings.insert(name.to_owned(), value.to_string());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_that_are_there_are_settings() {
        let file = "proc/sys/kernel/numa_balancing";
        let root = memferry_linux::invented::machine(&[(file, "2\n")]);
        let envelope = Envelope::now(root.path()).with("seconds", 3);
        let names = [file, "seconds"];
        let settings: Vec<_> = (envelope.settings.iter())
            .filter(|(name, _)| names.contains(&name.as_str()))
            .collect();
        assert!(envelope.settings.contains_key("usable_cpus"));
        let own = |text: &str| text.to_owned();
        assert_eq!(
            settings,
            [(&own(file), &own("2")), (&own("seconds"), &own("3"))]
        );
        let then = humantime::parse_rfc3339(&envelope.date).expect("a date");
        assert!(then.elapsed().expect("past").as_secs() < 60);
        assert!(!envelope.complete);
    }
}
