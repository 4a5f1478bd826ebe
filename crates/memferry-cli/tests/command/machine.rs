// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invented machines: folders with the files that a kernel would show.

use std::fs;
use std::path::Path;
use std::process::Output;

use memferry_bench::synthetic;

use super::memferry;

/// The migrators' folder.
pub const FOLDER: &str = "sys/kernel/mm/migration";

/// What `kernel set --persist` writes.
pub const KEPT: [&str; 4] = [
    "etc/modules-load.d/memferry.conf",
    "etc/sysctl.d/memferry.conf",
    "etc/tmpfiles.d/memferry.conf",
    "etc/systemd/system/systemd-tmpfiles-setup.service.d/memferry.conf",
];

/// What the kernel says of them at first.
pub const REASONS: &str = "compaction default\nmemory_failure default\nmemory_hotplug default\nsyscall_or_cpuset default\n\
                           mempolicy_mbind default\nnuma_misplaced default\ncontig_range default\nlongterm_pin default\n\
                           demotion default\ndamon default\n";

/// A kernel with the series; `kernel` and `mtcopy` are registered, nothing is active.
pub fn machine() -> tempfile::TempDir {
    let root = stock();
    for (file, text) in [
        ("migrator", "[none] auto kernel mtcopy\n"),
        ("reasons", REASONS),
        ("max_batch_bytes", "4194304\n"),
        ("quarantined_bytes", "0\n"),
        ("mtcopy/lanes", "2\n"),
        ("stats/mtcopy/folios", "1536\n"),
        ("stats/mtcopy/bytes", "6291456\n"),
        ("stats/mtcopy/fallbacks", "1\n"),
        ("stats/mtcopy/declined", "0\n"),
        ("stats/mtcopy/refused", "5\n"),
    ] {
        put(root.path(), file, text);
    }
    root
}

/// A stock kernel.
pub fn stock() -> tempfile::TempDir {
    let root = synthetic::machine(&[("proc/sys/kernel/osrelease", "6.12.57\n")]);
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
    for (file, text) in [
        ("proc/sys/vm/pghot_enabled_sources", "4\n"),
        ("proc/sys/vm/pghot_target_nid", "0\n"),
        ("proc/sys/vm/pghot_promote_rate_limit_MBps", "65536\n"),
        (
            "proc/vmstat",
            "nr_free_pages 4\npgpromote_success 77\npghot_refused_pace 0\n",
        ),
        (
            "sys/kernel/debug/pghot/status",
            "format default\nrecord_bytes 262144\nexchanged 55\nbounced 0\n",
        ),
        ("sys/kernel/debug/pghot/window_ms", "3000\n"),
        (
            "sys/kernel/debug/pghot/heat",
            "# section nid pages_known hot majority_node freq1 freq2 freq3\n\
             20 2 100 3 0 97 2 1\n\
             21 2 32768 16384 1 0 16384 16384\n\
             40 3 1 1 -1 0 0 1\n",
        ),
    ] {
        synthetic::put(root.path(), file, text);
    }
    root
}

pub fn sysctl(root: &Path, name: &str) -> String {
    let path = root.join("proc/sys/vm").join(name);
    fs::read_to_string(path).expect("file").trim().to_owned()
}

/// A machine with so many CPUs on one node, and this kernel.
pub fn large(cpus: u32, release: &str) -> tempfile::TempDir {
    let (list, node) = (format!("0-{}\n", cpus - 1), "sys/devices/system/node");
    let of_node = "Node 0 MemTotal: 16777216 kB\nNode 0 MemFree: 8388608 kB\n";
    let memory = "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 8388608 kB\n";
    synthetic::machine(&[
        ("sys/devices/system/cpu/online", &list),
        (&format!("{node}/has_memory"), "0\n"),
        (&format!("{node}/node0/cpulist"), &list),
        (&format!("{node}/node0/distance"), "10\n"),
        (&format!("{node}/node0/meminfo"), of_node),
        (
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Fake CPU 9000\n",
        ),
        ("proc/meminfo", memory),
        ("proc/sys/kernel/osrelease", &format!("{release}\n")),
        ("proc/sys/vm/max_map_count", "65530\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
    ])
}

/// A machine with two tiers, which NUMA balancing serves.
pub fn tiered() -> tempfile::TempDir {
    let node = "sys/devices/system/node";
    let tiers = "sys/devices/virtual/memory_tiering";
    let memory = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 524288 kB\n";
    synthetic::machine(&[
        ("sys/devices/system/cpu/online", "0\n"),
        (&format!("{node}/online"), "0-1\n"),
        (&format!("{node}/has_memory"), "0-1\n"),
        (&format!("{node}/node0/cpulist"), "0\n"),
        (&format!("{node}/node1/cpulist"), "\n"),
        (&format!("{node}/node0/distance"), "10 20\n"),
        (&format!("{node}/node1/distance"), "20 10\n"),
        (&format!("{node}/node0/meminfo"), memory),
        (
            &format!("{node}/node1/meminfo"),
            &memory.replace("Node 0", "Node 1"),
        ),
        (&format!("{tiers}/memory_tier4/nodelist"), "0\n"),
        (&format!("{tiers}/memory_tier22/nodelist"), "1\n"),
        ("proc/cpuinfo", "\n"),
        (
            "proc/meminfo",
            "MemTotal: 2097152 kB\nMemFree: 1048576 kB\nMemAvailable: 1048576 kB\n",
        ),
        ("proc/sys/kernel/osrelease", "6.12.0\n"),
        ("proc/sys/vm/max_map_count", "65530\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
        ("proc/vmstat", "pgpromote_success 1\n"),
        ("proc/sys/kernel/numa_balancing", "1\n"),
    ])
}
