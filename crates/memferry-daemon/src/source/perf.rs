// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that perf samples: loads by PEBS (Intel), operations by IBS (AMD), or page faults, which are a weak source: memory that
//! is in use and does not fault looks idle.
//!
//! Each CPU has an event and a ring, whatever it runs: an event of a process would take one for each of its threads and CPUs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use memferry_linux::perf::{ADDRESSES, Event, Of, Ring};
use memferry_linux::topology::parse::id_list;

use super::{Report, Source};
use crate::error::DaemonError;
use crate::knobs::Knobs;
use crate::machine::text;
use crate::rights;
use crate::status::SampleStatus;
use crate::tiering::{CHUNK, ProcessId, Seen};

const DEVICES: &str = "sys/bus/event_source/devices";
/// Loads that took so many cycles had not found their line in a core's own caches: what `perf mem` takes.
const LATENCY: &str = "ldlat=30";
/// A sample's cost where the kernel does not say what it allows: its default, 25% of the time for 100,000 samples a second.
const SAMPLE_COST: Duration = Duration::from_nanos(2_500);
/// One event in so many at first, and at least: a CPU that becomes busy with 500 million events a second is sampled 100,000 times,
/// which is the kernel's own bound, until the next round.
const PERIOD: u64 = 5_008;
/// The largest period: IBS counts to 2^27.
const PERIOD_MAX: u64 = 1 << 26;
/// Samples of a chunk in a round beyond that say nothing more: the policy's largest weight.
const MOST: u32 = 16;

/// Reports in which a sample counts: 0.6 s, since at 3% of a CPU there are some 12,000 in a second.
const REPORTS: usize = 3;

/// What can be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sampled {
    /// The kernel's name of it.
    pub name: &'static str,
    /// What that is.
    pub what: &'static str,
    event: Event,
    least_period: u64,
}

fn page_faults() -> Sampled {
    Sampled {
        name: "page-faults",
        what: "only page faults: what does not fault looks idle",
        event: Event::page_faults(),
        least_period: 1,
    }
}

/// What this machine's PMU samples with addresses; `None` if it does not.
pub(super) fn hardware(root: &Path) -> Option<Sampled> {
    let devices = root.join(DEVICES);
    pebs(&devices.join("cpu")).or_else(|| ibs(&devices.join("ibs_op")))
}

fn pebs(device: &Path) -> Option<Sampled> {
    // Its own ldlat is the least that there is.
    let loads = text(device, "events/mem-loads")?;
    let terms = loads.split(',').filter(|term| !term.starts_with("ldlat="));
    let [config, config1] = encode(device, terms.chain([LATENCY]))?;
    let leader = match text(device, "events/mem-loads-aux") {
        Some(terms) => Some(encode(device, terms.split(','))?[0]),
        None => None,
    };
    Some(Sampled {
        name: "mem-loads",
        what: "PEBS samples loads",
        event: Event {
            pmu: text(device, "type")?.parse().ok()?,
            config,
            config1,
            leader,
            precise: true,
            user_only: true,
        },
        least_period: PERIOD,
    })
}

fn ibs(device: &Path) -> Option<Sampled> {
    // Operations instead of cycles, which favour slow instructions; misses of the last cache alone where the CPU can.
    let wanted = ["cnt_ctl", "l3missonly"].into_iter();
    let terms = wanted.filter(|term| text(device, &format!("format/{term}")).is_some());
    let [config, config1] = encode(device, terms)?;
    Some(Sampled {
        name: "ibs_op",
        what: "IBS samples loads and stores",
        event: Event {
            pmu: text(device, "type")?.parse().ok()?,
            config,
            config1,
            leader: None,
            precise: false,
            user_only: false,
        },
        least_period: PERIOD,
    })
}

/// The bits of a PMU's terms, as its folder `format` says: `config` and `config1`.
fn encode<'a>(device: &Path, terms: impl Iterator<Item = &'a str>) -> Option<[u64; 2]> {
    let mut configs = [0; 2];
    for term in terms {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        let format = text(device, &format!("format/{name}"))?;
        let (field, bits) = format.split_once(':')?;
        let (low, high) = bits.split_once('-').unwrap_or((bits, bits));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        let config = match field {
            "config" => &mut configs[0],
            "config1" => &mut configs[1],
            _ => return None,
        };
        let width = high.checked_sub(low)? + 1;
        if high > 63 || width < 64 && value >> width != 0 {
            return None;
        }
        *config |= value << low;
    }
    Some(configs)
}

