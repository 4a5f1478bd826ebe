// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the owner of a process has said of its memory: which nodes it may use, and which ranges have a policy or are locked.
//! Such ranges are left alone, each with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use memferry_linux::give_way::GiveWay;
use memferry_linux::mappings::Mappings;
use memferry_linux::topology::parse::id_list;

const NODES: &str = "Mems_allowed_list:";
const LOCKED: &str = "VmLck:";
const CPUS: &str = "Cpus_allowed_list:";

/// A file of a process; what of it is not UTF-8, such as a name that the kernel has cut within a character, is replaced.
pub(crate) fn read(root: &Path, pid: u32, file: &str) -> io::Result<String> {
    let bytes = fs::read(root.join(format!("proc/{pid}/{file}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Less than a mapping's text in numa_maps or smaps.
const PIECE: usize = 16;

/// The same of numa_maps or smaps, for which the kernel walks all pages of a mapping under the process's mmap_lock: it goes on to the
/// next mapping without the lock, once a read has its bytes.
fn read_by_mapping(root: &Path, pid: u32, file: &str) -> io::Result<String> {
    let mut file = File::open(root.join(format!("proc/{pid}/{file}")))?;
    let (mut bytes, mut piece, pauses) = (Vec::new(), [0; PIECE], GiveWay::default());
    loop {
        let got = file.read(&mut piece)?;
        if got == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend_from_slice(&piece[..got]);
        pauses.between_calls();
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Another number once a mapping came, went or changed its length, more or less is locked, or the cpuset allows other nodes. No page
/// tables are walked for it.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn mark(root: &Path, pid: u32) -> io::Result<u64> {
    let status = read(root, pid, "status")?;
    let fields = [NODES, LOCKED].map(|name| field(&status, name));
    let mut hasher = DefaultHasher::new();
    (fields, read(root, pid, "maps")?).hash(&mut hasher);
    Ok(hasher.finish())
}

/// Nodes that the cpuset of a process allows.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn nodes(root: &Path, pid: u32) -> io::Result<Vec<u32>> {
    let status = read(root, pid, "status")?;
    let nodes = field(&status, NODES).and_then(|list| id_list(list).ok());
    Ok(nodes.unwrap_or_default())
}

/// CPUs that a process may use.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn cpus(root: &Path, pid: u32) -> io::Result<Vec<u32>> {
    let status = read(root, pid, "status")?;
    let cpus = field(&status, CPUS).and_then(|list| id_list(list).ok());
    Ok(cpus.unwrap_or_default())
}

/// Why memory stays where it is, whatever its heat. Where several reasons hold, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmovable {
    /// It is of hugetlbfs.
    Hugetlb,
    /// mlock(2) and the like, and memory of memfd_secret(2), which the kernel locks.
    Locked,
    /// It, its process or the shared memory that it is of has a policy: mbind(2), set_mempolicy(2).
    Policy,
    /// A driver maps it.
    Device,
    /// Processes of another group, or of none, map the same shared memory or file.
    Shared,
    /// Pages that other processes have in private mappings, too: after fork(2), or of one program.
    Copies,
}

impl Unmovable {
    /// As the status and the metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hugetlb => "hugetlb",
            Self::Locked => "locked",
            Self::Policy => "policy",
            Self::Device => "device",
            Self::Shared => "shared",
            Self::Copies => "copies",
        }
    }
}

/// What may be done with a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Nodes that its cpuset allows.
    pub nodes: Vec<u32>,
    /// Ranges that may move, ascending.
    pub ranges: Vec<Range<usize>>,
    /// Ranges that may not, ascending, but for address space that nothing may use and the kernel's own.
    pub left: Vec<(Range<usize>, Unmovable)>,
}

