// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine under test has, read without the library wherever the library is what is tested.

use std::fs;

/// Nodes with memory, ascending.
pub fn nodes() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    memferry_linux::topology::parse::id_list(&text).unwrap_or_default()
}

/// A node with memory and no CPU, if there is one.
pub fn node_without_cpu() -> Option<u32> {
    nodes().into_iter().find(|node| {
        let file = format!("/sys/devices/system/node/node{node}/cpulist");
        fs::read_to_string(file).is_ok_and(|cpus| cpus.trim().is_empty())
    })
}

/// The node to fill, or to take as the odd one out: the last.
pub fn last_node() -> u32 {
    *nodes().last().unwrap()
}

/// Two hugetlb pages on each of the first two nodes.
pub fn reserve_hugetlb() {
    for node in [0, 1] {
        let file =
            format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
        fs::write(file, "2").unwrap();
    }
}

/// Keeps the kernel from moving pages by itself while it lives, where it does.
pub struct NoBalancing(Option<String>);

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

impl NoBalancing {
    pub fn begin() -> NoBalancing {
        let before = fs::read_to_string(BALANCING).ok();
        if before.is_some() {
            fs::write(BALANCING, "0").expect("this needs root");
        }
        NoBalancing(before)
    }
}

impl Drop for NoBalancing {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(BALANCING, before);
        }
    }
}

/// The kernel's release.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// By the kernel's version, not by the probe that is under test.
pub fn has_uffdio_move() -> bool {
    version() >= (6, 8)
}

/// PAGEMAP_SCAN tells THPs from base pages.
pub fn has_pagemap_scan() -> bool {
    version() >= (6, 7)
}

/// What the kernel says of a page that never was: -EFAULT before Linux 6.12.
pub fn hole() -> i32 {
    if version() >= (6, 12) {
        -libc::ENOENT
    } else {
        -libc::EFAULT
    }
}

fn version() -> (u32, u32) {
    let release = release();
    let mut parts = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Pages that the kernel has migrated since it booted; moves by userfaultfd are none.
pub fn migrated_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("pgmigrate_success "));
    count.unwrap().parse().unwrap()
}
