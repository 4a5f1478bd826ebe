// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the calling thread may do while its pages move: run signal handlers that touch them; and moves that nobody waits for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Backend, Mover, MoverOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use support::*;

/// Address and length of what the handler reads, and how often it has.
static RANGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static READS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn read_all(_: libc::c_int) {
    let [start, len] = [0, 1].map(|index: usize| RANGE[index].load(Ordering::Acquire));
    for at in (start..start + len).step_by(PAGE) {
        assert_eq!(load(at), word(1, (at - start) / 8));
    }
    READS.fetch_add(1, Ordering::AcqRel);
}

/// Sends this thread a signal at each copy. A caller that waits for itself is ended by the alarm.
fn signals_to_this_thread(handler: extern "C" fn(libc::c_int)) -> impl Fn(usize) + Send + Sync {
    // SAFETY: the handlers read mapped memory, count, and store a flag.
    let own = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        libc::alarm(300);
        libc::pthread_self()
    };
    move |_| {
        // SAFETY: the thread that asked for the move lives: it waits for it.
        unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
    }
}

#[test]
fn a_handler_of_the_caller_may_touch_what_moves() {
    in_own_process("a_handler_of_the_caller_may_touch_what_moves", || {
        let signal = AtCopy(signals_to_this_thread(read_all));
        let mover = Mover::new(MoverOptions::new(signal).backend(Backend::Userfaultfd)).unwrap();
        // On the calling thread, and on another.
        for len in [64 << 10, 8 << 20] {
            let region = Region::filled(len, Kind::Base, 1);
            for (cell, value) in RANGE.iter().zip([region.addr, len]) {
                cell.store(value, Ordering::Release);
            }
            let before = READS.load(Ordering::Acquire);
            let options = relocate().batch_bytes(64 << 10);
            let copied = mover.prefill(0, PAGE, len).unwrap();
            assert_eq!(copied, len, "with free pages the migrator copies");
            let moved = move_all(&mover, &region.range(), &options);
            assert_eq!(moved.moved.bytes as usize, len, "{moved:?}");
            assert!(READS.load(Ordering::Acquire) > before);
            assert_filled(region.addr, len, 1, "after the signals");
        }
    });
}

/// What ends the move.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

extern "C" fn stop(_: libc::c_int) {
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Release);
    }
}

/// At a byte a second the second part would wait for hours: the handler alone ends the move, or the alarm the test.
#[test]
fn a_handler_of_the_caller_runs_while_a_short_move_waits_for_its_rate() {
    const LEN: usize = 64 << 10;
    let name = "a_handler_of_the_caller_runs_while_a_short_move_waits_for_its_rate";
    in_own_process(name, || {
        let flag = STOP.get_or_init(Arc::default);
        let signal = AtCopy(signals_to_this_thread(stop));
        let mover = Mover::new(MoverOptions::new(signal).backend(Backend::Userfaultfd)).unwrap();
        let regions = [1, 2].map(|seed| Region::filled(LEN, Kind::Base, seed));
        assert_eq!(mover.prefill(0, PAGE, LEN).unwrap(), LEN);
        let options = relocate().batch_bytes(LEN).bytes_per_second(1_u64);
        let options = options.cancel(Arc::clone(flag));
        let ranges = regions.each_ref().map(Region::range);
        let moved = mover.move_pages(&ranges, 0, &options).unwrap().total;
        assert!(moved.moved.bytes > 0, "{moved:?}");
        assert!(moved.cancelled_bytes >= LEN as u64, "{moved:?}");
        for (region, seed) in regions.iter().zip([1, 2]) {
            assert_filled(region.addr, LEN, seed, "after the signal");
        }
    });
}

/// Whether a descriptor becomes readable in so many milliseconds; -1: whenever.
fn readable(of: &impl AsFd, ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: of.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one `pollfd`.
    unsafe { libc::poll(&raw mut poll, 1, ms) == 1 }
}

#[test]
fn a_move_that_nobody_waits_for_tells_how_far_it_is_and_can_be_cancelled() {
    const LEN: usize = 8 << 20;
    for cancels in [false, true] {
        let (hold, began) = (Arc::new(Mutex::new(())), Arc::new(AtomicBool::new(false)));
        let (let_go, at_copy) = (Arc::clone(&hold), Arc::clone(&began));
        let held = AtCopy(move |_| {
            at_copy.store(true, Ordering::Release);
            drop(let_go.lock().unwrap());
        });
        let mover = Mover::new(MoverOptions::new(held).backend(Backend::Userfaultfd)).unwrap();
        let region = Region::filled(LEN, Kind::Base, 1);
        assert_eq!(mover.prefill(0, PAGE, LEN).unwrap(), LEN);
        let options = relocate().batch_bytes(64 << 10);
        let held = hold.lock().unwrap();
        let moving = mover.move_range_async(region.range(), 0, &options).unwrap();
        while !began.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(!moving.is_over() && !readable(&moving, 0));
        let (known, all) = moving.progress();
        assert!(known < all && all == LEN as u64, "{known} of {all}");
        if cancels {
            moving.cancel();
        }
        drop(held);
        assert!(readable(&moving, -1) && moving.is_over());
        assert_eq!(moving.progress().0 == all, !cancels);
        let result = moving.wait().unwrap();
        assert_each_byte_once(&result, LEN);
        assert_eq!(result.cancelled_bytes > 0, cancels, "{result:?}");
        assert_eq!(result.moved.bytes + result.cancelled_bytes, LEN as u64);
        assert_filled(region.addr, LEN, 1, "after the move");
    }
}

#[test]
fn a_move_outlives_its_handle_and_its_mover() {
    const LEN: usize = 8 << 20;
    let region = Region::filled(LEN, Kind::Base, 1);
    let frames = pfns(&region.range());
    let moving = mover("batch")
        .move_range_async(region.range(), 0, &relocate())
        .unwrap();
    let over = moving.as_fd().try_clone_to_owned().unwrap();
    drop(moving);
    assert!(readable(&over, -1));
    assert_pages_changed(&frames, &region.range(), "nobody waited");
    assert_filled(region.addr, LEN, 1, "nobody waited");
}
