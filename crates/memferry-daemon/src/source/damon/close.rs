// SPDX-License-Identifier: MIT OR Apache-2.0
//! Close looks: a kdamond of its own takes some samples of each page of a few chunks, every page a region, and ends. What the regions of
//! the others leave of the budget pays for it.
//!
//! DAMON's `fvaddr` takes regions as they are. With as many at least as there are, it never merges two, and what is one page large it does
//! not split.

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use memferry_linux::damon::{Context, Setup};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::super::CloseLooks;
use super::super::aggregated::{Aggregated, Tracepoint};
use super::{COUNT, UPDATE_US};
use crate::error::DaemonError;
use crate::knobs::{KDAMONDS, Knobs};
use crate::status::SampleStatus;
use crate::tiering::{CHUNK, CloseLook, ProcessId};

/// The kdamond: the last.
const NUMBER: usize = COUNT - 1;
/// Chunks of a look at most: 4096 regions, and what is made of them in sysfs.
const CHUNKS: usize = 8;
/// Where no process has memory. A look at fewer chunks has its other regions here: a kernel that is told another number of them makes
/// all their folders anew, which takes longer than samples of nothing.
const NOWHERE: usize = 1 << 56;
/// Descriptors that are left to the rest of the daemon.
const DESCRIPTORS: u64 = 1024;
/// Samples of each page.
const SAMPLES: u8 = 8;
/// From sample to sample at first, at least and at most.
const INTERVALS_US: [u32; 3] = [20_000, 5_000, 1_280_000];
/// Percent of the samples that see a page in use. Below, the next look's samples are twice as far apart; above, half as far. Where nearly
/// all samples see pages in use, or nearly none, pages cannot be told apart.
const IN_USE: [usize; 2] = [20, 60];
/// Time after the last sample was due until a look without a report is given up. On a slow machine the samples themselves take long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Seconds whose budget may be taken at once, so that new memory is looked at soon.
const SAVED: f64 = 60.0;

/// Refusals in a row after which no more looks are tried. A process that ends meanwhile causes one, and so does another user of DAMON.
const TRIES: u32 = 3;
/// The kdamond of close looks, and its part of the budget.
#[derive(Debug)]
pub(super) struct PageSampler {
    /// CPU seconds in a second, and those that may be taken now.
    cpu: f64,
    credit: f64,
    /// When that was reckoned, and CPU seconds of the other kdamonds by then.
    last: Option<(Instant, f64)>,
    interval_us: u32,
    look: Option<Look>,
    /// CPU seconds of all looks.
    pub(super) spent: f64,
    files: RegionFiles,
    /// Looks in a row that the kernel refused.
    refused: u32,
}

/// The files of regions, the start and the end of each in turn, which stay open from look to look.
#[derive(Debug)]
struct RegionFiles {
    open: Vec<OwnedFd>,
    /// That may be open. The others are opened for each look.
    most: usize,
}

/// A look that goes on.
#[derive(Debug)]
struct Look {
    process: ProcessId,
    numbers: Vec<usize>,
    began: Instant,
    kdamond: u32,
    aggregated: Aggregated,
    /// CPU seconds of this thread that it took to begin.
    begin: f64,
}

impl Look {
    /// With its process it ends by itself, and another one may be somebody else's.
    fn goes_on(&self, knobs: &Knobs) -> bool {
        knobs.read(&format!("{KDAMONDS}/{NUMBER}/pid")) == Some(self.kdamond.to_string())
    }
}

impl PageSampler {
    /// Within so many percent of one CPU.
    pub(super) fn new(percent: u32) -> Self {
        let cpu = f64::from(percent) / 100.0;
        Self {
            cpu,
            credit: cpu * SAVED,
            last: None,
            interval_us: INTERVALS_US[0],
            look: None,
            spent: 0.0,
            files: RegionFiles::new(),
            refused: 0,
        }
    }