impl Owner {
    /// Reads it. Without `mappings` numa_maps is read, and smaps if something is locked, which walk all page tables of the process.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn read(root: &Path, pid: u32, mappings: Option<&Mappings>) -> io::Result<Self> {
        let status = read(root, pid, "status")?;
        let nodes = field(&status, NODES).and_then(|list| id_list(list).ok());
        let is_locked = field(&status, LOCKED).is_some_and(|size| !size.starts_with("0 "));
        let asked = mappings.map(|of| of.of(pid)).transpose();
        let untold = |error| tracing::debug!(pid, "BPF tells no policies: {error}");
        // By the start of a mapping what its owner has said of it.
        let said: BTreeMap<usize, Option<Unmovable>> = match asked.map_err(untold).ok().flatten() {
            Some(asked) => asked
                .into_iter()
                .map(|of| {
                    let why = of.is_huge.then_some(Unmovable::Hugetlb);
                    let why = why.or(of.is_locked.then_some(Unmovable::Locked));
                    let why = why.or(of.has_policy.then_some(Unmovable::Policy));
                    (of.range.start, why)
                })
                .collect(),
            None => {
                let mut said = policies(&read_by_mapping(root, pid, "numa_maps")?);
                if is_locked {
                    for start in locked(&read_by_mapping(root, pid, "smaps")?) {
                        let why = said.entry(start).or_default();
                        *why = Some(why.map_or(Unmovable::Locked, |of| of.min(Unmovable::Locked)));
                    }
                }
                said
            }
        };
        let maps = read(root, pid, "maps")?;
        let mut owner = Self {
            nodes: nodes.unwrap_or_default(),
            ..Self::default()
        };
        for line in maps.lines() {
            let Some((range, kind)) = mapped(line) else {
                continue;
            };
            // A mapping that is not known came after it was asked: it can wait.
            match (kind, said.get(&range.start)) {
                (Kind::Device, _) => owner.left.push((range, Unmovable::Device)),
                (Kind::Plain, Some(None)) => owner.ranges.push(range),
                (Kind::Plain, Some(Some(why))) => owner.left.push((range, *why)),
                (Kind::Other, _) | (_, None) => {}
            }
        }
        Ok(owner)
    }

    /// Why a range, or a part of it, may not move; `None` if nothing is known of it, or it may.
    pub fn why_left(&self, range: &Range<usize>) -> Option<Unmovable> {
        let first = self.left.partition_point(|(of, _)| of.end <= range.start);
        let (of, why) = self.left.get(first)?;
        (of.start < range.end).then_some(*why)
    }

    /// Of a range what may move.
    pub fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let first = self.ranges.partition_point(|of| of.end <= range.start);
        let of = self.ranges[first..]
            .iter()
            .take_while(|of| of.start < range.end);
        of.map(|of| of.start.max(range.start)..of.end.min(range.end))
            .collect()
    }
}

fn addresses(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// What a mapping is by its line of maps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Memory of the process, or of a file.
    Plain,
    Device,
    /// Of the kernel's own, and what nobody may read or write: reserved address space, of which some programs have terabytes.
    Other,
}

fn mapped(line: &str) -> Option<(Range<usize>, Kind)> {
    let mut words = line.split_whitespace();
    let range = addresses(words.next()?)?;
    let is_reserved = words.next()?.starts_with("---");
    let name = words.nth(3).unwrap_or_default();
    let is_device = name.starts_with("/dev/")
        && !["/dev/zero", "/dev/shm"]
            .iter()
            .any(|of| name.starts_with(of));
    let is_kernels = name.starts_with("[v") || name.starts_with("[uprobes");
    let kind = match is_reserved || is_kernels {
        true => Kind::Other,
        false if is_device => Kind::Device,
        false => Kind::Plain,
    };
    Some((range, kind))
}

/// The range of a line of maps, but for memory of devices and of the kernel's own, and what nobody may read or write.
pub(crate) fn movable(line: &str) -> Option<Range<usize>> {
    let (range, kind) = mapped(line)?;
    (kind == Kind::Plain).then_some(range)
}

/// By the start of a mapping why it stays: it is of hugetlbfs, whose names may be any, or it or its task has a policy.
fn policies(numa_maps: &str) -> BTreeMap<usize, Option<Unmovable>> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let start = usize::from_str_radix(words.next()?, 16).ok()?;
        let has_policy = words.next()? != "default";
        let is_huge = words.any(|word| word == "huge");
        let why = is_huge.then_some(Unmovable::Hugetlb);
        Some((start, why.or(has_policy.then_some(Unmovable::Policy))))
    };
    numa_maps.lines().filter_map(line).collect()
}

