// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invented machines: folders with the files that a kernel would show.

use std::fs;
use std::path::Path;
use std::process::Output;

use memferry_bench::synthetic;
pub use memferry_bench::synthetic::{MIGRATION as FOLDER, migrators as machine};

use super::memferry;

/// What `kernel set --persist` writes.
pub const KEPT: [&str; 4] = [
    "etc/modules-load.d/memferry.conf",
    "etc/sysctl.d/memferry.conf",
    "etc/tmpfiles.d/memferry.conf",
    "etc/systemd/system/systemd-tmpfiles-setup.service.d/memferry.conf",
];

/// A stock kernel.
pub fn stock() -> tempfile::TempDir {
    let root = synthetic::listed("");
    fs::create_dir_all(root.path().join("sys/kernel/mm")).expect("folder");
    root
}

pub fn put(root: &Path, file: &str, text: &str) {
    synthetic::put(&root.join(FOLDER), file, text);
}

pub fn text(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(FOLDER).join(file)).expect("file")
}

pub fn kernel(root: &Path, line: &str) -> Output {
    memferry(&format!("kernel {line} --root {}", root.display()))
}

/// A kernel with pghot beside the migrators.
pub fn with_pghot() -> tempfile::TempDir {
    let root = machine();
    let files = "
proc/sys/vm/pghot_enabled_sources = 4
proc/sys/vm/pghot_target_nid = 0
proc/sys/vm/pghot_promote_rate_limit_MBps = 65536
proc/sys/vm/pghot_promote_freq_window_ms = 3000
proc/vmstat = nr_free_pages 4;pgpromote_success 77;pghot_refused_pace 0
sys/kernel/debug/pghot/status = format default;record_bytes 262144;exchanged 55;bounced 0
sys/kernel/debug/pghot/freq_threshold = 2
";
    let lines = files.lines().skip(1);
    lines.for_each(|line| synthetic::change(root.path(), line));
    let heat = "# section nid pages_known hot majority_node freq1 freq2 freq3
20 2 100 3 0 97 2 1
21 2 32768 16384 1 0 16384 16384
40 3 1 1 -1 0 0 1
";
    synthetic::put(root.path(), "sys/kernel/debug/pghot/heat", heat);
    root
}

pub fn sysctl(root: &Path, name: &str) -> String {
    let path = root.join("proc/sys/vm").join(name);
    fs::read_to_string(path).expect("file").trim().to_owned()
}

/// A machine with so many CPUs on one node, and this kernel.
pub fn large(cpus: u32, release: &str) -> tempfile::TempDir {
    let last = cpus - 1;
    synthetic::listed(&format!(
        "sys/devices/system/cpu/online = 0-{last}
         proc/sys/kernel/osrelease = {release}
         NODES/has_memory = 0
         NODES/node0/cpulist = 0-{last}
         NODES/node0/distance = 10
         NODES/node0/meminfo = Node 0 MemTotal: 16777216 kB;Node 0 MemFree: 8388608 kB"
    ))
}
