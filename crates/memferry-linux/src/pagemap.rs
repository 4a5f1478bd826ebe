// SPDX-License-Identifier: MIT OR Apache-2.0
//! /proc/PID/pagemap: a read-only look at page tables, by PAGEMAP_SCAN (Linux 6.7) or page by page.

use crate::check;
use crate::give_way::GiveWay;
use linux_raw_sys::general as raw;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    ((3u32 << 30) | ((size_of::<raw::pm_scan_arg>() as u32) << 16) | ((b'f' as u32) << 8) | 16)
        as libc::c_ulong;
const _: () = assert!(PAGEMAP_SCAN == 0xc060_6610);

/// A run of pages of one kind. Laid out as the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Address of the first page.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// [`PRESENT`], [`HUGE`], [`ZERO`] and [`SWAPPED`], as they apply.
    pub categories: u64,
}
const _: () = assert!(size_of::<Region>() == size_of::<raw::page_region>());

/// The page is in memory.
pub const PRESENT: u64 = raw::PAGE_IS_PRESENT as u64;
/// It is part of a PMD-mapped huge page.
pub const HUGE: u64 = raw::PAGE_IS_HUGE as u64;
/// It is the kernel's shared zero page: no memory of its own.
pub const ZERO: u64 = raw::PAGE_IS_PFNZERO as u64;
/// It is swapped out.
pub const SWAPPED: u64 = raw::PAGE_IS_SWAPPED as u64;

