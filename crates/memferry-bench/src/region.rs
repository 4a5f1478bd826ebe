// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a benchmark moves: mapped, warmed up, filled with words that tell where they belong, and checked.
//!
//! It measures nothing.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::threads;

/// A PMD-mapped THP on x86 and on arm64 with 4 KiB pages.
pub const THP: usize = crate::schema::THP_BYTES;
/// A base page where the benchmarks run; checked against the topology before anything is mapped.
pub const PAGE: usize = 4096;
/// A cache line where the benchmarks run.
pub const LINE: usize = 64;
/// More than any run counts in one line, and less than the difference between the words of two places.
const MOST_COUNTED: u64 = 1 << 40;
/// Mappings that memory is cut into at a time: a quarter of what a process may have (vm.max_map_count by default).
const PIECES: usize = 1 << 14;
/// What one thread fills or checks at a time.
const PART: usize = 8 << 20;

/// Memory of one page size: anonymous and private, but for [`Region::of_file`].
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
        let mut region = Region::map(len)?;
        region.advise(0..len, page_advice(huge));
        region.fill(threads);
        Ok(region)
    }

    /// Maps `len` bytes (a multiple of 2 MiB) on a node and touches every page, as folios of `folio` bytes as far as the
    /// kernel gives them.
    pub fn on(node: u32, len: usize, folio: usize, threads: usize) -> io::Result<Region> {
        let mut region = Region::map(len)?;
        memferry_linux::numa::prefer(&region.range(), node)?;
        if folio == PAGE || folio == THP {
            region.advise(0..len, page_advice(folio == THP));
            region.fill(threads);
            return Ok(region);
        }
        // A fault gives the largest enabled size that fits into its mapping. So the mapping is cut into pieces of one folio
        // while it is filled, by a flag that does nothing else. It has been touched before, so that the pieces share one
        // anon_vma and grow together again afterwards.
        region.advise(0..len, libc::MADV_NOHUGEPAGE);
        // SAFETY: the first page of the region, which nobody else uses yet.
        unsafe { (region.start as *mut u8).write_volatile(0) };
        region.advise(0..len, libc::MADV_DONTNEED);
        region.advise(0..len, libc::MADV_HUGEPAGE);
        for start in (0..len).step_by(PIECES * folio) {
            let span = start..len.min(start + PIECES * folio);
            for piece in span.clone().step_by(2 * folio) {
                region.try_advise(piece..piece + folio, libc::MADV_DONTDUMP)?;
            }
            region.touch(&span, threads);
            // Of pieces that have grown together khugepaged may make larger folios.
            region.advise(span.clone(), libc::MADV_NOHUGEPAGE);
            region.advise(span, libc::MADV_DODUMP);
        }
        region.fill(threads);
        Ok(region)
    }

    /// Advice that keeps contents, or empties a region that holds none yet. A kernel without THP refuses some of it and has
    /// only base pages, which `is_made_of` and `folios_of` find out.
    fn advise(&self, part: Range<usize>, advice: libc::c_int) {
        let _ = self.try_advise(part, advice);
    }

    fn try_advise(&self, part: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        let start = (self.start + part.start) as *mut libc::c_void;
        // SAFETY: the range is this value's own.
        match unsafe { libc::madvise(start, part.len(), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps `len` bytes (a multiple of 2 MiB) and touches none.
    pub fn map(len: usize) -> io::Result<Region> {
        let padded = len + THP;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), padded, access, flags, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = raw as usize..raw as usize + padded;
        Ok(Region {
            start: mapping.start.next_multiple_of(THP),
            len,
            salt: 0,
            mapping,
        })
    }

    /// Maps the first `len` bytes (a multiple of 2 MiB) of a file that holds no less, shared with all who map it, and touches none.
    pub fn of_file(file: &File, len: usize) -> io::Result<Region> {
        let region = Region::map(len)?;
        region.map_file(file, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(region)
    }

    /// Maps the same file at the same place again, to be read only. The file is open for reading only.
    pub fn reopen(&self, file: &File) -> io::Result<()> {
        self.map_file(file, libc::PROT_READ)?;
        for page in self.range().step_by(PAGE) {
            // SAFETY: inside of the mapping. Volatile: the page must be mapped, so that move_pages(2) knows it.
            unsafe { (page as *const u8).read_volatile() };
        }
        Ok(())
    }

    fn map_file(&self, file: &File, access: libc::c_int) -> io::Result<()> {
        let (start, flags) = (
            self.start as *mut libc::c_void,
            libc::MAP_SHARED | libc::MAP_FIXED,
        );
        // SAFETY: the range is this value's own, and what was mapped there is not used any more.
        let raw = unsafe { libc::mmap(start, self.len, access, flags, file.as_raw_fd(), 0) };
        match raw == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }

    /// Takes `len` bytes (a multiple of 2 MiB) of base pages on a node that stay there; nothing is written to them.
    pub fn locked(node: u32, len: usize) -> io::Result<Region> {
        let region = Region::map(len)?;
        memferry_linux::numa::prefer(&region.range(), node)?;
        region.advise(0..len, libc::MADV_NOHUGEPAGE);
        // SAFETY: the range is mapped; locking takes its pages and changes neither contents nor addresses.
        match unsafe { libc::mlock(region.start as *const libc::c_void, len) } {
            0 => Ok(region),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps as many bytes for pages of the same size and touches none.
    pub fn like(other: &Region, huge: bool) -> io::Result<Region> {
        let region = Region::map(other.len)?;
        region.advise(0..other.len, page_advice(huge));
        Ok(region)
    }

    /// Gives all pages back.
    pub fn clear(&mut self) {
        self.advise(0..self.len, libc::MADV_DONTNEED);
    }

    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// The first `len` bytes.
    pub fn head(&self, len: usize) -> Range<usize> {
        self.start..self.start + len.min(self.len)
    }

    /// Has a part touched for the first time.
    fn touch(&self, span: &Range<usize>, threads: usize) {
        let start = self.start + span.start;
        in_parts(span.len(), threads, &|part| {
            for at in part.step_by(PAGE) {
                // SAFETY: `at` lies in the mapping, whose contents nobody knows yet, and parts are disjoint.
                unsafe { ((start + at) as *mut u64).write(0) };
            }
        });
    }

    /// Writes new words everywhere; no page holds what any page held before.
    pub fn fill(&mut self, threads: usize) {
        self.fill_head(self.len, threads);
    }

    /// Writes new words to the first `len` bytes. What follows must not be checked until it is filled, too.
    pub fn fill_head(&mut self, len: usize, threads: usize) {
        self.salt += 1;
        let (start, salt) = (self.start, self.salt);
        in_parts(len.min(self.len), threads, &|part| {
            for at in part.step_by(8) {
                // SAFETY: `at` lies in the mapping, and parts are disjoint.
                unsafe { ((start + at) as *mut u64).write(word(at, salt)) };
            }
        });
    }

    /// Compares the first `len` bytes with what [`Region::fill`] or [`Region::fill_head`] wrote; gives the offset of the first wrong word.
    pub fn check(&self, len: usize, threads: usize) -> Result<u64, usize> {
        self.scan(len, threads, |_| Some(0)).map(|_| len as u64)
    }

    /// Reads those of the first `len` bytes for whose words `most` says how far above the written one they may be. Gives the sum
    /// of how far they are, or the offset of the first word that is farther.
    fn scan(
        &self,
        len: usize,
        threads: usize,
        most: impl Fn(usize) -> Option<u64> + Sync,
    ) -> Result<u64, usize> {
        let (sum, wrong) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        in_parts(len, threads, &|part| {
            let mut own = 0;
            for at in part.step_by(8) {
                let Some(most) = most(at) else { continue };
                // SAFETY: `at` lies in the mapping, which nobody writes now.
                let found = unsafe { ((self.start + at) as *const u64).read() };
                let above = found.wrapping_sub(self.written(at));
                if above > most {
                    wrong.fetch_min(at as u64, Ordering::Relaxed);
                    return;
                }
                own += above;
            }
            sum.fetch_add(own, Ordering::Relaxed);
        });
        match wrong.into_inner() {
            u64::MAX => Ok(sum.into_inner()),
            at => Err(at as usize),
        }
    }

    /// Gives every second page back, so that each block of 2 MiB is half empty.
    pub fn thin(&mut self) {
        for page in (PAGE..self.len).step_by(2 * PAGE) {
            self.advise(page..page + PAGE, libc::MADV_DONTNEED);
        }
    }

    /// As [`Region::check`] after [`Region::thin`]: compares the pages that were kept.
    pub fn check_thinned(&self, threads: usize) -> Result<u64, usize> {
        let kept = |at: usize| (at / PAGE % 2 == 0).then_some(0);
        let half = self.len as u64 / 2;
        self.scan(self.len, threads, kept).map(|_| half)
    }

    /// The word that [`Region::fill`] wrote at this offset, a multiple of eight.
    pub fn written(&self, at: usize) -> u64 {
        word(at, self.salt)
    }

    /// The first `words` of each cache line may have been counted up since [`Region::fill`]: gives the sum of all counts, or the
    /// offset of the first word that is neither what was written nor a count above it.
    pub fn added(&self, words: usize, threads: usize) -> Result<u64, usize> {
        let most = |at: usize| {
            Some(if at % LINE < 8 * words {
                MOST_COUNTED
            } else {
                0
            })
        };
        self.scan(self.len, threads, most)
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
                let value = value.trim_end_matches(" kB").trim();
                kib += value.parse::<usize>().unwrap_or(0);
            }
        }
        Ok(kib << 10 == if huge { self.len } else { 0 })
    }

    /// Physical page numbers, one per 2 MiB of the first `len` bytes; `None` without the privilege to see them.
    pub fn frames(&self, len: usize) -> Option<Vec<u64>> {
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        let frame = |at| Some(self.frames_at(&pagemap, at, 1).ok()?[0]);
        let frames: Option<Vec<u64>> = (0..len).step_by(THP).map(frame).collect();
        frames.filter(|frames| frames.iter().any(|&frame| frame != 0))
    }

    /// The physical number of each page, 0 for those that are not there; `None` without the privilege to see them.
    pub fn page_frames(&self) -> Option<Vec<u64>> {
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        let mut frames = Vec::with_capacity(self.len / PAGE);
        for at in (0..self.len).step_by(THP) {
            frames.extend(self.frames_at(&pagemap, at, THP / PAGE).ok()?);
        }
        frames.iter().any(|&frame| frame != 0).then_some(frames)
    }

    /// Physical page numbers of so many pages from an offset; zeroes without the privilege to see them.
    fn frames_at(&self, pagemap: &File, at: usize, pages: usize) -> io::Result<Vec<u64>> {
        let mut entries = vec![0; pages * 8];
        pagemap.read_exact_at(&mut entries, ((self.start + at) / PAGE * 8) as u64)?;
        let frame = |entry: &[u8]| entry.try_into().map_or(0, u64::from_ne_bytes) & ((1 << 55) - 1);
        Ok(entries.chunks_exact(8).map(frame).collect())
    }

    /// The share of the region that lies in physically contiguous, aligned pieces of `folio` bytes, which is what folios of
    /// that size are; `None` without the privilege to see it.
    pub fn folios_of(&self, folio: usize) -> Option<f64> {
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        let (pages, mut whole) = (folio / PAGE, 0);
        for at in (0..self.len).step_by(folio) {
            let frames = self.frames_at(&pagemap, at, pages).ok()?;
            if frames[0] == 0 {
                return None;
            }
            let follows = (frames[0]..)
                .zip(&frames)
                .all(|(next, &frame)| next == frame);
            whole += usize::from(follows && frames[0] % pages as u64 == 0);
        }
        Some((whole * folio) as f64 / self.len as f64)
    }
}

fn page_advice(huge: bool) -> libc::c_int {
    if huge {
        libc::MADV_HUGEPAGE
    } else {
        libc::MADV_NOHUGEPAGE
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

/// Parts of whole pages of a length, which threads take one after the other.
struct Parts {
    len: usize,
    size: usize,
    next: AtomicU64,
}

impl Parts {
    /// So many threads all get some of a small `len`.
    fn new(len: usize, threads: usize) -> Self {
        Self {
            len,
            size: (len.div_ceil(threads).next_multiple_of(PAGE)).min(PART),
            next: AtomicU64::new(0),
        }
    }

    fn each(&self, work: &(dyn Fn(Range<usize>) + Sync)) {
        loop {
            let at = self.next.fetch_add(self.size as u64, Ordering::Relaxed) as usize;
            if at >= self.len {
                return;
            }
            work(at..(at + self.size).min(self.len));
        }
    }
}

/// Runs `work` over `0..len` in parts of whole pages on `threads` threads. Threads that can be started do the parts of those
/// that cannot.
pub fn in_parts(len: usize, threads: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let parts = &Parts::new(len, threads);
    std::thread::scope(|scope| {
        let others = threads::have_room(threads).map_or(0, |()| threads - 1);
        for _ in 0..others {
            let _ = std::thread::Builder::new().spawn_scoped(scope, || parts.each(work));
        }
        parts.each(work);
    });
}

/// The same on as many threads as that; the time from when all of them run until the last part is done.
///
/// # Errors
/// A thread cannot be started.
pub fn timed_in_parts(
    len: usize,
    threads: usize,
    work: &(dyn Fn(Range<usize>) + Sync),
) -> io::Result<Duration> {
    let parts = Parts::new(len, threads);
    let (missing, begun) = (AtomicUsize::new(threads - 1), AtomicBool::new(false));
    let end = || {
        parts.each(work);
        Instant::now()
    };
    let other = |_, ()| {
        missing.fetch_sub(1, Ordering::AcqRel);
        // A thread that sleeps begins late.
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        end()
    };
    let own = || {
        while missing.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        let started = Instant::now();
        begun.store(true, Ordering::Release);
        (started, end())
    };
    let ((started, own), others) = threads::together(threads - 1, || (), other, own)?;
    let last = others.into_iter().fold(own, Instant::max);
    Ok(last - started)
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
    fn a_changed_byte_of_a_kept_page_is_found_and_given_back_pages_do_not_count() {
        let mut region = Region::new(THP, false, 1).unwrap();
        region.thin();
        assert_eq!(region.check_thinned(2), Ok(THP as u64 / 2));
        let byte = (region.start + 6 * PAGE + 1) as *mut u8;
        // SAFETY: inside the region, and nobody else uses it.
        unsafe { *byte ^= 1 };
        assert_eq!(region.check_thinned(1), Err(6 * PAGE));
    }

    #[test]
    fn as_many_threads_as_asked_for_share_a_timed_copy() {
        let all = std::sync::Barrier::new(32);
        let seen = AtomicUsize::new(0);
        let work = |part: Range<usize>| {
            all.wait();
            seen.fetch_add(part.len(), Ordering::Relaxed);
        };
        timed_in_parts(32 * PAGE, 32, &work).expect("threads");
        assert_eq!(seen.into_inner(), 32 * PAGE);
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
