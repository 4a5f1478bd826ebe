// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry bench --backend kernel`: rows, verified bytes, and a kernel that is set as it was before.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::Case;
use crate::kernel::{is_there, settings};
use crate::program::{Done, command, memferry, nodes, number, signal};

pub const CASES: &[Case] = &[
    ("bench_move_of_the_kernel_verifies_every_byte", bench_move),
    ("bench_move_of_the_kernel_has_its_tables", tables),
    ("bench_count_of_the_kernel_begins_with_one_folio", count),
    ("bench_count_of_the_kernel_moves_huge_pages", huge),
    ("bench_move_of_the_kernel_moves_mthps", mthp),
    ("bench_stall_of_the_kernel_finds_accesses_that_wait", stall),
    ("bench_move_of_the_kernel_shows_where_time_goes", anatomy),
    ("bench_of_the_kernel_between_chosen_nodes", chosen),
    ("bench_of_the_kernel_sets_back_at_an_interrupt", interrupt),
    ("bench_of_the_kernel_refuses_what_it_cannot_do", refusals),
    ("bench_from_userspace_between_chosen_nodes", userspace),
];

pub fn rows(json: &Value) -> &Vec<Value> {
    json["rows"].as_array().unwrap()
}

/// Runs a benchmark and checks what all have in common.
pub fn bench(line: &str) -> Value {
    let before = settings();
    let done = memferry(&format!("{line} --json")).gives(0);
    let json = done.json();
    assert_eq!(settings(), before, "the settings are as before");
    assert_eq!(json["schema"], "memferry-bench/1");
    assert!(!rows(&json).is_empty());
    for row in rows(&json) {
        assert_eq!(row["backend"], "kernel", "{row}");
        assert_eq!(
            number(&row["verified_bytes"]),
            number(&row["bytes"]) * number(&row["runs"]),
            "{row}"
        );
        assert!(row["of_none"].as_f64().unwrap() > 0.0, "{row}");
        assert!(number(&row["call_ns"]) > 0, "{row}");
        let folio = number(&row["folio_bytes"]);
        let call = match row["folios"].as_u64() {
            Some(folios) => folio * folios,
            None => number(&row["bytes"]),
        };
        // mtcopy may decline where no CPU is idle. Smaller calls may be too small for a migrator.
        if ["kernel", "dcbm"].contains(&row["migrator"].as_str().unwrap()) && call >= 2 << 20 {
            let share = number(&row["copied_bytes"]) * 100 / number(&row["verified_bytes"]);
            assert!(share >= 90, "{share}%: {row}");
        }
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap();
    if cpu.contains("QEMU TCG") {
        assert_eq!(json["host"]["emulated"], true);
        assert!(done.told.contains("ratios"), "{done:?}");
    }
    json
}

/// Each migrator and its lanes, in the order of the rows.
pub fn columns(json: &Value) -> Vec<(String, u64)> {
    let mut columns = Vec::new();
    for row in rows(json) {
        let column = (
            row["migrator"].as_str().unwrap().to_owned(),
            number(&row["lanes"]),
        );
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

fn bench_move() -> Result<(), String> {
    let json = bench("bench move --quick --backend kernel --migrator all --total 8M --folio 4K");
    let columns = columns(&json);
    assert_eq!(columns[0], ("none".to_owned(), 1));
    if is_there() {
        assert!(columns.contains(&("kernel".to_owned(), 1)), "{columns:?}");
    } else {
        assert_eq!(columns.len(), 1);
        assert!(
            json["notes"].to_string().contains("kernel status"),
            "{json}"
        );
    }
    if fs::exists("/sys/kernel/mm/migration/mtcopy").unwrap() {
        let copied = |row: &Value| row["migrator"] == "mtcopy" && number(&row["copied_bytes"]) > 0;
        assert!(rows(&json).iter().any(copied), "{json}");
    }
    // What copied is named, and of a named migrator it is that one.
    for row in rows(&json) {
        let by = row["copied_by"].as_object().cloned().unwrap_or_default();
        if row["migrator"] != "auto" {
            assert!(
                by.keys().all(|name| row["migrator"] == name.as_str()),
                "{row}"
            );
        }
        let sum: u64 = by.values().map(number).sum();
        assert_eq!(sum, row["copied_bytes"].as_u64().unwrap_or(0), "{row}");
    }
    Ok(())
}

fn tables() -> Result<(), String> {
    let done =
        memferry("bench move --quick --backend kernel --total 4M --folio 4K --runs 1").gives(0);
    let done = done
        .says("move_pages(2) from node")
        .says("vanilla or none, 1 lane")
        .says("ceiling, 1 lane");
    if is_there() {
        done.says("times faster than migrator none");
    }
    memferry("bench count --quick --backend kernel --migrator none --folio 4K --folios 1 --runs 1")
        .gives(0)
        .says("time of one call");
    Ok(())
}

fn count() -> Result<(), String> {
    let json = bench("bench count --quick --backend kernel --folio 4K --folios 1,64 --runs 2");
    for folios in [1, 64] {
        assert!(
            rows(&json).iter().any(|row| row["folios"] == folios),
            "{folios}: {json}"
        );
    }
    Ok(())
}

fn huge() -> Result<(), String> {
    let file = PathBuf::from(THP).join("enabled");
    if !file.exists() {
        return Err("no transparent huge pages".to_owned());
    }
    let _enabled = Enabled::set([file], "madvise");
    let before = splits();
    let json = bench("bench count --quick --backend kernel --folio 2M --folios 1,4 --runs 2");
    assert!(rows(&json).iter().all(|row| row["folio_bytes"] == 2 << 20));
    assert_eq!(splits(), before, "all were moved whole");
    Ok(())
}

/// How many folios this kernel has split, by size.
fn splits() -> BTreeMap<PathBuf, String> {
    let folders = fs::read_dir(THP).unwrap();
    let files = folders.map(|entry| entry.unwrap().path().join("stats/split"));
    let told = files.filter_map(|file| fs::read_to_string(&file).ok().map(|count| (file, count)));
    told.collect()
}

fn mthp() -> Result<(), String> {
    let file = PathBuf::from(THP).join("hugepages-64kB/enabled");
    if !file.exists() {
        return Err("no folios of 64 KiB in this kernel".to_owned());
    }
    let line = "bench move --quick --backend kernel --total 8M --folio 64K --runs 2";
    {
        let _disabled = Enabled::set([file.clone()], "never");
        memferry(line).gives(1).says("hugepages-64kB/enabled");
    }
    let _enabled = Enabled::set([file], "madvise");
    let before = splits();
    assert!(
        before
            .keys()
            .any(|file| file.ends_with("hugepages-64kB/stats/split"))
    );
    let json = bench(line);
    assert_eq!(rows(&json)[0]["folio_bytes"], 65536);
    // Linux 6.12 splits those that move twice.
    assert_eq!(splits(), before, "all were moved whole");
    Ok(())
}

/// Where transparent huge pages are set.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Settings of transparent huge pages, as before when the value goes.
pub struct Enabled(Vec<(PathBuf, String)>);

impl Enabled {
    /// Sets all these files to one mode.
    pub fn set(files: impl IntoIterator<Item = PathBuf>, mode: &str) -> Enabled {
        let set = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, mode).unwrap();
            (path, text.split(['[', ']']).nth(1).unwrap().to_owned())
        };
        Enabled(files.into_iter().map(set).collect())
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = fs::write(path, before);
        }
    }
}

