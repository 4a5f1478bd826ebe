// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampled accesses as `perf script` prints them, of `perf mem record` or `perf record --data`.
//!
//! ```text
//!   ls 28816/28816 [001] 24658.917791:     1 cpu/mem-loads/P:  7fd22e523e06  10268100142 |OP LOAD|LVL L1 hit|…  7fd22e50b7ad
//!   24658.917791:  7fd22e523e06
//! ```
//! What is needed is the time and the address (`-F time,addr`); the event (`-F …,event`) or the data source tells
//! loads from stores, the process (`-F pid,tid,…`) one process from another. Other fields are passed over. perf
//! prints the address before the instruction pointer; where it prints no address, the line is refused.

use std::io::{BufRead, Write};

use crate::error::Error;
use crate::trace::{Header, Totals, Writer};

use super::Kind;
use super::lines::Lines;
use super::stamp::{digits, hex, nanoseconds};

/// What to try where a line lacks something.
const FIELDS: &str = "print the samples with perf script -F pid,tid,time,event,addr,data_src (of a record made with \
                      perf mem record, or perf record --data)";

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the first sample.
    pub time: u64,
    /// The address that was accessed.
    pub address: u64,
    /// A load or a store.
    pub kind: Kind,
}

/// Samples that are in the text but not in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Without an address: perf prints 0.
    pub no_address: u64,
    /// Of the kernel's memory, which does not move between tiers.
    pub kernel: u64,
    /// Of other processes than the one that was asked for.
    pub others: u64,
}

/// The samples in the output of `perf script`.
pub struct Perf<R> {
    lines: Lines<R>,
    only: Option<u64>,
    process: Option<u64>,
    first: Option<u64>,
    last: u64,
    skipped: Skipped,
}

impl<R: BufRead> Perf<R> {
    /// Reads from the start; of this process only, if one is given.
    pub fn new(from: R, only: Option<u64>) -> Self {
        Self {
            lines: Lines::new(from),
            only,
            process: None,
            first: None,
            last: 0,
            skipped: Skipped::default(),
        }
    }

    /// The next sample; `None` at the end.
    pub fn next_sample(&mut self) -> Result<Option<Sample>, Error> {
        while let Some(line) = self.lines.next_line()? {
            let text = String::from_utf8_lossy(line);
            let Some(raw) = raw(&text) else {
                if is_other(&text) {
                    continue;
                }
                return Err(self.lines.unexpected(
                    "sample with its time and address, as perf script prints it",
                    FIELDS,
                ));
            };
            if !self.is_wanted(raw.process)? {
                self.skipped.others += 1;
                continue;
            }
            if raw.address == 0 {
                self.skipped.no_address += 1;
                continue;
            }
            if raw.address >> 63 == 1 {
                self.skipped.kernel += 1;
                continue;
            }
            let first = *self.first.get_or_insert(raw.time);
            if raw.time < self.last {
                return Err(self.lines.unusable(
                    "the time goes back",
                    "give the output of one perf script, which sorts by time",
                ));
            }
            self.last = raw.time;
            return Ok(Some(Sample {
                time: raw.time - first,
                address: raw.address,
                kind: raw.kind,
            }));
        }
        Ok(None)
    }

    /// What was left out so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Whether a sample of this process belongs to the trace; two processes do not fit one.
    fn is_wanted(&mut self, process: Option<u64>) -> Result<bool, Error> {
        match (self.only, process) {
            (Some(only), Some(process)) => Ok(only == process),
            (Some(_), None) => Err(self
                .lines
                .unusable("the sample does not say of which process it is", FIELDS)),
            (None, None) => Ok(true),
            (None, Some(process)) => match *self.process.get_or_insert(process) {
                known if known == process => Ok(true),
                known => Err(self.lines.unusable(
                    format!("a sample of process {process} after those of process {known}"),
                    "choose one with --only: a trace has the addresses of one process",
                )),
            },
        }
    }
}

/// A line's fields.
struct Raw {
    time: u64,
    address: u64,
    kind: Kind,
    process: Option<u64>,
}

fn raw(line: &str) -> Option<Raw> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (at, time) = words
        .iter()
        .enumerate()
        .find_map(|(at, word)| Some((at, nanoseconds(word)?)))?;
    let (event, rest) = match &words[at + 1..] {
        [period, name, rest @ ..] if digits(period).is_some() && name.ends_with(':') => {
            (*name, rest)
        }
        [name, rest @ ..] if name.ends_with(':') => (*name, rest),
        rest => ("", rest),
    };
    let address = hex(rest.first()?)?;
    // A number before `|OP` is the data source; one that a symbol follows, and no other number, is the instruction.
    let is_alone = !rest[1..].iter().any(|word| hex(word).is_some());
    match rest.get(1) {
        Some(next) if next.starts_with("|OP") => return None,
        Some(next) if is_alone && !next.starts_with('|') => return None,
        _ => {}
    }
    let operation = line.split_once("|OP ").map_or("", |(_, after)| after);
    let is_store = match operation {
        _ if operation.starts_with("STORE") => true,
        _ if operation.starts_with("LOAD") => false,
        _ => {
            let event = event.to_ascii_lowercase();
            event.contains("store") || event.contains("write")
        }
    };
    Some(Raw {
        time,
        address,
        kind: match is_store {
            true => Kind::Store,
            false => Kind::Load,
        },
        process: process(&words[..at]),
    })
}

/// The process in the words before the time: `comm 12/34 [001]`. A thread alone, `comm 34`, names none.
fn process(words: &[&str]) -> Option<u64> {
    let is_cpu = |word: &&str| word.starts_with('[') && word.ends_with(']');
    let before = match words {
        [before @ .., cpu] if is_cpu(cpu) => before,
        _ => words,
    };
    let (process, thread) = before.last()?.split_once('/')?;
    digits(thread)?;
    digits(process)
}

