// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON through sysfs: a kdamond that watches the address spaces of the first processes, and one for the others in turn. They name
//! regions at their [tracepoint](super::aggregated); where that cannot be had, by a scheme for each process that does nothing else.
//!
//! They have as many regions as the processes' memory wants and the [budget] of CPU time allows.
//!
//! The kdamonds are the daemon's own, or there are none: writing `nr_kdamonds` would remove those of others.

mod budget;
mod close;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use memferry_linux::damon::{Context, Setup};
use rustix::fs::{Mode, OFlags, openat};

use self::budget::{Budget, SAMPLES, most_work, work};
use self::close::PageSampler;
use super::aggregated::{self, Aggregated, Tracepoint};
use super::{CloseLooks, Report, Source};
use crate::error::DaemonError;
use crate::knobs::{KDAMONDS, Knobs};
use crate::machine::{bytes_of, text};
use crate::rights;
use crate::status::SampleStatus;
use crate::tiering::{CHUNK, ProcessId, Seen};

/// Microseconds of what a report covers: a round.
const AGGREGATE_US: u32 = 200_000;
/// Samples in a report where sysfs is read, which answers two samples later: one in 40 ms.
const SYSFS_SAMPLES: u32 = 5;
/// Microseconds until it looks again for what a process has mapped.
const UPDATE_US: u32 = 1_000_000;
/// Regions of a kdamond whose processes have little memory.
const LEAST: usize = 32;
/// Regions of a kdamond at most where sysfs is read: each in use takes the daemon some 50,000 instructions in a report.
const SYSFS_MOST: usize = 512;
/// So many of the most regions are one of the least, which bound how large one is: what is hot of a larger one is rarely sampled, and takes
/// idle neighbours along.
const LEAST_PART: usize = 5;
/// Processes that a kdamond watches at most: each begins with as many regions as all have at least.
const PROCESSES: usize = 32;
/// Regions that a process begins with at most, unless all processes together then have no more than they may: DAMON samples all of
/// them until it first merges some.
const BEGIN: usize = SYSFS_MOST / LEAST_PART;
/// A process that is watched stays so until it is that far beyond the first [`PROCESSES`]: a new set begins without knowledge.
const SLACK: usize = 8;
/// Times that [`Source::watch`] is called in a minute, less one: within those each process has its turn.
const TURNS: usize = 11;

/// All of the daemon: of the first processes, of the others in turn, and of close looks.
const COUNT: usize = 3;

/// DAMON as a source.
#[derive(Debug)]
pub(crate) struct Damon {
    /// What names the regions, unless schemes do.
    tracepoint: Option<Tracepoint>,
    /// Of the first processes, and of the others in turn.
    kdamonds: [Kdamond; 2],
    /// The turn of each of the others.
    turns: BTreeMap<ProcessId, u64>,
    turn: u64,
    budget: Budget,
    sampler: PageSampler,
    /// Regions of a kdamond at most, whatever the budget.
    most: usize,
    /// Records of the tracepoint.
    records: SampleStatus,
}

#[derive(Debug, Default)]
struct Kdamond {
    number: usize,
    watched: Vec<ProcessId>,
    /// Regions that its processes' memory wants.
    wanted: usize,
    /// Regions at most.
    regions: usize,
    /// Samples of each in a report.
    samples: u32,
    /// Regions at least and at most, as they were written last, and samples.
    bounds: [usize; 2],
    sampled: u32,
    aggregated: Option<Aggregated>,
    /// Number of the thread that was begun last.
    own: Option<u32>,
    /// CPU seconds of those before it.
    spent: f64,
}

/// Who has DAMON, if anybody: kdamonds in its sysfs, or modules that want it alone.
fn foreign(root: &Path) -> Option<String> {
    let count: u32 = text(root, &format!("{KDAMONDS}/nr_kdamonds"))?
        .parse()
        .ok()?;
    let state = |number: u32| text(root, &format!("{KDAMONDS}/{number}/state"));
    if let Some(number) = (0..count).find(|number| state(*number).as_deref() == Some("on")) {
        let pid = text(root, &format!("{KDAMONDS}/{number}/pid")).unwrap_or_default();
        return Some(format!("somebody else's kdamond {number} (pid {pid}) runs"));
    }
    if count > 0 {
        return Some(format!("somebody else has set up {count} kdamonds"));
    }
    let is_on = |module: &&str| {
        let on = text(root, &format!("sys/module/{module}/parameters/enabled"));
        matches!(on.as_deref(), Some("Y" | "1"))
    };
    let modules = ["damon_stat", "damon_reclaim", "damon_lru_sort"];
    modules
        .iter()
        .find(|module| is_on(module))
        .map(|module| format!("{module} has DAMON"))
}

