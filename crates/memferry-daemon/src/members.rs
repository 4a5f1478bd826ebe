// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes belong to which group, from /proc below a root folder. A process is of the first group that takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Config, Group};
use crate::error::DaemonError;
use crate::machine::bytes_of;
use crate::owner;
use crate::tiering::ProcessId;

/// Processes with less memory are left alone: what they could gain is less than it costs to watch them.
pub const LEAST_RESIDENT: u64 = 16 << 20;

/// A process of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub process: ProcessId,
    /// Index of its group.
    pub group: usize,
    /// Its name, as /proc/PID/comm has it.
    pub name: String,
    /// Its cgroup of version 2, as /proc/PID/cgroup has it.
    pub cgroup: String,
    /// Bytes in memory.
    pub resident: u64,
}

/// When a process started, in clock ticks from boot; `None` if it has ended.
pub fn start(root: &Path, pid: u32) -> Option<u64> {
    // The name, in parentheses, may hold anything, and what is not UTF-8.
    let stat = owner::read(root, pid, "stat").ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// What a group matches now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "DaemonGroupMatches")]
pub struct Matches {
    /// The group.
    pub group: String,
    /// Processes that the daemon takes.
    pub processes: u64,
    /// Their bytes in memory; pages that several of them map count for each.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// Names of the largest, each once.
    pub names: Vec<String>,
    /// Processes that are left alone, as each has less than 16 MiB.
    pub small: u64,
}

/// So many names of a group are told.
const MOST_NAMES: usize = 5;

/// What each group of a configuration matches now.
///
/// # Errors
/// A file of names of cgroups cannot be read.
pub fn matches(root: &Path, config: &Config) -> Result<Vec<Matches>, DaemonError> {
    let names: Vec<_> = (config.groups.iter())
        .map(Group::cgroup_names)
        .collect::<Result<_, _>>()?;
    let mut all: Vec<Matches> = (config.groups.iter())
        .map(|group| Matches {
            group: group.name.clone(),
            processes: 0,
            resident: 0,
            names: Vec::new(),
            small: 0,
        })
        .collect();
    // Tasks of the kernel have no memory.
    for member in find(root, &config.groups, &names, 1) {
        let of = &mut all[member.group];
        if member.resident < LEAST_RESIDENT {
            of.small += 1;
            continue;
        }
        of.processes += 1;
        of.resident += member.resident;
        if of.names.len() < MOST_NAMES && !of.names.contains(&member.name) {
            of.names.push(member.name);
        }
    }
    Ok(all)
}

/// The members of all groups with at least so many bytes in memory, the largest first; `names` has what each group's file of names
/// says. This process is none, and those that end meanwhile are left out.
pub fn find(root: &Path, groups: &[Group], names: &[BTreeSet<String>], least: u64) -> Vec<Member> {
    let mut members: Vec<Member> = pids(root)
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| member(root, groups, names, least, pid))
        .collect();
    members.sort_by_key(|member| (std::cmp::Reverse(member.resident), member.process));
    members
}

/// Numbers of all processes.
pub fn pids(root: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(root.join("proc")) else {
        return Vec::new();
    };
    let files = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    files.filter_map(|name| name.parse().ok()).collect()
}

/// Each group's first process, then each one's second, and so on, so that a source that looks at some has some of each group.
pub fn by_turns(members: &[Member]) -> Vec<ProcessId> {
    let mut counts = BTreeMap::<usize, usize>::new();
    let turn = |member: &Member| {
        let count = counts.entry(member.group).or_default();
        *count += 1;
        (*count, member.process)
    };
    let mut turns: Vec<(usize, ProcessId)> = members.iter().map(turn).collect();
    turns.sort_by_key(|(count, _)| *count);
    turns.into_iter().map(|(_, process)| process).collect()
}

fn member(
    root: &Path,
    groups: &[Group],
    names: &[BTreeSet<String>],
    least: u64,
    pid: u32,
) -> Option<Member> {
    let resident = bytes_of(root, pid, 1)?;
    if resident < least {
        return None;
    }
    let (group, cgroup, name) = group_of(root, groups, names, pid)?;
    let start = start(root, pid)?;
    Some(Member {
        process: ProcessId { pid, start },
        group,
        name,
        cgroup,
        resident,
    })
}

