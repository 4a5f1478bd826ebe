// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's settings that the daemon changes: only those of a list, each stored in a file under /run before it is changed, so
//! that the daemon's end, or its next start, puts them back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{DaemonError, file};
use crate::machine::text;
use crate::rights;

/// The daemon's folder, below the root.
pub(crate) const FOLDER: &str = "run/memferry";
const STATE: &str = "daemon.json";
const LOCK: &str = "daemon.lock";

/// What the kernel's NUMA balancing does.
pub const BALANCING: &str = "proc/sys/kernel/numa_balancing";
/// MiB per second that it promotes at most.
pub const BALANCING_RATE: &str = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
/// Whether reclaim demotes.
pub const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";
/// Sources of pghot.
pub const PGHOT: &str = "proc/sys/vm/pghot_enabled_sources";
/// MiB per second that pghot promotes at most.
pub const PGHOT_RATE: &str = "proc/sys/vm/pghot_promote_rate_limit_MBps";
pub use memferry_linux::damon::KDAMONDS;

/// One setting as it was and as the daemon left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    file: String,
    before: String,
    /// `None` if whatever it says now is the daemon's.
    after: Option<String>,
    /// What the daemon had set before `after`: a write that fails, or a daemon killed before it, leaves that.
    #[serde(default)]
    earlier: Option<String>,
}

impl Change {
    fn is_daemons(&self, now: &str) -> bool {
        let after = self.after.as_deref();
        after.is_none_or(|after| after == now) || self.earlier.as_deref() == Some(now)
    }
}

/// Settings that come back.
#[derive(Debug)]
pub struct Knobs {
    root: PathBuf,
    changes: Vec<Change>,
    /// Held as long as the daemon lives.
    _lock: File,
}

