// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of invented machines: what is read, what is planned, what is undone.

use std::fs;
use std::io;
use std::path::Path;

use super::absence::Why;
use super::*;
use crate::invented::{self, migrators as machine};

fn put(root: &Path, file: &str, text: &str) {
    invented::put(&root.join(FOLDER), file, text);
}

fn text(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(FOLDER).join(file)).unwrap()
}

fn read(root: &Path) -> Migration {
    Migration::read_from(root).unwrap().unwrap()
}

fn plan(root: &Path, wanted: &[(Setting, &str)]) -> Result<Plan, SettingError> {
    let wanted = wanted
        .iter()
        .map(|(setting, value)| (*setting, (*value).to_owned()));
    let now = Interfaces::read_from(root).unwrap();
    Plan::new(root, &now, &wanted.collect::<Vec<_>>())
}

#[test]
fn every_setting_is_read() {
    let root = machine();
    let now = read(root.path());
    assert_eq!(now.migrators.active, NO_MIGRATOR);
    assert!(now.has(MTCOPY) && !now.has(DCBM));
    let reasons: Vec<&str> = now.reasons.iter().map(|of| &*of.reason).collect();
    assert_eq!(
        (&reasons[..], now.max_batch_bytes),
        (&REASONS[..], 4_194_304)
    );
    assert!(
        now.reasons
            .iter()
            .all(|of| of.choice == DEFAULT && !of.only)
    );
    assert_eq!((now.lanes, &now.dcbm), (Some(2), &None));
    let mtcopy = Statistics {
        migrator: MTCOPY.to_owned(),
        folios: 1536,
        bytes: 6_291_456,
        fallbacks: 1,
        declined: 2,
        refused: 5,
    };
    assert_eq!((now.statistics.len(), &now.statistics[1]), (2, &mtcopy));
}

#[test]
fn dcbm_has_lanes_and_channels() {
    let root = machine();
    let refused = |lanes: u64| plan(root.path(), &[(Setting::DcbmLanes, &lanes.to_string())]);
    assert!(matches!(
        refused(3),
        Err(SettingError::NoMigrator { name, .. }) if name == DCBM
    ));
    let lines = "dma0chan0 a node 0: taken\ndma1chan0 b: refused, why\n";
    put(root.path(), "dcbm/lanes", "4\n");
    put(root.path(), "dcbm/devices", lines);
    put(root.path(), "quarantined_bytes", "8192\n");
    let now = read(root.path());
    let dcbm = now.dcbm.as_ref().unwrap();
    assert_eq!((dcbm.lanes, dcbm.channels.len()), (4, 2));
    assert_eq!(now.quarantined_bytes, 8192);
    assert!(matches!(refused(65), Err(SettingError::BadValue { .. })));
    refused(3).unwrap().apply().unwrap();
    assert_eq!(text(root.path(), "dcbm/lanes"), "3\n");
}

#[test]
fn a_module_that_is_not_loaded_has_no_settings() {
    let root = machine();
    fs::remove_dir_all(root.path().join(FOLDER).join("mtcopy")).unwrap();
    put(root.path(), "migrator", "none [kernel]\n");
    let now = read(root.path());
    assert_eq!(now.lanes, None);
    for wanted in [(Setting::Migrator, MTCOPY), (Setting::MtcopyLanes, "2")] {
        let error = plan(root.path(), &[wanted]).unwrap_err();
        assert!(matches!(error, SettingError::NoMigrator { .. }), "{error}");
        assert!(error.hint().contains("modprobe mtcopy"), "{}", error.hint());
        assert!(error.to_string().contains("none, kernel"), "{error}");
    }
}

