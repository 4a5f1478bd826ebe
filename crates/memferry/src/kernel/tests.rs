// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of invented machines: what is read, what is planned, what is undone.

use std::fs;
use std::io;
use std::path::Path;

use super::*;

/// A machine with the series: `kernel` and `mtcopy` registered, the kernel's defaults.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("migrator", "[none] kernel mtcopy\n"),
        ("reasons", "all\n"),
        ("min_batch_bytes", "262144\n"),
        ("max_batch_bytes", "4194304\n"),
        ("mtcopy/lanes", "2\n"),
        ("mtcopy/priority", "[normal] high\n"),
        ("mtcopy/placement", "[spread] fill\n"),
        ("mtcopy/nontemporal", "0\n"),
        ("mtcopy/idle_only", "1\n"),
    ] {
        put(root.path(), file, text);
    }
    for (migrator, reason, folios) in [
        ("kernel", "compaction", "0\n"),
        ("mtcopy", "syscall_or_cpuset", "7\n"),
    ] {
        for name in ["batches", "bytes", "fallbacks", "declined"] {
            put(
                root.path(),
                &format!("stats/{migrator}/{reason}/{name}"),
                "0\n",
            );
        }
        put(
            root.path(),
            &format!("stats/{migrator}/{reason}/folios"),
            folios,
        );
        put(root.path(), &format!("stats/{migrator}/reset"), "");
    }
    root
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(FOLDER).join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(FOLDER).join(file)).unwrap()
}

fn read(root: &Path) -> Migration {
    Migration::read_from(root).unwrap().unwrap()
}

#[test]
fn every_setting_is_read() {
    let root = machine();
    let now = read(root.path());
    assert_eq!(now.migrators.active, NO_MIGRATOR);
    assert!(now.has(MTCOPY) && !now.has("dcbm"));
    assert_eq!(
        (now.min_batch_bytes, now.max_batch_bytes),
        (262_144, 4_194_304)
    );
    assert_eq!(
        (now.reasons, now.smallest_max_batch_bytes),
        (Reasons::All, 2 << 20)
    );
    let mtcopy = now.mtcopy.unwrap();
    assert_eq!((mtcopy.lanes, &*mtcopy.priority.active), (2, "normal"));
    assert!(mtcopy.idle_only && !mtcopy.nontemporal);
    let folios: Vec<u64> = now.statistics.iter().map(|row| row.folios).collect();
    assert_eq!(folios, [0, 7]);
    assert!(now.statistics[0].is_zero() && !now.statistics[1].is_zero());
}

#[test]
fn dcbm_has_settings_and_channels() {
    let root = machine();
    let change = Change {
        timeout_ms: Some(50),
        ..Change::default()
    };
    let refused = |change: &Change| Plan::new(root.path(), &read(root.path()), change);
    assert!(matches!(
        refused(&change),
        Err(SettingError::NoMigrator { name, .. }) if name == DCBM
    ));
    for (file, text) in [
        ("lanes", "4\n"),
        ("timeout_ms", "1000\n"),
        ("poll_below_bytes", "524288\n"),
        (
            "devices",
            "dma0chan0 a node 0: taken\ndma1chan0 b: refused, why\n",
        ),
    ] {
        put(root.path(), &format!("dcbm/{file}"), text);
    }
    put(root.path(), "quarantined_bytes", "8192\n");
    let now = read(root.path());
    let dcbm = now.dcbm.as_ref().unwrap();
    assert_eq!((dcbm.lanes, dcbm.timeout_ms), (4, 1000));
    assert_eq!((dcbm.poll_below_bytes, dcbm.channels.len()), (524_288, 2));
    assert_eq!(now.quarantined_bytes, 8192);

    for (dcbm_lanes, timeout_ms) in [(Some(65), None), (None, Some(0)), (None, Some(60_001))] {
        let change = Change {
            dcbm_lanes,
            timeout_ms,
            ..Change::default()
        };
        assert!(matches!(
            refused(&change),
            Err(SettingError::BadValue { .. })
        ));
    }
    refused(&change).unwrap().apply().unwrap();
    assert_eq!(text(root.path(), "dcbm/timeout_ms"), "50\n");
}

