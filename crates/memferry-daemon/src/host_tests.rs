// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon on a made-up host: hundreds of processes in tens of groups on two sockets, with a clock of its own. Only three things are
//! models: which memory programs use, what DAMON sees of it, and the moves. Files, turns, policy, pace and shared memory are the daemon's.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::io;
use std::ops::Range;

use super::*;
use crate::explain::Explanation;
use crate::machine::tests::{SOCKETS, put, tree};
use crate::source::Damon;
use crate::tiering::{CHUNK, Cause, Near, PagePlaces, Placed};
use memferry_linux::invented::changes;

const CHUNK_BYTES: u64 = CHUNK as u64;
/// Chunks of memory that is used alike: 64 MiB.
const EXTENT: usize = 32;
/// How likely a page is used within 100 ms while its memory is in use.
const SEEN: f64 = 0.5;
/// CPU seconds that a sample takes DAMON.
const SAMPLE: f64 = 2.3e-6;
/// When a part of the hot memory becomes idle and as much becomes hot, in seconds.
const TURN: u64 = 400;
/// Seconds from burst to burst, and of a burst.
const BURST: [u64; 2] = [40, 2];
/// Seconds for which new memory is used.
const NEW: u64 = 60;
/// Where a pool lies in processes that map it.
const POOL_AT: usize = 1 << 25;

/// What is tiered as one: a process's own memory, or a pool.
struct Part {
    /// Processes that map it.
    pids: Vec<u32>,
    group: usize,
    /// Of the first process: 0 or 1.
    socket: u32,
    /// Where it begins in them, in chunks.
    at: usize,
    /// The node of each chunk.
    nodes: Vec<u32>,
    /// Since when it is new, seconds; 0 for what was there at first.
    born: Vec<u64>,
}

/// The truth.
struct World {
    parts: Vec<Part>,
    /// Chunks of each node: 0 and 1 are DRAM, 2 and 3 slow.
    size: [u64; 4],
    used: [u64; 4],
    /// Bytes that went down by cause, and of those what had been used within 60 s.
    down: BTreeMap<Cause, (u64, u64)>,
    /// Bytes that went down for ones that are used less.
    wrong: u64,
    waiting: Vec<Move>,
    up: u64,
}

