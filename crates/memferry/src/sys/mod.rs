// SPDX-License-Identifier: MIT OR Apache-2.0
//! All raw system calls of the library, one file per subsystem of the kernel.
//!
//! Each function wraps one call, keeps the kernel's meaning and returns `io::Error`; it decides nothing.

pub(crate) mod heap;
pub(crate) mod list;
pub(crate) mod loaded;
pub(crate) mod memory;
pub(crate) mod own;
pub(crate) mod process;
pub(crate) mod thread;
pub(crate) mod uffd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;

/// Base page of this process, bytes: starts and lengths of ranges are multiples of it.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Whether a descriptor can be read from at this moment.
pub(crate) fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Turns a -1 of libc into the error that errno holds.
pub(crate) fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}

/// The errno of an error that came from a system call; EIO for one that did not.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
