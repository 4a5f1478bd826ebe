// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a pipeline asks of the kernel, behind one trait so that tests can make every call fail.

use crate::sys::uffd::{Message, Progress, Uffd};
use crate::sys::{errno, memory, page_size};
use memferry_linux::numa;
use memferry_linux::pagemap::{Pagemap, Region};
use std::io;
use std::ops::Range;

/// The kernel's part of a move: what userfaultfd and page tables do, but for what an implementation does instead.
///
/// # Safety of `unmap`, `remap` and `fill`
/// `place` lies in the range that is moved, `staging` and `from` in pieces of the pool that the pipeline has.
pub(crate) trait Kernel: Sync {
    /// Watches the range that is moved, and staging while pages move out to it.
    fn uffd(&self) -> &Uffd;

    fn pagemap(&self) -> &Pagemap;

    /// Moves pages from their place out to staging.
    unsafe fn unmap(&self, staging: usize, place: usize, len: usize) -> Progress {
        // SAFETY: the caller's promise.
        let progress = unsafe { self.uffd().move_pages(staging, place, len) };
        with_unreported(self.pagemap(), staging, place, len, progress)
    }

    /// Moves pages into their place and wakes who waits for them.
    unsafe fn remap(&self, place: usize, from: usize, len: usize) -> Progress {
        // SAFETY: the caller's promise.
        let progress = unsafe { self.uffd().move_pages(place, from, len) };
        let reported = progress.done;
        let progress = with_unreported(self.pagemap(), place, from, len, progress);
        if progress.done > reported {
            // The kernel wakes waiters of what it reports only.
            let _ = self.wake(place + reported, progress.done - reported);
        }
        progress
    }

    /// Puts a copy of `from` into the place, in pages that the kernel allocates, and wakes who waits.
    unsafe fn fill(&self, place: usize, from: usize, len: usize) -> Progress {
        // SAFETY: `from` is a piece of the pipeline, which stays mapped and readable for its whole time.
        unsafe { self.uffd().copy(place, from, len) }
    }

    /// Answers a fault on a page that never was.
    fn zero(&self, place: usize, len: usize) -> io::Result<()> {
        self.uffd().zero(place, len)
    }

    /// Faults on the range are the kernel's own again.
    fn release(&self, place: usize, len: usize) -> io::Result<()> {
        self.uffd().unregister(place, len)
    }

    /// Whether this descriptor watches the page at `place`, whatever the mapping allows.
    fn watches(&self, place: usize) -> io::Result<bool> {
        let page = page_size();
        // A new descriptor is refused where anybody watches, ours where somebody else does.
        let stranger = Uffd::open(0)?;
        match stranger.register(place, page) {
            Ok(()) => stranger.unregister(place, page).map(|()| false),
            Err(error) if errno(&error) == libc::EBUSY => match self.uffd().register(place, page) {
                Ok(()) => Ok(true),
                Err(error) if errno(&error) == libc::EBUSY => Ok(false),
                Err(error) => Err(error),
            },
            // EPERM: a shared mapping that nobody may write to. What is watched is anonymous and private.
            Err(error) if matches!(errno(&error), libc::EINVAL | libc::EPERM) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Who waits in the range looks again.
    fn wake(&self, place: usize, len: usize) -> io::Result<()> {
        self.uffd().wake(place, len)
    }

    /// Whether somebody is in the middle of changing a mapping of the range and has not gone on since.
    fn changing(&self) -> bool {
        self.uffd().is_changing()
    }

    /// Whether a message waits.
    fn pending(&self) -> bool {
        self.uffd().is_readable()
    }

    /// Takes waiting messages without blocking.
    fn messages(&self, out: &mut [Message]) -> io::Result<usize> {
        self.uffd().read(out)
    }

    /// Runs of present or swapped pages.
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        self.pagemap().scan(start, end, out)
    }

    /// What mincore(2) says of each page from `start` on: of those that page tables call swapped, bit 0 tells the ones that the
    /// kernel migrates now (or that the swap cache has).
    fn residency(&self, start: usize, pages: &mut [u8]) -> io::Result<()> {
        memory::residency(start, pages)
    }

    /// Node or -errno of each page.
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        numa::move_pages(0, pages, None, status, false).map(drop)
    }

