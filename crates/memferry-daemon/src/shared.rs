// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory and files that several processes map, such as the buffer pool of a database, by /proc/PID/maps: no page frame numbers
//! are read. If all are of one group it is that group's and counts once. What processes of two groups map, or of none, is nobody's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::machine::bytes_of;
use crate::members;
use crate::owner;
use crate::tiering::{CHUNK, Object, ProcessId, Seen};

/// A part of an object in the address space of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<usize>,
    /// Offset of the first one in the object.
    pub offset: usize,
}

impl Mapping {
    /// Its offsets in the object.
    pub fn offsets(&self) -> Range<usize> {
        self.offset..self.offset + self.range.len()
    }

    /// Where a range of the object lies in the process.
    pub fn addresses(&self, offsets: &Range<usize>) -> Option<Range<usize>> {
        let own = self.offsets();
        let part = offsets.start.max(own.start)..offsets.end.min(own.end);
        let address = |offset: usize| self.range.start + (offset - own.start);
        (part.start < part.end).then(|| address(part.start)..address(part.end))
    }
}

/// A process that maps an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapper {
    /// Which.
    pub process: ProcessId,
    /// Index of its group.
    pub group: Option<usize>,
    /// Where.
    pub mappings: Vec<Mapping>,
}

/// An object that several processes map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Which.
    pub object: Object,
    /// Index of the group of all who map it; `None` if they are not all of one.
    pub group: Option<usize>,
    /// All who map it, the one with the most memory first.
    pub mappers: Vec<Mapper>,
    /// Nodes that the cpusets of all of them allow.
    pub nodes: Vec<u32>,
}

impl SharedMemory {
    /// What a report on one of its processes says of it, by its offsets; `None` if the process does not map it.
    pub fn seen(&self, process: ProcessId, report: &[Seen]) -> Option<Vec<Seen>> {
        let mapper = self.mappers.iter().find(|of| of.process == process)?;
        let mut seen = Vec::new();
        for mapping in &mapper.mappings {
            for of in report {
                let own = &mapping.range;
                let part = of.range.start.max(own.start)..of.range.end.min(own.end);
                if part.start < part.end {
                    let offset = |address: usize| address - own.start + mapping.offset;
                    seen.push(Seen {
                        range: offset(part.start)..offset(part.end),
                        ..of.clone()
                    });
                }
            }
        }
        Some(seen)
    }
}

/// Finds them. `group_of` is the group of a process, if it has one.
///
/// # Errors
/// Maps of a process may not be read: it might map anything, so nothing is known to be of one group.
pub fn find(
    root: &Path,
    mut group_of: impl FnMut(u32) -> Option<usize>,
) -> io::Result<Vec<SharedMemory>> {
    let mut objects: BTreeMap<Object, BTreeMap<u32, Vec<Mapping>>> = BTreeMap::new();
    for pid in members::pids(root) {
        let maps = match owner::read(root, pid, "maps") {
            Ok(maps) => maps,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It has ended.
            Err(_) => continue,
        };
        for (object, mapping) in maps.lines().filter_map(shared) {
            let mappings = objects.entry(object).or_default().entry(pid).or_default();
            mappings.push(mapping);
        }
    }
    let mut groups = BTreeMap::new();
    let mut found = Vec::new();
    for (object, mappings) in objects {
        let largest = mappings
            .values()
            .map(|of| of.iter().map(|of| of.range.len()).sum());
        if mappings.len() < 2 || largest.max() < Some(CHUNK) {
            continue;
        }
        for pid in mappings.keys() {
            groups.entry(*pid).or_insert_with(|| group_of(*pid));
        }
        let mut of = mappings.keys().map(|pid| groups[pid]);
        let first = of.next().flatten();
        let group = first.filter(|_| of.all(|of| of == first));
        let mapper = |(pid, mappings)| {
            let start = members::start(root, pid)?;
            let process = ProcessId { pid, start };
            let group = groups[&pid];
            Some(Mapper {
                process,
                group,
                mappings,
            })
        };
        let mut mappers: Vec<Mapper> = mappings.into_iter().filter_map(mapper).collect();
        mappers.sort_by_key(|of| std::cmp::Reverse(bytes_of(root, of.process.pid, 1)));
        let nodes = |of: &Mapper| owner::nodes(root, of.process.pid).unwrap_or_default();
        let each = mappers.iter().map(|of| BTreeSet::from_iter(nodes(of)));
        let nodes = each.reduce(|all, of| &all & &of).unwrap_or_default();
        found.push(SharedMemory {
            object,
            group,
            mappers,
            nodes: nodes.into_iter().collect(),
        });
    }
    Ok(found)
}

