// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's hot-page tracking: its sysctls `vm.pghot_*`, what debugfs `pghot/` shows, its counters in /proc/vmstat.
//!
//! `setting` changes the sysctls. Debugfs is for root, and need not be mounted: what cannot be read there is left out.

use std::collections::BTreeMap;
use std::path::Path;

use super::Absence;
use crate::topology::error::{ParseError, TopologyError};
use crate::topology::files::Root;
use crate::topology::parse;

/// The folder of the sysctls, below the root.
pub(super) const SYSCTLS: &str = "proc/sys/vm";

const SOURCES_FILE: &str = "proc/sys/vm/pghot_enabled_sources";

/// The folder of debugfs, below the root.
const DEBUGFS: &str = "sys/kernel/debug/pghot";

/// What reports accesses, in the order of the bits of `vm.pghot_enabled_sources`.
pub const SOURCES: [&str; 3] = ["hintfaults", "hwhints", "pgtscan"];

/// Pages of one section of memory with records: 128 MiB.
pub const SECTION_PAGES: u64 = 32_768;

/// The largest `vm.pghot_promote_rate_limit_MBps`, MiB/s: 4 TiB/s, the fastest pace of the core.
pub const MOST_RATE_MBPS: u64 = 1 << 22;

/// The largest `vm.pghot_target_nid`: the next number is what a record says that knows no node.
pub const MOST_TARGET: u64 = 1022;

/// Hot-page tracking as it is set now, and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pghot {
    /// `vm.pghot_enabled_sources`: bit n is source n of [`SOURCES`].
    pub sources: u64,
    /// `vm.pghot_target_nid`: where pages go of which no better target is known.
    pub target_node: i64,
    /// `vm.pghot_promote_rate_limit_MBps`: what moves to a node, and in exchange away from it, at most, MiB/s.
    pub rate_limit_mbps: u64,
    /// `vm.pghot_promote_freq_window_ms`: after how long without an access a page counts as not in use, ms. Kernels of
    /// before 2026-11-29 have it in debugfs, and so in `tuning`.
    pub window_ms: Option<u64>,
    /// The files of debugfs with one value, by name; empty without debugfs or the permission to read it.
    pub tuning: Vec<(String, String)>,
    /// What debugfs `pghot/status` says, by name; empty likewise.
    pub status: BTreeMap<String, String>,
    /// The counters `pghot_*`, `pgpromote_*` and `pgdemote_*` of /proc/vmstat.
    pub counters: BTreeMap<String, u64>,
}

impl Pghot {
    /// Reads the interface of the machine whose `sys` and `proc` lie in the folder `root`; the inner `Err` says why its
    /// kernel has none.
    ///
    /// # Errors
    /// A file is unreadable or not as documented.
    pub fn read_from(root: &Path) -> Result<Result<Self, Absence>, TopologyError> {
        let root = &Root(root);
        let sysctl = |name: &str| format!("{SYSCTLS}/pghot_{name}");
        let expected = "the sources that are on";
        let Some(sources) = root.optional(SOURCES_FILE, expected, parse::number)? else {
            return Ok(Err(Absence::find(root, "CONFIG_PGHOT", SOURCES_FILE)));
        };
        Ok(Ok(Self {
            sources,
            target_node: root.required(&sysctl("target_nid"), "a node", signed)?,
            rate_limit_mbps: root.required(
                &sysctl("promote_rate_limit_MBps"),
                "the rate limit",
                parse::number,
            )?,
            window_ms: root.optional(
                &sysctl("promote_freq_window_ms"),
                "the window",
                parse::number,
            )?,
            tuning: tuning(root),
            status: status(root.0),
            counters: counters(root)?,
        }))
    }

    /// The names of the sources that are on; a bit that this version does not know is `source N`.
    pub fn enabled(&self) -> Vec<String> {
        source_names(self.sources)
    }

    /// The format of the records, `default` (one byte) or `precise` (four); `None` if debugfs does not tell.
    pub fn format(&self) -> Option<&str> {
        self.status.get("format").map(String::as_str)
    }

    /// Memory that the records take, bytes; `None` if debugfs does not tell.
    pub fn record_bytes(&self) -> Option<u64> {
        self.status.get("record_bytes")?.parse().ok()
    }
}

/// The names of the sources of a mask.
pub fn source_names(mask: u64) -> Vec<String> {
    let on = (0..64).filter(|bit| mask >> bit & 1 == 1);
    on.map(|bit| match SOURCES.get(bit) {
        Some(name) => (*name).to_owned(),
        None => format!("source {bit}"),
    })
    .collect()
}

/// The mask of sources by name, also `all` and `none`.
///
/// # Errors
/// The first name that no source has.
pub fn source_mask<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<u64, String> {
    let mut mask = 0;
    for name in names {
        mask |= match (name, SOURCES.iter().position(|source| *source == name)) {
            (_, Some(bit)) => 1 << bit,
            ("all", None) => (1 << SOURCES.len()) - 1,
            ("none", None) => 0,
            _ => return Err(name.to_owned()),
        };
    }
    Ok(mask)
}