/// Starts of the mappings that are locked.
fn locked(smaps: &str) -> BTreeSet<usize> {
    let (mut starts, mut at) = (BTreeSet::new(), None);
    for line in smaps.lines() {
        if let Some(range) = line.split_whitespace().next().and_then(addresses) {
            at = Some(range.start);
        }
        let flags = line.strip_prefix("VmFlags:");
        if flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "lo")) {
            starts.extend(at);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::put;

    #[test]
    fn what_has_a_policy_is_locked_or_a_device_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| put(root.path(), &format!("proc/7/{file}"), text);
        put(
            "status",
            "Name:\tx\nVmLck:\t       0 kB\nMems_allowed_list:\t0,2\n",
        );
        put(
            "maps",
            "00001000-00003000 rw-p 00000000 00:00 0 [heap]\n\
             00003000-00004000 rw-p 00000000 00:00 0\n\
             00005000-00006000 rw-p 00000000 00:00 0\n\
             00007000-00008000 rw-s 00000000 00:06 9 /dev/mem\n\
             00009000-0000a000 r--p 00000000 00:00 0 [vvar]\n\
             0000b000-0000c000 rw-p 00000000 00:00 0\n\
             00200000-00400000 rw-s 00000000 00:10 3 /memfd:guest-memory (deleted)\n\
             00400000-00600000 rw-s 00000000 00:10 4 /mnt/huge/rtemap_0\n",
        );
        put(
            "numa_maps",
            "00001000 default heap anon=2 N0=2\n00003000 bind:0 anon=1\n00005000 default anon=1\n\
             00007000 default\n00009000 default\n\
             00200000 default file=/memfd:guest-memory\\040(deleted) huge dirty=1 N0=1 kernelpagesize_kB=2048\n\
             00400000 default file=/mnt/huge/rtemap_0 huge\n",
        );
        let owner = Owner::read(root.path(), 7, None).unwrap();
        assert_eq!(owner.nodes, [0, 2]);
        assert_eq!(owner.ranges, [0x1000..0x3000, 0x5000..0x6000]);
        let left = [
            (0x3000..0x4000, Unmovable::Policy),
            (0x7000..0x8000, Unmovable::Device),
            (0x20_0000..0x40_0000, Unmovable::Hugetlb),
            (0x40_0000..0x60_0000, Unmovable::Hugetlb),
        ];
        assert_eq!(owner.left, left, "the kernel's own memory is nobody's");
        assert_eq!(
            owner.within(&(0x2000..0x5800)),
            [0x2000..0x3000, 0x5000..0x5800]
        );
        // With something locked, smaps tells what.
        put("status", "VmLck:\t       4 kB\nMems_allowed_list:\t0-1\n");
        put(
            "smaps",
            "00001000-00003000 rw-p 00000000 00:00 0 [heap]\nSize: 8 kB\nVmFlags: rd wr mr mw me ac \n\
             00005000-00006000 rw-p 00000000 00:00 0\nSize: 4 kB\nVmFlags: rd wr lo ac \n",
        );
        let owner = Owner::read(root.path(), 7, None).unwrap();
        assert_eq!(owner.nodes, [0, 1]);
        assert_eq!(owner.ranges, std::slice::from_ref(&(0x1000..0x3000)));
        assert!(
            owner.left.contains(&(0x5000..0x6000, Unmovable::Locked)),
            "{owner:?}"
        );
    }

    /// Of three mappings one is bound to a node and one is locked.
    #[test]
    fn bpf_and_the_files_tell_the_same() {
        let mappings = match Mappings::load() {
            Ok(mappings) => mappings,
            Err(error) => return println!("not run: {error}"),
        };
        const LENGTH: usize = 1 << 20;
        let (root, pid, nodes) = (Path::new("/"), std::process::id(), 1_u64);
        // SAFETY: a new mapping, of which the last two parts are given a policy and locked, and stay.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(
                std::ptr::null_mut(),
                3 * LENGTH,
                libc::PROT_READ,
                flags,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let at = at as usize;
            let (bound, bind) = (at + LENGTH, libc::MPOL_BIND);
            let done = libc::syscall(
                libc::SYS_mbind,
                bound,
                LENGTH,
                bind,
                &raw const nodes,
                64,
                0,
            );
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
            assert_eq!(libc::mlock((at + 2 * LENGTH) as _, LENGTH), 0);
            at
        };
        for mappings in [None, Some(&mappings)] {
            let owner = Owner::read(root, pid, mappings).unwrap();
            let free = [0, 1, 2].map(|part| {
                let at = start + part * LENGTH;
                !owner.within(&(at..at + LENGTH)).is_empty()
            });
            assert_eq!(free, [true, false, false], "{mappings:?}");
            let why = |at: usize| {
                let mut left = owner.left.iter();
                left.find(|(range, _)| range.contains(&at)).map(|of| of.1)
            };
            assert_eq!(why(start + LENGTH), Some(Unmovable::Policy));
            assert_eq!(why(start + 2 * LENGTH), Some(Unmovable::Locked));
        }
    }
}