/// The object that a line of maps shares, and where; `None` of private mappings and devices.
fn shared(line: &str) -> Option<(Object, Mapping)> {
    let range = owner::movable(line)?;
    let mut words = line.split_whitespace().skip(1);
    let is_shared = words.next()?.ends_with('s');
    let offset = usize::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let object = Object {
        device: (number(major)?, number(minor)?),
        inode: words.next()?.parse().ok()?,
    };
    (is_shared && object.inode != 0).then_some((object, Mapping { range, offset }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::put;

    const POOL: Object = Object {
        device: (0, 1),
        inode: 77,
    };

    /// Processes 10 and 11 are of group 0, 20 of group 1, and 30 of none.
    fn group_of(pid: u32) -> Option<usize> {
        (pid < 30).then(|| pid as usize / 10 - 1)
    }

    fn process(root: &Path, pid: u32, nodes: &str, maps: &str) {
        for (file, text) in [
            ("maps", maps),
            ("status", &format!("Mems_allowed_list:\t{nodes}\n")),
            ("stat", &format!("{pid} (x) S {}{pid} 0\n", "0 ".repeat(18))),
            ("statm", &format!("9 {pid} 1 0 0 0 0\n")),
        ] {
            put(root, &format!("proc/{pid}/{file}"), text);
        }
    }

    #[test]
    fn memory_that_one_group_shares_is_known_by_its_offsets() {
        let root = tempfile::tempdir().unwrap();
        let pool = "00400000-00c00000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n";
        // A part of it, elsewhere; a private mapping and a device are not shared.
        let part = "10000000-10400000 rw-s 00200000 00:01 77 /dev/zero (deleted)\n\
            20000000-30000000 rw-p 00000000 00:01 77 /dev/zero (deleted)\n\
            40000000-50000000 rw-s 00000000 00:05 77 /dev/dri/card0\n";
        process(root.path(), 10, "0-2", pool);
        process(root.path(), 11, "0,2-3", part);
        let found = find(root.path(), group_of).unwrap();
        let [shared] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((shared.object, shared.group), (POOL, Some(0)));
        assert_eq!(shared.nodes, [0, 2]);
        let pids: Vec<u32> = shared.mappers.iter().map(|of| of.process.pid).collect();
        assert_eq!(pids, [11, 10], "the one with the most memory first");
        let mapping = &shared.mappers[0].mappings[0];
        assert_eq!(mapping.addresses(&(0..CHUNK)), None);
        assert_eq!(
            mapping.addresses(&(CHUNK..2 * CHUNK)),
            Some(0x1000_0000..0x1020_0000)
        );
        let seen = |range| Seen {
            range,
            accesses: 2,
            of: 5,
        };
        let report = [seen(0..0x1000_1000), seen(0x1030_0000..0x2000_0000)];
        assert_eq!(
            shared.seen(shared.mappers[0].process, &report),
            Some(vec![
                seen(CHUNK..CHUNK + 0x1000),
                seen(0x50_0000..0x60_0000)
            ])
        );
        let other = ProcessId { pid: 9, start: 1 };
        assert_eq!(shared.seen(other, &report), None);
    }

    #[test]
    fn what_two_groups_map_or_one_process_alone_is_not_shared_by_a_group() {
        for (pid, group) in [(11, Some(0)), (20, None), (30, None)] {
            let root = tempfile::tempdir().unwrap();
            let pool = "00400000-00c00000 rw-s 00000000 00:01 77 /memfd:pool (deleted)\n";
            let small = "00e00000-00e01000 rw-s 00000000 00:01 78 /dev/shm/small\n";
            let maps = format!("{pool}{small}");
            process(root.path(), 10, "0", &maps);
            assert_eq!(find(root.path(), group_of).unwrap(), []);
            process(root.path(), pid, "0", &maps);
            let found = find(root.path(), group_of).unwrap();
            let groups: Vec<Option<usize>> = found.iter().map(|of| of.group).collect();
            assert_eq!(groups, [group], "{pid}");
        }
    }
}
