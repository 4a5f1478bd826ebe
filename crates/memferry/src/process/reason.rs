// SPDX-License-Identifier: MIT OR Apache-2.0
//! What move_pages(2) says of single pages, in words.

/// Why a page stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The errno's name; `errno` for one that move_pages(2) is not known to give.
    pub name: &'static str,
    /// What it means for a page.
    pub why: &'static str,
    /// What to try.
    pub next: &'static str,
}

impl Reason {
    /// The words for an errno (positive), as mm/migrate.c of Linux 6.12 gives it for single pages.
    pub fn of(errno: i32) -> Reason {
        let (name, why, next) = match errno {
            libc::EACCES => (
                "EACCES",
                "other processes map them too",
                "move shared pages as well, as root",
            ),
            libc::EBUSY => (
                "EBUSY",
                "in use by the kernel or pinned for I/O at that moment",
                "try again later",
            ),
            libc::ENOMEM => (
                "ENOMEM",
                "the target node has no free page",
                "free memory there, or choose another node",
            ),
            libc::EIO => (
                "EIO",
                "changed pages of a file that cannot be written back",
                "sync, then try again",
            ),
            libc::EINVAL => (
                "EINVAL",
                "the file system cannot move them while they are changed",
                "sync, then try again",
            ),
            libc::ENODEV => ("ENODEV", "the target node is gone", "choose another node"),
            libc::EPERM => (
                "EPERM",
                "the process may not be looked at any more",
                "be root",
            ),
            libc::EAGAIN => (
                "EAGAIN",
                "the kernel gave up after ten tries",
                "try again later",
            ),
            _ => (
                "errno",
                "not documented for pages",
                "see the kernel's log: dmesg",
            ),
        };
        Reason { name, why, next }
    }
}
