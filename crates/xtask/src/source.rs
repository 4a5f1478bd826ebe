// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's source: finds Debian's tarball of 6.12, or installs it with what builds it. Unpacking
//! and changing it is for `tree`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::busybox;
use crate::cache::{Cache, Key};
use crate::command;
use crate::machine::Machine;
use crate::ui::Ui;

/// The series is made for this Linux.
const SERIES_VERSION: &str = "6.12";

/// Where Debian's packages put it.
const FOLDER: &str = "/usr/src";
const PACKAGE: &str = "linux-source-6.12";

/// Programs and headers that a build or a boot needs, and the Debian packages that have them.
const NEEDS: [(&str, &str); 13] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("xz", "xz-utils"),
    ("tar", "tar"),
    ("patch", "patch"),
    ("perl", "perl"),
    ("mke2fs", "e2fsprogs"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/stdio.h", "libc6-dev"),
];

/// The same for what only some machines need.
const MACHINE_NEEDS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    (busybox::PLACE, busybox::PACKAGE),
    ("dtc", "device-tree-compiler"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    (
        "/usr/aarch64-linux-gnu/include/stdio.h",
        "libc6-dev-arm64-cross",
    ),
];

/// A tarball of Linux.
pub struct Source {
    pub tarball: PathBuf,
    /// Names its content, without reading 150 MB: from its name, size and time.
    pub id: String,
}

impl Source {
    /// The tarball `given`, or Debian's, which is installed if it is missing and may be.
    pub fn find(given: Option<&Path>, machine: &Machine, ui: &Ui) -> Result<Self> {
        let mut missing = missing_packages(machine);
        if given.is_none() && debian_tarball().is_none() {
            missing.push(PACKAGE);
        }
        if !missing.is_empty() {
            install(&missing, ui)?;
        }
        let tarball = match given {
            Some(path) => path.to_owned(),
            None => debian_tarball().with_context(|| {
                format!("{PACKAGE} is installed, but no tarball is in {FOLDER}; try --source")
            })?,
        };
        let meta =
            fs::metadata(&tarball).with_context(|| format!("look at {}", tarball.display()))?;
        let mut key = Key::default();
        key.add(tarball.file_name().unwrap_or_default().as_encoded_bytes());
        key.add(&meta.size().to_le_bytes());
        key.add(&meta.mtime().to_le_bytes());
        Ok(Self {
            tarball,
            id: key.name(),
        })
    }

    /// Unpacks it as `folder`, which must not exist, if it is a Linux that the series is made for.
    pub fn unpack(&self, folder: &Path, ui: &Ui) -> Result<()> {
        ui.step(&format!("unpacking {}", self.tarball.display()));
        let parent = folder.parent().context("a folder in the cache")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        // Beside the place where it will be: a rename must not cross file systems.
        let part = tempfile::tempdir_in(parent)?;
        let part = part.path();
        command::logged(
            Command::new("tar")
                .args(["-x", "--strip-components=1", "-f"])
                .arg(&self.tarball)
                .arg("-C")
                .arg(part),
            &parent.join("unpack.log"),
            "unpack Linux",
        )?;
        let version = version(part)?;
        if version != SERIES_VERSION && !version.starts_with(&format!("{SERIES_VERSION}.")) {
            bail!(
                "{} is Linux {version}, and the series is made for {SERIES_VERSION}; install \
                 {PACKAGE}, or name a tarball of {SERIES_VERSION} with --source",
                self.tarball.display()
            );
        }
        fs::rename(part, folder).with_context(|| format!("rename to {}", folder.display()))?;
        Ok(())
    }

    /// The tree that is unpacked from it for `arch` and `kind`.
    pub fn tree(&self, cache: &Cache, arch: &str, kind: &str) -> PathBuf {
        cache
            .root
            .join("trees")
            .join(format!("{}-{arch}-{kind}", self.id))
    }
}

/// Which Linux is unpacked in `tree`: "6.12.117".
pub fn version(tree: &Path) -> Result<String> {
    let path = tree.join("Makefile");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='))
            .map(|value| value.trim().to_owned())
            .with_context(|| format!("{}: no {name}; is this Linux's source?", path.display()))
    };
    let (major, minor, patch) = (field("VERSION")?, field("PATCHLEVEL")?, field("SUBLEVEL")?);
    Ok(if patch == "0" {
        format!("{major}.{minor}")
    } else {
        format!("{major}.{minor}.{patch}")
    })
}

