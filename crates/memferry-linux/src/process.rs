// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another process by a descriptor (pidfd_open, Linux 5.3), which never names a later process of the same number.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a process.
///
/// # Errors
/// There is none of this number, it is a thread that does not lead its process, or the kernel is older.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor was opened just now and belongs to nobody else.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

/// Whether the process has ended, waited for or not.
///
/// # Errors
/// Those of poll(2).
pub fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one pollfd; it does not wait.
    match unsafe { libc::poll(&raw mut poll, 1, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}
