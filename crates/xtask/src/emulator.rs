// SPDX-License-Identifier: MIT OR Apache-2.0
//! The QEMU of a timed machine: 10 or newer, with TCG plugins. The host's own if it is, else on Debian that of backports,
//! unpacked in the cache: the machine's packages stay as they are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::apt;
use crate::cache::{Cache, make_folder};
use crate::command;
use crate::host::has;
use crate::machine::Machine;
use crate::tree::files_below;
use crate::ui::step;

/// The first version with version 4 of the interface for plugins, which the model uses.
const VERSION: u32 = 10;

/// The first Debian whose own suite has that version.
const DEBIAN: u32 = 13;

/// Debian's package of the emulator of PCs.
const PACKAGE: &str = "qemu-system-x86";

/// A QEMU and what it needs to run.
#[derive(Clone, Debug)]
pub struct Emulator {
    program: PathBuf,
    /// Where its package is unpacked, if it is not installed.
    folder: Option<PathBuf>,
}

impl Emulator {
    /// One for `machine`: of PATH, of the cache, or fetched.
    pub fn find(cache: &Cache, machine: &Machine) -> Result<Self> {
        let name = &machine.qemu.program;
        let installed = Self {
            program: name.into(),
            folder: None,
        };
        let lacks = match installed.lacks() {
            None => return Ok(installed),
            Some(lacks) => lacks,
        };
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let suite = suite(&release)
            .filter(|_| has("apt-get") && has("dpkg-deb"))
            .with_context(|| missing(name, &lacks))?;
        let folder = cache.root.join("qemu").join(&suite);
        let kept = Self {
            program: folder.join("usr/bin").join(name),
            folder: Some(folder.clone()),
        };
        if kept.program.is_file() && kept.lacks().is_none() {
            return Ok(kept);
        }
        let _lock = cache.lock(&format!("qemu-{suite}"))?;
        if !kept.program.is_file() || kept.lacks().is_some() {
            fetch(&suite, &folder).with_context(|| missing(name, &lacks))?;
        }
        if let Some(lacks) = kept.lacks() {
            let log = folder.with_extension("log");
            bail!(
                "the QEMU of {suite} in {} {lacks}; see {}, and delete the folder to fetch it again",
                folder.display(),
                log.display()
            );
        }
        Ok(kept)
    }

    /// A command that runs it, so far without arguments but for where its firmware is.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(folder) = &self.folder {
            if let Some(libraries) = libraries(folder) {
                command.env("LD_LIBRARY_PATH", libraries);
            }
            for data in ["qemu", "seabios"] {
                command.arg("-L").arg(folder.join("usr/share").join(data));
            }
        }
        command
    }

    /// What it lacks for a timed machine.
    fn lacks(&self) -> Option<String> {
        let line = command::first_line(self.command().arg("--version"));
        judge(line.ok().as_deref(), || {
            let mut help = self.command();
            help.args(["-plugin", "help"]);
            command::output(&mut help, "").is_ok()
        })
    }
}

/// What an emulator lacks that prints `line` for --version. Only one that `has_plugins` knows the option -plugin.
fn judge(line: Option<&str>, has_plugins: impl FnOnce() -> bool) -> Option<String> {
    let Some(line) = line else {
        return Some("does not run".to_owned());
    };
    match version(line) {
        Some(version) if version >= VERSION => {}
        _ => return Some(format!("is {line:?}")),
    }
    (!has_plugins()).then(|| "has no plugins".to_owned())
}

/// What an error says where there is no such QEMU.
fn missing(name: &str, lacks: &str) -> String {
    format!(
        "missing: a QEMU from version {VERSION} on, with TCG plugins; {name} of PATH {lacks}. Debian {DEBIAN} has one \
         (apt-get install {PACKAGE}), and for Debian 12 the lab takes that of backports by itself, with apt-get; elsewhere build QEMU \
         with --enable-plugins and put {name} first in PATH"
    )
}

