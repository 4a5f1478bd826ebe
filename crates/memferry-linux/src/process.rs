// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another process: by a descriptor (pidfd_open, Linux 5.3), which never names a later process of the same number, and by what
//! /proc says of it.

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

/// User and system time of a process by its /proc/PID/stat.
pub fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name stands in brackets and can hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