/// Why DAMON cannot be had; `None` if it can.
pub fn absence(root: &Path) -> Option<String> {
    match text(root, &format!("{KDAMONDS}/nr_kdamonds")) {
        None => Some(
            "this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS), or it is for root only"
                .to_owned(),
        ),
        Some(_) => foreign(root),
    }
}

/// Whether it is there, and somebody else has it.
pub(super) fn is_taken(root: &Path) -> bool {
    foreign(root).is_some()
}

impl Damon {
    /// Takes the kdamonds, which watch nothing yet, and may take so many percent of one CPU.
    pub(crate) fn new(knobs: &mut Knobs, budget: u32) -> Result<Self, DaemonError> {
        let kdamond = |number| Kdamond {
            number,
            samples: SAMPLES,
            ..Kdamond::default()
        };
        let mut damon = Self {
            tracepoint: None,
            kdamonds: [kdamond(0), kdamond(1)],
            turns: BTreeMap::new(),
            turn: 0,
            budget: Budget::new(budget),
            sampler: PageSampler::new(budget),
            most: SYSFS_MOST,
            records: SampleStatus {
                event: "damon_aggregated".to_owned(),
                period: 1,
                ..SampleStatus::default()
            },
        };
        damon.take(knobs)?;
        // Another tree's number would be some tracepoint of this kernel.
        if knobs.root() == Path::new("/") {
            damon.tracepoint = Tracepoint::read(knobs.root()).map_err(without).ok();
        }
        if damon.tracepoint.is_some() {
            damon.most = aggregated::REGIONS;
        }
        Ok(damon)
    }

    /// What a kdamond watches, and its regions at most.
    #[cfg(test)]
    pub(crate) fn of_kdamond(&self, number: usize) -> (&[ProcessId], usize, u32) {
        let of = &self.kdamonds[number];
        (&of.watched, of.regions, of.samples)
    }

    /// With as many regions as where the tracepoint can be had.
    #[cfg(test)]
    pub(crate) fn with_all_regions(mut self) -> Self {
        self.most = aggregated::REGIONS;
        self
    }

    /// Has kdamonds set up that are off. Whoever had DAMON meanwhile may have left another number of them.
    fn take(&self, knobs: &mut Knobs) -> Result<(), DaemonError> {
        let (count, ours) = (format!("{KDAMONDS}/nr_kdamonds"), COUNT.to_string());
        knobs.keep(&count, "0")?;
        if knobs.read(&count).as_deref() == Some(&*ours) {
            return Ok(());
        }
        knobs.write(&count, &ours)
    }

    /// CPU seconds of the kdamonds that watch all the time.
    fn watching(&self, knobs: &Knobs) -> Option<f64> {
        let each = self.kdamonds.iter().filter_map(|of| of.cpu_seconds(knobs));
        each.reduce(|sum, of| sum + of)
    }

    /// Of all but the first processes, those whose turn is next.
    fn next_in_turn(&mut self, others: &[ProcessId]) -> Vec<ProcessId> {
        let there: BTreeSet<&ProcessId> = others.iter().collect();
        self.turns.retain(|process, _| there.contains(process));
        // One that comes waits for those that came before it.
        for process in others {
            self.turns.entry(*process).or_insert(self.turn);
        }
        self.turn += 1;
        let count = others.len().div_ceil(TURNS).min(PROCESSES);
        let mut next = others.to_vec();
        next.sort_by_key(|process| self.turns[process]);
        next.truncate(count);
        let turns = next.iter().map(|process| (*process, self.turn));
        self.turns.extend(turns);
        next
    }

