// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locked, read-only and mixed mappings: what moves, what stays, and that flags of mappings are as they were.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Migrator, Mover, MoverOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::*;

fn lock(region: &Region, flags: libc::c_uint) {
    // SAFETY: locking changes no contents.
    let ret = unsafe { libc::syscall(libc::SYS_mlock2, region.addr, region.len, flags) };
    assert_eq!(
        ret, 0,
        "mlock2 of {} bytes: run as root or raise RLIMIT_MEMLOCK",
        region.len
    );
}

fn lock_part(addr: usize, len: usize) {
    // SAFETY: locking changes no contents.
    check(unsafe { libc::mlock(addr as *const _, len) }).expect("mlock");
}

fn locked_range_moves(test: &str, flags: libc::c_uint) {
    in_own_process(test, || {
        for migrator in MIGRATORS {
            for kind in KINDS {
                let region = Region::filled(4 << 20, kind, 5);
                lock(&region, flags);
                let before = status_kb("VmLck:");
                assert_eq!(before, region.len >> 10, "{migrator}, {kind:?}");
                let mover = mover(migrator);
                for source in both_sources() {
                    let frames = pfns(&region.range());
                    let options = relocate().source(source);
                    move_whole(&mover, &region.range(), &options, migrator);
                    assert_pages_changed(&frames, &region.range(), migrator);
                    assert_filled(region.addr, region.len, 5, migrator);
                    assert!(
                        vm_flags(region.addr).contains("lo"),
                        "{migrator}: still locked"
                    );
                    assert_eq!(smaps_sum(&region.range(), "Locked:"), region.len >> 10);
                    if kind == Kind::Thp {
                        assert_eq!(thp_bytes(&region.range()), region.len, "{migrator}");
                    }
                }
                // The mover's own pages are locked like the range's as long as it lives.
                drop(mover);
                assert_eq!(status_kb("VmLck:"), before, "{migrator}, {kind:?}");
            }
        }
    });
}

#[test]
fn a_locked_range_moves_and_stays_locked() {
    locked_range_moves("a_locked_range_moves_and_stays_locked", 0);
}

#[test]
fn a_range_locked_on_fault_moves_and_stays_locked() {
    const MLOCK_ONFAULT: libc::c_uint = 1;
    locked_range_moves(
        "a_range_locked_on_fault_moves_and_stays_locked",
        MLOCK_ONFAULT,
    );
}

#[test]
fn holes_of_a_range_locked_on_fault_stay_holes() {
    for migrator in MIGRATORS {
        let region = Region::new(1 << 20, Kind::Base);
        fill(region.addr, PAGE, 1);
        lock(&region, 1);
        let result = move_all(&mover(migrator), &region.range(), &relocate());
        assert_eq!(result.moved.bytes, PAGE as u64, "{migrator}: {result:?}");
        assert_eq!(present_bytes(&region.range()), PAGE as u64, "{migrator}");
        assert_filled(region.addr, PAGE, 1, migrator);
    }
}

#[test]
fn read_only_pages_are_unsupported_and_stay() {
    for prot in [
        libc::PROT_READ,
        libc::PROT_NONE,
        libc::PROT_READ | libc::PROT_EXEC,
    ] {
        for migrator in MIGRATORS {
            for kind in KINDS {
                let region = Region::filled(2 * HUGE, kind, 6);
                protect(region.addr, region.len, prot);
                let frames = pfns(&region.range());
                let result = move_all(&mover(migrator), &region.range(), &relocate());
                assert_eq!(
                    result.unsupported.bytes, region.len as u64,
                    "{migrator}, {kind:?}, protection {prot}: {result:?}"
                );
                assert_pages_stayed(&frames, &region.range(), migrator);
                protect(region.addr, region.len, libc::PROT_READ);
                assert_filled(region.addr, region.len, 6, migrator);
            }
        }
    }
}

