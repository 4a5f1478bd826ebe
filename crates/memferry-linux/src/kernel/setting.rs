// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of /sys/kernel/mm/migration and of pghot's sysctls: checked as a whole, undone when a step fails.
//!
//! No module is loaded: a migrator that is not registered is an error that says how to load it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::pghot::{self, MOST_RATE_MBPS, Pghot};
use super::{
    DCBM, FOLDER, LARGEST_BATCH_BYTES, MOST_LANES, MTCOPY, Migration, REASONS, SettingError,
};

/// What is to be set; `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The migrator, or [`NO_MIGRATOR`](super::NO_MIGRATOR).
    pub migrator: Option<String>,
    /// See [`Migration::reasons`].
    pub reasons: Option<String>,
    /// See [`Migration::max_batch_bytes`].
    pub max_batch_bytes: Option<u64>,
    /// Lanes of `mtcopy`.
    pub lanes: Option<u64>,
    /// Lanes of `dcbm`.
    pub dcbm_lanes: Option<u64>,
}

/// What of pghot's sysctls is to be set; `None` leaves one as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PghotChange {
    /// See [`Pghot::sources`].
    pub sources: Option<u64>,
    /// See [`Pghot::target_node`].
    pub target_node: Option<i64>,
    /// See [`Pghot::rate_limit_mbps`].
    pub rate_limit_mbps: Option<u64>,
}

/// One file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The folder of the file, below the root.
    folder: &'static str,
    /// The file, relative to /sys/kernel/mm/migration, or to /proc/sys/vm for pghot's.
    pub file: &'static str,
    /// What it says now.
    pub before: String,
    /// What it is to say.
    pub after: String,
    /// What the kernel takes there.
    allowed: String,
}

/// Steps in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    root: PathBuf,
    /// The steps; none when everything is as wanted.
    pub steps: Vec<Step>,
}

impl Plan {
    /// What has to be written so that the interface below `root`, which is `now`, becomes as `change` wants it. The migrator
    /// is last: it begins with its settings.
    ///
    /// # Errors
    /// Anything that the kernel would refuse, as far as it can be known. Nothing is written here.
    pub fn new(root: &Path, now: &Migration, change: &Change) -> Result<Self, SettingError> {
        let no_migrator = |name: &str| SettingError::NoMigrator {
            name: name.to_owned(),
            known: now.migrators.names.clone(),
        };
        let mut plan = Self::empty(root);
        if let Some(bytes) = change.max_batch_bytes {
            let least = now.smallest_max_batch_bytes;
            // A batch may always be one huge page, which can be of 512 MiB.
            let most = LARGEST_BATCH_BYTES.max(least);
            let allowed = format!("whole pages from {least} to {most} bytes");
            let fits =
                (least..=most).contains(&bytes) && bytes % rustix::param::page_size() as u64 == 0;
            let before = now.max_batch_bytes;
            plan.add(
                step(FOLDER, "max_batch_bytes", before, bytes, allowed),
                fits,
            )?;
        }
        if let Some(reasons) = &change.reasons {
            let names: Vec<&str> = reasons.split_whitespace().collect();
            let fits = matches!(names[..], ["all"] | ["none"])
                || !names.is_empty() && names.iter().all(|name| REASONS.contains(name));
            let allowed = format!("all, none, or some of {}", REASONS.join(" "));
            let (before, after) = (&now.reasons, names.join(" "));
            plan.add(step(FOLDER, "reasons", before, after, allowed), fits)?;
        }
        let dcbm_lanes = now.dcbm.as_ref().map(|dcbm| dcbm.lanes);
        for (module, file, before, after) in [
            (MTCOPY, "mtcopy/lanes", now.lanes, change.lanes),
            (DCBM, "dcbm/lanes", dcbm_lanes, change.dcbm_lanes),
        ] {
            if after.is_some() && before.is_none() {
                return Err(no_migrator(module));
            }
            plan.number(FOLDER, file, before.unwrap_or(0), after, 1..=MOST_LANES)?;
        }
        if let Some(name) = &change.migrator {
            if !now.has(name) {
                return Err(no_migrator(name));
            }
            let allowed = format!("one of {}", now.migrators.names.join(", "));
            let before = &now.migrators.active;
            plan.add(step(FOLDER, "migrator", before, name, allowed), true)?;
        }
        Ok(plan)
    }