fn chosen() -> Result<(), String> {
    let nodes = nodes();
    let (from, to) = (nodes[nodes.len() - 1], nodes[0]);
    let line = format!(
        "bench move --quick --backend kernel --from {from} --to {to} --total 4M --folio 4K --runs 1"
    );
    let json = bench(&line);
    assert_eq!(
        json["rows"][0]["nodes"],
        serde_json::json!({"from": from, "to": to})
    );
    Ok(())
}

fn stall() -> Result<(), String> {
    let batches = if is_there() { "--batch 2M,8M" } else { "" };
    let before = settings();
    // Few accesses meet a page on its way in a short time: as many rounds as it takes.
    for rounds in (1..).map(|power| 1 << power) {
        let line = format!(
            "bench stall --quick --backend kernel --total 8M --threads 1 --rounds {rounds} {batches} --json"
        );
        let json = memferry(&line).gives(0).json();
        assert_eq!(settings(), before, "the settings are as before");
        assert_eq!(json["complete"], true);
        let count = |migrator: &str| {
            let rows = rows(&json).iter();
            rows.filter(|row| row["migrator"] == migrator).count()
        };
        assert_eq!(count("none"), 1, "{json}");
        assert_eq!(count("kernel"), if is_there() { 2 } else { 0 }, "{json}");
        for row in rows(&json) {
            assert_eq!(row["backend"], "kernel", "{row}");
            assert_eq!(number(&row["verified_bytes"]), 8 << 20, "{row}");
            assert!(number(&row["moved_bytes"]) > 0, "{row}");
            assert!(number(&row["accesses"]) >= number(&row["stalled"]), "{row}");
            if row["migrator"] == "kernel" {
                let share = number(&row["copied_bytes"]) * 100 / number(&row["moved_bytes"]);
                assert!(share >= 90, "{share}%: {row}");
                let (mean, most) = (&row["mean_batch_bytes"], number(&row["batch_bytes"]));
                assert!((most / 2..=most).contains(&number(mean)), "{row}");
            }
        }
        let waits =
            |row: &Value| number(&row["stalled"]) > 0 && number(&row["stall_ns"]["max"]) > 0;
        if rows(&json).iter().all(waits) {
            return Ok(());
        }
        println!("# {rounds} rounds are too few");
    }
    Ok(())
}