#[test]
fn writable_parts_move_around_read_only_ones() {
    for migrator in MIGRATORS {
        let region = Region::filled(6 << 20, Kind::Base, 7);
        let (first, last) = (region.addr + 37 * PAGE, region.addr + 900 * PAGE);
        protect(first, 100 * PAGE, libc::PROT_READ);
        protect(last, 3 * PAGE, libc::PROT_NONE);
        let frames = pfns(&region.range());
        let result = move_all(&mover(migrator), &region.range(), &relocate());
        assert_eq!(
            result.unsupported.bytes,
            103 * PAGE as u64,
            "{migrator}: {result:?}"
        );
        assert_eq!(
            result.moved.bytes,
            (region.len - 103 * PAGE) as u64,
            "{migrator}: {result:?}"
        );
        assert_stay(&frames, &region.range(), migrator, |page| {
            (37..137).contains(&page) || (900..903).contains(&page)
        });
        protect(last, 3 * PAGE, libc::PROT_READ);
        assert_filled(region.addr, region.len, 7, migrator);
    }
}

#[test]
fn neighbouring_mappings_of_other_flags_all_move() {
    for migrator in MIGRATORS {
        for kind in KINDS {
            let region = Region::filled(4 * HUGE, kind, 8);
            // Another flag makes another mapping; both can be moved. Its ends lie in the middle of batches.
            let part = match kind {
                Kind::Base => (region.addr + 100 * PAGE, 333 * PAGE),
                Kind::Thp => (region.addr + HUGE, HUGE),
            };
            advise(part.0, part.1, libc::MADV_DONTDUMP).unwrap();
            let frames = pfns(&region.range());
            move_whole(&mover(migrator), &region.range(), &relocate(), migrator);
            assert_pages_changed(&frames, &region.range(), migrator);
            assert_filled(region.addr, region.len, 8, migrator);
        }
    }
}

#[test]
fn a_locked_part_moves_with_its_neighbours() {
    for migrator in MIGRATORS {
        let region = Region::filled(4 << 20, Kind::Base, 9);
        lock_part(region.addr + 300 * PAGE, 200 * PAGE);
        let frames = pfns(&region.range());
        move_whole(&mover(migrator), &region.range(), &relocate(), migrator);
        assert_pages_changed(&frames, &region.range(), migrator);
        assert_filled(region.addr, region.len, 9, migrator);
        assert!(
            vm_flags(region.addr + 300 * PAGE).contains("lo"),
            "{migrator}"
        );
    }
}

#[test]
fn a_range_that_cuts_thps_leaves_them_whole() {
    for migrator in MIGRATORS {
        let region = Region::filled(4 * HUGE, Kind::Thp, 10);
        let cut = region.addr + HUGE / 2..region.addr + 3 * HUGE + HUGE / 4;
        let frames = pfns(&region.range());
        let result = move_all(&mover(migrator), &cut, &relocate());
        assert_eq!(
            result.moved.bytes,
            2 * HUGE as u64,
            "{migrator}: {result:?}"
        );
        assert_eq!(result.moved.folios, 2, "{migrator}: {result:?}");
        assert_eq!(result.unsupported.bytes, (HUGE / 2 + HUGE / 4) as u64);
        // The first THP and the last one.
        let is_cut = |page: usize| [0, 3].contains(&(page * PAGE / HUGE));
        assert_stay(&frames, &region.range(), migrator, is_cut);
        assert_eq!(
            thp_bytes(&region.range()),
            region.len,
            "{migrator}: all whole"
        );
        assert_filled(region.addr, region.len, 10, migrator);
    }
}

/// When somebody else does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// When a run of the lanes begins; pages are watched, and none is away.
    Watched,
    /// At a copy, when pages are away.
    Away,
}