#[test]
fn a_module_that_is_not_loaded_has_no_settings() {
    let root = machine();
    fs::remove_dir_all(root.path().join(FOLDER).join("mtcopy")).unwrap();
    put(root.path(), "migrator", "none [kernel]\n");
    let now = read(root.path());
    assert_eq!(now.mtcopy, None);
    for change in [
        Change {
            migrator: Some(MTCOPY.to_owned()),
            ..Change::default()
        },
        Change {
            lanes: Some(2),
            ..Change::default()
        },
    ] {
        let error = Plan::new(root.path(), &now, &change).unwrap_err();
        assert!(matches!(error, SettingError::NoMigrator { .. }), "{error}");
        assert!(error.hint().contains("modprobe mtcopy"), "{}", error.hint());
        assert!(error.to_string().contains("none, kernel"), "{error}");
    }
}

#[test]
fn a_text_that_the_kernel_does_not_write_names_its_file() {
    for (file, text) in [
        ("migrator", "none kernel\n"),
        ("reasons", "\n"),
        ("reasons", "all damon\n"),
        ("max_batch_bytes", "2M\n"),
        ("mtcopy/idle_only", "yes\n"),
        ("stats/mtcopy/syscall_or_cpuset/bytes", "-1\n"),
    ] {
        let root = machine();
        put(root.path(), file, text);
        let error = Migration::read_from(root.path()).unwrap_err();
        assert!(error.path().ends_with(file), "{error}");
    }
}

#[test]
fn a_kernel_without_it_says_why() {
    let root = tempfile::tempdir().unwrap();
    let absence = || Migration::read_from(root.path()).unwrap().unwrap_err();
    assert_eq!(absence(), Absence::NoSysfs);
    fs::create_dir_all(root.path().join("sys/kernel/mm")).unwrap();
    assert_eq!(absence(), Absence::Unknown);
    fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
    fs::create_dir_all(root.path().join("boot")).unwrap();
    fs::write(root.path().join("proc/sys/kernel/osrelease"), "6.12.1\n").unwrap();
    assert_eq!(absence(), Absence::Unknown);
    let config = root.path().join("boot/config-6.12.1");
    fs::write(&config, "CONFIG_MIGRATION=y\n").unwrap();
    assert_eq!(absence(), Absence::NoSeries);
    fs::write(&config, "# CONFIG_MIGRATION_COPY_OFFLOAD is not set\n").unwrap();
    assert_eq!(absence(), Absence::OptionOff);
    for other in [
        "CONFIG_MIGRATION_COPY_OFFLOAD_X=y\n",
        "CONFIG_NO_MIGRATION_COPY_OFFLOAD=y\n",
        "# for CONFIG_MIGRATION_COPY_OFFLOAD\n",
    ] {
        fs::write(&config, other).unwrap();
        assert_eq!(absence(), Absence::NoSeries, "{other}");
    }
    fs::write(&config, "CONFIG_A=y\nCONFIG_MIGRATION_COPY_OFFLOAD=y\n").unwrap();
    assert_eq!(absence(), Absence::Hidden);
    assert!(absence().hint().contains("container"));
}

#[test]
fn a_huge_page_of_half_a_gigabyte_is_a_batch() {
    let root = machine();
    let mut now = read(root.path());
    now.smallest_max_batch_bytes = 512 << 20;
    now.max_batch_bytes = 512 << 20;
    let plan = |bytes| {
        let change = Change {
            max_batch_bytes: Some(bytes),
            ..Change::default()
        };
        Plan::new(root.path(), &now, &change).map(drop)
    };
    plan(512 << 20).unwrap();
    for bytes in [64 << 20, (512 << 20) + crate::page_size() as u64] {
        let error = plan(bytes).unwrap_err();
        assert!(
            error.to_string().contains("from 536870912 to 536870912"),
            "{error}"
        );
    }
}

