// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's answer to [`explain`](crate::explain): what it knows of a process or a group, or why it leaves a process alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Daemon, FIND_ROUNDS, ROUND};
use crate::explain::{Explained, Explanation};
use crate::machine::bytes_of;
use crate::members::{self, Member};
use crate::shared::SharedMemory;
use crate::status::Status;
use crate::tiering::{Memory, Move, Object, Room};

impl Daemon {
    /// What is known of a process, by its number, or of a group, by its name; else why nothing is.
    pub(super) fn explain(
        &self,
        what: &str,
        status: &Status,
        room: &Room,
        moves: &[Move],
    ) -> Result<Explanation, String> {
        let member = |pid: u32| self.members.iter().find(|of| of.process.pid == pid);
        let named = |name: &str| self.config.groups.iter().position(|of| of.name == name);
        let (group, pid) = match (named(what), what.parse().ok()) {
            (Some(group), _) => (group, None),
            (None, Some(pid)) => match member(pid) {
                Some(member) => (member.group, Some(pid)),
                None => return Err(self.why_unknown(pid)),
            },
            (None, None) => {
                let names = self.config.groups.iter().map(|of| &*of.name);
                let names = names.collect::<Vec<_>>().join(", ");
                return Err(format!(
                    "there is no group {what:?}; the groups are {names}"
                ));
            }
        };
        let is_asked =
            |of: &&Member| of.group == group && pid.is_none_or(|pid| of.process.pid == pid);
        let own = self.members.iter().filter(is_asked).map(|of| Explained {
            pid: Some(of.process.pid),
            name: of.name.clone(),
            unmovable: self.unmovable_of(of.process.into()),
            state: self.tiering.state(of.process.into(), room, moves),
        });
        let maps = |of: &SharedMemory| {
            pid.is_none_or(|pid| of.mappers.iter().any(|of| of.process.pid == pid))
        };
        let shared = self.shared_memory.iter();
        let shared = shared.filter(|of| of.group == Some(group) && maps(of));
        let shared = shared.map(|of| {
            let Object {
                device: (major, minor),
                inode,
            } = of.object;
            Explained {
                pid: None,
                name: format!("shared memory {major:02x}:{minor:02x} {inode}"),
                unmovable: self.unmovable_of(Memory::Shared(of.object)),
                state: self.tiering.state(Memory::Shared(of.object), room, moves),
            }
        });
        let mut memories: Vec<Explained> = own.chain(shared).collect();
        let size = |of: &Explained| of.state.as_ref().map_or(0, |of| of.resident);
        memories.sort_by_key(|of| Reverse(size(of)));
        Ok(Explanation {
            act: status.act,
            source: status.source.name.clone(),
            why: status.source.why.clone(),
            kernel_moves: self.source.kernel_moves(),
            group: status.groups[group].clone(),
            memories,
        })
    }

    fn unmovable_of(&self, memory: Memory) -> BTreeMap<String, u64> {
        let left = self.unmovable.get(&memory).into_iter().flatten();
        left.map(|(why, bytes)| (why.name().to_owned(), *bytes))
            .collect()
    }

    /// Why the daemon leaves a process alone.
    fn why_unknown(&self, pid: u32) -> String {
        let root = &self.options.root;
        let Some(resident) = bytes_of(root, pid, 1) else {
            return format!("there is no process {pid}");
        };
        let names: Vec<_> = (self.config.groups.iter())
            .map(|of| of.cgroup_names().unwrap_or_default())
            .collect();
        let groups = &self.config.groups;
        match members::group_of(root, groups, &names, pid) {
            Some((group, ..)) if resident < groups[group].min_size => format!(
                "process {pid} is of group {}, but has less than {} MiB in memory, its min_size: it is left alone",
                groups[group].name,
                groups[group].min_size >> 20
            ),
            Some((group, ..)) => format!(
                "process {pid} is of group {}: it is new, and is looked for within {} s",
                groups[group].name,
                FIND_ROUNDS * ROUND.as_millis() as u64 / 1000
            ),
            None => format!("no group takes process {pid}"),
        }
    }
}