    /// As [`Source::watch`], at a time.
    pub(crate) fn watch_at(
        &mut self,
        knobs: &mut Knobs,
        processes: &[ProcessId],
        now: Instant,
    ) -> Result<usize, DaemonError> {
        let is_foreign = |of: &Kdamond| of.any_is_on(knobs) && !of.is_on(knobs);
        if self.kdamonds.iter().any(is_foreign) {
            knobs.forget(KDAMONDS)?;
            let who = "another user of DAMON came".to_owned();
            return Err(DaemonError::Taken { who });
        }
        let near = &processes[..processes.len().min(PROCESSES + SLACK)];
        let stays = |process: &&ProcessId| self.kdamonds[0].watched.contains(process);
        let (stay, come): (Vec<ProcessId>, Vec<ProcessId>) = near.iter().partition(stays);
        let first: Vec<ProcessId> = stay.into_iter().chain(come).take(PROCESSES).collect();
        let is_other = |process: &&ProcessId| !first.contains(process);
        let others: Vec<ProcessId> = processes.iter().filter(is_other).copied().collect();
        let others = self.next_in_turn(&others);
        let count = first.len() + others.len();
        let seconds = self.watching(knobs).unwrap_or(0.0);
        let sum = |of: fn(&Kdamond) -> usize| self.kdamonds.iter().map(of).sum();
        let done = sum(|of| work(of.regions, of.samples));
        let wanted = most_work(sum(|of| of.wanted));
        self.budget.measure(now, seconds, done, wanted);
        for (kdamond, processes) in self.kdamonds.iter_mut().zip([&first, &others]) {
            kdamond.wanted = wanted_by(knobs.root(), processes, kdamond.wanted, self.most);
        }
        let shares = self
            .budget
            .shares(self.kdamonds.each_ref().map(|of| of.wanted));
        let samples = match self.most {
            SYSFS_MOST => SYSFS_SAMPLES,
            _ => self.budget.samples(shares.iter().sum()),
        };
        for kdamond in &mut self.kdamonds {
            kdamond.samples = samples;
        }
        for ((number, processes), regions) in [first, others].into_iter().enumerate().zip(shares) {
            self.set(knobs, number, processes, regions)?;
        }
        Ok(count)
    }

    /// Lets a kdamond watch these processes, with so many regions at most.
    fn set(
        &mut self,
        knobs: &mut Knobs,
        number: usize,
        mut processes: Vec<ProcessId>,
        regions: usize,
    ) -> Result<(), DaemonError> {
        processes.sort_unstable();
        let kdamond = &mut self.kdamonds[number];
        let is_on = kdamond.is_on(knobs);
        kdamond.regions = regions;
        if processes == kdamond.watched {
            if processes.is_empty() {
                return Ok(());
            }
            if is_on {
                return kdamond.resize(knobs);
            }
        }
        if is_on {
            self.kdamonds[number].end(knobs)?;
        } else if kdamond.own.is_some() && !kdamond.watched.is_empty() {
            tracing::info!(
                kdamond = number,
                "it had ended, as with the last of its processes: it is begun again"
            );
        }
        let kdamond = &mut self.kdamonds[number];
        kdamond.watched = processes;
        kdamond.aggregated = None;
        if kdamond.watched.is_empty() {
            return Ok(());
        }
        self.take(knobs)?;
        let kdamond = &mut self.kdamonds[number];
        kdamond.begin(knobs, self.tracepoint.is_some())?;
        let Some(tracepoint) = &self.tracepoint else {
            return Ok(());
        };
        if let Err(error) = kdamond.listen(tracepoint) {
            without(rights::explain(knobs.root(), error, &[rights::SAMPLE]));
            self.tracepoint = None;
            self.most = SYSFS_MOST;
            kdamond.samples = SYSFS_SAMPLES;
            kdamond.regions = kdamond.regions.min(SYSFS_MOST);
            kdamond.end(knobs)?;
            kdamond.begin(knobs, false)?;
        }
        Ok(())
    }
}

impl Kdamond {
    fn folder(&self) -> String {
        format!("{KDAMONDS}/{}", self.number)
    }

    /// The number of the thread, if one runs.
    fn pid(&self, knobs: &Knobs) -> Option<u32> {
        knobs.read(&format!("{}/pid", self.folder()))?.parse().ok()
    }

    /// Whether one runs, and it is the daemon's. While none of its processes is there, somebody else may begin one.
    fn is_on(&self, knobs: &Knobs) -> bool {
        self.any_is_on(knobs) && self.pid(knobs) == self.own
    }

    fn any_is_on(&self, knobs: &Knobs) -> bool {
        // In between, the file of a tree for tests says what was written last.
        knobs
            .read(&format!("{}/state", self.folder()))
            .is_some_and(|state| state != "off")
    }