/// perf as a source.
#[derive(Debug)]
pub(super) struct Perf {
    sampled: Sampled,
    /// By CPU.
    rings: BTreeMap<u32, Ring>,
    watched: BTreeMap<u32, ProcessId>,
    /// Samples of the last reports, the newest first, by process and chunk.
    counts: BTreeMap<(u32, usize), [u32; REPORTS]>,
    period: u64,
    /// Percent of one CPU that samples may cost, those of all CPUs together.
    budget: u32,
    drained: Instant,
    sums: SampleStatus,
    spent: Duration,
}

impl Perf {
    /// Samples what the PMU can, else page faults.
    pub(super) fn new(root: &Path, budget: u32) -> Result<Self, String> {
        Self::open(root, hardware(root).unwrap_or_else(page_faults), budget)
    }

    /// Samples that, with so many percent of one CPU.
    ///
    /// # Errors
    /// Why that cannot be, and what to try.
    pub(super) fn open(root: &Path, sampled: Sampled, budget: u32) -> Result<Self, String> {
        if root != Path::new("/") {
            return Err("it samples this machine, and --root names another".to_owned());
        }
        let mut perf = Self {
            period: sampled.least_period.max(16),
            budget,
            sums: SampleStatus {
                event: sampled.name.to_owned(),
                ..SampleStatus::default()
            },
            sampled,
            rings: BTreeMap::new(),
            watched: BTreeMap::new(),
            counts: BTreeMap::new(),
            drained: Instant::now(),
            spent: Duration::ZERO,
        };
        let opened = perf.open_rings(root);
        opened.map_err(|error| refused(root, perf.sampled.name, &error))?;
        if perf.sampled == page_faults() {
            tracing::warn!(
                "this machine's PMU samples no addresses: {}",
                perf.sampled.what
            );
        }
        Ok(perf)
    }

    pub(super) fn what(&self) -> &'static str {
        self.sampled.what
    }

    /// A ring for each CPU that is on line.
    fn open_rings(&mut self, root: &Path) -> io::Result<()> {
        let online = fs::read_to_string(root.join("sys/devices/system/cpu/online"))?;
        let cpus = id_list(&online).map_err(io::Error::other)?;
        self.rings.retain(|cpu, _| cpus.contains(cpu));
        for cpu in cpus {
            if !self.rings.contains_key(&cpu) {
                let event = &self.sampled.event;
                let ring = Ring::open(event, Of::Cpu(cpu), self.period, ADDRESSES)?;
                self.rings.insert(cpu, ring);
            }
        }
        Ok(())
    }

    /// Counts what the samples cost, and sets the period so that the next ones cost what they may.
    fn adapt(&mut self, samples: u64, reading: Duration, cost: Duration) -> io::Result<()> {
        let most = self.drained.elapsed() * self.budget / 100;
        self.drained = Instant::now();
        // Those of a busy machine, not more than a u32 in a round.
        let taken = cost * u32::try_from(samples).unwrap_or(u32::MAX);
        self.spent += taken + reading;
        let period = period(self.period, taken + reading, most);
        let period = period.clamp(self.sampled.least_period, PERIOD_MAX);
        if period != self.period {
            self.period = period;
            self.rings
                .values()
                .try_for_each(|ring| ring.set_period(period))?;
        }
        Ok(())
    }
}

/// The period with which what costs `taken` would cost `most`: by a factor of four in a round at most, and not for a quarter more or
/// less. IBS wants a multiple of 16.
fn period(now: u64, taken: Duration, most: Duration) -> u64 {
    let factor = taken.as_secs_f64() / most.as_secs_f64().max(1e-9);
    if (0.75..=1.25).contains(&factor) {
        return now;
    }
    let wanted = (now as f64 * factor.clamp(0.25, 4.0)) as u64;
    if wanted < 16 { wanted } else { wanted & !15 }
}

/// What a sample may cost, by the kernel's own bound: it takes fewer where they cost more.
fn sample_cost(root: &Path) -> Duration {
    let number = |file: &str| -> Option<f64> { text(root, file)?.parse().ok() };
    let percent = number("proc/sys/kernel/perf_cpu_time_max_percent");
    let cost = percent.zip(number("proc/sys/kernel/perf_event_max_sample_rate"));
    // 0 and 100 switch the bound off.
    let cost = cost.filter(|(percent, rate)| (1.0..100.0).contains(percent) && *rate >= 1.0);
    cost.map_or(SAMPLE_COST, |(percent, rate)| {
        Duration::from_secs_f64(percent / 100.0 / rate)
    })
}

