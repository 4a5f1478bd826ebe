// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON through sysfs: one kdamond that watches the address spaces of processes. It names their regions at its
//! [tracepoint](super::aggregated); where that cannot be had, by a scheme for each process that does nothing else.
//!
//! The kdamond is the daemon's own, or there is none: writing `nr_kdamonds` would remove those of others.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use memferry_linux::damon::{Context, Setup};
use rustix::fs::{Mode, OFlags, openat};

use super::aggregated::{Aggregated, Tracepoint};
use super::{Report, Source};
use crate::error::DaemonError;
use crate::knobs::{KDAMONDS, Knobs};
use crate::machine::{bytes_of, text};
use crate::rights;
use crate::tiering::{CHUNK, ProcessId, Seen};

/// Microseconds of what a report covers: a round.
const AGGREGATE_US: u32 = 200_000;
/// Microseconds from sample to sample. DAMON's CPU time is proportional to the number of samples. With 40,000 hot memory was found no sooner,
/// with one sample in a report later.
const SAMPLE_US: u32 = 100_000;
/// The same where sysfs is read, which answers two samples later.
const SYSFS_SAMPLE_US: u32 = 40_000;
/// Microseconds until it looks again for what a process has mapped.
const UPDATE_US: u32 = 1_000_000;
/// Regions of all processes at most, and where they have little memory.
const REGIONS: [usize; 2] = [32, 512];
/// So many of the most regions are one of the least, which bound how large one is: what is hot of a larger one is rarely sampled, and takes
/// idle neighbours along.
const LEAST_PART: usize = 5;
/// Processes that are watched at most: each begins with as many regions as all have at least.
const PROCESSES: usize = 32;

/// DAMON as a source.
#[derive(Debug)]
pub(super) struct Damon {
    watched: Vec<ProcessId>,
    /// Regions at most.
    regions: usize,
    /// What names the regions, unless schemes do.
    tracepoint: Option<Tracepoint>,
    aggregated: Option<Aggregated>,
    /// Number of the kdamond that was begun last.
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

impl Damon {
    /// Takes a kdamond, which watches nothing yet.
    pub(super) fn new(knobs: &mut Knobs) -> Result<Self, DaemonError> {
        Self::take(knobs)?;
        let mut damon = Self {
            own: None,
            spent: 0.0,
            watched: Vec::new(),
            regions: 0,
            tracepoint: None,
            aggregated: None,
        };
        // Another tree's number would be some tracepoint of this kernel.
        if knobs.root() == Path::new("/") {
            damon.tracepoint = Tracepoint::read(knobs.root()).map_err(without).ok();
        }
        Ok(damon)
    }

    /// Has a kdamond set up that is off. Whoever had DAMON meanwhile may have left another number of them.
    fn take(knobs: &mut Knobs) -> Result<(), DaemonError> {
        let count = format!("{KDAMONDS}/nr_kdamonds");
        knobs.keep(&count, "0")?;
        knobs.write(&count, "1")
    }

    /// Whether a kdamond runs, and it is the daemon's. While none of its processes is there, somebody else may begin one.
    fn is_on(&self, knobs: &Knobs) -> bool {
        Self::any_is_on(knobs) && kdamond(knobs) == self.own
    }

    fn any_is_on(knobs: &Knobs) -> bool {
        // In between, the file of a tree for tests says what was written last.
        knobs
            .read(&format!("{KDAMONDS}/0/state"))
            .is_some_and(|state| state != "off")
    }

    fn sample_us(&self) -> u32 {
        match self.tracepoint {
            Some(_) => SAMPLE_US,
            None => SYSFS_SAMPLE_US,
        }
    }

