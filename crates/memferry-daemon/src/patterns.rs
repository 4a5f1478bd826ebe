// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns of the cgroups, units, processes and programs of a group. One that can never match is refused with what to write instead; whether
//! one matches now is known to [`crate::members`] alone.

use std::borrow::Cow;

use glob::Pattern;

/// What the kernel keeps of a process's name (TASK_COMM_LEN without the zero at its end).
const COMM_BYTES: usize = 15;

/// Where systemd mounts cgroups of version 2; beside version 1 that is the second one.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// The kinds of units that have processes, and those that have none.
const KINDS: [&str; 6] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];
const OTHER_KINDS: [&str; 5] = [".target", ".timer", ".path", ".device", ".automount"];

/// The whole name of a unit: one without its kind is a service, as systemctl takes it. A pattern whose end can be a kind is whole.
pub fn unit_name(name: &str) -> Cow<'_, str> {
    let is_kind = |end: &str| KINDS.contains(&end) || OTHER_KINDS.contains(&end);
    let is_whole = name.rfind('.').is_some_and(|at| {
        let end = &name[at..];
        is_kind(end) || end.contains(['*', '?', '['])
    });
    match is_whole {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("{name}{}", KINDS[0])),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| format!("{text:?} is no pattern: {error}"))
}

/// A pattern of paths of cgroups.
pub(crate) fn of_cgroups(text: &str) -> Result<Pattern, String> {
    let below = (MOUNTS.iter())
        .find_map(|mount| text.strip_prefix(mount))
        .filter(|below| below.is_empty() || below.starts_with('/'));
    let parts = below.unwrap_or(text).split('/');
    let right: String = (parts.filter(|part| !["", "."].contains(part)))
        .flat_map(|part| ["/", part])
        .collect();
    let right = if right.is_empty() { "/" } else { &right };
    match text == right {
        true => pattern(text),
        false => Err(format!(
            "{text:?} can never match: paths in /proc/PID/cgroup begin with / below the mount and do not end with it; write {right:?}"
        )),
    }
}

/// A pattern of names of units.
pub(crate) fn of_units(text: &str) -> Result<Pattern, String> {
    let name = unit_name(text);
    let wrong = |why: &str| Err(format!("{text:?} can never match: {why}"));
    if text.is_empty() || text.contains('/') {
        return wrong("a unit is a name as \"redis.service\"; write paths below cgroups");
    }
    if let Some(kind) = OTHER_KINDS.iter().find(|kind| name.ends_with(*kind)) {
        return wrong(&format!(
            "units of the kind {kind} have no processes; write the .service that it starts"
        ));
    }
    pattern(&name)
}

/// A pattern of names of processes.
pub(crate) fn of_processes(text: &str) -> Result<Pattern, String> {
    let wrong = |why: String| Err(format!("{text:?} can never match: {why}"));
    if text.is_empty() {
        return wrong("it is empty; write a name as `ps -e -o comm` has it".to_owned());
    }
    if text.starts_with('/') {
        let name = text.rsplit('/').find(|part| !part.is_empty());
        let name = name.unwrap_or("java");
        return wrong(format!(
            "the name of a process has no folder; write {:?}",
            cut(name).unwrap_or(name)
        ));
    }
    let pattern = pattern(text)?;
    if least_bytes(text) <= COMM_BYTES {
        return Ok(pattern);
    }
    let instead = match cut(text) {
        Some(cut) => format!("write {cut:?}"),
        None => "write it as `ps -e -o comm` has it".to_owned(),
    };
    wrong(format!(
        "the kernel keeps {COMM_BYTES} bytes of the name of a process; {instead}"
    ))
}

/// A pattern of paths of programs.
pub(crate) fn of_executables(text: &str) -> Result<Pattern, String> {
    match text.starts_with(['/', '*', '?', '[']) {
        true => pattern(text),
        false => Err(format!(
            "{text:?} can never match: /proc/PID/exe leads to a whole path; write {:?}, or the name below processes",
            format!("*/{text}")
        )),
    }
}