    /// What the last look saw, if it is over; begins the next one if that is paid for. `others` are the CPU seconds of the other kdamonds.
    pub(super) fn go_on(
        &mut self,
        knobs: &mut Knobs,
        tracepoint: &Tracepoint,
        others: f64,
        next: &mut dyn FnMut(usize) -> Option<(ProcessId, Vec<usize>)>,
    ) -> Result<Option<CloseLooks>, DaemonError> {
        let now = Instant::now();
        if let Some((then, before)) = self.last {
            let passed = (now - then).as_secs_f64();
            let taken = (others - before).max(0.0);
            let saved = self.cpu * SAVED;
            self.credit = (self.credit + self.cpu * passed - taken).clamp(-saved, saved);
        }
        self.last = Some((now, others));
        let mut seen = None;
        if let Some(look) = &self.look {
            let samples = Duration::from_micros(self.interval_us.into()) * SAMPLES.into();
            let passed = look.began.elapsed();
            let may_be_over = passed > samples
                && (look.aggregated.has_any()
                    || !look.goes_on(knobs)
                    || passed > samples + PATIENCE);
            if !may_be_over {
                return Ok(None);
            }
            seen = self.end(knobs)?;
        }
        if self.credit > 0.0 && self.refused < TRIES {
            if let Some((process, numbers)) = next(CHUNKS) {
                self.begin(knobs, tracepoint, process, numbers)?;
            }
        }
        Ok(seen)
    }

    fn begin(
        &mut self,
        knobs: &mut Knobs,
        tracepoint: &Tracepoint,
        process: ProcessId,
        numbers: Vec<usize>,
    ) -> Result<(), DaemonError> {
        let before = thread_seconds();
        let folder = format!("{KDAMONDS}/{NUMBER}");
        let state = format!("{folder}/state");
        // One that is on is somebody else's.
        if knobs.read(&state).is_none_or(|state| state == "on") {
            return Ok(());
        }
        let set = self.set(knobs, &folder, process, &numbers);
        let on = set.and_then(|()| {
            knobs.keep(&state, "off")?;
            knobs.write(&state, "on")
        });
        if let Err(error) = on {
            self.files.open.clear();
            self.refused += 1;
            if self.refused == TRIES {
                tracing::info!("pages of large pieces are not told apart: {error}");
            }
            return Ok(());
        }
        self.refused = 0;
        let pid = knobs.read(&format!("{folder}/pid"));
        // A process that has ended takes the kdamond along: it has no number any more.
        let Some(kdamond) = pid.and_then(|pid| pid.parse().ok()) else {
            return Ok(());
        };
        match Aggregated::open(tracepoint, kdamond) {
            Ok(aggregated) => {
                self.look = Some(Look {
                    process,
                    numbers,
                    began: Instant::now(),
                    kdamond,
                    aggregated,
                    begin: thread_seconds() - before,
                });
            }
            Err(error) => {
                tracing::debug!("a close look cannot be listened to: {error}");
                knobs.write(&state, "off")?;
            }
        }
        Ok(())
    }

    /// Writes what is looked at.
    fn set(
        &mut self,
        knobs: &Knobs,
        folder: &str,
        process: ProcessId,
        numbers: &[usize],
    ) -> Result<(), DaemonError> {
        let page = rustix::param::page_size();
        let count = CHUNKS * (CHUNK / page);
        let context = format!("{folder}/contexts/0");
        let targets = format!("{context}/targets");
        let regions = format!("{targets}/0/regions");
        let intervals = [
            self.interval_us,
            self.interval_us * u32::from(SAMPLES),
            UPDATE_US,
        ];
        let mut setup = Setup::default();
        // Writing a count makes the kernel create all folders below it anew.
        let is_new = knobs.read(&format!("{targets}/nr_targets")).as_deref() != Some("1");
        if !is_new {
            setup.intervals(&context, intervals);
            setup.regions(&context, [count, count]);
        } else {
            let of = Context {
                operations: "fvaddr",
                intervals_us: intervals,
                regions: [count, count],
                targets: 1,
                schemes: 0,
            };
            setup.context(NUMBER, &of);
        }
        setup.put(format!("{targets}/0/pid_target"), process.pid);
        let nr_regions = format!("{regions}/nr_regions");
        if is_new || knobs.read(&nr_regions) != Some(count.to_string()) {
            setup.put(nr_regions, count);
            self.files.open.clear();
        }
        for (file, text) in &setup.files {
            knobs.write(file, text)?;
        }
        let pages = numbers
            .iter()
            .flat_map(|number| (number * CHUNK..(number + 1) * CHUNK).step_by(page));
        let pages = pages.chain((NOWHERE..).step_by(page)).take(count);
        (self.files)
            .write(&knobs.root().join(&regions), pages, page)
            .map_err(crate::error::file(&regions, "write the regions"))
    }

