// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads files and folders of sysfs and procfs below one root folder, which tests replace.
//! Absence is an answer here, not an error; what a text means is `parse`'s work.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::error::{ParseError, TopologyError};

/// The folder that holds `sys`, `proc` and `dev`. Paths handed to its functions are relative to it.
pub(crate) struct Root<'a>(pub(crate) &'a Path);

impl Root<'_> {
    fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// The text of a file that may be missing. Bytes that are no UTF-8 become U+FFFD, which no parser accepts.
    fn text(&self, file: &str, expected: &'static str) -> Result<Option<String>, TopologyError> {
        let path = self.path(file);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if is_absent(error.kind()) => Ok(None),
            Err(error) => Err(TopologyError::Read {
                path,
                expected,
                error,
            }),
        }
    }

    /// What `parser` makes of a file, or `None` where there is no such file.
    pub(crate) fn optional<T>(
        &self,
        file: &str,
        expected: &'static str,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<Option<T>, TopologyError> {
        let Some(text) = self.text(file, expected)? else {
            return Ok(None);
        };
        match parser(&text) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(self.parse_error(file, error)),
        }
    }

    /// What `parser` makes of a file that must be there.
    pub(crate) fn required<T>(
        &self,
        file: &str,
        expected: &'static str,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, TopologyError> {
        self.optional(file, expected, parser)?
            .ok_or_else(|| TopologyError::Read {
                path: self.path(file),
                expected,
                error: io::Error::from_raw_os_error(libc::ENOENT),
            })
    }

    /// Ties a parse error to its file.
    pub(crate) fn parse_error(&self, file: &str, error: ParseError) -> TopologyError {
        TopologyError::Parse {
            path: self.path(file),
            error,
        }
    }

    /// Whether a file, folder or device of this name exists. It is not opened.
    pub(crate) fn exists(&self, relative: &str) -> bool {
        self.path(relative).symlink_metadata().is_ok()
    }

    /// The last part of what a symbolic link points to; `None` where there is no such link.
    pub(crate) fn link_name(&self, relative: &str) -> Option<String> {
        let target = fs::read_link(self.path(relative)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names of a folder's entries in the order of the alphabet; none where there is no such folder.
    pub(crate) fn names(
        &self,
        folder: &str,
        expected: &'static str,
    ) -> Result<Vec<String>, TopologyError> {
        let path = self.path(folder);
        let failed = |error| TopologyError::Read {
            path: path.clone(),
            expected,
            error,
        };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if is_absent(error.kind()) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The numbers N, ascending, of the entries `PREFIXnSUFFIX` of a folder; none where there is no such folder.
    /// Entries that do not fit the pattern are left out.
    pub(crate) fn numbered(
        &self,
        folder: &str,
        prefix: &str,
        suffix: &str,
        expected: &'static str,
    ) -> Result<Vec<u32>, TopologyError> {
        let names = self.names(folder, expected)?;
        // The kernel writes no leading zeros; requiring the same text keeps one number to one entry.
        let number = |name: &String| {
            let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            let number = digits.parse::<u32>().ok()?;
            (number.to_string() == digits).then_some(number)
        };
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// A path can be absent because its last part is, or because an earlier part is a file.
fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}
