// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON's regions in use by its tracepoint `damon_aggregated`, which names them when a report is whole: a fraction of what sysfs costs,
//! where a region is a folder with files that the kernel makes and the daemon opens.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use memferry_linux::perf::{Event, Of, Ring};

use crate::status::SampleStatus;
use crate::tiering::Seen;

const FOLDER: &str = "sys/kernel/tracing/events/damon/damon_aggregated";
/// Regions of a report at most.
pub(super) const REGIONS: usize = 8192;
/// Bytes of a region's record: its head, a length, and the tracepoint's fields.
const RECORD: usize = 64;
/// Bytes of two reports: a daemon that is late by one loses nothing.
const RING: usize = 2 * REGIONS * RECORD;
/// After that the rest of a report is looked for, until nothing more came: regions are named in one go, some microseconds each.
const NEXT_REGION: Duration = Duration::from_millis(1);

/// The tracepoint, and where its fields lie in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracepoint {
    id: u64,
    target: Range<usize>,
    start: Range<usize>,
    end: Range<usize>,
    accesses: Range<usize>,
}

impl Tracepoint {
    /// This kernel's.
    ///
    /// # Errors
    /// tracefs is not mounted, or may not be read, or has it not.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let read = |file| fs::read_to_string(root.join(FOLDER).join(file));
        let wrong = || io::Error::other(format!("/{FOLDER}/format is not as known"));
        let (id, format) = (read("id")?, read("format")?);
        let field = |name| field(&format, name).ok_or_else(wrong);
        Ok(Self {
            id: id.trim().parse().map_err(|_| wrong())?,
            target: field("target_id")?,
            start: field("start")?,
            end: field("end")?,
            accesses: field("nr_accesses")?,
        })
    }

    /// A region, and the index of its target.
    fn region(&self, record: &[u8], of: u32) -> Option<(usize, Seen)> {
        let seen = Seen {
            range: number(record, &self.start)?..number(record, &self.end)?,
            accesses: number(record, &self.accesses)? as u32,
            of,
        };
        Some((number(record, &self.target)?, seen))
    }
}

/// Where a line of `format` says that a field lies, as in `field:unsigned long start; offset:24; size:8; signed:0;`.
fn field(format: &str, name: &str) -> Option<Range<usize>> {
    let line = format.lines().find(|line| {
        let declared = line.split(';').next().unwrap_or("");
        declared.split_whitespace().next_back() == Some(name)
    })?;
    let value = |of: &str| {
        let part = line
            .split(';')
            .find_map(|part| part.trim().strip_prefix(of));
        part?.parse::<usize>().ok()
    };
    let (at, size) = (value("offset:")?, value("size:")?);
    (size == 4 || size == 8).then_some(at..at + size)
}

fn number(record: &[u8], at: &Range<usize>) -> Option<usize> {
    let bytes = record.get(at.clone())?;
    Some(match bytes.len() {
        4 => u32::from_ne_bytes(bytes.try_into().ok()?) as usize,
        _ => u64::from_ne_bytes(bytes.try_into().ok()?) as usize,
    })
}

/// What a kdamond reports.
#[derive(Debug)]
pub(super) struct Aggregated {
    tracepoint: Tracepoint,
    ring: Ring,
}

impl Aggregated {
    /// From now on, of the kdamond with this number.
    ///
    /// # Errors
    /// The kernel does not allow it.
    pub(super) fn open(tracepoint: &Tracepoint, kdamond: u32) -> io::Result<Self> {
        let event = Event::tracepoint(tracepoint.id);
        let ring = Ring::open(&event, Of::Thread(kdamond), 1, RING)?;
        // Most regions of most processes idle, and a record takes the kernel some thousand instructions.
        ring.filter(c"nr_accesses > 0")?;
        Ok(Self {
            tracepoint: tracepoint.clone(),
            ring,
        })
    }

    /// Whether some of a report is there.
    pub(super) fn has_any(&self) -> bool {
        self.ring.wait(Duration::ZERO)
    }

    /// The next report, or the last of those that came meanwhile, of so many targets; it is waited for so long at most. `of` are the
    /// samples that it covers. `None` where the ring lost records: memory in use would look idle. The kernel tells of a loss with the next
    /// record that fits, so the report before may have been short as well.
    pub(super) fn report(
        &mut self,
        targets: usize,
        of: u32,
        patience: Duration,
        records: &mut SampleStatus,
    ) -> Option<Vec<Vec<Seen>>> {
        let mut report = vec![Vec::new(); targets];
        let (began, mut is_there, mut is_whole) = (Instant::now(), false, true);
        loop {
            let drained = self.ring.drain_raw(|record| {
                let region = self.tracepoint.region(record, of);
                if let Some((target, seen)) = region.filter(|(target, _)| *target < targets) {
                    add(&mut report[target], seen);
                }
            });
            records.taken += drained.samples;
            records.lost += drained.lost;
            is_whole &= drained.lost == 0;
            if drained.samples > 0 {
                is_there = true;
                std::thread::sleep(NEXT_REGION);
            } else if is_there || !self.ring.wait(patience.saturating_sub(began.elapsed())) {
                return is_whole.then_some(report);
            }
        }
    }
}

/// Regions of a report ascend: one that does not begins a later report, which takes the place of what was there.
fn add(regions: &mut Vec<Seen>, seen: Seen) {
    if regions
        .last()
        .is_some_and(|last| last.range.start >= seen.range.start)
    {
        regions.clear();
    }
    regions.push(seen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{put, tree};

    const FORMAT: &str = "name: damon_aggregated\nID: 711\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id\n";

    #[test]
    fn fields_are_where_the_kernel_says() {
        let root = tree();
        assert!(Tracepoint::read(root.path()).is_err());
        put(root.path(), &format!("{FOLDER}/id"), "711\n");
        put(root.path(), &format!("{FOLDER}/format"), FORMAT);
        let tracepoint = Tracepoint::read(root.path()).unwrap();
        assert_eq!((tracepoint.id, &tracepoint.start), (711, &(24..32)));
        let words = [1_u64, 2, 5, 0x1000, 0x3000, 7 << 32 | 3];
        let record = words.map(u64::to_ne_bytes).concat();
        let seen = Seen {
            range: 0x1000..0x3000,
            accesses: 3,
            of: 5,
        };
        assert_eq!(tracepoint.region(&record, 5), Some((2, seen)));
        assert_eq!(tracepoint.region(&record[..40], 5), None);
        // Another shape is no guess.
        let other = FORMAT.replace("end;\toffset:32;\tsize:8", "end;\toffset:32;\tsize:2");
        put(root.path(), &format!("{FOLDER}/format"), &other);
        assert!(Tracepoint::read(root.path()).is_err());
    }

    #[test]
    fn of_two_reports_the_later_one_counts() {
        let mut regions = Vec::new();
        for start in [1, 3, 5, 1, 4] {
            let range = start..start + 1;
            add(
                &mut regions,
                Seen {
                    range,
                    accesses: 1,
                    of: 5,
                },
            );
        }
        let starts: Vec<usize> = regions.iter().map(|of| of.range.start).collect();
        assert_eq!(starts, [1, 4]);
    }
}