/// Whether a line that is no sample may stand between samples: blank, a remark, or a caller of a sample's chain.
fn is_other(line: &str) -> bool {
    let trimmed = line.trim_start();
    let is_indented = trimmed.len() < line.len();
    let mut words = trimmed.split_ascii_whitespace();
    match words.next() {
        None => true,
        Some(word) if word.starts_with('#') => true,
        Some(word) => {
            is_indented && hex(word).is_some() && !words.any(|w| nanoseconds(w).is_some())
        }
    }
}

/// Makes a trace of the output of `perf script`, one event per sample.
pub fn import<W: Write>(
    from: impl BufRead,
    out: W,
    header: &Header,
    only: Option<u64>,
) -> Result<(W, Totals, Skipped), Error> {
    let mut samples = Perf::new(from, only);
    let mut writer = Writer::new(out, header)?;
    let shift = header.page_bytes.trailing_zeros();
    while let Some(sample) = samples.next_sample()? {
        let is_store = sample.kind == Kind::Store;
        let counts = (u32::from(!is_store), u32::from(is_store));
        writer.push(sample.time, sample.address >> shift, counts.0, counts.1)?;
    }
    let (out, totals) = writer.finish(0, 0)?;
    Ok((out, totals, samples.skipped()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, only: Option<u64>) -> Result<(Vec<Sample>, Skipped), Error> {
        let mut perf = Perf::new(text.as_bytes(), only);
        let mut samples = Vec::new();
        while let Some(sample) = perf.next_sample()? {
            samples.push(sample);
        }
        Ok((samples, perf.skipped()))
    }

    fn one(line: &str) -> Sample {
        let (samples, _) = all(line, None).expect(line);
        assert_eq!(samples.len(), 1, "{line}");
        samples[0]
    }

    #[test]
    fn fields_are_found_in_all_the_ways_they_are_printed() {
        // The first two by perf 6.1 of `ls`, the others from the mails that introduced the fields.
        for (line, address, kind) in [
            (
                "              ls 28816/28816 24658.917791: page-faults:u:     7fd22e523e06     7fd22e50b7ad",
                0x7fd2_2e52_3e06,
                Kind::Load,
            ),
            (
                "24658.917791:     7fd22e523e06",
                0x7fd2_2e52_3e06,
                Kind::Load,
            ),
            (
                "chromium-browse   46572 [002] 544966.882384:      10000 \tcpu_core/MEM_UOPS_RETIRED.LOAD_LATENCY/: \
                 7ffdf1391b0c     10268100142  |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK    N/A    5   7  \
                 0   7fad7c47425d [unknown] (/usr/lib64/libglib-2.0.so.0.8000.3)",
                0x7ffd_f139_1b0c,
                Kind::Load,
            ),
            (
                "a b 12 [000] 5.000001: 1 memory: ffff80 88000182 |OP STORE|LVL L1 miss|SNP N/A",
                0xff_ff80,
                Kind::Store,
            ),
            (
                "x 1/2 5.000001000: 1 cpu/mem-stores/P: 7fad7c47 7fad7c474250 main+0x8 (/bin/x)",
                0x7fad_7c47,
                Kind::Store,
            ),
        ] {
            assert_eq!(
                one(line),
                Sample {
                    time: 0,
                    address,
                    kind
                }
            );
        }
    }

    #[test]
    fn times_count_from_the_first_sample() {
        let text = "# a remark\n\n5.000001: 1000\n\t  7f12 main+0x1 (/bin/x)\n5.000003000: 2000\n";
        let (samples, _) = all(text, None).expect("read");
        let times: Vec<u64> = samples.iter().map(|sample| sample.time).collect();
        assert_eq!(times, [0, 2000]);
    }

    #[test]
    fn what_is_no_page_of_the_process_is_counted_and_left_out() {
        let text = "x 1/1 5.000001: e: 0\nx 1/1 5.000002: e: ffffa7c22b4b2a00\ny 2/3 5.000003: e: 1000\n\
                    x 1/4 5.000004: e: 2000\n";
        let (samples, skipped) = all(text, Some(1)).expect("read");
        assert_eq!(samples.len(), 1);
        assert_eq!(
            skipped,
            Skipped {
                no_address: 1,
                kernel: 1,
                others: 1
            }
        );
        let error = all(text, None).expect_err("two processes");
        assert_eq!(error.at(), Some(3), "{error}");
        assert!(error.next().contains("--only"), "{error}");
        let error = all("5.000001: 1000\n", Some(1)).expect_err("no process");
        assert!(error.next().contains("-F pid"), "{error}");
    }

    #[test]
    fn lines_without_time_or_address_are_told() {
        for line in [
            // What perf script prints if nothing is said of fields: the instruction, no address.
            "ls 28816 24658.917788:          1 page-faults:u:      7fd22e50ab70 _start+0x0 (/usr/lib/ld-linux.so.2)",
            "ls 14753 [011]  3678.072400:          1        memory:         88000182 |OP LOAD|LVL L1 miss|SNP N/A",
            "24658.917788:",
            "24658.917788: cycles:",
            "ls 28816 24658.917788: cycles: main",
            "ls 28816 7fd22e50ab70",
            "perf: no samples",
        ] {
            let error = all(&format!("1.000000: 1000\n{line}\n"), None).expect_err(line);
            assert_eq!(error.at(), Some(2), "{line}");
            assert!(error.next().contains("perf script -F"), "{error}");
        }
    }

    #[test]
    fn a_time_that_goes_back_is_told() {
        let error = all("5.000002: 1000\n5.000001: 1000\n", None).expect_err("back");
        assert_eq!(error.at(), Some(2));
    }
}