#[test]
fn no_memory_for_batches_is_a_matter_of_their_size() {
    let error = SettingError::Write {
        path: "lanes".into(),
        value: "64".to_owned(),
        error: std::io::Error::from_raw_os_error(libc::ENOMEM),
        allowed: String::new(),
        not_restored: Vec::new(),
    };
    assert!(
        error.hint().contains("--max-batch-bytes"),
        "{}",
        error.hint()
    );
}

fn everything() -> Change {
    Change {
        migrator: Some(MTCOPY.to_owned()),
        reasons: Some(Reasons::parse("demotion syscall_or_cpuset").unwrap()),
        min_batch_bytes: Some(8 << 20),
        max_batch_bytes: Some(16 << 20),
        lanes: Some(3),
        priority: Some("high".to_owned()),
        placement: Some("fill".to_owned()),
        nontemporal: Some(true),
        idle_only: Some(false),
        reset_statistics: true,
        ..Change::default()
    }
}

fn files(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.file.as_str()).collect()
}

#[test]
fn the_migrator_comes_last_and_leaves_first() {
    let root = machine();
    let now = read(root.path());
    let plan = Plan::new(root.path(), &now, &everything()).unwrap();
    assert_eq!(
        files(&plan),
        [
            "max_batch_bytes",
            "min_batch_bytes",
            "reasons",
            "mtcopy/lanes",
            "mtcopy/priority",
            "mtcopy/placement",
            "mtcopy/nontemporal",
            "mtcopy/idle_only",
            "migrator",
            "stats/kernel/reset",
            "stats/mtcopy/reset",
        ]
    );
    put(root.path(), "migrator", "none kernel [mtcopy]\n");
    put(root.path(), "max_batch_bytes", "16777216\n");
    put(root.path(), "min_batch_bytes", "8388608\n");
    let change = Change {
        migrator: Some(NO_MIGRATOR.to_owned()),
        min_batch_bytes: Some(0),
        max_batch_bytes: Some(2 << 20),
        ..Change::default()
    };
    let plan = Plan::new(root.path(), &read(root.path()), &change).unwrap();
    assert_eq!(
        files(&plan),
        ["migrator", "min_batch_bytes", "max_batch_bytes"]
    );
}

#[test]
fn what_is_so_already_is_not_written() {
    let root = machine();
    let change = Change {
        migrator: Some(NO_MIGRATOR.to_owned()),
        lanes: Some(2),
        idle_only: Some(true),
        reasons: Some(Reasons::All),
        ..Change::default()
    };
    let plan = Plan::new(root.path(), &read(root.path()), &change).unwrap();
    assert_eq!(plan.steps, []);
}

#[test]
fn the_files_are_written() {
    let root = machine();
    Plan::new(root.path(), &read(root.path()), &everything())
        .unwrap()
        .apply()
        .unwrap();
    for (file, expected) in [
        ("migrator", "mtcopy\n"),
        ("reasons", "demotion syscall_or_cpuset\n"),
        ("min_batch_bytes", "8388608\n"),
        ("mtcopy/nontemporal", "1\n"),
        ("mtcopy/idle_only", "0\n"),
        ("stats/mtcopy/reset", "0\n"),
    ] {
        assert_eq!(text(root.path(), file), expected, "{file}");
    }
}

