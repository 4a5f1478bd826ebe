// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static busybox of a guest. For the host's architecture it is Debian's package, installed;
//! for another one that architecture's package is fetched and unpacked into the cache, with a state
//! of apt of its own, so that nobody need be root and the host's list of architectures stays as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cache::Cache;
use crate::command;
use crate::host::{BUSYBOX, has};
use crate::machine::Machine;
use crate::tree::files_ending;
use crate::ui::step;

/// Where Debian's package has it, which is called the same for every architecture.
const PLACE: &str = BUSYBOX.0;
const PACKAGE: &str = BUSYBOX.1;

/// The path of a busybox that runs in guests of `machine`.
pub fn find(cache: &Cache, machine: &Machine) -> Result<PathBuf> {
    let Some(arch) = &machine.guest.debian_arch else {
        return Ok(PathBuf::from(PLACE));
    };
    let kept = cache.root.join("busybox").join(arch);
    if kept.is_file() {
        return Ok(kept);
    }
    let _lock = cache.lock(&format!("busybox-{arch}"))?;
    if kept.is_file() {
        return Ok(kept);
    }
    if !has("apt-get") || !has("dpkg-deb") {
        bail!(
            "missing: a static busybox for {arch}, which only Debian's apt-get fetches by itself; \
             put one at {}",
            kept.display()
        );
    }
    step!("fetching {PACKAGE} for {arch}");
    let folder = kept.parent().context("a folder in the cache")?;
    fs::create_dir_all(folder)?;
    let work = tempfile::tempdir_in(folder)?;
    fetch(work.path(), arch, &folder.join("fetch.log")).with_context(|| {
        format!(
            "fetch {PACKAGE} for {arch}, or put one at {}",
            kept.display()
        )
    })?;
    let found = work.path().join("unpacked").join(&PLACE[1..]);
    fs::rename(&found, &kept)?;
    Ok(kept)
}

/// Unpacks the package for `arch` as `unpacked` in `work`.
fn fetch(work: &Path, arch: &str, log: &Path) -> Result<()> {
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.join(part))?;
    }
    for task in [&["update", "-qq"][..], &["download", "-qq", PACKAGE]] {
        command::logged(
            Command::new("apt-get")
                .args(options(work, arch))
                .args([
                    "--option=Acquire::Retries=5",
                    "--option=DPkg::Lock::Timeout=600",
                ])
                .args(task)
                .current_dir(work),
            log,
            "fetch a package",
        )?;
    }
    let package = files_ending(work, "deb")?.pop();
    let package = package.context("apt-get left no package")?;
    command::logged(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(package)
            .arg(work.join("unpacked")),
        log,
        "unpack a package",
    )
}

/// What makes apt-get work for `arch` in the folder `work` alone. Sources, keys and proxies stay
/// those of the host.
fn options(work: &Path, arch: &str) -> Vec<String> {
    let work = work.display();
    [
        format!("APT::Architecture={arch}"),
        format!("APT::Architectures={arch}"),
        format!("Dir::State={work}"),
        format!("Dir::State::Lists={work}/lists"),
        "Dir::State::status=/dev/null".to_owned(),
        format!("Dir::Cache={work}/cache"),
        "Acquire::Languages=none".to_owned(),
        // As root, apt would become a user who may not write here.
        "APT::Sandbox::User=".to_owned(),
    ]
    .map(|option| format!("--option={option}"))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> Machine {
        Machine::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), name).unwrap()
    }

    #[test]
    fn the_hosts_architecture_takes_what_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            root: folder.path().to_owned(),
        };
        let found = find(&cache, &machine("x86_64")).unwrap();
        assert_eq!(found, Path::new(PLACE));
    }

    #[test]
    fn one_that_is_in_the_cache_is_not_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            root: folder.path().to_owned(),
        };
        let kept = folder.path().join("busybox/arm64");
        fs::create_dir_all(kept.parent().unwrap()).unwrap();
        fs::write(&kept, "x").unwrap();
        assert_eq!(find(&cache, &machine("zcu102")).unwrap(), kept);
    }

    #[test]
    fn apt_works_in_one_folder() {
        let options = options(Path::new("/w"), "arm64");
        for option in ["APT::Architecture=arm64", "Dir::State::Lists=/w/lists"] {
            assert!(
                options.contains(&format!("--option={option}")),
                "{options:?}"
            );
        }
    }
}
