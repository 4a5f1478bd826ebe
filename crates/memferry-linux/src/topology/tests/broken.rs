// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines with a broken or missing file: the error names that file and says what was expected.

use std::path::Path;

use proptest::prelude::*;

use super::super::Topology;
use super::assert_consistent;
use super::fixture::Machine;

/// Files of a folder, their broken texts, and what the message must say was expected.
type Broken = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

const BROKEN: &[Broken] = &[
    (
        "sys/devices/system/cpu",
        &[
            ("online", "0-4294967295\n", "a list of ids up to 65535"),
            ("online", "\n", "at least one online CPU"),
        ],
    ),
    (
        "sys/devices/system/cpu/cpu0/cache/index3",
        &[
            ("shared_cpu_list", "0-x\n", "a list of ids"),
            ("size", "large\n", "a size in bytes such as 36864K"),
            ("level", "top\n", "a cache level such as 3"),
            ("type", "Victim\n", "Data, Instruction or Unified"),
        ],
    ),
    (
        "sys/devices/system/node",
        &[
            ("has_memory", "all\n", "a list of ids"),
            ("node1/cpulist", "4..7\n", "a list of ids"),
            (
                "node1/distance",
                "21 10\n",
                "3 distances, one for each of the nodes 0-2",
            ),
            ("node1/distance", "near far 10\n", "distances such as 10 21"),
            (
                "node1/meminfo",
                "Node 0 MemTotal: 1 kB\n",
                ":1: expected Node 1 MemTotal: NUMBER kB",
            ),
            ("node1/meminfo", "", "a line Node 1 MemTotal: NUMBER kB"),
        ],
    ),
    (
        "sys/devices/virtual/memory_tiering/memory_tier22",
        &[("nodelist", "cxl\n", "a list of ids")],
    ),
    (
        "sys/kernel/mm",
        &[
            ("numa/demotion_enabled", "maybe\n", "true, false, 1 or 0"),
            (
                "migration/migrator",
                "kernel mtcopy\n",
                "exactly one in brackets",
            ),
        ],
    ),
    (
        "sys/kernel/mm/transparent_hugepage",
        &[
            ("enabled", "[always] [never]\n", "exactly one in brackets"),
            ("defrag", "\n", "exactly one in brackets"),
            ("hpage_pmd_size", "2M\n", "a non-negative number"),
            (
                "hugepages-64kB/enabled",
                "inherit\n",
                "exactly one in brackets",
            ),
        ],
    ),
    (
        "proc",
        &[
            (
                "meminfo",
                "MemTotal: 1 kB\nMemFree: none\n",
                ":2: expected MemFree: NUMBER kB",
            ),
            (
                "meminfo",
                "MemTotal: 1 kB\nMemFree: 1 kB\n",
                "a line MemAvailable: NUMBER kB",
            ),
        ],
    ),
    (
        "proc/sys",
        &[
            ("kernel/osrelease", "\n", "a line of text"),
            ("kernel/numa_balancing", "on\n", "a non-negative number"),
            ("vm/max_map_count", "-1\n", "a non-negative number"),
            ("vm/overcommit_memory", "3\n", "0, 1 or 2"),
            ("vm/nr_hugepages", "x\n", "a non-negative number"),
            ("vm/unprivileged_userfaultfd", "2\n", "true, false, 1 or 0"),
        ],
    ),
];

#[test]
fn broken_files_are_named_with_what_was_expected() {
    for (folder, files) in BROKEN {
        for (file, text, expected) in *files {
            let path = format!("{folder}/{file}");
            let machine = Machine::two_sockets_and_cxl().file(&path, text);
            let error = machine.read().expect_err(&path);
            assert_eq!(error.path(), machine.root().join(&path));
            // A line of several is told with its number.
            let place = match expected.starts_with(':') {
                true => format!("{path}{expected}"),
                false => format!("{path}: expected "),
            };
            let message = error.to_string();
            assert!(
                message.contains(&place)
                    && message.contains(expected)
                    && message.contains(", found "),
                "{message}"
            );
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