    /// Ends the look, and tells what it saw.
    fn end(&mut self, knobs: &Knobs) -> Result<Option<CloseLooks>, DaemonError> {
        let Some(mut look) = self.look.take() else {
            return Ok(None);
        };
        let taken = cpu_seconds(knobs, look.kdamond);
        // The kdamond has written all of its report once it has ended.
        if look.goes_on(knobs) {
            knobs.write(&format!("{KDAMONDS}/{NUMBER}/state"), "off")?;
        }
        self.credit -= taken + look.begin;
        self.spent += taken;
        let mut records = SampleStatus::default();
        let report = look
            .aggregated
            .report(1, SAMPLES.into(), Duration::ZERO, &mut records);
        let regions = report
            .and_then(|mut report| report.pop())
            .unwrap_or_default();
        // The chunks were in use when they were chosen, so the kdamond was late.
        if regions.is_empty() {
            return Ok(None);
        }
        let page = rustix::param::page_size();
        let pages = CHUNK / page;
        // The kernel marks all pages, waits for the interval, and checks all pages: marking takes half of the CPU time.
        let marking = Duration::from_secs_f64(taken) / (2 * u32::from(SAMPLES));
        let interval = Duration::from_micros(self.interval_us.into()) + marking;
        let mut looks: Vec<CloseLook> = (look.numbers.iter())
            .map(|number| CloseLook {
                number: *number,
                counts: vec![0; pages],
                of: SAMPLES,
                interval,
            })
            .collect();
        let mut in_use = 0;
        for seen in &regions {
            let at = look.numbers.binary_search(&(seen.range.start / CHUNK));
            if let Ok(at) = at {
                let count = seen.accesses.min(SAMPLES.into());
                looks[at].counts[seen.range.start % CHUNK / page] = count as u8;
                in_use += count as usize;
            }
        }
        let [few, many] =
            IN_USE.map(|percent| looks.len() * pages * usize::from(SAMPLES) * percent / 100);
        let [_, least, most] = INTERVALS_US;
        tracing::debug!(
            pid = look.process.pid,
            chunks = looks.len(),
            interval_us = self.interval_us,
            in_use,
            cpu_ms = taken * 1e3,
            begin_ms = look.begin * 1e3,
            "a close look"
        );
        if in_use < few {
            self.interval_us = (self.interval_us * 2).min(most);
        } else if in_use > many {
            self.interval_us = (self.interval_us / 2).max(least);
        }
        Ok(Some((look.process, looks)))
    }
}

impl RegionFiles {
    /// Lets this process have the descriptors that looks want, as far as it may.
    fn new() -> Self {
        let wanted = 2 * (CHUNKS * CHUNK / rustix::param::page_size()) as u64;
        let limit = getrlimit(Resource::Nofile);
        let enough = wanted + DESCRIPTORS;
        if limit.current.is_some_and(|now| now < enough) {
            // Only the hard limit of root can be raised. Without that fewer stay open.
            let raised = |most: Option<u64>| Rlimit {
                current: Some(most.unwrap_or(enough).min(enough)),
                maximum: most,
            };
            let _ = setrlimit(
                Resource::Nofile,
                raised(limit.maximum.map(|most| most.max(enough))),
            )
            .or_else(|_| setrlimit(Resource::Nofile, raised(limit.maximum)));
        }
        let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            open: Vec::new(),
            most: may.saturating_sub(DESCRIPTORS).min(wanted) as usize,
        }
    }

    /// Writes regions of a page each.
    fn write(
        &mut self,
        folder: &Path,
        pages: impl Iterator<Item = usize>,
        page: usize,
    ) -> io::Result<()> {
        let folder = File::open(folder)?;
        let (mut name, mut text) = (String::new(), String::new());
        let values = pages.flat_map(|at| [("start", at), ("end", at + page)]);
        for (index, (file, value)) in values.enumerate() {
            text.clear();
            let _ = write!(text, "{value}");
            if let Some(file) = self.open.get(index) {
                // sysfs takes each write as the whole text.
                rustix::io::pwrite(file, text.as_bytes(), 0)?;
                continue;
            }
            name.clear();
            let _ = write!(name, "{}/{file}", index / 2);
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
            let file = openat(&folder, &*name, flags, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
            if index < self.most {
                self.open.push(file);
            }
        }
        Ok(())
    }
}

/// CPU seconds of this thread.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
}

