// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bounded run of the fuzz targets: valid inputs, changed at random, always in the same way.
//!
//! `fuzz/` has the same targets for cargo-fuzz, which is guided by coverage and has no end.

use memferry_replay::event::{Clock, Event, Trace};
use memferry_replay::trace::{Header, write};

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

/// Inputs of each target.
const INPUTS: u64 = 8_000;

/// xorshift64* (Vigna, 2016).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Changes some places: bits, bytes, numbers that matter, parts cut out, doubled or taken from elsewhere.
fn mutate(bytes: &mut Vec<u8>, words: &[&[u8]], chance: &mut Chance) {
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        let end = (at + 1 + chance.below(24)).min(bytes.len());
        match chance.below(8) {
            _ if bytes.is_empty() => bytes.push(chance.next() as u8),
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = chance.next() as u8,
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'\n', b'-'][chance.below(8)],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                let to = chance.below(bytes.len());
                bytes.splice(to..to, part);
            }
            5 => bytes.truncate(at),
            6 => bytes[at..end].fill(chance.next() as u8),
            _ => {
                let word = words[chance.below(words.len())];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
}

fn run(target: fn(&[u8]), seeds: &[Vec<u8>], words: &[&[u8]]) {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
    }
    for _ in 0..INPUTS {
        let mut bytes = seeds[chance.below(seeds.len())].clone();
        mutate(&mut bytes, words, &mut chance);
        target(&bytes);
    }
}

fn files() -> Vec<Vec<u8>> {
    let sizes = [(0, 1), (1, 1), (40, 7), (500, 60)];
    let trace = |(events, pages): (u64, u64)| Trace {
        name: "fuzz".to_owned(),
        clock: Clock::Accesses,
        page_bytes: 4096,
        sampling: 1,
        pages: (0..pages).map(|page| page * page).collect(),
        events: (0..events)
            .map(|at| Event {
                time: at / 3,
                page: (at * 31 % pages) as u32,
                reads: 1 + (at % 5) as u32 * 100,
                writes: (at % 2) as u32,
            })
            .collect(),
    };
    let header = Header::new("", "fuzz", Clock::Accesses);
    let file = |size| write(Vec::new(), &header, &trace(size)).expect("write");
    sizes.into_iter().map(file).collect()
}

const NUMBERS: [&[u8]; 4] = [
    &[0xff; 10],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x80, 0x04],
    b"ENDS",
];

#[test]
fn no_file_breaks_the_reader() {
    run(fuzz::file, &files(), &NUMBERS);
}

#[test]
fn no_file_with_right_sums_breaks_the_reader() {
    run(fuzz::file_with_sums, &files(), &NUMBERS);
}

const WORDS: [&[u8]; 10] = [
    b"18446744073709551615",
    b"ffffffffffffffff",
    b"99999999999.999999: ",
    b"\n",
    b"0-",
    b": ",
    b",4294967295",
    b" S ",
    b"|OP STORE",
    b"1.000000:",
];

fn text(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[test]
fn no_text_of_lackey_breaks_its_parser() {
    let seeds = [text(
        "==1== Lackey\nI  0401ab70,3\n S 1fff000758,8\n L 04034590,8\n M 0421c7cc,4\n L fff,4096\n",
    )];
    run(fuzz::lackey, &seeds, &WORDS);
}

#[test]
fn no_text_of_perf_breaks_its_parser() {
    let seeds = [
        text(
            "x 1/2 [001] 24658.917791: 1 cpu/mem-loads/P: 7fd22e523e06 10268100142 |OP LOAD|LVL L1 hit 7fd22e50b7ad\n",
        ),
        text(
            "# remark\n24658.917791:     7fd22e523e06\n\t 7fd22e50b7ad main+0x1\n24658.917792: 1000\n",
        ),
    ];
    run(fuzz::perf, &seeds, &WORDS);
}

#[test]
fn no_text_of_damon_breaks_its_parser() {
    let seeds = [
        text(
            "monitoring_start: 104.599 ms\ntarget_id: 0\nnr_regions: 1\n7fff66b0a000-7fff66bb2000 (672 KiB) 5 0\n",
        ),
        text(
            "k 1 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=1 4096-12288: 3 8\n",
        ),
    ];
    run(fuzz::damon, &seeds, &WORDS);
}
