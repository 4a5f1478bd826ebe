// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that the kernel holds: those pinned for I/O stay, those in a pipe keep what was spliced.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Outcome, SourcePages};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::*;

const OP_READ_FIXED: u8 = 4;
const REGISTER_BUFFERS: libc::c_uint = 0;
const ENTER_GETEVENTS: libc::c_uint = 1;

/// Offsets in the ring mappings, as in the kernel's `struct io_sqring_offsets` and `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    /// `flags` of the submission ring, `overflow` of the completion ring.
    other: u32,
    /// `dropped` and `cqes`.
    entries: u32,
    array: u32,
    rest: [u32; 3],
}

/// The kernel's `struct io_uring_params`.
#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq_off: Offsets,
    cq_off: Offsets,
}
const _: () = assert!(size_of::<Params>() == 120);

/// The kernel's `struct io_uring_sqe`.
#[repr(C)]
#[derive(Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    buf_index: u16,
    rest: [u16; 11],
}
const _: () = assert!(size_of::<Submission>() == 64);

/// An io_uring with one registered buffer, by bare system calls.
struct Ring {
    fd: OwnedFd,
    params: Params,
    rings: usize,
    submissions: usize,
}

impl Ring {
    fn with_buffer(addr: usize, len: usize) -> Ring {
        let mut params = Params::default();
        // SAFETY: the kernel reads and writes one `Params`.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, &raw mut params) };
        assert!(
            fd >= 0,
            "this test needs io_uring, to pin pages: {}; set kernel.io_uring_disabled to 0",
            std::io::Error::last_os_error()
        );
        // SAFETY: a fresh descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let map = |offset: libc::off_t| {
            // SAFETY: a new mapping of one of the descriptor's areas, which are all smaller than a page here.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_POPULATE,
                    fd.as_raw_fd(),
                    offset,
                )
            };
            assert_ne!(at, libc::MAP_FAILED, "the ring is mapped");
            at as usize
        };
        let (rings, submissions) = (map(0), map(0x1000_0000));
        let buffer = libc::iovec {
            iov_base: addr as *mut _,
            iov_len: len,
        };
        // SAFETY: the kernel reads one iovec and pins the pages it names.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                fd.as_raw_fd(),
                REGISTER_BUFFERS,
                &raw const buffer,
                1,
            )
        };
        assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
        Ring {
            fd,
            params,
            rings,
            submissions,
        }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapped rings, which live as long as `self`.
        unsafe { AtomicU32::from_ptr((self.rings + offset as usize) as *mut u32) }
    }

    /// Reads `len` bytes from `from` into the registered buffer at `addr`; returns the result.
    fn read_fixed(&self, from: &impl AsRawFd, addr: usize, len: u32) -> i32 {
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let submission = Submission {
            opcode: OP_READ_FIXED,
            fd: from.as_raw_fd(),
            off: u64::MAX,
            addr: addr as u64,
            len,
            ..Submission::default()
        };
        // SAFETY: the first entry of the submission area; the kernel looks at it in `io_uring_enter` only.
        unsafe { std::ptr::write_volatile(self.submissions as *mut Submission, submission) };
        self.word(sq.array).store(0, Ordering::Relaxed);
        self.word(sq.array + 4).store(0, Ordering::Relaxed);
        self.word(sq.array + 8).store(0, Ordering::Relaxed);
        self.word(sq.array + 12).store(0, Ordering::Relaxed);
        self.word(sq.tail).fetch_add(1, Ordering::Release);
        let nothing = std::ptr::null::<libc::c_void>();
        // SAFETY: submits one entry and waits for its completion.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd.as_raw_fd(),
                1,
                1,
                ENTER_GETEVENTS,
                nothing,
                0,
            )
        };
        assert_eq!(done, 1, "{}", std::io::Error::last_os_error());
        let head = self.word(cq.head).load(Ordering::Acquire);
        let index = head & self.word(cq.ring_mask).load(Ordering::Relaxed);
        // An entry of the completion ring is user_data (8 bytes), result and flags (4 each).
        let result = self
            .word(cq.entries + 16 * index + 8)
            .load(Ordering::Acquire);
        self.word(cq.head).store(head + 1, Ordering::Release);
        result as i32
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mappings were made by `with_buffer`.
        unsafe {
            libc::munmap(self.rings as *mut _, PAGE);
            libc::munmap(self.submissions as *mut _, PAGE);
        }
    }
}

