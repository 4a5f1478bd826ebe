// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry` with DMA channels: the migrator `dcbm` is set, shown and measured. The channels are those of the
//! tests' engine, `faultdma`, two of them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::Case;
use crate::bench::{bench, columns, rows};
use crate::kernel::{AsBefore, FOLDER, counted, file, is_there};
use crate::program::{memferry, number};

pub const CASES: &[Case] = &[
    ("kernel_set_sets_dcbm", set),
    ("kernel_status_and_topology_show_dma_channels", shown),
    ("bench_move_with_dma_channels", moves),
    ("bench_stall_says_which_rows_lack_dma_channels", stall),
    ("bench_count_tells_what_dma_takes_to_set_up", set_up),
    ("bench_move_beside_a_disk_tells_what_both_lose", beside_disk),
];

const DRIVER: &str = "faultdma";
const CHANNELS: usize = 2;

/// The engine and the migrator, while the value lives. The settings are as before when it goes.
pub struct Engine(Option<AsBefore>);

impl Engine {
    /// Loads the modules, with two channels.
    pub fn begin() -> Result<Engine, String> {
        if !is_there() {
            return Err("a stock kernel".to_owned());
        }
        let engine = Engine(Some(AsBefore::begin()));
        for module in [&[DRIVER, "channels=2"][..], &["dcbm"]] {
            let status = Command::new("modprobe").args(module).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("no module {}", module[0]));
            }
        }
        Ok(engine)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // An active migrator cannot be unloaded.
        let _ = fs::write(format!("{FOLDER}/migrator"), "none");
        for module in ["dcbm", DRIVER] {
            let _ = Command::new("rmmod").arg(module).status();
        }
        self.0.take();
    }
}

fn set() -> Result<(), String> {
    let _engine = Engine::begin()?;
    memferry("kernel set --dcbm-lanes 3 --dry-run")
        .gives(0)
        .says("would set dcbm/lanes: 4 -> 3");
    assert_eq!(file("dcbm/lanes"), "4");
    memferry("kernel set --migrator dcbm --dcbm-lanes 3").gives(0);
    assert_eq!(file("dcbm/lanes"), "3");
    assert!(file("migrator").contains("[dcbm]"));
    memferry("kernel set --dcbm-lanes 64").gives(0);
    assert_eq!(file("dcbm/lanes"), "64");
    memferry("kernel set --max-batch-bytes 8M --dcbm-lanes 65").gives(2);
    let error = fs::write(format!("{FOLDER}/dcbm/lanes"), "65").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(file("dcbm/lanes"), "64");
    Ok(())
}

/// The engine's channels in `memferry topology --json`.
fn channels() -> Vec<Value> {
    let json = memferry("topology --json").gives(0).json();
    let all = json["dma_channels"].as_array().unwrap();
    let ours = all.iter().filter(|channel| channel["driver"] == DRIVER);
    ours.cloned().collect()
}

fn shown() -> Result<(), String> {
    let _engine = Engine::begin()?;
    assert_eq!(channels().len(), CHANNELS);
    assert!(channels().iter().all(|channel| channel["in_use"] == false));
    memferry("kernel set --migrator dcbm").gives(0);
    assert!(channels().iter().all(|channel| channel["in_use"] == true));
    memferry("topology").gives(0).says(DRIVER);
    let text = memferry("kernel status").gives(0).says("[dcbm]");
    let json = memferry("kernel status --json").gives(0).json();
    let lines = json["dcbm"]["channels"].as_array().unwrap();
    assert_eq!(lines.len(), file("dcbm/devices").lines().count());
    let text = text.says("dcbm lanes");
    for line in lines {
        let line = line.as_str().unwrap();
        assert!(line.ends_with(": taken"), "{line}");
        assert!(text.out.contains(line), "{line}: {text:?}");
    }
    assert_eq!(number(&json["quarantined_bytes"]), 0);
    Ok(())
}

fn moves() -> Result<(), String> {
    let _engine = Engine::begin()?;
    let (_, before) = counted("dcbm");
    let json =
        bench("bench move --backend kernel --migrator none,dcbm --total 4M --folio 4K --runs 1");
    let lanes: Vec<u64> = columns(&json)
        .into_iter()
        .filter(|(migrator, _)| migrator == "dcbm")
        .map(|(_, lanes)| lanes)
        .collect();
    assert_eq!(lanes, [1, 2], "{json}");
    assert_eq!(counted("dcbm").1, before, "fallbacks: {json}");
    Ok(())
}

