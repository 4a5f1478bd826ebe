// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry bench promote` and what `memferry kernel` says of pghot: rows that agree with the kernel, verified bytes, and a kernel that
//! is set as it was before, however the benchmark ends.

use std::fs;
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::Case;
use crate::program::{Done, command, memferry, number, signal};

pub const CASES: &[Case] = &[
    ("bench_promote_of_none_and_numab2", baselines),
    ("bench_promote_fills_the_top_tier", full),
    ("bench_promote_with_pghot", tracked),
    ("bench_promote_with_damon_by_itself", damos),
    ("bench_promote_repeats_published_scenarios", like),
    ("bench_promote_places_what_a_workload_needs_most", workloads),
    ("bench_promote_sets_back_at_an_interrupt", interrupt),
    ("bench_promote_sets_back_when_its_process_is_killed", killed),
    ("bench_promote_refuses_what_it_cannot_do", refusals),
    ("kernel_status_says_what_pghot_does", status),
    ("kernel_set_sets_pghot", set),
    ("kernel_heat_shows_sections", heat),
];

/// What the benchmark may set.
const FILES: [&str; 7] = [
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/proc/sys/vm/pghot_enabled_sources",
    "/proc/sys/vm/pghot_target_nid",
    "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
];

fn settings() -> Vec<Option<String>> {
    FILES
        .iter()
        .map(|file| fs::read_to_string(file).ok())
        .collect()
}

fn has_pghot() -> bool {
    fs::exists(FILES[2]).unwrap()
}

/// Why these cases cannot run here, if they cannot.
pub fn need_tiers() -> Result<(), String> {
    let json = memferry("topology --json").gives(0).json();
    match json["tiers"].as_array().unwrap().len() {
        1 => Err("this machine has one tier of memory".to_owned()),
        _ => Ok(()),
    }
}

fn need_pghot() -> Result<(), String> {
    match has_pghot() {
        true => Ok(()),
        false => Err("this kernel has no pghot".to_owned()),
    }
}

/// Runs the benchmark and checks what all have in common.
fn bench(line: &str) -> Vec<Value> {
    file(line)["rows"].as_array().unwrap().clone()
}

fn file(line: &str) -> Value {
    let before = settings();
    let json = memferry(&format!("bench promote {line} --json"))
        .gives(0)
        .json();
    assert_eq!(settings(), before, "the settings are as before");
    assert_eq!(json["schema"], "memferry-promote/1");
    let rows = json["rows"].as_array().unwrap();
    for row in rows {
        let hot = number(&row["region_bytes"]) * number(&row["regions"]);
        assert_eq!(
            number(&row["verified_bytes"]),
            hot + number(&row["fill_bytes"]) - row["locked_bytes"].as_u64().unwrap_or(0),
            "what is locked stays where it is: {row}"
        );
        for share in ["top_share", "recall"] {
            assert!((0.0..=1.0).contains(&row[share].as_f64().unwrap()), "{row}");
        }
        assert!(row["seconds"].as_f64().unwrap() > 0.0, "{row}");
        let ends = row["timeline"].as_array().unwrap();
        assert!(ends.len() >= 2 && ends[0][1] == 0, "{row}");
    }
    let accesses = |row: &Value| (row["scenario"].clone(), row["accesses"].clone());
    assert!(
        rows.iter().all(|row| accesses(row) == accesses(&rows[0])),
        "{rows:?}"
    );
    json
}

fn of<'a>(rows: &'a [Value], mode: &str) -> &'a Value {
    rows.iter().find(|row| row["mode"] == mode).unwrap()
}

fn baselines() -> Result<(), String> {
    need_tiers()?;
    // NUMA balancing begins after a second. An emulator's rate of accesses is not what it was found to be before.
    let rows = bench("--scenario 1 --mode none,numab2 --size 16M --seconds 60 --runs 1");
    assert_eq!(rows.len(), 2);
    let none = of(&rows, "none");
    for figure in ["promoted_pages", "promoted_hot_pages"] {
        assert_eq!(none[figure], 0, "{none}");
    }
    assert_eq!(none["top_share"], 0.0, "{none}");
    assert!(
        none["hot_in_top_95_s"].is_null() && none["precision"].is_null(),
        "{none}"
    );
    let numab2 = of(&rows, "numab2");
    assert!(number(&numab2["promoted_hot_pages"]) > 0, "{numab2}");
    assert!(number(&numab2["hint_faults"]) > 0, "{numab2}");
    assert!(numab2["top_share"].as_f64().unwrap() > 0.0, "{numab2}");
    assert!(numab2["migration_cpu_s"].is_null() && numab2["tracker_cpu_s"].as_f64().unwrap() > 0.0);
    Ok(())
}

