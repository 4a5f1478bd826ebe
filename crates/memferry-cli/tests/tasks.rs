// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator does with the command, a test for each task, by its name.

mod command;

use std::fs;
use std::path::Path;
use std::process::Command;

use command::machine::{kernel, machine, put, stock, sysctl, text, with_pghot};
use command::{memferry, status, stderr, stdout};
use serde_json::Value;

/// What `kernel set --persist` writes.
const KEPT: [&str; 4] = [
    "etc/modules-load.d/memferry.conf",
    "etc/sysctl.d/memferry.conf",
    "etc/tmpfiles.d/memferry.conf",
    "etc/systemd/system/systemd-tmpfiles-setup.service.d/memferry.conf",
];

fn kept(root: &Path) -> Vec<String> {
    let lines = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    KEPT.map(lines).to_vec()
}

/// What a program of the machine says of a file that was written for it; `None` where there is no such program.
fn ask(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    match Command::new(words[0]).args(&words[1..]).output() {
        Err(error) => {
            println!("not run: {line}: {error}");
            None
        }
        Ok(output) => {
            let told = stdout(&output) + &stderr(&output);
            assert!(output.status.success(), "{line}: {told}");
            Some(told)
        }
    }
}

#[test]
fn have_settings_come_back_at_boot() {
    let root = with_pghot();
    let line = "set --migrator mtcopy --mtcopy-lanes 4 --reasons demotion,compaction --pghot-sources pgtscan,hwhints --persist";
    let dry = kernel(root.path(), &format!("{line} --dry-run"));
    assert_eq!(status(&dry), 0, "{}", stderr(&dry));
    for part in [
        "would write /etc/tmpfiles.d",
        "-vm.pghot_enabled_sources = 6",
    ] {
        assert!(stdout(&dry).contains(part), "{part}: {}", stdout(&dry));
    }
    assert!(!root.path().join("etc").exists());
    let output = kernel(root.path(), line);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    for file in KEPT {
        let wrote = format!("wrote /{file}\n");
        assert!(stdout(&output).contains(&wrote), "{}", stdout(&output));
    }
    assert_eq!(text(root.path(), "mtcopy/lanes"), "4\n");

    // The machine boots. What writes to the kernel's files does not truncate them, as these are not the kernel's.
    for file in ["migrator", "reasons", "mtcopy/lanes"] {
        put(root.path(), file, "");
    }
    let [modules, sysctls, _, order] = &kept(root.path())[..] else {
        panic!("four files");
    };
    assert_eq!(modules.lines().last(), Some("mtcopy"));
    assert!(
        order.contains("After=systemd-modules-load.service"),
        "{order}"
    );
    let below = root.path().display();
    if ask(&format!("systemd-tmpfiles --create --boot --root={below}")).is_some() {
        for (file, then) in [
            ("migrator", "mtcopy"),
            ("reasons", "demotion compaction"),
            ("mtcopy/lanes", "4"),
        ] {
            assert_eq!(text(root.path(), file).trim(), then, "{file}");
        }
    }
    // There is no root folder for sysctl(8), and this kernel need not have pghot.
    let file = root.path().join(KEPT[1]);
    let told = ask(&format!(
        "sysctl --dry-run --ignore --load={}",
        file.display()
    ));
    assert!(!told.is_some_and(|told| told.contains("invalid syntax")));
    let settings: Vec<&str> = sysctls.lines().skip(1).collect();
    assert_eq!(
        settings,
        [
            "-vm.pghot_target_nid = 0",
            "-vm.pghot_promote_rate_limit_MBps = 65536",
            "-vm.pghot_enabled_sources = 6"
        ]
    );
    assert_eq!(sysctl(root.path(), "pghot_enabled_sources"), "6");

    // The next call keeps what it does not change, and writes what has changed alone.
    put(root.path(), "migrator", "none kernel [mtcopy]\n");
    let json = kernel(root.path(), "set --mtcopy-lanes 8 --persist --json");
    let json: Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    assert_eq!(json["files"].as_array().map(Vec::len), Some(1), "{json}");
    let now = &kept(root.path())[2];
    for line in ["/mtcopy/lanes - - - - 8\n", "/migrator - - - - mtcopy\n"] {
        assert!(now.contains(line), "{line}: {now}");
    }
    let again = stdout(&kernel(root.path(), "set --persist"));
    assert!(again.contains("Nothing to do"), "{again}");
}

#[test]
fn have_settings_come_back_no_more() {
    let root = with_pghot();
    let written = kernel(root.path(), "set --persist");
    assert_eq!(status(&written), 0, "{}", stderr(&written));
    let dry = stdout(&kernel(root.path(), "set --forget --dry-run"));
    assert!(dry.contains("would remove /etc/sysctl.d"), "{dry}");
    assert!(kept(root.path()).iter().all(|text| !text.is_empty()));
    let output = kernel(root.path(), "set --forget");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(KEPT.iter().all(|file| !root.path().join(file).exists()));
    assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    let again = stdout(&kernel(root.path(), "set --forget"));
    assert!(again.contains("Nothing to do"), "{again}");
    // A module that is loaded no more is not loaded at boot, and what has gone is forgotten.
    kernel(root.path(), "set --persist");
    fs::remove_dir_all(root.path().join("sys/kernel/mm/migration/mtcopy")).expect("remove");
    kernel(root.path(), "set --persist");
    assert!(!root.path().join(KEPT[0]).exists());
}

#[test]
fn keep_files_of_ones_own_beside_persisted_settings() {
    for file in KEPT {
        let root = machine();
        let own = root.path().join(file);
        fs::create_dir_all(own.parent().expect("folder")).expect("folder");
        fs::write(&own, "# the administrator's\n").expect("file");
        for line in ["set --mtcopy-lanes 4 --persist", "set --forget"] {
            let output = kernel(root.path(), line);
            assert_eq!(status(&output), 1, "{line}");
            let told = stderr(&output);
            assert!(told.contains(file) && told.contains("try: "), "{told}");
        }
        assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
        let now = fs::read_to_string(&own).expect("file");
        assert_eq!(now, "# the administrator's\n");
        let written = KEPT.iter().filter(|file| root.path().join(file).exists());
        assert_eq!(written.count(), 1);
    }
    // Nor on a kernel that has nothing to set.
    let root = stock();
    assert_eq!(status(&kernel(root.path(), "set --persist")), 1);
    assert!(!root.path().join("etc").exists());
    let wrong = memferry(&["kernel", "set", "--persist", "--forget"]);
    assert_eq!(status(&wrong), 2);
}
