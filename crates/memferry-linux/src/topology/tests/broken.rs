// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines with a broken or missing file: the error names that file and says what was expected.

use std::path::Path;

use proptest::prelude::*;

use super::super::Topology;
use super::assert_consistent;
use super::fixture::Machine;

/// Path, broken text, line in the message, what the message must say was expected.
const BROKEN: &[(&str, &str, Option<usize>, &str)] = &[
    (
        "sys/devices/system/cpu/online",
        "0-4294967295\n",
        None,
        "a list of ids up to 65535",
    ),
    (
        "sys/devices/system/cpu/online",
        "\n",
        None,
        "at least one online CPU",
    ),
    (
        "sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list",
        "0-x\n",
        None,
        "a list of ids",
    ),
    (
        "sys/devices/system/cpu/cpu0/cache/index3/size",
        "large\n",
        None,
        "a size in bytes such as 36864K",
    ),
    (
        "sys/devices/system/cpu/cpu0/cache/index3/level",
        "top\n",
        None,
        "a cache level such as 3",
    ),
    (
        "sys/devices/system/cpu/cpu0/cache/index3/type",
        "Victim\n",
        None,
        "Data, Instruction or Unified",
    ),
    (
        "sys/devices/system/node/has_memory",
        "all\n",
        None,
        "a list of ids",
    ),
    (
        "sys/devices/system/node/node1/cpulist",
        "4..7\n",
        None,
        "a list of ids",
    ),
    (
        "sys/devices/system/node/node1/distance",
        "21 10\n",
        None,
        "3 distances, one for each of the nodes 0-2",
    ),
    (
        "sys/devices/system/node/node1/distance",
        "near far 10\n",
        None,
        "distances such as 10 21",
    ),
    (
        "sys/devices/system/node/node1/meminfo",
        "Node 0 MemTotal: 1 kB\n",
        Some(1),
        "Node 1 MemTotal: NUMBER kB",
    ),
    (
        "sys/devices/system/node/node1/meminfo",
        "",
        None,
        "a line Node 1 MemTotal: NUMBER kB",
    ),
    (
        "sys/devices/virtual/memory_tiering/memory_tier22/nodelist",
        "cxl\n",
        None,
        "a list of ids",
    ),
    (
        "sys/kernel/mm/numa/demotion_enabled",
        "maybe\n",
        None,
        "true, false, 1 or 0",
    ),
    (
        "sys/kernel/mm/migration/migrator",
        "kernel mtcopy\n",
        None,
        "exactly one in brackets",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "[always] [never]\n",
        None,
        "exactly one in brackets",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/defrag",
        "\n",
        None,
        "exactly one in brackets",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
        "2M\n",
        None,
        "a non-negative number",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        "inherit\n",
        None,
        "exactly one in brackets",
    ),
    (
        "proc/meminfo",
        "MemTotal: 1 kB\nMemFree: none\n",
        Some(2),
        "MemFree: NUMBER kB",
    ),
    (
        "proc/meminfo",
        "MemTotal: 1 kB\nMemFree: 1 kB\n",
        None,
        "a line MemAvailable: NUMBER kB",
    ),
    ("proc/sys/kernel/osrelease", "\n", None, "a line of text"),
    (
        "proc/sys/kernel/numa_balancing",
        "on\n",
        None,
        "a non-negative number",
    ),
    (
        "proc/sys/vm/max_map_count",
        "-1\n",
        None,
        "a non-negative number",
    ),
    ("proc/sys/vm/overcommit_memory", "3\n", None, "0, 1 or 2"),
    (
        "proc/sys/vm/nr_hugepages",
        "x\n",
        None,
        "a non-negative number",
    ),
    (
        "proc/sys/vm/unprivileged_userfaultfd",
        "2\n",
        None,
        "true, false, 1 or 0",
    ),
];

#[test]
fn broken_files_are_named_with_what_was_expected() {
    for &(path, text, line, expected) in BROKEN {
        let machine = Machine::two_sockets_and_cxl().file(path, text);
        let error = machine.read().expect_err(path);
        assert_eq!(error.path(), machine.root().join(path));
        let message = error.to_string();
        let place = match line {
            Some(line) => format!("{path}:{line}: expected "),
            None => format!("{path}: expected "),
        };
        assert!(
            message.contains(&place) && message.contains(expected) && message.contains(", found "),
            "{message}"
        );
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
