// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry doctor` on a machine with a slow tier: it finds what is set wrong, and the commands that it names mend it.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::Case;
use crate::program::memferry;
use crate::promote::need_tiers;

pub const CASES: &[Case] = &[("doctor_names_commands_that_mend", mends)];

const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// What was changed for the case, set back when the value goes.
struct Before(Vec<(String, String)>);

impl Drop for Before {
    fn drop(&mut self) {
        for (file, text) in &self.0 {
            let _ = fs::write(file, text.trim());
        }
    }
}

/// What is wrong, by the names of the checks.
fn wrong() -> Vec<Value> {
    let json = memferry("doctor --json").json();
    let findings = json["findings"].as_array().unwrap().iter();
    let is_wrong = |finding: &&Value| finding["severity"] == "wrong";
    findings.filter(is_wrong).cloned().collect()
}

/// The blocks of memory that are off line, as files to write `offline` to.
fn offline_blocks() -> Vec<String> {
    let folder = fs::read_dir("/sys/devices/system/memory").unwrap();
    let files = folder.map(|entry| entry.unwrap().path().join("state"));
    let offline = |file: &std::path::PathBuf| {
        fs::read_to_string(file).is_ok_and(|state| state.trim() == "offline")
    };
    let files = files.filter(offline);
    files
        .map(|file| file.to_str().unwrap().to_owned())
        .collect()
}

fn mends() -> Result<(), String> {
    need_tiers()?;
    let blocks = offline_blocks().into_iter();
    let mut before: Vec<(String, String)> =
        blocks.map(|file| (file, "offline".to_owned())).collect();
    let has_offline = !before.is_empty();
    for file in [DEMOTION, BALANCING] {
        before.push((file.to_owned(), fs::read_to_string(file).unwrap()));
    }
    let before = Before(before);
    fs::write(DEMOTION, "0").unwrap();
    fs::write(BALANCING, "0").unwrap();
    // pghot promotes without NUMA balancing.
    let pghot = fs::read_to_string("/proc/sys/vm/pghot_enabled_sources");
    let expected = [
        ("offline", has_offline),
        ("demotion", true),
        ("promotion", pghot.map_or(true, |on| on.trim() == "0")),
    ];
    memferry("doctor").gives(1).says(DEMOTION);
    let found = wrong();
    for (check, is_expected) in expected {
        let found = found.iter().any(|finding| finding["check"] == check);
        assert_eq!(found, is_expected, "{check}");
    }
    for finding in &found {
        let command = finding["mend"]
            .as_str()
            .unwrap_or_else(|| panic!("{finding}"));
        let done = Command::new("sh").args(["-ec", command]).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
        let left = wrong();
        let is_left = left.iter().any(|other| other["check"] == finding["check"]);
        assert!(!is_left, "{command}: {left:?}");
    }
    memferry("doctor").gives(0).says("0 wrong");
    let changed = before.0.iter().map(|(file, _)| file.clone());
    let changed: Vec<String> = changed.collect();
    let expected: Vec<String> = before
        .0
        .iter()
        .map(|(_, text)| text.trim().to_owned())
        .collect();
    drop(before);
    for (file, text) in changed.iter().zip(expected) {
        assert_eq!(fs::read_to_string(file).unwrap().trim(), text, "{file}");
    }
    Ok(())
}
