// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's source: a tarball that is unpacked. Changing it is for `tree`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::base::Base;
use crate::cache::{Key, make_folder};
use crate::command;
use crate::ui::step;

/// A tarball of Linux.
pub struct Source {
    pub tarball: PathBuf,
    /// Names its content, without reading 150 MB: from its name, size and time.
    pub id: String,
}

impl Source {
    pub fn find(tarball: PathBuf) -> Result<Self> {
        let meta = fs::metadata(&tarball)?;
        let mut key = Key::default();
        key.add(tarball.file_name().unwrap_or_default().as_encoded_bytes());
        key.add(&meta.size().to_le_bytes());
        key.add(&meta.mtime().to_le_bytes());
        Ok(Self {
            tarball,
            id: key.name(),
        })
    }

    /// Unpacks it as `folder`, which must not exist, if it is a Linux that `base` is made for.
    pub fn unpack(&self, folder: &Path, base: &Base) -> Result<()> {
        step!("unpacking {}", self.tarball.display());
        make_folder(folder, |part| {
            let mut unpack = Command::new("tar");
            unpack
                .args(["-x", "--strip-components=1", "-f"])
                .arg(&self.tarball)
                .arg("-C")
                .arg(part);
            command::logged(&mut unpack, &folder.with_extension("log"), "unpack Linux")?;
            base.check(&version(part)?, &self.tarball)
        })
    }
}

/// Which Linux is unpacked in `tree`: "6.12.117".
pub fn version(tree: &Path) -> Result<String> {
    let path = tree.join("Makefile");
    let text = fs::read_to_string(&path)?;
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
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let base = Base::read(&root, crate::base::DEFAULT).unwrap();
        let error = source.unpack(&tree, &base).unwrap_err().to_string();
        assert!(
            error.contains("5.4.1") && error.contains("--source"),
            "{error}"
        );
        assert!(!tree.exists());
    }
}