/// Why the kernel refuses, and what to try.
fn refused(root: &Path, event: &str, error: &io::Error) -> String {
    let paranoid = text(root, "proc/sys/kernel/perf_event_paranoid");
    let paranoid: i32 = paranoid.map_or(2, |text| text.parse().unwrap_or(2));
    let try_this = match error.raw_os_error() {
        // Debian's kernels take 3 for `CAP_SYS_ADMIN only`.
        Some(libc::EACCES | libc::EPERM) if paranoid > 2 => {
            match rights::missing(root, &[rights::ADMIN]) {
                Some(missing) => format!(
                    "{missing}; kernel.perf_event_paranoid is {paranoid}: set it to 2, so that CAP_PERFMON is enough"
                ),
                None => SECCOMP.to_owned(),
            }
        }
        Some(libc::EACCES | libc::EPERM) => match rights::missing(root, &[rights::SAMPLE]) {
            Some(missing) => format!("{missing}: give the daemon that"),
            None => SECCOMP.to_owned(),
        },
        Some(libc::ENOSYS) => "this kernel has no perf (CONFIG_PERF_EVENTS)".to_owned(),
        Some(libc::EMFILE) => {
            "raise LimitNOFILE: each CPU takes a descriptor, two on some of Intel's".to_owned()
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "the PMU does not take the event, as in many virtual machines: take another source"
                .to_owned()
        }
        Some(libc::EBUSY) => "somebody else has the PMU to himself: end that".to_owned(),
        _ => "see perf_event_open(2)".to_owned(),
    };
    format!("{event} on all CPUs: {error}; {try_this}")
}

const SECCOMP: &str = "the rights are there, so a seccomp filter or security module refuses perf_event_open, or its rings at mmap \
    (kernel.perf_event_mlock_kb below 132 for each CPU): allow that";

impl Source for Perf {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn reports(&self) -> u8 {
        // A single sample is in as many as it counts in.
        REPORTS as u8 + 1
    }

