// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs in a guest: builds the guest programs, and packs them with busybox, the kernel's
//! modules, `lab/guest` and the job into the file system that the kernel unpacks. QEMU is for
//! `qemu`.

use std::collections::BTreeMap;
use std::env;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cpio::newc::Builder;
use fs_err as fs;

use crate::build::Image;
use crate::busybox;
use crate::cache::{Key, Lock};
use crate::command;
use crate::lab::Lab;
use crate::suite::Entry;
use crate::timed::Timed;
use crate::tree::files_below;
use crate::ui::step;

/// The programs that guests run, built.
#[derive(Clone)]
pub struct Programs {
    busybox: PathBuf,
    /// What each holds, and where the guest has it.
    folders: Vec<(PathBuf, &'static str)>,
    files: Vec<PathBuf>,
    /// Files of others, and where the guest has them.
    others: Vec<(PathBuf, String)>,
    /// The parameters of a timed machine, for the tests of its model.
    parameters: Option<String>,
}

impl Programs {
    /// Builds kernel/selftests and, where Rust can, the command and examples.
    pub fn build(lab: &Lab) -> Result<Self> {
        let (root, machine) = (&lab.root, &lab.machine);
        let busybox = busybox::find(&lab.cache, machine)?;
        step!("building the guest programs");
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = target.join("guest");
        let _lock = Lock::take(&target.join("lock"), "another build of them")?;
        let log = target.join("build.log");
        let tests = target.join(format!("selftests-{}", machine.name));
        command::logged(
            Command::new("make")
                .arg("-C")
                .arg(root.join("kernel/selftests"))
                .arg(format!("OUT={}", tests.display()))
                .arg(format!("CROSS_COMPILE={}", machine.kernel.cross_compile))
                .env_remove("MAKEFLAGS")
                .env_remove("MAKELEVEL"),
            &log,
            "build kernel/selftests",
        )?;
        let mut files = Vec::new();
        if let Some(triple) = &machine.guest.rust_target {
            let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let packages = ["memferry-cli", "memferryd", "guest-tests", "memferry"];
            command::logged(
                Command::new(&cargo)
                    .args(["build", "--release", "--locked"])
                    .args(packages.map(|name| format!("--package={name}")))
                    .args(["--bins", "--example=buffer_pool"])
                    .arg(format!("--target={triple}"))
                    .arg(format!("--target-dir={}", target.display()))
                    // The guest has no libraries.
                    .env("RUSTFLAGS", "-C target-feature=+crt-static")
                    // A guest unpacks them into memory at each boot.
                    .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
                    .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
                    .env_remove("CARGO_ENCODED_RUSTFLAGS")
                    .current_dir(root),
                &log,
                "build the guest's Rust programs",
            )?;
            let release = target.join(triple).join("release");
            let names = [
                "memferry",
                "memferryd",
                "commands",
                "two_nodes",
                "examples/buffer_pool",
            ];
            files.extend(names.map(|name| release.join(name)));
        }
        Ok(Self {
            busybox,
            folders: vec![(tests, "tests")],
            files,
            others: Vec::new(),
            parameters: machine.timed.as_ref().map(Timed::lines),
        })
    }

    /// Adds what is in `folder`, as `place` of the guest.
    pub fn add(&mut self, folder: PathBuf, place: &'static str) {
        self.folders.push((folder, place));
    }

    /// Adds files, each with its place in the guest.
    pub fn add_files(&mut self, files: Vec<(PathBuf, String)>) {
        self.others.extend(files);
    }

    /// Names what the Rust programs and the files of others are.
    pub fn key(&self) -> Result<String> {
        let mut key = Key::default();
        for path in self.files.iter().chain(self.others.iter().map(|of| &of.0)) {
            key.add(&fs::read(path)?);
        }
        Ok(key.name())
    }

