// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a result goes: stdout, or a file that is replaced whole or not at all.
//!
//! A file is written beside its place and renamed, so that a failure leaves the old one.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// A place that is known to be writable; nothing is there until [`Target::write`].
pub struct Target {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    /// Stdout.
    Stdout,
    /// A device, a pipe: it must not be replaced by a file.
    Special(fs::File),
    /// A file that takes the place of `path` when it is whole.
    Beside(NamedTempFile),
}

impl Target {
    /// Makes ready to write `path`; `-` is stdout. Fails before the work is done, not after.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self {
                path: path.to_owned(),
                kind: Kind::Stdout,
            });
        }
        // A link stays a link: what it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let failed = |error: io::Error| cannot_write(&path, error);
        let kind = match fs::metadata(&path) {
            Ok(found) if found.is_dir() => {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            Ok(found) if !found.is_file() => {
                Kind::Special(OpenOptions::new().write(true).open(&path).map_err(failed)?)
            }
            _ => {
                let folder = match path.parent() {
                    Some(folder) if !folder.as_os_str().is_empty() => folder,
                    _ => Path::new("."),
                };
                let beside = tempfile::Builder::new()
                    .prefix(".memferry-")
                    // As any new file: the umask decides.
                    .permissions(Permissions::from_mode(0o666))
                    .tempfile_in(folder)
                    .map_err(failed)?;
                Kind::Beside(beside)
            }
        };
        Ok(Self { path, kind })
    }

    /// A file to write part by part; [`Stream::commit`] puts it in its place. Dropped before that, it leaves the old
    /// file as it was.
    pub fn stream(self) -> Stream {
        Stream(self)
    }

    /// Writes `text` and puts it in its place.
    pub fn write(self, text: &str) -> Result<(), Failure> {
        let path = self.path;
        let failed = |error: io::Error| cannot_write(&path, error);
        match self.kind {
            Kind::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())
                    .and_then(|()| out.flush())
                    .map_err(Failure::stdout)
            }
            Kind::Special(mut file) => match file.write_all(text.as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::BrokenPipe),
                other => other.map_err(failed),
            },
            Kind::Beside(mut file) => {
                file.write_all(text.as_bytes()).map_err(failed)?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist(&path).map_err(|error| failed(error.error))?;
                Ok(())
            }
        }
    }
}

/// A target that is being written.
pub struct Stream(Target);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0.kind {
            Kind::Stdout => io::stdout().write(bytes),
            Kind::Special(file) => file.write(bytes),
            Kind::Beside(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0.kind {
            Kind::Stdout => io::stdout().flush(),
            Kind::Special(file) => file.flush(),
            Kind::Beside(file) => file.flush(),
        }
    }
}

impl Stream {
    /// Puts what was written in its place, and tells its size where it is a file.
    pub fn commit(mut self) -> Result<Option<u64>, Failure> {
        let path = self.0.path.clone();
        let failed = |error: io::Error| cannot_write(&path, error);
        self.flush().map_err(failed)?;
        let Kind::Beside(file) = self.0.kind else {
            return Ok(None);
        };
        file.as_file().sync_all().map_err(failed)?;
        let bytes = file.as_file().metadata().map_err(failed)?.len();
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(Some(bytes))
    }

    /// The failure of a write to it.
    pub fn failure(path: &Path, error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => cannot_write(path, error),
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::new(
        format!("cannot write {}", path.display()),
        error,
        "name a file in a folder that exists and that you may write to, with space left",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritten_target_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("result.json");
        fs::write(&path, "old").expect("write");
        drop(Target::open(&path).expect("open"));
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        Target::open(&path)
            .expect("open")
            .write("new")
            .expect("write");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new");
        let left = fs::read_dir(folder.path()).expect("list").count();
        assert_eq!(left, 1, "no temporary file stays");
    }

    #[test]
    fn a_stream_is_in_its_place_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("some.trace");
        fs::write(&path, "old").expect("write");
        let mut stream = Target::open(&path).expect("open").stream();
        stream.write_all(b"half").expect("write");
        drop(stream);
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        let mut stream = Target::open(&path).expect("open").stream();
        stream.write_all(b"whole").expect("write");
        assert_eq!(stream.commit().expect("commit"), Some(5));
        assert_eq!(fs::read_to_string(&path).expect("read"), "whole");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("folder");
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").expect("write");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        Target::open(&link)
            .expect("open")
            .write("new")
            .expect("write");
        assert!(fs::symlink_metadata(&link).expect("stat").is_symlink());
        assert_eq!(fs::read_to_string(&real).expect("read"), "new");
    }

    #[test]
    fn a_device_is_written_not_replaced() {
        let null = Path::new("/dev/null");
        Target::open(null)
            .expect("open")
            .write("gone")
            .expect("write");
        assert!(!fs::metadata(null).expect("stat").is_file());
    }

    #[test]
    fn a_folder_or_a_missing_one_is_told() {
        let folder = tempfile::tempdir().expect("folder");
        assert!(Target::open(folder.path()).is_err());
        assert!(Target::open(&folder.path().join("no/where")).is_err());
    }
}