/// Whether the daemon may write a file, given below the root.
fn is_ours(file: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_plain = file.split('/').all(plain);
    let is_setting = [BALANCING, BALANCING_RATE, DEMOTION, PGHOT, PGHOT_RATE].contains(&file);
    let below = |folder: &str| {
        file.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let is_reclaim = below("sys/fs/cgroup") && file.ends_with("/memory.reclaim");
    is_plain && (is_setting || below(KDAMONDS) || is_reclaim)
}

/// Whether settings are as a benchmark left them that is not this process's parent.
fn is_foreign_benchmark(stored: &Path) -> bool {
    let Ok(bytes) = fs::read(stored) else {
        return stored.exists();
    };
    let pid = |stored: &serde_json::Value| stored["pid"].as_i64();
    let of = serde_json::from_slice(&bytes).ok().as_ref().and_then(pid);
    of != rustix::process::getppid().map(|pid| i64::from(pid.as_raw_nonzero().get()))
}

/// Replaces a file of the daemon's folder as a whole, by a value as JSON.
pub(crate) fn replace(path: &Path, value: &impl Serialize, mode: u32) -> io::Result<()> {
    let mut whole = tempfile::Builder::new()
        .permissions(PermissionsExt::from_mode(mode))
        .tempfile_in(path.parent().unwrap_or(path))?;
    whole.write_all(&serde_json::to_vec(value)?)?;
    whole.persist(path).map(drop).map_err(|error| error.error)
}

/// Settings that a daemon has changed and not set back: files below the root. Root alone may read which.
pub fn changed(root: &Path) -> Vec<String> {
    let stored = fs::read(root.join(FOLDER).join(STATE)).unwrap_or_default();
    let changes: Vec<Change> = serde_json::from_slice(&stored).unwrap_or_default();
    changes.into_iter().map(|change| change.file).collect()
}

impl Knobs {
    /// Takes the lock of the daemons, and puts back what one changed that was killed.
    ///
    /// # Errors
    /// Another daemon runs, a benchmark has changed settings that did not start this daemon, or a setting does not come back.
    pub fn open(root: &Path) -> Result<Self, DaemonError> {
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder).map_err(file(&folder, "make the folder"))?;
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let mut lock = (options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // Who may read a file may lock it.
            .mode(0o600)
            .open(&path))
        .map_err(file(&path, "open the lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let who = format!("another daemon (pid {}) runs", pid.trim());
            return Err(DaemonError::Taken { who });
        }
        if is_foreign_benchmark(&folder.join("restore.json")) {
            let who = "a benchmark of memferry runs, or was killed".to_owned();
            return Err(DaemonError::Taken { who });
        }
        let write = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        write.map_err(file(&path, "write the lock"))?;
        let mut knobs = Self {
            root: root.to_owned(),
            changes: Vec::new(),
            _lock: lock,
        };
        let path = knobs.path();
        match fs::read(&path) {
            Ok(bytes) => {
                let parsed = serde_json::from_slice(&bytes).map_err(io::Error::from);
                knobs.changes = parsed.map_err(file(&path, "understand what was changed"))?;
                tracing::warn!(
                    settings = knobs.changes.len(),
                    "the last daemon was killed: its settings come back"
                );
                knobs.put_back()?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file(&path, "read what was changed")(error)),
        }
        Ok(knobs)
    }

    fn path(&self) -> PathBuf {
        self.root.join(FOLDER).join(STATE)
    }

    /// The folder that holds /proc and /sys.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What a setting says; `None` where there is none.
    pub fn read(&self, file: &str) -> Option<String> {
        text(&self.root, file)
    }

    /// Stores that a file comes back to `before`, whatever it will say then.
    pub fn keep(&mut self, file: &str, before: &str) -> Result<(), DaemonError> {
        self.note(file, before, None)
    }

    /// Leaves what is in a folder as it is: somebody else has taken it.
    pub fn forget(&mut self, folder: &str) -> Result<(), DaemonError> {
        self.changes.retain(|known| !known.file.starts_with(folder));
        self.store()
    }

    fn store(&self) -> Result<(), DaemonError> {
        let stored = replace(&self.path(), &self.changes, 0o600);
        stored.map_err(file(self.path(), "store what is changed"))
    }

    /// Stores that a file that says `now` will say `after`.
    fn note(&mut self, name: &str, now: &str, after: Option<&str>) -> Result<(), DaemonError> {
        let after = after.map(str::to_owned);
        match self.changes.iter_mut().find(|known| known.file == name) {
            Some(known) => {
                if known.is_daemons(now) {
                    known.earlier = Some(now.to_owned());
                }
                known.after = after;
            }
            None => self.changes.push(Change {
                file: name.to_owned(),
                before: now.to_owned(),
                after,
                earlier: None,
            }),
        }
        self.store()
    }

    /// Sets a setting, which comes back later. One that says so already is left alone.
    pub fn set(&mut self, file: &str, text: &str) -> Result<(), DaemonError> {
        let now = self.read(file).unwrap_or_default();
        if now == text {
            return Ok(());
        }
        self.note(file, &now, Some(text))?;
        self.write(file, text)
    }

    /// Writes a file of the list, which does not come back.
    pub fn write(&self, name: &str, text: &str) -> Result<(), DaemonError> {
        let path = self.root.join(name);
        let write = || {
            if !is_ours(name) {
                return Err(io::Error::other("it is not on the daemon's list of files"));
            }
            // One write(2) of the whole text, as sysfs wants it. No file is made.
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&path)?
                .write_all(text.as_bytes())
        };
        let needed = if name == BALANCING {
            rights::ADMIN
        } else {
            rights::WRITE_FILES
        };
        write()
            .map_err(|error| rights::explain(&self.root, error, &[needed]))
            .map_err(file(&path, "write it"))
    }

    /// Puts everything back, the last change first. What somebody else has set meanwhile stays.
    ///
    /// # Errors
    /// The first setting that does not come back; the others do, and the next call tries again.
    pub fn put_back(&mut self) -> Result<(), DaemonError> {
        let mut failure = None;
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            let Some(now) = self.read(&change.file) else {
                continue;
            };
            if now == change.before {
                continue;
            }
            if !change.is_daemons(&now) {
                tracing::warn!(
                    file = change.file,
                    now,
                    "somebody else has set it meanwhile: it stays"
                );
                continue;
            }
            if let Err(error) = self.write(&change.file, &change.before) {
                let error = match error {
                    DaemonError::File { error, .. } => error,
                    other => io::Error::other(other.to_string()),
                };
                let Change { file, before, .. } = change.clone();
                failure.get_or_insert(DaemonError::NotRestored {
                    file,
                    before,
                    error,
                });
                left.push(change);
            }
        }
        left.reverse();
        self.changes = left;
        match failure {
            Some(failure) => Err(failure),
            None => match fs::remove_file(self.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(file(self.path(), "remove what was stored")(error))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            tracing::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::put;

    fn read(root: &Path, file: &str) -> String {
        text(root, file).unwrap()
    }

    #[test]
    fn settings_come_back_in_the_end() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), BALANCING, "1\n");
        put(root.path(), DEMOTION, "false\n");
        let mut knobs = Knobs::open(root.path()).unwrap();
        knobs.set(BALANCING, "2").unwrap();
        knobs.set(BALANCING, "3").unwrap();
        knobs.set(DEMOTION, "true").unwrap();
        assert_eq!(read(root.path(), BALANCING), "3");
        drop(knobs);
        assert_eq!(
            (read(root.path(), BALANCING), read(root.path(), DEMOTION)),
            ("1".into(), "false".into())
        );
        assert!(!root.path().join(FOLDER).join(STATE).exists());
    }

    #[test]
    fn what_a_killed_daemon_changed_comes_back_at_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), BALANCING, "1\n");
        let mut killed = Knobs::open(root.path()).unwrap();
        killed.set(BALANCING, "2").unwrap();
        // As SIGKILL leaves it: the lock is free, the file is there.
        let stored = fs::read(root.path().join(FOLDER).join(STATE)).unwrap();
        killed.changes.clear();
        drop(killed);
        fs::write(root.path().join(FOLDER).join(STATE), stored).unwrap();
        assert_eq!(read(root.path(), BALANCING), "2");
        drop(Knobs::open(root.path()).unwrap());
        assert_eq!(read(root.path(), BALANCING), "1");
    }

    #[test]
    fn a_setting_that_could_not_be_set_again_comes_back() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), BALANCING, "1\n");
        let mut knobs = Knobs::open(root.path()).unwrap();
        knobs.set(BALANCING, "2").unwrap();
        // Stored, but never written: an error, or SIGKILL.
        for after in ["3", "4"] {
            knobs.note(BALANCING, "2", Some(after)).unwrap();
        }
        drop(knobs);
        assert_eq!(read(root.path(), BALANCING), "1");
    }

    #[test]
    fn what_somebody_else_set_stays() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), BALANCING, "1\n");
        let mut knobs = Knobs::open(root.path()).unwrap();
        knobs.set(BALANCING, "2").unwrap();
        put(root.path(), BALANCING, "0\n");
        drop(knobs);
        assert_eq!(read(root.path(), BALANCING), "0");
    }

    #[test]
    fn a_second_daemon_and_a_benchmark_are_named() {
        let root = tempfile::tempdir().unwrap();
        let knobs = Knobs::open(root.path()).unwrap();
        let told = Knobs::open(root.path()).unwrap_err().to_string();
        assert!(
            told.contains(&format!("pid {}", std::process::id())),
            "{told}"
        );
        drop(knobs);
        put(root.path(), "run/memferry/restore.json", "{}");
        assert!(matches!(
            Knobs::open(root.path()),
            Err(DaemonError::Taken { .. })
        ));
        // The benchmark that started it.
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
        let stored = format!("{{\"pid\":{parent}}}");
        put(root.path(), "run/memferry/restore.json", &stored);
        assert!(Knobs::open(root.path()).is_ok());
    }

    #[test]
    fn only_files_of_the_list_are_written() {
        let root = tempfile::tempdir().unwrap();
        let knobs = Knobs::open(root.path()).unwrap();
        let damon = format!("{KDAMONDS}/../../../../etc");
        for file in [
            "proc/sys/kernel/panic",
            "etc/passwd",
            &damon,
            "sys/fs/cgroup/a/memory.max",
            "sys/fs/cgroupx/memory.reclaim",
        ] {
            put(root.path(), file, "before");
            assert!(knobs.write(file, "after").is_err(), "{file}");
            assert_eq!(read(root.path(), file), "before");
        }
        put(root.path(), "sys/fs/cgroup/a/memory.reclaim", "");
        knobs.write("sys/fs/cgroup/a/memory.reclaim", "2M").unwrap();
        assert!(knobs.write(BALANCING, "1").is_err(), "no file is made");
    }

    #[test]
    fn no_other_user_can_take_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let _knobs = Knobs::open(root.path()).unwrap();
        let lock = fs::metadata(root.path().join(FOLDER).join(LOCK)).unwrap();
        assert_eq!(lock.permissions().mode() & 0o077, 0);
    }
}
