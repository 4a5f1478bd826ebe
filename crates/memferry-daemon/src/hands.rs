// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of other processes lie, and their moves by the library, a chunk of 2 MiB per call: about a millisecond in which
//! accesses to it wait. The owner's cpuset and policy are looked at before, and what is locked or pinned stays.

mod pages;
mod pool;
mod unmovable;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memferry::MoveError;
use memferry_linux::give_way::GiveWay;
use memferry_linux::mappings::Mappings;
use memferry_linux::numa;
use memferry_linux::pagemap::Pages;
use memferry_process::{End, Process, ProcessMove, Progress, Reason};

use crate::machine::Machine;
use crate::members;
use crate::owner::{self, Owner, Unmovable};
use crate::rights;
use crate::shared::SharedMemory;
use crate::tiering::{CHUNK, Memory, Move, Near, Object, PagePlaces, Placed, ProcessId, Way};
use pool::MAPPERS;

/// Mappings and locked bytes of an owner are compared after that.
const OWNER_AGE: Duration = Duration::from_secs(5);
/// Where they changed, it is asked again once so many times what asking took have passed, so that asking takes a hundredth of a CPU.
const CHANGED_COST: u32 = 100;
/// The same where they did not: the policy of a whole mapping changes without a trace.
const SAME_COST: u32 = 1000;
const MOST_OWNER_AGE: Duration = Duration::from_secs(600);
/// Pages of a chunk whose nodes are asked for; all, where some of them are in the top tier and some are not.
const SAMPLES: usize = 8;
/// Pages of one call that asks.
const ASK: usize = 512;
/// What became of a chunk, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// They lie where they were to.
    pub moved: u64,
    /// They stayed, by reason: the name of an errno of move_pages(2), or one of this module.
    pub stayed: BTreeMap<&'static str, u64>,
}

/// The cpuset of the process allows no node of that tier.
const CPUSET: &str = "cpuset";
/// No node of the lower tiers has room.
const FULL: &str = "ENOMEM";
/// Since it was looked at the chunk was unmapped, locked or given a policy.
const UNMOVABLE: &str = "unmovable";
/// An error that has no errno.
const ERROR: &str = "error";

impl Carried {
    /// A chunk of which nothing moved, for one reason.
    pub fn stayed(reason: &'static str, bytes: u64) -> Self {
        Self {
            moved: 0,
            stayed: BTreeMap::from([(reason, bytes)]),
        }
    }

    /// Bytes that stayed.
    pub fn stayed_bytes(&self) -> u64 {
        self.stayed.values().sum()
    }

    fn add(&mut self, reason: &'static str, bytes: u64) {
        if bytes > 0 {
            *self.stayed.entry(reason).or_default() += bytes;
        }
    }
}

/// The name of an error's errno.
pub(crate) fn reason(error: &MoveError) -> &'static str {
    match error {
        MoveError::System { source, .. } => {
            (source.raw_os_error()).map_or(ERROR, |errno| Reason::of(errno).name())
        }
        _ => ERROR,
    }
}

/// What the daemon does to processes.
pub trait Hands {
    /// From now on these are shared: what a process has of them does not count as its own.
    fn share(&mut self, shared: &Rc<[SharedMemory]>);

    /// Where pages lie that may move.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    fn look(&mut self, machine: &Machine, memory: Memory) -> io::Result<Vec<Placed>>;

    /// Where the pages of a chunk of a process lie that may move.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    fn pages(
        &mut self,
        machine: &Machine,
        process: ProcessId,
        number: usize,
    ) -> io::Result<PagePlaces>;

    /// Bytes that the last look found and that cannot be moved; asked once after each look.
    fn unmovable(&mut self, _memory: Memory) -> BTreeMap<Unmovable, u64> {
        BTreeMap::new()
    }

    /// Where it may go up, the nearest node first; nowhere if nothing is known of it.
    fn near(&mut self, machine: &Machine, memory: Memory) -> Vec<Near>;

    /// Moves a chunk, or some of its pages.
    ///
    /// # Errors
    /// Nothing moved: the process has ended, or may not be touched.
    fn carry(
        &mut self,
        machine: &Machine,
        of: &Move,
        cancel: &AtomicBool,
    ) -> Result<Carried, MoveError>;
}

