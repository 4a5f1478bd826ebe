// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks Debian packages that the host has not installed and need not install: apt-get keeps what it fetches in a folder of
//! its own, so that nobody need be root and the host's lists and architectures stay as they are. Sources, keys and proxies
//! are those of the host unless told.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use fs_err as fs;
use tempfile::TempDir;

use crate::command;
use crate::tree::files_ending;

/// Unpacks `package` in `folder`, with these `options` of apt.
pub fn unpack(package: &str, options: &[String], folder: &Path, log: &Path) -> Result<()> {
    let work = work()?;
    let work = work.path();
    get(work, options, &["update", "-qq"], package, log)?;
    get(work, options, &["download", "-qq", package], package, log)?;
    unpack_all(&files_ending(work, "deb")?, package, folder, log)
}

/// Unpacks `package` of `suite` in `folder`, together with the packages that it depends on and the host has not installed,
/// or has too old. `suite` is taken from the `mirror`, all else from where the host has it.
pub fn unpack_with_missing(
    package: &str,
    suite: &str,
    mirror: &str,
    folder: &Path,
    log: &Path,
) -> Result<()> {
    let work = work()?;
    let work = work.path();
    let status = work.join("status");
    fs::copy("/var/lib/dpkg/status", &status)?;
    // apt reads one such file, and every file of the host's sources.list.d.
    let mut sources = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    if !knows(suite) {
        sources += &format!("\ndeb {mirror} {suite} main\n");
    }
    let list = work.join("sources.list");
    fs::write(&list, sources)?;
    let options = [
        format!("--option=Dir::State::status={}", status.display()),
        format!("--option=Dir::Etc::sourcelist={}", list.display()),
    ];
    get(work, &options, &["update", "-qq"], package, log)?;
    let install = [
        "install",
        "-qq",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        "--target-release",
        suite,
        package,
    ];
    get(work, &options, &install, package, log)?;
    let archives = files_ending(&work.join("cache/archives"), "deb")?;
    unpack_all(&archives, package, folder, log)
}

/// Unpacks `package` in `folder`, together with all packages that it depends on, as if the host had installed none.
pub fn unpack_with_all(package: &str, folder: &Path, log: &Path) -> Result<()> {
    let work = work()?;
    let work = work.path();
    get(work, &[], &["update", "-qq"], package, log)?;
    let install = [
        "install",
        "-qq",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        package,
    ];
    get(work, &[], &install, package, log)?;
    let archives = files_ending(&work.join("cache/archives"), "deb")?;
    unpack_all(&archives, package, folder, log)
}

/// The mirror of Debian that the host's apt uses.
pub fn mirror() -> Option<String> {
    targets(&["Origin: Debian", "Label: Debian"])
}

/// Whether the host's own lists have `suite`.
fn knows(suite: &str) -> bool {
    targets(&["Origin: Debian", &format!("Codename: {suite}")]).is_some()
}

/// The address of the host's first list of packages with these `fields`.
fn targets(fields: &[&str]) -> Option<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)"]);
    command.arg("Created-By: Packages").args(fields);
    let uri = command::first_line(&mut command).ok()?;
    (!uri.is_empty()).then_some(uri)
}

/// A folder for apt-get to work in.
fn work() -> Result<TempDir> {
    let work = tempfile::tempdir()?;
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.path().join(part))?;
    }
    Ok(work)
}

/// Runs apt-get in the folder `work` for `task`.
fn get(work: &Path, options: &[String], task: &[&str], package: &str, log: &Path) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(own(work).iter().chain(options))
        .args(task)
        .current_dir(work);
    command::logged(&mut apt, log, &format!("fetch {package}"))
}

fn unpack_all(archives: &[PathBuf], package: &str, folder: &Path, log: &Path) -> Result<()> {
    if archives.is_empty() {
        bail!("apt-get left no package for {package}");
    }
    for archive in archives {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(archive).arg(folder);
        command::logged(&mut unpack, log, &format!("unpack {}", archive.display()))?;
    }
    Ok(())
}

/// What makes apt-get work in the folder `work` alone.
fn own(work: &Path) -> Vec<String> {
    let work = work.display();
    [
        &format!("Dir::State={work}"),
        &format!("Dir::State::Lists={work}/lists"),
        "Dir::State::status=/dev/null",
        &format!("Dir::Cache={work}/cache"),
        "Acquire::Languages=none",
        "Acquire::Retries=5",
        "DPkg::Lock::Timeout=600",
        // As root, apt would become a user who may not write here.
        "APT::Sandbox::User=",
    ]
    .map(|option| format!("--option={option}"))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_works_in_one_folder() {
        let options = own(Path::new("/w"));
        let wanted = "--option=Dir::State::Lists=/w/lists".to_owned();
        assert!(options.contains(&wanted), "{options:?}");
    }
}