    fn begin(&mut self, knobs: &mut Knobs) -> Result<(), DaemonError> {
        Self::take(knobs)?;
        let count = self.watched.len();
        let schemes = if self.tracepoint.is_some() { 0 } else { count };
        let mut setup = Setup::default();
        let context = setup.context(
            0,
            &Context {
                operations: "vaddr",
                intervals_us: [self.sample_us(), AGGREGATE_US, UPDATE_US],
                regions: [self.regions / LEAST_PART, self.regions],
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
            let scheme = setup.scheme(&context, index, "stat", SYSFS_SAMPLE_US, 1..=u32::MAX);
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
        let state = format!("{KDAMONDS}/0/state");
        knobs.keep(&state, "off")?;
        knobs.write(&state, "on")?;
        self.own = kdamond(knobs);
        Ok(())
    }

    /// Ends the kdamond; the next one's CPU time begins at nothing.
    fn end(&mut self, knobs: &Knobs) -> Result<(), DaemonError> {
        self.spent = self.cpu_seconds(knobs).unwrap_or(self.spent);
        knobs.write(&format!("{KDAMONDS}/0/state"), "off")
    }

    /// Listens to the kdamond that just began.
    fn listen(&mut self, knobs: &mut Knobs) -> Result<(), DaemonError> {
        let Some(tracepoint) = &self.tracepoint else {
            return Ok(());
        };
        let kdamond = kdamond(knobs).ok_or_else(|| io::Error::other("the kdamond has no number"));
        match kdamond.and_then(|of| Aggregated::open(tracepoint, of)) {
            Ok(aggregated) => self.aggregated = Some(aggregated),
            Err(error) => {
                without(rights::explain(knobs.root(), error, &[rights::SAMPLE]));
                self.tracepoint = None;
                self.end(knobs)?;
                self.begin(knobs)?;
            }
        }
        Ok(())
    }
}

/// Says why sysfs is read instead of the tracepoint.
fn without(error: io::Error) {
    tracing::info!(
        "DAMON's regions are read from sysfs, which costs more: its tracepoint cannot be had: {error}"
    );
}

/// The number of the thread, if one runs.
fn kdamond(knobs: &Knobs) -> Option<u32> {
    knobs.read(&format!("{KDAMONDS}/0/pid"))?.parse().ok()
}

impl Source for Damon {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn watch(&mut self, knobs: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError> {
        let mut wanted = processes[..processes.len().min(PROCESSES)].to_vec();
        wanted.sort_unstable();
        let is_on = self.is_on(knobs);
        if !is_on && Self::any_is_on(knobs) {
            knobs.forget(KDAMONDS)?;
            let who = "another user of DAMON came".to_owned();
            return Err(DaemonError::Taken { who });
        }
        let regions = regions_for(knobs, &wanted);
        let suits = (regions..=2 * regions).contains(&self.regions);
        if wanted == self.watched && (is_on && suits || wanted.is_empty()) {
            return Ok(wanted.len());
        }
        if is_on {
            self.end(knobs)?;
        }
        self.watched = wanted;
        self.regions = regions;
        self.aggregated = None;
        if !self.watched.is_empty() {
            self.begin(knobs)?;
            self.listen(knobs)?;
        }
        Ok(self.watched.len())
    }

    fn report(&mut self, knobs: &mut Knobs) -> Result<Report, DaemonError> {
        if self.watched.is_empty() || !self.is_on(knobs) {
            return Ok(Report::Accesses(Vec::new()));
        }
        let samples = AGGREGATE_US / self.sample_us();
        if let Some(aggregated) = &mut self.aggregated {
            let patience = Duration::from_micros((AGGREGATE_US + SAMPLE_US).into());
            let report = aggregated.report(self.watched.len(), samples, patience);
            let processes = self.watched.iter().copied();
            return Ok(Report::Accesses(processes.zip(report).collect()));
        }
        // The kernel answers when the regions are there; all processes may have ended meanwhile.
        let state = format!("{KDAMONDS}/0/state");
        if let Err(error) = knobs.write(&state, "update_schemes_tried_regions") {
            return match self.is_on(knobs) {
                true => Err(error),
                false => Ok(Report::Accesses(Vec::new())),
            };
        }
        let regions = |(index, process): (usize, &ProcessId)| {
            let folder = format!("{KDAMONDS}/0/contexts/0/schemes/{index}/tried_regions");
            (*process, regions(knobs, &folder, samples))
        };
        Ok(Report::Accesses(
            self.watched.iter().enumerate().map(regions).collect(),
        ))
    }

    fn cpu_seconds(&self, knobs: &Knobs) -> Option<f64> {
        let pid = kdamond(knobs).filter(|pid| self.own == Some(*pid))?;
        let stat = knobs.read(&format!("proc/{pid}/stat"))?;
        Some(self.spent + memferry_linux::process::cpu_seconds(&stat)?)
    }
}

/// Most regions: one for two chunks that the processes have mapped, rounded up to a power of two. What has ended since counts nothing.
fn regions_for(knobs: &Knobs, processes: &[ProcessId]) -> usize {
    let mapped = |process: &ProcessId| bytes_of(knobs.root(), process.pid, 0);
    let bytes: u64 = processes.iter().filter_map(mapped).sum();
    let [least, most] = REGIONS;
    (bytes as usize / CHUNK / 2)
        .clamp(least, most)
        .next_power_of_two()
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

    /// The files that a kernel makes for one kdamond with one process.
    pub(crate) fn damon(root: &std::path::Path) {
        put(root, &format!("{KDAMONDS}/nr_kdamonds"), "0");
        let kdamond = format!("{KDAMONDS}/0");
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
                put(root, &format!("{kdamond}/{folder}/{file}"), "");
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
            ("1".into(), "on".into())
        );
        assert_eq!(read("0/contexts/0/targets/0/pid_target"), "4711");
        // Of another tree sysfs is read.
        let sample = "0/contexts/0/monitoring_attrs/intervals/sample_us";
        assert_eq!(read(sample), SYSFS_SAMPLE_US.to_string());
        let regions = |machine: &Machine| {
            let file = |of| format!("{KDAMONDS}/0/contexts/0/monitoring_attrs/nr_regions/{of}");
            ["min", "max"].map(|of| machine.text(&file(of)).unwrap())
        };
        assert_eq!(regions(&machine), ["6", "32"]);
        // As it grows it has more; a little less memory changes nothing.
        for (mebibytes, wanted) in [
            (600, ["51", "256"]),
            (500, ["51", "256"]),
            (1 << 20, ["102", "512"]),
            (200, ["12", "64"]),
        ] {
            let pages = (mebibytes << 20) / rustix::param::page_size();
            let statm = format!("{pages} 1 1 1 0 1 0\n");
            put(root.path(), "proc/4711/statm", &statm);
            source.watch(&mut knobs, &[process]).unwrap();
            assert_eq!(
                (regions(&machine), read("0/state").as_str()),
                (wanted.map(String::from), "on"),
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
            ("1".into(), "on".into())
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
    fn somebody_elses_damon_is_named_and_left_alone() {
        let root = tree();
        damon(root.path());
        put(root.path(), &format!("{KDAMONDS}/nr_kdamonds"), "1");
        put(root.path(), &format!("{KDAMONDS}/0/state"), "on");
        put(root.path(), &format!("{KDAMONDS}/0/pid"), "77");
        put(root.path(), crate::knobs::BALANCING, "1");
        let machine = Machine::read(root.path()).unwrap();
        let mut knobs = Knobs::open(root.path()).unwrap();
        let told = choose(SourceChoice::Damon, &machine, &mut knobs, true)
            .err()
            .unwrap()
            .to_string();
        assert!(told.contains("kdamond 0 (pid 77)"), "{told}");
        let (source, why) = choose(SourceChoice::Auto, &machine, &mut knobs, false).unwrap();
        assert!(
            source.name() == "numa-balancing" && why.contains("pid 77"),
            "{why}"
        );
        put(root.path(), &format!("{KDAMONDS}/nr_kdamonds"), "0");
        let module = "sys/module/damon_stat/parameters/enabled";
        put(root.path(), module, "Y\n");
        assert_eq!(foreign(root.path()).unwrap(), "damon_stat has DAMON");
    }
}
