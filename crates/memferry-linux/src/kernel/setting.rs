// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of /sys/kernel/mm/migration and of pghot's sysctls: checked as a whole, undone when a step fails.
//!
//! No module is loaded: a migrator that is not registered is an error that says how to load it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::pghot::{MOST_RATE_MBPS, Pghot, SYSCTLS};
use super::reason::{self, ReasonChoice};
use super::{Absence, BATCH_BYTES, FOLDER, MOST_LANES, Migration, REASONS, SettingError};
use crate::topology::TopologyError;

/// A setting: one file of /sys/kernel/mm/migration, or a sysctl of pghot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// See [`Pghot::target_node`].
    PghotTarget,
    /// See [`Pghot::rate_limit_mbps`].
    PghotRateLimit,
    /// See [`Pghot::sources`].
    PghotSources,
    /// See [`Migration::max_batch_bytes`].
    MaxBatchBytes,
    /// See [`Migration::reasons`]: changes of some of them, between commas or line ends.
    Reasons,
    /// Lanes of `mtcopy`.
    MtcopyLanes,
    /// Lanes of `dcbm`.
    DcbmLanes,
    /// The migrator, or [`NO_MIGRATOR`](super::NO_MIGRATOR).
    Migrator,
}

impl Setting {
    /// All of them with their files, relative to /sys/kernel/mm/migration, or to /proc/sys/vm for pghot's; in the order in which
    /// they are written: sources and migrators begin with their settings.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::PghotTarget, "pghot_target_nid"),
        (Self::PghotRateLimit, "pghot_promote_rate_limit_MBps"),
        (Self::PghotSources, "pghot_enabled_sources"),
        (Self::MaxBatchBytes, "max_batch_bytes"),
        (Self::Reasons, "reasons"),
        (Self::MtcopyLanes, "mtcopy/lanes"),
        (Self::DcbmLanes, "dcbm/lanes"),
        (Self::Migrator, "migrator"),
    ];

    /// Its file in [`Setting::ALL`].
    pub fn file(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is one of pghot's.
    pub fn is_of_pghot(self) -> bool {
        self.file().starts_with("pghot_")
    }

    /// The module in whose folder it lies, if it does not lie in the kernel's.
    pub fn module(self) -> Option<&'static str> {
        Some(self.file().split_once('/')?.0)
    }
}

/// What of both interfaces this kernel has, as it is set now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces {
    /// Batch migration, or why there is none.
    pub migration: Result<Migration, Absence>,
    /// Hot-page tracking, or why there is none.
    pub pghot: Result<Pghot, Absence>,
}

impl Interfaces {
    /// Reads both of the machine whose `sys`, `proc` and `boot` lie in the folder `root`.
    ///
    /// # Errors
    /// As [`Migration::read`]; paths in errors begin with `root`.
    pub fn read_from(root: &Path) -> Result<Self, TopologyError> {
        Ok(Self {
            migration: Migration::read_from(root)?,
            pghot: Pghot::read_from(root)?,
        })
    }

    /// What a setting is now, as it is written; `None` where the kernel does not have it.
    pub fn value(&self, setting: Setting) -> Option<String> {
        let (migration, pghot) = (self.migration.as_ref().ok(), self.pghot.as_ref().ok());
        Some(match setting {
            Setting::PghotTarget => pghot?.target_node.to_string(),
            Setting::PghotRateLimit => pghot?.rate_limit_mbps.to_string(),
            Setting::PghotSources => pghot?.sources.to_string(),
            Setting::MaxBatchBytes => migration?.max_batch_bytes.to_string(),
            Setting::Reasons => reason::text(&migration?.reasons),
            Setting::MtcopyLanes => migration?.lanes?.to_string(),
            Setting::DcbmLanes => migration?.dcbm.as_ref()?.lanes.to_string(),
            Setting::Migrator => migration?.migrators.active.clone(),
        })
    }

    /// What a setting is with this change, as it is written. A change of reasons leaves the other reasons as they are.
    pub fn changed(&self, setting: Setting, change: &str) -> String {
        match (setting, &self.migration, reason::changes(change)) {
            (Setting::Reasons, Ok(now), Some(changes)) => {
                reason::text(&reason::changed(&now.reasons, &changes))
            }
            _ => change.to_owned(),
        }
    }

