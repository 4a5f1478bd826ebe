// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a cgroup of version 2, and of those below it. A unit of systemd is found by the name of its cgroup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memferry_daemon::patterns::unit_name;

use crate::failure::Failure;

/// Where cgroups are mounted, below the root.
const MOUNT: &str = "sys/fs/cgroup";

/// A cgroup.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    /// Its path, as /proc/PID/cgroup has it.
    pub name: String,
}

impl Cgroup {
    /// By its path: as /proc/PID/cgroup has it, or with the mount before it.
    pub fn at(root: &Path, path: &Path) -> Result<Self, Failure> {
        let mount = mount(root)?;
        let below = path.strip_prefix(Path::new("/").join(MOUNT));
        let below = below.or(path.strip_prefix("/")).unwrap_or(path);
        let cgroup = Self::new(&mount, mount.join(below));
        match cgroup.folder.join("cgroup.procs").exists() {
            true => Ok(cgroup),
            false => Err(Failure::new(
                format!("there is no cgroup {}", cgroup.name),
                format!("{} has no cgroup.procs", cgroup.folder.display()),
                "give a path as /proc/PID/cgroup has it, or as systemd-cgls shows it",
            )),
        }
    }

    /// By the name of its unit, of the system or of a user.
    pub fn of_unit(root: &Path, unit: &str) -> Result<Self, Failure> {
        let mount = mount(root)?;
        let name = unit_name(unit);
        let mut all = Vec::new();
        walk(&mount, &mut all).map_err(|error| unreadable(&mount, error))?;
        all.retain(|folder| folder.ends_with(&*name));
        let mut found = all.into_iter().map(|folder| Self::new(&mount, folder));
        let why = match (found.next(), found.next()) {
            (Some(one), None) => return Ok(one),
            (Some(one), Some(other)) => {
                let rest = found.map(|of| format!(", {}", of.name));
                format!(
                    "there are {}, {}{}",
                    one.name,
                    other.name,
                    rest.collect::<String>()
                )
            }
            (None, _) => "no cgroup has that name: the unit does not run, or has none".to_owned(),
        };
        Err(Failure::new(
            format!("{name} is not one unit that runs"),
            why,
            "see systemctl status, or give the path with --cgroup",
        ))
    }

    fn new(mount: &Path, folder: PathBuf) -> Self {
        let below = folder.strip_prefix(mount).unwrap_or(&folder);
        let name = format!("/{}", below.display());
        Self { folder, name }
    }

    /// Its processes, ascending, without this one and those of other PID namespaces, which have no number here.
    pub fn processes(&self) -> Result<Vec<u32>, Failure> {
        let mut folders = vec![self.folder.clone()];
        walk(&self.folder, &mut folders).map_err(|error| unreadable(&self.folder, error))?;
        let mut all = Vec::new();
        for folder in folders {
            match fs::read_to_string(folder.join("cgroup.procs")) {
                Ok(text) => all.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
                // It has gone, or has threads alone, whose processes are in the cgroup above.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        || [libc::ENODEV, libc::EOPNOTSUPP]
                            .map(Some)
                            .contains(&error.raw_os_error()) => {}
                Err(error) => return Err(unreadable(&folder, error)),
            }
        }
        all.retain(|&pid| pid != 0 && pid != std::process::id());
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// The folder of the unified hierarchy; beside version 1 it is one further down.
fn mount(root: &Path) -> Result<PathBuf, Failure> {
    let mount = root.join(MOUNT);
    let places = [mount.clone(), mount.join("unified")];
    let found = places
        .into_iter()
        .find(|at| at.join("cgroup.controllers").exists());
    found.ok_or_else(|| {
        Failure::new(
            "cannot look for cgroups",
            format!("cgroup version 2 is not mounted on {}", mount.display()),
            "give the processes with --pid",
        )
    })
}

/// Adds the folders below one; those that go meanwhile are left out.
fn walk(folder: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type().is_ok_and(|of| of.is_dir()) {
            all.push(entry.path());
            walk(&entry.path(), all)?;
        }
    }
    Ok(())
}

fn unreadable(folder: &Path, error: io::Error) -> Failure {
    Failure::new(
        format!("cannot read the cgroup {}", folder.display()),
        error,
        "be root",
    )
}
