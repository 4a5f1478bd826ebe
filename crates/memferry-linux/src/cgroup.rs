// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the cgroups of this process leave it, of version 1 and 2: who takes more is killed, whatever the machine has.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The files of one version, and below the root where its controller of memory can be mounted.
struct Version {
    mounts: &'static [&'static str],
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`, what the kernel takes back first.
    inactive: &'static str,
}

const FIRST: Version = Version {
    mounts: &["sys/fs/cgroup/memory"],
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file ",
};

const SECOND: Version = Version {
    mounts: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    limit: "memory.max",
    usage: "memory.current",
    inactive: "inactive_file ",
};

/// Bytes below `root` that this process may take until one of its cgroups, or one above them, is full; `None` without a limit.
/// Inactive pages of files count as free: the kernel takes them back first.
pub fn memory_room(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let rooms = own.lines().filter_map(|line| {
        // ID:CONTROLLERS:PATH, of version 2 without controllers.
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        if controllers.is_empty() {
            SECOND.room(root, path)
        } else if controllers.split(',').any(|name| name == "memory") {
            FIRST.room(root, path)
        } else {
            None
        }
    });
    rooms.min()
}

impl Version {
    /// The least room in this cgroup and those above it. Folders that a container does not see are left out: its own cgroup is then
    /// what is mounted.
    fn room(&self, root: &Path, path: &str) -> Option<u64> {
        let names = Path::new(path).components();
        let path: PathBuf = names
            .filter(|of| matches!(of, Component::Normal(_)))
            .collect();
        let mounts = self.mounts.iter().map(|mount| root.join(mount));
        let rooms = mounts.flat_map(|mount| {
            let above = path.ancestors();
            above.filter_map(move |below| self.room_in(&mount.join(below)))
        });
        rooms.min()
    }

    fn room_in(&self, folder: &Path) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let limit = number(&read(self.limit)?)?;
        let usage = number(&read(self.usage)?)?;
        let stat = read("memory.stat").unwrap_or_default();
        let inactive = stat
            .lines()
            .find_map(|line| line.strip_prefix(self.inactive));
        let inactive = inactive.and_then(number).unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(inactive)))
    }
}

/// A number; `max` is none.
fn number(text: &str) -> Option<u64> {
    u64::from_str(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invented::{change, machine};

    #[test]
    fn the_least_room_of_all_cgroups_above_counts() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/pods/one/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/one/memory.current", "10\n"),
        ]);
        assert_eq!(memory_room(root.path()), None);
        change(root.path(), "sys/fs/cgroup/pods/memory.max = 1000");
        change(root.path(), "sys/fs/cgroup/pods/memory.current = 400");
        assert_eq!(memory_room(root.path()), Some(600));
        let stat = "sys/fs/cgroup/pods/memory.stat = anon 250;inactive_file 100;active_file 50";
        change(root.path(), stat);
        assert_eq!(memory_room(root.path()), Some(700));
        change(root.path(), "sys/fs/cgroup/pods/one/memory.max = 300");
        assert_eq!(memory_room(root.path()), Some(290));
        change(root.path(), "sys/fs/cgroup/pods/one/memory.current = 301");
        assert_eq!(memory_room(root.path()), Some(0));
    }

    #[test]
    fn a_container_of_version_1_that_sees_its_own_cgroup_alone_has_its_limit() {
        let mount = "sys/fs/cgroup/memory";
        let root = machine(&[
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/docker/7\n4:memory:/docker/7\n0::/\n",
            ),
            (&format!("{mount}/memory.limit_in_bytes"), "1000\n"),
            (&format!("{mount}/memory.usage_in_bytes"), "600\n"),
            (
                &format!("{mount}/memory.stat"),
                "inactive_file 1\ntotal_inactive_file 200\n",
            ),
        ]);
        assert_eq!(memory_room(root.path()), Some(600));
        // A cgroup outside of the namespace is not outside of the mount.
        change(root.path(), "proc/self/cgroup = 4:memory:/../8");
        assert_eq!(memory_room(root.path()), Some(600));
        change(root.path(), "proc/self/cgroup = gone");
        assert_eq!(memory_room(root.path()), None);
    }
}
