// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap, madvise, mlock2: anonymous mappings that the library owns, and advice on any range.

use super::list::{List, Pages, read_file};
use super::{check, page_size};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;

/// An anonymous private mapping of this process, unmapped when dropped.
///
/// It is never inherited by a child process (MADV_DONTFORK), so its pages stay exclusive to this process, which
/// UFFDIO_MOVE demands.
#[derive(Debug)]
pub(crate) struct Mapping {
    addr: usize,
    len: usize,
    owner: u32,
}

impl Mapping {
    /// Maps `len` bytes, readable and writable, at a multiple of `align` (a power of two, at least a page). No memory is
    /// committed yet.
    pub(crate) fn new(len: usize, align: usize) -> io::Result<Mapping> {
        debug_assert!(align.is_power_of_two() && align >= page_size() && len % page_size() == 0);
        let padded = len
            .checked_add(align)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let start = map_somewhere(padded)?.as_ptr().expose_provenance();
        let addr = (start + align - 1) & !(align - 1);
        // At least one page stays unmapped on some side, which keeps neighbours from merging into one VMA; each
        // arena then has an anon_vma lock of its own.
        for (from, to) in [(start, addr), (addr + len, start + padded)] {
            if to > from {
                // SAFETY: both ends lie inside the mapping made above, which nobody else knows yet.
                unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
            }
        }
        let mapping = Mapping {
            addr,
            len,
            owner: super::process::generation(),
        };
        dont_fork(addr, len)?;
        Ok(mapping)
    }

    /// Gives all its pages back to the kernel.
    pub(crate) fn empty(&self) -> io::Result<()> {
        // mlockall(MCL_FUTURE) has locked it, and discards nothing that is locked.
        unlock(self.addr, self.len)?;
        // SAFETY: the range belongs to this value alone, and nobody refers to its contents.
        unsafe { discard(self.addr, self.len) }
    }

    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.len
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child did not inherit the mapping; what lies there in the child is not ours.
        if self.owner != super::process::generation() {
            return;
        }
        // SAFETY: the range was mapped by `new` and is owned by this value alone.
        unsafe { libc::munmap(self.addr as *mut libc::c_void, self.len) };
    }
}

/// Asks mincore(2) about as many pages from `start` on as `pages` has room for.
pub(crate) fn residency(start: usize, pages: &mut [u8]) -> io::Result<()> {
    let bytes = pages.len() * page_size();
    // SAFETY: the kernel writes one byte for each page, and only looks at these.
    check(unsafe { libc::mincore(start as *mut libc::c_void, bytes, pages.as_mut_ptr()) }).map(drop)
}

/// mmap(2) of anonymous private memory, readable and writable.
///
/// # Safety
/// With MAP_FIXED among the flags, nobody refers to what lies at `addr`.
unsafe fn map(addr: usize, len: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    // SAFETY: at an address that the kernel chooses it overlaps nothing; else the caller's promise.
    let raw = unsafe { libc::mmap(addr as *mut libc::c_void, len, prot, flags, -1, 0) };
    let mapped = NonNull::new(raw.cast()).filter(|_| raw != libc::MAP_FAILED);
    mapped.ok_or_else(io::Error::last_os_error)
}

/// Maps `len` bytes where the kernel likes. No memory is committed yet.
pub(super) fn map_somewhere(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address the kernel chooses overlaps nothing.
    unsafe { map(0, len, 0) }
}

/// Puts a fresh anonymous mapping, without pages and page tables, in the place of a part of a `Mapping`.
///
/// # Safety
/// The range is a part of a `Mapping` of the caller's and holds nothing of worth.
pub(crate) unsafe fn map_anew(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { map(addr, len, libc::MAP_FIXED)? };
    dont_fork(addr, len)
}

/// Takes `from` to `to`, both a test's own. DONTUNMAP keeps other threads from mapping something there.
#[cfg(test)]
pub(crate) fn remap(from: &Range<usize>, to: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let (start, len, target) = (from.start as *mut _, from.len(), to as *mut libc::c_void);
    // SAFETY: both ranges are the test's own.
    let moved = unsafe { libc::mremap(start, len, len, flags, target) };
    assert_eq!(moved as usize, to);
}

/// madvise(2) on a range.
///
/// # Safety
/// The range is the caller's own and may lose its contents, unless the advice keeps them.
pub(crate) unsafe fn madvise(addr: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the caller's promise.
    check(unsafe { libc::madvise(addr as *mut libc::c_void, len, advice) }).map(drop)
}

fn dont_fork(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: contents stay.
    unsafe { madvise(addr, len, libc::MADV_DONTFORK) }
}

/// Whether a range gets THPs (MADV_HUGEPAGE, MADV_NOHUGEPAGE).
pub(crate) fn advise_thps(addr: usize, len: usize, wanted: bool) -> io::Result<()> {
    let advice = match wanted {
        true => libc::MADV_HUGEPAGE,
        false => libc::MADV_NOHUGEPAGE,
    };
    // SAFETY: contents stay.
    unsafe { madvise(addr, len, advice) }
}

/// Allocates and maps every page of a range that has none (MADV_POPULATE_WRITE, Linux 5.14).
pub(crate) fn populate(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: contents stay.
    unsafe { madvise(addr, len, libc::MADV_POPULATE_WRITE) }
}

/// Gives the pages of a range back to the kernel; the range stays mapped and empty.
///
/// # Safety
/// The range is the caller's own, and its contents may go.
pub(crate) unsafe fn discard(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { madvise(addr, len, libc::MADV_DONTNEED) }
}

/// Locks a range as its pages appear (mlock2 with MLOCK_ONFAULT), populating nothing.
pub(crate) fn lock_on_fault(addr: usize, len: usize) -> io::Result<()> {
    const MLOCK_ONFAULT: libc::c_uint = linux_raw_sys::general::MLOCK_ONFAULT;
    // SAFETY: locking changes no contents.
    check(unsafe { libc::syscall(libc::SYS_mlock2, addr, len, MLOCK_ONFAULT) } as libc::c_int)
        .map(drop)
}

/// Unlocks a range.
pub(crate) fn unlock(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: unlocking changes no contents.
    check(unsafe { libc::munlock(addr as *const libc::c_void, len) }).map(drop)
}

/// Whether any memory of this process is locked, by /proc/self/status. If that cannot be read, it may be.
pub(crate) fn any_locked() -> bool {
    let status = read_file(Path::new("/proc/self/status"));
    let status = status.unwrap_or_else(|_| List::new_in(Pages));
    let mut lines = status.split(|&byte| byte == b'\n');
    let locked = lines.find_map(|line| line.strip_prefix(b"VmLck:"));
    locked.is_none_or(|value| value.trim_ascii() != b"0 kB")
}
