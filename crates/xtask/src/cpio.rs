// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the archive that a kernel unpacks as its first file system: cpio's "newc" format, as
//! Documentation/driver-api/early-userspace/buffer-format.rst has it.

use std::collections::BTreeSet;
use std::path::Path;

/// An archive in memory. Everything in it belongs to root; times are zero, so that the same
/// content makes the same archive.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    folders: BTreeSet<String>,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;

impl Archive {
    /// Adds the folder `path` and those above it. Paths have no leading slash.
    pub fn folder(&mut self, path: &str) {
        if path.is_empty() || self.folders.contains(path) {
            return;
        }
        self.parent(path);
        self.folders.insert(path.to_owned());
        self.entry(path, FOLDER | 0o755, (0, 0), &[]);
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.parent(path);
        self.entry(path, FILE | permissions, (0, 0), content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.parent(path);
        self.entry(path, LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &str, permissions: u32, major: u32, minor: u32) {
        self.parent(path);
        self.entry(path, CHARACTERS | permissions, (major, minor), &[]);
    }

    /// The archive, ended.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn parent(&mut self, path: &str) {
        if let Some(parent) = Path::new(path).parent() {
            let parent = parent.to_string_lossy().into_owned();
            self.folder(&parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        let name = path.len() as u32 + 1;
        let fields = [
            self.inode,
            mode,
            0, // user
            0, // group
            links,
            0, // time
            content.len() as u32,
            0, // device it is on: major, minor
            0,
            device.0,
            device.1,
            name,
            0, // checksum, which this format has not
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_newc() {
        let mut archive = Archive::default();
        archive.file("a/b", 0o644, b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("0707010000000100"), "{text}");
        // Header 110 bytes, "a" and its zero: 112. The file's name: 110 + 4, padded to 116.
        assert_eq!(&bytes[112..118], b"070701");
        assert_eq!(&bytes[112 + 116..][..8], b"hello\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_folder_comes_before_what_is_in_it_and_once() {
        let mut archive = Archive::default();
        archive.file("x/y/1", 0o644, b"");
        archive.file("x/y/2", 0o644, b"");
        archive.link("x/z", "y");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("x/y\0").count(), 1);
        assert!(text.find("x/y\0").unwrap() < text.find("x/y/1\0").unwrap());
    }
}