/// The group of a process of any size, its cgroup and its name.
pub fn group_of(
    root: &Path,
    groups: &[Group],
    names: &[BTreeSet<String>],
    pid: u32,
) -> Option<(usize, String, String)> {
    let read = |file: &str| owner::read(root, pid, file);
    let cgroups = read("cgroup").unwrap_or_default();
    let cgroup = cgroups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/")
        .to_owned();
    let name = read("comm").unwrap_or_default();
    let name = name.trim_end_matches('\n');
    let group =
        (groups.iter().zip(names)).position(|(group, names)| takes(group, names, &cgroup, name))?;
    Some((group, cgroup, name.to_owned()))
}

/// A cgroup whose name is a slice and a scope, as containerd and Docker name one where kubelet asks for systemd's names and they
/// have the driver cgroupfs: `/SLICE:PREFIX:NAME`. The path that systemd would give it: `/…/SLICE/PREFIX-NAME.scope`.
fn of_systemd(cgroup: &str) -> Option<String> {
    let (above, name) = cgroup.rsplit_once('/')?;
    let mut parts = name.splitn(3, ':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    let stem = slice.strip_suffix(".slice")?;
    // A slice lies below those that its name begins with.
    let ends = stem.match_indices('-').map(|(at, _)| at);
    let slices = ends
        .chain([stem.len()])
        .map(|end| format!("/{}.slice", &stem[..end]));
    Some(format!(
        "{above}{}/{prefix}-{name}.scope",
        slices.collect::<String>()
    ))
}

fn takes(group: &Group, names: &BTreeSet<String>, cgroup: &str, name: &str) -> bool {
    takes_cgroup(group, names, cgroup)
        || of_systemd(cgroup).is_some_and(|cgroup| takes_cgroup(group, names, &cgroup))
        || group.processes.iter().any(|pattern| pattern.matches(name))
}

fn takes_cgroup(group: &Group, names: &BTreeSet<String>, cgroup: &str) -> bool {
    // A pattern names a cgroup and all below it.
    let above = |pattern: &glob::Pattern| {
        let options = glob::MatchOptions {
            require_literal_separator: true,
            ..glob::MatchOptions::default()
        };
        let ends = cgroup
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([cgroup.len()]);
        let mut paths = ends.map(|end| if end == 0 { "/" } else { &cgroup[..end] });
        paths.any(|path| pattern.matches_with(path, options))
    };
    // Each path begins with an empty part, which an empty line of a file of names would match.
    let mut parts = cgroup.split('/').filter(|part| !part.is_empty());
    group.cgroups.iter().any(above)
        || parts
            .any(|part| names.contains(part) || group.units.iter().any(|unit| unit.matches(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::machine::tests::put;

    #[test]
    fn a_process_is_of_the_first_group_that_takes_it() {
        let root = tempfile::tempdir().unwrap();
        let pages = 64 << 20 >> rustix::param::page_size().trailing_zeros();
        let (postgres, scope) = (
            "/system.slice/postgresql@15.service/x",
            "/user.slice/user-1000.slice/a.scope",
        );
        // As a container with a cgroup namespace sees another pod.
        let pod = "/../../kubepods-burstable-pod0a_1b.slice/cri-containerd-9.scope";
        for (pid, cgroup, name, pages) in [
            (10, postgres, "postgres", pages),
            (11, scope, "spark) R 1", pages * 2),
            (12, "/system.slice/redis.service", "redis", pages),
            (13, "/system.slice/redis.service", "small", 10),
            (14, "/other", "nobody", pages),
            (16, pod, "spark", pages),
            (17, "/../../kubepods-burstable-pod0a_1.slice", "x", pages),
        ] {
            let zeroes = "0 ".repeat(18);
            for (file, text) in [
                ("statm", format!("9 {pages} 1 0 0 0 0\n")),
                ("cgroup", format!("1:cpuset:/old\n0::{cgroup}\n")),
                ("comm", format!("{name}\n")),
                ("stat", format!("{pid} ({name}) S {zeroes}{pid}00 0 0\n")),
            ] {
                put(root.path(), &format!("proc/{pid}/{file}"), &text);
            }
        }
        put(root.path(), "proc/15/comm", "half gone\n");
        let text = r#"
            [[group]]
            name = "db"
            cgroups = ["/system.slice/postgresql*"]
            [[group]]
            name = "cache"
            units = ["redis.service"]
            [[group]]
            name = "batch"
            processes = ["spark*", "postgres"]
        "#;
        let config = Config::parse(text, Path::new("x")).unwrap();
        let mut names = vec![BTreeSet::new(); 3];
        names[1].insert("kubepods-burstable-pod0a_1b.slice".to_owned());
        let found = find(root.path(), &config.groups, &names, LEAST_RESIDENT);
        let found: Vec<_> = (found.iter())
            .map(|of| (of.process.pid, of.process.start, of.group, &*of.cgroup))
            .collect();
        assert_eq!(
            found,
            [
                (11, 1100, 2, scope),
                (10, 1000, 0, postgres),
                (12, 1200, 1, "/system.slice/redis.service"),
                (16, 1600, 1, pod),
            ]
        );
    }

    fn group(keys: &str) -> Vec<Group> {
        let text = format!("[[group]]\nname = \"a\"\n{keys}\n");
        Config::parse(&text, Path::new("x")).unwrap().groups
    }

    #[test]
    fn an_empty_name_takes_no_process() {
        let group = &group("units = [\"y\"]")[0];
        let names = BTreeSet::from([String::new()]);
        assert!(!takes(group, &names, "/system.slice/x.service", "x"));
        assert!(!takes(group, &names, "/", "x"));
    }

    #[test]
    fn units_are_found_by_patterns_and_without_their_kind() {
        let postgres = "/system.slice/system-postgresql.slice/postgresql@16-main.service";
        let rust = "/system.slice/system-shadowsocks\\x2drust.slice/shadowsocks-rust@a.service";
        for (unit, cgroup, is_taken) in [
            ("redis", "/system.slice/redis.service", true),
            ("redis", "/redis", false),
            ("redis", "/system.slice/redis.service.d", false),
            ("redis.*", "/system.slice/redis.socket/x", true),
            ("postgresql@*", postgres, true),
            ("postgresql@1[56]-*", postgres, true),
            ("postgresql@15*", postgres, false),
            ("system-shadowsocks\\\\x2drust.slice", rust, true),
            ("user-*.slice", "/user.slice/user-1000.slice/a.scope", true),
        ] {
            let group = &group(&format!("units = [\"{unit}\"]"))[0];
            assert_eq!(
                takes(group, &BTreeSet::new(), cgroup, "x"),
                is_taken,
                "{unit} {cgroup}"
            );
        }
    }

    #[test]
    fn a_cgroup_that_is_named_as_slice_and_scope_is_found_by_both() {
        let cgroup = "/kubepods-besteffort-pod1_2.slice:cri-containerd:17";
        let of = |keys: &str| group(keys).remove(0);
        let named = |name: &str| {
            takes(
                &of("units = [\"y\"]"),
                &BTreeSet::from([name.to_owned()]),
                cgroup,
                "x",
            )
        };
        assert!(named("kubepods-besteffort-pod1_2.slice") && named("cri-containerd-17.scope"));
        assert!(named("kubepods-besteffort-pod1_2.slice:cri-containerd:17"));
        assert!(!named("kubepods-besteffort-pod1.slice") && !named("17"));
        let takes = |keys: &str| takes(&of(keys), &BTreeSet::new(), cgroup, "x");
        assert!(
            takes("units = [\"kubepods.slice\"]") && takes("units = [\"cri-containerd-*.scope\"]")
        );
        assert!(takes(
            "cgroups = [\"/kubepods.slice/kubepods-besteffort.slice\"]"
        ));
        assert!(takes("cgroups = [\"/kubepods-besteffort-*\"]") && !takes("cgroups = [\"/a\"]"));
        assert_eq!(of_systemd("/a.service:b:c"), None);
        assert_eq!(
            of_systemd("/x/a.slice:b:c").unwrap(),
            "/x/a.slice/b-c.scope"
        );
    }

    #[test]
    fn a_process_whose_name_is_cut_within_a_character_is_found() {
        let root = tempfile::tempdir().unwrap();
        let name = b"gro\xc3\x9fe-datenb\xc3";
        put(root.path(), "proc/7/statm", "9 999999 1 0 0 0 0\n");
        put(root.path(), "proc/7/cgroup", "0::/db\n");
        let mut stat = b"7 (".to_vec();
        stat.extend(name);
        stat.extend(format!(") S {}700 0 0\n", "0 ".repeat(18)).bytes());
        for (file, bytes) in [("comm", &name[..]), ("stat", &stat)] {
            fs::write(root.path().join(format!("proc/7/{file}")), bytes).unwrap();
        }
        for keys in ["cgroups = [\"/db\"]", "processes = [\"gro\u{df}e-*\"]"] {
            let found = find(root.path(), &group(keys), &[BTreeSet::new()], 1);
            assert_eq!(found.len(), 1, "{keys}");
            assert_eq!(found[0].process.start, 700);
        }
    }
}