/// The real ones, for a machine that is this one.
#[derive(Debug, Default)]
pub struct Kernel {
    owners: HashMap<ProcessId, Known>,
    shared: Rc<[SharedMemory]>,
    /// Of the looks that nobody has asked about yet.
    left: BTreeMap<Memory, BTreeMap<Unmovable, u64>>,
    /// Without it numa_maps tells policies.
    mappings: Option<Mappings>,
}

/// What an owner said.
#[derive(Debug)]
struct Known {
    owner: Owner,
    mark: u64,
    /// When its mark is to be looked at, and when it is asked again, if that is the same.
    look: Instant,
    end: Instant,
}

impl Kernel {
    /// Hands that learn of policies by BPF, if they may.
    pub fn new() -> Self {
        let mappings = Mappings::load().map_err(|error| {
            let root = Path::new("/");
            let error = rights::explain(root, error, &[rights::BPF, rights::SAMPLE]);
            tracing::warn!("policies are read from numa_maps, and no process can map or unmap while the kernel walks the pages of one of its mappings: {error}");
        });
        Self {
            mappings: mappings.ok(),
            ..Self::default()
        }
    }

    /// Of the ranges of a process that may move, those that it does not share.
    fn own(
        &mut self,
        root: &Path,
        process: ProcessId,
        within: &Range<usize>,
    ) -> io::Result<Vec<Range<usize>>> {
        let shared = self.shared_by(process, within);
        let owner = self.owner(root, process)?;
        Ok(without(owner.within(within), &shared))
    }

    /// What a process shares of some addresses, ascending.
    fn shared_by(&self, process: ProcessId, within: &Range<usize>) -> Vec<Range<usize>> {
        let mappers = self.shared.iter().flat_map(|of| &of.mappers);
        let of_process = mappers.filter(|of| of.process == process);
        let mut shared: Vec<Range<usize>> = of_process
            .flat_map(|of| of.mappings.iter().map(|of| of.range.clone()))
            .filter(|of| of.start < within.end && within.start < of.end)
            .collect();
        shared.sort_by_key(|of| of.start);
        shared
    }

    fn owner(&mut self, root: &Path, process: ProcessId) -> io::Result<&Owner> {
        let now = Instant::now();
        self.owners.retain(|_, known| now < known.end);
        let known = self.owners.get(&process);
        if known.is_none_or(|known| now >= known.look) {
            // Before it is asked: what changes meanwhile is seen the next time.
            let mark = owner::mark(root, process.pid)?;
            match self.owners.get_mut(&process) {
                Some(known) if known.mark == mark => known.look = now + OWNER_AGE,
                _ => {
                    let known = Known::ask(root, process, mark, self.mappings.as_ref())?;
                    self.owners.insert(process, known);
                }
            }
        }
        Ok(&self.owners[&process].owner)
    }
}

impl Known {
    fn ask(
        root: &Path,
        process: ProcessId,
        mark: u64,
        mappings: Option<&Mappings>,
    ) -> io::Result<Self> {
        let began = Instant::now();
        let owner = Owner::read(root, process.pid, mappings)?;
        let asked = Instant::now();
        let after = |times| {
            let cost = (asked - began).saturating_mul(times);
            asked + cost.clamp(OWNER_AGE, MOST_OWNER_AGE)
        };
        Ok(Self {
            owner,
            mark,
            look: after(CHANGED_COST),
            end: after(SAME_COST),
        })
    }
}

/// A chunk's number, and its present runs.
type Chunk = (usize, Vec<Range<usize>>);