/// The newest tarball of the series' Linux in `/usr/src`.
fn debian_tarball() -> Option<PathBuf> {
    ["xz", "zst", "gz", "bz2"]
        .iter()
        .map(|end| Path::new(FOLDER).join(format!("{PACKAGE}.tar.{end}")))
        .find(|path| path.is_file())
}

/// The Debian packages of what is not here.
fn missing_packages(machine: &Machine) -> Vec<&'static str> {
    let named = files_of(machine);
    let mut missing: Vec<_> = NEEDS
        .iter()
        .chain(
            MACHINE_NEEDS
                .iter()
                .filter(|(file, _)| named.iter().any(|name| name == file)),
        )
        .filter(|(file, _)| !is_here(file))
        .map(|need| need.1)
        .collect();
    missing.dedup();
    missing
}

/// What `machine` needs beside what all do.
fn files_of(machine: &Machine) -> Vec<String> {
    let mut files = vec![machine.qemu.program.clone()];
    if machine.guest.debian_arch.is_none() {
        files.push(busybox::PLACE.to_owned());
    }
    if machine.qemu.device_tree.is_some() {
        files.push("dtc".to_owned());
    }
    let cross = &machine.kernel.cross_compile;
    if let Some(triple) = cross.strip_suffix('-') {
        files.push(format!("{cross}gcc"));
        files.push(format!("/usr/{triple}/include/stdio.h"));
    }
    files
}

/// Whether `file` exists: a path, or a program in PATH or where root's are.
pub fn is_here(file: &str) -> bool {
    if file.starts_with('/') {
        return Path::new(file).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|folder| folder.join(file).is_file())
}

/// apt asks servers again that did not answer, and waits for other runs of itself.
pub const PATIENT_APT: [&str; 2] = [
    "--option=Acquire::Retries=5",
    "--option=DPkg::Lock::Timeout=600",
];

/// Installs `packages` if we are root on Debian; else says how.
pub fn install(packages: &[&str], ui: &Ui) -> Result<()> {
    let line = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !rustix::process::geteuid().is_root() || !is_here("apt-get") {
        bail!("missing: {}; run: sudo {line}", packages.join(" "));
    }
    ui.step(&format!("installing {}", packages.join(" ")));
    let log = std::env::temp_dir().join(format!("memferry-install-{}.log", std::process::id()));
    let run = |line: &str| {
        let mut words = line.split(' ');
        command::logged(
            Command::new(words.next().unwrap_or_default())
                .args(words)
                .args(PATIENT_APT)
                .env("DEBIAN_FRONTEND", "noninteractive"),
            &log,
            "install what the lab needs",
        )
    };
    // A list that could not be fetched is a warning to apt, and a package that is not in it an error.
    let attempt = || run("apt-get update -qq").and_then(|()| run(&line));
    attempt().or_else(|_| attempt())?;
    let _ = fs::remove_file(&log);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_makefile() {
        let tree = tempfile::tempdir().unwrap();
        let makefile = tree.path().join("Makefile");
        fs::write(
            &makefile,
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\n",
        )
        .unwrap();
        assert_eq!(version(tree.path()).unwrap(), "6.12.117");
        fs::write(&makefile, "all:\n").unwrap();
        let error = version(tree.path()).unwrap_err().to_string();
        assert!(error.contains("is this Linux's source"), "{error}");
    }

    #[test]
    fn every_machine_needs_what_a_package_has() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in crate::machine::names(&root.join("lab")).unwrap() {
            for file in files_of(&Machine::read(&root, &name).unwrap()) {
                assert!(
                    MACHINE_NEEDS.iter().any(|need| need.0 == file),
                    "{name}: {file}"
                );
            }
        }
    }

    #[test]
    fn another_linux_is_refused_with_what_to_try() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("linux");
        fs::create_dir(&inner).unwrap();
        fs::write(
            inner.join("Makefile"),
            "VERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 1\n",
        )
        .unwrap();
        let tarball = folder.path().join("linux.tar");
        let done = Command::new("tar")
            .arg("-C")
            .arg(folder.path())
            .arg("-cf")
            .arg(&tarball)
            .arg("linux")
            .status();
        assert!(done.unwrap().success());
        let source = Source {
            tarball,
            id: "1".into(),
        };
        let tree = folder.path().join("cache/tree");
        let error = source
            .unpack(&tree, &Ui::new(false))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("5.4.1") && error.contains("--source"),
            "{error}"
        );
        assert!(!tree.exists());
    }
}