/// Every counter of /proc/vmstat.
///
/// # Errors
/// The file is missing or not as documented.
pub fn vmstat(root: &Path) -> Result<BTreeMap<String, u64>, TopologyError> {
    Root(root).required("proc/vmstat", "the kernel's counters", |text| {
        let line = |line: &str| {
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| ParseError::new("a name and a number", line))?;
            // Some values are differences that pass below zero for a moment.
            Ok((name.to_owned(), parse::number(value).unwrap_or(0)))
        };
        text.lines().map(line).collect()
    })
}

fn counters(root: &Root<'_>) -> Result<BTreeMap<String, u64>, TopologyError> {
    let mut all = vmstat(root.0)?;
    let ours = ["pghot_", "pgpromote_", "pgdemote_"];
    all.retain(|name, _| ours.iter().any(|prefix| name.starts_with(prefix)));
    Ok(all)
}

/// Files of one short line. Those that cannot be read are not there for us.
fn tuning(root: &Root<'_>) -> Vec<(String, String)> {
    let names = root.names(DEBUGFS, "pghot's files").unwrap_or_default();
    let value = |name: String| {
        let line = |text: &str| match text.trim() {
            line if line.contains('\n') => Err(ParseError::new("one line", line)),
            line => Ok(line.to_owned()),
        };
        let text = root.optional(&format!("{DEBUGFS}/{name}"), "a value", line);
        text.ok().flatten().map(|text| (name, text))
    };
    (names
        .into_iter()
        .filter(|name| name != "heat" && name != "status"))
    .filter_map(value)
    .collect()
}

/// What debugfs `pghot/status` below `root` says, by name; nothing where it cannot be read.
pub fn status(root: &Path) -> BTreeMap<String, String> {
    let lines = |text: &str| {
        let line = |line: &str| {
            let (name, value) = line
                .split_once(' ')
                .ok_or_else(|| ParseError::new("a name and a value", line))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        text.lines().map(line).collect()
    };
    let read = Root(root).optional(&format!("{DEBUGFS}/status"), "pghot's status", lines);
    read.ok().flatten().unwrap_or_default()
}

fn signed(text: &str) -> Result<i64, ParseError> {
    let text = text.trim();
    text.parse()
        .map_err(|_| ParseError::new("a whole number", text))
}

/// What the kernel knows of one section.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct SectionHeat {
    /// The section's number: its first physical address over 128 MiB.
    pub section: u64,
    /// The node that its memory lies on.
    pub node: u32,
    /// Pages of which an access is known.
    pub known: u64,
    /// Pages that are hot.
    pub hot: u64,
    /// The node from which most of its accesses come; `None` while that is not known.
    pub majority_node: Option<u32>,
    /// Pages by the further columns of the file, which [`Heat::frequencies`] names.
    pub by_frequency: Vec<u64>,
}

/// The per-section summary, debugfs `pghot/heat`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Heat {
    /// The names of the columns with counts by frequency.
    pub frequencies: Vec<String>,
    /// One for each section with records, as the kernel lists them.
    pub sections: Vec<SectionHeat>,
}

/// The columns that are not counts by frequency.
const COLUMNS: [&str; 5] = ["section", "nid", "pages_known", "hot", "majority_node"];

impl Heat {
    /// Reads the summary; `None` where debugfs does not have it.
    ///
    /// # Errors
    /// Not root, or the text is not as documented.
    pub fn read_from(root: &Path) -> Result<Option<Self>, TopologyError> {
        let file = format!("{DEBUGFS}/heat");
        Root(root).optional(&file, "the heat of the sections", Self::parse)
    }

    fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().enumerate();
        let head = lines.next().map_or("", |(_, line)| line);
        let names: Vec<&str> = head.trim_start_matches('#').split_whitespace().collect();
        let place = |name: &str| names.iter().position(|other| *other == name);
        let expected = || ParseError::new(format!("a header with {}", COLUMNS.join(" ")), head);
        let mut places = [0; COLUMNS.len()];
        for (at, name) in places.iter_mut().zip(COLUMNS) {
            *at = place(name).ok_or_else(|| expected().at_line(1))?;
        }
        let others: Vec<usize> = (0..names.len()).filter(|at| !places.contains(at)).collect();
        let section = |line: &str| -> Result<SectionHeat, ParseError> {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() != names.len() {
                return Err(ParseError::new(format!("{} columns", names.len()), line));
            }
            let number = |at: usize| parse::number(words[at]);
            let [section, node, known, hot, majority] = places;
            Ok(SectionHeat {
                section: number(section)?,
                node: number(node)? as u32,
                known: number(known)?,
                hot: number(hot)?,
                majority_node: number(majority).ok().map(|node| node as u32),
                by_frequency: others
                    .iter()
                    .map(|&at| number(at))
                    .collect::<Result<_, _>>()?,
            })
        };
        let sections = lines
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(at, line)| section(line).map_err(|error| error.at_line(at + 1)));
        Ok(Self {
            sections: sections.collect::<Result<_, _>>()?,
            frequencies: others.iter().map(|&at| names[at].to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invented::{changes, put};
    use std::fs;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let files = "
proc/sys/vm/pghot_enabled_sources = 5
proc/sys/vm/pghot_target_nid = -1
proc/sys/vm/pghot_promote_rate_limit_MBps = 65536
proc/sys/vm/pghot_promote_freq_window_ms = 3000
proc/vmstat = nr_free_pages 9;pgpromote_success 7;pghot_promoted 6
sys/kernel/debug/pghot/status = format default;record_bytes 131072;exchanged 5
sys/kernel/debug/pghot/freq_threshold = 2
sys/kernel/debug/pghot/hwhints_event =
sys/kernel/debug/pghot/heat = # section nid pages_known hot majority_node freq1 freq2;12 2 40 3 0 37 3;13 2 0 0 -1 0 0
";
        changes(root.path(), files);
        root
    }

    #[test]
    fn sysctls_debugfs_and_counters_are_read() {
        let root = machine();
        let now = Pghot::read_from(root.path()).unwrap().unwrap();
        assert_eq!(now.enabled(), ["hintfaults", "pgtscan"]);
        assert_eq!((now.target_node, now.rate_limit_mbps), (-1, 65536));
        assert_eq!(now.window_ms, Some(3000));
        assert_eq!(now.format(), Some("default"));
        assert_eq!(now.record_bytes(), Some(131_072));
        let names: Vec<&str> = now.counters.keys().map(String::as_str).collect();
        assert_eq!(names, ["pghot_promoted", "pgpromote_success"]);
        let tuning: Vec<&str> = now.tuning.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            tuning,
            ["freq_threshold", "hwhints_event"],
            "the rest is tables"
        );
    }

    #[test]
    fn a_kernel_without_debugfs_has_its_sysctls() {
        let root = machine();
        fs::remove_dir_all(root.path().join("sys")).unwrap();
        let now = Pghot::read_from(root.path()).unwrap().unwrap();
        assert_eq!((now.tuning.len(), now.format()), (0, None));
        assert_eq!(Heat::read_from(root.path()).unwrap(), None);
    }

    #[test]
    fn a_stock_kernel_is_told_by_its_configuration() {
        let root = machine();
        fs::remove_file(root.path().join("proc/sys/vm/pghot_enabled_sources")).unwrap();
        let why = || {
            let absence = Pghot::read_from(root.path()).unwrap().unwrap_err();
            format!("{absence}; {}", absence.hint())
        };
        fs::create_dir_all(root.path().join("sys/kernel/mm")).unwrap();
        assert!(why().contains("not to be found"), "{}", why());
        put(root.path(), "proc/sys/kernel/osrelease", "6.12.1\n");
        for (line, part) in [
            ("# CONFIG_PGHOT is not set\n", "build it again"),
            ("CONFIG_PGHOT=y\n", "not shown here"),
            (
                "CONFIG_MIGRATION_COPY_OFFLOAD=y\n",
                "does not know CONFIG_PGHOT",
            ),
        ] {
            put(root.path(), "boot/config-6.12.1", line);
            assert!(why().contains(part), "{line}: {}", why());
        }
    }

    #[test]
    fn the_heat_of_sections_is_read_by_the_names_of_its_columns() {
        let root = machine();
        let heat = Heat::read_from(root.path()).unwrap().unwrap();
        assert_eq!(heat.frequencies, ["freq1", "freq2"]);
        assert_eq!(heat.sections.len(), 2);
        let first = &heat.sections[0];
        assert_eq!(
            (first.section, first.node, first.known, first.hot),
            (12, 2, 40, 3)
        );
        assert_eq!(
            (first.majority_node, &first.by_frequency[..]),
            (Some(0), &[37, 3][..])
        );
        assert_eq!(heat.sections[1].majority_node, None);
        for (text, part) in [
            ("section nid\n1 2\n", ":1: "),
            ("section nid pages_known hot majority_node\n1 2 3\n", ":2: "),
            (
                "section nid pages_known hot majority_node\n1 2 3 much 0\n",
                "much",
            ),
        ] {
            fs::write(root.path().join("sys/kernel/debug/pghot/heat"), text).unwrap();
            let error = Heat::read_from(root.path()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn sources_are_bits() {
        assert_eq!(source_mask(["hintfaults", "pgtscan"]), Ok(5));
        assert_eq!(source_mask(["all"]), Ok(7));
        assert_eq!(source_mask(["none"]), Ok(0));
        assert_eq!(
            source_mask(["hintfaults", "rumours"]),
            Err("rumours".to_owned())
        );
        assert_eq!(source_names(0b1010), ["hwhints", "source 3"]);
    }
}
