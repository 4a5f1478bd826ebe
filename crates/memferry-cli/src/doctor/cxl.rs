// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volatile CXL memory that the kernel does not use: devices that no region maps, and regions that are disabled.
//!
//! A region lies in a window, which is a decoder of the root and interleaves host bridges; a device is below one of them.
//! Documentation/ABI/testing/sysfs-bus-cxl has the files.

use super::description::{Finding, note, wrong};
use super::machine::Machine;

/// The folder of devices, regions, decoders and ports.
pub const DEVICES: &str = "sys/bus/cxl/devices";

/// Findings of regions, then of devices.
pub fn check(machine: &Machine) -> Vec<Finding> {
    let regions = machine.entries(DEVICES, "region");
    let mut found: Vec<Finding> = (regions.iter())
        .filter_map(|region| disabled(machine, region))
        .collect();
    found.extend(unmapped(machine, &regions));
    found
}

fn has_driver(machine: &Machine, device: &str) -> bool {
    machine
        .link(&format!("{DEVICES}/{device}/driver"))
        .is_some()
}

/// The devices of a region, by its targets: a target is an endpoint's decoder `decoderN.M`, and the `uport` of `endpointN` the device.
/// Nothing stands for a target that is not set yet.
fn devices_of(machine: &Machine, region: &str) -> Vec<Option<String>> {
    let folder = format!("{DEVICES}/{region}");
    let targets = machine.entries(&folder, "target").into_iter();
    let device = |target: String| {
        let decoder = machine.text(&format!("{folder}/{target}"))?;
        let port = decoder.strip_prefix("decoder")?.split('.').next()?;
        machine.link(&format!("{DEVICES}/endpoint{port}/uport"))
    };
    targets.map(device).collect()
}

/// A region of memory that all its devices are set for, and that has no driver.
fn disabled(machine: &Machine, region: &str) -> Option<Finding> {
    let devices: Option<Vec<String>> = devices_of(machine, region).into_iter().collect();
    let devices = devices.filter(|devices| !devices.is_empty())?;
    let folder = format!("{DEVICES}/{region}");
    let is_persistent = machine.text(&format!("{folder}/mode")).as_deref() == Some("pmem");
    if is_persistent || has_driver(machine, region) {
        return None;
    }
    let mut mend = format!("cxl enable-region {region}");
    let commit = format!("{folder}/commit");
    if machine.number(&commit) == Some(0) {
        // The driver refuses a region whose decoders are not committed.
        mend = format!("echo 1 > /{commit} && {mend}");
    }
    let what = format!("the CXL region {region} is disabled");
    let why = format!("the kernel cannot use the memory of {}", devices.join(", "));
    Some(wrong(what, why).mend(mend))
}

/// Addresses that the firmware keeps for CXL memory.
struct Window {
    decoder: String,
    /// How many targets it interleaves.
    ways: usize,
    /// The host bridges in the order of the interleave, by the names of their folders; `None` if the kernel does not tell.
    bridges: Option<Vec<String>>,
}

impl Window {
    fn read(machine: &Machine, decoder: String) -> Option<Self> {
        let folder = format!("{DEVICES}/{decoder}");
        // Only the root's decoders have the file.
        if machine.number(&format!("{folder}/cap_ram")) != Some(1) {
            return None;
        }
        let root = decoder.strip_prefix("decoder")?.split('.').next()?;
        let targets = machine.text(&format!("{folder}/target_list"));
        let targets = targets.unwrap_or_default();
        let targets = targets.split(',').filter(|target| !target.is_empty());
        let bridges = targets
            .map(|target| machine.link(&format!("{DEVICES}/root{root}/dport{target}")))
            .collect::<Option<Vec<String>>>()
            .filter(|bridges| !bridges.is_empty());
        let ways = machine.number(&format!("{folder}/interleave_ways"));
        Some(Self {
            ways: match &bridges {
                Some(bridges) => bridges.len(),
                None => ways.map_or(1, |ways| ways.max(1) as usize),
            },
            bridges,
            decoder,
        })
    }

    fn leads_to(&self, machine: &Machine, device: &str) -> bool {
        let is_below = |bridge: &String| machine.is_below(&format!("{DEVICES}/{device}"), bridge);
        (self.bridges.as_ref()).is_none_or(|bridges| bridges.iter().any(is_below))
    }