fn byte(addr: usize) -> u8 {
    // SAFETY: a mapped byte.
    unsafe { std::ptr::read_volatile(addr as *const u8) }
}

#[test]
fn pinned_pages_stay_and_the_device_writes_where_the_application_reads() {
    for (migrator, kind) in MIGRATORS
        .into_iter()
        .flat_map(|of| KINDS.map(|kind| (of, kind)))
    {
        for source in both_sources() {
            let what = format!("{migrator}, {kind:?}, {source:?}");
            let region = Region::filled(3 * HUGE, kind, 1);
            // Sixteen pages in the second block.
            let (pinned, len) = (region.addr + HUGE + 37 * PAGE, 16 * PAGE);
            let ring = Ring::with_buffer(pinned, len);
            let stay = match kind {
                Kind::Base => pinned..pinned + len,
                // A THP is pinned as a whole.
                Kind::Thp => region.addr + HUGE..region.addr + 2 * HUGE,
            };
            let frames = pfns(&stay);
            let mover = mover(migrator);
            let options = relocate().source(source).list_pages(true);
            for round in 0..4u64 {
                let all = pfns(&region.range());
                let result = move_all(&mover, &region.range(), &options);
                assert_eq!(result.busy.bytes, stay.len() as u64, "{what}: {result:?}");
                assert_eq!(
                    result.moved.bytes,
                    (region.len - stay.len()) as u64,
                    "{what}"
                );
                assert_pages_stayed(&frames, &stay, &what);
                if let (Some(before), Some(after)) = (all, pfns(&region.range())) {
                    let stayed = before.iter().zip(&after).filter(|(b, a)| b == a).count();
                    assert_eq!(stayed * PAGE, stay.len(), "{what}: the others moved");
                }
                let busy = result.pages.unwrap();
                let busy = busy.iter().filter(|&&told| told == Some(Outcome::Busy));
                assert_eq!(busy.count() * PAGE, stay.len(), "{what}");

                // What a device would write through the pin is what the application sees.
                let (read, mut write) = pipe();
                let text = [round as u8 + 1; 1000];
                write.write_all(&text).unwrap();
                let at = pinned + 3 * PAGE + 500;
                assert_eq!(ring.read_fixed(&read, at, 1000), 1000, "{what}");
                for at in at..at + 1000 {
                    assert_eq!(byte(at), round as u8 + 1, "{what}: round {round}");
                }
            }
            fill(region.addr, region.len, 2);
            drop(ring);
            let result = move_all(&mover, &region.range(), &options);
            // The kernel drops the pins of a ring a moment after its descriptor is closed.
            assert_eq!(
                result.moved.bytes + result.busy.bytes,
                region.len as u64,
                "{what}: {result:?}"
            );
            assert_filled(region.addr, region.len, 2, &what);
        }
    }
}

#[test]
fn pages_pinned_during_moves_are_written_where_the_application_reads() {
    for migrator in MIGRATORS {
        let region = Region::filled(4 << 20, Kind::Base, 1);
        let mover = mover(migrator);
        while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
            for time in 0..200usize {
                let at = region.addr + time * 5 * PAGE;
                let ring = Ring::with_buffer(at, 2 * PAGE);
                let (read, mut write) = pipe();
                write.write_all(&[time as u8; PAGE]).unwrap();
                assert_eq!(ring.read_fixed(&read, at, PAGE as u32), PAGE as i32);
                for at in (at..at + PAGE).step_by(64) {
                    assert_eq!(byte(at), time as u8, "{migrator}: time {time}");
                }
            }
        });
    }
}

