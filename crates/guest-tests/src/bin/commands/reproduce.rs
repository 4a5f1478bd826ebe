// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry bench reproduce` and `bench compaction`: every published table runs to its end at a small scale, its rows are of what
//! they name, and the kernel is set as before.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::Case;
use crate::bench::{Enabled, THP};
use crate::dcbm::Engine;
use crate::program::{memferry, number};
use crate::promote::need_tiers;

pub const CASES: &[Case] = &[
    ("bench_compaction_compacts_and_loses_no_byte", compaction),
    ("every_published_table_is_repeated", all),
];

/// What the experiments of the kernel's mtcopy may set.
const PARAMETERS: &str = "/sys/module/mtcopy/parameters";

fn parameters() -> Vec<String> {
    let read = |name| fs::read_to_string(format!("{PARAMETERS}/{name}")).unwrap_or_default();
    ["fill", "high_priority", "idle_only"].map(read).to_vec()
}

/// Lets mappings have folios of every size that this kernel knows, while the value lives.
fn all_folios() -> Enabled {
    let folders = fs::read_dir(THP).unwrap();
    let files = folders.map(|entry| entry.unwrap().path().join("enabled"));
    Enabled::set(files.filter(|file| file.is_file()), "madvise")
}

/// Loads mtcopy, which stays, and lets it take CPUs that are not idle: an emulated one is seldom.
fn load_mtcopy() -> Result<(), String> {
    let status = Command::new("modprobe").arg("mtcopy").status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("no module mtcopy".to_owned());
    }
    fs::write(format!("{PARAMETERS}/idle_only"), "N").map_err(|error| error.to_string())
}

fn compaction() -> Result<(), String> {
    load_mtcopy()?;
    let proactiveness = || fs::read_to_string("/proc/sys/vm/compaction_proactiveness").unwrap();
    let before = proactiveness();
    let json = memferry("bench compaction --runs 1 --json").gives(0).json();
    assert!(before != "0\n" && proactiveness() == before, "{before}");
    assert_eq!(
        (&json["bench"], &json["complete"]),
        (&"compaction".into(), &true.into())
    );
    let rows = json["rows"].as_array().unwrap();
    let of = |migrator: &str, load: &str| {
        let mut found = rows
            .iter()
            .filter(|row| row["migrator"] == migrator && row["load"] == load);
        found.next()
    };
    for load in ["idle", "hog"] {
        let none = of("none", load).unwrap();
        assert!(none["migrator_pages"].is_null(), "{none}");
        assert_eq!(none["hog_iterations"].is_null(), load == "idle", "{none}");
    }
    for row in rows {
        let bytes = number(&row["bytes"]);
        assert!(bytes > 256 << 20, "the node is free: {row}");
        assert_eq!(number(&row["verified_bytes"]), bytes / 2, "{row}");
        // Half of the pages were kept, and half of these fill the holes of the others' blocks; CPUs keep some free ones.
        assert!(number(&row["pages_migrated"]) > bytes / 4096 / 8, "{row}");
    }
    larger_batches()?;
    let mtcopy = of("mtcopy", "idle").unwrap();
    by_it(mtcopy);
    Ok(())
}

/// The migrator copied what is of the benchmark. Linux migrates page cache of the guest's files as well, which it is not offered.
fn by_it(row: &Value) {
    let (by, own) = (number(&row["migrator_pages"]), number(&row["own_pages"]));
    assert!(own > 0 && by as f64 / own as f64 > 0.9, "{row}");
}

/// With them and without, all is copied by the migrator.
fn larger_batches() -> Result<(), String> {
    let gather = "/sys/module/migrator/parameters/gather";
    let line =
        "bench compaction --runs 1 --migrator none,kernel --load idle --gather on,off --json";
    let json = memferry(line).gives(0).json();
    assert_eq!(fs::read_to_string(gather).unwrap().trim(), "Y");
    let [none, on, off] = &json["rows"].as_array().unwrap()[..] else {
        panic!("{json}");
    };
    assert!(
        none["migrator"] == "none" && none["gather"].is_null(),
        "{none}"
    );
    for (row, gather) in [(on, true), (off, false)] {
        assert!(
            row["migrator"] == "kernel" && row["gather"] == gather,
            "{row}"
        );
        by_it(row);
        assert_eq!(
            number(&row["verified_bytes"]),
            number(&row["bytes"]) / 2,
            "{row}"
        );
    }
    let mean = |row: &Value| number(&row["mean_batch_bytes"]);
    assert!(mean(on) > mean(off), "{on} {off}");
    Ok(())
}

