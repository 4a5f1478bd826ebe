// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork(2) and moves: pages that are shared stay and are counted, and a child never sees a page on its way.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Mover};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;

/// A fork shares the pages of all tests of this process: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A child that looks at a region when told, and exits with 0 if it is as filled.
struct Watcher {
    pid: libc::pid_t,
    tell: std::fs::File,
}

impl Watcher {
    fn fork(region: &Region, seed: u64) -> Watcher {
        let (read, tell) = pipe();
        let (wait_on, addr, len) = (read.as_raw_fd(), region.addr, region.len);
        let pid = fork(|| {
            let mut byte = 0u8;
            // SAFETY: the kernel writes one byte.
            let got = unsafe { libc::read(wait_on, (&raw mut byte).cast(), 1) };
            match first_wrong(addr, len, seed) {
                None if got == 1 => 0,
                None => 1,
                Some(_) => 2,
            }
        });
        Watcher { pid, tell }
    }

    fn look(mut self) -> i32 {
        self.tell.write_all(&[1]).unwrap();
        wait(self.pid)
    }
}

#[test]
fn pages_shared_with_a_child_stay_and_are_busy() {
    let _alone = alone();
    for migrator in MIGRATORS {
        for kind in KINDS {
            let what = format!("{migrator}, {kind:?}");
            let region = Region::filled(2 * HUGE, kind, 1);
            let mover = mover(migrator);
            let watcher = Watcher::fork(&region, 1);
            let frames = pfns(&region.range());
            let result = move_all(&mover, &region.range(), &relocate());
            assert_eq!(result.busy.bytes, region.len as u64, "{what}: {result:?}");
            assert_pages_stayed(&frames, &region.range(), &what);
            assert_filled(region.addr, region.len, 1, &what);

            // What the parent writes becomes its own, and movable; the child keeps what was.
            let half = region.addr..region.addr + HUGE;
            fill(half.start, HUGE, 2);
            let result = move_all(&mover, &region.range(), &relocate());
            assert_eq!(result.busy.bytes, HUGE as u64, "{what}: {result:?}");
            assert_eq!(result.moved.bytes, HUGE as u64, "{what}: {result:?}");
            assert_filled(half.start, HUGE, 2, &what);
            assert_eq!(
                watcher.look(),
                0,
                "{what}: the child sees what was when it was forked"
            );

            // After the child's end the rest moves as soon as it is written again.
            for page in (half.end..half.end + HUGE).step_by(PAGE) {
                store(page, load(page));
            }
            let frames = pfns(&region.range());
            move_whole(&mover, &region.range(), &relocate(), &what);
            assert_pages_changed(&frames, &region.range(), &what);
            assert_part(&region, &(half.end..half.end + HUGE), 1, &what);
        }
    }
}

#[test]
fn after_the_childs_end_untouched_pages_are_counted_once_and_keep_their_contents() {
    let _alone = alone();
    for migrator in MIGRATORS {
        let region = Region::filled(HUGE, Kind::Base, 1);
        let mover = mover(migrator);
        assert_eq!(Watcher::fork(&region, 1).look(), 0);
        let result = move_all(&mover, &region.range(), &relocate());
        // The kernel may or may not have found out that the pages are exclusive again.
        assert_eq!(
            result.busy.bytes + result.moved.bytes,
            region.len as u64,
            "{migrator}: {result:?}"
        );
        assert_filled(region.addr, region.len, 1, migrator);
    }
}

/// Forks while the region moves and two threads count in it; each child looks at all it got.
fn fork_during_moves(migrator: &str, kind: Kind, forks: usize) {
    const LEN: usize = 4 << 20;
    let region = Region::filled(LEN, kind, 3);
    let stop = AtomicBool::new(false);
    for page in region.range().step_by(PAGE) {
        store(page, 1);
    }
    let (addr, mover) = (region.addr, mover(migrator));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    for page in region.range().step_by(PAGE) {
                        counter(page).fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _raise = Raise(&stop);
        let options = relocate().source(both_sources()[1]);
        while_moving(&mover, &region.range(), &options, no_error, |moving| {
            for time in 0..forks {
                let floor = load(addr + LEN - PAGE);
                let child = fork(|| {
                    for page in (addr..addr + LEN).step_by(PAGE) {
                        if load(page) == 0 {
                            return 1;
                        }
                        for at in (page + 8..page + PAGE).step_by(8) {
                            if load(at) != word(3, (at - addr) / 8) {
                                return 2;
                            }
                        }
                    }
                    if load(addr + LEN - PAGE) < floor {
                        3
                    } else {
                        0
                    }
                });
                assert_eq!(wait(child), 0, "{migrator}, {kind:?}: child {time}");
                // Shared THPs are split page by page as they are written: the parent keeps each page too.
                assert_canaries(
                    &region,
                    &format!("{migrator}, {kind:?}: after child {time}"),
                );
                if time % 8 == 0 {
                    moving.wait_rounds(1);
                }
            }
        });
    });
    assert_canaries(&region, migrator);
}

