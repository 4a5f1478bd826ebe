// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots what `deb` made: takes the kernel and the modules that the guest needs out of the Debian
//! packages, and builds the tests' modules against their headers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::build::{self, Image, copy};
use crate::cache::{Key, make_folder};
use crate::command;
use crate::lab::Lab;
use crate::tree::{Tree, files_below, files_ending};
use crate::ui::step;

/// Where a checkout has the packages.
pub const FOLDER: &str = "target/kernel-deb";

/// What they are for.
const ARCH: &str = "x86_64";

/// The folders and modules that a guest gets: the series', and what the tests' disks need. All of Debian's are 400 MiB.
const MODULES: [&str; 9] = [
    "drivers/migrate_offload",
    "drivers/dma",
    "mm",
    "drivers/block/loop.ko.xz",
    "fs/ext4",
    "fs/jbd2",
    "fs/mbcache.ko.xz",
    "lib",
    "crypto",
];

/// The kernel of the packages that the checkout `root` has, from the cache if it was there before.
pub fn image(lab: &Lab) -> Result<Image> {
    let (root, machine) = (&lab.root, &lab.machine);
    if machine.kernel.arch != ARCH {
        bail!("profile debian is for {ARCH}: there are no packages for others");
    }
    let sources = build::modules(root)?;
    let (kernel, headers) = find(&root.join(FOLDER))?;
    let mut key = Key::default();
    for package in [&kernel, &headers] {
        key.add(&fs::read(package)?);
    }
    key.add_files(&sources);
    let images = lab.cache.root.join("images");
    let folder = images.join(key.name());
    if let Some(image) = Image::open(folder.clone()) {
        return Ok(image);
    }

    step!("unpacking {}", kernel.display());
    fs::create_dir_all(&images)?;
    let unpacked = tempfile::tempdir_in(&images)?;
    let unpacked = unpacked.path();
    for package in [&kernel, &headers] {
        command::logged(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([package.as_path(), unpacked]),
            &unpacked.join("unpack.log"),
            &format!("unpack {}", package.display()),
        )?;
    }
    make_folder(&folder, |part| {
        let release = take(unpacked, part)?;
        let tree = Tree {
            linux: unpacked.join(format!("usr/src/linux-headers-{release}")),
            state: unpacked.join("lab"),
            _lock: None,
        };
        build::make_modules(&tree, machine, &sources)?;
        build::keep_modules(&tree, part)
    })?;
    Image::open(folder.clone()).with_context(|| format!("{} is incomplete", folder.display()))
}

/// The packages of the kernel and of its headers in `folder`, one of each.
fn find(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let packages = if folder.is_dir() {
        files_ending(folder, "deb")?
    } else {
        Vec::new()
    };
    let one = |start: &str| {
        let mut found = packages.iter().filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(start))
        });
        match (found.next(), found.next()) {
            (Some(package), None) => Ok(package.clone()),
            (None, _) => bail!(
                "no {start}*.deb in {}; try: make kernel-deb",
                folder.display()
            ),
            _ => bail!("several {start}*.deb in {}; leave one", folder.display()),
        }
    };
    Ok((one("linux-image-")?, one("linux-headers-")?))
}

/// Copies what a boot needs from the unpacked packages to the image `folder`. Returns the release.
fn take(unpacked: &Path, folder: &Path) -> Result<String> {
    let kernel = files_below(&unpacked.join("boot"))?
        .into_iter()
        .find_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some((name.strip_prefix("vmlinuz-")?.to_owned(), path))
        });
    let (release, kernel) = kernel.context("the package has no boot/vmlinuz-*")?;
    copy(&kernel, &folder.join("image"))?;
    fs::write(folder.join("release"), &release)?;
    fs::create_dir_all(folder.join("modules"))?;
    let modules = unpacked.join(format!("lib/modules/{release}/kernel"));
    for place in MODULES.map(|place| modules.join(place)) {
        let files = if place.is_dir() {
            files_below(&place)?
        } else if place.is_file() {
            vec![place]
        } else {
            Vec::new()
        };
        for path in files {
            let to = folder.join("modules").join(path.strip_prefix(&modules)?);
            copy(&path, &to)?;
            if to.extension().is_some_and(|end| end == "xz") {
                command::logged(
                    Command::new("xz").arg("--decompress").arg(&to),
                    &unpacked.join("xz.log"),
                    "unpack a module",
                )?;
            }
        }
    }
    Ok(release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_package_of_each() {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: &str| fs::write(folder.path().join(name), "").unwrap();
        let error = || find(folder.path()).unwrap_err().to_string();
        assert!(error().contains("make kernel-deb"), "{}", error());
        add("linux-image-6.12.1-memferry_1_amd64.deb");
        assert!(error().contains("no linux-headers-*.deb"), "{}", error());
        add("linux-headers-6.12.1-memferry_1_amd64.deb");
        add("linux-libc-dev_1_amd64.deb");
        let (kernel, headers) = find(folder.path()).unwrap();
        assert!(kernel.ends_with("linux-image-6.12.1-memferry_1_amd64.deb"));
        assert!(headers.ends_with("linux-headers-6.12.1-memferry_1_amd64.deb"));
        add("linux-image-6.12.2-memferry_1_amd64.deb");
        assert!(error().contains("several linux-image-*.deb"), "{}", error());
    }
}
