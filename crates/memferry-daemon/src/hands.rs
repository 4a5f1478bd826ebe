// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of other processes lie, and their moves by the library, a chunk of 2 MiB per call: about a millisecond in which
//! accesses to it wait. The owner's cpuset and policy are looked at before, and what is locked or pinned stays.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memferry::MoveError;
use memferry_linux::numa;
use memferry_linux::pagemap::Pages;
use memferry_process::{Process, ProcessMove, Progress};

use crate::machine::Machine;
use crate::members;
use crate::owner::{self, Owner};
use crate::tiering::{CHUNK, Move, Placed, ProcessId, Way};

/// Mappings and locked bytes of an owner are compared after that.
const OWNER_AGE: Duration = Duration::from_secs(5);
/// Where they changed, it is asked again once so many times what asking took have passed, so that asking takes a hundredth of a CPU.
const CHANGED_COST: u32 = 100;
/// The same where they did not: the policy of a whole mapping changes without a trace.
const SAME_COST: u32 = 1000;
const MOST_OWNER_AGE: Duration = Duration::from_secs(600);
/// Pages of a chunk whose nodes are asked for.
const SAMPLES: usize = 8;
/// Pages of one call that asks.
const ASK: usize = 512;

/// What the daemon does to processes.
pub trait Hands {
    /// Where the pages of a process lie that may move.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    fn look(&mut self, machine: &Machine, process: ProcessId) -> io::Result<Vec<Placed>>;

    /// Moves a chunk. Returns the bytes that moved and those that stayed.
    ///
    /// # Errors
    /// Nothing moved: the process has ended, or may not be touched.
    fn carry(
        &mut self,
        machine: &Machine,
        of: &Move,
        cancel: &AtomicBool,
    ) -> Result<(u64, u64), MoveError>;
}

/// The real ones, for a machine that is this one.
#[derive(Debug, Default)]
pub struct Kernel {
    owners: HashMap<ProcessId, Known>,
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
                    let known = Known::ask(root, process, mark)?;
                    self.owners.insert(process, known);
                }
            }
        }
        Ok(&self.owners[&process].owner)
    }
}

impl Known {
    fn ask(root: &Path, process: ProcessId, mark: u64) -> io::Result<Self> {
        let began = Instant::now();
        let owner = Owner::read(root, process.pid)?;
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

/// Chunks with their present runs.
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges, of which this is the first"
)]
fn chunks(pages: &Pages, ranges: &[Range<usize>]) -> io::Result<Vec<(usize, Vec<Range<usize>>)>> {
    let mut chunks: Vec<(usize, Vec<Range<usize>>)> = Vec::new();
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

/// Some of the pages of runs, evenly.
fn samples(runs: &[Range<usize>]) -> Vec<usize> {
    let page = rustix::param::page_size();
    let pages: usize = runs.iter().map(|run| run.len() / page).sum();
    let count = pages.min(SAMPLES);
    let mut wanted = (0..count).map(|index| index * pages / count).peekable();
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

impl Hands for Kernel {
    fn look(&mut self, machine: &Machine, process: ProcessId) -> io::Result<Vec<Placed>> {
        let folder = machine.root.join(format!("proc/{}", process.pid));
        let of = Pages::of(&folder)?;
        let chunks = chunks(&of, &self.owner(&machine.root, process)?.ranges)?;
        let (mut places, mut all) = (Vec::with_capacity(chunks.len()), Vec::new());
        for (number, runs) in chunks {
            let (sampled, before) = (samples(&runs), all.len());
            for at in &sampled {
                // What others map as well does not move, and would count for each of them.
                if of.is_exclusive(*at)? {
                    all.push(*at);
                }
            }
            let (bytes, own) = (
                runs.iter().map(Range::len).sum::<usize>(),
                all.len() - before,
            );
            let place = Placed {
                number,
                resident: (bytes * own / sampled.len().max(1)) as u64,
                top: 0,
            };
            places.push((place, own));
        }
        let mut nodes = vec![0; all.len()];
        for (pages, nodes) in all.chunks(ASK).zip(nodes.chunks_mut(ASK)) {
            let pid = i32::try_from(process.pid).unwrap_or(i32::MAX);
            numa::move_pages(pid, pages, None, nodes, false)?;
        }
        let mut nodes = nodes.into_iter();
        let is_top =
            |node: &i32| u32::try_from(*node).is_ok_and(|node| machine.top.contains(&node));
        let place = |(place, own): (Placed, usize)| {
            // A page that has gone meanwhile lies nowhere.
            let known: Vec<i32> = (nodes.by_ref().take(own))
                .filter(|node| *node >= 0)
                .collect();
            let top = known.iter().filter(|node| is_top(node)).count() as u64;
            let resident = if known.is_empty() { 0 } else { place.resident };
            Placed {
                resident,
                top: resident * top / known.len().max(1) as u64,
                ..place
            }
        };
        Ok(places.into_iter().map(place).collect())
    }

    fn carry(
        &mut self,
        machine: &Machine,
        of: &Move,
        cancel: &AtomicBool,
    ) -> Result<(u64, u64), MoveError> {
        let process = Process::open(of.process.pid)?;
        let gone = || MoveError::NoProcess {
            pid: of.process.pid,
            why: "it has ended, or its owner cannot be asked",
            hint: "nothing: it is looked for again",
        };
        // Opened before it is compared: what has the number now is the process that was seen, or it is gone.
        if members::start(&machine.root, of.process.pid) != Some(of.process.start) {
            return Err(gone());
        }
        let owner = self.owner(&machine.root, of.process).map_err(|_| gone())?;
        let owner = owner.clone();
        let start = of.number * CHUNK;
        let survey = process.survey_of(&owner.within(&(start..start + CHUNK)))?;
        let (from, to) = match of.way {
            Way::Up => (&machine.lower, &machine.top),
            Way::Down => (&machine.top, &machine.lower),
        };
        let Some(to) = machine.emptiest(to, &owner.nodes) else {
            return Ok((0, of.bytes));
        };
        let (mut moved, mut stayed) = (0, 0);
        for node in from {
            let mut options = ProcessMove::new(to);
            options.from = Some(*node);
            let done = process.move_pages(&survey, &options, &Progress::default(), cancel)?;
            moved += done.moved.bytes;
            stayed += done.stayed_bytes();
        }
        Ok((moved, stayed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{put, tree};
    use std::fs;
    use std::os::fd::AsRawFd;

    #[test]
    fn samples_are_even_and_within_the_runs() {
        let page = rustix::param::page_size();
        assert_eq!(samples(&[]), [0_usize; 0]);
        assert_eq!(samples(&[0..page, 7 * page..8 * page]), [0, 7 * page]);
        let runs = [0..12 * page, 100 * page..104 * page];
        let found: Vec<usize> = samples(&runs).iter().map(|at| at / page).collect();
        assert_eq!(found, [0, 2, 4, 6, 8, 10, 100, 102]);
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
            let found = Kernel::default().look(&machine, process).unwrap();
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