    fn begin(&mut self, knobs: &mut Knobs, by_tracepoint: bool) -> Result<(), DaemonError> {
        let count = self.watched.len();
        let schemes = if by_tracepoint { 0 } else { count };
        let [least, most] = bounds(self.regions);
        self.bounds = [least.min(BEGIN.max(most / count)), most];
        self.sampled = self.samples;
        let mut setup = Setup::default();
        let context = setup.context(
            self.number,
            &Context {
                operations: "vaddr",
                intervals_us: intervals_us(self.samples),
                regions: self.bounds,
                targets: count,
                schemes,
            },
        );
        for (index, process) in self.watched.iter().enumerate() {
            let target = format!("{context}/targets/{index}/pid_target");
            setup.put(target, process.pid);
        }
        for index in 0..schemes {
            // The kernel answers at the next sample, not when it aggregates. Idle regions are not named: each would take a folder in
            // sysfs, and its reading.
            let [sample_us, ..] = intervals_us(self.samples);
            let scheme = setup.scheme(&context, index, "stat", sample_us, 1..=u32::MAX);
            // All but this process is filtered out.
            setup.put(format!("{scheme}/filters/nr_filters"), 1);
            setup.put(format!("{scheme}/filters/0/type"), "target");
            setup.put(format!("{scheme}/filters/0/matching"), "N");
            setup.put(format!("{scheme}/filters/0/damon_target_idx"), index);
        }
        for (file, text) in &setup.files {
            // Linux before 6.7 answers when it aggregates.
            if !file.ends_with("apply_interval_us") || knobs.read(file).is_some() {
                knobs.write(file, text)?;
            }
        }
        let state = format!("{}/state", self.folder());
        knobs.keep(&state, "off")?;
        knobs.write(&state, "on")?;
        self.own = self.pid(knobs);
        Ok(())
    }

    /// Lets one that runs have its regions from now on; what it knows stays. A kernel that refuses fails the write, or ends the kdamond,
    /// which is then begun again.
    fn resize(&mut self, knobs: &Knobs) -> Result<(), DaemonError> {
        let bounds = bounds(self.regions);
        if (bounds, self.samples) == (self.bounds, self.sampled) {
            return Ok(());
        }
        let (mut setup, context) = (Setup::default(), format!("{}/contexts/0", self.folder()));
        setup.intervals(&context, intervals_us(self.samples));
        setup.regions(&context, bounds);
        setup.put(format!("{}/state", self.folder()), "commit");
        for (file, text) in &setup.files {
            knobs.write(file, text)?;
        }
        (self.bounds, self.sampled) = (bounds, self.samples);
        Ok(())
    }

    /// Ends it; the next one's CPU time begins at nothing.
    fn end(&mut self, knobs: &Knobs) -> Result<(), DaemonError> {
        self.spent = self.cpu_seconds(knobs).unwrap_or(self.spent);
        knobs.write(&format!("{}/state", self.folder()), "off")
    }

    /// Listens to the thread that just began.
    fn listen(&mut self, tracepoint: &Tracepoint) -> io::Result<()> {
        let pid = self
            .own
            .ok_or_else(|| io::Error::other("the kdamond has no number"))?;
        self.aggregated = Some(Aggregated::open(tracepoint, pid)?);
        Ok(())
    }

    /// What it saw of each of its processes, for which it waits so long at most; nothing if it has ended or `records` were lost.
    fn report(
        &mut self,
        knobs: &Knobs,
        patience: Duration,
        records: &mut SampleStatus,
    ) -> Result<Vec<(ProcessId, Vec<Seen>)>, DaemonError> {
        if self.watched.is_empty() || !self.is_on(knobs) {
            return Ok(Vec::new());
        }
        let samples = self.sampled;
        if let Some(aggregated) = &mut self.aggregated {
            let report = aggregated.report(self.watched.len(), samples, patience, records);
            let processes = self.watched.iter().copied();
            return Ok(processes.zip(report.unwrap_or_default()).collect());
        }
        // The kernel answers when the regions are there; all processes may have ended meanwhile.
        let state = format!("{}/state", self.folder());
        if let Err(error) = knobs.write(&state, "update_schemes_tried_regions") {
            return match self.is_on(knobs) {
                true => Err(error),
                false => Ok(Vec::new()),
            };
        }
        let regions = |(index, process): (usize, &ProcessId)| {
            let folder = format!("{}/contexts/0/schemes/{index}/tried_regions", self.folder());
            (*process, regions(knobs, &folder, samples))
        };
        Ok(self.watched.iter().enumerate().map(regions).collect())
    }

