// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel` on invented machines: folders with the files that a kernel would show.

mod command;

use std::fs;

use command::machine::{FOLDER, KEPT, kernel, machine, put, stock, sysctl, text, with_pghot};
use command::{done, fails, has, json, status, stdout};

#[test]
fn status_shows_hot_page_tracking() {
    let root = with_pghot();
    let shown = stdout(&kernel(root.path(), "status"));
    has(
        &shown,
        "pgtscan | promote_freq_window_ms | 3000 | 256 KiB | freq_threshold | exchanged | pgpromote_success | 77",
    );
    for part in ["pghot_refused_pace", "nr_free", "bounced"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
    fs::remove_dir_all(root.path().join("sys/kernel/debug")).expect("remove");
    fs::write(root.path().join("proc/sys/vm/pghot_enabled_sources"), "0\n").expect("file");
    let shown = stdout(&kernel(root.path(), "status"));
    has(&shown, "debugfs | kernel set --pghot-sources");
}

#[test]
fn a_kernel_without_pghot_is_told_what_it_lacks_and_what_works() {
    let root = machine();
    let shown = stdout(&kernel(root.path(), "status"));
    has(
        &shown,
        "no hot-page tracking | CONFIG_PGHOT=y | numa_balancing=2",
    );
    let json = json(&kernel(root.path(), "status --json"));
    assert_eq!(json["available"], true, "the migrators are there");
    assert_eq!(json["pghot"]["available"], false);
    assert!(json["pghot"]["why"].is_string());
    for line in ["set --pghot-sources all", "heat", "heat --json"] {
        fails(&kernel(root.path(), line), "CONFIG_PGHOT");
    }
}

#[test]
fn set_changes_tracking_and_migrators_in_one_go() {
    let root = with_pghot();
    let line = "set --pghot-sources hintfaults,hwhints --pghot-target 1 --pghot-rate-limit 100 --mtcopy-lanes 4";
    let dry = stdout(&kernel(root.path(), &format!("{line} --dry-run")));
    let steps: Vec<&str> = dry.lines().collect();
    assert_eq!(
        steps,
        [
            "would set pghot_enabled_sources: 4 -> 0",
            "would set pghot_target_nid: 0 -> 1",
            "would set pghot_promote_rate_limit_MBps: 65536 -> 100",
            "would set pghot_enabled_sources: 0 -> 3",
            "would set mtcopy/lanes: 2 -> 4",
        ]
    );
    assert_eq!(sysctl(root.path(), "pghot_target_nid"), "0");
    done(&kernel(root.path(), line));
    assert_eq!(sysctl(root.path(), "pghot_enabled_sources"), "3");
    let limit = sysctl(root.path(), "pghot_promote_rate_limit_MBps");
    assert_eq!(limit, "100");
    assert_eq!(text(root.path(), "mtcopy/lanes"), "4\n");
}

#[test]
fn heat_shows_the_hottest_sections_first() {
    let root = with_pghot();
    let shown = done(&kernel(root.path(), "heat --most 2"));
    has(
        &shown,
        "3 sections | 16388 hot pages | 16384 (50%) | 0xa8000000 | freq3 | 1 more: --most 3",
    );
    let at = |part: &str| shown.find(part).expect(part);
    assert!(at("0xa8000000") < at("0xa0000000"), "{shown}");
    assert!(!shown.contains("0x140000000"), "{shown}");
    has(&stdout(&kernel(root.path(), "heat --node 9")), "No section");
}

#[test]
fn a_file_that_cannot_be_understood_is_named() {
    let root = machine();
    put(root.path(), "max_batch_bytes", "much\n");
    for line in ["status", "set --mtcopy-lanes 3"] {
        fails(&kernel(root.path(), line), "max_batch_bytes | much");
    }
}

#[test]
fn what_this_kernel_refuses_is_status_1_and_changes_nothing() {
    let root = machine();
    for (change, part) in [
        (
            "--reason all=mtcopy,damon=auto-only",
            "last two `only` may stand",
        ),
        ("--reason demotion=dcbm-only", "modprobe dcbm"),
        ("--max-batch-bytes 1M", "from 2097152 to 33554432"),
    ] {
        fails(
            &kernel(root.path(), &format!("set {change} --mtcopy-lanes 4")),
            part,
        );
        assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    }
}

#[test]
fn a_write_that_fails_leaves_everything_as_it_was() {
    let root = with_pghot();
    // 65536, which nobody may write, root neither.
    let lanes = root.path().join(FOLDER).join("mtcopy/lanes");
    fs::remove_file(&lanes).expect("remove");
    std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", lanes).expect("symlink");
    let line = "set --pghot-rate-limit 1 --pghot-sources none --reason demotion=mtcopy --mtcopy-lanes 4 --migrator mtcopy";
    fails(
        &kernel(root.path(), line),
        "mtcopy/lanes | everything else is as it was",
    );
    assert_eq!(sysctl(root.path(), "pghot_enabled_sources"), "4");
    let limit = sysctl(root.path(), "pghot_promote_rate_limit_MBps");
    assert_eq!(limit, "65536");
    assert_eq!(text(root.path(), "reasons"), "demotion default\n");
    assert_eq!(text(root.path(), "migrator"), "[none] auto kernel mtcopy\n");
}

#[test]
fn status_says_whether_the_settings_come_back_at_boot() {
    let root = with_pghot();
    let shows = |persisted: &str, part: &str| {
        has(&stdout(&kernel(root.path(), "status")), part);
        let json = json(&kernel(root.path(), "status --json"));
        assert_eq!(json["persisted"], persisted);
    };
    let set = |line: &str| drop(done(&kernel(root.path(), line)));
    shows("no", "not persisted: ");
    // A daemon's are not kept.
    let daemons =
        "[{\"file\": \"proc/sys/vm/pghot_enabled_sources\", \"before\": \"0\", \"after\": \"4\"}]";
    memferry_bench::synthetic::put(root.path(), "run/memferry/daemon.json", daemons);
    fails(
        &kernel(root.path(), "set --persist"),
        "memferryd has changed | systemctl stop",
    );
    fs::remove_file(root.path().join("run/memferry/daemon.json")).expect("remove");
    set("set --persist");
    shows("yes", "persisted: the settings come back");
    set("set --mtcopy-lanes 4");
    shows("otherwise", "--persist --dry-run");
    set("set --persist");
    set("set --pghot-rate-limit 100");
    shows("otherwise", "--persist --dry-run");
    set("set --persist");
    shows("yes", "persisted: the settings come back");
    // One of the four files is gone, or somebody else's.
    let one = root.path().join(KEPT[1]);
    fs::remove_file(&one).expect("remove");
    shows("otherwise", "--persist --dry-run");
    fs::write(&one, "# the administrator's\n").expect("file");
    shows("otherwise", "--persist --dry-run");
    fs::remove_file(&one).expect("remove");
    set("set --forget");
    fs::write(&one, "# the administrator's\n").expect("file");
    shows("no", "not persisted: ");
    let none = json(&kernel(stock().path(), "status --json"));
    assert!(none["persisted"].is_null(), "there is nothing to persist");
}

#[test]
fn files_that_are_not_ours_are_neither_replaced_nor_removed() {
    for file in KEPT {
        let root = machine();
        let own = root.path().join(file);
        fs::create_dir_all(own.parent().expect("folder")).expect("folder");
        fs::write(&own, "# the administrator's\n").expect("file");
        for line in ["set --mtcopy-lanes 4 --persist", "set --forget"] {
            fails(&kernel(root.path(), line), file);
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
}
