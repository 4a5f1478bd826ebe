// SPDX-License-Identifier: MIT OR Apache-2.0
//! The static busybox of a guest. For the host's architecture it is Debian's package, installed;
//! for another one that architecture's package is fetched and unpacked into the cache.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::apt;
use crate::cache::Cache;
use crate::host::{BUSYBOX, has};
use crate::machine::Machine;
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
    let options = ["Architecture", "Architectures"].map(|of| format!("--option=APT::{of}={arch}"));
    apt::unpack(PACKAGE, &options, work.path(), &folder.join("fetch.log")).with_context(|| {
        format!(
            "fetch {PACKAGE} for {arch}, or put one at {}",
            kept.display()
        )
    })?;
    fs::rename(work.path().join(&PLACE[1..]), &kept)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
}
