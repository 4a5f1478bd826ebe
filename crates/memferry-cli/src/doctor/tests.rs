// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks on made-up machines: one with nothing to find, and that one with one thing changed.

use std::path::Path;
use std::process::Command;

use super::description::{Description, Finding};
use super::machine::Machine;
use super::text;
use crate::cli::Use;
use crate::synthetic::listed;

/// Two tiers: node 0 with CPUs, and node 2, which is CXL memory that came through kmem. See [`change`](crate::synthetic::change) for the form.
const TIERED: &str = "
sys/devices/system/cpu/online = 0-1
proc/sys/kernel/osrelease = 7.2.0
NODES/node0/cpulist = 0-1
NODES/node0/distance = 10 20
NODES/node0/meminfo = Node 0 MemTotal: 32 kB;Node 0 MemFree: 16 kB
NODES/node0/memory0/state = online
NODES/node2/cpulist =
NODES/node2/distance = 20 10
NODES/node2/meminfo = Node 2 MemTotal: 32 kB;Node 2 MemFree: 16 kB
NODES/node2/memory8/state = online
TIERS/memory_tier4/nodelist = 0
TIERS/memory_tier22/nodelist = 2
sys/bus/cxl/devices/mem0/ram/size = 0x8000
sys/bus/cxl/devices/mem0/driver = ->../drivers/cxl_mem
sys/bus/cxl/devices/mem1/ram/size = 0x0
sys/bus/cxl/devices/decoder0.0/cap_ram = 0
sys/bus/cxl/devices/decoder0.1/cap_ram = 1
sys/bus/cxl/devices/region0/target0 = decoder5.0
sys/bus/cxl/devices/region0/commit = 1
sys/bus/cxl/devices/region0/driver = ->../drivers/cxl_region
sys/bus/cxl/devices/endpoint5/uport = ->../mem0
sys/bus/dax/devices/dax0.0/driver = ->../drivers/kmem
sys/bus/dax/devices/dax0.0/size = 32768
sys/bus/dax/devices/dax0.0/target_node = 2
sys/bus/dax/devices/dax0.1/size = 0
sys/kernel/mm/numa/demotion_enabled = true
proc/sys/kernel/numa_balancing = 2
proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 65536
proc/sys/vm/zone_reclaim_mode = 0
sys/kernel/mm/lru_gen/enabled = 0x0007
sys/kernel/mm/lru_gen/min_ttl_ms = 0
THP/enabled = always [madvise] never
THP/defrag = always defer defer+madvise [madvise] never
THP/hpage_pmd_size = 2097152
INTERLEAVE/node0 = 3
INTERLEAVE/node2 = 1
KDAMONDS/nr_kdamonds = 0
sys/module/damon_stat/parameters/enabled = N
proc/sys/vm/unprivileged_userfaultfd = 0
proc/self/status = Name: memferry;CapEff:	000001ffffffffff
proc/pressure/memory = some avg10=0.00 avg60=0.00 avg300=0.00 total=0
proc/pressure/cpu = some avg10=0.00 avg60=0.00 avg300=0.00 total=0
";