    /// What has to be written so that pghot below `root`, which is `now`, becomes as `change` wants it. Sources go off before
    /// anything else changes, and on after it.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of_pghot(root: &Path, now: &Pghot, change: &PghotChange) -> Result<Self, SettingError> {
        const FOLDER: &str = pghot::SYSCTLS;
        let sources = |before: u64, after: u64| {
            step(FOLDER, "pghot_enabled_sources", before, after, "a mask")
        };
        let wanted = change.sources.unwrap_or(now.sources);
        let kept = now.sources & wanted;
        let mut plan = Self::empty(root);
        plan.add(sources(now.sources, kept), true)?;
        if let Some(node) = change.target_node {
            let (before, allowed) = (now.target_node, "a node of the top tier with memory");
            plan.add(
                step(FOLDER, "pghot_target_nid", before, node, allowed),
                true,
            )?;
        }
        let (file, before) = ("pghot_promote_rate_limit_MBps", now.rate_limit_mbps);
        let (after, range) = (change.rate_limit_mbps, 1..=MOST_RATE_MBPS);
        plan.number(FOLDER, file, before, after, range)?;
        plan.add(sources(kept, wanted), true)?;
        Ok(plan)
    }

    /// No step.
    pub fn empty(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            steps: Vec::new(),
        }
    }

    /// Adds a step, unless the file says so already.
    fn add(&mut self, step: Step, fits: bool) -> Result<(), SettingError> {
        if !fits {
            return Err(SettingError::BadValue {
                setting: step.file,
                value: step.after,
                allowed: step.allowed,
            });
        }
        if step.before != step.after {
            self.steps.push(step);
        }
        Ok(())
    }

    fn number(
        &mut self,
        folder: &'static str,
        file: &'static str,
        before: u64,
        after: Option<u64>,
        range: RangeInclusive<u64>,
    ) -> Result<(), SettingError> {
        let Some(after) = after else { return Ok(()) };
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let step = step(folder, file, before, after, allowed);
        self.add(step, range.contains(&after))
    }

    /// The steps of both, these first: one change, undone as a whole.
    pub fn and(mut self, next: Plan) -> Self {
        self.steps.extend(next.steps);
        self
    }

    /// Writes all steps.
    ///
    /// # Errors
    /// The first step that the kernel refuses. The steps before it are undone then, the last one first.
    pub fn apply(&self) -> Result<(), SettingError> {
        self.apply_with(&mut write)
    }

    pub(super) fn apply_with(
        &self,
        write: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<(), SettingError> {
        let path = |step: &Step| self.root.join(step.folder).join(step.file);
        for (index, step) in self.steps.iter().enumerate() {
            let Err(error) = write(&path(step), &step.after) else {
                continue;
            };
            let done = self.steps[..index].iter().rev();
            let failed = done.filter(|done| write(&path(done), &done.before).is_err());
            let not_restored = failed.map(path).collect();
            return Err(SettingError::Write {
                path: path(step),
                value: step.after.clone(),
                error,
                allowed: step.allowed.clone(),
                not_restored,
            });
        }
        Ok(())
    }
}

/// One write(2) of the whole text, as sysfs wants it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(format!("{text}\n").as_bytes())
}

fn step(
    folder: &'static str,
    file: &'static str,
    before: impl ToString,
    after: impl ToString,
    allowed: impl Into<String>,
) -> Step {
    Step {
        folder,
        file,
        before: before.to_string(),
        after: after.to_string(),
        allowed: allowed.into(),
    }
}
