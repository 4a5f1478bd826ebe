// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of /sys/kernel/mm/migration and of pghot's sysctls: checked as a whole, written in an order that the kernel takes at every step, undone
//! when a step fails.
//!
//! No module is loaded: a migrator that is not registered is an error that says how to load it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::dcbm::{LONGEST_TIMEOUT_MS, MOST_POLL_BYTES};
use super::pghot::{self, MOST_RATE_MBPS, Pghot};
use super::{
    DCBM, FOLDER, LARGEST_BATCH_BYTES, MOST_LANES, MTCOPY, Migration, NO_MIGRATOR, REASONS,
    Reasons, SettingError,
};

/// What is to be set; `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The migrator, or [`NO_MIGRATOR`].
    pub migrator: Option<String>,
    /// See [`Migration::reasons`].
    pub reasons: Option<Reasons>,
    /// See [`Migration::min_batch_bytes`].
    pub min_batch_bytes: Option<u64>,
    /// See [`Migration::max_batch_bytes`].
    pub max_batch_bytes: Option<u64>,
    /// Lanes of `mtcopy`.
    pub lanes: Option<u64>,
    /// Priority of `mtcopy`.
    pub priority: Option<String>,
    /// Placement of `mtcopy`.
    pub placement: Option<String>,
    /// Whether `mtcopy` stores around the caches.
    pub nontemporal: Option<bool>,
    /// Whether `mtcopy` uses idle CPUs only.
    pub idle_only: Option<bool>,
    /// Lanes of `dcbm`.
    pub dcbm_lanes: Option<u64>,
    /// Timeout of `dcbm`, milliseconds.
    pub timeout_ms: Option<u64>,
    /// See [`Dcbm::poll_below_bytes`](super::Dcbm::poll_below_bytes).
    pub poll_below_bytes: Option<u64>,
    /// Whether the statistics of all migrators are cleared, after everything else.
    pub reset_statistics: bool,
}

/// What of pghot's sysctls is to be set; `None` leaves one as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PghotChange {
    /// See [`Pghot::sources`].
    pub sources: Option<u64>,
    /// See [`Pghot::target_node`].
    pub target_node: Option<i64>,
    /// See [`Pghot::threshold`].
    pub threshold: Option<u64>,
    /// See [`Pghot::window_ms`].
    pub window_ms: Option<u64>,
    /// See [`Pghot::rate_limit_mbps`].
    pub rate_limit_mbps: Option<u64>,
}

