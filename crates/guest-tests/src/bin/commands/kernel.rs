// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel` and the kernel's own files: what is shown is what they say, what is set is what they then say, and what
//! is refused changes none of them.

use std::ffi::CString;
use std::fs;

use crate::Case;
use crate::bench::bench;
use crate::program::{memferry, number};

pub const CASES: &[Case] = &[
    ("kernel_status_says_what_is_there", status),
    ("topology_names_the_migrator", topology),
    ("kernel_set_on_a_stock_kernel_says_what_is_missing", stock),
    ("kernel_set_sets_every_setting", every_setting),
    ("kernel_set_dry_run_changes_nothing", dry_run),
    ("kernel_set_refuses_wrong_values", wrong_values),
    ("kernel_set_undoes_what_it_did_when_a_write_fails", undone),
    ("kernel_status_counts_what_a_migrator_copied", counts),
];

pub const FOLDER: &str = "/sys/kernel/mm/migration";

/// Whether this kernel has the interface.
pub fn is_there() -> bool {
    fs::exists(FOLDER).unwrap()
}

fn has_mtcopy() -> bool {
    fs::exists(format!("{FOLDER}/mtcopy")).unwrap()
}

/// One of the kernel's files.
pub fn file(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}"))
        .unwrap()
        .trim()
        .to_owned()
}

/// All settings, as the kernel says them.
pub fn settings() -> Vec<(String, String)> {
    let names = [
        "migrator",
        "reasons",
        "max_batch_bytes",
        "mtcopy/lanes",
        "dcbm/lanes",
    ];
    names
        .into_iter()
        .filter(|name| fs::exists(format!("{FOLDER}/{name}")).unwrap())
        .map(|name| (name.to_owned(), file(name)))
        .collect()
}

fn need(there: bool, what: &str) -> Result<(), String> {
    if there { Ok(()) } else { Err(what.to_owned()) }
}

fn status() -> Result<(), String> {
    let text = memferry("kernel status").gives(0);
    let json = memferry("kernel status --json").gives(0).json();
    assert_eq!(json["available"], is_there(), "{json}");
    assert_eq!(json["mtcopy"].is_object(), has_mtcopy(), "{json}");
    if !is_there() {
        text.says("no batch migration in this kernel")
            .says("CONFIG_MIGRATION_COPY_OFFLOAD");
        return Ok(());
    }
    let text = text.says("max_batch_bytes").says(&file("migrator"));
    if !has_mtcopy() {
        text.says("modprobe mtcopy");
    }
    let reasons = json["reasons"].as_array().unwrap().iter().map(|of| {
        let only = if of["only"] == true { " only" } else { "" };
        let text = |field: &str| of[field].as_str().unwrap().to_owned();
        format!("{} {}{only}", text("reason"), text("choice"))
    });
    assert_eq!(reasons.collect::<Vec<_>>().join("\n"), file("reasons"));
    assert_eq!(json["max_batch_bytes"].to_string(), file("max_batch_bytes"));
    Ok(())
}

fn topology() -> Result<(), String> {
    let shown = memferry("topology").gives(0).says("kernel's migrator");
    shown.says(if is_there() { "copies" } else { "stock kernel" });
    Ok(())
}

fn stock() -> Result<(), String> {
    need(!is_there(), "this kernel has batch migration")?;
    memferry("kernel set --migrator kernel")
        .gives(1)
        .says("nothing to set")
        .says("try: ");
    memferry("bench move --backend kernel --migrator mtcopy --quick")
        .gives(1)
        .says("no migrator mtcopy");
    Ok(())
}

/// Sets everything as it was when the value goes.
pub struct AsBefore(Vec<(String, String)>);

impl AsBefore {
    pub fn begin() -> AsBefore {
        AsBefore(settings())
    }
}

impl Drop for AsBefore {
    fn drop(&mut self) {
        for (name, text) in &self.0 {
            // The active one of several stands in brackets.
            let active = text.split(['[', ']']).nth(1);
            let _ = fs::write(format!("{FOLDER}/{name}"), active.unwrap_or(text));
        }
        if !std::thread::panicking() {
            assert_eq!(settings(), self.0);
        }
    }
}

