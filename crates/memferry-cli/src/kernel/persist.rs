// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that come back at boot: files of systemd and sysctl(8) below /etc, written by `kernel set --persist` and removed
//! by `--forget`. A file without the header line is the administrator's, and stays as it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memferry_linux::kernel::{Interfaces, Setting};
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;
use crate::results::Target;

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
    /// Those that bring back all settings as they are with these values.
    ///
    /// # Errors
    /// A file is there that memferry did not write.
    pub fn of(
        root: &Path,
        now: &Interfaces,
        wanted: &[(Setting, String)],
    ) -> Result<Self, Failure> {
        let (mut modules, mut sysctls, mut sysfs) = (String::new(), String::new(), String::new());
        for (setting, file) in Setting::ALL {
            let change = wanted.iter().find(|(of, _)| *of == setting);
            let value = change.map(|(_, change)| now.changed(setting, change));
            let Some(value) = value.or_else(|| now.value(setting)) else {
                continue;
            };
            // A line of tmpfiles.d; the kernel takes commas between reasons, too.
            let value = value.replace('\n', ",");
            match setting.is_of_pghot() {
                // A kernel without pghot ignores lines with `-`.
                true => sysctls += &format!("-vm.{file} = {value}\n"),
                // `w!`: at boot only, and only where the kernel has the file.
                false => {
                    sysfs += &format!("w! /sys/kernel/mm/migration/{file} - - - - {value}\n");
                }
            }
            if let Some(module) = setting.module() {
                modules += &format!("{module}\n");
            }
        }
        let order = match modules.is_empty() {
            true => "",
            false => "[Unit]\nAfter=systemd-modules-load.service\n",
        };
        let texts = [
            (ORDER, order.to_owned()),
            (MODULES, modules),
            (SYSCTLS, sysctls),
            (SYSFS, sysfs),
        ];
        let some = |text: String| (!text.is_empty()).then_some(text);
        Self::new(root, texts.map(|(file, text)| (file, some(text))))
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
    pub fn persisted(root: &Path, now: &Interfaces) -> Result<Persisted, Failure> {
        let texts = ALL.map(|file| text(root, file)).into_iter();
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let is_ours = |text: &String| text.starts_with(HEADER);
        let (ours, others): (Vec<_>, Vec<_>) = texts.into_iter().flatten().partition(is_ours);
        if ours.is_empty() {
            return Ok(Persisted::No);
        }
        let is_as_now = others.is_empty() && Self::of(root, now, &[])?.wanted.is_empty();
        Ok(match is_as_now {
            true => Persisted::Yes,
            false => Persisted::Otherwise,
        })
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