/// Check, severity, a part of what it is, a part of the command (none: there is no command), and what is changed for it.
const FINDINGS: &str = "
cxl | wrong | no region maps the CXL device mem0 | cxl create-region -t ram -d decoder0.1 -m mem0 | sys/bus/cxl/devices/region0/target0 =
cxl | wrong | the CXL device mem0 | cxl create-region -t ram -d decoder0.1 -m mem0 | sys/bus/cxl/devices/region0 = gone
cxl | wrong | the CXL device mem0 | | sys/bus/cxl/devices/region0 = gone | sys/bus/cxl/devices/decoder0.1 = gone
cxl | wrong | region0 is disabled | cxl enable-region region0 | sys/bus/cxl/devices/region0/driver = gone
cxl | wrong | region0 is disabled | region0/commit && cxl enable-region region0 | sys/bus/cxl/devices/region0/driver = gone | sys/bus/cxl/devices/region0/commit = 0
dax | wrong | the firmware gave dax0.0 no node | | sys/bus/dax/devices/dax0.0/driver = ->../drivers/device_dax | sys/bus/dax/devices/dax0.0/target_node = -1
dax | wrong | the firmware gave dax0.0 no node | | sys/bus/dax/devices/dax0.0/driver = gone | sys/bus/dax/devices/dax0.0/target_node = -1
dax | wrong | dax0.0 is held by device_dax | daxctl reconfigure-device --mode=system-ram dax0.0 | sys/bus/dax/devices/dax0.0/driver = ->../drivers/device_dax
dax | wrong | dax0.0 has no driver | daxctl reconfigure-device --mode=system-ram dax0.0 | sys/bus/dax/devices/dax0.0/driver = gone
offline | wrong | 1 of 2 memory blocks of node2 | node2/memory*/state | NODES/node2/memory9/state = offline
offline | note | 1 of 2 memory blocks of node0 | node0/memory*/state | NODES/node0/memory1/state = offline
tiers | wrong | node 2 without CPUs is in the top tier | | TIERS/memory_tier22 = gone | TIERS/memory_tier4/nodelist = 0,2 | sys/bus/cxl = gone
tiers | wrong | node 2 without CPUs is in the top tier | | TIERS/memory_tier22 = gone | TIERS/memory_tier4/nodelist = 0,2 | sys/bus/dax = gone
tiers | note | node 2 without CPUs is in the top tier | | TIERS/memory_tier22 = gone | TIERS/memory_tier4/nodelist = 0,2 | sys/bus = gone
tiers | note | names no memory tiers | | TIERS = gone
tiers | note | all memory is in one tier | | sys/bus = gone | TIERS/memory_tier22 = gone | NODES/node2 = gone | NODES/node0/distance = 10
tiers | note | all memory is in one tier | | sys/bus = gone | TIERS/memory_tier22 = gone | TIERS/memory_tier4/nodelist = 2 \
    | NODES/has_memory = 2 | NODES/node0/meminfo = Node 0 MemTotal: 0 kB;Node 0 MemFree: 0 kB