/// Chunks with their present runs.
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges, of which this is the first"
)]
fn chunks(pages: &Pages, ranges: &[Range<usize>]) -> io::Result<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut add = |run: Range<usize>| {
        let mut at = run.start;
        while at < run.end {
            let number = at / CHUNK;
            let end = run.end.min((number + 1) * CHUNK);
            match chunks.last_mut() {
                Some((last, runs)) if *last == number => runs.push(at..end),
                _ => chunks.push((number, vec![at..end])),
            }
            at = end;
        }
    };
    ranges
        .iter()
        .try_for_each(|range| pages.each_run(range, &mut add))?;
    Ok(chunks)
}

/// Some of the pages of runs, one from each of equal parts. Its place in the part is that of a hash: at a fixed stride pages that a program
/// uses at the same stride would be all that is seen.
fn samples(runs: &[Range<usize>], most: usize) -> Vec<usize> {
    let page = rustix::param::page_size();
    let pages: usize = runs.iter().map(|run| run.len() / page).sum();
    let count = pages.min(most);
    let first = runs.first().map_or(0, |run| run.start / page);
    let wanted = (0..count).map(|index| {
        let part = index * pages / count..(index + 1) * pages / count;
        let hash = ((first + index) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        part.start + (hash >> 32) as usize % part.len()
    });
    let mut wanted = wanted.peekable();
    let (mut found, mut before) = (Vec::with_capacity(count), 0);
    for run in runs {
        let of = run.len() / page;
        while let Some(at) = wanted.next_if(|at| *at < before + of) {
            found.push(run.start + (at - before) * page);
        }
        before += of;
    }
    found
}

/// Ranges but for what lies in `holes`; both ascend.
fn without(
    ranges: impl IntoIterator<Item = Range<usize>>,
    holes: &[Range<usize>],
) -> Vec<Range<usize>> {
    let mut left = Vec::new();
    for mut range in ranges {
        let first = holes.partition_point(|hole| hole.end <= range.start);
        for hole in holes[first..].iter().take_while(|of| of.start < range.end) {
            if range.start < hole.start {
                left.push(range.start..hole.start);
            }
            range.start = range.end.min(hole.end);
        }
        if !range.is_empty() {
            left.push(range);
        }
    }
    left
}

/// The node of each page, or an errno below 0.
fn nodes(process: ProcessId, pages: &[usize]) -> io::Result<Vec<i32>> {
    let (mut nodes, pauses) = (vec![0; pages.len()], GiveWay::default());
    for (pages, nodes) in pages.chunks(ASK).zip(nodes.chunks_mut(ASK)) {
        let pid = i32::try_from(process.pid).unwrap_or(i32::MAX);
        numa::move_pages(pid, pages, None, nodes, false)?;
        pauses.between_calls();
    }
    Ok(nodes)
}

impl Kernel {
    fn look_at_process(
        &mut self,
        machine: &Machine,
        process: ProcessId,
    ) -> io::Result<Vec<Placed>> {
        let folder = machine.root.join(format!("proc/{}", process.pid));
        let of = Pages::of(&folder)?;
        let chunks = chunks(&of, &self.own(&machine.root, process, &(0..usize::MAX))?)?;
        let mut left = self.left_of(&machine.root, process, &of)?;
        let mut found = sampled(machine, process, &of, chunks.iter(), SAMPLES)?;
        // Eight pages of a mixture are a rough estimate, by which limits would move memory to and fro.
        let is_mixed = |place: &Placed| 0 < place.top && place.top < place.resident;
        let mixed: Vec<usize> = (0..found.len())
            .filter(|at| is_mixed(&found[*at].0))
            .collect();
        let again = mixed.iter().map(|at| &chunks[*at]);
        let again = sampled(machine, process, &of, again, CHUNK)?;
        for (at, place) in mixed.into_iter().zip(again) {
            found[at] = place;
        }
        let copies = found.iter().map(|(_, copies)| copies).sum();
        left.insert(Unmovable::Copies, copies);
        self.left.insert(process.into(), left);
        Ok(found.into_iter().map(|(place, _)| place).collect())
    }
}

/// Where chunks of a process lie, by so many pages of each, and the bytes that others map as well.
fn sampled<'a>(
    machine: &Machine,
    process: ProcessId,
    of: &Pages,
    chunks: impl Iterator<Item = &'a Chunk>,
    most: usize,
) -> io::Result<Vec<(Placed, u64)>> {
    let (mut places, mut all) = (Vec::new(), Vec::new());
    for (number, runs) in chunks {
        let (sampled, before) = (samples(runs, most), all.len());
        // What others map as well does not move, and would count for each of them.
        let (first, end) = (
            runs.first().map_or(0, |run| run.start),
            runs.last().map_or(0, |run| run.end),
        );
        let exclusive = of.exclusive(&(first..end))?;
        let page = rustix::param::page_size();
        let is_own = |at: &&usize| exclusive.get((**at - first) / page) == Some(&true);
        all.extend(sampled.iter().filter(is_own));
        let (bytes, own) = (
            runs.iter().map(Range::len).sum::<usize>(),
            all.len() - before,
        );
        let resident = bytes * own / sampled.len().max(1);
        places.push((*number, resident as u64, (bytes - resident) as u64, own));
    }
    let mut nodes = nodes(process, &all)?.into_iter();
    let place = |(number, resident, copies, own): (usize, u64, u64, usize)| {
        // A page that has gone meanwhile lies nowhere.
        let known: Vec<i32> = (nodes.by_ref().take(own))
            .filter(|node| *node >= 0)
            .collect();
        let (count, node) = top_of(machine, known.iter().copied());
        let resident = if known.is_empty() { 0 } else { resident };
        let place = Placed {
            number,
            resident,
            top: resident * count / known.len().max(1) as u64,
            node,
        };
        (place, copies)
    };
    Ok(places.into_iter().map(place).collect())
}

