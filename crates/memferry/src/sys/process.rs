// SPDX-License-Identifier: MIT OR Apache-2.0
//! The release of the kernel, and which process of a family this one is.

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

/// The kernel's release (uname(2)), such as `6.12.57+deb13-amd64`.
pub(crate) fn kernel_release() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}
