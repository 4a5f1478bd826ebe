// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that come back at boot: files of systemd and sysctl(8) below /etc, written by `kernel set --persist` and removed
//! by `--forget`. A file without the header line is the administrator's, and stays as it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memferry_linux::kernel::pghot::Pghot;
use memferry_linux::kernel::{Change, DCBM, MTCOPY, Migration, PghotChange};
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Target;

/// The first line of each file.
const HEADER: &str =
    "# Written by `memferry kernel set --persist`; `memferry kernel set --forget` removes it.\n";

/// The files below the root. The last one lets systemd-tmpfiles wait for the modules, which make the folders that it writes to.
const MODULES: &str = "etc/modules-load.d/memferry.conf";
const SYSCTLS: &str = "etc/sysctl.d/memferry.conf";
const SYSFS: &str = "etc/tmpfiles.d/memferry.conf";
const ORDER: &str = "etc/systemd/system/systemd-tmpfiles-setup.service.d/memferry.conf";
const ALL: [&str; 4] = [ORDER, MODULES, SYSCTLS, SYSFS];

/// Whether settings come back at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Persisted {
    /// All of them, as they are now.
    Yes,
    /// Some of them, or with other values than now.
    Otherwise,
    /// None.
    No,
}

/// Files to write and to remove.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    /// The file below the root and its text; `None` where there shall be none.
    wanted: Vec<(&'static str, Option<String>)>,
}

impl Files {
    /// Those that bring back all settings as they are after these changes.
    ///
    /// # Errors
    /// A file is there that memferry did not write.
    pub fn of(
        root: &Path,
        migration: Option<(&Migration, &Change)>,
        pghot: Option<(&Pghot, &PghotChange)>,
    ) -> Result<Self, Failure> {
        let migration = migration.map(|(now, change)| Files::of_migration(now, change));
        let (modules, sysfs) = migration.unzip();
        let order = "[Unit]\nAfter=systemd-modules-load.service\n".to_owned();
        let modules = modules.filter(|modules| !modules.is_empty());
        let texts = [
            (ORDER, modules.as_ref().map(|_| order)),
            (MODULES, modules),
            (SYSCTLS, pghot.map(|(now, change)| sysctls(now, change))),
            (SYSFS, sysfs),
        ];
        Self::new(root, texts)
    }

    /// None of them.
    ///
    /// # Errors
    /// As [`Files::of`].
    pub fn none(root: &Path) -> Result<Self, Failure> {
        Self::new(root, ALL.map(|file| (file, None)))
    }

    /// Whether the settings of now come back at boot; a file that memferry did not write brings back none.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn persisted(
        root: &Path,
        migration: Option<&Migration>,
        pghot: Option<&Pghot>,
    ) -> Result<Persisted, Failure> {
        let texts = ALL.map(|file| text(root, file)).into_iter();
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let is_ours = |text: &String| text.starts_with(HEADER);
        let (ours, others): (Vec<_>, Vec<_>) = texts.into_iter().flatten().partition(is_ours);
        if ours.is_empty() {
            return Ok(Persisted::No);
        }
        let (change, pghot_change) = (Change::default(), PghotChange::default());
        let migration = migration.zip(Some(&change));
        let pghot = pghot.zip(Some(&pghot_change));
        let is_as_now = others.is_empty() && Self::of(root, migration, pghot)?.wanted.is_empty();
        Ok(match is_as_now {
            true => Persisted::Yes,
            false => Persisted::Otherwise,
        })
    }

    /// The modules, and what is written to /sys/kernel/mm/migration.
    fn of_migration(now: &Migration, change: &Change) -> (String, String) {
        let lanes = [
            (MTCOPY, now.lanes, change.lanes),
            (
                DCBM,
                now.dcbm.as_ref().map(|of| of.lanes),
                change.dcbm_lanes,
            ),
        ];
        let lanes = lanes
            .into_iter()
            .filter_map(|(module, now, after)| Some((module, after.or(now)?)));
        let mut modules = String::new();
        let bytes = change.max_batch_bytes.unwrap_or(now.max_batch_bytes);
        let reasons = change.reasons.as_ref().unwrap_or(&now.reasons);
        let mut settings = vec![
            ("max_batch_bytes".to_owned(), bytes.to_string()),
            ("reasons".to_owned(), reasons.clone()),
        ];
        for (module, lanes) in lanes {
            modules += &format!("{module}\n");
            settings.push((format!("{module}/lanes"), lanes.to_string()));
        }
        // Last: the migrator begins with its settings.
        let migrator = change.migrator.as_ref().unwrap_or(&now.migrators.active);
        settings.push(("migrator".to_owned(), migrator.clone()));
        // `w!`: at boot only, and only where the kernel has the file.
        let line = |(file, value)| format!("w! /sys/kernel/mm/migration/{file} - - - - {value}\n");
        (modules, settings.into_iter().map(line).collect())
    }

    fn new<const N: usize>(
        root: &Path,
        texts: [(&'static str, Option<String>); N],
    ) -> Result<Self, Failure> {
        let mut wanted = Vec::new();
        for (file, wished) in texts {
            let wished = wished.map(|text| HEADER.to_owned() + &text);
            let now = text(root, file)?;
            if now.as_ref().is_some_and(|now| !now.starts_with(HEADER)) {
                return Err(Failure::new(
                    format!("/{file} was not written by memferry, so nothing is changed"),
                    "its first line is another",
                    "move it away, or add the settings to it yourself: --persist --dry-run on a machine without it shows them",
                ));
            }
            if now != wished {
                wanted.push((file, wished));
            }
        }
        Ok(Self {
            root: root.to_owned(),
            wanted,
        })
    }

    /// Each file with its text, or `None` if it is removed; those that are right already are left out.
    pub fn changes(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        (self.wanted.iter()).map(|(file, text)| (*file, text.as_deref()))
    }

    /// Writes and removes them, each whole or not at all.
    pub fn write(&self) -> Result<(), Failure> {
        let failed = |file: &str, error: io::Error| {
            Failure::new(
                format!("/{file} was not changed: what comes back at boot is not complete"),
                error,
                "be root, with an /etc that can be written to, then run it again",
            )
        };
        for (file, text) in &self.wanted {
            let path = self.root.join(file);
            match text {
                Some(text) => {
                    let folder = path.parent().unwrap_or(&self.root);
                    fs::create_dir_all(folder).map_err(|error| failed(file, error))?;
                    Target::open(&path)?.write(text)?;
                }
                None => fs::remove_file(&path).map_err(|error| failed(file, error))?,
            }
        }
        Ok(())
    }
}

/// What a file below the root says, if it is there.
fn text(root: &Path, file: &str) -> Result<Option<String>, Failure> {
    match fs::read_to_string(root.join(file)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(
            format!("cannot read /{file}"),
            error,
            "be root",
        )),
    }
}

/// The sources are last: they begin with the other settings. A kernel without pghot ignores lines with `-`.
fn sysctls(now: &Pghot, change: &PghotChange) -> String {
    let target = change.target_node.unwrap_or(now.target_node);
    let limit = change.rate_limit_mbps.unwrap_or(now.rate_limit_mbps);
    let sources = change.sources.unwrap_or(now.sources);
    format!(
        "-vm.pghot_target_nid = {target}\n-vm.pghot_promote_rate_limit_MBps = {limit}\n\
         -vm.pghot_enabled_sources = {sources}\n"
    )
}
