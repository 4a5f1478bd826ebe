// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program moves all anonymous mappings that it has: what a move needs itself is refused, the rest moves, and it goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Mover, MoverOptions, MtCopy, MtCopyOptions, default_lanes};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Mutex;
use support::*;

const LEN: usize = 3 << 20;

static STATICS: Mutex<[u8; LEN]> = Mutex::new([0; LEN]);

thread_local! {
    static LOCALS: RefCell<[u8; 64 << 10]> = const { RefCell::new([0; 64 << 10]) };
}

fn byte(index: usize) -> u8 {
    (index * 7 + (index >> 12)) as u8
}

fn fill_bytes(bytes: &mut [u8]) {
    (bytes.iter_mut().enumerate()).for_each(|(index, at)| *at = byte(index));
}

fn are_filled(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .enumerate()
        .all(|(at, value)| *value == byte(at))
}

/// Anonymous private mappings that may be written to, and are not the kernel's.
fn mappings() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parse = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let is_own = fields.get(5).is_none_or(|name| !name.starts_with("[v"));
        (fields[1] == "rw-p" && fields[4] == "0" && is_own).then_some(hex(start)?..hex(end)?)
    };
    maps.lines().filter_map(parse).collect()
}

/// Whether the range is refused; adds what has moved.
fn move_one(mover: &Mover, range: Range<usize>, moved: &mut u64) -> bool {
    match mover.move_range(range, 0, &relocate()) {
        Ok(result) => *moved += result.moved.bytes,
        Err(MoveError::OwnMemory { .. }) => return true,
        // What was listed may be gone.
        Err(MoveError::Unmovable { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    false
}

/// Moves each mapping as a whole, in pieces of 2 MiB, and page by page; of a piece that is not refused some pages.
fn move_everything(mover: &Mover) {
    let blocks: Vec<Vec<u8>> = (0..300)
        .map(|n| (0..1 + n * 131).map(byte).collect())
        .collect();
    fill_bytes(&mut *STATICS.lock().unwrap());
    LOCALS.with_borrow_mut(|locals| fill_bytes(locals));
    let (mut moved, mut refused) = (0, 0);
    for mapping in mappings() {
        move_one(mover, mapping.clone(), &mut moved);
        let mut at = mapping.start;
        while at < mapping.end {
            let end = ((at / HUGE + 1) * HUGE).min(mapping.end);
            let is_refused = move_one(mover, at..end, &mut moved);
            for page in (at..end).step_by(if is_refused { PAGE } else { 61 * PAGE }) {
                refused += usize::from(move_one(mover, page..page + PAGE, &mut moved));
            }
            at = end;
        }
    }
    assert!(refused > 0 && moved > 0);
    assert!(are_filled(&*STATICS.lock().unwrap()));
    assert!(LOCALS.with_borrow(|locals| are_filled(locals)));
    assert!(blocks.iter().all(|block| are_filled(block)));
}

#[test]
fn a_program_may_ask_for_all_that_it_has() {
    in_own_process("a_program_may_ask_for_all_that_it_has", || {
        for lanes in [1, default_lanes()] {
            let migrator = MtCopy::new(MtCopyOptions::default().lanes(lanes)).unwrap();
            let backend = memferry::Backend::Userfaultfd;
            let mover = Mover::new(MoverOptions::new(migrator).backend(backend)).unwrap();
            move_everything(&mover);
            std::thread::scope(|scope| scope.spawn(|| move_everything(&mover)).join()).unwrap();
        }
    });
}
