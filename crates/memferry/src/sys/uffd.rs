// SPDX-License-Identifier: MIT OR Apache-2.0
//! userfaultfd(2): opening, registering, moving pages, answering faults.
//!
//! Debian 12's headers know no UFFDIO_MOVE, so the structures come from `linux-raw-sys` and the ioctl numbers are
//! built from the kernel's own formula and checked below.

use super::check;
use linux_raw_sys::general as raw;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// `_IOWR(0xAA, nr, T)` of the kernel's asm-generic/ioctl.h, which x86, arm64 and riscv use.
const fn iowr<T>(nr: u32) -> libc::c_ulong {
    ((3u32 << 30) | ((size_of::<T>() as u32) << 16) | (0xAA << 8) | nr) as libc::c_ulong
}
/// `_IOR(0xAA, nr, T)`.
const fn ior<T>(nr: u32) -> libc::c_ulong {
    ((2u32 << 30) | ((size_of::<T>() as u32) << 16) | (0xAA << 8) | nr) as libc::c_ulong
}

const UFFDIO_API: libc::c_ulong = iowr::<raw::uffdio_api>(raw::_UFFDIO_API);
const UFFDIO_REGISTER: libc::c_ulong = iowr::<raw::uffdio_register>(raw::_UFFDIO_REGISTER);
const UFFDIO_UNREGISTER: libc::c_ulong = ior::<raw::uffdio_range>(raw::_UFFDIO_UNREGISTER);
const UFFDIO_WAKE: libc::c_ulong = ior::<raw::uffdio_range>(raw::_UFFDIO_WAKE);
const UFFDIO_COPY: libc::c_ulong = iowr::<raw::uffdio_copy>(raw::_UFFDIO_COPY);
const UFFDIO_ZEROPAGE: libc::c_ulong = iowr::<raw::uffdio_zeropage>(raw::_UFFDIO_ZEROPAGE);
const UFFDIO_MOVE: libc::c_ulong = iowr::<raw::uffdio_move>(raw::_UFFDIO_MOVE);
/// `_IO(0xAA, 0)` on /dev/userfaultfd: a new descriptor, without the privilege that the system call asks for.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xAA00;

const _: () = assert!(size_of::<raw::uffd_msg>() == 32);
const _: () =
    assert!(UFFDIO_MOVE == 0xc028_aa05 && UFFDIO_API == 0xc018_aa3f && UFFDIO_WAKE == 0x8010_aa02);

/// UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES of the kernel's uapi/linux/userfaultfd.h, an expression that `linux-raw-sys` leaves out.
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;

/// UFFD_FEATURE_MOVE, Linux 6.8.
pub const FEATURE_MOVE: u64 = raw::UFFD_FEATURE_MOVE as u64;
/// mremap, munmap (also by MAP_FIXED) and MADV_DONTNEED of a registered range are reported, and whoever does it waits
/// until the report was read; faults are reported with the thread.
pub(crate) const FEATURE_EVENTS: u64 = (raw::UFFD_FEATURE_EVENT_REMAP
    | raw::UFFD_FEATURE_EVENT_REMOVE
    | raw::UFFD_FEATURE_EVENT_UNMAP
    | raw::UFFD_FEATURE_THREAD_ID) as u64;

/// How much of a range was done before the call stopped.
#[derive(Debug)]
pub struct Progress {
    /// Bytes that are done, from the start of the range.
    pub done: usize,
    /// Why it stopped; `None` when the whole range is done.
    pub stopped: Option<io::Error>,
}

impl Progress {
    /// Nothing is done.
    pub(crate) fn none(errno: i32) -> Progress {
        Progress {
            done: 0,
            stopped: Some(io::Error::from_raw_os_error(errno)),
        }
    }

    /// All is done.
    pub(crate) fn all(len: usize) -> Progress {
        Progress {
            done: len,
            stopped: None,
        }
    }

    /// What a call for `len` bytes came to that says `done` if it fails.
    fn of(ret: io::Result<libc::c_int>, len: usize, done: i64) -> Progress {
        match ret {
            Ok(_) => Progress::all(len),
            Err(error) => Progress {
                done: usize::try_from(done).unwrap_or(0),
                stopped: Some(error),
            },
        }
    }
}