fn all() -> Result<(), String> {
    need_tiers()?;
    load_mtcopy()?;
    let _engine = Engine::begin()?;
    let _folios = all_folios();
    let before = parameters();
    let list = memferry("bench reproduce --list --json").gives(0).json();
    let names: Vec<&str> = list["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[0].as_str().unwrap())
        .collect();
    assert!(names.len() >= 24, "{names:?}");
    // The copy's part is told of both.
    for (name, backend) in names
        .into_iter()
        .map(|name| (name, "kernel"))
        .chain([("garg-v3-share", "user")])
    {
        println!("# {name}, {backend}");
        // The published sizes of promotion and compaction are tens of GiB.
        let options = match name {
            "garg-v3-share" if backend == "user" => "--backend user --scale 1/128",
            "rao-v6-1" | "rao-v6-rate" => "--scale 1/2048 --seconds 8",
            "rao-v6-2" => "--scale 1/512 --seconds 8",
            "garg-v4-compaction" => "--scale 1/64",
            _ => "--scale 1/128",
        };
        let done = memferry(&format!("bench reproduce {name} {options} --runs 1 --json")).gives(0);
        let json = done.json();
        keep(&format!("reproduce-{name}-{backend}.json"), &done.out);
        assert_eq!(json["complete"], true, "{name}: {json}");
        assert_eq!(json["reproduces"]["name"], name);
        for setting in SETTINGS {
            assert!(
                json["settings"][setting].is_string(),
                "{name}: {setting}: {}",
                json["settings"]
            );
        }
        if backend == "kernel" && rows_name(&json, "dcbm") {
            assert!(
                json["settings"]["dcbm_channels"].is_string(),
                "{name}: {}",
                json["settings"]
            );
        }
        let rows = json["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{name}");
        for row in rows {
            let verified = number(&row["verified_bytes"]);
            assert!(verified > 0, "{name}: {row}");
            if let Some(runs) = row["runs"].as_u64() {
                let kept = if json["bench"] == "compaction" { 2 } else { 1 };
                assert_eq!(
                    verified,
                    number(&row["bytes"]) / kept * runs,
                    "{name}: {row}"
                );
            }
        }
        match json["bench"].as_str().unwrap() {
            "move" | "count" => throughput(name, &json),
            "compaction" => {
                let cells = json["reproduces"]["compactions"].as_array().unwrap();
                let by_dcbm = cells.iter().filter(|cell| cell["mode"] == "dcbm");
                let all = by_dcbm.filter(|cell| !cell["ours"].is_null()).count();
                assert_eq!(all, 2, "idle and busy: {json}");
                (rows.iter().filter(|row| row["migrator"] == "dcbm")).for_each(by_it);
            }
            _ => assert!(
                json["like"]["results"].as_array().unwrap().len() > 2,
                "{json}"
            ),
        }
        assert_eq!(parameters(), before, "{name} sets parameters back");
    }
    Ok(())
}

fn throughput(name: &str, json: &Value) {
    for row in json["rows"].as_array().unwrap() {
        let plain = row["migrator"] == "none" || row["backend"] == "user";
        let folios = row["folios"]
            .as_u64()
            .unwrap_or(number(&row["bytes"]) / number(&row["folio_bytes"]));
        // Single calls of less than a huge page are too small for a migrator.
        if plain || folios * number(&row["folio_bytes"]) < 2 << 20 {
            continue;
        }
        let share = number(&row["copied_bytes"]) as f64
            / (number(&row["bytes"]) * number(&row["runs"])) as f64;
        assert!(share > 0.9, "{name}: {row}");
        // The plain copy of a batch has no lanes.
        if row["migrator"] != "kernel" {
            let used = row["lanes_used"]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: lanes: {row}"));
            assert!(
                used > 0.0 && used <= number(&row["lanes"]) as f64,
                "{name}: {row}"
            );
            let (helped, mtcopy) = (number(&row["helpers_ns"]) > 0, row["migrator"] == "mtcopy");
            assert!(
                mtcopy && (helped || used <= 1.0) || !mtcopy && !helped,
                "{name}: {row}"
            );
        }
        assert_eq!(
            row["busy_lost"].is_null(),
            !name.contains("busy"),
            "{name}: {row}"
        );
        assert!(row["cpu_ticks"].is_object(), "{name}: {row}");
    }
    let ours = |cell: &&Value| !cell["ours"].is_null();
    let repeated = &json["reproduces"];
    if let Some(cells) = repeated["shares"].as_array() {
        shares(cells);
    }
    let found = match repeated["cells"].as_array() {
        Some(cells) => cells.iter().filter(ours).count(),
        None => {
            let shares = repeated["shares"].as_array().unwrap().iter();
            shares
                .filter(|cell| !cell["ours_percent"].is_null())
                .count()
        }
    };
    assert!(found > 0, "{name}: {repeated}");
}

/// What every file must say of the machine that measured.
const SETTINGS: [&str; 12] = [
    "usable_cpus",
    "proc/sys/kernel/numa_balancing",
    "sys/kernel/mm/migration/dcbm/lanes",
    "sys/kernel/mm/migration/max_batch_bytes",
    "sys/kernel/mm/migration/migrator",
    "sys/kernel/mm/migration/mtcopy/lanes",
    "sys/kernel/mm/migration/reasons",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/module/mtcopy/parameters/fill",
    "sys/module/mtcopy/parameters/high_priority",
    "sys/module/mtcopy/parameters/idle_only",
    "sys/module/mtcopy/parameters/nontemporal",
];

/// Whether a row of a throughput bench is of this migrator.
fn rows_name(json: &Value, migrator: &str) -> bool {
    let throughput = ["move", "count"].contains(&json["bench"].as_str().unwrap());
    let rows = json["rows"].as_array().unwrap();
    throughput && rows.iter().any(|row| row["migrator"] == migrator)
}

/// Leaves a file where the lab collects them.
fn keep(name: &str, text: &str) {
    if let Some(folder) = std::env::var_os("RESULTS") {
        fs::write(PathBuf::from(folder).join(name), text).unwrap();
    }
}

/// Of one lane the steps are told, and of more lanes what they gave.
fn shares(cells: &[Value]) {
    let of = |folio: u64, folios: u64| {
        let is_it = |cell: &&Value| {
            number(&cell["folio_bytes"]) == folio && number(&cell["folios"]) == folios
        };
        cells.iter().find(is_it).unwrap()
    };
    for cell in [of(4096, 512), of(2 << 20, 1)] {
        let share = cell["ours_percent"].as_f64();
        assert!(share > Some(0.0) && share < Some(100.0), "{cell}");
        let steps = cell["steps"].as_array().unwrap();
        assert!(!steps.is_empty(), "{cell}");
        for of in steps {
            let parts = ["unmap", "flush", "copy", "remap", "plain", "rest"];
            let sum: f64 = parts.iter().filter_map(|part| of[part].as_f64()).sum();
            assert!((sum - 100.0).abs() < 0.1, "{of}");
            assert_eq!(of["migrator"] == "none", !of["plain"].is_null(), "{of}");
        }
        let lanes = cell["lanes"].as_array().unwrap();
        assert!(
            lanes
                .iter()
                .any(|of| of["migrator"] == "mtcopy" && of["lanes"] == 2),
            "{cell}"
        );
        for of in lanes {
            let most = number(&of["lanes"]) as f64;
            assert!(
                (1.0..=most).contains(&of["predicted"].as_f64().unwrap()),
                "{of}"
            );
            assert!(of["measured"].as_f64() > Some(0.0), "{of}");
        }
    }
}