    /// The step to a value.
    ///
    /// # Errors
    /// The kernel does not have the setting, or would refuse the value, as far as that can be known.
    fn step(&self, setting: Setting, value: &str) -> Result<Step, SettingError> {
        let before = match (setting.is_of_pghot(), &self.pghot, &self.migration) {
            (true, Err(why), _) | (false, _, Err(why)) => return Err((*why).into()),
            _ => self.value(setting),
        };
        let names = self.migration.as_ref();
        let names = names.map_or(&[][..], |of| &of.migrators.names);
        let changes = match setting {
            Setting::Reasons => reason::changes(value).unwrap_or_default(),
            _ => Vec::new(),
        };
        let is_missing = setting == Setting::Migrator && !names.iter().any(|name| name == value);
        let missing = match before {
            None => setting.module(),
            Some(_) if is_missing => Some(value),
            Some(_) => (changes.iter().filter_map(ReasonChoice::needs))
                .find(|name| !names.iter().any(|known| known == name)),
        };
        if let Some(name) = missing {
            return Err(SettingError::NoMigrator {
                name: name.to_owned(),
                known: names.to_vec(),
            });
        }
        let words: Vec<&str> = value.split_whitespace().collect();
        let (fits, allowed) = self.judge(setting, &words);
        let value = words.join(" ");
        let (before, after) = match (setting, &self.migration) {
            (Setting::Reasons, Ok(now)) => {
                let (before, after) = reason::differing(&now.reasons, &changes);
                (reason::text(&before), reason::text(&after))
            }
            _ => (before.unwrap_or_default(), value.clone()),
        };
        match fits {
            true => Ok(Step {
                setting,
                before,
                after,
                allowed,
            }),
            false => Err(SettingError::BadValue {
                setting: setting.file(),
                value,
                allowed,
            }),
        }
    }

    /// Whether the kernel takes a value, and which ones it takes.
    fn judge(&self, setting: Setting, words: &[&str]) -> (bool, String) {
        let number = match words {
            [word] => word.parse::<u64>().ok(),
            _ => None,
        };
        let within = |range: RangeInclusive<u64>| number.is_some_and(|n| range.contains(&n));
        match setting {
            Setting::PghotTarget => {
                let allowed = "a node of the top tier with memory".to_owned();
                (number.is_some(), allowed)
            }
            Setting::PghotSources => (number.is_some(), "a mask".to_owned()),
            Setting::PghotRateLimit => {
                let allowed = format!("a number from 1 to {MOST_RATE_MBPS}");
                (within(1..=MOST_RATE_MBPS), allowed)
            }
            Setting::MtcopyLanes | Setting::DcbmLanes => {
                let allowed = format!("a number from 1 to {MOST_LANES}");
                (within(1..=MOST_LANES), allowed)
            }
            Setting::MaxBatchBytes => {
                let page = rustix::param::page_size() as u64;
                let is_whole = number.is_some_and(|bytes| bytes % page == 0);
                let (least, most) = (BATCH_BYTES.start(), BATCH_BYTES.end());
                let allowed = format!("whole pages from {least} to {most} bytes");
                (is_whole && within(BATCH_BYTES), allowed)
            }
            Setting::Reasons => {
                let allowed = format!(
                    "REASON CHOICE, several with commas between: a choice is default, auto, none or a migrator's name, and after the \
                     last two `only` may stand; reasons are all, {}",
                    REASONS.join(", ")
                );
                (reason::changes(&words.join(" ")).is_some(), allowed)
            }
            Setting::Migrator => {
                let names = self.migration.as_ref();
                let names =
                    names.map_or_else(|_| String::new(), |of| of.migrators.names.join(", "));
                (true, format!("one of {names}"))
            }
        }
    }
}

/// One file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub setting: Setting,
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
    /// What has to be written so that the kernel below `root`, which is `now`, has these values: one change, undone as a whole.
    /// Sources of pghot go off before anything else changes, and on after its settings.
    ///
    /// # Errors
    /// Anything that the kernel would refuse, as far as it can be known. Nothing is written here.
    pub fn new(
        root: &Path,
        now: &Interfaces,
        wanted: &[(Setting, String)],
    ) -> Result<Self, SettingError> {
        let mut steps = Vec::new();
        let of = |setting| wanted.iter().find(move |(of, _)| *of == setting);
        let sources = of(Setting::PghotSources).map(|(_, mask)| mask.parse::<u64>());
        let mut kept = None;
        if let (Ok(pghot), Some(Ok(mask))) = (&now.pghot, sources) {
            let mask = (pghot.sources & mask).to_string();
            steps.push(now.step(Setting::PghotSources, &mask)?);
            kept = Some(mask);
        }
        for (setting, value) in Setting::ALL.iter().filter_map(|(setting, _)| of(*setting)) {
            let mut step = now.step(*setting, value)?;
            if let (Setting::PghotSources, Some(kept)) = (setting, &kept) {
                step.before.clone_from(kept);
            }
            steps.push(step);
        }
        steps.retain(|step| step.before != step.after);
        Ok(Self {
            root: root.to_owned(),
            steps,
        })
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
        let path = |step: &Step| {
            let folder = match step.setting.is_of_pghot() {
                true => SYSCTLS,
                false => FOLDER,
            };
            self.root.join(folder).join(step.setting.file())
        };
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
