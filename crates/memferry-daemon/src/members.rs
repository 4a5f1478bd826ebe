// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes belong to which group, from /proc below a root folder. A process is of the first group that takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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
    /// Processes that are left alone, as each has less than the group's `min_size`.
    pub small: u64,
    /// That, bytes.
    #[serde(rename = "min_size_bytes")]
    pub min_size: u64,
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
            min_size: group.min_size,
        })
        .collect();
    for member in find(root, &config.groups, &names, Least::Any) {
        let of = &mut all[member.group];
        if member.resident < config.groups[member.group].min_size {
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

/// Which processes count by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// Those with what their group wants at least.
    OfGroup,
    /// All that have memory, which tasks of the kernel have not.
    Any,
}

/// The members of all groups, the largest first; `names` has what each group's file of names
/// says. This process is none, and those that end meanwhile are left out.
pub fn find(
    root: &Path,
    groups: &[Group],
    names: &[BTreeSet<String>],
    least: Least,
) -> Vec<Member> {
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
    least: Least,
    pid: u32,
) -> Option<Member> {
    let resident = bytes_of(root, pid, 1)?;
    let is_any = least == Least::Any;
    // Before its other files are read.
    if resident < if is_any { 1 } else { LEAST_RESIDENT } {
        return None;
    }
    let (group, cgroup, name) = group_of(root, groups, names, pid)?;
    if !is_any && resident < groups[group].min_size {
        return None;
    }
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
    let process = Named {
        cgroup: &cgroup,
        name: name.trim_end_matches('\n'),
        executable: &|| fs::read_link(root.join(format!("proc/{pid}/exe"))).ok(),
        user: &|| user(&read("status").ok()?),
    };
    let takes = |(group, names): (&Group, &BTreeSet<String>)| takes(group, names, &process);
    let group = groups.iter().zip(names).position(takes)?;
    let name = process.name.to_owned();
    Some((group, cgroup, name))
}

/// What a process is selected by.
struct Named<'a> {
    cgroup: &'a str,
    name: &'a str,
    /// Asked only of groups that select by it.
    executable: &'a dyn Fn() -> Option<PathBuf>,
    user: &'a dyn Fn() -> Option<u32>,
}

/// The user of a process, by whose rights it runs.
fn user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
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

fn takes(group: &Group, names: &BTreeSet<String>, process: &Named<'_>) -> bool {
    let is_program = |path: PathBuf| {
        // An upgrade replaces the program of one that runs.
        let path = path.to_string_lossy();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        group.executables.iter().any(|of| of.matches(path))
    };
    let is_taken = takes_cgroup(group, names, process.cgroup)
        || of_systemd(process.cgroup).is_some_and(|cgroup| takes_cgroup(group, names, &cgroup))
        || group.processes.iter().any(|of| of.matches(process.name))
        || !group.executables.is_empty() && (process.executable)().is_some_and(is_program)
        || !group.users.is_empty() && (process.user)().is_some_and(|of| group.users.contains(&of));
    is_taken && !group.exclude.iter().any(|of| of.matches(process.name))
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
        let found = find(root.path(), &config.groups, &names, Least::OfGroup);
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

    /// A process of a cgroup.
    fn named(cgroup: &str) -> Named<'_> {
        Named {
            cgroup,
            name: "x",
            executable: &|| None,
            user: &|| None,
        }
    }

    #[test]
    fn processes_are_selected_by_program_and_user_and_left_out_by_name_and_size() {
        let root = tempfile::tempdir().unwrap();
        let mebibyte = (1 << 20) / rustix::param::page_size();
        for (pid, name, uid, exe, mebibytes) in [
            (
                1,
                "postgres",
                999,
                "/usr/lib/postgresql/15/bin/postgres",
                40,
            ),
            (
                2,
                "postgres",
                999,
                "/usr/lib/postgresql/15/bin/postgres (deleted)",
                100,
            ),
            (3, "psql", 1000, "/usr/lib/postgresql/15/bin/psql", 100),
            (4, "java", 999, "/opt/java/bin/java", 17),
        ] {
            for (file, text) in [
                ("statm", format!("9 {} 1\n", mebibytes * mebibyte)),
                ("cgroup", "0::/x\n".to_owned()),
                ("comm", format!("{name}\n")),
                ("status", format!("Name:\t{name}\nUid:\t0\t{uid}\t0\t0\n")),
                (
                    "stat",
                    format!("{pid} ({name}) S {}{pid}00 0 0\n", "0 ".repeat(18)),
                ),
            ] {
                put(root.path(), &format!("proc/{pid}/{file}"), &text);
            }
            let link = root.path().join(format!("proc/{pid}/exe"));
            std::os::unix::fs::symlink(exe, link).unwrap();
        }
        for (keys, taken) in [
            (
                "executables = [\"/usr/lib/postgresql/*/bin/postgres\"]",
                &[1, 2][..],
            ),
            (
                "executables = [\"*/bin/p*\"]\nexclude = [\"psql\"]",
                &[1, 2],
            ),
            ("executables = [\"*/bin/p*\"]\nmin_size = \"64M\"", &[2, 3]),
            ("users = [999]", &[1, 2, 4]),
            ("users = [1000, 999]\nexclude = [\"post*\"]", &[3, 4]),
            ("users = [\"root\"]", &[]),
        ] {
            let found = find(
                root.path(),
                &group(keys),
                &[BTreeSet::new()],
                Least::OfGroup,
            );
            let mut pids: Vec<u32> = found.iter().map(|of| of.process.pid).collect();
            pids.sort_unstable();
            assert_eq!(pids, taken, "{keys}");
        }
    }

    #[test]
    fn an_empty_name_takes_no_process() {
        let group = &group("units = [\"y\"]")[0];
        let names = BTreeSet::from([String::new()]);
        assert!(!takes(group, &names, &named("/system.slice/x.service")));
        assert!(!takes(group, &names, &named("/")));
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
                takes(group, &BTreeSet::new(), &named(cgroup)),
                is_taken,
                "{unit} {cgroup}"
            );
        }
    }

    #[test]
    fn a_cgroup_that_is_named_as_slice_and_scope_is_found_by_both() {
        let cgroup = "/kubepods-besteffort-pod1_2.slice:cri-containerd:17";
        let of = |keys: &str| group(keys).remove(0);
        let is_in_file = |name: &str| {
            takes(
                &of("units = [\"y\"]"),
                &BTreeSet::from([name.to_owned()]),
                &named(cgroup),
            )
        };
        assert!(is_in_file("kubepods-besteffort-pod1_2.slice"));
        assert!(is_in_file("cri-containerd-17.scope"));
        assert!(is_in_file(
            "kubepods-besteffort-pod1_2.slice:cri-containerd:17"
        ));
        assert!(!is_in_file("kubepods-besteffort-pod1.slice") && !is_in_file("17"));
        let takes = |keys: &str| takes(&of(keys), &BTreeSet::new(), &named(cgroup));
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
            let found = find(root.path(), &group(keys), &[BTreeSet::new()], Least::Any);
            assert_eq!(found.len(), 1, "{keys}");
            assert_eq!(found[0].process.start, 700);
        }
    }
}