fn hash(a: usize, b: usize) -> u64 {
    let mut x = (a as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (b as u64 + 1).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 31;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 29
}

impl World {
    /// When a chunk was used last, until a time; `None` if never. All in seconds.
    fn last_used(&self, part: usize, chunk: usize, now: f64) -> Option<f64> {
        let born = self.parts[part].born[chunk];
        if born > 0 {
            return Some(now.min((born + NEW) as f64));
        }
        let hash = hash(part, chunk / EXTENT);
        match hash % 1000 {
            0..40 => Some(now.min(TURN as f64)),
            40..150 => Some(now),
            150..190 => (now >= TURN as f64).then_some(now),
            300..450 => {
                let [period, length] = BURST.map(|of| of as f64);
                let phase = (hash / 1000 % BURST[0]) as f64;
                let into = (now + phase) % period;
                let last = now - (into - length).max(0.0);
                (last >= 0.0).then_some(last)
            }
            _ => None,
        }
    }

    fn is_used(&self, part: usize, chunk: usize, now: f64) -> bool {
        self.last_used(part, chunk, now) == Some(now)
    }

    /// How often it is used, for comparisons.
    fn rate(&self, part: usize, chunk: usize, now: f64) -> f64 {
        match hash(part, chunk / EXTENT) % 1000 {
            300..450 if self.parts[part].born[chunk] == 0 => BURST[1] as f64 / BURST[0] as f64,
            _ => f64::from(u8::from(self.is_used(part, chunk, now))),
        }
    }

    fn part_of(&self, memory: Memory) -> usize {
        let is_it = |of: &Part| match memory {
            Memory::Process(process) => of.at < POOL_AT && of.pids == [process.pid],
            Memory::Shared(object) => of.at >= POOL_AT && u64::from(of.pids[0]) == object.inode,
        };
        self.parts.iter().position(is_it).expect("a part")
    }

    fn free(&self, node: u32) -> u64 {
        self.size[node as usize] - self.used[node as usize]
    }

    fn give(&mut self, part: usize, born: u64, top: bool) {
        let socket = self.parts[part].socket;
        let nodes = [socket, 1 - socket, 2 + socket, 3 - socket];
        let mut nodes = nodes[if top { 0 } else { 2 }..].iter();
        let node = *nodes.find(|node| self.free(**node) > 0).expect("room");
        self.used[node as usize] += 1;
        self.parts[part].nodes.push(node);
        self.parts[part].born.push(born);
    }

    /// Bytes of chunks by what they are: those that the filter takes, and of those what is in the top tier.
    fn sum(&self, takes: impl Fn(usize, usize) -> bool) -> [u64; 2] {
        let mut sum = [0; 2];
        for (index, part) in self.parts.iter().enumerate() {
            for (chunk, node) in part.nodes.iter().enumerate() {
                if takes(index, chunk) {
                    sum[0] += CHUNK_BYTES;
                    sum[1] += CHUNK_BYTES * u64::from(*node < 2);
                }
            }
        }
        sum
    }
}

/// Hands that move what is made up. A look takes as long as the kernel takes for base pages, 10 ns each.
struct Simulated {
    world: Rc<RefCell<World>>,
    now: Rc<Cell<Duration>>,
}

impl Hands for Simulated {
    fn share(&mut self, _: &Rc<[SharedMemory]>) {}

    fn near(&mut self, machine: &Machine, memory: Memory) -> Vec<Near> {
        let world = self.world.borrow();
        let socket = world.parts[world.part_of(memory)].socket;
        machine.near(&[0, 1, 2, 3], &[2 * socket])
    }

    fn pages(&mut self, _: &Machine, _: ProcessId, _: usize) -> io::Result<PagePlaces> {
        unreachable!("no close looks here")
    }

    fn look(&mut self, _: &Machine, memory: Memory) -> io::Result<Vec<Placed>> {
        let world = self.world.borrow();
        let part = &world.parts[world.part_of(memory)];
        let pages = part.nodes.len() * CHUNK / 4096;
        self.now
            .set(self.now.get() + Duration::from_nanos(10 * pages as u64));
        let place = |(chunk, node): (usize, &u32)| Placed {
            number: if part.at < POOL_AT {
                part.at + chunk
            } else {
                chunk
            },
            resident: CHUNK_BYTES,
            top: CHUNK_BYTES * u64::from(*node < 2),
            node: *node % 2,
        };
        Ok(part.nodes.iter().enumerate().map(place).collect())
    }

    fn carry(
        &mut self,
        machine: &Machine,
        of: &Move,
        _: &AtomicBool,
    ) -> Result<Carried, MoveError> {
        let mut world = self.world.borrow_mut();
        let now = self.now.get().as_secs_f64();
        let at = |world: &World, of: &Move| {
            let part = world.part_of(of.memory);
            let first = if world.parts[part].at < POOL_AT {
                world.parts[part].at
            } else {
                0
            };
            (part, of.number - first)
        };
        let (part, chunk) = at(&world, of);
        let from = world.parts[part].nodes[chunk];
        let to = match of.way {
            Way::Up => of.node,
            Way::Down => {
                let below = machine.below(&[0, 1, 2, 3]);
                below.iter().find(|of| of.0 == from).expect("room below").1
            }
        };
        assert_eq!(from < 2, of.way == Way::Down);
        world.used[from as usize] -= 1;
        world.used[to as usize] += 1;
        world.parts[part].nodes[chunk] = to;
        match of.way {
            Way::Up => {
                world.up += CHUNK_BYTES;
                let rate = world.rate(part, chunk, now);
                for of in std::mem::take(&mut world.waiting) {
                    let (part, chunk) = at(&world, &of);
                    if world.rate(part, chunk, now) > rate {
                        world.wrong += CHUNK_BYTES;
                    }
                }
            }
            Way::Down => {
                let last = world.last_used(part, chunk, now);
                let is_recent = last.is_some_and(|last| now - last < 60.0);
                let (all, recent) = world.down.entry(of.cause).or_default();
                *all += CHUNK_BYTES;
                *recent += CHUNK_BYTES * u64::from(is_recent);
                if matches!(of.cause, Cause::Share | Cause::Exchange) {
                    world.waiting.push(*of);
                }
            }
        }
        Ok(Carried {
            moved: of.bytes,
            ..Carried::default()
        })
    }
}

/// A region of a process, in pages, and what samples saw of it.
#[derive(Clone, Debug)]
struct Region {
    range: Range<usize>,
    accesses: u32,
}

/// What DAMON does in a kdamond: regions, of which each sample looks at one page; alike neighbours merge, all split.
#[derive(Default)]
struct Kdamond {
    watched: Vec<ProcessId>,
    most: usize,
    /// Of each process.
    regions: Vec<Vec<Region>>,
    last: usize,
    /// Samples in a report.
    samples: u32,
    /// CPU time.
    seconds: f64,
}

const PAGES: usize = CHUNK / 4096;

impl Kdamond {
    fn set(&mut self, watched: &[ProcessId], most: usize, world: &World) {
        self.most = most;
        if self.watched == watched {
            return;
        }
        self.watched = watched.to_vec();
        let ranges: Vec<Vec<Range<usize>>> = (watched.iter())
            .map(|process| {
                let parts = world
                    .parts
                    .iter()
                    .filter(|of| of.pids.contains(&process.pid));
                parts
                    .map(|of| of.at * PAGES..(of.at + of.nodes.len()) * PAGES)
                    .collect()
            })
            .collect();
        let size = self.limit(&ranges);
        self.regions = (ranges.into_iter())
            .map(|of| {
                let cut = |of: Range<usize>| {
                    let end = of.end;
                    of.step_by(size).map(move |at| Region {
                        range: at..end.min(at + size),
                        accesses: 0,
                    })
                };
                of.into_iter().flat_map(cut).collect()
            })
            .collect();
    }

    /// Pages of a region at most.
    fn limit(&self, ranges: &[Vec<Range<usize>>]) -> usize {
        let pages: usize = ranges.iter().flatten().map(Range::len).sum();
        (pages / (self.most / 5).max(1)).max(1)
    }

    fn count(&self) -> usize {
        self.regions.iter().map(Vec::len).sum()
    }

    fn report(
        &mut self,
        world: &World,
        now: f64,
        random: &mut fastrand::Rng,
    ) -> Vec<(ProcessId, Vec<Seen>)> {
        let ranges: Vec<Vec<Range<usize>>> = (self.regions.iter())
            .map(|of| of.iter().map(|of| of.range.clone()).collect())
            .collect();
        let limit = self.limit(&ranges);
        let samples = self.samples;
        let seen = 1.0 - (1.0 - SEEN).powf(2.0 / f64::from(samples));
        self.seconds += f64::from(samples) * self.count() as f64 * SAMPLE;
        for (process, regions) in self.watched.iter().zip(&mut self.regions) {
            let parts: Vec<usize> = (0..world.parts.len())
                .filter(|part| world.parts[*part].pids.contains(&process.pid))
                .collect();
            for region in regions {
                let is_of = |part: &&usize| {
                    let of = &world.parts[**part];
                    (of.at..of.at + of.nodes.len()).contains(&(region.range.start / PAGES))
                };
                let part = *parts.iter().find(is_of).expect("a part");
                let of = &world.parts[part];
                region.accesses = (0..samples)
                    .filter(|_| {
                        let chunk = random.usize(region.range.clone()) / PAGES - of.at;
                        // Each process uses a part of a pool of its own.
                        let user = of.pids[chunk / EXTENT % of.pids.len()];
                        user == process.pid
                            && world.is_used(part, chunk, now)
                            && random.f64() < seen
                    })
                    .count() as u32;
            }
        }
        let mut threshold = samples / 10;
        loop {
            for regions in &mut self.regions {
                merge(regions, threshold, limit);
            }
            if self.count() <= self.most || threshold > samples {
                break;
            }
            threshold = (2 * threshold).max(1);
        }
        let report = self
            .watched
            .iter()
            .zip(&self.regions)
            .map(|(process, regions)| {
                let used = regions.iter().filter(|of| of.accesses > 0);
                let seen = used.map(|of| Seen {
                    range: of.range.start * 4096..of.range.end * 4096,
                    accesses: of.accesses,
                    of: samples,
                });
                (*process, seen.collect())
            });
        let report = report.collect();
        let count = self.count();
        if count <= self.most / 2 {
            let parts = if count == self.last && count < self.most / 3 {
                3
            } else {
                2
            };
            for regions in &mut self.regions {
                *regions = regions
                    .iter()
                    .flat_map(|of| split(of, parts, random))
                    .collect();
            }
        }
        self.last = count;
        report
    }
}

fn merge(regions: &mut Vec<Region>, threshold: u32, limit: usize) {
    let mut merged: Vec<Region> = Vec::with_capacity(regions.len());
    for of in regions.drain(..) {
        match merged.last_mut() {
            Some(last)
                if last.range.end == of.range.start
                    && last.accesses.abs_diff(of.accesses) <= threshold
                    && last.range.len() + of.range.len() <= limit =>
            {
                let [old, new] = [last.range.len(), of.range.len()];
                last.accesses = ((last.accesses as usize * old + of.accesses as usize * new)
                    / (old + new)) as u32;
                last.range.end = of.range.end;
            }
            _ => merged.push(of),
        }
    }
    *regions = merged;
}

fn split(of: &Region, parts: usize, random: &mut fastrand::Rng) -> Vec<Region> {
    let (mut range, mut split) = (of.range.clone(), Vec::new());
    for _ in 1..parts {
        let at = range.start + range.len() * random.usize(1..10) / 10;
        if at > range.start && at < range.end {
            split.push(Region {
                range: range.start..at,
                ..of.clone()
            });
            range.start = at;
        }
    }
    split.push(Region {
        range,
        ..of.clone()
    });
    split
}

/// DAMON's choice of processes and regions, and the model's reports on them.
struct Watching {
    damon: Damon,
    began: Instant,
    kdamonds: [Kdamond; 2],
    world: Rc<RefCell<World>>,
    now: Rc<Cell<Duration>>,
    random: fastrand::Rng,
}

impl Source for Watching {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn watch(&mut self, knobs: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError> {
        let now = self.began + self.now.get();
        let watched = self.damon.watch_at(knobs, processes, now)?;
        for (number, of) in self.kdamonds.iter_mut().enumerate() {
            let (processes, most, samples) = self.damon.of_kdamond(number);
            of.set(processes, most, &self.world.borrow());
            of.samples = samples;
            // The kernel tells ticks.
            let ticks = of.seconds * rustix::param::clock_ticks_per_second() as f64;
            let stat = format!(
                "9{number} (kdamond.{number}) S {}{ticks:.0} 0\n",
                "0 ".repeat(10)
            );
            put(knobs.root(), &format!("proc/9{number}/stat"), &stat);
        }
        Ok(watched)
    }

    fn report(&mut self, _: &mut Knobs) -> Result<Report, DaemonError> {
        let now = self.now.get().as_secs_f64();
        let world = self.world.borrow();
        let random = &mut self.random;
        let each = self
            .kdamonds
            .iter_mut()
            .flat_map(|of| of.report(&world, now, random));
        Ok(Report::Accesses(each.collect()))
    }
}

/// Writes how many chunks a node has, and how many are free.
fn meminfo(root: &Path, node: usize, chunks: [u64; 2]) {
    let [size, free] = chunks.map(|of| of * CHUNK_BYTES / 1024);
    let text = format!("Node {node} MemTotal: {size} kB\nNode {node} MemFree: {free} kB\n");
    let file = format!("sys/devices/system/node/node{node}/meminfo");
    put(root, &file, &text);
}

/// The host, and the daemon on it.
struct Host {
    root: tempfile::TempDir,
    world: Rc<RefCell<World>>,
    now: Rc<Cell<Duration>>,
    daemon: Daemon,
    grown: u64,
}

const PROCESSES: u32 = 300;
const GROUPS: usize = 40;

impl Host {
    /// A host with so many bytes in processes, a quarter of them in the top tier.
    fn new(bytes: u64) -> Host {
        let root = tree();
        let chunks = bytes / CHUNK_BYTES;
        let top = chunks / 8;
        let size = [top, top, chunks, chunks];
        changes(root.path(), SOCKETS);
        for (node, size) in size.iter().enumerate() {
            meminfo(root.path(), node, [*size; 2]);
        }
        crate::source::damon_tree(root.path());
        for number in 0..2 {
            let file = format!("{}/{number}/pid", crate::knobs::KDAMONDS);
            put(root.path(), &file, &format!("9{number}"));
        }
        let mut world = World {
            parts: Vec::new(),
            size,
            used: [0; 4],
            down: BTreeMap::new(),
            wrong: 0,
            waiting: Vec::new(),
            up: 0,
        };
        // A few have most, as on real hosts.
        let weights: f64 = (0..PROCESSES).map(|of| 1.0 / f64::from(of + 10)).sum();
        for of in 0..PROCESSES {
            let own = (chunks as f64 / f64::from(of + 10) / weights) as usize;
            let pid = 1000 + of;
            let part = |pids: Vec<u32>, at| Part {
                pids,
                group: of as usize % GROUPS,
                socket: of / 7 % 2,
                at,
                nodes: Vec::new(),
                born: Vec::new(),
            };
            // Of every eighth group four processes have half of their memory in a pool.
            let shares = of as usize % GROUPS % 8 == 0 && of < 4 * GROUPS as u32;
            let own = own.max(16) / if shares { 2 } else { 1 };
            world.parts.push(part(vec![pid], 0x1000));
            world.fill(own, of as usize);
            if shares && of < GROUPS as u32 {
                let pids = (0..4).map(|number| pid + number * GROUPS as u32).collect();
                world.parts.push(part(pids, POOL_AT));
                world.fill(own, of as usize);
            }
        }
        let mut config = "act = true\nsource = \"damon\"\n".to_owned();
        for group in 0..GROUPS {
            writeln!(
                config,
                "[[group]]\nname = \"g{group}\"\nprocesses = [\"g{group}\"]"
            )
            .unwrap();
        }
        put(root.path(), "memferry.toml", &config);
        let options = Options {
            config: root.path().join("memferry.toml"),
            root: root.path().to_owned(),
            dry_run: false,
            once: false,
            head: |_| String::new(),
        };
        let (world, now) = (
            Rc::new(RefCell::new(world)),
            Rc::new(Cell::new(Duration::ZERO)),
        );
        Self::files(&root, &world.borrow());
        let hands = Simulated {
            world: Rc::clone(&world),
            now: Rc::clone(&now),
        };
        let mut daemon = Daemon::new(
            &options,
            Config::read(&options.config).unwrap(),
            Machine::read(root.path()).unwrap(),
            Box::new(hands),
            Knobs::open(root.path()).unwrap(),
            Arc::default(),
        )
        .unwrap();
        let clock = Rc::clone(&now);
        daemon.clock = Clock(Box::new(move || clock.get()));
        daemon.source = Box::new(Watching {
            damon: Damon::new(&mut daemon.knobs, 3).unwrap().with_all_regions(),
            began: Instant::now(),
            kdamonds: Default::default(),
            world: Rc::clone(&world),
            now: Rc::clone(&now),
            random: fastrand::Rng::with_seed(7),
        });
        Host {
            root,
            world,
            now,
            daemon,
            grown: 0,
        }
    }

    /// What /proc says of processes.
    fn files(root: &tempfile::TempDir, world: &World) {
        for part in &world.parts {
            for pid in &part.pids {
                let parts = world.parts.iter().filter(|of| of.pids.contains(pid));
                let (mut pages, mut maps) = (0, String::new());
                for of in parts {
                    pages += of.nodes.len() * PAGES;
                    let range = of.at * CHUNK..(of.at + of.nodes.len()) * CHUNK;
                    let kind = if of.at < POOL_AT {
                        "rw-p 00000000 00:00 0".to_owned()
                    } else {
                        format!("rw-s 00000000 00:01 {} /memfd:pool (deleted)", of.pids[0])
                    };
                    writeln!(maps, "{:x}-{:x} {kind}", range.start, range.end).unwrap();
                }
                let stat = format!("{pid} (x) S {}{pid} 0\n", "0 ".repeat(18));
                for (file, text) in [
                    ("statm", format!("{pages} {pages} 0 0 0 0 0\n")),
                    ("maps", maps),
                    ("comm", format!("g{}\n", part.group)),
                    ("cgroup", "0::/a\n".to_owned()),
                    ("stat", stat),
                    ("status", "Mems_allowed_list:\t0-3\n".to_owned()),
                ] {
                    put(root.path(), &format!("proc/{pid}/{file}"), &text);
                }
            }
        }
    }

    fn round(&mut self) {
        let began = self.now.get();
        // One process grows by 128 MiB each ten seconds.
        if began.as_secs() / 10 > self.grown {
            self.grown = began.as_secs() / 10;
            let mut world = self.world.borrow_mut();
            let part = self.grown as usize * 13 % 40;
            (0..64).for_each(|_| world.give(part, began.as_secs(), true));
        }
        for node in 0..4 {
            let world = self.world.borrow();
            let chunks = [world.size[node], world.free(node as u32)];
            meminfo(self.root.path(), node, chunks);
        }
        self.daemon.round();
        self.world.borrow_mut().waiting.clear();
        let next = began + ROUND;
        self.now.set(self.now.get().max(next));
    }

    fn minutes(&mut self, minutes: u64) {
        let end = self.now.get() + Duration::from_secs(60 * minutes);
        while self.now.get() < end {
            self.round();
        }
    }

    /// Prints, and gives the parts of hot, idle and other memory that are in the top tier.
    fn tell(&self) -> [f64; 3] {
        let world = self.world.borrow();
        let now = self.now.get().as_secs_f64();
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let age = |part, chunk| {
            world
                .last_used(part, chunk, now)
                .map_or(f64::INFINITY, |last| now - last)
        };
        let hot = world.sum(|part, chunk| world.rate(part, chunk, now) == 1.0);
        let bursts = world.sum(|part, chunk| (0.01..0.9).contains(&world.rate(part, chunk, now)));
        let idle = world.sum(|part, chunk| age(part, chunk) > 300.0);
        println!(
            "{now:.0} s: hot {:.1} of {:.1}, bursts {:.1} of {:.1}, idle {:.1} of {:.1} GiB in the top tier; free {:?}; up {:.1}, wrong {:.2} GiB",
            gib(hot[1]),
            gib(hot[0]),
            gib(bursts[1]),
            gib(bursts[0]),
            gib(idle[1]),
            gib(idle[0]),
            [0, 1, 2, 3].map(|node| world.free(node)),
            gib(world.up),
            gib(world.wrong)
        );
        for (cause, (all, recent)) in &world.down {
            println!(
                "   {cause:?}: {:.2} GiB down, {:.2} of it used within 60 s",
                gib(*all),
                gib(*recent)
            );
        }
        [hot, idle, bursts].map(|of| of[1] as f64 / of[0] as f64)
    }
}

impl World {
    fn fill(&mut self, chunks: usize, seed: usize) {
        let part = self.parts.len() - 1;
        for chunk in 0..chunks {
            // A hundredth of the top tier is free at first.
            let top = hash(seed + 7777, chunk / 8) % 10_000 < 2475;
            self.give(part, 0, top);
        }
    }
}

#[test]
fn who_asks_hears_what_is_known_and_why_memory_stays() {
    let mut host = Host::new(16 << 30);
    let root = host.root.path().to_owned();
    (0..40).for_each(|_| host.round());
    let mut ask = |what: &'static str| {
        let root = root.clone();
        let asked = std::thread::spawn(move || explain::ask(&root, what));
        while !asked.is_finished() {
            host.round();
        }
        asked.join().unwrap()
    };
    // A process, and what it shares; then all of its group.
    let of_process = ask("1008").unwrap();
    let pids = |of: &Explanation| of.memories.iter().map(|of| of.pid).collect::<Vec<_>>();
    let mut found = pids(&of_process);
    found.sort_unstable();
    assert_eq!(found, [None, Some(1008)]);
    let of_group = ask("g8").unwrap();
    assert_eq!(of_group.memories.len() as u64, of_group.group.processes + 1);
    let states = || {
        of_group
            .memories
            .iter()
            .map(|of| of.state.as_ref().unwrap())
    };
    // What is in the top tier counts after the moves of the round, in the group before them.
    let resident = states().map(|of| of.resident).sum::<u64>();
    assert_eq!(resident, of_group.group.resident);
    assert!(states().any(|of| of.reports > 30 && of.nodes.len() == 2));
    let reasons: BTreeSet<_> = states().flat_map(|of| of.below.keys()).collect();
    assert!(reasons.len() > 1, "{reasons:?}");
    for (what, why) in [
        ("g99", "there is no group \"g99\"; the groups are g0, g1"),
        ("77", "there is no process 77"),
    ] {
        let told = ask(what).unwrap_err().to_string();
        assert!(told.starts_with(why), "{told}");
    }
    put(&root, "proc/77/statm", "9 9 0\n");
    put(&root, "proc/77/comm", "g3\n");
    let told = ask("77").unwrap_err().to_string();
    assert!(
        told.contains("is of group g3, but has less than 16 MiB"),
        "{told}"
    );
    put(&root, "proc/77/comm", "other\n");
    let told = ask("77").unwrap_err().to_string();
    assert_eq!(told, "no group takes process 77");
    drop(host);
    Questions::remove(&root);
    let told = explain::ask(&root, "g1").unwrap_err().to_string();
    assert!(told.contains("cannot ask the daemon"), "{told}");
}

/// More is used than the top tier holds. Parts of what is always in use and of what is idle are in the top tier after some minutes, and no
/// byte that was used within a minute made room for new memory.
fn ends_with(bytes: u64, minutes: u64, hot_at_least: f64, idle_at_most: f64) {
    let mut host = Host::new(bytes);
    host.minutes(minutes);
    let [hot, idle, _] = host.tell();
    assert!(hot > hot_at_least && idle < idle_at_most, "{hot} {idle}");
    let world = host.world.borrow();
    let for_new = world.down.get(&Cause::NewMemory).copied();
    assert_eq!(for_new.map_or(0, |(_, recent)| recent), 0);
}

#[test]
fn idle_memory_goes_down_where_the_top_tier_is_short() {
    ends_with(32 << 30, 6, 0.8, 0.1);
}

/// Both began at a quarter. The rate and the regions of DAMON are what bounds it.
#[test]
#[ignore = "minutes"]
fn idle_memory_of_a_terabyte_goes_down() {
    ends_with(1 << 40, 14, 0.4, 0.23);
}
