// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's rounds: processes are found, the source reports, the policy chooses, pages move, and the status says so.

mod explained;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use memferry::MoveError;
use memferry_core::pace::{Pace, PaceParams};
use memferry_linux::process::cpu_seconds;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::config::{Amount, Brakes, Config};
use crate::error::{DaemonError, file};
use crate::explain::{self, Questions};
use crate::hands::{self, Carried, Hands, Kernel};
use crate::history::History;
use crate::knobs::Knobs;
use crate::machine::{Machine, bytes_of};
use crate::members::{self, Least, Member};
use crate::metrics::{self, Shared};
use crate::owner::Unmovable;
use crate::rights;
use crate::shared::{self, SharedMemory};
use crate::source::{self, Report, Source};
use crate::status::{GroupStatus, NodeStatus, SourceStatus, Status, TierStatus, UsedWithin};
use crate::tenants::{QUIET_ROUNDS, Rate, Tenant};
use crate::tiered_limits;
use crate::tiering::{Memory, Move, Object, ProcessId, Room, Seen, Tiering, Way};

/// From round to round: as long as what a report of DAMON covers, for which a round waits.
pub const ROUND: Duration = Duration::from_millis(200);
/// Unused time of the pace that is saved up, ms: more than a late round takes. Less, and the rate would be what is saved in each round.
const SAVED_MS: u32 = 1000;
/// Processes are looked for each so many rounds.
const FIND_ROUNDS: u64 = 25;
/// Files of cgroups are read each so many rounds, 1 s: the kernel averages pressure each two seconds.
const CGROUP_ROUNDS: u64 = 5;
/// Moves end after that, so that the next report is not missed; sysfs answers 80 ms later, and a round is late by 60 ms at most.
const MOVE_TIME: Duration = Duration::from_millis(160);
/// A process's pages are looked at again after that, or after so many times what the last look took, by the number of processes:
/// all looks take a hundredth of a CPU.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
const LOOK_COST: u32 = 100;
/// Shared memory is looked for again after that, or after [`LOOK_COST`] times what it took: all maps of the machine are read.
const SHARED_AGAIN: Duration = Duration::from_secs(30);
/// Rounds of `--once`: what it takes to see processes in use and choose.
const ONCE_ROUNDS: u64 = 20;

/// How the daemon is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub config: PathBuf,
    /// The folder of `sys`, `proc` and `run`. Pages move only if it is this machine's.
    pub root: PathBuf,
    /// Watches and chooses, whatever the configuration says.
    pub dry_run: bool,
    /// Ends after a few rounds, of which no history is kept.
    pub once: bool,
    /// The head of a history, one line of JSON that tells of the machine below a root.
    pub head: fn(&Path) -> String,
}

impl Options {
    /// Whether the configuration may let anything be moved or set: pages of this machine's processes cannot be moved by numbers of
    /// another tree, but for tests.
    fn may_act(&self) -> bool {
        !self.dry_run && (cfg!(test) || self.root == Path::new("/"))
    }
}

/// Runs until SIGTERM or SIGINT, or for a few rounds; returns the last status. Every setting comes back.
///
/// # Errors
/// It does not start, or a setting does not come back.
pub fn run(options: &Options) -> Result<Status, DaemonError> {
    let (stop, reload) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    for (signal, of) in [(SIGTERM, &stop), (SIGINT, &stop), (SIGHUP, &reload)] {
        flag::register(signal, Arc::clone(of)).map_err(file("signals", "wait for them"))?;
    }
    // First: what a killed daemon changed comes back, whatever the configuration says now.
    let knobs = Knobs::open(&options.root)?;
    let config = Config::read(&options.config)?;
    let machine = Machine::read(&options.root)?;
    let hands = Box::new(Kernel::new());
    let mut daemon = Daemon::new(options, config, machine, hands, knobs, stop)?;
    daemon.rounds(&reload);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    daemon.end()
}

/// A rate that pressure halves.
#[derive(Clone, Debug, Default)]
struct Brake {
    rate: Rate,
    wait: u32,
}

impl Brake {
    /// A round with so much pressure. An average of ten seconds answers late, so it halves once in five.
    fn feel(&mut self, is_above: bool) {
        match (is_above, self.wait) {
            (false, _) => {
                self.wait = 0;
                self.rate.recover(QUIET_ROUNDS);
            }
            (true, 0) => {
                self.wait = QUIET_ROUNDS;
                self.rate.halve();
            }
            (true, _) => self.wait -= 1,
        }
    }
}