fn full() -> Result<(), String> {
    need_tiers()?;
    let rows = bench("--scenario 2 --mode numab2 --regions 2 --size 8M --seconds 4 --runs 1");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["regions"], &rows[0]["region_bytes"]),
        (&2.into(), &(4 << 20).into())
    );
    assert!(number(&rows[0]["fill_bytes"]) >= 256 << 20, "{}", rows[0]);
    Ok(())
}

/// Where pages are placed, the top tier serves the accesses to them, and the best pages more than random ones.
fn workloads() -> Result<(), String> {
    need_tiers()?;
    let line = "--workload zipf,hotset --size 64M --seconds 2 --runs 1 --mode none,fill,oracle";
    let before = settings();
    let json = memferry(&format!("bench promote {line} --json"))
        .gives(0)
        .json();
    assert_eq!(settings(), before, "the settings are as before");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    let figure = |row: &Value, name: &str| row[name].as_f64().unwrap();
    for rows in rows.chunks(3) {
        for row in rows {
            assert_eq!(row["verified_bytes"], 64 << 20, "{row}");
            assert!(figure(row, "ns_per_op") > 0.0, "{row}");
        }
        let [none, fill, oracle] = ["none", "fill", "oracle"].map(|mode| of(rows, mode));
        assert_eq!(
            (&none["pages_in_top"], &none["top_share"]),
            (&0.into(), &0.0.into())
        );
        assert_eq!(fill["pages_in_top"], 24 << 8, "3/8 of the pages: {fill}");
        assert!((figure(fill, "top_share") - 0.375).abs() < 0.15, "{fill}");
        assert!(figure(oracle, "top_share") > 0.6, "{oracle}");
        for row in [fill, oracle] {
            let (placed, kept) = (number(&row["placed_pages"]), number(&row["kept_pages"]));
            assert!(placed >= 6000 && kept >= placed / 100 * 99, "{row}");
        }
    }
    Ok(())
}

