// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invented machines for tests: folders with the files that a kernel would show.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::kernel::{FOLDER, REASONS};

/// The folder of the nodes.
pub const NODES: &str = "sys/devices/system/node";
/// The folder of the tiers.
pub const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// The folder of the migrators.
pub const MIGRATION: &str = FOLDER;

/// Writes a file of an invented machine.
pub fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().expect("folder")).expect("folder");
    fs::write(path, text).expect("file");
}

/// A folder where files are in memory, as those of /proc and /sys are, if there is one: a test may replace thousands.
fn in_memory() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("folder")
}

/// An invented machine with these files.
pub fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = in_memory();
    files
        .iter()
        .for_each(|(file, text)| put(root.path(), file, text));
    root
}

/// The files without which no machine is read.
const LEAST: &str = "
sys/devices/system/cpu/online = 0
proc/cpuinfo = processor : 0;model name : Fake CPU 9000
proc/meminfo = MemTotal: 16777216 kB;MemFree: 8388608 kB;MemAvailable: 8388608 kB
proc/sys/kernel/osrelease = 6.12.57
proc/sys/vm/max_map_count = 65530
proc/sys/vm/overcommit_memory = 0
";

/// An invented machine with these files and what every machine has. See [`changes`].
pub fn listed(files: &str) -> tempfile::TempDir {
    let root = in_memory();
    changes(root.path(), LEAST);
    changes(root.path(), files);
    root
}

/// A machine with the kernel's series: `kernel` and `mtcopy` are registered, nothing is active.
pub fn migrators() -> tempfile::TempDir {
    let files = "
MIGRATION/migrator = [none] auto kernel mtcopy
MIGRATION/max_batch_bytes = 4194304
MIGRATION/quarantined_bytes = 0
MIGRATION/mtcopy/lanes = 2
MIGRATION/stats/kernel/folios = 0
MIGRATION/stats/kernel/bytes = 0
MIGRATION/stats/kernel/fallbacks = 0
MIGRATION/stats/kernel/declined = 0
MIGRATION/stats/kernel/refused = 0
MIGRATION/stats/mtcopy/folios = 1536
MIGRATION/stats/mtcopy/bytes = 6291456
MIGRATION/stats/mtcopy/fallbacks = 1
MIGRATION/stats/mtcopy/declined = 2
MIGRATION/stats/mtcopy/refused = 5
";
    let root = listed(&files.replace("MIGRATION", MIGRATION));
    let reasons = REASONS.map(|reason| format!("{reason} default\n"));
    put(
        root.path(),
        &format!("{MIGRATION}/reasons"),
        &reasons.concat(),
    );
    root
}

/// Does every [`change`] of a list; NODES and TIERS stand for their folders.
pub fn changes(root: &Path, files: &str) {
    let files = files.replace("NODES", NODES).replace("TIERS", TIERS);
    let lines = files.lines().filter(|line| !line.trim().is_empty());
    lines.for_each(|line| change(root, line));
}

/// Does `PATH = TEXT`: a `;` stands for a new line, `->` makes a link, `gone` removes the file or folder.
pub fn change(root: &Path, line: &str) {
    let (path, text) = line.split_once('=').expect("PATH = TEXT");
    let (path, text) = (root.join(path.trim()), text.trim().replace(';', "\n"));
    if path.is_dir() {
        fs::remove_dir_all(&path).expect("remove");
    } else if path.is_symlink() || path.exists() {
        fs::remove_file(&path).expect("remove");
    }
    fs::create_dir_all(path.parent().expect("folder")).expect("folder");
    match text.strip_prefix("->") {
        Some(target) => symlink(target, path).expect("link"),
        None if text == "gone" => {}
        None => fs::write(path, text + "\n").expect("file"),
    }
}
