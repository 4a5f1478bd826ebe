// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that costs nothing until something is stored there.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Zeroes to keep numbers in: an anonymous private mapping, unmapped when dropped. It lies beside its neighbours, so
/// that thousands of them are few mappings to the kernel, and a forked child has a copy of it.
#[derive(Debug)]
pub(super) struct Zeroes {
    start: NonNull<u64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value alone, and is given out only as atomics.
unsafe impl Send for Zeroes {}
// SAFETY: as above.
unsafe impl Sync for Zeroes {}

impl Zeroes {
    /// Maps `len` bytes. No memory is committed yet.
    pub(super) fn new(len: usize) -> io::Result<Zeroes> {
        debug_assert!(len > 0);
        // SAFETY: an anonymous mapping at an address the kernel chooses overlaps nothing.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(raw.cast()) {
            Some(start) if raw != libc::MAP_FAILED => Ok(Zeroes {
                start,
                words: len / size_of::<u64>(),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is readable, writable, aligned to a page, zero at first, of so many words, and lives as
        // long as this value; nobody has it but as these atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }
}

impl Drop for Zeroes {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is owned by this value alone; a forked child unmaps its copy.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}
