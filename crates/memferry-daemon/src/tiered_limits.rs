// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protections that cgroups have of the top tier: with `cgroup.memory=tiered_limits` on its command line a kernel with that series splits
//! each limit of a cgroup by how much of the memory is in each tier. The series adds no files: `memory.min` and `memory.low` tell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::machine::text;

/// Whether the kernel below `root` was asked for it. One without the series ignores it, which is seen nowhere.
pub fn asked_for(root: &Path) -> bool {
    let line = text(root, "proc/cmdline").unwrap_or_default();
    let mut options = (line.split_whitespace())
        .filter_map(|word| word.strip_prefix("cgroup.memory="))
        .flat_map(|list| list.split(','));
    options.any(|option| option == "tiered_limits")
}

/// Bytes of all tiers that the kernel protects of some cgroups, by their paths as /proc/PID/cgroup has them: the larger one of
/// `memory.min` and `memory.low`.
pub(crate) fn protected(root: &Path, cgroups: &BTreeSet<&str>) -> u64 {
    let files = ["memory.min", "memory.low"];
    let of_file = |file| effective(root, file, "", cgroups, u64::MAX);
    files.map(of_file).into_iter().max().unwrap_or(0)
}

/// What one file protects of `cgroups`, all of which are at `at` or below it. `above` is what those above it leave: no cgroup gets more,
/// and one that claims nothing has a part in what is above it (cgroup2's mount option memory_recursiveprot, which systemd sets).
fn effective(root: &Path, file: &str, at: &str, cgroups: &BTreeSet<&str>, above: u64) -> u64 {
    let is_root = at.is_empty();
    let own = match text(root, &format!("sys/fs/cgroup{at}/{file}")).as_deref() {
        Some("max") => u64::MAX,
        Some(text) => text.parse().unwrap_or(0),
        None => 0,
    };
    let is_first = at.rfind('/') == Some(0);
    let cap = match own {
        _ if is_root => above,
        0 if is_first => 0,
        0 => above,
        own => own.min(above),
    };
    if !is_root && (cap == 0 || cgroups.contains(at)) {
        return cap;
    }
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for cgroup in cgroups {
        let rest = cgroup[at.len()..].trim_start_matches('/');
        let length = rest.find('/').unwrap_or(rest.len());
        // The root has no protection.
        if length > 0 {
            let child = &cgroup[..cgroup.len() - rest.len() + length];
            below.entry(child).or_default().insert(cgroup);
        }
    }
    let sum = (below.iter()).fold(0_u64, |sum, (child, cgroups)| {
        sum.saturating_add(effective(root, file, child, cgroups, cap))
    });
    sum.min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memferry_linux::invented::{change, changes, machine};

    #[test]
    fn the_option_is_one_of_a_list() {
        let root = machine(&[(
            "proc/cmdline",
            "quiet cgroup.memory=nokmem,tiered_limits ro\n",
        )]);
        assert!(asked_for(root.path()));
        for other in ["", "tiered_limits", "cgroup.memory=tiered_limits2,nosocket"] {
            change(root.path(), &format!("proc/cmdline = {other}"));
            assert!(!asked_for(root.path()), "{other}");
        }
    }

    /// As the kernel has it: nobody gets more than those above it, what claims nothing shares what is above it, and the root protects
    /// nothing.
    #[test]
    fn a_protection_holds_as_far_as_those_above_it() {
        let root = machine(&[
            ("sys/fs/cgroup/db.slice/memory.low", "1000\n"),
            ("sys/fs/cgroup/db.slice/memory.min", "10\n"),
            ("sys/fs/cgroup/db.slice/a/memory.low", "600\n"),
            ("sys/fs/cgroup/db.slice/a/x/memory.low", "0\n"),
            ("sys/fs/cgroup/db.slice/b/memory.low", "max\n"),
            ("sys/fs/cgroup/system.slice/memory.low", "0\n"),
            ("sys/fs/cgroup/system.slice/c/memory.low", "700\n"),
        ]);
        let of = |cgroups: &[&str]| protected(root.path(), &cgroups.iter().copied().collect());
        assert_eq!(of(&["/db.slice/a"]), 600);
        assert_eq!(of(&["/db.slice/a/x"]), 600);
        assert_eq!(of(&["/db.slice/a/x", "/db.slice/a/y"]), 600);
        assert_eq!(of(&["/db.slice/b"]), 1000);
        assert_eq!(of(&["/db.slice/a", "/db.slice/b"]), 1000);
        assert_eq!(of(&["/db.slice", "/db.slice/a"]), 1000);
        assert_eq!(of(&["/system.slice/c"]), 0);
        assert_eq!(of(&["/", "/gone", "/db.slice/gone/x"]), 1000);
        assert_eq!(of(&["/", "/db.slicer"]), 0);
        changes(
            root.path(),
            "sys/fs/cgroup/db.slice/memory.min = max\nsys/fs/cgroup/db.slice/a/memory.min = 900",
        );
        assert_eq!(of(&["/db.slice/a"]), 900);
    }
}
