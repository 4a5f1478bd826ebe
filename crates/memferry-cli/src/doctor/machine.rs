// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the checks look at: the topology, and files of /proc, /sys and /dev below a root folder.
//!
//! A file that is missing or cannot be read is an answer: this kernel, or this user, has no such thing.

use std::fs;
use std::path::{Path, PathBuf};

use memferry_linux::topology::Topology;
use memferry_linux::topology::parse::format_id_list;
use rustix::fs::Access;

use super::start::Start;
use crate::cli::Use;
use crate::failure::Failure;
use crate::topology;

/// Bits of `CapEff` (include/uapi/linux/capability.h).
pub const CAP_DAC_OVERRIDE: u32 = 1;
pub const CAP_DAC_READ_SEARCH: u32 = 2;
pub const CAP_SYS_PTRACE: u32 = 19;
pub const CAP_SYS_ADMIN: u32 = 21;
pub const CAP_SYS_NICE: u32 = 23;
pub const CAP_PERFMON: u32 = 38;

/// A machine that is checked.
pub struct Machine {
    pub root: PathBuf,
    pub topology: Topology,
    /// What it is to do; `None` if it is judged for all.
    pub purpose: Option<Use>,
    /// What a daemon starts with, where the machine is for it.
    pub start: Option<Start>,
}

impl Machine {
    /// Reads the machine whose `sys`, `proc` and `dev` lie in `root`, and for the daemon its configuration.
    pub fn read(root: &Path, purpose: Option<Use>, config: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self {
            root: root.to_owned(),
            topology: topology::read_from(root)?,
            purpose,
            start: (purpose == Some(Use::Daemon)).then(|| Start::read(root, config)),
        })
    }

    /// The text of a file, without white space at its ends.
    pub fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The number that a file holds.
    pub fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// The number that a file holds as `0x7`.
    pub fn hex(&self, file: &str) -> Option<u64> {
        u64::from_str_radix(self.text(file)?.strip_prefix("0x")?, 16).ok()
    }

    /// Whether a file is there that this user cannot read.
    pub fn is_hidden(&self, file: &str) -> bool {
        self.root.join(file).exists() && self.text(file).is_none()
    }

    /// Whether this user may read and write a file or device.
    pub fn may_use(&self, file: &str) -> bool {
        rustix::fs::access(self.root.join(file), Access::READ_OK | Access::WRITE_OK).is_ok()
    }

    /// The entries of a folder that begin with `prefix` and a digit, in the order of the alphabet.
    pub fn entries(&self, folder: &str, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names
            .filter_map(|name| name.into_string().ok())
            .filter(|name| {
                (name.strip_prefix(prefix))
                    .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
            })
            .collect();
        names.sort();
        names
    }

    /// The last part of what a link points to.
    pub fn link(&self, file: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(file)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Whether a device of sysfs is below another, whose folder has this name; `file` may be a link to it.
    pub fn is_below(&self, file: &str, folder: &str) -> bool {
        let path = fs::canonicalize(self.root.join(file)).unwrap_or_default();
        path.iter().any(|part| part == folder)
    }

    /// Whether this process has a capability; a /proc that does not say denies none.
    pub fn has_capability(&self, bit: u32) -> bool {
        let status = self.text("proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_none_or(|set| set >> bit & 1 == 1)
    }

    /// The nodes below Linux's top tier, as text; `None` if there are none.
    pub fn slow_nodes(&self) -> Option<String> {
        let slow = self.topology.tiers.iter().skip(self.topology.top_tiers());
        let mut nodes: Vec<u32> = slow.flat_map(|tier| tier.nodes.clone()).collect();
        nodes.sort_unstable();
        (!nodes.is_empty()).then(|| nodes_text(&nodes))
    }
}

/// Nodes by their ids: `node 2`, `nodes 2-3`.
pub fn nodes_text(ids: &[u32]) -> String {
    let word = if ids.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", format_id_list(ids))
}