/// What the cgroups of a group's members say: the largest pressure of each resource, in percent, the rate that it halves, and the bytes of
/// the top tier that the kernel protects.
#[derive(Clone, Debug, Default)]
struct OfCgroups {
    memory: Option<f64>,
    cpu: Option<f64>,
    brake: Brake,
    protected: u64,
}

/// Whether one of the pressures of memory and CPUs is above what the configuration allows.
fn is_above(brakes: &Brakes, memory: Option<f64>, cpu: Option<f64>) -> bool {
    memory.is_some_and(|now| now > brakes.memory_pressure)
        || cpu.is_some_and(|now| now > brakes.cpu_pressure)
}

/// Time since the daemon began.
struct Clock(Box<dyn Fn() -> Duration>);

impl Default for Clock {
    fn default() -> Self {
        let began = Instant::now();
        Self(Box::new(move || began.elapsed()))
    }
}

impl Clock {
    fn now(&self) -> Duration {
        (self.0)()
    }
}

struct Daemon {
    options: Options,
    config: Config,
    machine: Machine,
    hands: Box<dyn Hands>,
    source: Box<dyn Source>,
    why: String,
    tiering: Tiering,
    /// Bytes of each group that stayed, by reason.
    stayed: Vec<BTreeMap<&'static str, u64>>,
    members: Vec<Member>,
    /// Groups without members, as the log says of each once.
    unmatched: BTreeSet<String>,
    /// What processes of one group share, and when it is looked for again.
    shared_memory: Rc<[SharedMemory]>,
    shared_due: Duration,
    /// Of shared memory the processes that were looked at since the last time when all had been, and how often all were.
    sweeps: BTreeMap<Object, (BTreeSet<ProcessId>, u32)>,
    /// Why it is not looked for, if that is so.
    unshared: Option<String>,
    /// When a memory's pages were looked at, and when they are to be again.
    looks: BTreeMap<Memory, (Duration, Duration)>,
    /// What the last look at a memory found that cannot be moved.
    unmovable: BTreeMap<Memory, BTreeMap<Unmovable, u64>>,
    /// When memory of a cgroup was reclaimed.
    reclaimed: BTreeMap<String, Duration>,
    pace: Pace,
    brake: Brake,
    /// By group.
    of_cgroups: Vec<OfCgroups>,
    /// Whether the kernel was asked to protect cgroups by tier.
    has_tiered_limits: bool,
    watched: usize,
    /// When this process started; its number is one of this machine's, whatever the root.
    start: Option<u64>,
    clock: Clock,
    rounds: u64,
    /// What the last round took.
    took: Duration,
    /// Why the last reload failed, and how many did.
    refused: Option<String>,
    refused_reloads: u64,
    errors: u64,
    /// What failed since processes were looked for.
    trouble: Option<String>,
    /// What it was until processes were looked for the last time.
    trouble_before: Option<String>,
    stop: Arc<AtomicBool>,
    shared: Shared,
    questions: Option<Questions>,
    history: Option<History>,
    history_errors: u64,
    /// Last: what comes back, comes back after everything else has gone.
    knobs: Knobs,
}