/// All but the first word of each page is as it was filled.
fn assert_canaries(region: &Region, what: &str) {
    for page in region.range().step_by(PAGE) {
        assert_part(region, &(page + 8..page + PAGE), 3, what);
    }
}

#[test]
fn a_child_forked_during_moves_sees_every_page() {
    let _alone = alone();
    for migrator in MIGRATORS {
        for kind in KINDS {
            fork_during_moves(migrator, kind, 100);
        }
    }
}

/// What a child does with a mover of its own: 0 if all is well. It must not print or panic.
fn moves_in_child() -> i32 {
    // A child that waits for ever is a failure, not a hang.
    // SAFETY: no memory is touched.
    unsafe { libc::alarm(60) };
    let region = Region::new(1 << 20, Kind::Base);
    fill(region.addr, region.len, 4);
    let Ok(mover) = Mover::new(options("batch")) else {
        return 1;
    };
    match mover.move_range(region.range(), 0, &relocate()) {
        Ok(result) if result.moved.bytes == region.len as u64 => {
            i32::from(first_wrong(region.addr, region.len, 4).is_some()) * 3
        }
        _ => 2,
    }
}

#[test]
fn a_child_moves_with_a_mover_of_its_own() {
    let _alone = alone();
    in_own_process("a_child_moves_with_a_mover_of_its_own", || {
        let _mover = mover("batch");
        assert_eq!(wait(fork(moves_in_child)), 0);
    });
}

#[test]
fn a_child_of_one_of_two_threads_that_fork_at_once_can_move() {
    let _alone = alone();
    in_own_process(
        "a_child_of_one_of_two_threads_that_fork_at_once_can_move",
        || {
            let region = Region::filled(4 << 20, Kind::Base, 1);
            let mover = mover("mtcopy");
            let both = Barrier::new(2);
            while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            for time in 0..100 {
                                both.wait();
                                assert_eq!(wait(fork(moves_in_child)), 0, "fork {time}");
                            }
                        });
                    }
                });
            });
            assert_filled(region.addr, region.len, 1, "the parent");
        },
    );
}

#[test]
fn the_parents_mover_refuses_to_work_in_the_child() {
    let _alone = alone();
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let mover = mover("batch");
    let range = region.range();
    assert_ne!(mover.prefill(0, PAGE, 1 << 20).unwrap(), 0);
    let kept = mover.pool_bytes();
    let child = fork(|| {
        let moved = mover.move_range(range.clone(), 0, &relocate());
        let filled = mover.prefill(0, PAGE, 2 << 20);
        // The child may have something else where the parent's free pages are.
        mover.trim_pool(0);
        match (moved, filled) {
            (Err(MoveError::OtherProcess), Err(MoveError::OtherProcess)) => {
                i32::from(mover.pool_bytes() != kept)
            }
            _ => 2,
        }
    });
    assert_eq!(wait(child), 0);
    let result = move_all(&mover, &range, &relocate());
    assert_eq!(result.busy.bytes + result.moved.bytes, region.len as u64);
    assert_filled(region.addr, region.len, 1, "the parent");
}

#[test]
fn commands_start_during_moves() {
    let _alone = alone();
    let region = Region::filled(4 << 20, Kind::Base, 1);
    let mover = mover("mtcopy");
    while_moving(&mover, &region.range(), &relocate(), no_error, |_| {
        for time in 0..30 {
            let mut child = std::process::Command::new("/bin/echo")
                .arg(time.to_string())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut text = String::new();
            child
                .stdout
                .take()
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text.trim(), time.to_string());
            assert!(child.wait().unwrap().success());
        }
    });
    assert_filled(region.addr, region.len, 1, "the parent");
}