/// How many pages of some nodes are in the top tier, and the node there that has the most of them.
fn top_of(machine: &Machine, nodes: impl Iterator<Item = i32>) -> (u64, u32) {
    let mut counts = BTreeMap::<u32, u64>::new();
    let top = nodes.filter_map(|node| {
        u32::try_from(node)
            .ok()
            .filter(|of| machine.top.contains(of))
    });
    top.for_each(|node| *counts.entry(node).or_default() += 1);
    let most = counts.iter().max_by_key(|(_, count)| **count);
    (counts.values().sum(), most.map_or(0, |(node, _)| *node))
}

/// Moves what of some ranges of a process lies on nodes, each with the node where that is to go.
fn carry_ranges(
    root: &Path,
    process: ProcessId,
    ranges: &[Range<usize>],
    ways: &[(u32, u32)],
    shared: bool,
    cancel: &AtomicBool,
) -> Result<Carried, MoveError> {
    let of = Process::open(process.pid)?;
    // Opened before it is compared: what has the number now is the process that was seen, or it is gone.
    if members::start(root, process.pid) != Some(process.start) {
        return Err(gone(process));
    }
    let survey = of.survey_of(ranges)?;
    let mut carried = Carried::default();
    for (from, to) in ways {
        let mut options = ProcessMove::new(*to);
        options.from = Some(*from);
        options.shared = shared;
        let done = of.move_pages(&survey, &options, &Progress::default(), cancel)?;
        carried.moved += done.moved.bytes;
        for (reason, count) in &done.stayed {
            carried.add(reason.name(), count.bytes);
        }
        if let Some(End::Failed(error)) = &done.end {
            carried.add(reason(error), done.left_bytes);
        }
    }
    Ok(carried)
}

fn find(shared: &[SharedMemory], object: Object) -> Option<&SharedMemory> {
    shared.iter().find(|of| of.object == object)
}

fn gone(process: ProcessId) -> MoveError {
    MoveError::NoProcess {
        pid: process.pid,
        why: "it has ended, or its owner cannot be asked",
        hint: "nothing: it is looked for again",
    }
}