#[test]
fn wrong_values_are_refused_before_anything_is_written() {
    let root = machine();
    let now = read(root.path());
    let refused = |change: Change, part: &str| {
        let error = Plan::new(root.path(), &now, &change).unwrap_err();
        let text = format!("{error}; {}", error.hint());
        assert!(text.contains(part), "{part}: {text}");
    };
    let none = Change::default;
    let name = |name: &str| Some(name.to_owned());
    refused(
        Change {
            migrator: name("dcbm"),
            ..none()
        },
        "none, kernel, mtcopy",
    );
    refused(
        Change {
            reasons: Some(Reasons::Some(vec!["sunday".to_owned()])),
            ..none()
        },
        "demotion",
    );
    refused(
        Change {
            lanes: Some(0),
            ..none()
        },
        "from 1 to 64",
    );
    refused(
        Change {
            lanes: Some(65),
            ..none()
        },
        "from 1 to 64",
    );
    refused(
        Change {
            priority: name("low"),
            ..none()
        },
        "normal, high",
    );
    refused(
        Change {
            placement: name("x"),
            ..none()
        },
        "spread, fill",
    );
    refused(
        Change {
            min_batch_bytes: Some(5 << 20),
            ..none()
        },
        "to the largest batch, 4194304",
    );
    for bytes in [0, 1 << 20, (2 << 20) + 1, 65 << 20] {
        refused(
            Change {
                max_batch_bytes: Some(bytes),
                ..none()
            },
            "from 2097152 to 67108864",
        );
    }
    put(root.path(), "min_batch_bytes", "4194304\n");
    let now = read(root.path());
    let change = Change {
        max_batch_bytes: Some(2 << 20),
        ..none()
    };
    let error = Plan::new(root.path(), &now, &change).unwrap_err();
    assert!(
        error.to_string().contains("not below the smallest batch"),
        "{error}"
    );
}

#[test]
fn a_step_that_fails_undoes_those_before_it_backwards() {
    let root = machine();
    let plan = Plan::new(root.path(), &read(root.path()), &everything()).unwrap();
    for (fails_at, errno) in [(0, libc::EPERM), (3, libc::EINVAL), (8, libc::ENODEV)] {
        let mut written: Vec<(String, String)> = Vec::new();
        let folder = root.path().join(FOLDER);
        let error = plan
            .apply_with(&mut |path, text| {
                let file = path.strip_prefix(&folder).unwrap().to_str().unwrap();
                if file == plan.steps[fails_at].file {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                written.push((file.to_owned(), text.to_owned()));
                Ok(())
            })
            .unwrap_err();
        let undone = plan.steps[..fails_at].iter().rev();
        let undone: Vec<_> = undone
            .map(|step| (step.file.clone(), step.before.clone().unwrap()))
            .collect();
        assert_eq!(written[fails_at..], undone);
        assert!(
            error.to_string().contains("everything else is as it was"),
            "{error}"
        );
        let hint = error.hint();
        match errno {
            libc::EPERM => assert!(hint.contains("be root"), "{hint}"),
            libc::EINVAL => assert!(hint.contains("from 1 to 64"), "{hint}"),
            _ => assert!(hint.contains("modprobe"), "{hint}"),
        }
    }
}

#[test]
fn what_cannot_be_undone_is_named() {
    let root = machine();
    let plan = Plan::new(root.path(), &read(root.path()), &everything()).unwrap();
    let mut left = 4;
    let error = plan
        .apply_with(&mut |_, _| {
            left -= 1;
            if left > 0 {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
        })
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("also not written back:"), "{text}");
    assert!(
        text.contains("reasons") && text.contains("max_batch_bytes"),
        "{text}"
    );
}

#[test]
fn saved_settings_come_back_when_the_value_goes() {
    let root = machine();
    let saved = Saved::new(root.path(), &read(root.path()));
    // As the kernel shows it; a file of a tree holds what was written last.
    put(root.path(), "migrator", "none kernel [mtcopy]\n");
    put(root.path(), "mtcopy/lanes", "9\n");
    drop(saved);
    assert_eq!(text(root.path(), "migrator"), "none\n");
    assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    put(root.path(), "migrator", "[none] kernel mtcopy\n");
    let saved = Saved::new(root.path(), &read(root.path()));
    fs::remove_dir_all(root.path().join(FOLDER)).unwrap();
    assert!(matches!(saved.restore(), Err(SettingError::Gone { .. })));
}
