// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another process by a descriptor (pidfd_open, Linux 5.3), which never names a later process of the same number; the
//! release of the kernel, and which process of a family this one is.

use super::{check, check_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts forks on the way down from the first process: a value made before a fork is foreign after it.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that set up the first [`Mover`](crate::Mover) and this one. A mover that was
/// made at another count belongs to a parent, and its threads and locks are not here: neither use nor drop it.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// This is a child of fork.
pub(crate) fn note_fork() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Opens a process; a thread that does not lead its process is refused.
pub(crate) fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the descriptor was opened just now and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether the process has ended, waited for or not.
pub(crate) fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one pollfd; it does not wait.
    check(unsafe { libc::poll(&raw mut poll, 1, 0) }).map(|ready| ready > 0)
}

/// The kernel's release (uname(2)), such as `6.12.57+deb13-amd64`.
pub(crate) fn kernel_release() -> String {
    // SAFETY: zeroes are a `utsname`, the kernel writes one, and its strings end with a zero.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut name);
        name
    };
    let text = name.release.iter().take_while(|c| **c != 0);
    text.map(|c| char::from(*c as u8)).collect()
}
