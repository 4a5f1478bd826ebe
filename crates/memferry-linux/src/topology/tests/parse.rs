// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `parse`: the kernel's own texts, round trips, and arbitrary text.

use proptest::prelude::*;

use super::super::parse::*;

#[test]
fn id_lists_of_the_kernel() {
    assert_eq!(id_list("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
    assert_eq!(id_list("0\n"), Ok(vec![0]));
    assert_eq!(
        id_list("\n"),
        Ok(vec![]),
        "no offline CPU, no CPU on a CXL node"
    );
    assert_eq!(
        id_list("5,1-3,2-4,1"),
        Ok(vec![1, 2, 3, 4, 5]),
        "overlap and order do not matter"
    );
    assert_eq!(id_list("65535").map(|ids| ids.len()), Ok(1));
}

#[test]
fn id_lists_that_are_none() {
    for text in [
        "3-1",
        "1,,2",
        "-1",
        "1-",
        "a",
        "+1",
        "1 2",
        "0x1",
        "0-6:2/4",
        "65536",
        "0-4294967295",
        "99999999999999",
    ] {
        let error = id_list(text).unwrap_err();
        assert!(error.expected.contains("0-3,8,10-11"), "{text}: {error}");
    }
}

#[test]
fn many_full_ranges_stay_one_list() {
    let text = vec!["0-65535"; 50_000].join(",");
    assert_eq!(id_list(&text).map(|ids| ids.len()), Ok(65_536));
}

#[test]
fn choices_of_the_kernel() {
    let mtcopy = choice("kernel [mtcopy] dcbm\n").unwrap();
    assert_eq!(mtcopy.names, ["kernel", "mtcopy", "dcbm"]);
    assert_eq!(mtcopy.active, "mtcopy");
    assert_eq!(
        choice("always defer [defer+madvise] madvise never")
            .unwrap()
            .active,
        "defer+madvise"
    );
    for text in [
        "",
        "always never",
        "[a] [b]",
        "a [] b",
        "[a b]",
        "[[a]]",
        "a] b",
        "[a]b",
    ] {
        assert!(choice(text).is_err(), "{text}");
    }
}

#[test]
fn sizes_and_numbers() {
    assert_eq!(size("36864K\n"), Ok(36 << 20));
    assert_eq!(size("32M"), Ok(32 << 20));
    assert_eq!(size("1G"), Ok(1 << 30));
    assert_eq!(size("512"), Ok(512));
    for text in [
        "",
        "K",
        "1KK",
        "-1K",
        "+1K",
        "1 K",
        "18014398509481984K",
        "1T",
    ] {
        assert!(size(text).is_err(), "{text}");
    }
    assert_eq!(number("65530\n"), Ok(65_530));
    assert!(
        number("").is_err() && number("-1").is_err() && number("18446744073709551616").is_err()
    );
    assert_eq!((switch("true\n"), switch("0\n")), (Ok(true), Ok(false)));
    assert!(switch("2").is_err() && switch("").is_err());
    assert_eq!(distances("10 21\n"), Ok(vec![10, 21]));
    assert!(
        distances("").is_err() && distances("10 x").is_err() && distances("4294967296").is_err()
    );
}

#[test]
fn meminfo_of_machine_and_node() {
    let machine = "MemTotal:  4 kB\nMemFree:   3 kB\nMemAvailable: 2 kB\nHugePages_Total: 0\n";
    let read = MemInfo {
        total_bytes: 4096,
        free_bytes: 3072,
        available_bytes: Some(2048),
    };
    assert_eq!(meminfo(machine, None), Ok(read));
    let node = "Node 4 MemTotal: 4 kB\nNode 4 MemFree: 3 kB\nsomething new\n";
    assert_eq!(
        meminfo(node, Some(4)),
        Ok(MemInfo {
            available_bytes: None,
            ..read
        })
    );

    let error = meminfo(node, Some(3)).unwrap_err();
    assert_eq!(
        (error.line, &*error.expected),
        (Some(1), "Node 3 MemTotal: NUMBER kB")
    );
    assert_eq!(meminfo(machine, Some(4)).unwrap_err().line, Some(1));
    for (text, line) in [
        ("MemTotal: 4 kB\nMemFree: x kB\n", Some(2)),
        ("MemTotal: 4 MB\nMemFree: 1 kB\n", Some(1)),
        ("MemTotal: 99999999999999999 kB\n", Some(1)),
        ("MemTotal: 4 kB\n", None),
    ] {
        assert_eq!(meminfo(text, None).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn cpuinfo_of_x86_and_arm64() {
    let x86 = "processor: 0\nmodel name\t: A  B\nflags\t: fpu hypervisor\n\nmodel name: other\n";
    let arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n";
    for (text, model, hypervisor) in [
        (x86, Some("A  B"), Some(true)),
        ("flags: fpu hypervisor_like\n", None, Some(false)),
        (arm, Some("implementer 0x41 part 0xd03"), None),
        ("", None, None),
    ] {
        let info = cpuinfo(text);
        assert_eq!(
            (info.model.as_deref(), info.hypervisor),
            (model, hypervisor)
        );
    }
}

#[test]
fn errors_repeat_only_the_start_of_long_text() {
    let error = number(&"ä".repeat(10_000)).unwrap_err();
    assert_eq!(error.found.chars().count(), 61);
}

/// Text made of the pieces that the parsers look for, so that chance gets past their first check.
fn near_text() -> impl Strategy<Value = String> {
    let pieces = [
        "0",
        "7",
        "65535",
        "4294967295",
        "-",
        ",",
        "[",
        "]",
        " ",
        "\n",
        "K",
        "kB",
        ":",
        "Node 0 ",
    ];
    let words = [
        "MemTotal",
        "MemFree",
        "MemAvailable",
        "flags",
        "model name",
        "always",
        "+",
        "\u{fffd}",
    ];
    let any = proptest::sample::select([&pieces[..], &words[..]].concat());
    proptest::collection::vec(any, 0..24).prop_map(|parts| parts.concat())
}

fn parse_everything(text: &str) {
    if let Ok(ids) = id_list(text) {
        assert!(ids.is_sorted_by(|a, b| a < b) && ids.iter().all(|&id| id <= MAX_ID));
    }
    if let Ok(choice) = choice(text) {
        assert!(choice.names.contains(&choice.active));
    }
    let _ = (
        size(text),
        number(text),
        switch(text),
        distances(text),
        cpuinfo(text),
    );
    for node in [None, Some(0), Some(u32::MAX)] {
        if let Err(error) = meminfo(text, node) {
            assert!(
                error
                    .line
                    .is_none_or(|line| (1..=text.lines().count()).contains(&line))
            );
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        parse_everything(&text);
    }

    #[test]
    fn text_close_to_right_is_parsed_or_refused(text in near_text()) {
        parse_everything(&text);
    }

    #[test]
    fn id_lists_round_trip(ids in proptest::collection::btree_set(0..=MAX_ID, 0..40), run in 0..MAX_ID - 20) {
        let ids: Vec<u32> = ids.into_iter().chain(run..run + 20).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        prop_assert_eq!(id_list(&format_id_list(&ids)), Ok(ids));
    }

    #[test]
    fn choices_round_trip(names in proptest::collection::vec("[a-z+_-]{1,9}", 1..6), pick in any::<prop::sample::Index>()) {
        let active = pick.index(names.len());
        let words: Vec<String> =
            names.iter().enumerate().map(|(i, n)| if i == active { format!("[{n}]") } else { n.clone() }).collect();
        let expected = Choice { active: names[active].clone(), names };
        prop_assert_eq!(choice(&words.join(" ")), Ok(expected));
    }

    #[test]
    fn numbers_round_trip(n in any::<u64>(), kib in 0..u64::MAX / 1024, values in proptest::collection::vec(any::<u32>(), 1..20)) {
        prop_assert_eq!(number(&n.to_string()), Ok(n));
        prop_assert_eq!(size(&format!("{kib}K\n")), Ok(kib * 1024));
        let text = values.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(distances(&text), Ok(values));
    }

    #[test]
    fn meminfo_round_trips(
        total in 0..u64::MAX / 1024, free in 0..u64::MAX / 1024, available in 0..u64::MAX / 1024, id in any::<u32>(),
    ) {
        let expected = MemInfo { total_bytes: total * 1024, free_bytes: free * 1024, available_bytes: Some(available * 1024) };
        for (node, prefix) in [(None, String::new()), (Some(id), format!("Node {id} "))] {
            let text = format!(
                "{prefix}MemTotal: {total:>9} kB\n{prefix}MemFree: {free:>9} kB\n{prefix}MemAvailable: {available} kB\n"
            );
            prop_assert_eq!(meminfo(&text, node), Ok(expected));
        }
    }
}
