// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks Debian packages that the host has not installed and need not install: apt-get keeps what it fetches in a folder of
//! its own, so that nobody need be root and the host's lists and architectures stay as they are. Sources, keys and proxies
//! are those of the host unless told.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::command;
use crate::tree::files_ending;

/// Unpacks `package` in `folder`, with these `options` of apt.
pub fn unpack(package: &str, options: &[String], folder: &Path, log: &Path) -> Result<()> {
    let work = tempfile::tempdir()?;
    let work = work.path();
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.join(part))?;
    }
    for task in [&["update", "-qq"][..], &["download", "-qq", package]] {
        let mut apt = Command::new("apt-get");
        apt.args(own(work).iter().chain(options))
            .args(task)
            .current_dir(work);
        command::logged(&mut apt, log, &format!("fetch {package}"))?;
    }
    let deb = files_ending(work, "deb")?.pop();
    let mut unpack = Command::new("dpkg-deb");
    unpack
        .arg("-x")
        .arg(deb.context("apt-get left no package")?)
        .arg(folder);
    command::logged(&mut unpack, log, &format!("unpack {package}"))
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
