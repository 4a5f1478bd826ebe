// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are moved, and machines that say in which cgroups they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::memferry;

/// The first node with memory.
pub fn node() -> String {
    let text = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let first = text.trim().split(['-', ',']).next().unwrap_or("0");
    if first.is_empty() { "0" } else { first }.to_owned()
}

/// A number of a JSON file.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A machine with these cgroups: paths, and the processes in each.
pub fn cgroups(all: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("folder");
    let mount = root.path().join("sys/fs/cgroup");
    fs::create_dir_all(&mount).expect("folder");
    fs::write(mount.join("cgroup.controllers"), "memory\n").expect("file");
    for (path, processes) in all {
        let folder = mount.join(path);
        fs::create_dir_all(&folder).expect("folder");
        fs::write(folder.join("cgroup.procs"), processes).expect("file");
    }
    root
}

/// A copy of the command for other users, who may not be able to reach the folder that it was built in; and what else they may read.
pub fn for_others(folder: &Path, read: &Path) -> PathBuf {
    let program = folder.join("memferry");
    // By a process of its own: a child that another test starts now would inherit the file open for writing, and no kernel
    // starts such a program.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_memferry"))
        .arg(&program)
        .status();
    assert!(copied.expect("cp").success());
    for open in [folder, read] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    program
}

/// Runs `memferry move` on such a machine.
pub fn move_below(root: &Path, line: &str) -> Output {
    memferry(&format!("{line} --root {}", root.display()))
}