/// Copies with memcpy, and lets somebody else begin something at the first time that is named. They have ended when the
/// next run begins.
struct Disturbed {
    when: When,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Disturbed {
    fn begin(&self, when: When) {
        if when != self.when {
            return;
        }
        if let Some(act) = self.act.lock().unwrap().take() {
            let thread = std::thread::spawn(act);
            // If it began when the pipeline is over, the next run would wait for it, and it for somebody who hears it.
            while !is_unheard() && !thread.is_finished() {
                std::thread::yield_now();
            }
            *self.thread.lock().unwrap() = Some(thread);
        }
    }
}

/// Whether somebody waits for this process to read what it told a userfaultfd.
fn is_unheard() -> bool {
    let is_watch = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|file| file.as_os_str() == "anon_inode:[userfaultfd]")
    };
    let mut files = std::fs::read_dir("/proc/self/fd").unwrap();
    files.any(|file| {
        let file = file.unwrap();
        let mut poll = libc::pollfd {
            fd: file.file_name().to_str().unwrap().parse().unwrap(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes one `pollfd` and does not wait.
        is_watch(&file.path())
            && unsafe { libc::poll(&raw mut poll, 1, 0) } == 1
            && poll.revents & libc::POLLIN != 0
    })
}

// SAFETY: memcpy has copied everything when it returns.
unsafe impl Migrator for Disturbed {
    fn name(&self) -> &'static str {
        "disturbed"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        heap::excused(|| self.begin(When::Away));
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
        self.begin(When::Watched);
        lane(0);
    }
}

/// Moves two THPs, of which the second one is locked, while `act` does something to a part of it. Two runs of the lanes:
/// the kernel moves no page between locked and other memory.
fn move_disturbed(when: When, act: impl FnOnce(usize) + Send + 'static) -> Region {
    let region = Region::filled(2 * HUGE, Kind::Thp, 1);
    let second = region.addr + HUGE;
    lock_part(second, HUGE);
    let migrator = Disturbed {
        when,
        act: Mutex::new(Some(Box::new(move || act(second)))),
        thread: Mutex::default(),
    };
    let mover = Mover::new(MoverOptions::new(migrator).allow_huge_pages(true)).unwrap();
    // SAFETY: ends the process with a signal, which the test sees, if the move hangs.
    unsafe { libc::alarm(120) };
    let result = move_all(&mover, &region.range(), &relocate());
    assert_eq!(result.moved.bytes, HUGE as u64, "the first one: {result:?}");
    assert_filled(region.addr, HUGE, 1, "the first one");
    region
}

#[test]
fn a_mapping_that_came_while_the_part_before_it_moved_is_left_alone() {
    in_own_process(
        "a_mapping_that_came_while_the_part_before_it_moved_is_left_alone",
        || {
            for when in [When::Watched, When::Away] {
                let region = move_disturbed(when, |second| {
                    map_fixed(second, HUGE);
                    // Or the kernel would refuse to move its pages to where those of the locked one went.
                    lock_part(second, HUGE);
                    fill(second, HUGE, 7);
                });
                assert_filled(region.addr + HUGE, HUGE, 7, "the new mapping");
            }
        },
    );
}

#[test]
fn a_locked_mapping_that_grows_elsewhere_hangs_nobody() {
    in_own_process("a_locked_mapping_that_grows_elsewhere_hangs_nobody", || {
        for when in [When::Watched, When::Away] {
            let came = Arc::new(Mutex::new(0));
            let told = Arc::clone(&came);
            let region = move_disturbed(when, move |second| {
                // SAFETY: the test's own; the old addresses are not used any more.
                let at =
                    unsafe { libc::mremap(second as *mut _, HUGE, 2 * HUGE, libc::MREMAP_MAYMOVE) };
                assert_ne!(at, libc::MAP_FAILED);
                *told.lock().unwrap() = at as usize;
            });
            let at = *came.lock().unwrap();
            assert_words(at, HUGE, 1, HUGE / 8, &format!("{when:?}"));
            assert_zero(at + HUGE, HUGE, "what was added");
            // What lies at the old addresses by now is not the region's.
            std::mem::forget(region);
        }
    });
}
