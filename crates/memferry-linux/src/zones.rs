// SPDX-License-Identifier: MIT OR Apache-2.0
//! /proc/zoneinfo: the zones of each node, with what is free in them and what the kernel keeps.

/// The zones of a node: each begins with `Node N, zone NAME`.
pub fn zones(zoneinfo: &str, node: u32) -> impl Iterator<Item = &str> {
    zoneinfo.split("Node ").filter(move |zone| {
        let id = zone.split(',').next().unwrap_or_default().trim();
        id.parse() == Ok(node)
    })
}

/// A number among colons, commas and parentheses.
pub fn number(word: &str) -> u64 {
    let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(0)
}

/// Pages of a zone.
#[derive(Default)]
struct Zone {
    free: u64,
    managed: u64,
    /// Its high watermark, and what it keeps for allocations that fit into no other: that is not for memory of programs.
    kept: u64,
}

impl Zone {
    fn of(text: &str) -> Zone {
        let mut zone = Zone::default();
        for line in text.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["pages", "free", count] => zone.free = number(count),
                ["managed", count] => zone.managed = number(count),
                ["high", count] => zone.kept += number(count),
                // The last one is for the zone that memory of programs asks for first.
                ["protection:", .., last] => zone.kept += number(last),
                _ => {}
            }
        }
        zone
    }
}

fn bytes(zoneinfo: &str, node: u32, pages: impl Fn(Zone) -> u64) -> u64 {
    let zones = zones(zoneinfo, node).map(|text| pages(Zone::of(text)));
    zones.sum::<u64>() * rustix::param::page_size() as u64
}

/// What of a node's zones is free above their high watermarks, bytes: with less, kswapd wakes up and makes room.
pub fn above_watermarks(zoneinfo: &str, node: u32) -> u64 {
    bytes(zoneinfo, node, |zone| zone.free.saturating_sub(zone.kept))
}

/// What of a node stays free for its high watermarks, bytes.
pub fn below_watermarks(zoneinfo: &str, node: u32) -> u64 {
    bytes(zoneinfo, node, |zone| zone.kept.min(zone.managed))
}
