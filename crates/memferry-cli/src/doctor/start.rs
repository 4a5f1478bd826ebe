// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether `memferryd` can start on a machine: its configuration, source and rights. Nothing is taken or set.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use memferry_daemon::config::Group;
use memferry_daemon::machine::Machine as Tiers;
use memferry_daemon::{Config, DaemonError, Status, members, source};

use super::checks::{Check, running_daemon};
use super::description::{Finding, note, wrong};
use super::machine::{
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, Machine,
};
use crate::cli::Use;

/// The checks of a machine that is for the daemon, beside those of each machine.
pub const CHECKS: [(&str, &[Use], Check); 4] = [
    ("configuration", &[Use::Daemon], configuration),
    ("cgroups", &[Use::Daemon], cgroups),
    ("source", &[Use::Daemon], source),
    ("daemon-rights", &[Use::Daemon], rights),
];

/// The configuration's place, below the root.
const CONFIG: &str = "etc/memferry/memferry.toml";
const AS_ROOT: &str = "sudo memferry doctor --for daemon";

/// What the daemon reads before it starts, in its order.
pub struct Start {
    file: PathBuf,
    /// `None` if there is none, and nobody named one.
    config: Result<Option<Config>, DaemonError>,
    /// The source's name and why it is the one; `None` without a configuration that is right.
    source: Option<Result<(&'static str, String), DaemonError>>,
}

impl Start {
    /// Reads the configuration that was named, or the usual one below `root`, and looks for a source.
    pub fn read(root: &Path, named: Option<&Path>) -> Self {
        let file = named.map_or_else(|| root.join(CONFIG), Path::to_owned);
        let config = match Config::read(&file) {
            Ok(config) => Ok(Some(config)),
            Err(DaemonError::ConfigFile { error, .. })
                if named.is_none() && error.kind() == ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        };
        let usual = || Config::parse("", &file);
        let wanted = match &config {
            Ok(Some(config)) => Some(config.clone()),
            Ok(None) => usual().ok(),
            Err(_) => None,
        };
        let available = |config: Config| source::available(&config, &Tiers::read(root)?);
        Self {
            source: wanted.map(available),
            config,
            file,
        }
    }

    /// The source that the daemon has, or would take.
    pub fn source_name(&self, machine: &Machine) -> Option<String> {
        if let Some(status) = running_daemon(machine) {
            return Some(status.source.name);
        }
        let (name, _) = self.source.as_ref()?.as_ref().ok()?;
        Some((*name).to_owned())
    }

    /// The groups of a configuration that is right.
    fn groups(&self) -> &[Group] {
        match &self.config {
            Ok(Some(config)) => &config.groups,
            _ => &[],
        }
    }

    /// Whether the daemon can start, as a sentence.
    pub fn verdict(&self, machine: &Machine) -> String {
        if let Some(Status { pid, .. }) = running_daemon(machine) {
            return format!("memferryd runs here (pid {pid})");
        }
        let no = |why: &dyn std::fmt::Display| format!("memferryd cannot start here: {why}");
        match (&self.config, &self.source) {
            (Err(error), _) | (_, Some(Err(error))) => no(error),
            _ if !missing(machine).is_empty() => no(&format!(
                "{} missing; {AS_ROOT}",
                missing(machine).join(" and ")
            )),
            (Ok(config), Some(Ok((name, why)))) => {
                let once = match config {
                    Some(_) => "",
                    None => " once it has a configuration",
                };
                format!("memferryd can start here{once}: source {name}, {why}")
            }
            (Ok(_), None) => no(&"no source was looked for"),
        }
    }
}

/// The configuration as the daemon takes it, and groups that take no process.
fn configuration(machine: &Machine) -> Vec<Finding> {
    let Some(start) = &machine.start else {
        return Vec::new();
    };
    match &start.config {
        Err(error) => return vec![wrong(error.to_string(), error.hint())],
        Ok(None) => {
            let what = format!("there is no configuration {}", start.file.display());
            let why = "the daemon does not start without one; --config names another";
            return vec![note(what, why)];
        }
        Ok(Some(_)) => {}
    }
    let groups = start.groups();
    let names = groups.iter().map(Group::cgroup_names);
    let names: Vec<_> = names.map(Result::unwrap_or_default).collect();
    let members = members::find(&machine.root, groups, &names, members::Least::OfGroup);
    let is_empty = |index: &usize| members.iter().all(|of| of.group != *index);
    let empty: Vec<&str> = (0..groups.len())
        .filter(is_empty)
        .map(|index| &*groups[index].name)
        .collect();
    let what = match &empty[..] {
        _ if groups.is_empty() => "the configuration has no group".to_owned(),
        [] => return Vec::new(),
        [name] => format!("the group {name} takes no process now"),
        names => format!("the groups {} take no process now", names.join(", ")),
    };
    let why = "processes of no group, and those with less than 16 MiB, are left alone; see `memferryd check`";
    vec![note(what, why)]
}

/// Groups that name cgroups, on a machine whose processes have none of version 2.
fn cgroups(machine: &Machine) -> Vec<Finding> {
    let by_cgroup = |of: &Group| {
        !of.cgroups.is_empty() || !of.units.is_empty() || of.cgroup_names_file.is_some()
    };
    let groups = machine.start.as_ref().map_or(&[][..], Start::groups);
    let own = machine.text("proc/self/cgroup").unwrap_or_default();
    if own.lines().any(|line| line.starts_with("0::")) || !groups.iter().any(by_cgroup) {
        return Vec::new();
    }
    let why = "groups of the configuration take processes by their cgroups or units; boot with systemd.unified_cgroup_hierarchy=1";
    vec![wrong("cgroup v2 is not mounted", why)]
}

/// That no source can be had, or not yet. One tier, because of which none is looked for, is a finding of the tiers.
fn source(machine: &Machine) -> Vec<Finding> {
    let source = machine.start.as_ref().and_then(|of| of.source.as_ref());
    match source {
        Some(Err(error @ DaemonError::NoSource { .. })) if running_daemon(machine).is_none() => {
            vec![wrong(error.to_string(), error.hint())]
        }
        Some(Ok(("none", why))) if running_daemon(machine).is_none() => {
            let hint = "the daemon takes DAMON within five seconds once nobody else has it";
            vec![wrong(why.clone(), hint)]
        }
        _ => Vec::new(),
    }
}

/// Rights without which the daemon leaves processes of others alone.
fn missing(machine: &Machine) -> Vec<&'static str> {
    let needed = [
        ("CAP_SYS_PTRACE", CAP_SYS_PTRACE, CAP_SYS_PTRACE),
        ("CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE),
    ];
    let missing = |(_, bit, other): &(&str, u32, u32)| {
        !machine.has_capability(*bit) && !machine.has_capability(*other)
    };
    let missing = needed.into_iter().filter(missing);
    missing.map(|(name, ..)| name).collect()
}

fn rights(machine: &Machine) -> Vec<Finding> {
    let missing = missing(machine);
    if !missing.is_empty() {
        let what = format!("{} missing", missing.join(" and "));
        let why = "the daemon cannot see or move the memory of other users' processes, and this command not all that root sees";
        return vec![wrong(what, why).mend(AS_ROOT)];
    }
    match [CAP_PERFMON, CAP_SYS_ADMIN]
        .iter()
        .any(|bit| machine.has_capability(*bit))
    {
        true => Vec::new(),
        false => vec![note(
            "CAP_PERFMON missing",
            "the daemon reads DAMON's regions from sysfs, which takes more CPU time than the tracepoint",
        )],
    }
}
