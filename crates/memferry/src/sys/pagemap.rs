// SPDX-License-Identifier: MIT OR Apache-2.0
//! /proc/PID/pagemap's PAGEMAP_SCAN (Linux 6.7): a read-only look at page tables.

use super::check;
use linux_raw_sys::general as raw;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    ((3u32 << 30) | ((size_of::<raw::pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16)
        as libc::c_ulong;
const _: () = assert!(PAGEMAP_SCAN == 0xc060_6610);

/// A run of pages of one kind. Laid out as the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}
const _: () = assert!(size_of::<Region>() == size_of::<raw::page_region>());

/// The page is in memory.
pub(crate) const PRESENT: u64 = raw::PAGE_IS_PRESENT as u64;
/// It is part of a PMD-mapped huge page.
pub(crate) const HUGE: u64 = raw::PAGE_IS_HUGE as u64;
/// It is the kernel's shared zero page: no memory of its own.
pub(crate) const ZERO: u64 = raw::PAGE_IS_PFNZERO as u64;
/// It is swapped out.
pub(crate) const SWAPPED: u64 = raw::PAGE_IS_SWAPPED as u64;

/// The page tables of a process.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Those of this process.
    pub(crate) fn open() -> io::Result<Pagemap> {
        Pagemap::of(Path::new("/proc/self"))
    }

    /// Those of the process with this folder below /proc, as far as this process may look at it.
    pub(crate) fn of(process: &Path) -> io::Result<Pagemap> {
        Ok(Pagemap {
            file: File::open(process.join("pagemap"))?,
        })
    }

    /// Fills `out` with the runs of present or swapped pages in `start .. end`, ascending, each with its categories;
    /// returns how many runs there are and the address up to which the walk came.
    pub(crate) fn scan(
        &self,
        start: usize,
        end: usize,
        out: &mut [Region],
    ) -> io::Result<(usize, usize)> {
        self.scan_up_to(0, start, end, out)
    }

    /// Address of the first present or swapped page in `start .. end`.
    pub(crate) fn first(&self, start: usize, end: usize) -> io::Result<Option<usize>> {
        let mut region = [Region::default()];
        let (count, _) = self.scan_up_to(1, start, end, &mut region)?;
        Ok((count > 0).then_some(region[0].start as usize))
    }

    /// A scan that ends after so many pages; 0: at the end.
    fn scan_up_to(
        &self,
        pages: u64,
        start: usize,
        end: usize,
        out: &mut [Region],
    ) -> io::Result<(usize, usize)> {
        let mut arg = raw::pm_scan_arg {
            size: size_of::<raw::pm_scan_arg>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vec: out.as_mut_ptr() as u64,
            vec_len: out.len() as u64,
            max_pages: pages,
            category_inverted: 0,
            category_mask: 0,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: PRESENT | SWAPPED | HUGE | ZERO,
        };
        // SAFETY: the kernel reads and writes one `pm_scan_arg` and writes at most `vec_len` regions to `out`.
        let runs =
            check(unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) })?;
        Ok((runs as usize, arg.walk_end as usize))
    }

    /// Whether the range is one PMD-mapped huge page, or several.
    pub(crate) fn is_huge(&self, addr: usize, len: usize) -> io::Result<bool> {
        let mut region = [Region::default()];
        let (count, _) = self.scan(addr, addr + len, &mut region)?;
        let [
            Region {
                start,
                end,
                categories,
            },
        ] = region;
        Ok(count == 1
            && categories & (PRESENT | HUGE) == PRESENT | HUGE
            && (start as usize, end as usize) == (addr, addr + len))
    }
}
