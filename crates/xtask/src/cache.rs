// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where kernels are kept between runs, outside the checkout: source trees with what was built in
//! them, and finished images. `tree` and `build` fill it.
//!
//! ```text
//! trees/VERSION-ID-ARCH[-debug]/linux      a source tree, built in place
//!                              /lab        its state: originals of changed files, logs
//! images/KEY/                              finished: image, config, modules/
//! probes/                                  whether KVM works here
//! qemu/SUITE/                              Debian's QEMU for timed machines, unpacked
//! timed/KEY/                               the plugin with their model
//! ```

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err::{self as fs, File};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::tree::Files;
use crate::ui::step;

/// The folder of everything kept.
pub struct Cache {
    pub root: PathBuf,
}

/// The right to change a part of the cache, until dropped.
pub struct Lock {
    _file: File,
}

impl Cache {
    /// `$MEMFERRY_CACHE`, else `memferry` in `$XDG_CACHE_HOME` or `~/.cache`.
    pub fn open() -> Result<Self> {
        let root = if let Some(path) = env::var_os("MEMFERRY_CACHE") {
            PathBuf::from(path)
        } else if let Some(path) = env::var_os("XDG_CACHE_HOME") {
            Path::new(&path).join("memferry")
        } else if let Some(path) = env::var_os("HOME") {
            Path::new(&path).join(".cache/memferry")
        } else {
            bail!("no place to keep kernels: HOME is not set; set MEMFERRY_CACHE to a folder");
        };
        let root = std::path::absolute(root)?;
        // The kernel's Makefile refuses such paths.
        if root.to_string_lossy().contains([' ', ':']) {
            bail!(
                "a kernel cannot be built in {}: it has a space or colon; set MEMFERRY_CACHE",
                root.display()
            );
        }
        fs::create_dir_all(&root)?;
        Ok(Self { root })
    }

    /// Takes the lock `name`, waiting for whoever has it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.root.join("locks").join(name);
        Lock::take(&path, &format!("another run that builds {name}"))
    }
}

impl Lock {
    /// Takes the lock at `path`, saying that it waits for `whom` if it must.
    pub fn take(path: &Path, whom: &str) -> Result<Self> {
        let file = Self::open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            step!("waiting for {whom}");
            flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(Self { _file: file })
    }

    /// Takes the lock at `path` if nobody has it.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        let file = Self::open(path)?;
        let free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(free.then_some(Self { _file: file }))
    }

    fn open(path: &Path) -> Result<File> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(File::create(path)?)
    }
}

/// Names a set of inputs: the same inputs, the same key.
#[derive(Clone, Default)]
pub struct Key(Sha256);

impl Key {
    /// Takes in `bytes`, and where they end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Takes in names and contents of `files`.
    pub fn add_files(&mut self, files: &Files) {
        for (path, content) in files {
            self.add(path.as_os_str().as_encoded_bytes());
            self.add(content);
        }
    }

    /// 16 hexadecimal digits.
    pub fn name(&self) -> String {
        let digest = self.0.clone().finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Makes `folder`, in place of an old one, of what `fill` puts into a temporary one beside it: whole or not at all.
pub fn make_folder(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = folder.parent().context("a folder in the cache")?;
    fs::create_dir_all(parent)?;
    // Beside the place where it will be: a rename must not cross file systems.
    let part = tempfile::tempdir_in(parent)?;
    fill(part.path())?;
    let _ = fs::remove_dir_all(folder);
    Ok(fs::rename(part.path(), folder)?)
}

/// Writes `bytes` to `path` unless they are there already, so that make sees no change. Returns
/// whether it wrote.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_where_its_parts_end() {
        let name = |parts: &[&[u8]]| {
            let mut key = Key::default();
            parts.iter().for_each(|part| key.add(part));
            key.name()
        };
        assert_ne!(name(&[b"ab", b"c"]), name(&[b"a", b"bc"]));
        assert_eq!(name(&[b"ab"]), name(&[b"ab"]));
        assert_eq!(name(&[]).len(), 16);
    }

    #[test]
    fn an_unchanged_file_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert!(write_if_changed(&path, b"1").unwrap());
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(!write_if_changed(&path, b"1").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        assert!(write_if_changed(&path, b"2").unwrap());
    }
}