    /// Only busybox, for a boot that shows that the machine works.
    pub fn bare(&self) -> Self {
        Self {
            busybox: self.busybox.clone(),
            folders: Vec::new(),
            files: Vec::new(),
            others: Vec::new(),
            parameters: None,
        }
    }
}

/// Packs the file system of a guest that runs `entries`, as the kernel's own has /dev/console.
pub fn file_system(
    root: &Path,
    image: &Image,
    programs: &Programs,
    entries: &[&Entry],
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in [
        "dev", "proc", "sys", "tmp", "results", "tests", "sbin", "etc",
    ] {
        archive.add(folder, FOLDER, Vec::new());
    }
    archive.add("etc/passwd", FILE, USERS.to_vec());
    archive.add("etc/group", FILE, GROUPS.to_vec());

    archive.add("bin/busybox", PROGRAM, fs::read(&programs.busybox)?);
    // For `init`, which adds the others: busybox may be of another architecture than ours.
    archive.add("bin/sh", LINK, b"busybox".to_vec());

    let modules = format!("lib/modules/{}", image.release);
    archive.add(&modules, FOLDER, Vec::new());
    archive.add_folder(&image.modules(), &format!("{modules}/kernel"))?;

    let scripts = root.join("lab/guest");
    archive.add("init", PROGRAM, fs::read(scripts.join("init"))?);
    archive.add_folder(&scripts, "lab")?;
    for (folder, place) in &programs.folders {
        archive.add_folder(folder, place)?;
    }
    for path in &programs.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("tests/{name}"), PROGRAM, fs::read(path)?);
    }
    for (path, place) in &programs.others {
        archive.add(place, PROGRAM, fs::read(path)?);
    }
    if let Some(parameters) = &programs.parameters {
        archive.add("lab/timed.conf", FILE, parameters.clone().into());
    }
    let job: String = entries
        .iter()
        .map(|entry| format!("{}\t{}\n", entry.name, entry.command))
        .collect();
    archive.add("lab/job", FILE, job.into());
    archive.pack()
}

/// What a file system has: modes and contents by path. All of it belongs to root; times are zero, so that the
/// same content makes the same archive.
#[derive(Default)]
struct Archive(BTreeMap<String, (u32, Vec<u8>)>);

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// Adds `path`, which has no leading slash, and the folders above it.
    fn add(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        for (slash, _) in path.match_indices('/') {
            let above = path[..slash].to_owned();
            self.0.entry(above).or_insert((FOLDER, Vec::new()));
        }
        self.0.insert(path.to_owned(), (mode, content));
    }

    /// Adds what is in `folder` as `place`, without the objects that the guest programs were made from.
    fn add_folder(&mut self, folder: &Path, place: &str) -> Result<()> {
        for path in files_below(folder)? {
            let name = path.strip_prefix(folder)?;
            if place == "tests" && name.starts_with("obj") {
                continue;
            }
            let executable = fs::metadata(&path)?.permissions().mode() & 0o111 != 0;
            let mode = if executable { PROGRAM } else { FILE };
            self.add(
                &format!("{place}/{}", name.display()),
                mode,
                fs::read(&path)?,
            );
        }
        Ok(())
    }

    /// As the kernel unpacks it: cpio's "newc" format, a folder before what is in it.
    fn pack(&self) -> Result<Vec<u8>> {
        let files = self.0.iter().zip(1..);
        let files = files.map(|((path, (mode, content)), inode)| {
            (
                Builder::new(path).ino(inode).mode(*mode),
                Cursor::new(content),
            )
        });
        cpio::write_cpio(files, Vec::new()).context("pack the guest's file system")
    }
}

const USERS: &[u8] = b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUPS: &[u8] = b"root:x:0:\nnobody:x:65534:\nnogroup:x:65534:\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_before_what_is_in_it_and_once() {
        let mut archive = Archive::default();
        archive.add("x/y/1", FILE, b"hello".to_vec());
        archive.add("x/y/2", PROGRAM, Vec::new());
        archive.add("x/y", FOLDER, Vec::new());
        let bytes = archive.pack().unwrap();
        let mut rest = &bytes[..];
        let mut got = Vec::new();
        loop {
            let reader = cpio::NewcReader::new(rest).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            got.push((entry.name().to_owned(), entry.mode(), entry.file_size()));
            rest = reader.finish().unwrap();
        }
        let want = [
            ("x", FOLDER, 0),
            ("x/y", FOLDER, 0),
            ("x/y/1", FILE, 5),
            ("x/y/2", PROGRAM, 0),
        ];
        assert_eq!(
            got,
            want.map(|(name, mode, size)| (name.to_owned(), mode, size))
        );
    }
}