    /// One of the devices for each target, in the order of the interleave, in which a region has to name them.
    fn take(&self, machine: &Machine, devices: &[String]) -> Option<Vec<String>> {
        let Some(bridges) = &self.bridges else {
            return devices.get(..self.ways).map(<[String]>::to_vec);
        };
        let mut taken = Vec::new();
        for bridge in bridges {
            let device = devices.iter().find(|device| {
                !taken.contains(*device) && machine.is_below(&format!("{DEVICES}/{device}"), bridge)
            })?;
            taken.push(device.clone());
        }
        Some(taken)
    }

    /// Whether the kernel has memory there from the firmware's map: it needs no region. `None` if this user may not see addresses.
    fn is_system_ram(&self, machine: &Machine) -> Option<bool> {
        let file = |name: &str| format!("{DEVICES}/{}/{name}", self.decoder);
        let iomem = machine.text("proc/iomem").unwrap_or_default();
        if machine.is_hidden(&file("start")) || iomem.starts_with("00000000-00000000 ") {
            return None;
        }
        let (Some(start), Some(size)) = (machine.hex(&file("start")), machine.hex(&file("size")))
        else {
            return Some(false);
        };
        let overlaps = |line: &str| {
            // Memory of kmem is "System RAM (kmem)".
            let range = line.trim().strip_suffix(" : System RAM")?;
            let (first, last) = range.split_once('-')?;
            let [first, last] = [first, last].map(|of| u64::from_str_radix(of, 16).ok());
            Some(first? < start.saturating_add(size) && last? >= start)
        };
        Some(iomem.lines().any(|line| overlaps(line) == Some(true)))
    }
}

fn unmapped(machine: &Machine, regions: &[String]) -> Vec<Finding> {
    let mapped = regions
        .iter()
        .flat_map(|region| devices_of(machine, region));
    let mapped: Vec<String> = mapped.flatten().collect();
    let is_unmapped = |device: &String| {
        let bytes = machine.hex(&format!("{DEVICES}/{device}/ram/size"));
        bytes.is_some_and(|bytes| bytes > 0) && !mapped.contains(device)
    };
    let mut devices = machine.entries(DEVICES, "mem");
    devices.retain(is_unmapped);
    let decoders = machine.entries(DEVICES, "decoder").into_iter();
    let mut windows: Vec<Window> = decoders
        .filter_map(|decoder| Window::read(machine, decoder))
        .collect();
    windows.sort_by_key(|window| window.ways);
    let leading = |windows: &[Window], device: &str| {
        let ram = (windows
            .iter()
            .filter(|window| window.leads_to(machine, device)))
        .map(|window| window.is_system_ram(machine));
        ram.collect::<Vec<_>>()
    };
    devices.retain(|device| !leading(&windows, device).contains(&Some(true)));
    if devices
        .iter()
        .any(|device| leading(&windows, device).contains(&None))
    {
        let what = format!("no region maps {}", named(&devices));
        let why = "whether the kernel has their memory without one is not known: only root may see its addresses";
        return vec![note(what, why).mend("sudo memferry doctor")];
    }
    let mut found = Vec::new();
    for window in &windows {
        while let Some(taken) = window.take(machine, &devices) {
            devices.retain(|device| !taken.contains(device));
            found.push(without_region(machine, window, &taken));
        }
    }
    found.extend(devices.iter().map(|device| {
        let what = format!("no region maps {}", named(std::slice::from_ref(device)));
        let window = (windows.iter()).find(|window| window.leads_to(machine, device));
        let why = match window {
            Some(Window { decoder, ways, .. }) => format!(
                "the window {decoder} interleaves {ways} devices below different host bridges, and others of them are missing or in use"
            ),
            None => "its memory has no addresses: the firmware made no window for it".to_owned(),
        };
        wrong(what, why)
    }));
    found
}

fn without_region(machine: &Machine, window: &Window, devices: &[String]) -> Finding {
    let off: Vec<&str> = (devices.iter().map(String::as_str))
        .filter(|device| !has_driver(machine, device))
        .collect();
    let off = off.join(" ");
    let names = devices.join(" ");
    let ways = match devices.len() {
        1 => String::new(),
        ways => format!("-w {ways} "),
    };
    let mut mend = format!(
        "cxl create-region -t ram -d {} {ways}-m {names}",
        window.decoder
    );
    let mut why = "the kernel cannot use its memory".to_owned();
    if !off.is_empty() {
        why += &format!("; no driver has {off}");
        mend = format!("cxl enable-memdev {off} && {mend}");
    }
    wrong(format!("no region maps {}", named(devices)), why).mend(mend)
}

fn named(devices: &[String]) -> String {
    let word = if devices.len() == 1 {
        "device"
    } else {
        "devices"
    };
    format!("the CXL {word} {}", devices.join(" and "))
}
