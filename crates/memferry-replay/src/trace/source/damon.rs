// SPDX-License-Identifier: MIT OR Apache-2.0
//! What DAMON saw: regions of memory, and how often it found each accessed.
//!
//! Either the tracepoint, as `perf script` or the kernel's trace file prints it, addresses in decimal:
//! ```text
//! kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=11 122509119488-135708762112: 0 864
//! ```
//! or `damo report access --raw_form` (`damo report raw` of old), addresses in hexadecimal:
//! ```text
//! monitoring_start:          104.599 ms
//! target_id: 0
//! 563ebaa00000-563ebc99e000 (  31.617 MiB)           1     4
//! ```
//! Lines of other names before a `monitoring_start` tell of the whole record and are passed over.
//!
//! DAMON checks one page of a region for all of them. So each page of it gets as many reads as the region has
//! accesses, at the time of the line or of the snapshot's start; regions without any give no event.

use std::io::{BufRead, Write};

use crate::error::Error;
use crate::trace::{Header, Limits, Totals, Writer};

use super::lines::Lines;
use super::stamp::{digits, hex, nanoseconds};

/// What to try where a line is not understood.
const FORMS: &str = "give the output of damo report access --raw_form, or of perf script after perf record -e \
                     damon:damon_aggregated";

/// The largest trace that is made from regions: a line of text can stand for any number of pages.
const MOST: Limits = Limits {
    pages: 16 << 20,
    events: 64 << 20,
};

/// A region of memory over one aggregation interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Nanoseconds since the first.
    pub time: u64,
    /// The first byte's address.
    pub start: u64,
    /// The address behind the last byte.
    pub end: u64,
    /// Checks of the interval that found it accessed.
    pub accesses: u32,
}

/// The regions in DAMON's text.
pub struct Damon<R> {
    lines: Lines<R>,
    only: Option<u64>,
    chosen: Option<u64>,
    /// The target and the start of the snapshot that is being read.
    target: Option<u64>,
    snapshot: Option<u64>,
    first: Option<u64>,
    last: u64,
}

/// What a line says.
enum Said {
    Region {
        time: Option<u64>,
        target: Option<u64>,
        start: u64,
        end: u64,
        accesses: u32,
    },
    /// The time from which those of the following snapshots count: their record begins.
    Base,
    Start(u64),
    Target(u64),
    Nothing,
    /// A line `NAME: VALUE` of no known name.
    Other,
}

impl<R: BufRead> Damon<R> {
    /// Reads from the start; of this target only, if one is given.
    pub fn new(from: R, only: Option<u64>) -> Self {
        Self {
            lines: Lines::new(from),
            only,
            chosen: None,
            target: None,
            snapshot: None,
            first: None,
            last: 0,
        }
    }

