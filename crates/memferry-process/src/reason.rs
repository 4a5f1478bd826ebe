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

/// Each reason, its errno and that one's name, what it means for a page, and what to try.
type Words = (Reason, i32, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const WORDS: [Words; 8] = [
    (Reason::Shared, libc::EACCES, "EACCES",
        "other processes map them too", "move shared pages as well, as root"),
    (Reason::Busy, libc::EBUSY, "EBUSY",
        "in use by the kernel or pinned for I/O at that moment", "try again later"),
    (Reason::NoMemory, libc::ENOMEM, "ENOMEM",
        "the target node has no free page", "free memory there, or choose another node"),
    (Reason::WriteBack, libc::EIO, "EIO",
        "changed pages of a file that cannot be written back", "sync, then try again"),
    (Reason::FileSystem, libc::EINVAL, "EINVAL",
        "the file system cannot move them while they are changed", "sync, then try again"),
    (Reason::NoNode, libc::ENODEV, "ENODEV",
        "the target node is gone", "choose another node"),
    (Reason::NotPermitted, libc::EPERM, "EPERM",
        "the process may not be looked at any more", "be root"),
    (Reason::GaveUp, libc::EAGAIN, "EAGAIN",
        "the kernel gave up after ten tries", "try again later"),
];

impl Reason {
    /// Of an errno (positive).
    pub fn of(errno: i32) -> Reason {
        let known = WORDS.iter().find(|words| words.1 == errno);
        known.map_or(Reason::Other(errno), |words| words.0)
    }

    /// The kernel's number (positive).
    pub fn errno(self) -> i32 {
        match self {
            Reason::Other(errno) => errno,
            known => known.words().1,
        }
    }

    /// The errno's name; `errno` for another one.
    pub fn name(self) -> &'static str {
        self.words().2
    }

    /// What it means for a page.
    pub fn why(self) -> &'static str {
        self.words().3
    }

    /// What to try.
    pub fn next(self) -> &'static str {
        self.words().4
    }

    fn words(self) -> Words {
        let known = WORDS.into_iter().find(|words| words.0 == self);
        let (why, next) = ("not documented for pages", "see the kernel's log: dmesg");
        known.unwrap_or((self, 0, "errno", why, next))
    }
}