fn like() -> Result<(), String> {
    need_tiers()?;
    let json =
        file("--like pghot-v6-1 --scale 1/1024 --mode none,numab2 --accesses 20000 --runs 1");
    let rows = json["rows"].as_array().unwrap();
    for row in rows {
        let shape = [&row["scenario"], &row["threads"], &row["regions"]].map(number);
        assert_eq!(shape, [1, 64, 1], "{row}");
        assert_eq!(number(&row["region_bytes"]), 8 << 20, "{row}");
    }
    let results = json["like"]["results"].as_array().unwrap();
    let numab2 = results.iter().find(|of| of["case"] == "numab2").unwrap();
    assert_eq!(numab2["pages"]["published"], 2_097_152.0, "{numab2}");
    assert_eq!(
        numab2["pages"]["ours"].as_f64().unwrap(),
        number(&of(rows, "numab2")["promoted_pages"]) as f64
    );
    let rates = json["like"]["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 4, "two published lines and ours: {rates:?}");

    // Half the memory of the usual scale of the lab, so that filling takes most of the time.
    let line = "--like pghot-v6-2 --scale 1/512 --mode none --accesses 2000 --runs 1";
    let row = &file(line)["rows"][0];
    let shape = [&row["scenario"], &row["threads"], &row["regions"]].map(number);
    assert_eq!(shape, [2, 1, 40], "{row}");
    let idle = number(&row["fill_bytes"]) - number(&row["locked_bytes"]);
    assert_eq!(
        (number(&row["region_bytes"]), idle),
        (2 << 20, 3 * 40 * (2 << 20)),
        "three quarters of what can move lie in the top tier: {row}"
    );

    memferry("bench promote --like pghot-v6-2")
        .gives(1)
        .says("cannot run pghot-v6-2 at scale 1")
        .says("it needs 53.4 GiB free")
        .says("120 GiB")
        .says("--scale 1/");
    Ok(())
}

fn tracked() -> Result<(), String> {
    need_tiers()?;
    need_pghot()?;
    let line = "--scenario 1 --mode pghot --source hintfaults,pgtscan --size 16M --runs 1";
    let mut rows = bench(&format!("{line} --seconds 8"));
    // An emulator's rate of accesses is not what it was found to be before: then it is over too soon.
    if rows
        .iter()
        .any(|row| number(&row["promoted_hot_pages"]) == 0)
    {
        rows = bench(&format!("{line} --seconds 60"));
    }
    for row in &rows {
        assert!(
            ["default", "precise"]
                .map(Value::from)
                .contains(&row["record"]),
            "{row}"
        );
        assert!(number(&row["promoted_hot_pages"]) > 0, "{row}");
        assert!(row["precision"].as_f64().unwrap() > 0.5, "{row}");
        assert!(row["migration_cpu_s"].is_number(), "{row}");
    }
    Ok(())
}

/// DAMON's own tiering promotes, counts that, and leaves nothing, however the benchmark ends.
fn damos() -> Result<(), String> {
    need_tiers()?;
    let line = "--scenario 1 --mode none,damos --size 16M --mglru off --runs 1";
    let json = file(&format!("{line} --accesses 1000"));
    let mut notes = json["notes"].as_array().unwrap().iter();
    if let Some(note) = notes.find(|note| note.as_str().unwrap().contains("here: damos")) {
        return Err(note.to_string());
    }
    let rows = bench(&format!("{line} --seconds 60"));
    // The other tuner begins with a byte a second.
    let is_quick = |row: &&Value| row["source"] == "temporal";
    let Some(row) = rows.iter().find(is_quick) else {
        return Err("DAMON of this kernel has one tuner, which begins slowly".to_owned());
    };
    assert!(number(&row["promoted_pages"]) > 0, "{row}");
    assert!(row["tracker_cpu_s"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["migration_cpu_s"].is_null(), "{row}");

    let before = settings();
    let long = "bench promote --scenario 1 --mode damos --mglru off --size 4M --seconds 600 --json";
    let state = "/sys/kernel/mm/damon/admin/kdamonds/1/state";
    let child = begun(long, state, "on");
    signal(child.id(), libc::SIGINT);
    let done = Done::new(long, child.wait_with_output().unwrap());
    done.gives(130).says("stopped before anything was measured");
    assert_eq!(settings(), before);

    let mut child = begun(long, state, "on");
    signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    assert_ne!(settings(), before);
    memferry("kernel set --restore").gives(0);
    assert_eq!(settings(), before);
    Ok(())
}

/// The benchmark, when it has switched something on: the file says so then.
fn begun(line: &str, file: &str, text: &str) -> std::process::Child {
    let mut child = command(line).spawn().unwrap();
    while fs::read_to_string(file).unwrap_or_default().trim() != text {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it began"
        );
        std::thread::yield_now();
    }
    child
}

const LONG: &str =
    "bench promote --scenario 1 --mode numab2 --size 4M --seconds 600 --runs 2 --json";

fn interrupt() -> Result<(), String> {
    need_tiers()?;
    let before = settings();
    let child = begun(LONG, FILES[0], "2");
    signal(child.id(), libc::SIGINT);
    let done = Done::new(LONG, child.wait_with_output().unwrap());
    done.gives(130).says("stopped before anything was measured");
    assert_eq!(settings(), before);
    Ok(())
}

/// The process of the run of this benchmark, which beside it has some that only wake.
fn run_of(parent: u32) -> u32 {
    let is_run = |pid: &u32| {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let stat = read("stat");
        // Behind the name, in brackets: state and parent.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let of = behind.split_whitespace().nth(1);
        of == Some(parent.to_string().as_str()) && !read("cmdline").contains("wake-on-")
    };
    let names = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut pids = names.filter_map(|name| name.to_str()?.parse().ok());
    pids.find(is_run).unwrap()
}

fn killed() -> Result<(), String> {
    need_tiers()?;
    let before = settings();
    let child = begun(LONG, FILES[0], "2");
    let run = run_of(child.id());
    signal(run, libc::SIGKILL);
    let done = Done::new(LONG, child.wait_with_output().unwrap());
    done.gives(1)
        .says("ended early")
        .says("signal: 9")
        .says("smaller --size");
    assert_eq!(settings(), before);
    Ok(())
}

fn refusals() -> Result<(), String> {
    if need_tiers().is_err() {
        memferry("bench promote --quick")
            .gives(1)
            .says("one tier")
            .says("try: ");
        return Ok(());
    }
    let before = settings();
    memferry("bench promote --size 1000G")
        .gives(1)
        .says("no memory for scenario 1")
        .says("smaller --size");
    let line = "bench promote --quick --mode none";
    let output = command(line).uid(65534).gid(65534).output().unwrap();
    Done::new(line, output)
        .gives(1)
        .says("as this user")
        .says("root");
    if !has_pghot() {
        memferry("bench promote --mode pghot")
            .gives(1)
            .says("CONFIG_PGHOT");
        memferry("bench promote --scenario 1 --size 2M --mode none,pghot --accesses 1000 --runs 1")
            .gives(0)
            .says("Not available here: pghot hintfaults, pghot pgtscan");
    }
    assert_eq!(settings(), before);
    Ok(())
}

fn status() -> Result<(), String> {
    let json = memferry("kernel status --json").gives(0).json();
    assert_eq!(json["pghot"]["available"], has_pghot(), "{json}");
    let text = memferry("kernel status").gives(0);
    if !has_pghot() {
        text.says("no hot-page tracking").says("CONFIG_PGHOT");
        return Ok(());
    }
    text.says("hot-page tracking").says("enabled_sources");
    let window = fs::read_to_string("/proc/sys/vm/pghot_promote_freq_window_ms").unwrap();
    assert_eq!(json["pghot"]["window_ms"].to_string(), window.trim());
    let told = fs::read_to_string("/sys/kernel/debug/pghot/status").unwrap();
    let format = json["pghot"]["format"].as_str().unwrap();
    assert!(told.contains(&format!("format {format}\n")), "{told}");
    Ok(())
}

fn set() -> Result<(), String> {
    if !has_pghot() {
        memferry("kernel set --pghot-sources pgtscan")
            .gives(1)
            .says("nothing to set")
            .says("CONFIG_PGHOT");
        return Ok(());
    }
    let before = settings();
    let sources = || fs::read_to_string(FILES[2]).unwrap().trim().to_owned();
    memferry("kernel set --pghot-sources hintfaults,pgtscan").gives(0);
    assert_eq!(sources(), "5");
    // No node has this number: the kernel refuses it, and the sources are on again.
    memferry("kernel set --pghot-sources none --pghot-target 1000").gives(1);
    assert_eq!(sources(), "5");
    memferry("kernel set --pghot-sources none").gives(0);
    assert_eq!(sources(), "0");
    fs::write(FILES[2], before[2].as_deref().unwrap_or("0")).unwrap();
    assert_eq!(settings(), before);
    Ok(())
}

fn heat() -> Result<(), String> {
    if !has_pghot() {
        memferry("kernel heat")
            .gives(1)
            .says("CONFIG_PGHOT")
            .says("try: ");
        return Ok(());
    }
    let before = fs::read_to_string(FILES[2]).unwrap();
    memferry("kernel set --pghot-sources pgtscan").gives(0);
    let json = memferry("kernel heat --json").gives(0).json();
    let shown = memferry("kernel heat").gives(0);
    fs::write(FILES[2], before).unwrap();
    assert_eq!(json["schema"], "memferry-heat/1");
    let sections = json["sections"].as_array().unwrap();
    assert!(!sections.is_empty(), "{json}");
    for section in sections {
        assert!(
            number(&section["hot"]) <= number(&section["known"]),
            "{section}"
        );
        assert!(number(&section["known"]) <= 32768, "{section}");
    }
    shown.says("with records");
    Ok(())
}
