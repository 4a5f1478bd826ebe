// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a benchmark moves: mapped, warmed up, filled with words that tell where they belong, and checked.
//!
//! It measures nothing.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A PMD-mapped THP on x86 and on arm64 with 4 KiB pages.
pub const THP: usize = crate::schema::THP_BYTES;
/// A base page where the benchmarks run; checked against the topology before anything is mapped.
pub const PAGE: usize = 4096;
/// What one thread fills or checks at a time.
const PART: usize = 8 << 20;

/// Anonymous private memory of one page size.
pub struct Region {
    start: usize,
    len: usize,
    /// Salt of the last [`Region::fill`].
    salt: u64,
    mapping: Range<usize>,
}

impl Region {
    /// Maps `len` bytes (a multiple of 2 MiB) and touches every page, as THPs or as base pages.
    ///
    /// First touch is slow on a virtual machine, where the host may have to find the memory: it is never timed.
    pub fn new(len: usize, huge: bool, threads: usize) -> io::Result<Region> {
        let padded = len + THP;
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = raw as usize..raw as usize + padded;
        let mut region = Region {
            start: mapping.start.next_multiple_of(THP),
            len,
            salt: 0,
            mapping,
        };
        let advice = if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: the advice keeps contents. Kernels without THP refuse it and have only base pages, which
        // `is_made_of` finds out.
        unsafe { libc::madvise(region.start as *mut libc::c_void, len, advice) };
        region.fill(threads);
        Ok(region)
    }

    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The first `len` bytes.
    pub fn head(&self, len: usize) -> Range<usize> {
        self.start..self.start + len.min(self.len)
    }

    /// Writes new words everywhere; no page holds what any page held before.
    pub fn fill(&mut self, threads: usize) {
        self.salt += 1;
        let (start, salt) = (self.start, self.salt);
        in_parts(self.len, threads, &|part| {
            for at in part.step_by(8) {
                // SAFETY: `at` lies in the mapping, and parts are disjoint.
                unsafe { ((start + at) as *mut u64).write(word(at, salt)) };
            }
        });
    }

    /// Compares the first `len` bytes with what [`Region::fill`] wrote; gives the offset of the first wrong word.
    pub fn check(&self, len: usize, threads: usize) -> Result<u64, usize> {
        let wrong = AtomicU64::new(u64::MAX);
        let (start, salt) = (self.start, self.salt);
        in_parts(len, threads, &|part| {
            for at in part.step_by(8) {
                // SAFETY: `at` lies in the mapping, which nobody writes now.
                if unsafe { ((start + at) as *const u64).read() } != word(at, salt) {
                    wrong.fetch_min(at as u64, Ordering::Relaxed);
                    return;
                }
            }
        });
        match wrong.into_inner() {
            u64::MAX => Ok(len as u64),
            at => Err(at as usize),
        }
    }

    /// Whether all pages of it are THPs (`huge`) or none is, by /proc/self/smaps.
    pub fn is_made_of(&self, huge: bool) -> io::Result<bool> {
        let smaps = std::fs::read_to_string("/proc/self/smaps")?;
        let mut inside = false;
        let mut kib = 0;
        for line in smaps.lines() {
            let header = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            if let Some((Ok(start), Ok(end))) =
                header.map(|(s, e)| (usize::from_str_radix(s, 16), usize::from_str_radix(e, 16)))
            {
                inside = start < self.start + self.len && self.start < end;
            } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
                kib += value
                    .trim()
                    .trim_end_matches(" kB")
                    .trim()
                    .parse::<usize>()
                    .unwrap_or(0);
            }
        }
        Ok(kib << 10 == if huge { self.len } else { 0 })
    }

    /// Physical page numbers, one per 2 MiB of the first `len` bytes; `None` without the privilege to see them.
    pub fn frames(&self, len: usize) -> Option<Vec<u64>> {
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        let frames: Option<Vec<u64>> = (0..len)
            .step_by(THP)
            .map(|at| {
                let mut entry = [0; 8];
                pagemap
                    .read_exact_at(&mut entry, ((self.start + at) / PAGE * 8) as u64)
                    .ok()?;
                Some(u64::from_ne_bytes(entry) & ((1 << 55) - 1))
            })
            .collect();
        frames.filter(|frames| frames.iter().any(|&frame| frame != 0))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.mapping.start as *mut libc::c_void, self.mapping.len()) };
    }
}

/// The word at offset `at`: differs between places and between fills, so that neither a page in a wrong place nor a
/// stale one passes.
fn word(at: usize, salt: u64) -> u64 {
    // The odd constant is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4): it spreads neighbours.
    (at as u64 ^ salt << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Runs `work` over `0..len` in parts of whole pages, on `threads` threads that all get some of a small `len`.
pub fn in_parts(len: usize, threads: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let part = (len.div_ceil(threads).next_multiple_of(PAGE)).min(PART);
    let next = AtomicU64::new(0);
    let worker = || {
        loop {
            let at = next.fetch_add(part as u64, Ordering::Relaxed) as usize;
            if at >= len {
                return;
            }
            work(at..(at + part).min(len));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_and_a_stale_page_are_found() {
        let mut region = Region::new(THP, false, 2).unwrap();
        assert_eq!(region.check(THP, 2), Ok(THP as u64));
        let byte = (region.start + 123_457) as *mut u8;
        // SAFETY: inside the region, and nobody else uses it.
        unsafe { *byte ^= 1 };
        assert_eq!(region.check(THP, 1), Err(123_456));
        region.fill(1);
        // SAFETY: as above; the page is put back as it was before the next fill.
        let stale = unsafe { std::slice::from_raw_parts(region.start as *const u8, PAGE) }.to_vec();
        region.fill(1);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(stale.as_ptr(), region.start as *mut u8, PAGE) };
        assert_eq!(region.check(THP, 1), Err(0));
    }

    #[test]
    fn the_page_size_is_what_was_asked_for() {
        assert!(
            Region::new(2 * THP, false, 1)
                .unwrap()
                .is_made_of(false)
                .unwrap()
        );
    }
}