impl Hands for Kernel {
    fn share(&mut self, shared: &Rc<[SharedMemory]>) {
        self.shared = Rc::clone(shared);
    }

    fn near(&mut self, machine: &Machine, memory: Memory) -> Vec<Near> {
        let cpus = |process: ProcessId| owner::cpus(&machine.root, process.pid).unwrap_or_default();
        let (nodes, cpus) = match memory {
            Memory::Process(process) => {
                let owner = self.owner(&machine.root, process);
                (owner.map(|of| of.nodes.clone()).ok(), cpus(process))
            }
            Memory::Shared(object) => {
                let shared = find(&self.shared, object);
                let mappers = shared.iter().flat_map(|of| of.mappers.iter().take(MAPPERS));
                let cpus = mappers.flat_map(|of| cpus(of.process)).collect();
                (shared.map(|of| of.nodes.clone()), cpus)
            }
        };
        machine.near(&nodes.unwrap_or_default(), &cpus)
    }

    fn unmovable(&mut self, memory: Memory) -> BTreeMap<Unmovable, u64> {
        let mut left = self.left.remove(&memory).unwrap_or_default();
        left.retain(|_, bytes| *bytes > 0);
        left
    }

    fn look(&mut self, machine: &Machine, memory: Memory) -> io::Result<Vec<Placed>> {
        match memory {
            Memory::Process(process) => self.look_at_process(machine, process),
            Memory::Shared(object) => {
                let known = Rc::clone(&self.shared);
                let shared = find(&known, object);
                Ok(shared.map_or_else(Vec::new, |of| self.look_at_shared(machine, of)))
            }
        }
    }

    fn pages(
        &mut self,
        machine: &Machine,
        process: ProcessId,
        number: usize,
    ) -> io::Result<PagePlaces> {
        self.pages_of(machine, process, number)
    }