/// The major version in what `--version` prints first.
fn version(line: &str) -> Option<u32> {
    let number = line.strip_prefix("QEMU emulator version ")?;
    number.split('.').next()?.parse().ok()
}

/// The suite that has such a QEMU for the Debian of `release`, /etc/os-release.
fn suite(release: &str) -> Option<String> {
    let field = |name: &str| {
        release.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim_matches('"'))
        })
    };
    let codename = field("VERSION_CODENAME")?;
    if field("ID")? != "debian" {
        return None;
    }
    // Testing has no number.
    let number = field("VERSION_ID").map_or(Some(DEBIAN), |number| number.parse().ok())?;
    Some(if number < DEBIAN {
        format!("{codename}-backports")
    } else {
        codename.to_owned()
    })
}

/// Unpacks the package of `suite`, and all that it needs and the host lacks, in `folder`.
fn fetch(suite: &str, folder: &Path) -> Result<()> {
    step!("fetching {PACKAGE} of {suite}");
    let mirror = apt::mirror().context("apt-get knows no mirror of Debian; try apt-get update")?;
    let log = folder.with_extension("log");
    make_folder(folder, |part| {
        apt::unpack_with_missing(PACKAGE, suite, &mirror, part, &log)
    })
}

/// The folders of shared libraries below `folder`, as LD_LIBRARY_PATH has them.
fn libraries(folder: &Path) -> Option<OsString> {
    let mut folders: Vec<_> = files_below(folder)
        .ok()?
        .into_iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains(".so"))
        })
        .filter_map(|path| Some(path.parent()?.to_owned()))
        .collect();
    folders.dedup();
    std::env::join_paths(folders).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_emulator_and_one_without_plugins_are_not_taken() {
        let judged = |version: &str, plugins| {
            judge(Some(&format!("QEMU emulator version {version}")), || {
                plugins
            })
        };
        assert_eq!(judged("10.0.2 (Debian 1:10.0.2)", true), None);
        assert_eq!(judged("11.1.0", true), None);
        let lacks = judged("7.2.22 (Debian 1:7.2)", true).unwrap();
        assert!(lacks.contains("7.2.22"), "{lacks}");
        let lacks = judged("10.1.0", false).unwrap();
        assert!(lacks.contains("plugins"), "{lacks}");
        let error = missing("qemu-system-x86_64", &judge(None, || true).unwrap());
        assert!(
            error.contains("does not run") && error.contains("PATH"),
            "{error}"
        );
    }

    #[test]
    fn debian_12_takes_backports_and_13_its_own() {
        let release = |id: &str| format!("NAME=\"x\"\nVERSION_CODENAME=name\nID=debian\n{id}");
        let of = |id| suite(&release(id)).unwrap();
        assert_eq!(of("VERSION_ID=\"12\"\n"), "name-backports");
        assert_eq!(of("VERSION_ID=\"13\"\n"), "name");
        assert_eq!(of(""), "name");
        assert_eq!(
            suite("ID=fedora\nVERSION_CODENAME=x\nVERSION_ID=42\n"),
            None
        );
    }

    #[test]
    fn one_that_is_unpacked_finds_its_libraries_and_its_firmware() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&libraries).unwrap();
        fs::write(libraries.join("libx.so.1"), "").unwrap();
        fs::write(folder.path().join("usr/README"), "").unwrap();
        let emulator = Emulator {
            program: "qemu".into(),
            folder: Some(folder.path().to_owned()),
        };
        let command = emulator.command();
        let path = command
            .get_envs()
            .find(|(name, _)| *name == "LD_LIBRARY_PATH");
        assert_eq!(path.unwrap().1.unwrap(), libraries.as_os_str());
        let firmware = folder.path().join("usr/share/seabios");
        assert!(command.get_args().any(|argument| argument == firmware));
    }
}
