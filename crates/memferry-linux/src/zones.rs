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

/// What of a node's zones is free above their high watermarks, bytes: with less, kswapd wakes up and makes room. What a zone
/// keeps for allocations that fit into no other is not for memory of programs.
pub fn above_watermarks(zoneinfo: &str, node: u32) -> u64 {
    let pages = |zone: &str| -> u64 {
        let (mut free, mut kept) = (0, 0);
        for line in zone.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["pages", "free", count] => free = number(count),
                ["high", count] => kept += number(count),
                // The last one is for the zone that memory of programs asks for first.
                ["protection:", .., last] => kept += number(last),
                _ => {}
            }
        }
        u64::saturating_sub(free, kept)
    };
    zones(zoneinfo, node).map(pages).sum::<u64>() * rustix::param::page_size() as u64
}
