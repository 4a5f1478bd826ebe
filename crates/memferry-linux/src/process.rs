// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another process by a descriptor (pidfd_open, Linux 5.3), which never names a later process of the same number.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;

/// Opens a process.
///
/// # Errors
/// There is none of this number, it is a thread that does not lead its process, or the kernel is older.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Some(pid).filter(|&pid| pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether the process has ended, waited for or not.
///
/// # Errors
/// Those of poll(2).
pub fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
}