    /// The next region; `None` at the end.
    pub fn next_region(&mut self) -> Result<Option<Region>, Error> {
        while let Some(line) = self.lines.next_line()? {
            let said = said(&String::from_utf8_lossy(line))
                .ok_or_else(|| self.lines.unexpected("record of DAMON", FORMS))?;
            match said {
                Said::Nothing => {}
                Said::Other if self.snapshot.is_none() => {}
                Said::Other => return Err(self.lines.unexpected("record of DAMON", FORMS)),
                Said::Base => self.snapshot = None,
                Said::Start(time) => self.snapshot = Some(time),
                Said::Target(target) => self.target = Some(target),
                Said::Region {
                    time,
                    target,
                    start,
                    end,
                    accesses,
                } => {
                    if !self.is_wanted(target)? {
                        continue;
                    }
                    let time = time.or(self.snapshot).ok_or_else(|| {
                        let why = "a region before any monitoring_start";
                        self.lines.unusable(why, FORMS)
                    })?;
                    let first = *self.first.get_or_insert(time);
                    if time < self.last {
                        return Err(self.lines.unusable(
                            "the time goes back",
                            "give one record at a time: choose a target with --only, or a kdamond in damo",
                        ));
                    }
                    self.last = time;
                    return Ok(Some(Region {
                        time: time - first,
                        start,
                        end,
                        accesses,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Whether a region of this target (or of the snapshot's) belongs to the trace; two targets do not fit one.
    fn is_wanted(&mut self, said: Option<u64>) -> Result<bool, Error> {
        let Some(target) = said.or(self.target) else {
            return Ok(true);
        };
        if let Some(only) = self.only {
            return Ok(only == target);
        }
        match *self.chosen.get_or_insert(target) {
            chosen if chosen == target => Ok(true),
            chosen => Err(self.lines.unusable(
                format!("a region of target {target} after those of target {chosen}"),
                "choose one with --only: a trace has the addresses of one target",
            )),
        }
    }
}

/// Reads a line; `None` if it is neither a record nor what stands between records.
fn said(line: &str) -> Option<Said> {
    let line = line.trim();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [first, ..] = words[..] else {
        return Some(Said::Nothing);
    };
    if let Some(stamp) = words.iter().position(|word| nanoseconds(word).is_some()) {
        return point(nanoseconds(words[stamp])?, &words[stamp + 1..]);
    }
    if let Some((name, value)) = line.split_once(": ") {
        match name {
            "monitoring_start" => return duration(value).map(Said::Start),
            // Physical memory is a target without a name.
            "target_id" => return Some(Said::Target(digits(value.trim()).unwrap_or(0))),
            "base_time_absolute" => return Some(Said::Base),
            "monitoring_end" | "monitoring_duration" | "nr_regions" => return Some(Said::Nothing),
            _ if name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || b"_ ".contains(&byte)) =>
            {
                return Some(Said::Other);
            }
            _ => {}
        }
    }
    match first.starts_with('#') {
        true => Some(Said::Nothing),
        false => snapshot_region(line),
    }
}

/// A line of the tracepoint, from behind its time; other events are passed over.
fn point(time: u64, words: &[&str]) -> Option<Said> {
    let (event, fields) = words.split_first()?;
    if !event.ends_with("damon_aggregated:") {
        return event.ends_with(':').then_some(Said::Nothing);
    }
    let [target, regions, range, accesses, ..] = fields else {
        return None;
    };
    digits(regions.strip_prefix("nr_regions=")?)?;
    let (start, end) = range.strip_suffix(':')?.split_once('-')?;
    let (start, end) = (digits(start)?, digits(end)?);
    (start < end).then_some(Said::Region {
        time: Some(time),
        target: Some(digits(target.strip_prefix("target_id=")?)?),
        start,
        end,
        accesses: u32::try_from(digits(accesses)?).ok()?,
    })
}

/// `start-end (size) accesses age`, or of old `start-end(size): accesses`.
fn snapshot_region(line: &str) -> Option<Said> {
    let (range, rest) = line.split_once('(')?;
    let (start, end) = range.trim().split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (_, counts) = rest.split_once(')')?;
    let mut counts = counts.trim_start_matches(':').split_ascii_whitespace();
    let accesses = u32::try_from(digits(counts.next()?)?).ok()?;
    (start < end).then_some(Said::Region {
        time: None,
        target: None,
        start,
        end,
        accesses,
    })
}

/// A time as damo prints it, in nanoseconds: `104.599 ms`, `8 m 59.809 s`, or with --raw_number the plain number.
fn duration(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if let [plain] = words[..] {
        return digits(plain);
    }
    let mut sum: u64 = 0;
    for pair in words.chunks(2) {
        let [number, unit] = pair else {
            return None;
        };
        let unit: u64 = match *unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        let number = number.replace(',', "");
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        sum = sum.checked_add(digits(whole)?.checked_mul(unit)?)?;
        if !fraction.is_empty() {
            let scale = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let part = u128::from(digits(fraction)?) * u128::from(unit) / u128::from(scale);
            sum = sum.checked_add(u64::try_from(part).ok()?)?;
        }
    }
    (!words.is_empty()).then_some(sum)
}

/// Makes a trace of DAMON's text, one event per page and interval in which it was found accessed.
pub fn import<W: Write>(
    from: impl BufRead,
    out: W,
    header: &Header,
    only: Option<u64>,
) -> Result<(W, Totals), Error> {
    import_within(from, out, header, only, MOST)
}

/// The same within other limits.
pub fn import_within<W: Write>(
    from: impl BufRead,
    out: W,
    header: &Header,
    only: Option<u64>,
    most: Limits,
) -> Result<(W, Totals), Error> {
    let mut regions = Damon::new(from, only);
    let mut writer = Writer::new(out, header)?;
    let shift = header.page_bytes.trailing_zeros();
    while let Some(region) = regions.next_region()? {
        if region.accesses == 0 {
            continue;
        }
        let places = region.start >> shift..=(region.end - 1) >> shift;
        let pages = places.end() - places.start() + 1;
        let (known, events) = (writer.totals().pages, writer.totals().events);
        if pages > most.pages || known > most.pages || pages > most.events.saturating_sub(events) {
            let why = format!(
                "{pages} pages of {} bytes make a trace of more than {} pages or {} events",
                header.page_bytes, most.pages, most.events
            );
            let next = "import with larger pages (--page 2M), or a shorter record";
            return Err(regions.lines.unusable(why, next));
        }
        for place in places {
            writer.push(region.time, place, region.accesses, 0)?;
        }
    }
    writer.finish(0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Clock;
    use crate::trace::read;

    fn all(text: &str, only: Option<u64>) -> Result<Vec<Region>, Error> {
        let mut damon = Damon::new(text.as_bytes(), only);
        let mut regions = Vec::new();
        while let Some(region) = damon.next_region()? {
            regions.push(region);
        }
        Ok(regions)
    }

    /// From damo's own documentation, with the newer form of a region in the second snapshot.
    const RAW: &str = "\
base_time_absolute: 8 m 59.809 s

monitoring_start:                0 ns
monitoring_end:            104.599 ms
monitoring_duration:       104.599 ms
target_id: 18446623438842320000
nr_regions: 3
563ebaa00000-563ebc99e000(  31.617 MiB):        1
7f938d7e1000-7f938ddfc000(   6.105 MiB):        0
7fff66b0a000-7fff66bb2000( 672.000 KiB):        0

monitoring_start:          104.599 ms
monitoring_end:            208.590 ms
monitoring_duration:       103.991 ms
target_id: 18446623438842320000
nr_regions: 1
# start_addr     end_addr        length  nr_accesses   age
7fff66b0a000-7fff66bb2000 ( 672.000 KiB)           5     0
";

    /// From the kernel's documentation, with a line of another event.
    const POINT: &str = "\
    kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=11 4096-12288: 3 864
    kdamond.0 47293 [000] 79357.842180: damon:damos_before_apply: ctx_idx=0 scheme_idx=0 target_idx=0
    kdamond.0-46568   [027] ..... 79357.942179: damon_aggregated: target_id=0 nr_regions=11 8192-12288: 1 0
";

    #[test]
    fn reports_of_damo_are_read() {
        let regions = all(RAW, None).expect("read");
        assert_eq!(regions.len(), 4);
        assert_eq!(
            regions[3],
            Region {
                time: 104_599_000,
                start: 0x7fff_66b0_a000,
                end: 0x7fff_66bb_2000,
                accesses: 5
            }
        );
    }

    /// damo 2.9.9 names the source of its data there.
    #[test]
    fn other_lines_of_a_records_head_are_passed_over() {
        let (base, source) = (
            "base_time_absolute: 8 m 59.809 s\n",
            "data source: unknown\n",
        );
        for head in [
            format!("{base}{source}"),
            format!("{source}{base}"),
            format!("{base}kdamond_name: a, b: c\n"),
        ] {
            let text = RAW.replacen(base, &head, 1);
            assert_eq!(all(&text, None).expect("read").len(), 4, "{head}");
        }
        // A record that follows has such a head, too.
        let two = format!("{RAW}\n{base}{source}\nmonitoring_start: 1 s\n1000-2000 ( 4 KiB) 1 0\n");
        assert_eq!(all(&two, None).expect("read").len(), 5);
    }

    #[test]
    fn tracepoints_are_read() {
        let regions = all(POINT, None).expect("read");
        assert_eq!(
            regions[1],
            Region {
                time: 100_000_000,
                start: 8192,
                end: 12288,
                accesses: 1
            }
        );
    }

    #[test]
    fn each_page_of_a_region_gets_its_accesses() {
        let header = Header::new("test", "damon", Clock::Nanoseconds);
        let (bytes, totals) = import(POINT.as_bytes(), Vec::new(), &header, None).expect("import");
        let trace = read(&bytes[..]).expect("read");
        assert_eq!(trace.pages, [1, 2]);
        let events: Vec<_> = (trace.events.iter())
            .map(|e| (e.time, e.page, e.reads))
            .collect();
        assert_eq!(events, [(0, 0, 3), (0, 1, 3), (100_000_000, 1, 1)]);
        assert_eq!(totals.reads, 7);
    }

    #[test]
    fn one_target_is_chosen_or_has_to_be() {
        let text = POINT.replacen("target_id=0", "target_id=7", 1);
        let error = all(&text, None).expect_err("two targets");
        assert_eq!(error.at(), Some(3));
        assert!(error.next().contains("--only"), "{error}");
        assert_eq!(all(&text, Some(7)).expect("read").len(), 1);
    }

    #[test]
    fn a_region_that_would_fill_the_memory_is_told() {
        let text = "k 1 5.000000: damon_aggregated: target_id=0 nr_regions=1 0-18446744073709551615: 1 1\n";
        let header = Header::new("test", "damon", Clock::Nanoseconds);
        let error = import(text.as_bytes(), Vec::new(), &header, None).expect_err("too large");
        assert!(error.to_string().contains("line 1"), "{error}");
    }

    #[test]
    fn what_is_no_record_is_told_with_its_line() {
        for line in [
            "563ebaa00000-563ebc99e000( 31.6 MiB): x",
            "563ebc99e000-563ebaa00000( 31.6 MiB): 1",
            "monitoring_start: soon",
            "monitoring_start: 5 years",
            "kdamond.0 1 5.000000: damon:damon_aggregated: target_id=0 nr_regions=11 8-4: 1 0",
            "kdamond.0 1 5.000000: damon:damon_aggregated: target_id=0 nr_regions=11",
            "heatmap: 00000",
        ] {
            let error = all(&format!("monitoring_start: 0 ns\n{line}\n"), None).expect_err(line);
            assert_eq!(error.at(), Some(2), "{line}");
        }
        let early = all("1000-2000(4 KiB): 1\n", None).expect_err("early");
        assert!(early.to_string().contains("monitoring_start"), "{early}");
    }

    #[test]
    fn durations_are_read_as_damo_prints_them() {
        for (text, time) in [
            ("0 ns", 0),
            ("104.599 ms", 104_599_000),
            ("8 m 59.809 s", 539_809_000_000),
            ("1 h 2 m 3 s", 3_723_000_000_000),
            ("1,000 us", 1_000_000),
            ("123456", 123_456),
        ] {
            assert_eq!(duration(text), Some(time), "{text}");
        }
        for text in ["", "ns", "-1 ns", "1 2", "1.5", "99999999999999999 h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
