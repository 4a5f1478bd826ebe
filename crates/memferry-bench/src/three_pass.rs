// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plain program that a pipeline must not be below: it moves all pages out, copies them, and moves all copies in, in
//! three passes of as many threads. Nobody may fork, unmap or touch the pages meanwhile, and it holds them twice.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use linux_raw_sys::general as raw;
use memferry::copy::Routine;

use super::region::{PAGE, Region, THP, timed_in_parts};

/// `_IOWR(0xAA, nr, T)` of the kernel's asm-generic/ioctl.h.
const fn iowr<T>(nr: u32) -> libc::c_ulong {
    ((3u32 << 30) | ((size_of::<T>() as u32) << 16) | (0xAA << 8) | nr) as libc::c_ulong
}

const API: libc::c_ulong = iowr::<raw::uffdio_api>(raw::_UFFDIO_API);
const REGISTER: libc::c_ulong = iowr::<raw::uffdio_register>(raw::_UFFDIO_REGISTER);
const MOVE: libc::c_ulong = iowr::<raw::uffdio_move>(raw::_UFFDIO_MOVE);

/// Copies the pages of `region` into those of `copies` by `threads`, and puts these into their place. `empty` gets the
/// pages that were there; without `copies` there (cold), it allocates them while it copies. Closing its descriptor ends
/// the watch of both. Gives the time without that in which threads start: a program may have them already.
pub fn three_passes(
    region: &Region,
    empty: &Region,
    copies: &Region,
    routine: Routine,
    threads: usize,
) -> io::Result<Duration> {
    let bytes = region.range().len();
    let [place, out, into] = [region, empty, copies].map(|of| of.range().start);
    let begun = Instant::now();
    let faults = Userfaultfd::open()?;
    faults.watch(place, bytes)?;
    faults.watch(out, bytes)?;
    let mut took = begun.elapsed();
    took += each(bytes, threads, |at, len| {
        faults.carry(out + at, place + at, len)
    })?;
    took += each(bytes, threads, |at, len| {
        // SAFETY: both regions are `bytes` long, parts are disjoint, and nobody else uses either.
        unsafe { routine.copy((out + at) as *const u8, (into + at) as *mut u8, len) };
        Ok(())
    })?;
    took += each(bytes, threads, |at, len| {
        faults.carry(place + at, into + at, len)
    })?;
    let begun = Instant::now();
    drop(faults);
    Ok(took + begun.elapsed())
}

/// Does `work` for every 2 MiB by `threads`; the time, or a failure.
fn each(
    bytes: usize,
    threads: usize,
    work: impl Fn(usize, usize) -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let failed = Mutex::new(Ok(()));
    let took = timed_in_parts(bytes, threads, &|part| {
        for at in part.clone().step_by(THP) {
            if let Err(error) = work(at, THP.min(part.end - at)) {
                *failed
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = Err(error);
                return;
            }
        }
    })?;
    (failed.into_inner())
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .map(|()| took)
}

/// Whether this process may, by a system call that containers often refuse.
pub fn is_allowed() -> bool {
    Userfaultfd::open().is_ok()
}

/// The kernel touches no page of it while it is watched, so no privilege is needed.
const FLAGS: libc::c_int =
    libc::O_CLOEXEC | libc::O_NONBLOCK | raw::UFFD_USER_MODE_ONLY as libc::c_int;

struct Userfaultfd(File);

impl Userfaultfd {
    fn open() -> io::Result<Self> {
        // SAFETY: the call takes flags by value and returns a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, FLAGS) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        let faults = Self(unsafe { File::from_raw_fd(fd as i32) });
        let mut api = raw::uffdio_api {
            api: 0xAA,
            features: raw::UFFD_FEATURE_MOVE.into(),
            ioctls: 0,
        };
        faults.ask(API, &mut api)?;
        Ok(faults)
    }

    fn watch(&self, start: usize, len: usize) -> io::Result<()> {
        let mut range = raw::uffdio_register {
            range: raw::uffdio_range {
                start: start as u64,
                len: len as u64,
            },
            mode: raw::UFFDIO_REGISTER_MODE_MISSING.into(),
            ioctls: 0,
        };
        self.ask(REGISTER, &mut range)
    }

    /// Moves the pages at `from` to the empty, watched range at `to`.
    fn carry(&self, to: usize, from: usize, len: usize) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let mut part = raw::uffdio_move {
                dst: (to + done) as u64,
                src: (from + done) as u64,
                len: (len - done) as u64,
                mode: 0,
                move_: 0,
            };
            match self.ask(MOVE, &mut part) {
                Ok(()) => return Ok(()),
                Err(_) if part.move_ >= PAGE as i64 => done += part.move_ as usize,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ask<T>(&self, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: the request is made for this structure, which the kernel reads and writes. No page is lost: moves
        // change page tables of the caller's regions alone.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, std::ptr::from_mut(argument)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_and_the_old_pages_are_in_the_empty_region() {
        for huge in [false, true] {
            let mut region = Region::new(4 * THP, huge, 1).expect("region");
            let mut copies = Region::new(4 * THP, huge, 1).expect("copies");
            let mut empty = Region::like(&region, huge).expect("empty");
            for threads in [1, 2] {
                region.fill(1);
                let frames = region.frames(4 * THP);
                three_passes(&region, &empty, &copies, memferry::copy::memcpy(), threads)
                    .expect("move");
                assert_eq!(region.check(4 * THP, 1), Ok(4 * THP as u64));
                assert_eq!(empty.frames(4 * THP), frames);
                std::mem::swap(&mut empty, &mut copies);
            }
            copies.clear();
            three_passes(&region, &empty, &copies, memferry::copy::memcpy(), 2).expect("cold");
            assert_eq!(region.check(4 * THP, 1), Ok(4 * THP as u64));
        }
    }
}