    fn carry(
        &mut self,
        machine: &Machine,
        of: &Move,
        cancel: &AtomicBool,
    ) -> Result<Carried, MoveError> {
        let root = &machine.root;
        let chunk = of.number * CHUNK..(of.number + 1) * CHUNK;
        // Each node of the other tier, and where its pages go.
        let ways = |allowed: &[u32]| -> Result<Vec<(u32, u32)>, Carried> {
            let ways: Vec<(u32, u32)> = match of.way {
                Way::Up => machine.lower.iter().map(|from| (*from, of.node)).collect(),
                Way::Down => machine.below(allowed),
            };
            let is_allowed = match of.way {
                Way::Up => allowed.contains(&of.node),
                Way::Down => machine.lower.iter().any(|node| allowed.contains(node)),
            };
            match (is_allowed, ways.is_empty()) {
                (false, _) => Err(Carried::stayed(CPUSET, of.bytes)),
                (true, true) => Err(Carried::stayed(FULL, of.bytes)),
                (true, false) => Ok(ways),
            }
        };
        match of.memory {
            Memory::Process(process) => {
                let mut ranges = self.own(root, process, &chunk).map_err(|_| gone(process))?;
                if let Some(pages) = &of.pages {
                    ranges = pages::runs(of.number, pages, &ranges);
                }
                if ranges.is_empty() {
                    return Ok(Carried::stayed(UNMOVABLE, of.bytes));
                }
                let owner = self.owner(root, process).map_err(|_| gone(process))?;
                match ways(&owner.nodes) {
                    Ok(ways) => carry_ranges(root, process, &ranges, &ways, false, cancel),
                    Err(stayed) => Ok(stayed),
                }
            }
            Memory::Shared(object) => {
                let known = Rc::clone(&self.shared);
                let Some(shared) = find(&known, object) else {
                    return Ok(Carried::stayed(UNMOVABLE, of.bytes));
                };
                let ways = match ways(&shared.nodes) {
                    Ok(ways) => ways,
                    Err(stayed) => return Ok(stayed),
                };
                let (mut all, page) = (Carried::default(), rustix::param::page_size());
                for (process, mappings) in self.lenders(root, shared, &chunk).free {
                    // Unless it is mapped over and over, a chunk has no more mappings than pages.
                    let addresses = mappings.iter().filter_map(|of| of.addresses(&chunk));
                    let ranges: Vec<Range<usize>> = addresses.take(CHUNK / page).collect();
                    match carry_ranges(root, process, &ranges, &ways, true, cancel) {
                        Ok(carried) => {
                            all.moved += carried.moved;
                            // Each process meets what stayed with the ones before it.
                            for (reason, bytes) in carried.stayed {
                                let most = all.stayed.entry(reason).or_default();
                                *most = bytes.max(*most);
                            }
                        }
                        Err(MoveError::NoProcess { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{put, tree};
    use std::fs;
    use std::os::fd::AsRawFd;

    #[test]
    fn samples_are_of_equal_parts_and_within_the_runs() {
        let page = rustix::param::page_size();
        assert_eq!(samples(&[], SAMPLES), [0_usize; 0]);
        let both = [0..page, 7 * page..8 * page];
        assert_eq!(samples(&both, SAMPLES), [0, 7 * page]);
        let runs = [0..12 * page, 100 * page..104 * page];
        let found = samples(&runs, SAMPLES);
        let parts: Vec<usize> = (found.iter())
            .map(|at| at / page - if *at < 100 * page { 0 } else { 88 })
            .map(|at| at / 2)
            .collect();
        assert_eq!(parts, [0, 1, 2, 3, 4, 5, 6, 7]);
        // Every fourth page of a chunk is no more likely than any other.
        let each_fourth = |chunk: usize| {
            let start = chunk * CHUNK;
            let chunk = start..start + CHUNK;
            let found = samples(std::slice::from_ref(&chunk), SAMPLES);
            found.iter().filter(|at| (*at / page) % 4 == 0).count()
        };
        let count: usize = (0..1000).map(each_fourth).sum();
        assert!((1800..2200).contains(&count), "{count} of 8000");
    }

    #[test]
    fn an_owner_with_other_mappings_is_asked_again() {
        let root = tree();
        let file = |name: &str, text: &str| put(root.path(), &format!("proc/7/{name}"), text);
        file("status", "VmLck:\t0 kB\nMems_allowed_list:\t0-1\n");
        let one = "00001000-00003000 rw-p 00000000 00:00 0\n";
        file("maps", one);
        file("numa_maps", "00001000 default anon=1\n");
        let mut hands = Kernel::default();
        let process = ProcessId { pid: 7, start: 1 };
        let mut ranges = |is_due: bool| {
            if let Some(known) = hands.owners.get_mut(&process).filter(|_| is_due) {
                known.look = Instant::now();
            }
            hands.owner(root.path(), process).unwrap().ranges.clone()
        };
        assert_eq!(ranges(false), std::slice::from_ref(&(0x1000..0x3000)));
        file(
            "maps",
            &format!("{one}00005000-00006000 rw-p 00000000 00:00 0\n"),
        );
        file(
            "numa_maps",
            "00001000 bind:0 anon=1\n00005000 default anon=1\n",
        );
        assert_eq!(ranges(false), std::slice::from_ref(&(0x1000..0x3000)));
        assert_eq!(ranges(true), std::slice::from_ref(&(0x5000..0x6000)));
        // What leaves no trace in the mappings is not asked for each time.
        file(
            "numa_maps",
            "00001000 default anon=1\n00005000 default anon=1\n",
        );
        assert_eq!(ranges(true), std::slice::from_ref(&(0x5000..0x6000)));
        file("status", "VmLck:\t4 kB\nMems_allowed_list:\t0-1\n");
        file(
            "smaps",
            "00001000-00003000 rw-p 00000000 00:00 0\nVmFlags: rd wr lo\n",
        );
        assert_eq!(ranges(true), std::slice::from_ref(&(0x5000..0x6000)));
        file("status", "VmLck:\t0 kB\nMems_allowed_list:\t0-1\n");
        assert_eq!(ranges(true), [0x1000..0x3000, 0x5000..0x6000]);
    }

    /// Of pages that are mapped twice none moves; they would count twice.
    #[test]
    fn what_is_mapped_twice_does_not_count() {
        let root = tree();
        let pid = std::process::id();
        let (own, proc) = (format!("/proc/{pid}"), root.path().join("proc"));
        fs::create_dir_all(&proc).unwrap();
        std::os::unix::fs::symlink(&own, proc.join(pid.to_string())).unwrap();
        let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 3 * CHUNK as u64).unwrap();
        let map = || {
            // SAFETY: a new mapping of three chunks.
            unsafe {
                let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                let at = libc::mmap(
                    std::ptr::null_mut(),
                    3 * CHUNK,
                    rights,
                    flags,
                    file.as_raw_fd(),
                    0,
                );
                assert_ne!(at, libc::MAP_FAILED);
                std::slice::from_raw_parts_mut(at.cast::<u8>(), 3 * CHUNK)
            }
        };
        let resident = |at: &[u8]| {
            let machine = Machine::read(root.path()).unwrap();
            let whole = (at.as_ptr() as usize).div_ceil(CHUNK);
            let process = ProcessId { pid, start: 0 };
            let found = Kernel::default().look(&machine, process.into()).unwrap();
            let place = found.iter().find(|place| place.number == whole);
            place.map_or(0, |place| place.resident)
        };
        let first = map();
        first.fill(1);
        assert_eq!(resident(first), CHUNK as u64);
        let second = map();
        second.iter_mut().step_by(4096).for_each(|byte| *byte = 2);
        assert_eq!((resident(first), resident(second)), (0, 0));
    }

    /// Node 1 of the tree is allowed to nobody here.
    #[test]
    fn what_stays_has_a_reason() {
        let root = tree();
        let pid = std::process::id();
        let proc = root.path().join("proc");
        std::os::unix::fs::symlink(format!("/proc/{pid}"), proc.join(pid.to_string())).unwrap();
        let (machine, mut hands) = (Machine::read(root.path()).unwrap(), Kernel::default());
        let start = members::start(root.path(), pid).unwrap();
        let memory = vec![1_u8; 2 * CHUNK];
        let mut carry = |number, bytes| {
            let of = Move {
                memory: ProcessId { pid, start }.into(),
                number,
                way: Way::Down,
                cause: crate::tiering::Cause::Exchange,
                node: 0,
                bytes,
                pages: None,
            };
            hands.carry(&machine, &of, &AtomicBool::new(false)).unwrap()
        };
        assert_eq!(carry(0, 7), Carried::stayed(UNMOVABLE, 7));
        let mapped = (memory.as_ptr() as usize).div_ceil(CHUNK);
        assert_eq!(carry(mapped, 9), Carried::stayed(CPUSET, 9));
        assert!(memory.iter().step_by(4096).all(|byte| *byte == 1));
        let system = |errno| MoveError::System {
            call: "move_pages",
            hint: "",
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(reason(&system(libc::EPERM)), "EPERM");
        assert_eq!(reason(&MoveError::OtherProcess), ERROR);
    }

    fn resident(
        machine: &Machine,
        hands: &mut Kernel,
        memory: Memory,
        numbers: Range<usize>,
    ) -> u64 {
        let places = hands.look(machine, memory).unwrap();
        let within = places.iter().filter(|of| numbers.contains(&of.number));
        within.map(|of| of.resident).sum()
    }

    /// Each of two processes has one half of a pool in its page tables; the other one's half is not its own.
    #[test]
    fn what_a_group_shares_is_found_whole_and_counts_once() {
        let root = tree();
        let file = rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        // Most of it is never touched.
        let length = CHUNK << 15;
        rustix::fs::ftruncate(&file, length as u64).unwrap();
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        // SAFETY: a new mapping of four chunks, which the child has, too.
        let (start, child) = unsafe {
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let at = libc::mmap(
                std::ptr::null_mut(),
                length,
                rights,
                flags,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>().write_bytes(1, 2 * CHUNK);
            (at.cast::<u8>(), libc::fork())
        };
        if child == 0 {
            // SAFETY: its own half; no lock of another thread is needed.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                start.add(2 * CHUNK).write_bytes(2, 2 * CHUNK);
                loop {
                    libc::pause();
                }
            }
        }
        let (pid, child) = (std::process::id(), child as u32);
        fs::create_dir_all(root.path().join("proc")).unwrap();
        for pid in [pid, child] {
            let link = root.path().join(format!("proc/{pid}"));
            std::os::unix::fs::symlink(format!("/proc/{pid}"), link).unwrap();
        }
        let pages = || Pages::of(Path::new(&format!("/proc/{child}"))).unwrap();
        let last = start as usize + 4 * CHUNK;
        while pages().exclusive(&(last - 4096..last)).unwrap() != [true] {
            std::thread::yield_now();
        }
        let found = crate::shared::find(root.path(), |_| Some(0)).unwrap();
        let pool = found.iter().find(|of| of.object.inode == inode).unwrap();
        let (object, process) = (pool.object, pool.mappers[0].process);
        let (machine, mut hands) = (Machine::read(root.path()).unwrap(), Kernel::default());
        let range = &pool.mappers[0].mappings[0].range;
        let own = range.start.div_ceil(CHUNK)..range.start / CHUNK + 4;
        assert!(
            resident(&machine, &mut hands, process.into(), own.clone()) > 0,
            "as long as nobody says that it is shared"
        );
        assert_eq!(
            resident(&machine, &mut hands, Memory::Shared(object), 0..4),
            0
        );
        // Of two groups it is nobody's, and of neither process.
        let mut foreign = found.clone();
        foreign.iter_mut().for_each(|of| of.group = None);
        hands.share(&Rc::from(foreign));
        assert_eq!(
            resident(&machine, &mut hands, process.into(), own.clone()),
            0
        );
        hands.share(&Rc::from(found));
        assert_eq!(resident(&machine, &mut hands, process.into(), own), 0);
        let places = hands.look(&machine, Memory::Shared(object)).unwrap();
        assert_eq!(places.len(), 4, "only what is there");
        assert_eq!(
            resident(&machine, &mut hands, Memory::Shared(object), 0..4),
            4 * CHUNK as u64
        );
        // SAFETY: the child of above.
        unsafe {
            libc::kill(child as i32, libc::SIGKILL);
            libc::waitpid(child as i32, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn holes_are_cut_out_of_ranges() {
        let cut = |holes: &[Range<usize>]| without(vec![0..10, 20..30], holes);
        assert_eq!(cut(&[]), [0..10, 20..30]);
        assert_eq!(cut(&[0..2, 5..25]), [2..5, 25..30]);
        assert_eq!(cut(&[0..15, 15..40]), []);
        assert_eq!(cut(&[10..20, 22..23, 30..31]), [0..10, 20..22, 23..30]);
    }

    #[test]
    fn this_process_is_found_where_it_lies() {
        let page = rustix::param::page_size();
        let memory = vec![1_u8; 4 * CHUNK];
        let Ok(pages) = Pages::of(std::path::Path::new("/proc/self")) else {
            return println!("not run: no pagemap here");
        };
        let start = (memory.as_ptr() as usize).next_multiple_of(CHUNK);
        let range = start..start + 2 * CHUNK;
        let found = chunks(&pages, std::slice::from_ref(&range)).unwrap();
        let numbers: Vec<usize> = found.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [start / CHUNK, start / CHUNK + 1]);
        let bytes: usize = found
            .iter()
            .flat_map(|(_, runs)| runs)
            .map(Range::len)
            .sum();
        assert_eq!(bytes, 2 * CHUNK);
        assert!(memory.iter().step_by(page).all(|byte| *byte == 1));
    }
}
