// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a result goes: stdout, or a file that is replaced whole or not at all.
//!
//! A file is written beside its place and then put there, so that a failure leaves the old one, and nothing else
//! (but SIGKILL, which may leave a `.memferry-` file).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tempfile::TempPath;

use crate::args::{JsonArgs, wrong};
use crate::failure::{Failure, OrFail, worst};
use crate::file::{Content, File};
use crate::signals::Unfinished;

/// Where a result goes that is text, JSON, or both.
pub struct Results {
    json: Option<Target>,
    text: Option<Target>,
}

impl Results {
    /// Makes ready to write what `--json[=FILE]` asks for; none of `inputs` is replaced.
    pub fn open(args: &JsonArgs, inputs: &[PathBuf]) -> Result<Self, Failure> {
        let json = args.json.as_deref();
        let stdout = Path::new("-");
        Ok(Self {
            json: json
                .map(|path| Target::open_beside(path, inputs))
                .transpose()?,
            text: (json != Some(stdout))
                .then(|| Target::open(stdout))
                .transpose()?,
        })
    }

    /// Writes what a command tells of the machine below `root`.
    pub fn tell(
        self,
        root: &Path,
        content: &impl Content,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let file = (self.json.as_ref()).map(|_| File::now(root, content));
        self.write(&file, text)
    }

    /// Writes both; neither is missing because the other failed.
    pub fn write(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let save = |target: Target| {
            let json = serde_json::to_string_pretty(value)
                .or_fail("cannot write the result as JSON", "report this as a bug")?;
            target.write(&(json + "\n"))
        };
        let saved = self.json.map_or(Ok(()), save);
        let shown = self.text.map_or(Ok(()), |target| target.write(&text()));
        worst([saved, shown])
    }
}

/// Whether the command was started with stdout closed, as by `>&-`.
pub fn is_stdout_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes no argument and changes nothing.
    let is_open = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } >= 0;
    STDOUT_CLOSED.store(!is_open, Ordering::Relaxed);
}

/// The C library calls it before Rust's runtime starts, which puts /dev/null in the place of a closed stdout.
// SAFETY: the section holds pointers to functions of this type; the function needs nothing of Rust's runtime.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// A place that is known to be writable; nothing is there until [`Target::write`].
pub struct Target {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Stdout(io::Stdout),
    /// A device, a pipe: it must not be replaced by a file.
    Special(fs::File),
    /// A file that takes the place of `path` when it is whole.
    Whole(Whole),
}

/// A file that is not in its place yet. It goes away when it is dropped, and when a signal ends the command.
struct Whole {
    file: fs::File,
    name: TempPath,
    _unfinished: Unfinished,
}

impl Whole {
    /// A new file that will replace `path`, in the same folder.
    fn new(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // As any new file: the umask decides.
        options.write(true).create_new(true).mode(0o666);
        let make = |name: &Path| {
            // Before the file is there: a signal in between would leave it.
            let unfinished = Unfinished::new(name)?;
            Ok((options.open(name)?, unfinished))
        };
        let mut builder = tempfile::Builder::new();
        let made = builder.prefix(".memferry-").make_in(folder(path), make)?;
        let ((file, unfinished), name) = made.into_parts();
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        Ok(Self {
            file,
            name,
            _unfinished: unfinished,
        })
    }

    /// Puts it in its place; returns its size.
    fn commit(self, path: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        let bytes = self.file.metadata()?.len();
        self.name.persist(path).map_err(|error| error.error)?;
        Ok(bytes)
    }
}

impl Target {
    /// Makes ready to write `path`; `-` is stdout. Fails before the work is done, not after.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            if is_stdout_closed() {
                return Err(Failure::no_stdout());
            }
            return Ok(Self {
                path: path.to_owned(),
                kind: Kind::Stdout(io::stdout()),
            });
        }
        // A link stays a link: what it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let failed = |error: io::Error| cannot_write(&path, error);
        let found = fs::metadata(&path);
        let ends_in_slash = || path.as_os_str().as_bytes().ends_with(b"/");
        if (found.as_ref()).map_or_else(|_| ends_in_slash(), fs::Metadata::is_dir) {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let kind = match found {
            Ok(found) if !found.is_file() => {
                Kind::Special(OpenOptions::new().write(true).open(&path).map_err(failed)?)
            }
            _ => Kind::Whole(Whole::new(&path).map_err(failed)?),
        };
        Ok(Self { path, kind })
    }

    /// The same for a command that reads `others`, or writes them: none of them is replaced, under whatever name. A `-`
    /// among them is stdin.
    pub fn open_beside(path: &Path, others: &[PathBuf]) -> Result<Self, Failure> {
        let to_file = path.as_os_str() != "-";
        let own = to_file.then(|| identity(path)).flatten();
        let same = |other: &&PathBuf| own.is_some() && own == identity(other);
        match others.iter().find(same) {
            Some(other) => Err(Failure::Usage(wrong(&format!(
                "{} and {} are one file; name another file to write",
                path.display(),
                other.display()
            )))),
            None => Self::open(path),
        }
    }

    /// A file to write part by part; [`Stream::commit`] puts it in its place. Dropped before that, it leaves the old
    /// file as it was.
    pub fn stream(self) -> Stream {
        Stream(self)
    }

    /// Writes `text` and puts it in its place.
    pub fn write(self, text: &str) -> Result<(), Failure> {
        let mut stream = self.stream();
        let written = stream.write_all(text.as_bytes());
        written.map_err(|error| cannot_write(&stream.0.path, error))?;
        stream.commit().map(drop)
    }
}