/// CPU seconds of a thread that runs: to the nanosecond where the kernel tells, else in ticks.
fn cpu_seconds(knobs: &Knobs, pid: u32) -> f64 {
    let exact = knobs.read(&format!("proc/{pid}/schedstat"));
    let exact = exact.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    let ticks = || {
        let stat = knobs.read(&format!("proc/{pid}/stat"))?;
        memferry_linux::process::cpu_seconds(&stat)
    };
    exact.map(|ns| ns / 1e9).or_else(ticks).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{put, tree};
    use crate::source::damon_tree;

    #[test]
    fn each_page_of_what_is_looked_at_is_a_region() {
        let root = tree();
        damon_tree(root.path());
        let folder = format!("{KDAMONDS}/{NUMBER}");
        let target = format!("{folder}/contexts/0/targets/0");
        let page = rustix::param::page_size();
        let count = CHUNKS * CHUNK / page;
        put(root.path(), &format!("{target}/regions/nr_regions"), "0");
        for region in 0..count {
            for file in ["start", "end"] {
                put(
                    root.path(),
                    &format!("{target}/regions/{region}/{file}"),
                    "",
                );
            }
        }
        let knobs = Knobs::open(root.path()).unwrap();
        let mut sampler = PageSampler::new(3);
        let process = ProcessId { pid: 7, start: 9 };
        let read = |file: &str| knobs.read(&format!("{folder}/contexts/{file}")).unwrap();
        let set = |sampler: &mut PageSampler, numbers: &[usize]| {
            sampler.set(&knobs, &folder, process, numbers)
        };
        set(&mut sampler, &[3, 9]).unwrap();
        assert_eq!([read("nr_contexts"), read("0/operations")], ["1", "fvaddr"]);
        assert_eq!(read("0/targets/0/pid_target"), "7");
        let attributes = |file: &str| read(&format!("0/monitoring_attrs/{file}"));
        let bounds = ["nr_regions/min", "nr_regions/max"].map(attributes);
        assert_eq!(bounds, [count.to_string(), count.to_string()]);
        let intervals = ["intervals/sample_us", "intervals/aggr_us"].map(attributes);
        assert_eq!(intervals, ["20000", "160000"]);
        let mut before = 0;
        for region in 0..count {
            let of = |file| {
                read(&format!("0/targets/0/regions/{region}/{file}"))
                    .parse()
                    .unwrap()
            };
            let (start, end): (usize, usize) = (of("start"), of("end"));
            let chunk = [3, 9].get(region * page / CHUNK);
            let is_there = chunk.map_or(start >= NOWHERE, |chunk| start / CHUNK == *chunk);
            assert!(start >= before && end == start + page && is_there);
            before = end;
        }
        // The kernel would make all of it anew.
        put(
            root.path(),
            &format!("{folder}/contexts/nr_contexts"),
            "kept",
        );
        put(root.path(), &format!("{target}/regions/0/start"), "");
        sampler.interval_us = 10_000;
        set(&mut sampler, &[4, 5]).unwrap();
        assert_eq!(
            [read("nr_contexts"), attributes("intervals/sample_us")],
            ["kept", "10000"]
        );
        assert_eq!(read("0/targets/0/regions/0/start"), (4 * CHUNK).to_string());
    }

    /// What the watching kdamonds take is not there for looks, and what is saved is bounded.
    #[test]
    fn looks_are_paid_for() {
        let root = tree();
        let mut knobs = Knobs::open(root.path()).unwrap();
        let tracepoint = Tracepoint::default();
        let mut asked = |sampler: &mut PageSampler, seconds: f64, others: f64| {
            sampler.last = sampler
                .last
                .map(|(_, before)| (Instant::now() - Duration::from_secs_f64(seconds), before));
            let mut is_asked = false;
            let mut next = |most| {
                is_asked = most == CHUNKS;
                None
            };
            sampler
                .go_on(&mut knobs, &tracepoint, others, &mut next)
                .unwrap();
            is_asked
        };
        let mut sampler = PageSampler::new(3);
        assert!(
            asked(&mut sampler, 0.0, 1.0),
            "what is new is looked at soon"
        );
        sampler.credit = -0.1;
        assert!(!asked(&mut sampler, 3.0, 1.0));
        assert!(asked(&mut sampler, 1.0, 1.0));
        assert!(!asked(&mut sampler, 10.0, 1.5));
        assert!(asked(&mut sampler, 3600.0, 1.5) && sampler.credit <= 0.03 * SAVED);
        // What regions took for long does not keep looks away for as long.
        assert!(!asked(&mut sampler, 1.0, 1000.0) && asked(&mut sampler, SAVED + 1.0, 1000.0));
    }
}
