// SPDX-License-Identifier: MIT OR Apache-2.0
//! What move_pages(2) says of single pages, in words.

/// Why a page stayed, as mm/migrate.c of Linux 6.12 says it of single pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Other processes map it too (EACCES).
    Shared,
    /// The kernel was using it, or it was pinned (EBUSY).
    Busy,
    /// The target node had no free page (ENOMEM).
    NoMemory,
    /// It is a changed page of a file and could not be written back (EIO).
    WriteBack,
    /// The file system cannot move it while it is changed (EINVAL).
    FileSystem,
    /// The target node is gone (ENODEV).
    NoNode,
    /// The process may not be looked at any more (EPERM).
    NotPermitted,
    /// The kernel gave up after ten tries (EAGAIN).
    GaveUp,
    /// An errno that move_pages(2) is not known to give.
    Other(i32),
}

impl Reason {
    /// Of an errno (positive).
    pub fn of(errno: i32) -> Reason {
        match errno {
            libc::EACCES => Reason::Shared,
            libc::EBUSY => Reason::Busy,
            libc::ENOMEM => Reason::NoMemory,
            libc::EIO => Reason::WriteBack,
            libc::EINVAL => Reason::FileSystem,
            libc::ENODEV => Reason::NoNode,
            libc::EPERM => Reason::NotPermitted,
            libc::EAGAIN => Reason::GaveUp,
            other => Reason::Other(other),
        }
    }

    /// The kernel's number (positive).
    pub fn errno(self) -> i32 {
        match self {
            Reason::Shared => libc::EACCES,
            Reason::Busy => libc::EBUSY,
            Reason::NoMemory => libc::ENOMEM,
            Reason::WriteBack => libc::EIO,
            Reason::FileSystem => libc::EINVAL,
            Reason::NoNode => libc::ENODEV,
            Reason::NotPermitted => libc::EPERM,
            Reason::GaveUp => libc::EAGAIN,
            Reason::Other(errno) => errno,
        }
    }

    /// The errno's name; `errno` for another one.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it means for a page.
    pub fn why(self) -> &'static str {
        self.words().1
    }

    /// What to try.
    pub fn next(self) -> &'static str {
        self.words().2
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Reason::Shared => (
                "EACCES",
                "other processes map them too",
                "move shared pages as well, as root",
            ),
            Reason::Busy => (
                "EBUSY",
                "in use by the kernel or pinned for I/O at that moment",
                "try again later",
            ),
            Reason::NoMemory => (
                "ENOMEM",
                "the target node has no free page",
                "free memory there, or choose another node",
            ),
            Reason::WriteBack => (
                "EIO",
                "changed pages of a file that cannot be written back",
                "sync, then try again",
            ),
            Reason::FileSystem => (
                "EINVAL",
                "the file system cannot move them while they are changed",
                "sync, then try again",
            ),
            Reason::NoNode => ("ENODEV", "the target node is gone", "choose another node"),
            Reason::NotPermitted => (
                "EPERM",
                "the process may not be looked at any more",
                "be root",
            ),
            Reason::GaveUp => (
                "EAGAIN",
                "the kernel gave up after ten tries",
                "try again later",
            ),
            Reason::Other(_) => (
                "errno",
                "not documented for pages",
                "see the kernel's log: dmesg",
            ),
        }
    }
}
