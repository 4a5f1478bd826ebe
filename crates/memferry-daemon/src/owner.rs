// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the owner of a process has said of its memory: which nodes it may use, and which ranges have a policy or are locked.
//! Such ranges are left alone.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::Path;

use memferry_linux::topology::parse::id_list;

const NODES: &str = "Mems_allowed_list:";
const LOCKED: &str = "VmLck:";
const CPUS: &str = "Cpus_allowed_list:";

/// A file of a process; what of it is not UTF-8, such as a name that the kernel has cut within a character, is replaced.
pub(crate) fn read(root: &Path, pid: u32, file: &str) -> io::Result<String> {
    let bytes = fs::read(root.join(format!("proc/{pid}/{file}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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

/// What may be done with a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Nodes that its cpuset allows.
    pub nodes: Vec<u32>,
    /// Ranges that may move, ascending.
    pub ranges: Vec<Range<usize>>,
}

impl Owner {
    /// Reads it: numa_maps, and smaps if something is locked, walk all page tables of the process.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn read(root: &Path, pid: u32) -> io::Result<Self> {
        let read = |file: &str| read(root, pid, file);
        let status = read("status")?;
        let nodes = field(&status, NODES).and_then(|list| id_list(list).ok());
        let policies = policies(&read("numa_maps")?);
        let is_locked = field(&status, LOCKED).is_some_and(|size| !size.starts_with("0 "));
        let locked = if is_locked {
            locked(&read("smaps")?)
        } else {
            Vec::new()
        };
        let maps = read("maps")?;
        let ranges = maps.lines().filter_map(movable).filter(|range| {
            // A mapping without a line came after numa_maps was read: it can wait.
            policies
                .get(&range.start)
                .is_some_and(|policy| policy == "default")
                && !locked.contains(&range.start)
        });
        Ok(Self {
            nodes: nodes.unwrap_or_default(),
            ranges: ranges.collect(),
        })
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

/// The range of a line of maps, but for memory of devices and of the kernel's own.
pub(crate) fn movable(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let range = addresses(words.next()?)?;
    let name = words.nth(4).unwrap_or_default();
    let is_device = name.starts_with("/dev/")
        && !["/dev/zero", "/dev/shm"]
            .iter()
            .any(|of| name.starts_with(of));
    let is_other = name.starts_with("[v") || name.starts_with("[uprobes");
    (!is_device && !is_other).then_some(range)
}

/// The policy of each mapping, by its start, but for those of hugetlbfs, whose names may be any. It is that of the task where the
/// mapping has none of its own.
fn policies(numa_maps: &str) -> BTreeMap<usize, String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let start = usize::from_str_radix(words.next()?, 16).ok()?;
        let policy = words.next()?.to_owned();
        words.all(|word| word != "huge").then_some((start, policy))
    };
    numa_maps.lines().filter_map(line).collect()
}

/// Starts of the mappings that are locked.
fn locked(smaps: &str) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), None);
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
        let owner = Owner::read(root.path(), 7).unwrap();
        assert_eq!(owner.nodes, [0, 2]);
        assert_eq!(owner.ranges, [0x1000..0x3000, 0x5000..0x6000]);
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
        let owner = Owner::read(root.path(), 7).unwrap();
        assert_eq!(owner.nodes, [0, 1]);
        assert_eq!(owner.ranges, std::slice::from_ref(&(0x1000..0x3000)));
    }
}
