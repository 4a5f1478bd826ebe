// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a pipeline asks of the kernel, behind one trait so that tests can make every call fail.

use crate::sys::uffd::{Message, Progress, Uffd};
use crate::sys::{errno, page_size};
use memferry_linux::numa;
use memferry_linux::pagemap::{Pagemap, Region};
use std::io;

/// The kernel's part of a move.
///
/// # Safety of `unmap`, `remap` and `fill`
/// `place` lies in the range that is moved, `staging` and `from` in pieces of the pool that the pipeline has.
pub(crate) trait Kernel: Sync {
    /// Moves pages from their place out to staging.
    unsafe fn unmap(&self, staging: usize, place: usize, len: usize) -> Progress;
    /// Moves pages into their place and wakes who waits for them.
    unsafe fn remap(&self, place: usize, from: usize, len: usize) -> Progress;
    /// Puts a copy of `from` into the place, in pages that the kernel allocates, and wakes who waits.
    unsafe fn fill(&self, place: usize, from: usize, len: usize) -> Progress;
    /// Answers a fault on a page that never was.
    fn zero(&self, place: usize, len: usize) -> io::Result<()>;
    /// Faults on the range are the kernel's own again.
    fn release(&self, place: usize, len: usize) -> io::Result<()>;
    /// Takes that back.
    fn watch(&self, place: usize, len: usize) -> io::Result<()>;
    /// Whether this descriptor watches the page at `place`, whatever the mapping allows.
    fn watches(&self, place: usize) -> io::Result<bool>;
    /// Who waits in the range looks again.
    fn wake(&self, place: usize, len: usize) -> io::Result<()>;
    /// Whether somebody is in the middle of changing a mapping of the range and has not gone on since.
    fn changing(&self) -> bool;
    /// Whether a message waits.
    fn pending(&self) -> bool;
    /// Takes waiting messages without blocking.
    fn messages(&self, out: &mut [Message]) -> io::Result<usize>;
    /// Runs of present or swapped pages.
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)>;
    /// Node or -errno of each page.
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()>;
}

/// The running kernel.
pub(crate) struct Live<'a> {
    /// Watches the range that is moved, and staging.
    pub place: &'a Uffd,
    pub pagemap: &'a Pagemap,
}

impl Live<'_> {
    /// Adds the pages that UFFDIO_MOVE has moved without saying so.
    ///
    /// Linux 6.18 does that: `move_pages()` of mm/userfaultfd.c keeps an -EAGAIN of its own when the next attempt
    /// succeeds, tries the pages that it has just moved once more, and returns EEXIST, for they are at `dst` already.
    /// They are told from pages that were at `dst` before (which none should be) by their absence at `src`.
    fn with_unreported(&self, dst: usize, src: usize, len: usize, progress: Progress) -> Progress {
        let exists = |e: &io::Error| errno(e) == libc::EEXIST;
        if progress.done > 0 || !progress.stopped.as_ref().is_some_and(exists) {
            return progress;
        }
        let mut region = [Region::default()];
        let mut first = |from: usize| match self.pagemap.scan(from, from + len, &mut region) {
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
}

impl Kernel for Live<'_> {
    unsafe fn unmap(&self, staging: usize, place: usize, len: usize) -> Progress {
        // SAFETY: the caller's promise.
        let progress = unsafe { self.place.move_pages(staging, place, len) };
        self.with_unreported(staging, place, len, progress)
    }

    unsafe fn remap(&self, place: usize, from: usize, len: usize) -> Progress {
        // SAFETY: the caller's promise.
        let progress = unsafe { self.place.move_pages(place, from, len) };
        let reported = progress.done;
        let progress = self.with_unreported(place, from, len, progress);
        if progress.done > reported {
            // The kernel wakes waiters of what it reports only.
            let _ = self.place.wake(place + reported, progress.done - reported);
        }
        progress
    }

    unsafe fn fill(&self, place: usize, from: usize, len: usize) -> Progress {
        // SAFETY: `from` is a piece of the pipeline, which stays mapped and readable for its whole time.
        unsafe { self.place.copy(place, from, len) }
    }

    fn zero(&self, place: usize, len: usize) -> io::Result<()> {
        self.place.zero(place, len)
    }

    fn release(&self, place: usize, len: usize) -> io::Result<()> {
        self.place.unregister(place, len)
    }

    fn watch(&self, place: usize, len: usize) -> io::Result<()> {
        self.place.register(place, len)
    }

    fn watches(&self, place: usize) -> io::Result<bool> {
        let page = page_size();
        // A new descriptor is refused where anybody watches, ours where somebody else does.
        let stranger = Uffd::open(0)?;
        match stranger.register(place, page) {
            Ok(()) => stranger.unregister(place, page).map(|()| false),
            Err(error) if errno(&error) == libc::EBUSY => match self.place.register(place, page) {
                Ok(()) => Ok(true),
                Err(error) if errno(&error) == libc::EBUSY => Ok(false),
                Err(error) => Err(error),
            },
            Err(error) if errno(&error) == libc::EINVAL => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn wake(&self, place: usize, len: usize) -> io::Result<()> {
        self.place.wake(place, len)
    }

    fn changing(&self) -> bool {
        self.place.is_changing()
    }

    fn pending(&self) -> bool {
        self.place.is_readable()
    }

    fn messages(&self, out: &mut [Message]) -> io::Result<usize> {
        self.place.read(out)
    }

    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        self.pagemap.scan(start, end, out)
    }

    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        numa::move_pages(0, pages, None, status, false).map(drop)
    }
}

/// Page tables of tests that exist nowhere: all calls succeed at once, and nobody waits or changes a mapping.
#[cfg(test)]
pub(super) trait PageTables: Sync {
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)>;
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()>;
}

#[cfg(test)]
impl<T: PageTables> Kernel for T {
    unsafe fn unmap(&self, _: usize, _: usize, len: usize) -> Progress {
        Progress::all(len)
    }
    unsafe fn remap(&self, _: usize, _: usize, len: usize) -> Progress {
        Progress::all(len)
    }
    unsafe fn fill(&self, _: usize, _: usize, _: usize) -> Progress {
        unreachable!("there are free pages for all")
    }
    fn zero(&self, _: usize, _: usize) -> io::Result<()> {
        unreachable!("nobody waits")
    }
    fn release(&self, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn watch(&self, _: usize, _: usize) -> io::Result<()> {
        unreachable!("nobody waits")
    }
    fn watches(&self, _: usize) -> io::Result<bool> {
        unreachable!("nothing is in doubt")
    }
    fn wake(&self, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn changing(&self) -> bool {
        false
    }
    fn pending(&self) -> bool {
        false
    }
    fn messages(&self, _: &mut [Message]) -> io::Result<usize> {
        Ok(0)
    }
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        PageTables::scan(self, start, end, out)
    }
    fn nodes(&self, pages: &[usize], status: &mut [i32]) -> io::Result<()> {
        PageTables::nodes(self, pages, status)
    }
}