fn every_setting() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let _before = AsBefore::begin();
    let choice = |reason: &str| {
        let all = file("reasons");
        let line = all
            .lines()
            .find(|line| line.starts_with(&format!("{reason} ")));
        line.unwrap().to_owned()
    };
    memferry(
        "kernel set --max-batch-bytes 16M --reason demotion=kernel,damon=none --migrator kernel",
    )
    .gives(0);
    assert_eq!(file("max_batch_bytes"), "16777216");
    assert_eq!(choice("demotion"), "demotion kernel");
    assert_eq!(choice("damon"), "damon none");
    assert!(file("migrator").contains("[kernel]"));
    memferry("kernel set --max-batch-bytes 2M --reason all=none --migrator none").gives(0);
    assert_eq!(file("max_batch_bytes"), "2097152");
    assert!(file("migrator").contains("[none]"));
    assert!(file("reasons").lines().all(|line| line.ends_with(" none")));
    for reason in memferry_linux::kernel::REASONS {
        memferry(&format!("kernel set --reason {reason}=auto")).gives(0);
        assert_eq!(choice(reason), format!("{reason} auto"));
    }
    memferry("kernel set --reason all=kernel-only,damon=default").gives(0);
    assert_eq!(choice("demotion"), "demotion kernel only");
    assert_eq!(choice("damon"), "damon default");
    memferry("kernel set --reason all=default --migrator auto").gives(0);
    assert!(
        file("reasons")
            .lines()
            .all(|line| line.ends_with(" default"))
    );
    assert!(file("migrator").contains("[auto]"));
    if !has_mtcopy() {
        memferry("kernel set --migrator mtcopy")
            .gives(1)
            .says("modprobe mtcopy");
        memferry("kernel set --mtcopy-lanes 2")
            .gives(1)
            .says("modprobe mtcopy");
        return Ok(());
    }
    memferry("kernel set --migrator mtcopy --mtcopy-lanes 3").gives(0);
    assert!(file("migrator").contains("[mtcopy]"));
    assert_eq!(file("mtcopy/lanes"), "3");
    memferry("kernel status").gives(0).says("[mtcopy]");
    Ok(())
}

fn dry_run() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let before = settings();
    memferry("kernel set --migrator kernel --max-batch-bytes 32M --dry-run")
        .gives(0)
        .says("would set");
    assert_eq!(settings(), before);
    Ok(())
}

fn wrong_values() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let before = settings();
    for (line, status) in [
        ("--migrator nobody --max-batch-bytes 8M", 1),
        ("--reason nothing=none --max-batch-bytes 8M", 1),
        ("--reason demotion=auto-only --max-batch-bytes 8M", 1),
        ("--reason demotion --max-batch-bytes 8M", 2),
        ("--max-batch-bytes 1M", 1),
        ("--max-batch-bytes 33M", 1),
        ("--max-batch-bytes 2G", 1),
        ("--max-batch-bytes 4194305", 1),
        ("--max-batch-bytes much", 2),
        ("--mtcopy-lanes 0 --max-batch-bytes 8M", 2),
        ("--mtcopy-lanes 65 --max-batch-bytes 8M", 2),
        ("--min-batch-bytes 0 --max-batch-bytes 8M", 2),
    ] {
        memferry(&format!("kernel set {line}")).gives(status);
        assert_eq!(settings(), before, "{line}");
    }
    Ok(())
}

/// A file that can be read and not be written while the value lives.
struct ReadOnly(CString);

impl ReadOnly {
    fn begin(path: &str) -> ReadOnly {
        let path = CString::new(path).unwrap();
        for flags in [
            libc::MS_BIND,
            libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY,
        ] {
            // SAFETY: both texts end with a zero; neither type nor data is given.
            let ret = unsafe {
                libc::mount(
                    path.as_ptr(),
                    path.as_ptr(),
                    std::ptr::null(),
                    flags,
                    std::ptr::null(),
                )
            };
            assert_eq!(ret, 0, "mount: {}", std::io::Error::last_os_error());
        }
        ReadOnly(path)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: the text ends with a zero.
        unsafe { libc::umount(self.0.as_ptr()) };
    }
}

fn undone() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let _before = AsBefore::begin();
    memferry("kernel set --migrator none --reason all=default").gives(0);
    let before = settings();
    let read_only = ReadOnly::begin(&format!("{FOLDER}/migrator"));
    memferry("kernel set --migrator kernel --max-batch-bytes 32M --reason damon=none")
        .gives(1)
        .says("everything else is as it was");
    drop(read_only);
    assert_eq!(settings(), before);
    Ok(())
}

/// What `memferry kernel status` says that a migrator copied, bytes, and how many folios it left.
pub fn counted(migrator: &str) -> (u64, u64) {
    let json = memferry("kernel status --json").gives(0).json();
    let rows = json["statistics"].as_array().unwrap();
    let row = rows.iter().find(|row| row["migrator"] == migrator);
    let row = row.unwrap_or_else(|| panic!("{migrator}: {json}"));
    (number(&row["bytes"]), number(&row["fallbacks"]))
}

fn counts() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let (before, _) = counted("kernel");
    let json =
        bench("bench move --backend kernel --migrator none,kernel --total 4M --folio 4K --runs 1");
    let (after, _) = counted("kernel");
    let row = number(&json["rows"][1]["copied_bytes"]);
    // Beside the timed call it brings the pages back.
    assert!(after - before >= row, "{before} {after} {json}");
    Ok(())
}
