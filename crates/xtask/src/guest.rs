// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs in a guest: builds the guest programs, and packs them with busybox, the kernel's
//! modules, `lab/guest` and the job into the file system that the kernel unpacks. QEMU is for
//! `qemu`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::Image;
use crate::busybox;
use crate::cache::Lock;
use crate::command;
use crate::cpio::Archive;
use crate::lab::Lab;
use crate::suite::Entry;
use crate::tree::files_below;
use crate::ui::step;

/// The programs that guests run, built.
#[derive(Clone)]
pub struct Programs {
    busybox: PathBuf,
    /// What each holds, and where the guest has it.
    folders: Vec<(PathBuf, &'static str)>,
    files: Vec<PathBuf>,
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
            for what in [
                ["--package=memferry-cli", "--bins"],
                ["--package=guest-tests", "--bins"],
                ["--package=memferry", "--example=buffer_pool"],
            ] {
                command::logged(
                    Command::new(&cargo)
                        .args(["build", "--release", "--locked"])
                        .args(what)
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
            }
            let release = target.join(triple).join("release");
            files.push(release.join("memferry"));
            files.push(release.join("commands"));
            files.push(release.join("two_nodes"));
            files.push(release.join("examples/buffer_pool"));
        }
        Ok(Self {
            busybox,
            folders: vec![(tests, "tests")],
            files,
        })
    }

    /// Adds what is in `folder`, as `place` of the guest.
    pub fn add(&mut self, folder: PathBuf, place: &'static str) {
        self.folders.push((folder, place));
    }

    /// Only busybox, for a boot that shows that the machine works.
    pub fn bare(&self) -> Self {
        Self {
            busybox: self.busybox.clone(),
            folders: Vec::new(),
            files: Vec::new(),
        }
    }
}

/// Packs the file system of a guest that runs `entries`.
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
        archive.folder(folder);
    }
    // The kernel opens it for the first process.
    archive.device("dev/console", 0o600, 5, 1);
    archive.file("etc/passwd", 0o644, USERS);
    archive.file("etc/group", 0o644, GROUPS);

    archive.file("bin/busybox", 0o755, &read(&programs.busybox)?);
    // For `init`, which adds the others: busybox may be of another architecture than ours.
    archive.link("bin/sh", "busybox");

    let modules = format!("lib/modules/{}", image.release);
    archive.folder(&modules);
    for path in files_below(&image.modules())? {
        let name = path.strip_prefix(image.modules())?;
        archive.file(
            &format!("{modules}/kernel/{}", name.display()),
            0o644,
            &read(&path)?,
        );
    }

    let scripts = root.join("lab/guest");
    archive.file("init", 0o755, &read(&scripts.join("init"))?);
    add_folder(&mut archive, &scripts, "lab")?;
    for (folder, place) in &programs.folders {
        add_folder(&mut archive, folder, place)?;
    }
    for path in &programs.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("tests/{name}"), 0o755, &read(path)?);
    }
    let job: String = entries
        .iter()
        .map(|entry| format!("{}\t{}\n", entry.name, entry.command))
        .collect();
    archive.file("lab/job", 0o644, job.as_bytes());
    Ok(archive.finish())
}

/// Adds what is in `folder` as `place`, without the objects that the guest programs were made from.
fn add_folder(archive: &mut Archive, folder: &Path, place: &str) -> Result<()> {
    for path in files_below(folder)? {
        let name = path.strip_prefix(folder)?;
        if place == "tests" && name.starts_with("obj") {
            continue;
        }
        let executable = fs::metadata(&path)?.permissions().mode() & 0o111 != 0;
        let permissions = if executable { 0o755 } else { 0o644 };
        archive.file(
            &format!("{place}/{}", name.display()),
            permissions,
            &read(&path)?,
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

const USERS: &[u8] = b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
const GROUPS: &[u8] = b"root:x:0:\nnobody:x:65534:\nnogroup:x:65534:\n";