fn stall() -> Result<(), String> {
    let _engine = Engine::begin()?;
    let line = "bench stall --quick --backend kernel --migrator dcbm --lanes 2,4 --batch 2M,4M,8M --total 4M --threads 1 --rounds 1";
    let done = memferry(&format!("{line} --json")).gives(0);
    let json = done.json();
    assert_eq!(columns(&json), [("dcbm".to_owned(), 2)], "{json}");
    let batches = rows(&json).iter().map(|row| number(&row["batch_bytes"]));
    assert_eq!(Vec::from_iter(batches), [2 << 20, 4 << 20], "{json}");
    for row in rows(&json) {
        let share = number(&row["copied_bytes"]) * 100 / number(&row["moved_bytes"]);
        assert!(share >= 90, "{share}%: {row}");
        assert_eq!(row["lanes_used"], 2.0, "{row}");
        let mean = number(&row["mean_batch_bytes"]);
        let most = number(&row["batch_bytes"]);
        assert!(mean > most / 2 && mean <= most, "{row}");
    }
    assert!(
        json["notes"]
            .to_string()
            .contains("Larger batches than the 4M"),
        "{json}"
    );
    let note = "dcbm has 2 DMA channels: there are no rows of more.";
    assert!(json["notes"].to_string().contains(note), "{json}");
    done.says(note);
    Ok(())
}

fn set_up() -> Result<(), String> {
    let _engine = Engine::begin()?;
    let line = "bench count --quick --backend kernel --folio 4K --runs 1";
    memferry(&format!(
        "{line} --migrator dcbm --folios 64 --lanes 1 --anatomy"
    ))
    .gives(0)
    .says("DMA set-up")
    .says("first byte and answer");
    let json = bench(&format!(
        "{line} --migrator none,dcbm --folios 128,512 --lanes 1,2"
    ));
    for row in rows(&json) {
        let round = &row["dma_round"];
        if row["migrator"] == "none" {
            assert!(round.is_null(), "{row}");
            continue;
        }
        let pages = number(&row["folios"]) / number(&row["lanes"]);
        assert_eq!(number(&round["mappings"]), pages, "{row}");
        assert_eq!(number(&round["bytes"]), pages * 4096, "{row}");
        let descriptors = number(&round["descriptors"]);
        assert!((1..=pages).contains(&descriptors), "{row}");
        assert!(
            number(&round["rounds"]) > 0 && number(&round["copy_ns"]) > 0,
            "{row}"
        );
        assert!(
            number(&round["map_ns"]) > 0 && number(&round["submit_ns"]) > 0,
            "{row}"
        );
    }
    Ok(())
}

/// A disk in memory: ext4 on a loop device.
struct Disk(&'static str);

impl Disk {
    fn begin() -> Result<Disk, String> {
        let disk = Disk("/tmp/bench-disk");
        fs::create_dir_all(disk.0).unwrap();
        let image = format!("{}.img", disk.0);
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        for line in [
            format!("mke2fs -F {image}"),
            format!("mount -t ext4 -o loop {image} {}", disk.0),
        ] {
            let words = Vec::from_iter(line.split(' '));
            let status = Command::new(words[0]).args(&words[1..]).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("no {line}"));
            }
        }
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
        let _ = fs::remove_file(format!("{}.img", self.0));
    }
}

fn beside_disk() -> Result<(), String> {
    let _engine = Engine::begin()?;
    let disk = Disk::begin()?;
    let line =
        "bench move --backend kernel --migrator none,dcbm --lanes 2 --total 4M --folio 4K --runs 2";
    memferry(&format!("{line} --disk /tmp"))
        .gives(1)
        .says("tmpfs is no disk");
    let json = bench(&format!("{line} --disk {}", disk.0));
    for row in rows(&json) {
        let beside = &row["beside_disk"];
        assert_eq!(beside["verified_bytes"], row["verified_bytes"], "{row}");
        assert_eq!(beside["runs_gbps"].as_array().unwrap().len(), 2, "{row}");
        assert!(number(&beside["disk_verified_bytes"]) > 0, "{row}");
        assert!(beside["disk_alone_gbps"].as_f64() > Some(0.0), "{row}");
        if row["migrator"] == "dcbm" {
            let share = number(&beside["copied_bytes"]) * 100 / number(&beside["verified_bytes"]);
            assert!(share >= 90, "{share}%: {row}");
        }
    }
    let done = memferry(&format!("{line} --disk {}", disk.0)).gives(0);
    done.says("beside a disk");
    assert_eq!(fs::read_dir(disk.0).unwrap().count(), 1, "lost+found alone");
    Ok(())
}
