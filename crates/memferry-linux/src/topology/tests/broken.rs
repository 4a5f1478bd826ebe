// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines with a broken or missing file: the error names that file and says what was expected.

use std::path::Path;

use proptest::prelude::*;

use super::super::Topology;
use super::assert_consistent;
use super::fixture::Machine;
use crate::invented::{NODES, TIERS};

/// A file with its broken text, and what the message must say was expected.
const BROKEN: &str = "
sys/devices/system/cpu/online = 0-4294967295 | a list of ids up to 65535
sys/devices/system/cpu/online = | at least one online CPU
L3/shared_cpu_list = 0-x | a list of ids
L3/size = large | a size in bytes such as 36864K
L3/level = top | a cache level such as 3
L3/type = Victim | Data, Instruction or Unified
NODES/has_memory = all | a list of ids
NODES/node1/cpulist = 4..7 | a list of ids
NODES/node1/distance = 21 10 | 3 distances, one for each of the nodes 0-2
NODES/node1/distance = near far 10 | distances such as 10 21
NODES/node1/meminfo = Node 0 MemTotal: 1 kB | :1: expected Node 1 MemTotal: NUMBER kB
NODES/node1/meminfo = | a line Node 1 MemTotal: NUMBER kB
TIERS/memory_tier22/nodelist = cxl | a list of ids
sys/kernel/mm/numa/demotion_enabled = maybe | true, false, 1 or 0
sys/kernel/mm/migration/migrator = kernel mtcopy | exactly one in brackets
THP/enabled = [always] [never] | exactly one in brackets
THP/defrag = | exactly one in brackets
THP/hpage_pmd_size = 2M | a non-negative number
THP/hugepages-64kB/enabled = inherit | exactly one in brackets
proc/meminfo = MemTotal: 1 kB;MemFree: none | :2: expected MemFree: NUMBER kB
proc/meminfo = MemTotal: 1 kB;MemFree: 1 kB | a line MemAvailable: NUMBER kB
proc/sys/kernel/osrelease = | a line of text
proc/sys/kernel/numa_balancing = on | a non-negative number
proc/sys/vm/max_map_count = -1 | a non-negative number
proc/sys/vm/overcommit_memory = 3 | 0, 1 or 2
proc/sys/vm/nr_hugepages = x | a non-negative number
proc/sys/vm/unprivileged_userfaultfd = 2 | true, false, 1 or 0
";

#[test]
fn broken_files_are_named_with_what_was_expected() {
    let broken = BROKEN
        .replace("L3", "sys/devices/system/cpu/cpu0/cache/index3")
        .replace("THP", "sys/kernel/mm/transparent_hugepage")
        .replace("NODES", NODES)
        .replace("TIERS", TIERS);
    for line in broken.lines().skip(1) {
        let (file, expected) = line.split_once(" | ").unwrap();
        let path = file.split_once(" =").unwrap().0;
        let machine = Machine::two_sockets_and_cxl().with(file);
        let error = machine.read().expect_err(path);
        assert_eq!(error.path(), machine.root().join(path));
        // A line of several is told with its number.
        let place = match expected.starts_with(':') {
            true => format!("{path}{expected}"),
            false => format!("{path}: expected "),
        };
        let message = error.to_string();
        for part in [&*place, expected, ", found "] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn missing_files_are_named_with_what_was_expected() {
    for (path, expected) in [
        ("sys/devices/system/cpu/online", "the list of online CPUs"),
        ("sys/devices/system/node/node2/meminfo", "the node's memory"),
        (
            "sys/devices/virtual/memory_tiering/memory_tier4/nodelist",
            "the tier's nodes",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/defrag",
            "the THP defrag mode",
        ),
        ("proc/cpuinfo", "the CPUs' model"),
        ("proc/meminfo", "the machine's memory"),
        ("proc/sys/vm/max_map_count", "the limit of mappings"),
    ] {
        let machine = Machine::two_sockets_and_cxl().without(path);
        let error = machine.read().expect_err(path);
        assert_eq!(error.path(), machine.root().join(path));
        assert!(
            error
                .to_string()
                .contains(&format!("{path}: cannot read {expected}: ")),
            "{error}"
        );
    }
}

#[test]
fn an_empty_root_is_an_error() {
    assert!(Topology::read_from(Path::new("/nonexistent")).is_err());
}

proptest! {
    // Each case builds a tree of some 150 files.
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever one file holds, the machine is read and consistent, or the error names that very file.
    #[test]
    fn damage_to_one_file_stays_there(pick in any::<prop::sample::Index>(), bytes in any::<Vec<u8>>(), id in 0_u32..9) {
        let machine = Machine::two_sockets_and_cxl();
        let files = machine.files();
        let damaged = files[pick.index(files.len())].clone();
        for bytes in [bytes, id.to_string().into_bytes(), b"0-65535".to_vec()] {
            std::fs::write(machine.root().join(&damaged), bytes).unwrap();
            match machine.read() {
                Ok(machine) => assert_consistent(&machine),
                Err(error) => prop_assert_eq!(error.path(), machine.root().join(&damaged)),
            }
        }
    }
}
