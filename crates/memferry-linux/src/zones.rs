// SPDX-License-Identifier: MIT OR Apache-2.0
//! /proc/zoneinfo: the zones of each node, with what is free in them and what the kernel keeps.

use std::ops::Range;

/// The zones of a node: each begins with `Node N, zone NAME`.
pub fn zones(zoneinfo: &str, node: u32) -> impl Iterator<Item = &str> {
    zoneinfo.split("Node ").filter(move |zone| {
        let id = zone.split(',').next().unwrap_or_default().trim();
        id.parse() == Ok(node)
    })
}

/// The physical addresses of a node, zone by zone, and those that follow each other as one. There may be holes in them.
pub fn spans(zoneinfo: &str, node: u32) -> Vec<Range<u64>> {
    let page = rustix::param::page_size() as u64;
    let mut spans: Vec<Range<u64>> = Vec::new();
    for zone in zones(zoneinfo, node) {
        let (mut first, mut count) = (0, 0);
        for line in zone.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["spanned", pages] => count = number(pages),
                ["start_pfn:", pfn] => first = number(pfn),
                _ => {}
            }
        }
        let span = first * page..(first + count) * page;
        match spans.last_mut() {
            Some(before) if before.end == span.start => before.end = span.end,
            _ if !span.is_empty() => spans.push(span),
            _ => {}
        }
    }
    spans
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_follow_each_other_are_one_span() {
        let zone = |node, name, first, count| {
            format!(
                "Node {node}, zone {name}\n  pages free     7\n        spanned  {count}\n        present  9\n  start_pfn:           {first}\n"
            )
        };
        let zoneinfo = [
            zone(0, "DMA", 1, 4095),
            zone(0, "DMA32", 4096, 1000),
            zone(0, "Normal", 9000, 50),
            zone(0, "Movable", 0, 0),
            zone(2, "Normal", 10_000, 10),
        ]
        .concat();
        let page = rustix::param::page_size() as u64;
        let of = |node| {
            let spans = spans(&zoneinfo, node).into_iter();
            spans
                .map(|span| [span.start / page, span.end / page])
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0), [[1, 5096], [9000, 9050]]);
        assert_eq!(of(2), [[10_000, 10_010]]);
        assert_eq!(of(1), [[0; 2]; 0]);
    }
}