impl Daemon {
    fn new(
        options: &Options,
        config: Config,
        machine: Machine,
        hands: Box<dyn Hands>,
        mut knobs: Knobs,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, DaemonError> {
        tell_ignored(&config);
        let acts = options.may_act() && config.act;
        let (source, why) = source::choose(&config, &machine, &mut knobs, acts)?;
        if options.once && source.is_absent() {
            let source_name = "damon";
            return Err(DaemonError::NoSource { source_name, why });
        }
        let shared = Shared::default();
        if let Some(listen) = &config.metrics {
            let at = metrics::serve(listen, Arc::clone(&shared))?;
            tracing::info!(at, "metrics");
        }
        for (resource, most) in [
            ("memory", config.brakes.memory_pressure),
            ("cpu", config.brakes.cpu_pressure),
        ] {
            if most < 100.0 && machine.pressure(resource).is_none() {
                tracing::warn!(
                    "/proc/pressure/{resource} is missing or empty, so {resource}_pressure brakes nothing; boot with psi=1"
                );
            }
        }
        let has_tiered_limits = tiered_limits::asked_for(&options.root);
        if has_tiered_limits {
            tracing::info!(
                "cgroup.memory=tiered_limits: a group without `protect` has what memory.min and memory.low of its cgroups protect"
            );
        }
        tracing::info!(source = source.name(), why, act = acts, top = ?machine.top, lower = ?machine.lower, "started");
        Ok(Self {
            options: options.clone(),
            source,
            why,
            tiering: Tiering::new(config.groups.len()),
            stayed: vec![BTreeMap::new(); config.groups.len()],
            members: Vec::new(),
            shared_memory: Rc::default(),
            shared_due: Duration::ZERO,
            sweeps: BTreeMap::new(),
            unshared: None,
            unmatched: BTreeSet::new(),
            looks: BTreeMap::new(),
            unmovable: BTreeMap::new(),
            reclaimed: BTreeMap::new(),
            pace: pace(&config),
            brake: Brake::default(),
            of_cgroups: vec![OfCgroups::default(); config.groups.len()],
            has_tiered_limits,
            watched: 0,
            start: members::start(Path::new("/"), std::process::id()),
            clock: Clock::default(),
            rounds: 0,
            took: Duration::ZERO,
            refused: None,
            refused_reloads: 0,
            errors: 0,
            trouble: None,
            trouble_before: None,
            stop,
            shared,
            questions: questions(options),
            history: history(options, &config),
            history_errors: 0,
            config,
            machine,
            hands,
            knobs,
        })
    }

    /// Whether anything is moved or set.
    fn acts(&self) -> bool {
        self.options.may_act() && self.config.act
    }

    fn rounds(&mut self, reload: &AtomicBool) {
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            if reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            self.round();
            self.took = began.elapsed();
            // Whoever started it may ask for its status now. Nobody may wait for it.
            let state = match self.rounds {
                1 => NotifyState::Ready,
                _ => NotifyState::Watchdog,
            };
            let _ = sd_notify::notify(&[state]);
            if self.options.once && self.rounds >= ONCE_ROUNDS {
                break;
            }
            // In steps, so that a signal is heard soon.
            while began.elapsed() < ROUND && !self.stop.load(Ordering::Relaxed) {
                std::thread::sleep(
                    Duration::from_millis(50).min(ROUND.saturating_sub(began.elapsed())),
                );
            }
        }
    }

    fn end(mut self) -> Result<Status, DaemonError> {
        let status = self.last_record();
        Status::remove(&self.options.root);
        Questions::remove(&self.options.root);
        self.knobs.put_back()?;
        tracing::info!(rounds = self.rounds, "ended: every setting is back");
        Ok(status)
    }

    /// Takes the configuration anew; one that is wrong changes nothing.
    fn reload(&mut self) {
        let config = match Config::read(&self.options.config) {
            Ok(config) => config,
            Err(error) => return self.refuse(&error),
        };
        if config.metrics != self.config.metrics {
            tracing::warn!("metrics keep their place until the daemon is started again");
        }
        let source = |of: &Config| (of.source, of.source_cpu, of.act, of.divides());
        if source(&config) != source(&self.config) {
            if let Err(error) = self.take_source(&config) {
                self.refuse(&error);
                let old = self.config.clone();
                if let Err(error) = self.take_source(&old) {
                    self.trouble(&error.to_string());
                }
                return;
            }
        }
        if config.groups != self.config.groups {
            self.tiering = Tiering::new(config.groups.len());
            self.stayed = vec![BTreeMap::new(); config.groups.len()];
            self.of_cgroups = vec![OfCgroups::default(); config.groups.len()];
            self.members.clear();
            self.unmatched.clear();
            self.looks.clear();
            self.shared_due = Duration::ZERO;
            self.rounds = self.rounds.next_multiple_of(FIND_ROUNDS);
        }
        self.pace = pace(&config);
        if config.history != self.config.history {
            self.last_record();
            self.history = history(&self.options, &config);
        }
        tell_ignored(&config);
        self.config = config;
        self.refused = None;
        tracing::info!("the configuration was read anew");
    }

    fn take_source(&mut self, config: &Config) -> Result<(), DaemonError> {
        self.knobs.put_back()?;
        let acts = self.options.may_act() && config.act;
        (self.source, self.why) = source::choose(config, &self.machine, &mut self.knobs, acts)?;
        tracing::info!(
            source = self.source.name(),
            why = self.why,
            act = acts,
            "the source"
        );
        self.watch();
        Ok(())
    }