fn anatomy() -> Result<(), String> {
    memferry("bench move --quick --backend kernel --total 4M --folio 4K --runs 1 --anatomy")
        .gives(0)
        .says("anatomy of the kernel's calls");
    let json = bench("bench count --quick --backend kernel --folio 4K --folios 512 --runs 1");
    for row in rows(&json) {
        let steps = &row["kernel_steps"];
        for step in ["unmap_ns", "rest_ns"] {
            assert!(number(&steps[step]) > 0, "{step}: {row}");
        }
        let plain = number(&steps["plain_ns"]) > 0;
        match row["migrator"].as_str().unwrap() {
            "none" => assert!(plain && number(&steps["copy_ns"]) == 0, "{row}"),
            "kernel" => {
                assert!(!plain && number(&steps["batches"]) > 0, "{row}");
                for step in ["flush_ns", "copy_ns", "remap_ns"] {
                    assert!(number(&steps[step]) > 0, "{step}: {row}");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn interrupt() -> Result<(), String> {
    let before = settings();
    let line =
        "bench move --backend kernel --migrator all --total 4M --folio 4K --runs 1000000 --json";
    let child = command(line).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // It handles signals (this is the last of those that it prepares for, so SIGINT is ready), and it has begun to set the
    // kernel.
    loop {
        let text = fs::read_to_string(&status).unwrap();
        let mask = text
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        let catches = u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (libc::SIGHUP - 1) != 0;
        if catches && (!is_there() || settings() != before) {
            break;
        }
        std::thread::yield_now();
    }
    signal(child.id(), libc::SIGINT);
    Done::new(line, child.wait_with_output().unwrap())
        .gives(130)
        .says("interrupted");
    assert_eq!(settings(), before);
    Ok(())
}

fn refusals() -> Result<(), String> {
    memferry("bench move --backend kernel --from 999")
        .gives(1)
        .says("no memory node 999");
    memferry("bench move --backend kernel --from 0 --to 0")
        .gives(2)
        .says("nothing moves");
    memferry("bench move --backend kernel --migrator batch")
        .gives(2)
        .says("no migrator of the kernel");
    memferry("bench move --backend kernel --destination warm")
        .gives(2)
        .says("--destination cold");
    memferry("bench move --disk /tmp")
        .gives(2)
        .says("--backend kernel");
    memferry("bench count --anatomy")
        .gives(2)
        .says("--backend kernel");
    memferry("bench move --migrator kernel")
        .gives(2)
        .says("--backend kernel");
    memferry("bench count --backend kernel --folios 100000000")
        .gives(1)
        .says("room for");
    Ok(())
}

/// Between the first node and the last, both ways: the last one is the slow one, where there are three.
fn userspace() -> Result<(), String> {
    let nodes = nodes();
    let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
    for (from, to) in [(first, last), (last, first)] {
        for line in [
            "bench move --quick --total 4M --folio 4K,2M --runs 1 --lanes 2 --destination all",
            "bench count --quick --folio 4K --folios 64 --runs 2 --migrator mtcopy --lanes 2",
            "bench stall --quick --total 4M --rounds 2 --batch 64K --threads 1",
        ] {
            let json = memferry(&format!("{line} --from {from} --to {to} --json"))
                .gives(0)
                .json();
            for row in rows(&json) {
                assert_eq!(row["nodes"], serde_json::json!({"from": from, "to": to}));
                let moved = match row["runs"].as_u64() {
                    Some(runs) => number(&row["bytes"]) * runs,
                    None => 4 << 20,
                };
                // Of an unaligned range the page before it is checked, too.
                assert!(number(&row["verified_bytes"]) >= moved, "{row}");
            }
        }
    }
    for bench in ["move", "count", "stall"] {
        memferry(&format!("bench {bench} --to 999"))
            .gives(1)
            .says("no memory node 999");
    }
    Ok(())
}