    fn watch(&mut self, knobs: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError> {
        self.watched = processes.iter().map(|of| (of.pid, *of)).collect();
        // CPUs come and go.
        let opened = self.open_rings(knobs.root());
        opened.map_err(|error| DaemonError::NoSource {
            source_name: "perf",
            why: refused(knobs.root(), self.sampled.name, &error),
        })?;
        Ok(self.watched.len())
    }

    fn report(&mut self, knobs: &mut Knobs) -> Result<Report, DaemonError> {
        let began = Instant::now();
        self.counts.retain(|_, count| {
            count.rotate_right(1);
            count[0] = 0;
            count.iter().any(|of| *of > 0)
        });
        let (mut samples, mut malformed) = (0, false);
        for ring in self.rings.values_mut() {
            let drained = ring.drain(|of| {
                if self.watched.contains_key(&of.pid) {
                    let count = self.counts.entry((of.pid, of.addr / CHUNK)).or_default();
                    count[0] += 1;
                }
            });
            samples += drained.samples + drained.lost;
            self.sums.taken += drained.samples;
            self.sums.lost += drained.lost;
            self.sums.throttled += drained.throttled;
            malformed |= drained.malformed;
        }
        // All are sampled: what has no sample idles.
        let mut reports: BTreeMap<ProcessId, Vec<Seen>> = self
            .watched
            .values()
            .map(|process| (*process, Vec::new()))
            .collect();
        for ((pid, number), count) in &self.counts {
            let Some(process) = self.watched.get(pid) else {
                continue;
            };
            let count: u32 = count.iter().sum();
            reports.entry(*process).or_default().push(Seen {
                range: number * CHUNK..(number + 1) * CHUNK,
                accesses: count.min(MOST),
                of: MOST,
            });
        }
        let adapted = self.adapt(samples, began.elapsed(), sample_cost(knobs.root()));
        let failed = |why| DaemonError::NoSource {
            source_name: "perf",
            why,
        };
        adapted.map_err(|error| failed(refused(knobs.root(), self.sampled.name, &error)))?;
        if malformed {
            let why = "the kernel's ring held what is no record, which was skipped".to_owned();
            return Err(failed(why));
        }
        Ok(Report::Accesses(reports.into_iter().collect()))
    }

    fn cpu_seconds(&self, _: &Knobs) -> Option<f64> {
        Some(self.spent.as_secs_f64())
    }

    fn samples(&self) -> Option<SampleStatus> {
        let mut status = self.sums.clone();
        status.period = self.period;
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceChoice;
    use crate::machine::Machine;
    use crate::machine::tests::{put, tree};
    use crate::source::tests::choose;

    fn files(root: &Path, device: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            put(root, &format!("{DEVICES}/{device}/{file}"), text);
        }
    }

    fn intel(root: &Path) {
        files(
            root,
            "cpu",
            &[
                ("type", "4\n"),
                ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
                ("format/event", "config:0-7\n"),
                ("format/umask", "config:8-15\n"),
                ("format/ldlat", "config1:0-15\n"),
            ],
        );
    }

    #[test]
    fn pebs_is_found_with_its_latency_and_its_leader() {
        let root = tree();
        assert_eq!(hardware(root.path()), None);
        intel(root.path());
        let found = hardware(root.path()).unwrap();
        let event = Event {
            pmu: 4,
            config: 0x1cd,
            config1: 30,
            leader: None,
            precise: true,
            user_only: true,
        };
        assert_eq!((found.name, &found.event), ("mem-loads", &event));
        files(
            root.path(),
            "cpu",
            &[("events/mem-loads-aux", "event=0x03,umask=0x82\n")],
        );
        let found = hardware(root.path()).unwrap();
        assert_eq!(found.event.leader, Some(0x8203));
        // Terms that the PMU's folder does not explain are no guess.
        files(root.path(), "cpu", &[("format/umask", "config:8-8\n")]);
        assert_eq!(hardware(root.path()), None);
    }

    #[test]
    fn ibs_counts_operations_and_only_misses_where_it_can() {
        let root = tree();
        files(root.path(), "ibs_op", &[("type", "11\n")]);
        assert_eq!(hardware(root.path()).unwrap().event.config, 0);
        files(
            root.path(),
            "ibs_op",
            &[
                ("format/cnt_ctl", "config:19\n"),
                ("format/l3missonly", "config:16\n"),
            ],
        );
        let found = hardware(root.path()).unwrap();
        assert_eq!((found.name, found.event.pmu), ("ibs_op", 11));
        assert_eq!(found.event.config, 1 << 19 | 1 << 16);
        assert!(!found.event.user_only && !found.event.precise);
    }

    #[test]
    fn auto_takes_perf_with_hardware_alone_and_says_why_not() {
        let root = tree();
        let machine = Machine::read(root.path()).unwrap();
        let mut knobs = Knobs::open(root.path()).unwrap();
        let mut auto = || {
            let refused = choose(SourceChoice::Auto, &machine, &mut knobs, false);
            refused.err().unwrap().to_string()
        };
        assert!(
            !auto().contains("perf"),
            "page faults are no heat by default"
        );
        intel(root.path());
        let why = auto();
        assert!(
            why.contains("perf: it samples this machine, and --root"),
            "{why}"
        );
        let told = choose(SourceChoice::Perf, &machine, &mut knobs, false);
        let told = told.err().unwrap().to_string();
        assert!(told.contains("the source perf cannot be had"), "{told}");
    }

    #[test]
    fn refusals_say_what_to_try() {
        let root = tree();
        let told = |set: u64, paranoid: &str, errno: i32| {
            put(
                root.path(),
                "proc/self/status",
                &format!("CapEff:\t{set:x}\n"),
            );
            put(root.path(), "proc/sys/kernel/perf_event_paranoid", paranoid);
            refused(root.path(), "ibs_op", &io::Error::from_raw_os_error(errno))
        };
        let perfmon = 1 << 38;
        for (told, expected) in [
            (told(0, "2", libc::EACCES), "without CAP_PERFMON"),
            (
                told(perfmon, "3", libc::EACCES),
                "without CAP_SYS_ADMIN; kernel.perf_event_paranoid is 3",
            ),
            (told(perfmon, "2", libc::EPERM), "seccomp"),
            (told(1 << 21, "3", libc::EPERM), "seccomp"),
            (told(perfmon, "2", libc::ENOSYS), "CONFIG_PERF_EVENTS"),
            (told(perfmon, "2", libc::EOPNOTSUPP), "virtual machines"),
            (told(perfmon, "2", libc::EMFILE), "LimitNOFILE"),
        ] {
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn the_period_follows_the_cost() {
        let most = Duration::from_millis(10);
        let next = |now, taken| period(now, Duration::from_micros(taken), most);
        assert_eq!(next(10_000, 11_000), 10_000, "near enough");
        assert_eq!(next(10_000, 20_000), 20_000);
        assert_eq!(next(10_000, 900_000), 40_000, "in steps");
        assert_eq!(next(10_000, 0), 2_496);
        assert_eq!(next(12, 0), 3);
        let root = tree();
        assert_eq!(sample_cost(root.path()), SAMPLE_COST);
        let set =
            |name: &str, text: &str| put(root.path(), &format!("proc/sys/kernel/{name}"), text);
        set("perf_cpu_time_max_percent", "25\n");
        set("perf_event_max_sample_rate", "50000\n");
        assert_eq!(sample_cost(root.path()), Duration::from_micros(5));
        set("perf_cpu_time_max_percent", "0\n");
        assert_eq!(sample_cost(root.path()), SAMPLE_COST);
    }
}
