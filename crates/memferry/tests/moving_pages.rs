// SPDX-License-Identifier: MIT OR Apache-2.0
//! The move_pages(2) backend on a machine with one node: it cannot move, and says so, but it can count.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{Backend, Batch, MoveError, Mover, MoverOptions, Outcome, move_pages};
use support::*;

fn one_node() -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    online.trim() == "0" || online.is_empty()
}

#[test]
fn the_backend_says_what_it_lacks_on_one_node() {
    let made = Mover::new(MoverOptions::new(Batch::default()).backend(Backend::MovePages));
    if !one_node() {
        assert_eq!(made.expect("two nodes").backend(), Backend::MovePages);
        return;
    }
    match made {
        Err(error @ MoveError::NoBackend { .. }) => {
            let text = error.to_string();
            assert!(text.contains("userfaultfd: not asked for"), "{text}");
            assert!(text.contains("one memory node"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn present_pages_holes_and_the_zero_page_are_counted() {
    for callers in [1, 2, 5] {
        let region = Region::new(4 << 20, Kind::Base);
        let pages = region.len / PAGE;
        // A third each: filled, read only (the zero page), never touched.
        for page in 0..pages {
            let addr = region.addr + page * PAGE;
            match page % 3 {
                0 => fill(addr, PAGE, page as u64),
                1 => assert_eq!(load(addr), 0),
                _ => {}
            }
        }
        let frames = pfns(&region.range());
        let options = relocate().list_pages(true);
        let result = move_pages::move_range(0, region.range(), 0, callers, &options)
            .expect("node 0 is there");
        assert_each_byte_once(&result, region.len);
        assert_eq!(result.cancelled_bytes, 0);
        let filled = pages.div_ceil(3) * PAGE;
        assert_eq!(result.already_there.bytes, filled as u64, "{result:?}");
        assert_eq!(result.not_present.bytes, (region.len - filled) as u64);
        for (page, told) in result.pages.unwrap().into_iter().enumerate() {
            let expected = match page % 3 {
                0 => Outcome::AlreadyThere,
                _ => Outcome::NotPresent,
            };
            assert_eq!(told, Some(expected), "page {page}");
        }
        assert_pages_stayed(&frames, &region.range(), "one node");
        for page in (0..pages).step_by(3) {
            assert_filled(region.addr + page * PAGE, PAGE, page as u64, "counted");
        }
    }
}

#[test]
fn an_absent_node_or_process_is_an_error() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let error = move_pages::move_range(0, region.range(), 999, 1, &relocate()).unwrap_err();
    assert_eq!(error.errno(), libc::ENODEV, "{error}");
    // A process that has ended and was waited for.
    let gone = fork(|| 0);
    wait(gone);
    let error = move_pages::move_range(gone, region.range(), 0, 1, &relocate()).unwrap_err();
    assert_eq!(error.errno(), libc::ESRCH, "{error}");
    assert_filled(region.addr, region.len, 1, "refused");
}

#[test]
fn pages_of_another_process_are_counted() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let (read, write) = pipe();
    let wait_on = std::os::fd::AsRawFd::as_raw_fd(&read);
    let child = fork(|| {
        let mut byte = 0u8;
        // SAFETY: the kernel writes one byte.
        unsafe { libc::read(wait_on, (&raw mut byte).cast(), 1) };
        i32::from(first_wrong(region.addr, region.len, 1).is_some())
    });
    let result = move_pages::move_range(child, region.range(), 0, 2, &relocate());
    std::io::Write::write_all(&mut &write, &[1]).unwrap();
    assert_eq!(wait(child), 0, "the child keeps its contents");
    let result = result.expect("the same user, or root");
    assert_each_byte_once(&result, region.len);
    assert_eq!(result.already_there.bytes, region.len as u64, "{result:?}");
}