    fn cpu_seconds(&self, knobs: &Knobs) -> Option<f64> {
        let own = self.own?;
        let now = self.pid(knobs).filter(|pid| *pid == own).and_then(|pid| {
            let stat = knobs.read(&format!("proc/{pid}/stat"))?;
            memferry_linux::process::cpu_seconds(&stat)
        });
        Some(self.spent + now.unwrap_or(0.0))
    }
}

/// Says why sysfs is read instead of the tracepoint.
fn without(error: io::Error) {
    tracing::info!(
        "DAMON's regions are read from sysfs, which costs more: its tracepoint cannot be had: {error}"
    );
}

impl Source for Damon {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn watch(&mut self, knobs: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError> {
        self.watch_at(knobs, processes, Instant::now())
    }

    fn report(&mut self, knobs: &mut Knobs) -> Result<Report, DaemonError> {
        // Both report once in that time, together.
        let patience = Duration::from_micros((AGGREGATE_US + AGGREGATE_US / SAMPLES).into());
        let (began, mut seen) = (Instant::now(), Vec::new());
        for kdamond in &mut self.kdamonds {
            let patience = patience.saturating_sub(began.elapsed());
            seen.extend(kdamond.report(knobs, patience, &mut self.records)?);
        }
        Ok(Report::Accesses(seen))
    }

    fn look_closely(
        &mut self,
        knobs: &mut Knobs,
        next: &mut dyn FnMut(usize) -> Option<(ProcessId, Vec<usize>)>,
    ) -> Result<Option<CloseLooks>, DaemonError> {
        let others = self.watching(knobs).unwrap_or(0.0);
        match &self.tracepoint {
            Some(tracepoint) => self.sampler.go_on(knobs, tracepoint, others, next),
            None => Ok(None),
        }
    }

    fn cpu_seconds(&self, knobs: &Knobs) -> Option<f64> {
        Some(self.watching(knobs)? + self.sampler.spent)
    }

    fn regions(&self) -> Option<u64> {
        let each = self.kdamonds.iter().map(|of| of.regions as u64);
        Some(each.sum())
    }

    fn samples(&self) -> Option<SampleStatus> {
        self.tracepoint.is_some().then(|| self.records.clone())
    }
}

/// From sample to sample, of a report, and until it looks again for what a process has mapped.
fn intervals_us(samples: u32) -> [u32; 3] {
    [AGGREGATE_US / samples, AGGREGATE_US, UPDATE_US]
}

/// Regions at least and at most.
fn bounds(regions: usize) -> [usize; 2] {
    [regions / LEAST_PART, regions]
}

/// Regions that suit the processes' memory: one for each chunk that they have mapped, rounded up to a power of two, and those `before`
/// as long as they are up to twice that. What has ended since counts nothing.
fn wanted_by(root: &Path, processes: &[ProcessId], before: usize, most: usize) -> usize {
    if processes.is_empty() {
        return 0;
    }
    let mapped = |process: &ProcessId| bytes_of(root, process.pid, 0);
    let bytes: u64 = processes.iter().filter_map(mapped).sum();
    let now = (bytes as usize / CHUNK)
        .clamp(LEAST, most)
        .next_power_of_two();
    match (now..=2 * now).contains(&before) {
        true => before.min(most),
        false => now,
    }
}

fn regions(knobs: &Knobs, folder: &str, of: u32) -> Vec<Seen> {
    let folder = knobs.root().join(folder);
    let (Ok(at), Ok(entries)) = (File::open(&folder), fs::read_dir(&folder)) else {
        return Vec::new();
    };
    // Looked up from their folder on, and read at once: hundreds of files five times a second.
    let number = |region: &Path, file: &str| -> Option<u64> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&at, region.join(file), flags, Mode::empty()).ok()?;
        let mut text = [0; 24];
        let length = rustix::io::read(file, &mut text).ok()?;
        std::str::from_utf8(&text[..length])
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let region = |name: OsString| {
        let region = Path::new(&name);
        Some(Seen {
            range: number(region, "start")? as usize..number(region, "end")? as usize,
            accesses: number(region, "nr_accesses")? as u32,
            of,
        })
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(region).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::SourceChoice;
    use crate::machine::Machine;
    use crate::machine::tests::{put, tree};
    use crate::source::tests::choose;

    /// The files that a kernel makes for kdamonds with some processes each.
    pub(crate) fn damon(root: &Path) {
        put(root, &format!("{KDAMONDS}/nr_kdamonds"), "0");
        (0..COUNT).for_each(|number| kdamond(root, &format!("{KDAMONDS}/{number}")));
    }

    fn kdamond(root: &Path, kdamond: &str) {
        for (folder, files) in [
            ("", "state pid contexts/nr_contexts"),
            (
                "contexts/0",
                "operations targets/nr_targets targets/0/pid_target schemes/nr_schemes",
            ),
            (
                "contexts/0/monitoring_attrs",
                "intervals/sample_us intervals/aggr_us intervals/update_us nr_regions/min nr_regions/max",
            ),
            ("contexts/0/schemes/0", "action apply_interval_us"),
            (
                "contexts/0/schemes/0/access_pattern",
                "sz/min sz/max nr_accesses/min nr_accesses/max age/min age/max",
            ),
            (
                "contexts/0/schemes/0/filters",
                "nr_filters 0/type 0/matching 0/damon_target_idx",
            ),
        ] {
            for file in files.split(' ') {
                let file = format!("{kdamond}/{folder}/{file}");
                let numbers = if file.contains("targets/0") || file.contains("schemes/0") {
                    0..PROCESSES
                } else {
                    0..1
                };
                for number in numbers {
                    let of = |list: &str| format!("contexts/0/{list}/{number}/");
                    let file = file.replace("contexts/0/targets/0/", &of("targets"));
                    put(
                        root,
                        &file.replace("contexts/0/schemes/0/", &of("schemes")),
                        "",
                    );
                }
            }
        }
        for (file, text) in [
            ("state", "off"),
            ("pid", "-1"),
            ("contexts/0/schemes/0/tried_regions/0/start", "4194304"),
            ("contexts/0/schemes/0/tried_regions/0/end", "8388608"),
            ("contexts/0/schemes/0/tried_regions/0/nr_accesses", "3"),
        ] {
            put(root, &format!("{kdamond}/{file}"), text);
        }
    }

    /// A process that has so many bytes mapped.
    fn maps(root: &Path, pid: u32, bytes: usize) {
        let pages = bytes / rustix::param::page_size();
        put(
            root,
            &format!("proc/{pid}/statm"),
            &format!("{pages} 1 1 1 0 1 0\n"),
        );
    }

    #[test]
    fn a_process_is_watched_and_all_comes_back() {
        let root = tree();
        damon(root.path());
        let machine = Machine::read(root.path()).unwrap();
        let mut knobs = Knobs::open(root.path()).unwrap();
        let (mut source, why) = choose(SourceChoice::Auto, &machine, &mut knobs, false).unwrap();
        assert_eq!(
            (source.name(), why.as_str()),
            ("damon", "DAMON is there and free")
        );
        assert_eq!(
            source.report(&mut knobs).unwrap(),
            Report::Accesses(Vec::new())
        );
        let process = ProcessId {
            pid: 4711,
            start: 9,
        };
        assert_eq!(source.watch(&mut knobs, &[process]).unwrap(), 1);
        let read = |file: &str| machine.text(&format!("{KDAMONDS}/{file}")).unwrap();
        assert_eq!(
            (read("nr_kdamonds"), read("0/state")),
            (COUNT.to_string(), "on".into())
        );
        assert_eq!(read("1/state"), "off");
        assert_eq!(read("0/contexts/0/targets/0/pid_target"), "4711");
        // Of another tree sysfs is read.
        let sample = "0/contexts/0/monitoring_attrs/intervals/sample_us";
        assert_eq!(read(sample), (AGGREGATE_US / SYSFS_SAMPLES).to_string());
        let regions = |machine: &Machine| {
            let file = |of| format!("{KDAMONDS}/0/contexts/0/monitoring_attrs/nr_regions/{of}");
            ["min", "max"].map(|of| machine.text(&file(of)).unwrap())
        };
        assert_eq!(regions(&machine), ["6", "32"]);
        // As it grows it has more; a little less memory changes nothing. What the kdamond knows stays.
        for (mebibytes, wanted) in [
            (300, ["51", "256"]),
            (250, ["51", "256"]),
            (1 << 20, ["102", "512"]),
            (100, ["12", "64"]),
        ] {
            maps(root.path(), process.pid, mebibytes << 20);
            source.watch(&mut knobs, &[process]).unwrap();
            assert_eq!(
                (regions(&machine), read("0/state").as_str()),
                (wanted.map(String::from), "commit"),
                "{mebibytes}"
            );
        }
        let seen = Seen {
            range: 4 << 20..8 << 20,
            accesses: 3,
            of: 5,
        };
        assert_eq!(
            source.report(&mut knobs).unwrap(),
            Report::Accesses(vec![(process, vec![seen])])
        );
        // The CPU time of kdamonds adds up.
        let taken = |pid: u32, ticks: u64| {
            put(root.path(), &format!("{KDAMONDS}/0/pid"), &pid.to_string());
            let stat = format!("{pid} (kdamond.0) S {}{ticks} 0\n", "0 ".repeat(10));
            put(root.path(), &format!("proc/{pid}/stat"), &stat);
        };
        let second = rustix::param::clock_ticks_per_second();
        put(root.path(), &format!("{KDAMONDS}/0/state"), "off");
        taken(90, 2 * second);
        source.watch(&mut knobs, &[process]).unwrap();
        assert_eq!(source.cpu_seconds(&knobs), Some(2.0));
        source.watch(&mut knobs, &[]).unwrap();
        taken(91, 3 * second);
        source.watch(&mut knobs, &[process]).unwrap();
        assert_eq!(source.cpu_seconds(&knobs), Some(5.0));
        drop(knobs);
        assert_eq!(
            (read("nr_kdamonds"), read("0/state")),
            ("0".into(), "off".into())
        );
        // One that somebody else began while nothing was watched stays.
        let mut knobs = Knobs::open(root.path()).unwrap();
        let (mut source, _) = choose(SourceChoice::Damon, &machine, &mut knobs, false).unwrap();
        put(root.path(), &format!("{KDAMONDS}/0/state"), "on");
        taken(92, 0);
        let told = source
            .watch(&mut knobs, &[process])
            .unwrap_err()
            .to_string();
        assert!(told.contains("another user of DAMON"), "{told}");
        drop(knobs);
        assert_eq!(
            (read("nr_kdamonds"), read("0/state")),
            (COUNT.to_string(), "on".into())
        );
        put(root.path(), &format!("{KDAMONDS}/0/state"), "off");
        put(root.path(), &format!("{KDAMONDS}/nr_kdamonds"), "0");
        // Who else moves pages is said of a daemon that does.
        put(root.path(), crate::knobs::BALANCING, "1\n");
        put(root.path(), crate::knobs::PGHOT, "4\n");
        for act in [true, false] {
            let mut knobs = Knobs::open(root.path()).unwrap();
            let (_, why) = choose(SourceChoice::Damon, &machine, &mut knobs, act).unwrap();
            assert_eq!(
                why.ends_with("; NUMA balancing is on, too; pghot is on, too"),
                act
            );
        }
    }

    #[test]
    fn regions_of_a_terabyte_are_what_the_budget_pays_for() {
        let root = tree();
        damon(root.path());
        let mut knobs = Knobs::open(root.path()).unwrap();
        let mut source = Damon::new(&mut knobs, 3).unwrap();
        // As with the tracepoint.
        source.most = aggregated::REGIONS;
        let process = ProcessId { pid: 7, start: 9 };
        maps(root.path(), 7, 1 << 40);
        put(root.path(), &format!("{KDAMONDS}/0/pid"), "90");
        let (mut now, mut seconds) = (Instant::now(), 0.0);
        // After 20 times 5 s in which a region took so much of one CPU.
        let mut after = |cost: f64| {
            for _ in 0..20 {
                let ticks = (seconds * rustix::param::clock_ticks_per_second() as f64) as u64;
                let stat = format!("90 (kdamond.0) S {}{ticks} 0\n", "0 ".repeat(10));
                put(root.path(), "proc/90/stat", &stat);
                source.watch_at(&mut knobs, &[process], now).unwrap();
                now += Duration::from_secs(5);
                seconds += 5.0 * cost * source.regions().unwrap() as f64;
            }
            let folder = format!("{KDAMONDS}/0/contexts/0/monitoring_attrs/nr_regions");
            let [least, most] =
                ["min", "max"].map(|of| knobs.read(&format!("{folder}/{of}")).unwrap());
            assert_eq!(
                least.parse::<usize>().unwrap(),
                most.parse::<usize>().unwrap() / 5
            );
            // It was not begun again.
            assert_eq!(source.kdamonds[0].spent, 0.0);
            most
        };
        assert_eq!(after(10e-6), "2048");
        assert_eq!(after(100e-6), "256");
        assert_eq!(after(0.0), "8192");
        // Many processes begin with no more regions in all than they may have, until these are merged.
        let processes: Vec<ProcessId> = (1..=32).map(|pid| ProcessId { pid, start: 9 }).collect();
        for least in ["256", "1638"] {
            source.watch_at(&mut knobs, &processes, now).unwrap();
            let least_now = format!("{KDAMONDS}/0/contexts/0/monitoring_attrs/nr_regions/min");
            assert_eq!(knobs.read(&least_now).unwrap(), least);
        }
    }

    #[test]
    fn each_of_hundreds_of_processes_has_its_turn_within_a_minute() {
        let root = tree();
        damon(root.path());
        let mut knobs = Knobs::open(root.path()).unwrap();
        let mut source = Damon::new(&mut knobs, 3).unwrap();
        let processes: Vec<ProcessId> = (1..=300).map(|pid| ProcessId { pid, start: 9 }).collect();
        let mut seen = Vec::new();
        let mut first = Vec::new();
        for turn in 0..=TURNS {
            let watched = source.watch(&mut knobs, &processes).unwrap();
            assert!(watched <= 2 * PROCESSES, "{watched}");
            let Report::Accesses(report) = source.report(&mut knobs).unwrap() else {
                panic!()
            };
            assert_eq!(report.len(), watched);
            seen.extend(report.iter().map(|(process, _)| *process));
            if turn == 0 {
                first = source.kdamonds[0].watched.clone();
            }
            assert_eq!(source.kdamonds[0].watched, first);
        }
        assert!(processes.iter().all(|process| seen.contains(process)));
        // Those that come all the time take nobody's turn.
        let mut processes = processes;
        let mut seen = Vec::new();
        for turn in 0..=TURNS as u32 {
            processes.extend((0..8).map(|of| ProcessId {
                pid: 1000 + 8 * turn + of,
                start: 9,
            }));
            source.watch(&mut knobs, &processes).unwrap();
            seen.extend(source.kdamonds[1].watched.clone());
        }
        let mut old = processes[PROCESSES..300].iter();
        assert!(old.all(|process| seen.contains(process)));
        // The second one ends with its processes.
        source.watch(&mut knobs, &processes[..4]).unwrap();
        let state = |number| knobs.read(&format!("{KDAMONDS}/{number}/state"));
        assert_eq!(
            (state(0).as_deref(), state(1).as_deref()),
            (Some("on"), Some("off"))
        );
    }

    /// A report that says nothing of a process is not the same as one that saw nothing of it in use.
    #[test]
    fn a_kdamond_that_has_ended_reports_on_no_process_and_is_begun_again() {
        let root = tree();
        damon(root.path());
        let mut knobs = Knobs::open(root.path()).unwrap();
        let mut source = Damon::new(&mut knobs, 3).unwrap();
        let process = ProcessId { pid: 7, start: 9 };
        let mut reported = |is_watched: bool| {
            if is_watched {
                source.watch(&mut knobs, &[process]).unwrap();
            }
            match source.report(&mut knobs).unwrap() {
                Report::Accesses(report) => report.len(),
                Report::Kernel { .. } => panic!(),
            }
        };
        assert_eq!(reported(true), 1);
        put(root.path(), &format!("{KDAMONDS}/0/state"), "off");
        assert_eq!(reported(false), 0);
        assert_eq!(reported(true), 1);
    }

    #[test]
    fn somebody_elses_damon_is_waited_for_and_left_alone() {
        let root = tree();
        damon(root.path());
        put(root.path(), &format!("{KDAMONDS}/nr_kdamonds"), "1");
        put(root.path(), &format!("{KDAMONDS}/0/state"), "on");
        put(root.path(), &format!("{KDAMONDS}/0/pid"), "77");
        put(root.path(), crate::knobs::BALANCING, "1");
        let machine = Machine::read(root.path()).unwrap();
        let mut knobs = Knobs::open(root.path()).unwrap();
        // NUMA balancing is for the whole host: it is not taken instead.
        for source in [SourceChoice::Damon, SourceChoice::Auto] {
            let (source, why) = choose(source, &machine, &mut knobs, true).unwrap();
            assert!(
                source.is_absent() && why.contains("kdamond 0 (pid 77)"),
                "{why}"
            );
        }
        assert_eq!(machine.text(crate::knobs::BALANCING).unwrap(), "1");
        put(root.path(), &format!("{KDAMONDS}/nr_kdamonds"), "0");
        let module = "sys/module/damon_stat/parameters/enabled";
        put(root.path(), module, "Y\n");
        assert_eq!(foreign(root.path()).unwrap(), "damon_stat has DAMON");
    }
}
