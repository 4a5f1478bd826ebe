// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel itself uses memory that moves: read(2), write(2), futex(2), and signals that interrupt all threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use support::*;

const LEN: usize = 4 << 20;

/// read(2) or write(2) of the whole range, in as many calls as it takes; never EFAULT.
fn transfer(call: impl Fn(usize, usize) -> isize, addr: usize, len: usize) {
    let mut done = 0;
    while done < len {
        let count = call(addr + done, len - done);
        assert!(
            count > 0,
            "at byte {done:#x}: {}",
            std::io::Error::last_os_error()
        );
        done += count as usize;
    }
}

fn read_all(from: &impl AsRawFd, addr: usize, len: usize) {
    let fd = from.as_raw_fd();
    // SAFETY: the kernel writes memory of the test's region.
    transfer(
        |at, len| unsafe { libc::read(fd, at as *mut _, len) },
        addr,
        len,
    );
}

fn write_all(to: &impl AsRawFd, addr: usize, len: usize) {
    let fd = to.as_raw_fd();
    // SAFETY: the kernel reads memory of the test's region.
    transfer(
        |at, len| unsafe { libc::write(fd, at as *const _, len) },
        addr,
        len,
    );
}

#[test]
fn files_are_read_into_and_written_from_pages_that_move() {
    for migrator in MIGRATORS {
        for kind in KINDS {
            let region = Region::filled(LEN, kind, 0);
            let mover = mover(migrator);
            let mut file = tempfile::tempfile().unwrap();
            while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
                let mut copy = vec![0; LEN];
                for time in 0..12 {
                    fill(region.addr, LEN, time);
                    file.rewind().unwrap();
                    write_all(&file, region.addr, LEN);
                    file.rewind().unwrap();
                    file.read_exact(&mut copy).unwrap();
                    let wrong = copy.chunks_exact(8).enumerate().find(|(i, c)| {
                        u64::from_ne_bytes((*c).try_into().unwrap()) != word(time, *i)
                    });
                    assert!(
                        wrong.is_none(),
                        "{migrator}, {kind:?}: {wrong:?} in the file"
                    );

                    for (index, chunk) in copy.chunks_exact_mut(8).enumerate() {
                        chunk.copy_from_slice(&word(time + 100, index).to_ne_bytes());
                    }
                    file.rewind().unwrap();
                    file.write_all(&copy).unwrap();
                    file.seek(SeekFrom::Start(0)).unwrap();
                    read_all(&file, region.addr, LEN);
                    assert_filled(region.addr, LEN, time + 100, migrator);
                }
            });
        }
    }
}

#[test]
fn pipes_are_read_into_holes_and_pages_that_move() {
    for migrator in MIGRATORS {
        // Every other page is a hole when the first byte arrives.
        let region = Region::new(LEN, Kind::Base);
        for page in region.range().step_by(2 * PAGE) {
            fill(page, PAGE, 1);
        }
        let source = Region::filled(LEN, Kind::Base, 5);
        let mover = mover(migrator);
        while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
            for _ in 0..6 {
                let (read, write) = pipe();
                std::thread::scope(|scope| {
                    scope.spawn(|| write_all(&write, source.addr, LEN));
                    read_all(&read, region.addr, LEN);
                });
                assert_filled(region.addr, LEN, 5, migrator);
            }
        });
    }
}

fn futex(addr: usize, operation: libc::c_int, value: u32) -> i64 {
    // SAFETY: the kernel looks at one word of the test's region.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            addr,
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    }
}

#[test]
fn a_futex_that_moves_wakes_its_waiter() {
    for migrator in MIGRATORS {
        let region = Region::filled(1 << 20, Kind::Base, 1);
        let at = region.addr + 77 * PAGE + 64;
        store(at, 0);
        // SAFETY: an aligned word of the region, which outlives all threads here.
        let turn = unsafe { AtomicU32::from_ptr(at as *mut u32) };
        let mover = mover(migrator);
        const TURNS: u32 = 400;
        while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
            // Two threads take turns; each sleeps on the word until the other has counted.
            let play = |parity: u32| {
                loop {
                    let now = turn.load(Ordering::Acquire);
                    if now >= TURNS {
                        return;
                    }
                    if now % 2 == parity {
                        turn.store(now + 1, Ordering::Release);
                        assert!(futex(at, libc::FUTEX_WAKE, i32::MAX as u32) >= 0);
                    } else if futex(at, libc::FUTEX_WAIT, now) < 0 {
                        let error = std::io::Error::last_os_error();
                        let error = error.raw_os_error();
                        assert!(
                            matches!(error, Some(libc::EAGAIN | libc::EINTR)),
                            "{migrator}: {error:?}"
                        );
                    }
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| play(0));
                play(1);
            });
        });
        assert_eq!(turn.load(Ordering::Relaxed), TURNS, "{migrator}");
    }
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_to_movers_and_writers_change_nothing() {
    in_own_process("signals_to_movers_and_writers_change_nothing", || {
        let handler = count_signal as extern "C" fn(libc::c_int);
        // SAFETY: the handler only counts. Without SA_RESTART, so that calls are really interrupted.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            check(libc::sigaction(
                libc::SIGUSR1,
                &raw const action,
                std::ptr::null_mut(),
            ))
            .unwrap();
        }
        for migrator in MIGRATORS {
            for kind in KINDS {
                let region = Region::filled(LEN, kind, 1);
                for page in region.range().step_by(PAGE) {
                    store(page, 0);
                }
                let mover = mover(migrator);
                let (stop, moved) = (AtomicBool::new(false), AtomicBool::new(false));
                let ids = [AtomicU64::new(0), AtomicU64::new(0)];
                let range = region.range();
                std::thread::scope(|scope| {
                    let _raise = Raise(&stop);
                    let write = scope.spawn(|| {
                        // SAFETY: no memory is touched.
                        ids[0].store(unsafe { libc::pthread_self() }, Ordering::Release);
                        let mut passes = 0u64;
                        while !stop.load(Ordering::Acquire) {
                            for page in range.clone().step_by(PAGE) {
                                store(page, load(page) + 1);
                            }
                            passes += 1;
                        }
                        passes
                    });
                    let moves = scope.spawn(|| {
                        let _raise = Raise(&moved);
                        // SAFETY: no memory is touched.
                        ids[1].store(unsafe { libc::pthread_self() }, Ordering::Release);
                        for _ in 0..50 {
                            move_whole(&mover, &range, &relocate(), migrator);
                        }
                    });
                    while !moved.load(Ordering::Acquire) {
                        for thread in ids.iter().map(|id| id.load(Ordering::Acquire)) {
                            if thread != 0 {
                                // SAFETY: neither thread has been joined.
                                let _ = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                            }
                        }
                        std::thread::yield_now();
                    }
                    moves.join().unwrap();
                    stop.store(true, Ordering::Release);
                    let passes = write.join().unwrap();
                    for page in region.range().step_by(PAGE) {
                        assert_eq!(load(page), passes, "{migrator}, {kind:?}");
                    }
                });
            }
        }
        assert!(SIGNALS.load(Ordering::Relaxed) > 100, "signals arrived");
    });
}