/// A target that is being written.
pub struct Stream(Target);

impl Stream {
    fn out(&mut self) -> &mut dyn Write {
        match &mut self.0.kind {
            Kind::Stdout(out) => out,
            Kind::Special(file) => file,
            Kind::Whole(whole) => &mut whole.file,
        }
    }

    /// Puts what was written in its place, and tells its size where it is a file.
    pub fn commit(mut self) -> Result<Option<u64>, Failure> {
        let flushed = self.flush();
        let Target { path, kind } = self.0;
        let done = flushed.and_then(|()| match kind {
            Kind::Whole(whole) => whole.commit(&path).map(Some),
            Kind::Stdout(_) | Kind::Special(_) => Ok(None),
        });
        done.map_err(|error| cannot_write(&path, error))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out().flush()
    }
}

/// What tells a file from all others.
#[derive(PartialEq, Eq)]
enum Identity {
    Inode(u64, u64),
    /// It is not there yet.
    Path(PathBuf),
}

/// The identity of a file; `-` is stdin. Devices and pipes have none: they are not replaced.
fn identity(path: &Path) -> Option<Identity> {
    let found = match path.as_os_str() == "-" {
        true => fs::metadata("/proc/self/fd/0"),
        false => fs::metadata(path),
    };
    match found {
        Ok(found) => (found.is_file()).then(|| Identity::Inode(found.dev(), found.ino())),
        Err(_) => {
            let folder = fs::canonicalize(folder(path)).ok()?;
            Some(Identity::Path(folder.join(path.file_name()?)))
        }
    }
}

/// The file's name without its folder.
pub fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The folder that a file is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The failure of a write to a target.
pub fn cannot_write(path: &Path, error: io::Error) -> Failure {
    if path.as_os_str() == "-" || error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::stdout(error);
    }
    Failure::new(
        format!("cannot write {}", path.display()),
        error,
        "name a file in a folder that exists and that you may write to, with space left",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_not_whole_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("result.json");
        fs::write(&path, "old").expect("write");
        let read = || fs::read_to_string(&path).expect("read");
        let mut stream = Target::open(&path).expect("open").stream();
        stream.write_all(b"half").expect("write");
        drop(stream);
        assert_eq!(read(), "old");
        let mut stream = Target::open(&path).expect("open").stream();
        stream.write_all(b"whole").expect("write");
        assert_eq!(read(), "old");
        assert_eq!(stream.commit().expect("commit"), Some(5));
        assert_eq!(read(), "whole");
        let left = fs::read_dir(folder.path()).expect("list").count();
        assert_eq!(left, 1, "no temporary file stays");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("folder");
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").expect("write");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        let target = Target::open(&link).expect("open");
        target.write("new").expect("write");
        assert!(fs::symlink_metadata(&link).expect("stat").is_symlink());
        assert_eq!(fs::read_to_string(&real).expect("read"), "new");
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("result.json");
        fs::write(&path, "old").expect("write");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("chmod");
        let target = Target::open(&path).expect("open");
        target.write("new").expect("write");
        let mode = fs::metadata(&path).expect("stat").permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
    }

    #[test]
    fn what_is_read_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let (read, link) = (folder.path().join("read"), folder.path().join("link"));
        fs::write(&read, "input").expect("write");
        fs::hard_link(&read, &link).expect("link");
        let inputs = [folder.path().join("other"), read.clone()];
        for path in [&read, &link] {
            let refused = Target::open_beside(path, &inputs);
            assert!(matches!(refused, Err(Failure::Usage(_))), "{path:?}");
        }
        assert!(Target::open_beside(&folder.path().join("new"), &inputs).is_ok());
        assert!(Target::open_beside(Path::new("/dev/null"), &["/dev/null".into()]).is_ok());
    }
}