    /// Whether all pages of the pool at `pages`, of `unit` bytes each, lie on `node`: the kernel may have demoted, balanced or swapped
    /// out some since they came.
    fn are_on(&self, pages: &Range<usize>, unit: usize, node: u32) -> bool {
        // On the stack: a lane asks the heap for nothing.
        const AT_ONCE: usize = 256;
        let (mut addresses, mut status) = ([0; AT_ONCE], [0; AT_ONCE]);
        let mut left = pages.clone().step_by(unit).peekable();
        while left.peek().is_some() {
            let mut count = 0;
            for (address, page) in addresses.iter_mut().zip(left.by_ref().take(AT_ONCE)) {
                *address = page;
                count += 1;
            }
            let (addresses, status) = (&addresses[..count], &mut status[..count]);
            let asked = numa::move_pages(0, addresses, None, status, false);
            if asked.is_err() || status.iter().any(|&told| told != node as i32) {
                return false;
            }
        }
        true
    }
}

/// The running kernel.
pub(crate) struct Live<'a> {
    pub uffd: &'a Uffd,
    pub pagemap: &'a Pagemap,
}

impl Kernel for Live<'_> {
    fn uffd(&self) -> &Uffd {
        self.uffd
    }

    fn pagemap(&self) -> &Pagemap {
        self.pagemap
    }
}

/// Adds the pages that UFFDIO_MOVE has moved without saying so.
///
/// Linux 6.18 does that: `move_pages()` of mm/userfaultfd.c keeps an -EAGAIN of its own when the next attempt
/// succeeds, tries the pages that it has just moved once more, and returns EEXIST, for they are at `dst` already.
/// They are told from pages that were at `dst` before (which none should be) by their absence at `src`.
fn with_unreported(
    pagemap: &Pagemap,
    dst: usize,
    src: usize,
    len: usize,
    progress: Progress,
) -> Progress {
    let exists = |e: &io::Error| errno(e) == libc::EEXIST;
    if progress.done > 0 || !progress.stopped.as_ref().is_some_and(exists) {
        return progress;
    }
    let mut region = [Region::default()];
    let mut first = |from: usize| match pagemap.scan(from, from + len, &mut region) {
        Ok((0, _)) => Some((len, len)),
        Ok(_) => {
            let end = (region[0].end as usize).min(from + len);
            Some((region[0].start as usize - from, end - from))
        }
        Err(_) => None,
    };
    let done = match (first(dst), first(src)) {
        (Some((0, moved)), Some((stays, _))) => moved.min(stays),
        _ => 0,
    };
    Progress { done, ..progress }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SEGMENT;
    use crate::sys::memory::Mapping;
    use crate::sys::uffd::FEATURE_MOVE;

    /// More pages than one call asks for; one of them has gone.
    #[test]
    fn free_pages_are_on_the_node_where_the_kernel_has_them() {
        let (uffd, pagemap) = (Uffd::open(FEATURE_MOVE).unwrap(), Pagemap::open().unwrap());
        let kernel = Live {
            uffd: &uffd,
            pagemap: &pagemap,
        };
        let mapping = Mapping::new(SEGMENT, SEGMENT).unwrap();
        let (start, page) = (mapping.addr(), page_size());
        memory::populate(start, SEGMENT).unwrap();
        let all = start..start + SEGMENT;
        let mut status = [i32::MIN];
        numa::move_pages(0, &[start], None, &mut status, false).unwrap();
        let node = u32::try_from(status[0]).unwrap();
        assert!(kernel.are_on(&all, page, node));
        assert!(!kernel.are_on(&all, page, node + 1));
        // SAFETY: nothing refers to the page.
        unsafe { libc::madvise((start + 300 * page) as *mut _, page, libc::MADV_DONTNEED) };
        assert!(!kernel.are_on(&all, page, node));
    }
}