/// One file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The folder of the file, below the root.
    folder: &'static str,
    /// The file, relative to /sys/kernel/mm/migration, or to /proc/sys/vm for pghot's.
    pub file: String,
    /// What it says now; `None` for a file that is only written.
    pub before: Option<String>,
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
    /// What has to be written so that the interface below `root`, which is `now`, becomes as `change` wants it.
    ///
    /// # Errors
    /// Anything that the kernel would refuse, as far as it can be known. Nothing is written here.
    pub fn new(root: &Path, now: &Migration, change: &Change) -> Result<Self, SettingError> {
        check(now, change)?;
        let mut plan = Self::empty(root);
        // Nobody copies with settings that are changing: a migrator leaves first and comes last.
        let leaves = change.migrator.as_deref() == Some(NO_MIGRATOR);
        if leaves {
            plan.migrator(now, change);
        }
        plan.batches(now, change);
        if let Some(reasons) = &change.reasons {
            let allowed = format!("all, none, or some of {}", known_reasons(now).join(" "));
            plan.step(
                "reasons",
                now.reasons.to_string(),
                reasons.to_string(),
                allowed,
            );
        }
        plan.mtcopy(now, change);
        plan.dcbm(now, change);
        if !leaves {
            plan.migrator(now, change);
        }
        if change.reset_statistics {
            // It cannot be undone, so it is last.
            let registered = now.migrators.names.iter();
            plan.steps.extend(
                registered
                    .filter(|name| *name != NO_MIGRATOR)
                    .map(|name| Step {
                        folder: FOLDER,
                        file: format!("stats/{name}/reset"),
                        before: None,
                        after: "0".to_owned(),
                        allowed: "0".to_owned(),
                    }),
            );
        }
        Ok(plan)
    }

    /// What has to be written so that pghot below `root`, which is `now`, becomes as `change` wants it. Sources go off before
    /// anything else changes, and on after it.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of_pghot(root: &Path, now: &Pghot, change: &PghotChange) -> Result<Self, SettingError> {
        let format = " with this format of records";
        for (setting, value, range, why) in [
            (
                "pghot_freq_threshold",
                change.threshold,
                now.thresholds(),
                format,
            ),
            (
                "pghot_promote_freq_window_ms",
                change.window_ms,
                now.windows_ms(),
                format,
            ),
            (
                "pghot_promote_rate_limit_MBps",
                change.rate_limit_mbps,
                1..=MOST_RATE_MBPS,
                "",
            ),
        ] {
            let (least, most) = (range.start(), range.end());
            if let Some(bad) = value.filter(|of| !range.contains(of)) {
                return Err(SettingError::BadValue {
                    setting,
                    value: bad.to_string(),
                    allowed: format!("a number from {least} to {most}{why}"),
                });
            }
        }
        let number =
            |before: u64, after: Option<u64>| after.map(|of| (before.to_string(), of.to_string()));
        let kept = change.sources.map(|of| now.sources & of);
        let wanted = [
            ("enabled_sources", number(now.sources, kept)),
            (
                "target_nid",
                (change.target_node).map(|of| (now.target_node.to_string(), of.to_string())),
            ),
            ("freq_threshold", number(now.threshold, change.threshold)),
            (
                "promote_freq_window_ms",
                number(now.window_ms, change.window_ms),
            ),
            (
                "promote_rate_limit_MBps",
                number(now.rate_limit_mbps, change.rate_limit_mbps),
            ),
            (
                "enabled_sources",
                number(kept.unwrap_or(now.sources), change.sources),
            ),
        ];
        let mut plan = Self::empty(root);
        for (name, texts) in wanted {
            let Some((before, after)) = texts.filter(|(before, after)| before != after) else {
                continue;
            };
            plan.steps.push(Step {
                folder: pghot::SYSCTLS,
                file: format!("pghot_{name}"),
                before: Some(before),
                after,
                allowed: "what vm.rst of this kernel's documentation says of it".to_owned(),
            });
        }
        Ok(plan)
    }

    fn empty(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            steps: Vec::new(),
        }
    }

    /// The steps of both, these first: one change, undone as a whole.
    pub fn and(mut self, next: Plan) -> Self {
        self.steps.extend(next.steps);
        self
    }

    fn path(&self, step: &Step) -> PathBuf {
        self.root.join(step.folder).join(&step.file)
    }

    fn step(&mut self, file: &str, before: String, after: String, allowed: impl Into<String>) {
        if before != after {
            self.steps.push(Step {
                folder: FOLDER,
                file: file.to_owned(),
                before: Some(before),
                after,
                allowed: allowed.into(),
            });
        }
    }

    fn migrator(&mut self, now: &Migration, change: &Change) {
        if let Some(name) = &change.migrator {
            let allowed = format!("one of {}", now.migrators.names.join(", "));
            self.step(
                "migrator",
                now.migrators.active.clone(),
                name.clone(),
                allowed,
            );
        }
    }

    /// The smallest batch never lies above the largest one, at any time.
    fn batches(&mut self, now: &Migration, change: &Change) {
        let min = change.min_batch_bytes.unwrap_or(now.min_batch_bytes);
        let max = change.max_batch_bytes.unwrap_or(now.max_batch_bytes);
        let mut pair = [
            (
                "min_batch_bytes",
                now.min_batch_bytes,
                min,
                min_allowed(max),
            ),
            (
                "max_batch_bytes",
                now.max_batch_bytes,
                max,
                max_allowed(now),
            ),
        ];
        if min > now.max_batch_bytes {
            pair.reverse();
        }
        for (file, before, after, allowed) in pair {
            self.step(file, before.to_string(), after.to_string(), allowed);
        }
    }

    fn mtcopy(&mut self, now: &Migration, change: &Change) {
        let Some(mtcopy) = &now.mtcopy else { return };
        let switch = |on: bool| u8::from(on).to_string();
        let lanes = mtcopy.lanes.to_string();
        let (priority, placement) = (&mtcopy.priority, &mtcopy.placement);
        let names =
            |choice: &crate::topology::parse::Choice| format!("one of {}", choice.names.join(", "));
        let wanted = [
            (
                "lanes",
                lanes,
                change.lanes.map(|n| n.to_string()),
                LANES.to_owned(),
            ),
            (
                "priority",
                priority.active.clone(),
                change.priority.clone(),
                names(priority),
            ),
            (
                "placement",
                placement.active.clone(),
                change.placement.clone(),
                names(placement),
            ),
            (
                "nontemporal",
                switch(mtcopy.nontemporal),
                change.nontemporal.map(switch),
                "0 or 1".to_owned(),
            ),
            (
                "idle_only",
                switch(mtcopy.idle_only),
                change.idle_only.map(switch),
                "0 or 1".to_owned(),
            ),
        ];
        for (file, before, after, allowed) in wanted {
            if let Some(after) = after {
                self.step(&format!("{MTCOPY}/{file}"), before, after, allowed);
            }
        }
    }

    fn dcbm(&mut self, now: &Migration, change: &Change) {
        for number in numbers_of_dcbm(now, change) {
            if let (Some(before), Some(after)) = (number.before, number.after) {
                let allowed = number.allowed();
                self.step(number.file, before.to_string(), after.to_string(), allowed);
            }
        }
    }

    /// Writes all steps.
    ///
    /// # Errors
    /// The first step that the kernel refuses. The steps before it are undone then, in the opposite order; statistics that
    /// were cleared stay so.
    pub fn apply(&self) -> Result<(), SettingError> {
        self.apply_with(&mut write)
    }

    pub(super) fn apply_with(
        &self,
        write: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<(), SettingError> {
        for (index, step) in self.steps.iter().enumerate() {
            let path = self.path(step);
            let Err(error) = write(&path, &step.after) else {
                continue;
            };
            let mut not_restored = Vec::new();
            for done in self.steps[..index].iter().rev() {
                let path = self.path(done);
                if let Some(before) = &done.before {
                    if write(&path, before).is_err() {
                        not_restored.push(path);
                    }
                }
            }
            return Err(SettingError::Write {
                path,
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

const LANES: &str = "a number from 1 to 64";

fn min_allowed(max: u64) -> String {
    format!("a number from 0 to the largest batch, {max}")
}

/// A batch may always be one huge page, which can be of 512 MiB.
fn largest_max_batch_bytes(now: &Migration) -> u64 {
    LARGEST_BATCH_BYTES.max(now.smallest_max_batch_bytes)
}

fn max_allowed(now: &Migration) -> String {
    format!(
        "whole pages from {} to {} bytes, and not below the smallest batch",
        now.smallest_max_batch_bytes,
        largest_max_batch_bytes(now)
    )
}

/// The reasons that this kernel has: those that its statistics name.
fn known_reasons(now: &Migration) -> Vec<String> {
    let mut known: Vec<String> = REASONS.map(str::to_owned).to_vec();
    for row in &now.statistics {
        if !known.contains(&row.reason) {
            known.push(row.reason.clone());
        }
    }
    known
}

/// A setting that is a number.
struct Number {
    file: &'static str,
    before: Option<u64>,
    after: Option<u64>,
    least: u64,
    most: u64,
}

impl Number {
    fn allowed(&self) -> String {
        format!("a number from {} to {}", self.least, self.most)
    }
}

/// The settings of `dcbm`.
fn numbers_of_dcbm(now: &Migration, change: &Change) -> [Number; 3] {
    let dcbm = now.dcbm.as_ref();
    [
        Number {
            file: "dcbm/lanes",
            before: dcbm.map(|of| of.lanes),
            after: change.dcbm_lanes,
            least: 1,
            most: MOST_LANES,
        },
        Number {
            file: "dcbm/timeout_ms",
            before: dcbm.map(|of| of.timeout_ms),
            after: change.timeout_ms,
            least: 1,
            most: LONGEST_TIMEOUT_MS,
        },
        Number {
            file: "dcbm/poll_below_bytes",
            before: dcbm.map(|of| of.poll_below_bytes),
            after: change.poll_below_bytes,
            least: 0,
            most: MOST_POLL_BYTES,
        },
    ]
}

fn check(now: &Migration, change: &Change) -> Result<(), SettingError> {
    let no_migrator = |name: &str| SettingError::NoMigrator {
        name: name.to_owned(),
        known: now.migrators.names.clone(),
    };
    let bad = |setting, value: String, allowed: String| SettingError::BadValue {
        setting,
        value,
        allowed,
    };
    if let Some(name) = change.migrator.as_ref().filter(|name| !now.has(name)) {
        return Err(no_migrator(name));
    }
    if let Some(Reasons::Some(names)) = &change.reasons {
        let known = known_reasons(now);
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            let allowed = format!("all, none, or some of {}", known.join(" "));
            return Err(bad("reasons", unknown.clone(), allowed));
        }
    }
    let min = change.min_batch_bytes.unwrap_or(now.min_batch_bytes);
    let max = change.max_batch_bytes.unwrap_or(now.max_batch_bytes);
    let page = crate::page_size() as u64;
    if change.max_batch_bytes.is_some()
        && (max % page != 0
            || !(now.smallest_max_batch_bytes..=largest_max_batch_bytes(now)).contains(&max))
    {
        return Err(bad("max_batch_bytes", max.to_string(), max_allowed(now)));
    }
    if min > max {
        return Err(match change.min_batch_bytes {
            Some(_) => bad("min_batch_bytes", min.to_string(), min_allowed(max)),
            None => bad("max_batch_bytes", max.to_string(), max_allowed(now)),
        });
    }
    for number in numbers_of_dcbm(now, change) {
        let Some(after) = number.after else { continue };
        if number.before.is_none() {
            return Err(no_migrator(DCBM));
        }
        if !(number.least..=number.most).contains(&after) {
            return Err(bad(number.file, after.to_string(), number.allowed()));
        }
    }
    let of_mtcopy = change.lanes.is_some()
        || change.priority.is_some()
        || change.placement.is_some()
        || change.nontemporal.is_some()
        || change.idle_only.is_some();
    let Some(mtcopy) = &now.mtcopy else {
        return if of_mtcopy {
            Err(no_migrator(MTCOPY))
        } else {
            Ok(())
        };
    };
    if let Some(lanes) = change
        .lanes
        .filter(|lanes| !(1..=MOST_LANES).contains(lanes))
    {
        return Err(bad("mtcopy/lanes", lanes.to_string(), LANES.to_owned()));
    }
    for (setting, choice, wanted) in [
        ("mtcopy/priority", &mtcopy.priority, &change.priority),
        ("mtcopy/placement", &mtcopy.placement, &change.placement),
    ] {
        if let Some(name) = wanted.as_ref().filter(|name| !choice.names.contains(name)) {
            let allowed = format!("one of {}", choice.names.join(", "));
            return Err(bad(setting, name.clone(), allowed));
        }
    }
    Ok(())
}
