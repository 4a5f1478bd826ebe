// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry` with DMA channels: the migrator `dcbm` is set, shown and measured. The channels are those of the
//! tests' engine, `faultdma`, two of them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::Case;
use crate::bench::{bench, columns};
use crate::kernel::{AsBefore, FOLDER, file, is_there};
use crate::program::{memferry, number};

pub const CASES: &[Case] = &[
    ("kernel_set_sets_dcbm", set),
    ("kernel_set_refuses_wrong_values_of_dcbm", wrong_values),
    ("kernel_status_and_topology_show_dma_channels", shown),
    ("bench_move_with_dma_channels", moves),
];

const DRIVER: &str = "faultdma";
const CHANNELS: usize = 2;

/// The engine and the migrator, while the value lives. The settings are as before when it goes.
struct Engine(Option<AsBefore>);

impl Engine {
    fn begin() -> Result<Engine, String> {
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

/// The settings of dcbm, as the kernel says them.
fn settings() -> [String; 3] {
    ["lanes", "timeout_ms", "poll_below_bytes"].map(|name| file(&format!("dcbm/{name}")))
}

fn set() -> Result<(), String> {
    let _engine = Engine::begin()?;
    memferry("kernel set --dcbm-lanes 3 --timeout-ms 60000 --poll-below-bytes 64K --dry-run")
        .gives(0)
        .says("would set");
    assert_eq!(settings(), ["4", "1000", "524288"]);
    memferry("kernel set --migrator dcbm --dcbm-lanes 3 --timeout-ms 60000 --poll-below-bytes 64K")
        .gives(0);
    assert_eq!(settings(), ["3", "60000", "65536"]);
    assert!(file("migrator").contains("[dcbm]"));
    memferry("kernel set --dcbm-lanes 64 --timeout-ms 1 --poll-below-bytes 0").gives(0);
    assert_eq!(settings(), ["64", "1", "0"]);
    Ok(())
}

fn wrong_values() -> Result<(), String> {
    let _engine = Engine::begin()?;
    let before = settings();
    for (line, status) in [
        ("--dcbm-lanes 0 --timeout-ms 500", 2),
        ("--dcbm-lanes 65 --timeout-ms 500", 2),
        ("--timeout-ms 0 --dcbm-lanes 2", 2),
        ("--timeout-ms 60001 --dcbm-lanes 2", 2),
        ("--poll-below-bytes 65M --dcbm-lanes 2", 1),
        ("--poll-below-bytes much --dcbm-lanes 2", 2),
    ] {
        memferry(&format!("kernel set {line}")).gives(status);
        assert_eq!(settings(), before, "{line}");
    }
    for (name, value) in [
        ("lanes", "65"),
        ("timeout_ms", "60001"),
        ("poll_below_bytes", "67108865"),
        ("devices", "again"),
    ] {
        let error = fs::write(format!("{FOLDER}/dcbm/{name}"), value).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{name} {value}");
    }
    assert_eq!(settings(), before);
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
    let text = text.says("dcbm poll_below_bytes");
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
    // A limit for what hangs: an emulated channel can be late.
    memferry("kernel set --timeout-ms 60000 --reset-stats").gives(0);
    let json =
        bench("bench move --backend kernel --migrator none,dcbm --total 4M --folio 4K --runs 1");
    let lanes: Vec<u64> = columns(&json)
        .into_iter()
        .filter(|(migrator, _)| migrator == "dcbm")
        .map(|(_, lanes)| lanes)
        .collect();
    assert_eq!(lanes, [1, 2], "{json}");
    let json = memferry("kernel status --json").gives(0).json();
    let statistics = json["statistics"].as_array().unwrap();
    let ours = statistics.iter().filter(|row| row["migrator"] == "dcbm");
    let (copied, fallbacks) = ours.fold((0, 0), |(copied, fallbacks), row| {
        (
            copied + number(&row["bytes"]),
            fallbacks + number(&row["fallbacks"]),
        )
    });
    // With one channel and with two.
    assert!(copied >= 8 << 20, "{json}");
    assert_eq!(fallbacks, 0, "{json}");
    Ok(())
}