/// Puts the pages of a range into a pipe by reference; the pipe is made large enough.
fn splice(write: &std::fs::File, addr: usize, len: usize) {
    // SAFETY: changes the size of the pipe.
    let size = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, len) };
    assert!(size >= len as i32, "{}", std::io::Error::last_os_error());
    let pages = libc::iovec {
        iov_base: addr as *mut _,
        iov_len: len,
    };
    // SAFETY: the kernel reads one iovec and refers to the pages it names.
    let spliced = unsafe { libc::vmsplice(write.as_raw_fd(), &raw const pages, 1, 0) };
    assert_eq!(spliced, len as isize, "{}", std::io::Error::last_os_error());
}

/// vmsplice(2) takes references that UFFDIO_MOVE does not look at, so such pages move. `SourcePages::GIVE_BACK` leaves
/// the old page to the pipe: it is freed when the pipe was read. With `SourcePages::keep()` the mover would write the
/// next move's data into it, which is why that is unsafe and why this test must not use it for the spliced pages.
#[test]
fn a_pipe_keeps_what_was_spliced_when_source_pages_are_given_back() {
    for migrator in MIGRATORS {
        for kind in KINDS {
            let what = format!("{migrator}, {kind:?}");
            let region = Region::filled(2 * HUGE, kind, 1);
            let other = Region::filled(2 * HUGE, kind, 9);
            let (mut read, write) = pipe();
            let (at, len) = (region.addr + 8 * PAGE, 64 * PAGE);
            splice(&write, at, len);
            let mover = mover(migrator);
            let options = relocate().source(SourcePages::GIVE_BACK);
            move_whole(&mover, &region.range(), &options, &what);
            // From here on the application's pages are others; what it writes no longer shows in the pipe.
            for round in 2..12 {
                fill(region.addr, region.len, round);
                move_all(&mover, &region.range(), &options);
                // Fills the pool with other pages and uses them.
                let kept = relocate().source(both_sources()[1]);
                move_all(&mover, &other.range(), &kept);
                assert_filled(region.addr, region.len, round, &what);
                assert_filled(other.addr, other.len, 9, &what);
            }
            let mut bytes = vec![0; len];
            read.read_exact(&mut bytes).unwrap();
            for (index, chunk) in bytes.chunks_exact(8).enumerate() {
                let found = u64::from_ne_bytes(chunk.try_into().unwrap());
                assert_eq!(
                    found,
                    word(1, 8 * PAGE / 8 + index),
                    "{what}: word {index} in the pipe"
                );
            }
        }
    }
}

/// UFFDIO_MOVE has to split a THP that is mapped page by page, and a reference in a pipe keeps it whole. Linux 6.12 tries on until
/// the pipe gives it up, later kernels refuse the pages.
#[test]
fn a_thp_that_cannot_be_split_ends_no_move_and_loses_nothing() {
    for migrator in MIGRATORS {
        let region = Region::filled(2 * HUGE, Kind::Thp, 1);
        let (read, write) = pipe();
        splice(&write, region.addr + 8 * PAGE, PAGE);
        protect(region.addr, PAGE, libc::PROT_READ);
        protect(region.addr, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let mover = mover(migrator);
        let moving = mover.move_range_async(region.range(), 0, &relocate());
        let (moving, begun) = (moving.unwrap(), Instant::now());
        while !moving.is_over() && begun.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
        }
        let refused = moving.is_over();
        drop((read, write));
        let result = moving.wait().unwrap();
        let bytes = result.moved.bytes + result.left_bytes();
        assert_eq!(bytes, region.len as u64, "{migrator}: {result:?}");
        assert!(!refused || result.busy.bytes > 0, "{migrator}: {result:?}");
        assert_filled(region.addr, region.len, 1, migrator);
    }
}
