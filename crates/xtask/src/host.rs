// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs and headers that the host must have. Debian's packages of what is missing are for
//! `ci/install.sh`, which asks before it installs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::machine::Machine;

/// A program or the path of a file, and the Debian package that has it.
pub type Need = (&'static str, &'static str);

/// The static busybox for guests of the host's architecture.
pub const BUSYBOX: Need = ("/bin/busybox", "busybox-static");

/// What every build and boot needs.
const LAB: [Need; 13] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("xz", "xz-utils"),
    ("tar", "tar"),
    ("git", "git"),
    ("perl", "perl"),
    ("mke2fs", "e2fsprogs"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/stdio.h", "libc6-dev"),
];

/// What only some machines need.
const MACHINES: [Need; 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    BUSYBOX,
    ("dtc", "device-tree-compiler"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    (
        "/usr/aarch64-linux-gnu/include/stdio.h",
        "libc6-dev-arm64-cross",
    ),
];

/// What `machine` needs to be built and booted.
pub fn needs(machine: &Machine) -> Vec<Need> {
    let own = files_of(machine);
    let own = MACHINES
        .iter()
        .filter(|(file, _)| own.iter().any(|name| name == file));
    LAB.iter().chain(own).copied().collect()
}

/// The files that `machine` needs and others do not.
fn files_of(machine: &Machine) -> Vec<String> {
    let mut files = Vec::new();
    // The QEMU of a timed machine is for `emulator`.
    if machine.timed.is_none() {
        files.push(machine.qemu.program.clone());
    }
    if machine.guest.debian_arch.is_none() {
        files.push(BUSYBOX.0.to_owned());
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

/// Makes sure of `needs`. Fails if one is missing and is not installed: the script of the checkout `root` has said why.
pub fn require(root: &Path, needs: &[(&str, &str)]) -> Result<()> {
    let mut missing: Vec<_> = needs
        .iter()
        .filter(|(file, _)| !has(file))
        .map(|need| need.1)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let installed = installer(root, &missing)
        .status()
        .context("run ci/install.sh")?;
    if !installed.success() {
        bail!("packages are missing: {}", missing.join(" "));
    }
    Ok(())
}

fn installer(root: &Path, packages: &[&str]) -> Command {
    let mut command = Command::new(root.join("ci/install.sh"));
    // Results alone go to stdout.
    command.args(packages).stdout(Stdio::null());
    command
}

/// Whether the host has `file`: a path, or a program in PATH or where root's are.
pub fn has(file: &str) -> bool {
    if file.starts_with('/') {
        return Path::new(file).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|folder| folder.join(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_machine_needs_what_a_package_has() {
        for name in crate::machine::names(&root().join("lab")).unwrap() {
            for file in files_of(&Machine::read(&root(), &name).unwrap()) {
                assert!(MACHINES.iter().any(|need| need.0 == file), "{name}: {file}");
            }
        }
    }

    #[test]
    fn nothing_is_installed_unasked() {
        // A machine whose user is root, and whose apt-get writes down what it is asked for.
        let machine = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("id", "echo 0"),
            ("apt-get", r#"echo "$@" >>"${0%/*}/asked""#),
        ] {
            let path = machine.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let install = |consent: Option<(&str, &str)>| {
            let mut command = installer(&root(), &["flex", "bison"]);
            command
                .env_clear()
                .env("PATH", machine.path())
                .envs(consent);
            let ran = command.stdin(Stdio::null()).output().unwrap();
            let asked = fs::read_to_string(machine.path().join("asked")).unwrap_or_default();
            (
                ran.status.success(),
                asked,
                String::from_utf8(ran.stderr).unwrap(),
            )
        };
        let (done, asked, said) = install(None);
        assert!(!done && asked.is_empty(), "{asked}");
        assert!(
            said.contains("YES=1") && said.contains("flex bison"),
            "{said}"
        );
        let (done, asked, said) = install(Some(("YES", "1")));
        assert!(
            done && asked.contains("install") && asked.contains("flex bison"),
            "{said}"
        );
    }

    #[test]
    fn what_is_here_is_not_asked_for() {
        require(&root(), &[("sh", "no-such-package")]).unwrap();
    }
}