#[test]
fn a_text_that_the_kernel_does_not_write_names_its_file() {
    for (file, text) in [
        ("migrator", "none kernel\n"),
        ("max_batch_bytes", "2M\n"),
        ("stats/mtcopy/bytes", "-1\n"),
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
    assert_eq!(absence().why, Why::NoSysfs);
    fs::create_dir_all(root.path().join("sys/kernel/mm")).unwrap();
    assert_eq!(absence().why, Why::Unknown);
    invented::put(root.path(), "proc/sys/kernel/osrelease", "6.12.1\n");
    assert_eq!(absence().why, Why::Unknown);
    let off = "# CONFIG_MIGRATION_COPY_OFFLOAD is not set\n";
    let on = "CONFIG_A=y\nCONFIG_MIGRATION_COPY_OFFLOAD=y\n";
    for (config, why) in [
        ("CONFIG_MIGRATION=y\n", Why::NoSeries),
        (off, Why::OptionOff),
        ("CONFIG_MIGRATION_COPY_OFFLOAD_X=y\n", Why::NoSeries),
        ("CONFIG_NO_MIGRATION_COPY_OFFLOAD=y\n", Why::NoSeries),
        ("# for CONFIG_MIGRATION_COPY_OFFLOAD\n", Why::NoSeries),
        (on, Why::Hidden),
    ] {
        invented::put(root.path(), "boot/config-6.12.1", config);
        assert_eq!(absence().why, why, "{config}");
    }
    assert!(absence().hint().contains("container"));
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

const EVERYTHING: [(Setting, &str); 4] = [
    (Setting::Migrator, MTCOPY),
    (
        Setting::Reasons,
        "demotion mtcopy only,syscall_or_cpuset auto",
    ),
    (Setting::MaxBatchBytes, "16777216"),
    (Setting::MtcopyLanes, "3"),
];

#[test]
fn every_file_is_written_and_the_migrator_last() {
    let root = machine();
    let plan = plan(root.path(), &EVERYTHING).unwrap();
    plan.apply().unwrap();
    let expected = [
        ("max_batch_bytes", "16777216"),
        ("reasons", "syscall_or_cpuset auto\ndemotion mtcopy only"),
        ("mtcopy/lanes", "3"),
        ("migrator", "mtcopy"),
    ];
    let steps = plan.steps.iter();
    let steps: Vec<(&str, &str)> = steps
        .map(|step| (step.setting.file(), &*step.after))
        .collect();
    assert_eq!(steps, expected);
    for (file, after) in expected {
        assert_eq!(text(root.path(), file), format!("{after}\n"), "{file}");
    }
}

#[test]
fn what_is_so_already_is_not_written() {
    let root = machine();
    let wanted = [
        (Setting::Migrator, NO_MIGRATOR),
        (Setting::MtcopyLanes, "2"),
        (Setting::Reasons, "all default,damon default"),
    ];
    let plan = plan(root.path(), &wanted).unwrap();
    assert_eq!(plan.steps, []);
}

#[test]
fn wrong_values_are_refused_before_anything_is_written() {
    let root = machine();
    let batch = "from 2097152 to 33554432";
    for (setting, value, part) in [
        (Setting::Migrator, DCBM, "none, auto, kernel, mtcopy"),
        (
            Setting::Reasons,
            "all mtcopy,sunday none",
            "reasons are all, compaction",
        ),
        (Setting::Reasons, "demotion dcbm", "modprobe dcbm"),
        (Setting::MtcopyLanes, "0", "from 1 to 64"),
        (Setting::MtcopyLanes, "65", "from 1 to 64"),
        (Setting::MtcopyLanes, "many", "from 1 to 64"),
        (Setting::MaxBatchBytes, "0", batch),
        (Setting::MaxBatchBytes, "1048576", batch),
        (Setting::MaxBatchBytes, "2097153", batch),
        (Setting::MaxBatchBytes, "33619968", batch),
        (Setting::PghotTarget, "0", "CONFIG_PGHOT"),
    ] {
        let error = plan(root.path(), &[(setting, value)]).unwrap_err();
        let text = format!("{error}; {}", error.hint());
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn each_setting_has_its_file() {
    for (at, (setting, file)) in Setting::ALL.into_iter().enumerate() {
        assert_eq!((setting as usize, setting.file()), (at, file));
    }
    let modules = Setting::ALL.map(|(setting, _)| setting.module());
    assert_eq!(
        modules.into_iter().flatten().collect::<Vec<_>>(),
        [MTCOPY, DCBM]
    );
}

#[test]
fn a_step_that_fails_undoes_those_before_it_backwards() {
    let root = machine();
    let plan = plan(root.path(), &EVERYTHING).unwrap();
    for (fails_at, errno, part) in [
        (0, libc::EPERM, "be root"),
        (2, libc::EINVAL, "from 1 to 64"),
        (3, libc::ENODEV, "modprobe"),
    ] {
        let mut written: Vec<(String, String)> = Vec::new();
        let folder = root.path().join(FOLDER);
        let error = plan
            .apply_with(&mut |path, text| {
                let file = path.strip_prefix(&folder).unwrap().to_str().unwrap();
                if file == plan.steps[fails_at].setting.file() {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                written.push((file.to_owned(), text.to_owned()));
                Ok(())
            })
            .unwrap_err();
        let undone = plan.steps[..fails_at].iter().rev();
        let undone: Vec<_> = undone
            .map(|step| (step.setting.file().to_owned(), step.before.clone()))
            .collect();
        assert_eq!(written[fails_at..], undone);
        let told = format!("{error}; {}", error.hint());
        assert!(told.contains("everything else is as it was"), "{told}");
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn what_cannot_be_undone_is_named() {
    let root = machine();
    let plan = plan(root.path(), &EVERYTHING).unwrap();
    let mut left = 3;
    let error = plan
        .apply_with(&mut |_, _| {
            left -= 1;
            match left {
                1.. => Ok(()),
                _ => Err(io::Error::from_raw_os_error(libc::EIO)),
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