/// The parts of a pattern that stand for one character each, or for any number of them: where each ends, and its bytes at least.
fn parts(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let (long, least) = match first {
            '*' => (1, 0),
            '?' => (1, 1),
            '[' => {
                // A bracket right after the opening one, or after its !, is one of the characters.
                let from = if rest[1..].starts_with('!') { 3 } else { 2 };
                let end = rest.get(from..).and_then(|of| of.find(']'));
                (end.map_or(rest.len(), |end| from + end + 1), 1)
            }
            other => (other.len_utf8(), other.len_utf8()),
        };
        at += long;
        Some((at, least))
    })
}

fn least_bytes(text: &str) -> usize {
    parts(text).map(|(_, least)| least).sum()
}

/// What such a name is once the kernel has cut it; `None` if a `*` before that leaves it open.
fn cut(text: &str) -> Option<&str> {
    let (mut bytes, mut end) = (0, 0);
    for (at, least) in parts(text) {
        bytes += least;
        if bytes > COMM_BYTES {
            break;
        }
        end = at;
    }
    let cut = &text[..end];
    (end == text.len() || !cut.contains('*')).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_without_its_kind_is_a_service() {
        for (name, whole) in [
            ("redis", "redis.service"),
            ("redis.service", "redis.service"),
            ("a.b", "a.b.service"),
            ("user-1000.slice", "user-1000.slice"),
            ("postgresql@*", "postgresql@*.service"),
            ("redis.*", "redis.*"),
            ("v1.2@[ab].s*", "v1.2@[ab].s*"),
        ] {
            assert_eq!(unit_name(name), whole);
        }
    }

    type Read = fn(&str) -> Result<Pattern, String>;

    #[test]
    fn what_can_never_match_is_refused_with_what_to_write() {
        for (read, wrong, says) in [
            (
                of_cgroups as Read,
                "/sys/fs/cgroup/system.slice/a.service",
                "write \"/system.slice/a.service\"",
            ),
            (of_cgroups, "/sys/fs/cgroup/unified/a", "write \"/a\""),
            (of_cgroups, "/sys/fs/cgroup", "write \"/\""),
            (of_cgroups, "/a/b/", "write \"/a/b\""),
            (of_cgroups, "/a//./b", "write \"/a/b\""),
            (of_cgroups, "system.slice/*", "write \"/system.slice/*\""),
            (of_cgroups, "", "write \"/\""),
            (of_units, "", "redis.service"),
            (of_units, "/system.slice/a.service", "below cgroups"),
            (of_units, "backup.timer", "write the .service"),
            (
                of_processes,
                "prometheus-node-exporter",
                "write \"prometheus-node\"",
            ),
            (
                of_processes,
                "prometheus-node-*",
                "write \"prometheus-node\"",
            ),
            (of_processes, "größe-datenbank", "write \"größe-datenba\""),
            (
                of_processes,
                "[ab][!]-]23456789abcdefgh",
                "write \"[ab][!]-]23456789abcde\"",
            ),
            (of_processes, "*-of-sixteen-byte", "ps -e -o comm"),
            (of_processes, "/usr/bin/java", "write \"java\""),
            (of_processes, "", "ps -e -o comm"),
        ] {
            let why = read(wrong).expect_err(wrong);
            assert!(why.contains("can never match"), "{why}");
            assert!(why.contains(says), "{why}");
        }
        for (read, right) in [
            (of_cgroups as Read, "/"),
            (of_cgroups, "/sys/fs/cgroups"),
            (of_cgroups, "/../../kubepods*"),
            (of_units, "system-shadowsocks\\x2drust.slice"),
            (of_processes, "prometheus-node"),
            (of_processes, "prometheus-node*"),
            (of_processes, "*"),
            (of_processes, "?23456789012345"),
        ] {
            assert!(read(right).is_ok(), "{right}");
        }
    }
}