/// The page tables of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Those of this process.
    ///
    /// # Errors
    /// Cannot be opened: no /proc.
    pub fn open() -> io::Result<Pagemap> {
        Pagemap::of(Path::new("/proc/self"))
    }

    /// Those of the process with this folder below /proc, as far as this process may look at it.
    ///
    /// # Errors
    /// No such process, or it may not be looked at.
    pub fn of(process: &Path) -> io::Result<Pagemap> {
        Ok(Pagemap {
            file: File::open(process.join("pagemap"))?,
        })
    }

    /// The same, if the kernel has PAGEMAP_SCAN.
    pub fn with_scan(process: &Path) -> Option<Pagemap> {
        let pagemap = Pagemap::of(process).ok()?;
        let scans = pagemap.scan(0, 0, &mut [Region::default()]).is_ok();
        scans.then_some(pagemap)
    }

    /// Fills `out` with the runs of present or swapped pages in `start .. end`, ascending, each with its categories;
    /// returns how many runs there are and the address up to which the walk came.
    ///
    /// # Errors
    /// The kernel has no PAGEMAP_SCAN, or the process may not be looked at.
    pub fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        self.scan_up_to(0, start, end, out)
    }

    /// Address of the first present or swapped page in `start .. end`.
    ///
    /// # Errors
    /// As [`scan`](Pagemap::scan).
    pub fn first(&self, start: usize, end: usize) -> io::Result<Option<usize>> {
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
        let runs = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        Ok((check(runs)? as usize, arg.walk_end as usize))
    }

    /// Whether the range is one PMD-mapped huge page, or several.
    ///
    /// # Errors
    /// As [`scan`](Pagemap::scan).
    pub fn is_huge(&self, addr: usize, len: usize) -> io::Result<bool> {
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

/// The page tables of a process: PAGEMAP_SCAN jumps over what is empty; older kernels tell page by page.
#[derive(Debug)]
pub struct Pages {
    way: Way,
    pauses: GiveWay,
}

#[derive(Debug)]
enum Way {
    Scan(Pagemap),
    Read(File),
}

/// Bytes of an entry of /proc/PID/pagemap.
const ENTRY: usize = 8;
/// The page is in memory (bit 63 of an entry of /proc/PID/pagemap).
const ENTRY_PRESENT: u64 = 1 << 63;
/// It is mapped once, by this process (bit 56).
const ENTRY_EXCLUSIVE: u64 = 1 << 56;
/// Addresses that one call looks at: the process can map and unmap nothing meanwhile, some 50 us for base pages.
const AT_ONCE: usize = 16 << 20;

impl Pages {
    /// Those of the process with this folder below /proc.
    ///
    /// # Errors
    /// No such process, or it may not be looked at.
    pub fn of(process: &Path) -> io::Result<Pages> {
        let way = match Pagemap::with_scan(process) {
            Some(pagemap) => Way::Scan(pagemap),
            None => Way::Read(Pagemap::of(process)?.file),
        };
        Ok(Pages::by(way))
    }

    fn by(way: Way) -> Pages {
        let pauses = GiveWay::default();
        Pages { way, pauses }
    }

    /// Hands on the runs of present pages in `range`, ascending; the shared zero page is none where the kernel tells it apart. A
    /// long run may come in parts.
    ///
    /// # Errors
    /// The process may not be looked at any more.
    pub fn each_run(
        &self,
        range: &Range<usize>,
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        let mut range = range.clone();
        while range.start < range.end {
            let stop = range.end.min((range.start / AT_ONCE + 1) * AT_ONCE);
            let part = range.start..stop;
            let end = match &self.way {
                Way::Scan(pagemap) => scan(pagemap, part, found)?,
                Way::Read(file) => read(file, part, found)?,
            };
            // A walk that does not advance has nothing more to tell: the process has ended, or the range lies beyond its addresses.
            if end <= range.start {
                break;
            }
            range.start = end;
            self.pauses.between_calls();
        }
        Ok(())
    }

    /// Of the pages of a range, which are in memory and mapped by nobody else.
    ///
    /// # Errors
    /// The process may not be looked at any more.
    pub fn exclusive(&self, range: &Range<usize>) -> io::Result<Vec<bool>> {
        let (Way::Scan(Pagemap { file }) | Way::Read(file)) = &self.way;
        self.pauses.between_calls();
        let page = rustix::param::page_size();
        let mut entries = vec![0; range.len() / page * ENTRY];
        let got = file.read_at(&mut entries, (range.start / page * ENTRY) as u64)?;
        let bits = ENTRY_PRESENT | ENTRY_EXCLUSIVE;
        let is_exclusive = |entry: &[u8]| {
            let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
            entry & bits == bits
        };
        Ok(entries[..got]
            .chunks_exact(ENTRY)
            .map(is_exclusive)
            .collect())
    }
}

/// One call; returns up to where it looked.
fn scan(
    pagemap: &Pagemap,
    range: Range<usize>,
    found: &mut dyn FnMut(Range<usize>),
) -> io::Result<usize> {
    let mut regions = [Region::default(); 512];
    let (count, end) = pagemap.scan(range.start, range.end, &mut regions)?;
    for region in &regions[..count] {
        if region.categories & (PRESENT | ZERO) == PRESENT {
            found(region.start as usize..region.end as usize);
        }
    }
    Ok(end)
}

/// One call; returns up to where it looked.
fn read(
    file: &File,
    range: Range<usize>,
    found: &mut dyn FnMut(Range<usize>),
) -> io::Result<usize> {
    let page = rustix::param::page_size();
    let mut bytes = vec![0; range.len() / page * 8];
    let got = file.read_at(&mut bytes, (range.start / page * 8) as u64)? / 8;
    let entries = bytes[..got * 8].chunks_exact(8).enumerate();
    let present = |entry: &[u8]| {
        let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
        entry & ENTRY_PRESENT != 0
    };
    let mut run: Option<Range<usize>> = None;
    for (index, _) in entries.filter(|(_, entry)| present(entry)) {
        let start = range.start + index * page;
        match &mut run {
            Some(run) if run.end == start => run.end += page,
            _ => {
                run.replace(start..start + page)
                    .into_iter()
                    .for_each(&mut *found);
            }
        }
    }
    run.into_iter().for_each(&mut *found);
    Ok(range.start + got * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Across the borders of calls, in both ways, each page is found once.
    #[test]
    fn runs_over_several_calls_are_whole() {
        let page = rustix::param::page_size();
        let len = 4 * AT_ONCE;
        // SAFETY: a new mapping, of which only pages within it are written, and which is unmapped at the end.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
            at as usize
        };
        let border = start.next_multiple_of(AT_ONCE) + AT_ONCE;
        let mut wanted = vec![start, start + len - page];
        wanted.extend((0..8).map(|index| border - 4 * page + index * page));
        wanted.push(border + AT_ONCE);
        for at in &wanted {
            // SAFETY: within the mapping.
            unsafe { (*at as *mut u8).write_volatile(1) };
        }
        wanted.sort_unstable();
        wanted.dedup();
        let process = Path::new("/proc/self");
        let read = Way::Read(File::open(process.join("pagemap")).unwrap());
        for pages in [Pages::of(process).unwrap(), Pages::by(read)] {
            let mut found = Vec::new();
            let mut add = |run: Range<usize>| found.extend(run.step_by(page));
            pages.each_run(&(start..start + len), &mut add).unwrap();
            assert_eq!(found, wanted, "{pages:?}");
        }
        // SAFETY: the mapping from above, of which no reference is left.
        unsafe { libc::munmap(start as *mut libc::c_void, len) };
    }
}
