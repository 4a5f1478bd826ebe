// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps the daemon from its work: what is wrong, why, and what to try.

use std::io;
use std::path::PathBuf;

/// Why the daemon does not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration is not as it must be.
    #[error("{}:{line}: {what}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there, and what is allowed.
        what: String,
    },
    /// The configuration cannot be read.
    #[error("{}: cannot read the configuration: {error}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// A file could not be read or written.
    #[error("{}: cannot {what}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was to be done with it.
        what: &'static str,
        /// What the system answered.
        error: io::Error,
    },
    /// A file of names of cgroups is none that may be read.
    #[error("{}: cannot read the names of cgroups: {error}", path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The machine's files are not as documented.
    #[error(transparent)]
    Topology(#[from] memferry_linux::topology::TopologyError),
    /// The machine has nothing to tier.
    #[error("this machine has one memory tier: nothing can go up or down")]
    OneTier,
    /// Another daemon, or a benchmark, changes the same settings.
    #[error("{who}: one program at a time changes this kernel's settings")]
    Taken {
        /// Who does what.
        who: String,
    },
    /// The source that the configuration names cannot be had.
    #[error("the source {source_name} cannot be had: {why}")]
    NoSource {
        /// Its name.
        source_name: &'static str,
        /// Why.
        why: String,
    },
    /// The daemon could not be asked.
    #[error("{}: cannot ask the daemon: {error}", path.display())]
    Unasked {
        /// Its socket.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The daemon was asked of a process or a group that it does not know.
    #[error("{why}")]
    Unknown {
        /// What it is not.
        why: String,
    },
    /// A setting did not come back.
    #[error("/{file} was not set back to {before:?}: {error}")]
    NotRestored {
        /// The file, below the root.
        file: String,
        /// What it said before.
        before: String,
        /// What the system answered.
        error: io::Error,
    },
}

impl DaemonError {
    /// Whether the kernel did less than it was asked for, by EAGAIN.
    pub(crate) fn is_partial(&self) -> bool {
        let less = std::io::ErrorKind::WouldBlock;
        matches!(self, Self::File { error, .. } if error.kind() == less)
    }

    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Config { .. } => "mend that line; docs/daemon.md has every key",
            Self::Names { .. } => {
                "give cgroup_names_file a regular file of 1 MiB at most, one name a line; a link may lead to a file of its own folder, relatively"
            }
            Self::ConfigFile { error, .. } if is_no_text(error.kind()) => {
                "look whether the path is right; --config FILE names the configuration"
            }
            Self::ConfigFile { .. } => "be root, or name a file that you may read",
            Self::File { .. } | Self::NotRestored { .. } => {
                "be root, with /sys and /run that can be written to"
            }
            Self::Topology(_) => "mount /proc and /sys in this container",
            Self::OneTier => {
                "`memferry doctor --for daemon` says why slower memory is not seen as such"
            }
            Self::Taken { .. } => {
                "end it first: `systemctl stop memferry` ends a daemon; `memferry kernel status` shows what benchmarks left behind"
            }
            Self::NoSource {
                source_name: "auto",
                ..
            } => {
                "be root, on a kernel with CONFIG_DAMON_SYSFS, as Debian's is; or, if the kernel may move pages of the whole host, set source = \"numa-balancing\""
            }
            Self::Unasked { .. } => {
                "start it, as by `systemctl start memferry`, and ask as root; `memferry top` says whether one runs"
            }
            Self::Unknown { .. } => {
                "give the number of a process of 16 MiB or more that a group takes, or the name of a group"
            }
            Self::NoSource { .. } => {
                "set source = \"auto\" to take what there is, or free the named one"
            }
        }
    }
}

/// There is no file of text.
fn is_no_text(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotFound};
    matches!(kind, NotFound | IsADirectory | InvalidData)
}

/// Ties an error to a path.
pub(crate) fn file(
    path: impl Into<PathBuf>,
    what: &'static str,
) -> impl FnOnce(io::Error) -> DaemonError {
    let path = path.into();
    move |error| DaemonError::File { path, what, error }
}