demotion | wrong | demotion is off | echo 1 > /sys/kernel/mm/numa/demotion_enabled | sys/kernel/mm/numa/demotion_enabled = false
demotion | wrong | cannot demote | | sys/kernel/mm/numa/demotion_enabled = gone
promotion | wrong | numa_balancing is 0 | echo 2 > /proc/sys/kernel/numa_balancing | proc/sys/kernel/numa_balancing = 0
promotion | note | numa_balancing is 0 | echo 2 > /proc/sys/kernel/numa_balancing | proc/sys/kernel/numa_balancing = 0 | KDAMONDS/0/state = on
promotion | note | numa_balancing is 1 | echo 3 > /proc/sys/kernel/numa_balancing | proc/sys/kernel/numa_balancing = 1
promotion | note | numa_balancing is on | echo 0 > /proc/sys/kernel/numa_balancing | ACTING
promotion | note | numa_balancing is on | echo 0 > /proc/sys/kernel/numa_balancing | ACTING | proc/sys/kernel/numa_balancing = 1
promotion | wrong | numa_balancing is 0 | echo 2 > /proc/sys/kernel/numa_balancing \
    | proc/7/stat = 7 (memferry) S | KDAMONDS/0/state = on | proc/sys/kernel/numa_balancing = 0 \
    | run/memferry/status.json = {\"pid\": 7, \"act\": false, \"source\": {\"name\": \"damon\"}}
promotion | wrong | has no NUMA balancing | | proc/sys/kernel/numa_balancing = gone
promotion-rate | wrong | rate limit | echo 65536 > /proc | proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 0
zone-reclaim | note | vm.zone_reclaim_mode | echo 0 > /proc | proc/sys/vm/zone_reclaim_mode = 1
lru-gen | note | is off | echo y > /sys | sys/kernel/mm/lru_gen/enabled = 0x0006
lru-gen | wrong | last 1000 ms | echo 0 > /sys | sys/kernel/mm/lru_gen/min_ttl_ms = 1000
thp | note | are off | echo madvise > /sys/kernel/mm/transparent_hugepage/enabled | THP/enabled = always madvise [never]
thp | note | wait for huge pages | echo defer+madvise > /sys | THP/defrag = [always] defer defer+madvise madvise never
interleave | note | the same weight | | INTERLEAVE/node0 = 1
interleave | note | the same weight | | INTERLEAVE/node0 = 1 | INTERLEAVE/auto = true
interleave | note | the same weight | weighted_interleave/auto | INTERLEAVE/node0 = 1 | INTERLEAVE/auto = false
interleave | note | the same weight | weighted_interleave/__auto_type | INTERLEAVE/node0 = 1 | INTERLEAVE/__auto_type = false
damon | note | damon_stat is on | echo N > /sys | sys/module/damon_stat/parameters/enabled = Y
damon | note | damon_reclaim is on | echo N > /sys | sys/module/damon_reclaim/parameters/enabled = Y
damon | note | damon_lru_sort is on | echo N > /sys | sys/module/damon_lru_sort/parameters/enabled = Y
damon | note | kdamond 0 (pid 77) is on | | KDAMONDS/0/state = on | KDAMONDS/0/pid = 77
damon | note | of 1 kdamonds set up none is on | echo 0 > /sys | KDAMONDS/0/state = off | KDAMONDS/nr_kdamonds = 1
damon | note | no DAMON in sysfs | | sys/kernel/mm/damon = gone
damon | note | not known | sudo memferry doctor | KDAMONDS/nr_kdamonds = gone | KDAMONDS/nr_kdamonds/unreadable-folder =
tiered-limits | note | cgroup.memory=tiered_limits | | proc/cmdline = ro cgroup.memory=nokmem,tiered_limits quiet
pressure | note | /proc/pressure/memory is missing or empty | | proc/pressure/memory =
pressure | note | /proc/pressure/cpu is missing or empty | | proc/pressure/cpu = gone
daemon | note | memferryd (pid 7) has trouble | | proc/7/stat = 7 (memferry) S | run/memferry/status.json = {\"pid\": 7, \"trouble\": \"no space\"}
daemon | note | samples only page faults | | proc/7/stat = 7 (memferry) S | run/memferry/status.json = {\"pid\": 7, \"source\": {\"samples\": {\"event\": \"page-faults\"}}}
userfaultfd | note | this user may not use it | echo 1 > /proc/sys/vm/unprivileged_userfaultfd | proc/self/status = CapEff: 0000000000800000
userfaultfd | note | has no userfaultfd | | proc/sys/vm/unprivileged_userfaultfd = gone
uffdio-move | note | moves within a program are at risk | | proc/sys/kernel/osrelease = 7.1.0
rights | note | CAP_SYS_NICE missing | | proc/self/status = CapEff: 0000000000080000
";

/// Changes of the machine that no check minds: pghot or the daemon promotes, userfaultfd is everyone's, the kernel has less.
const FINE: &str = "
ACTING | proc/sys/kernel/numa_balancing = 0
proc/sys/kernel/numa_balancing = 0 | proc/sys/vm/pghot_enabled_sources = 4 | sys/kernel/mm/damon = gone
proc/sys/vm/unprivileged_userfaultfd = 1
run/memferry/status.json = {\"pid\": 7, \"trouble\": \"of a daemon that was killed\"}
proc/7/stat = 7 (bash) S | run/memferry/status.json = {\"pid\": 7, \"trouble\": \"of a daemon whose number bash has now\"}
proc/cmdline = cgroup.memory=nokmem tiered_limits
sys/kernel/mm/lru_gen = gone | INTERLEAVE = gone | THP = gone | sys/bus = gone
sys/bus/cxl/devices/region0/driver = gone | sys/bus/cxl/devices/region0/mode = pmem
";

/// The daemon moves pages, by DAMON.
const ACTING: &str = "proc/7/stat = 7 (memferry) S | KDAMONDS/0/state = on \
    | run/memferry/status.json = {\"pid\": 7, \"act\": true, \"source\": {\"name\": \"damon\"}}";

/// One tier, with all that is wrong with two.
const ONE_TIER: &str = "sys/bus = gone | TIERS = gone | NODES/node2 = gone \
    | NODES/node0/distance = 10 | sys/kernel/mm/numa/demotion_enabled = false \
    | proc/sys/kernel/numa_balancing = 0 | proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 0 \
    | proc/sys/vm/zone_reclaim_mode = 1 | sys/kernel/mm/lru_gen/enabled = 0x0000 | THP/enabled = always madvise [never] \
    | proc/pressure = gone \
    | proc/cmdline = cgroup.memory=tiered_limits \
    | INTERLEAVE/node0 = 1";

/// Node 2 is HBM, faster than the memory of the CPUs: the kernel neither demotes nor promotes here.
const HBM: &str = "sys/bus = gone | TIERS/memory_tier22 = gone | TIERS/memory_tier2/nodelist = 2 \
    | sys/kernel/mm/numa/demotion_enabled = false | proc/sys/kernel/numa_balancing = 0 \
    | proc/sys/vm/zone_reclaim_mode = 1 | sys/kernel/mm/lru_gen/enabled = 0x0000";

/// [`TIERED`] with changes, `|` between them.
fn tiered(changes: &str) -> tempfile::TempDir {
    let files = format!(
        "{TIERED}\n{}",
        changes.replace("ACTING", ACTING).replace('|', "\n")
    );
    let files = files
        .replace("THP", "sys/kernel/mm/transparent_hugepage")
        .replace("INTERLEAVE", "sys/kernel/mm/mempolicy/weighted_interleave")
        .replace("KDAMONDS", "sys/kernel/mm/damon/admin/kdamonds");
    listed(&files)
}

fn description(root: &Path) -> Description {
    description_for(root, None)
}

fn description_for(root: &Path, purpose: Option<Use>) -> Description {
    Description::new(&Machine::read(root, purpose, None).expect("machine"))
}

fn findings(root: &Path, check: &str) -> Vec<Finding> {
    let all = description(root).findings.into_iter();
    all.filter(|finding| finding.check == check).collect()
}

#[test]
fn each_finding_has_a_machine_and_its_command_ends_it() {
    for line in FINDINGS.lines().skip(1) {
        let mut parts = line.splitn(5, '|').map(str::trim);
        let mut part = || parts.next().expect("five parts");
        let (check, severity, what, mend) = (part(), part(), part(), part());
        let root = tiered(part());
        let found = findings(root.path(), check);
        let [finding] = &found[..] else {
            panic!("{line}: {found:?}");
        };
        assert_eq!(finding.severity.name(), severity, "{line}: {finding:?}");
        assert!(finding.what.contains(what), "{line}: {finding:?}");
        let command = finding.mend.as_deref().unwrap_or_default();
        assert!(command.contains(mend), "{line}: {finding:?}");
        assert_eq!(command.is_empty(), mend.is_empty(), "{line}: {finding:?}");
        // A file of THPs shows all choices, whichever is written: only the kernel's can be read again.
        let writes = ["echo", "grep"]
            .iter()
            .any(|word| command.starts_with(word) && check != "cxl");
        if writes && check != "thp" {
            let command = command.replace(" /", &format!(" {}/", root.path().display()));
            let done = Command::new("sh").args(["-ec", &command]).status();
            assert!(done.expect("sh").success(), "{command}");
            // The kernel has other weights then.
            let left = findings(root.path(), check).into_iter();
            let left: Vec<Finding> = left.filter(|of| of.mend.is_some()).collect();
            assert!(left.is_empty(), "{command}: {left:?}");
        }
    }
}

#[test]
fn what_is_fine_or_a_choice_is_no_finding() {
    for changes in FINE.lines().chain([HBM]) {
        let found = description(tiered(changes).path()).findings;
        assert!(found.is_empty(), "{changes}: {found:?}");
    }
    let found = description(tiered(ONE_TIER).path()).findings;
    assert!(found.len() == 1 && found[0].check == "tiers", "{found:?}");
}

/// Devices below two host bridges, whose numbers in target lists are 54 and 12.
const BRIDGES: &str = "sys/bus = gone \
    | ROOT/dport54 = ->../../../pci0000:36 | ROOT/dport12 = ->../../../pci0000:0c \
    | sys/devices/pci0000:36/0000:36:01.0/0000:37:00.0/mem0/ram/size = 0x10000000 \
    | sys/devices/pci0000:36/0000:36:01.0/0000:37:00.0/mem0/driver = ->../driver \
    | sys/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0/mem1/ram/size = 0x10000000 \
    | sys/devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0/mem1/driver = ->../driver \
    | CXL/root0 = ->../../../devices/platform/ACPI0017:00/root0 \
    | CXL/mem0 = ->../../../devices/pci0000:36/0000:36:01.0/0000:37:00.0/mem0 \
    | CXL/mem1 = ->../../../devices/pci0000:0c/0000:0c:00.0/0000:0d:00.0/mem1";

/// Windows as numbers of their decoders and targets, what else is changed, and the commands that are to be told.
const WINDOWS: &str = "
54 12 | | create-region -t ram -d decoder0.0 -m mem0, create-region -t ram -d decoder0.1 -m mem1
12 54 | | create-region -t ram -d decoder0.0 -m mem1, create-region -t ram -d decoder0.1 -m mem0
54 12 | CXL/mem0 = gone | create-region -t ram -d decoder0.1 -m mem1
12,54 | | create-region -t ram -d decoder0.0 -w 2 -m mem1 mem0
54,12 | | create-region -t ram -d decoder0.0 -w 2 -m mem0 mem1
54,12 12 | CXL/mem0 = gone | create-region -t ram -d decoder0.1 -m mem1
54,12 | CXL/mem1 = gone | interleaves 2 devices
54 | CXL/mem0 = gone | no window for it
9,8 | | create-region -t ram -d decoder0.0 -w 2 -m mem0 mem1
54,12 | sys/devices/pci0000:36/0000:36:01.0/0000:37:00.0/mem0/driver = gone | cxl enable-memdev mem0 && cxl create-region
54,12 | proc/iomem = 100000-fffff : x;  100000-4fffff : System RAM |
54,12 | proc/iomem = 100000-fffff : x;  100000-4fffff : System RAM (kmem) | -w 2 -m mem0 mem1
54,12 | proc/iomem = 1000-fffff : System RAM;4000000-4ffffff : System RAM | -w 2 -m mem0 mem1
54,12 | proc/iomem = 00000000-00000000 : System RAM;00000000-00000000 : CXL Window 0 | sudo memferry doctor
";

#[test]
fn the_window_of_a_cxl_device_is_that_which_leads_to_it() {
    for line in WINDOWS.lines().skip(1) {
        let mut parts = line.split('|').map(str::trim);
        let mut part = || parts.next().expect("three parts");
        let (windows, changes, expected) = (part(), part(), part());
        let mut files = BRIDGES.to_owned();
        for (number, targets) in windows.split(' ').enumerate() {
            for (file, text) in [
                ("cap_ram", "1"),
                ("target_list", targets),
                ("interleave_ways", &targets.split(',').count().to_string()),
                ("start", "0x100000"),
                ("size", "0x3f00000"),
            ] {
                files += &format!(" | ROOT/decoder0.{number}/{file} = {text}");
            }
            let link = "../../../devices/platform/ACPI0017:00/root0";
            files += &format!(" | CXL/decoder0.{number} = ->{link}/decoder0.{number}");
        }
        let files = format!("{files} | {changes}");
        let files = files
            .replace("ROOT", "sys/devices/platform/ACPI0017:00/root0")
            .replace("CXL/", "sys/bus/cxl/devices/");
        let root = tiered(files.trim_end_matches(['|', ' ']));
        let found = findings(root.path(), "cxl");
        let expected: Vec<&str> = expected.split(", ").filter(|of| !of.is_empty()).collect();
        assert_eq!(found.len(), expected.len(), "{line}: {found:?}");
        for (finding, expected) in found.iter().zip(expected) {
            let told = format!(
                "{} {}",
                finding.why,
                finding.mend.as_deref().unwrap_or_default()
            );
            assert!(told.contains(expected), "{line}: {finding:?}");
        }
    }
}

/// A machine on which the daemon can start, and whose one group has a process.
const DAEMON: &str = "proc/sys/kernel/numa_balancing = 0 | sys/kernel/mm/numa/demotion_enabled = false \
    | proc/self/cgroup = 0::/ | proc/pressure/memory = some avg10=0.00 | CONFIG = GROUP;processes = [\"db\"] \
    | proc/9/statm = 99999 99999 1 0 0 0 0 | proc/9/cgroup = 0::/a | proc/9/comm = db \
    | proc/9/stat = 9 (db) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20";

/// Check, severity, a part of what is found (none: nothing is), a part of the command, a part of the verdict, and what is changed.
const FOR_DAEMON: &str = "
| | | | can start here: source damon, DAMON is there and free |
promotion | wrong | numa_balancing is on | echo 0 > /proc/sys/kernel/numa_balancing | can start here | proc/sys/kernel/numa_balancing = 2
promotion | wrong | numa_balancing is on | echo 0 > /proc/sys/kernel/numa_balancing | can start here | proc/sys/kernel/numa_balancing = 1
promotion | wrong | numa_balancing is on | echo 0 > /proc/sys/kernel/numa_balancing | runs here (pid 7) | ACTING | proc/sys/kernel/numa_balancing = 2
| | | | source numa-balancing | CONFIG = source = \"numa-balancing\";GROUP;processes = [\"db\"] | proc/sys/kernel/numa_balancing = 2
tiers | wrong | node 2 without CPUs is in the top tier | | cannot start here: this machine has one memory tier \
    | TIERS/memory_tier22 = gone | TIERS/memory_tier4/nodelist = 0,2 | sys/bus = gone
configuration | note | there is no configuration | | once it has a configuration: source damon | CONFIG = gone
configuration | wrong | memferry.toml:1: | | cannot start here | CONFIG = act = 7
configuration | note | the group a takes no process now | | can start here | proc/9 = gone
cgroups | wrong | cgroup v2 is not mounted | | can start here | CONFIG = GROUP;cgroups = [\"/a\"] | proc/self/cgroup = 4:memory:/a
pressure | note | /proc/pressure/memory is missing | | can start here | proc/pressure = gone
source | wrong | nothing moves until DAMON is free | | can start here: source none | CONFIG = source = \"damon\";GROUP;processes = [\"db\"] \
    | KDAMONDS/nr_kdamonds = 1 | sys/module/damon_stat/parameters/enabled = N
source | wrong | nothing moves until DAMON is free: somebody else's kdamond | | source none | KDAMONDS/0/state = on | KDAMONDS/nr_kdamonds = 1
daemon-rights | wrong | CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH missing | sudo memferry doctor --for daemon | cannot start here: CAP_SYS_PTRACE \
    | proc/self/status = CapEff: 0
daemon-rights | note | CAP_PERFMON missing | | can start here | proc/self/status = CapEff: 80004
";

#[test]
fn for_the_daemon_the_verdict_is_whether_it_can_start() {
    for line in FOR_DAEMON.lines().skip(1) {
        let mut parts = line.splitn(6, '|').map(str::trim);
        let mut part = || parts.next().expect("six parts");
        let (check, severity, what, mend, verdict) = (part(), part(), part(), part(), part());
        let changes = format!("{DAEMON} | {}", part());
        let changes = changes
            .replace("CONFIG", "etc/memferry/memferry.toml")
            .replace("GROUP", "[[group]];name = \"a\"");
        let root = tiered(changes.trim_end_matches(['|', ' ']));
        let found = description_for(root.path(), Some(Use::Daemon));
        let told = found.verdict.as_deref().unwrap_or_default();
        assert!(told.contains(verdict), "{line}: {told}");
        assert!(text(&found, 1000).ends_with(&format!("{told}\n")), "{line}");
        // Who has DAMON is a note of its own.
        let mut findings = found.findings;
        findings.retain(|of| of.check == check || of.check != "damon");
        match (&findings[..], check) {
            ([], "") => {}
            ([finding], _) => {
                assert_eq!((finding.check, finding.severity.name()), (check, severity));
                assert!(finding.what.contains(what), "{line}: {finding:?}");
                let command = finding.mend.as_deref().unwrap_or_default();
                assert!(command.contains(mend), "{line}: {finding:?}");
                assert_eq!(command.is_empty(), mend.is_empty(), "{line}: {finding:?}");
            }
            (found, _) => panic!("{line}: {found:?}"),
        }
    }
}

#[test]
fn a_finding_says_for_which_use_it_counts() {
    let root = tiered(
        "sys/kernel/mm/numa/demotion_enabled = false | proc/sys/kernel/numa_balancing = 0 | proc/self/status = CapEff: 0",
    );
    let checks = |purpose| {
        let found = description_for(root.path(), purpose);
        let findings = found.findings.iter();
        Vec::from_iter(findings.map(|of| (of.check, of.purposes.clone())))
    };
    let kernel = [
        ("demotion", vec![Use::Kernel]),
        ("promotion", vec![Use::Kernel]),
    ];
    let moves = [
        ("userfaultfd", vec![Use::Move]),
        ("rights", vec![Use::Move]),
    ];
    assert_eq!(checks(Some(Use::Kernel)), kernel);
    assert_eq!(checks(Some(Use::Move)), moves);
    assert_eq!(checks(None), [kernel, moves].concat());
}

#[test]
fn the_device_is_enough_for_userfaultfd() {
    let root = tiered("proc/self/status = CapEff: 0 | dev/userfaultfd =");
    assert!(findings(root.path(), "userfaultfd").is_empty());
}

#[test]
fn the_json_and_the_text() {
    let root = tiered(
        "sys/bus/dax/devices/dax0.0/driver = ->../drivers/device_dax | sys/kernel/mm/numa/demotion_enabled = false \
         | proc/sys/kernel/osrelease = 6.12.117-amd64",
    );
    let found = description(root.path());
    insta::assert_json_snapshot!("json", found);
    insta::assert_snapshot!("text", text(&found, 80));
    let nothing = text(&description(tiered("").path()), 80);
    assert_eq!(nothing, "0 wrong, 0 notes; 18 of 18 checks found nothing\n");
}