/// One message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A thread waits at this address (the start of its page). It is 0 if the descriptor does not tell.
    Fault { addr: usize, thread: u32 },
    /// mremap moved `len` bytes; the new place is registered too.
    Remap { from: usize, to: usize, len: usize },
    /// madvise is about to empty the range.
    Remove { start: usize, end: usize },
    /// The range was unmapped; what is mapped there from now on is something else.
    Unmap { start: usize, end: usize },
    /// Something the library did not ask for.
    Other,
}

/// A userfaultfd of this process.
#[derive(Debug)]
pub struct Uffd {
    file: File,
}

impl Uffd {
    /// Opens one that also sees faults of the kernel (a `read(2)` into a page on its way must wait, not fail), and
    /// agrees on `features`.
    pub fn open(features: u64) -> io::Result<Uffd> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = match File::options()
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")
        {
            Ok(device) => {
                // SAFETY: the ioctl takes flags by value and returns a new descriptor.
                check(unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) })
            }
            Err(e) => Err(e),
        }
        .or_else(|_| {
            // SAFETY: the call takes flags by value and returns a new descriptor.
            check(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as libc::c_int)
        })
        // SAFETY: a fresh descriptor that nothing else owns.
        .map(|fd| unsafe { File::from_raw_fd(fd) })?;
        let mut api = raw::uffdio_api {
            api: 0xAA,
            features,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes one `uffdio_api`.
        check(unsafe { libc::ioctl(file.as_raw_fd(), UFFDIO_API, &raw mut api) })?;
        Ok(Uffd { file })
    }

    /// Faults on missing pages of the range wait for this descriptor from now on.
    pub fn register(&self, addr: usize, len: usize) -> io::Result<()> {
        let mut arg = raw::uffdio_register {
            range: range(addr, len),
            mode: u64::from(raw::UFFDIO_REGISTER_MODE_MISSING),
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes one `uffdio_register`; no contents change.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_REGISTER, &raw mut arg) })
            .map(drop)
    }

    /// Faults on the range are the kernel's own again; who waits is woken.
    pub(crate) fn unregister(&self, addr: usize, len: usize) -> io::Result<()> {
        unregister(self.file.as_raw_fd(), addr, len)
    }

    /// Wakes the threads that wait in the range; they look again.
    pub(crate) fn wake(&self, addr: usize, len: usize) -> io::Result<()> {
        let mut arg = range(addr, len);
        // SAFETY: the kernel reads one `uffdio_range`.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_WAKE, &raw mut arg) }).map(drop)
    }

    /// Moves the pages at `src` to the empty range at `dst`, which is registered with this descriptor, and wakes who
    /// waits there. Both ranges stay mapped; the page tables change, not the pages.
    ///
    /// # Safety
    /// Nobody refers to the contents at `src`, or waits until they are back: a userfaultfd watches it.
    pub unsafe fn move_pages(&self, dst: usize, src: usize, len: usize) -> Progress {
        self.move_with(dst, src, len, 0)
    }

    /// Whether the page at `addr` is registered with this descriptor, for sure: not one that is unmapped at the moment.
    /// `empty` is a page that is mapped but not there. The mapping gets a page table for `addr` if it has none.
    pub(crate) fn is_registered(&self, addr: usize, empty: usize) -> io::Result<bool> {
        // Nothing moves from a hole. Without the mode ENOENT would mean the hole or no mapping at `addr`.
        let progress = self.move_with(addr, empty, super::page_size(), MOVE_MODE_ALLOW_SRC_HOLES);
        match progress.stopped {
            None => Ok(true),
            // The kernel looks at the registration before it looks for pages.
            Some(error) => match super::errno(&error) {
                libc::EEXIST => Ok(true),
                libc::EINVAL | libc::ENOENT | libc::EAGAIN => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn move_with(&self, dst: usize, src: usize, len: usize, mode: u64) -> Progress {
        let mut arg = raw::uffdio_move {
            dst: dst as u64,
            src: src as u64,
            len: len as u64,
            mode,
            move_: 0,
        };
        // SAFETY: the kernel reads and writes one `uffdio_move`. No page is lost: each is mapped at `src` or `dst`.
        let ret = check(unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_MOVE, &raw mut arg) });
        Progress::of(ret, len, arg.move_)
    }

    /// Allocates pages for the empty, registered range at `dst`, fills them from `src` and wakes who waits there.
    ///
    /// # Safety
    /// `src .. src + len` must be readable.
    pub(crate) unsafe fn copy(&self, dst: usize, src: usize, len: usize) -> Progress {
        let mut arg = raw::uffdio_copy {
            dst: dst as u64,
            src: src as u64,
            len: len as u64,
            mode: 0,
            copy: 0,
        };
        // SAFETY: the kernel reads and writes one `uffdio_copy`, reads `src` (caller) and fills only missing pages.
        let ret = check(unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_COPY, &raw mut arg) });
        Progress::of(ret, len, arg.copy)
    }

    /// Maps the zero page at the missing pages of a registered range and wakes who waits there.
    pub(crate) fn zero(&self, addr: usize, len: usize) -> io::Result<()> {
        let mut arg = raw::uffdio_zeropage {
            range: range(addr, len),
            mode: 0,
            zeropage: 0,
        };
        // SAFETY: the kernel reads and writes one `uffdio_zeropage` and fills only missing pages.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_ZEROPAGE, &raw mut arg) })
            .map(drop)
    }

    /// Whether a thread that changes a mapping of the range has not gone on yet: it is about to queue its message, waits
    /// for the reader, or was not scheduled since. Every call that fills pages looks at that first (EAGAIN) and at its
    /// arguments later, so one that fills nothing tells.
    pub(crate) fn is_changing(&self) -> bool {
        // SAFETY: nothing is read or filled.
        unsafe { self.copy(0, 0, 0) }
            .stopped
            .is_some_and(|e| super::errno(&e) == libc::EAGAIN)
    }

    /// Whether a message waits to be read.
    pub(crate) fn is_readable(&self) -> bool {
        super::is_readable(&self.file)
    }

    /// Reads the waiting messages into `out` without blocking; returns how many there were.
    pub(crate) fn read(&self, out: &mut [Message]) -> io::Result<usize> {
        const MAX: usize = 16;
        let mut buffer = [0u8; MAX * size_of::<raw::uffd_msg>()];
        let size = size_of::<raw::uffd_msg>();
        let want = out.len().min(MAX) * size;
        match (&self.file).read(&mut buffer[..want]) {
            Ok(bytes) => {
                for (message, chunk) in out.iter_mut().zip(buffer[..bytes].chunks_exact(size)) {
                    *message = decode(chunk);
                }
                Ok(bytes / size)
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            Err(e) => Err(e),
        }
    }
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// [`Uffd::unregister`] by the number of the descriptor, for who does not own it.
pub(crate) fn unregister(fd: RawFd, addr: usize, len: usize) -> io::Result<()> {
    let mut arg = range(addr, len);
    // SAFETY: the kernel reads one `uffdio_range`; no contents change. On another kind of file it fails.
    check(unsafe { libc::ioctl(fd, UFFDIO_UNREGISTER, &raw mut arg) }).map(drop)
}

fn range(addr: usize, len: usize) -> raw::uffdio_range {
    raw::uffdio_range {
        start: addr as u64,
        len: len as u64,
    }
}

/// Reads `struct uffd_msg` by its documented layout: the event in byte 0, the arguments from byte 8 on.
fn decode(chunk: &[u8]) -> Message {
    let word = |at: usize| {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&chunk[at..at + 8]);
        u64::from_ne_bytes(bytes) as usize
    };
    match u32::from(chunk[0]) {
        raw::UFFD_EVENT_PAGEFAULT => Message::Fault {
            addr: word(16) & !(super::page_size() - 1),
            thread: word(24) as u32,
        },
        raw::UFFD_EVENT_REMAP => Message::Remap {
            from: word(8),
            to: word(16),
            len: word(24),
        },
        raw::UFFD_EVENT_REMOVE => Message::Remove {
            start: word(8),
            end: word(16),
        },
        raw::UFFD_EVENT_UNMAP => Message::Unmap {
            start: word(8),
            end: word(16),
        },
        _ => Message::Other,
    }
}
