// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry kernel` and the kernel's own files: what is shown is what they say, what is set is what they then say, and what
//! is refused changes none of them.

use std::ffi::CString;
use std::fs;

use crate::Case;
use crate::program::memferry;

pub const CASES: &[Case] = &[
    ("kernel_status_says_what_is_there", status),
    ("topology_names_the_migrator", topology),
    ("kernel_set_on_a_stock_kernel_says_what_is_missing", stock),
    ("kernel_set_sets_every_setting", every_setting),
    ("kernel_set_dry_run_changes_nothing", dry_run),
    ("kernel_set_refuses_wrong_values", wrong_values),
    ("kernel_set_undoes_what_it_did_when_a_write_fails", undone),
    ("kernel_set_clears_the_statistics", clears),
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
    let general = ["migrator", "reasons", "min_batch_bytes", "max_batch_bytes"];
    let mtcopy = ["lanes", "priority", "placement", "nontemporal", "idle_only"];
    let mut names: Vec<String> = Vec::new();
    if is_there() {
        names.extend(general.map(str::to_owned));
    }
    if has_mtcopy() {
        names.extend(mtcopy.map(|name| format!("mtcopy/{name}")));
    }
    if fs::exists(format!("{FOLDER}/dcbm")).unwrap() {
        let dcbm = ["lanes", "timeout_ms", "poll_below_bytes"];
        names.extend(dcbm.map(|name| format!("dcbm/{name}")));
    }
    names
        .into_iter()
        .map(|name| (name.clone(), file(&name)))
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
    let text = text.says("min_batch_bytes").says(&file("migrator"));
    if !has_mtcopy() {
        text.says("modprobe mtcopy");
    }
    assert_eq!(json["reasons"], file("reasons"));
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
        // Twice: the smallest batch may stand above the largest one at first.
        for _ in 0..2 {
            for (name, text) in &self.0 {
                let active = text.split_whitespace().find_map(|word| {
                    word.strip_prefix('[')
                        .and_then(|word| word.strip_suffix(']'))
                });
                let _ = fs::write(format!("{FOLDER}/{name}"), active.unwrap_or(text));
            }
        }
        if !std::thread::panicking() {
            assert_eq!(settings(), self.0);
        }
    }
}

fn every_setting() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let _before = AsBefore::begin();
    memferry("kernel set --min-batch-bytes 8M --max-batch-bytes 16M --reasons demotion,damon --migrator kernel").gives(0);
    assert_eq!(file("min_batch_bytes"), "8388608");
    assert_eq!(file("max_batch_bytes"), "16777216");
    let mut reasons: Vec<String> = file("reasons")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["damon", "demotion"]);
    assert!(file("migrator").contains("[kernel]"));
    memferry("kernel set --min-batch-bytes 0 --max-batch-bytes 2M --reasons none --migrator none")
        .gives(0);
    assert_eq!(
        (file("min_batch_bytes"), file("max_batch_bytes")),
        ("0".to_owned(), "2097152".to_owned())
    );
    assert!(file("migrator").contains("[none]"));
    assert_eq!(file("reasons"), "none");
    for reason in memferry_reasons() {
        memferry(&format!("kernel set --reasons {reason}")).gives(0);
        assert_eq!(file("reasons"), reason);
    }
    memferry("kernel set --reasons all").gives(0);
    assert_eq!(file("reasons"), "all");
    if !has_mtcopy() {
        memferry("kernel set --migrator mtcopy")
            .gives(1)
            .says("modprobe mtcopy");
        memferry("kernel set --lanes 2")
            .gives(1)
            .says("modprobe mtcopy");
        return Ok(());
    }
    memferry(
        "kernel set --migrator mtcopy --lanes 3 --priority high --placement fill --idle-only off",
    )
    .gives(0);
    assert!(file("migrator").contains("[mtcopy]"));
    assert_eq!(file("mtcopy/lanes"), "3");
    assert!(file("mtcopy/priority").contains("[high]"));
    assert!(file("mtcopy/placement").contains("[fill]"));
    assert_eq!(file("mtcopy/idle_only"), "0");
    memferry("kernel status").gives(0).says("[mtcopy]");
    Ok(())
}

fn memferry_reasons() -> [&'static str; 10] {
    memferry::kernel::REASONS
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
        ("--reasons nothing --max-batch-bytes 8M", 1),
        ("--min-batch-bytes 64M", 1),
        ("--max-batch-bytes 1M", 1),
        ("--max-batch-bytes 128M", 1),
        ("--max-batch-bytes 4194305", 1),
        ("--max-batch-bytes much", 2),
        ("--lanes 0 --max-batch-bytes 8M", 2),
        ("--lanes 65 --max-batch-bytes 8M", 2),
        ("--priority low --max-batch-bytes 8M", 2),
    ] {
        memferry(&format!("kernel set {line}")).gives(status);
        assert_eq!(settings(), before, "{line}");
    }
    // What the command refuses, the kernel refuses too.
    for (name, value) in [
        ("migrator", "nobody"),
        ("reasons", "nothing"),
        ("min_batch_bytes", "67108865"),
        ("max_batch_bytes", "1048576"),
        ("max_batch_bytes", "4194305"),
    ] {
        let error = fs::write(format!("{FOLDER}/{name}"), value).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{name} {value}");
    }
    assert_eq!(settings(), before);
    Ok(())
}

/// A file that takes no bytes lies over another while the value lives.
struct Covered(CString);

impl Covered {
    fn begin(path: &str) -> Covered {
        let path = CString::new(path).unwrap();
        // SAFETY: the three texts end with a zero; no data is given.
        let ret = unsafe {
            libc::mount(
                c"/dev/full".as_ptr(),
                path.as_ptr(),
                c"none".as_ptr(),
                libc::MS_BIND,
                std::ptr::null(),
            )
        };
        assert_eq!(ret, 0, "mount: {}", std::io::Error::last_os_error());
        Covered(path)
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        // SAFETY: the text ends with a zero.
        unsafe { libc::umount(self.0.as_ptr()) };
    }
}

fn undone() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    need(fs::exists("/dev/full").unwrap(), "no /dev/full")?;
    let _before = AsBefore::begin();
    memferry("kernel set --migrator none --reasons all").gives(0);
    let before = settings();
    let covered = Covered::begin(&format!("{FOLDER}/stats/kernel/reset"));
    memferry("kernel set --migrator kernel --max-batch-bytes 32M --reasons damon --reset-stats")
        .gives(1)
        .says("everything else is as it was");
    drop(covered);
    assert_eq!(settings(), before);
    Ok(())
}

fn clears() -> Result<(), String> {
    need(is_there(), "a stock kernel")?;
    let _before = AsBefore::begin();
    memferry("kernel set --migrator kernel --reasons all --min-batch-bytes 0 --reset-stats")
        .gives(0);
    memferry("bench move --backend kernel --migrator kernel --total 4M --folio 4K --runs 1")
        .gives(0);
    let json = memferry("kernel status --json").gives(0).json();
    let rows = json["statistics"].as_array().unwrap();
    let bytes = |row: &serde_json::Value| row["bytes"].as_u64().unwrap();
    let moved =
        |row: &&serde_json::Value| row["reason"] == "syscall_or_cpuset" && bytes(row) >= 4 << 20;
    assert!(rows.iter().any(|row| moved(&row)), "{json}");
    memferry("kernel set --reset-stats")
        .gives(0)
        .says("cleared");
    let json = memferry("kernel status --json").gives(0).json();
    assert!(
        !json["statistics"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| moved(&row)),
        "{json}"
    );
    Ok(())
}