    fn refuse(&mut self, error: &DaemonError) {
        let what = format!("the configuration stays as it was: {error}");
        tracing::error!("{what}");
        self.refused = Some(what);
        self.refused_reloads += 1;
    }

    fn trouble(&mut self, what: &str) {
        self.errors += 1;
        if self.is_new(what) {
            tracing::error!("{what}");
        }
        self.trouble = Some(what.to_owned());
    }

    /// Whether it is to be logged: once, not as long as it lasts.
    fn is_new(&self, what: &str) -> bool {
        let known = [&self.trouble, &self.trouble_before];
        known.iter().all(|known| known.as_deref() != Some(what))
    }

    fn find(&mut self) {
        self.trouble_before = self.trouble.take();
        match self.machine.refresh() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(top = ?self.machine.top, lower = ?self.machine.lower, "the tiers have changed");
                self.looks.clear();
            }
            Err(error) => self.trouble(&error.to_string()),
        }
        let read: Vec<_> = (self.config.groups.iter())
            .map(crate::config::Group::cgroup_names)
            .collect();
        let mut names = Vec::with_capacity(read.len());
        for of in read {
            names.push(of.unwrap_or_else(|error| {
                self.trouble(&error.to_string());
                BTreeSet::new()
            }));
        }
        self.members = members::find(
            &self.options.root,
            &self.config.groups,
            &names,
            Least::OfGroup,
        );
        for group in self.newly_unmatched() {
            tracing::warn!(group, "the group matches no process of its min_size now");
        }
        if self.shared_due <= self.clock.now() {
            self.find_shared(&names);
        }
        let there: BTreeSet<Memory> = self.memories().map(|(memory, _)| memory).collect();
        self.tiering.keep(|memory| there.contains(&memory));
        self.looks.retain(|memory, _| there.contains(memory));
        self.unmovable.retain(|memory, _| there.contains(memory));
        self.sweeps
            .retain(|object, _| there.contains(&Memory::Shared(*object)));
        let is_there = |cgroup: &String| self.members.iter().any(|of| of.cgroup == *cgroup);
        self.reclaimed.retain(|cgroup, _| is_there(cgroup));
        if self.source.is_absent() {
            self.look_for_source();
        }
        self.watch();
    }

    /// Groups that match nothing now, and did before or were not looked for.
    fn newly_unmatched(&mut self) -> Vec<String> {
        let matched: BTreeSet<usize> = self.members.iter().map(|of| of.group).collect();
        let groups = self.config.groups.iter().enumerate();
        let now: BTreeSet<String> = groups
            .filter(|(index, _)| !matched.contains(index))
            .map(|(_, group)| group.name.clone())
            .collect();
        let new = now.difference(&self.unmatched).cloned().collect();
        self.unmatched = now;
        new
    }

    fn find_shared(&mut self, names: &[BTreeSet<String>]) {
        let (root, groups) = (&self.options.root, &self.config.groups);
        let began = self.clock.now();
        // Pages that others map, too, move with that right alone; without it they are nobody's.
        let missing = rights::missing(root, &[rights::SHARED]);
        let group_of = |pid| Some(members::group_of(root, groups, names, pid)?.0);
        let found = shared::find(root, group_of);
        let took = self.clock.now() - began;
        self.shared_due = began + SHARED_AGAIN.max(took.saturating_mul(LOOK_COST));
        let unreadable = found.as_ref().err().map(std::io::Error::to_string);
        let unshared = missing.or(unreadable);
        if let Some(why) = unshared.as_ref().filter(|_| self.unshared != unshared) {
            tracing::warn!("memory that several processes map stays where it is: {why}");
        }
        self.unshared = unshared;
        let mut found = found.unwrap_or_default();
        // What only processes map that are left alone is looked at by no source.
        let is_member = |of: &shared::Mapper| self.members.iter().any(|m| m.process == of.process);
        for of in &mut found {
            let may_move = self.unshared.is_none() && of.mappers.iter().any(is_member);
            of.group = of.group.filter(|_| may_move);
        }
        self.shared_memory = found.into();
        self.hands.share(&self.shared_memory);
    }

    /// What is tiered, and whose it is.
    fn memories(&self) -> impl Iterator<Item = (Memory, usize)> {
        let own = self.members.iter().map(|of| (of.process.into(), of.group));
        let shared = self.shared_memory.iter();
        let shared = shared.filter_map(|of| Some((Memory::Shared(of.object), of.group?)));
        own.chain(shared)
    }

    /// Takes the source that the configuration wants, if it can be had by now.
    fn look_for_source(&mut self) {
        let acts = self.acts();
        match source::choose(&self.config, &self.machine, &mut self.knobs, acts) {
            Ok((source, why)) => {
                if !source.is_absent() {
                    tracing::info!(source = source.name(), why, "the source");
                }
                (self.source, self.why) = (source, why);
            }
            Err(error) => self.trouble(&error.to_string()),
        }
    }

    fn watch(&mut self) {
        let there = members::by_turns(&self.members);
        match self.source.watch(&mut self.knobs, &there) {
            Ok(watched) => self.watched = watched,
            Err(error) => {
                self.watched = 0;
                self.trouble(&error.to_string());
            }
        }
    }

    fn look(&mut self) {
        let memories: Vec<(Memory, usize)> = self.memories().collect();
        let cost = LOOK_COST * u32::try_from(memories.len()).unwrap_or(u32::MAX / LOOK_COST);
        let (mut denied, round) = (None, self.clock.now());
        for (memory, group) in memories {
            let began = self.clock.now();
            let due = self.looks.get(&memory);
            if due.is_some_and(|(_, due)| began < *due) {
                continue;
            }
            // The next round goes on.
            if self.stop.load(Ordering::Relaxed) || began - round > ROUND {
                break;
            }
            // A look at very large processes takes long.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            let places = self
                .hands
                .look(&self.machine, memory)
                .unwrap_or_else(|error| {
                    if error.kind() == std::io::ErrorKind::PermissionDenied {
                        denied = Some((memory, error));
                    }
                    Vec::new()
                });
            let left = self.hands.unmovable(memory);
            self.unmovable.insert(memory, left);
            let near = self.hands.near(&self.machine, memory);
            self.tiering.place(memory, group, &near, &places);
            let took = self.clock.now() - began;
            let wait = LOOK_AGAIN.max(took.saturating_mul(cost));
            let due = began + took + wait;
            self.looks.insert(memory, (began, due));
        }
        if let Some((Memory::Process(ProcessId { pid, .. }), error)) = denied {
            let needed = [rights::TRACE, rights::READ_FILES];
            let error = rights::explain(&self.options.root, error, &needed);
            self.trouble(&format!("process {pid} cannot be looked at: {error}"));
        }
    }

    fn round(&mut self) {
        if self.rounds % FIND_ROUNDS == 0 {
            self.find();
        }
        if self.rounds % CGROUP_ROUNDS == 0 {
            self.read_cgroups();
        }
        self.rounds += 1;
        self.look();
        let report = self.source.report(&mut self.knobs);
        let mut kernel = None;
        match report {
            Ok(Report::Accesses(all)) => self.seen(&all),
            Ok(Report::Kernel { promoted, demoted }) => kernel = Some((promoted, demoted)),
            Err(error) => self.trouble(&error.to_string()),
        }
        self.look_closely();
        let pressures = ["memory", "cpu"].map(|resource| self.machine.pressure(resource));
        let [memory, cpu] = pressures;
        self.brake.feel(is_above(&self.config.brakes, memory, cpu));
        for of in &mut self.of_cgroups {
            let is_above = is_above(&self.config.brakes, of.memory, of.cpu);
            of.brake.feel(is_above);
        }
        let claims: Vec<Tenant> = self.claims();
        let ms = self.clock.now().as_millis() as u64;
        let whole = self.pace.budget(ms);
        let room = Room {
            free: self.machine.room(),
            budget: self.brake.rate.of(whole),
            waste: self.config.brakes.waste,
            reports: self.source.reports(),
            kernel_moves: self.source.kernel_moves(),
        };
        let moves = self.tiering.decide(&claims, &room);
        tracing::debug!(
            free = room.free.values().sum::<u64>(),
            budget = room.budget,
            chosen = moves.len(),
            "round"
        );
        if self.acts() {
            match self.source.kernel_moves() {
                true => self.supervise(&moves),
                false => self.carry(&moves, ms, whole, room.budget),
            }
        }
        let status = self.status(&moves, kernel, pressures);
        if let Err(error) = status.write(&self.options.root) {
            self.trouble(&error.to_string());
        }
        self.keep(&status, false);
        let asked = self.questions.as_ref().and_then(Questions::next);
        if let Some((what, stream)) = asked {
            explain::answer(stream, self.explain(&what, &status, &room, &moves));
        }
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Lets the source look at single pages, and notes what it saw of them.
    fn look_closely(&mut self) {
        let (source, tiering) = (&mut self.source, &mut self.tiering);
        let looked =
            source.look_closely(&mut self.knobs, &mut |most| tiering.look_closely_at(most));
        let (process, looks) = match looked {
            Ok(Some(looked)) => looked,
            Ok(None) => return,
            Err(error) => return self.trouble(&error.to_string()),
        };
        for look in &looks {
            // It has ended, if that fails.
            let places = self.hands.pages(&self.machine, process, look.number);
            if let Ok(places) = places {
                self.tiering.seen_closely(process.into(), look, places);
            }
        }
    }

    /// Notes what a source saw.
    fn seen(&mut self, all: &[(ProcessId, Vec<Seen>)]) {
        for (process, seen) in all {
            self.tiering.seen(*process, seen, None);
        }
        for shared in self.shared_memory.iter().filter(|of| of.group.is_some()) {
            let each = all
                .iter()
                .filter_map(|(process, seen)| Some((*process, shared.seen(*process, seen)?)));
            let reports: Vec<(ProcessId, Vec<Seen>)> = each.collect();
            // Where not all of them are looked at in each round, they are in turn.
            let sweeps = (reports.len() < shared.mappers.len()).then(|| {
                let (looked_at, sweeps) = self.sweeps.entry(shared.object).or_default();
                looked_at.extend(reports.iter().map(|(process, _)| *process));
                if shared
                    .mappers
                    .iter()
                    .all(|of| looked_at.contains(&of.process))
                {
                    looked_at.clear();
                    *sweeps += 1;
                }
                *sweeps
            });
            for (_, report) in &reports {
                self.tiering
                    .seen(Memory::Shared(shared.object), report, sweeps);
            }
        }
    }

    /// Ends the history with the last status.
    fn last_record(&mut self) -> Status {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = shared.clone();
        drop(shared);
        status.seconds = self.clock.now().as_secs_f64();
        self.keep(&status, true);
        status
    }

    fn keep(&mut self, status: &Status, is_last: bool) {
        if let Some(history) = &mut self.history {
            let failed = history.keep(status, SystemTime::now(), is_last);
            self.history_errors += u64::from(failed);
        }
    }

    fn read_cgroups(&mut self) {
        for (index, of) in self.of_cgroups.iter_mut().enumerate() {
            let members = self.members.iter().filter(|member| member.group == index);
            let cgroups: BTreeSet<&str> = members.map(|member| &*member.cgroup).collect();
            let largest = |resource| {
                let all = (cgroups.iter())
                    .filter_map(|cgroup| self.machine.cgroup_pressure(cgroup, resource));
                all.reduce(f64::max)
            };
            (of.memory, of.cpu) = (largest("memory"), largest("cpu"));
            if self.has_tiered_limits {
                let protected = tiered_limits::protected(&self.options.root, &cgroups);
                of.protected = self.machine.top_part(protected);
            }
        }
    }

    fn claims(&self) -> Vec<Tenant> {
        let top = self.machine.top_bytes();
        let claim = |(group, own): (&crate::config::Group, &OfCgroups)| Tenant {
            pressure: own.brake.rate,
            protect: group.protect.map_or(own.protected, |of| of.of(top)),
            limit: group.limit.map_or(u64::MAX, |limit: Amount| limit.of(top)),
            weight: group.weight,
            ..Tenant::default()
        };
        let groups = self.config.groups.iter().zip(&self.of_cgroups);
        groups.map(claim).collect()
    }

    fn carry(&mut self, moves: &[Move], ms: u64, whole: u64, budget: u64) {
        let Some(reserved) = self.pace.reserve(ms, whole) else {
            return;
        };
        let began = self.clock.now();
        let (mut up, mut down) = (0, 0);
        for of in moves {
            // What goes up afterwards counts on the room: without it nothing more goes.
            if of.way == Way::Down && down + of.bytes > budget {
                break;
            }
            if self.stop.load(Ordering::Relaxed) || self.clock.now() - began > MOVE_TIME {
                break;
            }
            let carried = match self.hands.carry(&self.machine, of, &self.stop) {
                Ok(carried) => carried,
                // It is not looked for any more until processes are.
                Err(MoveError::NoProcess { .. }) => {
                    self.tiering.keep(|memory| memory != of.memory);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(memory = ?of.memory, "{error}");
                    Carried::stayed(hands::reason(&error), of.bytes)
                }
            };
            *(if of.way == Way::Up {
                &mut up
            } else {
                &mut down
            }) += carried.moved;
            self.tiering.done(of, carried.moved, carried.stayed_bytes());
            let group = self.memories().find(|(memory, _)| *memory == of.memory);
            if let Some((_, group)) = group {
                for (reason, bytes) in carried.stayed {
                    *self.stayed[group].entry(reason).or_default() += bytes;
                }
            }
        }
        self.pace.settle(reserved, up);
        if up + down > 0 {
            tracing::debug!(up, down, "moved");
        }
    }

    /// Sets the kernel's pace, and lets it demote what tenants have above their limits.
    fn supervise(&mut self, moves: &[Move]) {
        let rate = self.brake.rate.of(self.config.brakes.bytes_per_second);
        if let Err(error) = self.source.pace(&mut self.knobs, rate) {
            self.trouble(&error.to_string());
        }
        let mut over: BTreeMap<&str, u64> = BTreeMap::new();
        for of in moves {
            let is_of = |member: &&Member| match of.memory {
                Memory::Process(process) => member.process == process,
                Memory::Shared(object) => {
                    let mut shared = self.shared_memory.iter();
                    let shared = shared.find(|of| of.object == object);
                    let first = shared.and_then(|of| of.mappers.first());
                    first.is_some_and(|of| of.process == member.process)
                }
            };
            let member = self.members.iter().find(is_of);
            // The root has no such file, and would be everybody's.
            if let Some(member) = member.filter(|member| member.cgroup.len() > 1) {
                let rate = self.of_cgroups[member.group].brake.rate.of(rate);
                let due = over.entry(&member.cgroup).or_default();
                *due = (*due + of.bytes).min(rate / 2);
            }
        }
        // What has gone is known once all its processes were looked at again.
        over.retain(|cgroup, _| {
            let mut members = self.members.iter().filter(|of| of.cgroup == *cgroup);
            let looked = |of: &Member| self.looks.get(&of.process.into()).map(|(at, _)| *at);
            let last = self.reclaimed.get(*cgroup).copied();
            last.is_none() || members.all(|of| looked(of) > last)
        });
        let mut failed = None;
        for (cgroup, bytes) in over {
            let done = self.knobs.write(
                &format!("sys/fs/cgroup{cgroup}/memory.reclaim"),
                &bytes.to_string(),
            );
            tracing::debug!(cgroup, bytes, whole = done.is_ok(), "above its limit");
            self.reclaimed.insert(cgroup.to_owned(), self.clock.now());
            failed = failed.or(done.err().filter(|error| !error.is_partial()));
        }
        if let Some(error) = failed {
            self.trouble(&error.to_string());
        }
    }

    fn status(
        &self,
        moves: &[Move],
        kernel: Option<(u64, u64)>,
        pressures: [Option<f64>; 2],
    ) -> Status {
        let chosen = |way| {
            moves
                .iter()
                .filter(|of| of.way == way)
                .map(|of| of.bytes)
                .sum()
        };
        let node = |id: &u32| NodeStatus {
            node: *id,
            size: self.machine.sizes.get(id).copied().unwrap_or(0),
            free: self.machine.free(*id),
        };
        let tier = |nodes: &[u32]| TierStatus {
            nodes: nodes.iter().map(node).collect(),
        };
        let mut unmovable = vec![BTreeMap::new(); self.config.groups.len()];
        for (memory, group) in self.memories() {
            for (why, bytes) in self.unmovable.get(&memory).into_iter().flatten() {
                *unmovable[group].entry(why.name().to_owned()).or_default() += bytes;
            }
        }
        let groups = self
            .config
            .groups
            .iter()
            .zip(self.tiering.accounts())
            .enumerate();
        let group =
            |(index, (group, of)): (usize, (&crate::config::Group, &crate::tiering::Account))| {
                let [second, ten_seconds, minute, ten_minutes, hour] = of.used_within;
                let used_within = UsedWithin {
                    second,
                    ten_seconds,
                    minute,
                    ten_minutes,
                    hour,
                };
                GroupStatus {
                    name: group.name.clone(),
                    processes: self
                        .members
                        .iter()
                        .filter(|member| member.group == index)
                        .count() as u64,
                    resident: of.tenant.resident,
                    unmovable: unmovable[index].clone(),
                    top: of.tenant.used,
                    hot: of.hot,
                    used_within: (!self.source.kernel_moves()).then_some(used_within),
                    share: of.share,
                    protect: of.tenant.protect,
                    limit: Some(of.tenant.limit).filter(|limit| *limit < u64::MAX),
                    promoted: of.promoted,
                    demoted: of.demoted,
                    stayed: of.stayed,
                    stayed_reasons: (self.stayed[index].iter())
                        .map(|(reason, bytes)| ((*reason).to_owned(), *bytes))
                        .collect(),
                    wasted: of.wasted,
                    thrashed: of.thrashed,
                    rate: of.rate.per_mille(),
                    memory_pressure: self.of_cgroups[index].memory,
                    cpu_pressure: self.of_cgroups[index].cpu,
                    pressure_rate: Some(self.of_cgroups[index].brake.rate.per_mille()),
                }
            };
        let rate = self.brake.rate.of(self
            .tiering
            .waste_rate()
            .of(self.config.brakes.bytes_per_second));
        let own = self
            .knobs
            .read("proc/self/stat")
            .and_then(|stat| cpu_seconds(&stat));
        let is_paced = !self.source.kernel_moves() && !self.source.is_absent();
        let unkept = self.history.as_ref().and_then(|of| of.trouble.as_ref());
        Status {
            pid: std::process::id(),
            start: self.start,
            act: self.acts(),
            seconds: self.clock.now().as_secs_f64(),
            rounds: self.rounds,
            round_seconds: self.took.as_secs_f64(),
            cpu_seconds: own.unwrap_or(0.0),
            resident: bytes_of(&self.options.root, "self", 1).unwrap_or(0),
            source: SourceStatus {
                name: self.source.name().to_owned(),
                why: self.why.clone(),
                watched: self.watched as u64,
                cpu_seconds: self.source.cpu_seconds(&self.knobs),
                cpu_budget: is_paced.then_some(self.config.source_cpu),
                regions: self.source.regions(),
                samples: self.source.samples(),
            },
            tiers: vec![tier(&self.machine.top), tier(&self.machine.lower)],
            bytes_per_second: rate,
            waste_rate: self.tiering.waste_rate().per_mille(),
            pressure_rate: self.brake.rate.per_mille(),
            memory_pressure: pressures[0],
            cpu_pressure: pressures[1],
            chosen_up: chosen(Way::Up),
            chosen_down: chosen(Way::Down),
            kernel_promoted: kernel.map(|of| of.0),
            kernel_demoted: kernel.map(|of| of.1),
            trouble: self
                .refused
                .as_ref()
                .or(self.trouble.as_ref())
                .or(unkept)
                .cloned(),
            reload_refused: self.refused.is_some(),
            refused_reloads: self.refused_reloads,
            errors: self.errors,
            history_errors: self.history_errors,
            groups: groups.map(group).collect(),
        }
    }
}

/// Tells which keys of a configuration for a newer version have no effect.
fn tell_ignored(config: &Config) {
    for key in &config.ignored {
        tracing::warn!("the configuration is for a newer version; this one does not know {key}");
    }
}

fn history(options: &Options, config: &Config) -> Option<History> {
    let place = config.history.as_ref().filter(|_| !options.once)?;
    Some(History::new(place, &options.root, options.head))
}

fn questions(options: &Options) -> Option<Questions> {
    if options.once {
        return None;
    }
    let open = Questions::open(&options.root);
    let untold = |error| tracing::warn!("nobody can ask for an explanation: {error}");
    open.map_err(untold).ok()
}

fn pace(config: &Config) -> Pace {
    let params = PaceParams {
        rate: config.brakes.bytes_per_second,
        burst_ms: SAVED_MS,
        ..PaceParams::default()
    };
    // The configuration allows what pace takes.
    Pace::new(params, 0).unwrap_or_else(|_| unreachable!("rates are checked when they are read"))
}

#[cfg(test)]
#[path = "daemon_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "host_tests.rs"]
mod host_tests;
