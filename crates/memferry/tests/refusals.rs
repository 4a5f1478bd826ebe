// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cannot be moved: which error says so, which range it names, and that nothing has moved.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use memferry::{MoveError, Unmovable};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use support::*;

/// The error of a move with each migrator, which must be the same; frames of `watched` stay.
fn refusal(range: Range<usize>, watched: &Region) -> MoveError {
    let frames = pfns(&watched.range());
    let mut errors: Vec<MoveError> = MIGRATORS
        .iter()
        .map(|migrator| {
            mover(migrator)
                .move_range(range.clone(), 0, &relocate())
                .expect_err("it cannot be moved")
        })
        .collect();
    assert_pages_stayed(&frames, &watched.range(), "nothing moves");
    let first = errors.remove(0);
    for error in errors {
        assert_eq!(
            error.to_string(),
            first.to_string(),
            "every migrator says the same"
        );
    }
    first
}

fn assert_unmovable(range: Range<usize>, watched: &Region, part: Range<usize>, why: Unmovable) {
    match refusal(range, watched) {
        MoveError::Unmovable { range, what, hint } => {
            assert_eq!((range, what), (part, why));
            assert!(!hint.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

/// Maps something else over 2 MiB of a filled region and returns that part.
fn with_middle(flags: libc::c_int, fd: libc::c_int) -> (Region, Range<usize>) {
    with_middle_of(libc::PROT_READ | libc::PROT_WRITE, flags, fd)
}

fn with_middle_of(
    rights: libc::c_int,
    flags: libc::c_int,
    fd: libc::c_int,
) -> (Region, Range<usize>) {
    let region = Region::filled(4 * HUGE, Kind::Base, 1);
    let part = region.addr + HUGE..region.addr + 2 * HUGE;
    let flags = flags | libc::MAP_FIXED;
    // SAFETY: replaces a part of the test's own region.
    let got = unsafe { libc::mmap(part.start as *mut _, HUGE, rights, flags, fd, 0) };
    let error = std::io::Error::last_os_error();
    assert_eq!(got as usize, part.start, "{error}");
    (region, part)
}

#[test]
fn unaligned_and_empty_ranges_are_bad() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let (start, end) = (region.addr, region.addr + region.len);
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    for (bad, reason) in [
        (start + 8..end, "aligned"),
        (start..end - 1, "aligned"),
        (start..start, "empty"),
        (end..start, "ends before"),
        (usize::MAX - 4095..usize::MAX, "aligned"),
    ] {
        match refusal(bad.clone(), &region) {
            MoveError::BadRange { range, why, page } => {
                assert_eq!((range, page), (bad, PAGE));
                assert!(why.contains(reason), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_filled(region.addr, region.len, 1, "refused");
}

#[test]
fn a_gap_is_named() {
    let region = Region::filled(4 << 20, Kind::Base, 1);
    let part = region.addr + (1 << 20)..region.addr + (1 << 20) + 3 * PAGE;
    // SAFETY: a part of the test's own region.
    check(unsafe { libc::munmap(part.start as *mut _, part.len()) }).unwrap();
    let range = region.range();
    let rest = Region::filled(PAGE, Kind::Base, 1);
    assert_unmovable(range.clone(), &rest, part, Unmovable::Unmapped);
    assert_filled(region.addr, 1 << 20, 1, "before the gap");

    let top = 0x7fff_ffff_0000..0x7fff_ffff_f000;
    assert_unmovable(top.clone(), &rest, top, Unmovable::Unmapped);
    assert_unmovable(PAGE..2 * PAGE, &rest, PAGE..2 * PAGE, Unmovable::Unmapped);
}

#[test]
fn shared_anonymous_memory_is_named() {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let (region, part) = with_middle(flags, -1);
    fill(part.start, part.len(), 2);
    // /dev/zero names it in maps.
    assert_unmovable(region.range(), &region, part.clone(), Unmovable::Shared);
    assert_filled(part.start, part.len(), 2, "shared");
}

#[test]
fn memfd_is_named_by_how_it_is_mapped() {
    // SAFETY: a fresh descriptor.
    let fd = unsafe {
        let fd = libc::memfd_create(c"ferry".as_ptr(), libc::MFD_CLOEXEC);
        check(libc::ftruncate(fd, HUGE as i64)).unwrap();
        OwnedFd::from_raw_fd(fd)
    };
    for (flags, what) in [
        (libc::MAP_SHARED, Unmovable::Shared),
        (libc::MAP_PRIVATE, Unmovable::File),
    ] {
        let (region, part) = with_middle(flags, fd.as_raw_fd());
        fill(part.start, part.len(), 3);
        assert_unmovable(region.range(), &region, part.clone(), what);
        assert_filled(part.start, part.len(), 3, "memfd");
    }
}

#[test]
fn a_memfd_that_nobody_may_write_to_is_named() {
    // SAFETY: a fresh descriptor.
    let fd = unsafe {
        let fd = libc::memfd_create(c"ferry".as_ptr(), libc::MFD_ALLOW_SEALING);
        check(libc::ftruncate(fd, HUGE as i64)).unwrap();
        check(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_WRITE)).unwrap();
        OwnedFd::from_raw_fd(fd)
    };
    let (region, part) = with_middle_of(libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd());
    assert_unmovable(region.range(), &region, part, Unmovable::Shared);
}

#[test]
fn a_private_mapping_of_a_file_is_named() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(HUGE as u64).unwrap();
    let (region, part) = with_middle(libc::MAP_PRIVATE, file.as_raw_fd());
    fill(part.start, part.len(), 4);
    assert_unmovable(region.range(), &region, part.clone(), Unmovable::File);
    assert_filled(part.start, part.len(), 4, "the file's copy");
}

/// Sets vm.nr_hugepages back when dropped.
struct HugePages(String);

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn at_least(count: usize) -> HugePages {
        let before = std::fs::read_to_string(NR_HUGEPAGES).expect("a kernel with hugetlb");
        let keep = HugePages(before.clone());
        let now: usize = before.trim().parse().unwrap();
        std::fs::write(NR_HUGEPAGES, (now + count).to_string())
            .expect("this test needs root, to reserve hugetlb pages");
        keep
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(NR_HUGEPAGES, &self.0);
    }
}

#[test]
fn hugetlb_pages_are_named() {
    let _pages = HugePages::at_least(2);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let (region, part) = with_middle(flags, -1);
    fill(part.start, part.len(), 5);
    assert_unmovable(region.range(), &region, part.clone(), Unmovable::Hugetlb);
    assert_filled(part.start, part.len(), 5, "hugetlb");
}

#[test]
fn the_vdso_is_named() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let region = Region::filled(PAGE, Kind::Base, 1);
    let line = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .expect("a vDSO");
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let hex = |text| usize::from_str_radix(text, 16).unwrap();
    let vdso = hex(start)..hex(end);
    assert_unmovable(vdso.clone(), &region, vdso, Unmovable::Device);
}

#[test]
fn the_callers_own_stack_is_refused() {
    for migrator in MIGRATORS {
        // Not on the stack itself, or the error would name it first.
        let mover = Box::new(mover(migrator));
        let local = 7u64;
        let page = std::ptr::from_ref(&local).addr() / PAGE * PAGE;
        match mover.move_range(page..page + PAGE, 0, &relocate()) {
            Err(MoveError::OwnMemory { range, what }) => {
                assert_eq!(range, page..page + PAGE);
                assert!(what.contains("stack of a calling thread"), "{what}");
            }
            other => panic!("{migrator}: {other:?}"),
        }
        assert_eq!(local, 7);
    }
}

#[test]
fn the_mover_itself_is_refused() {
    let region = Region::new(1 << 20, Kind::Base);
    // A mover that lives in the range it is asked to move.
    let at = region.addr as *mut memferry::Mover;
    // SAFETY: aligned, writable and large enough; dropped below before the region is unmapped.
    let mover = unsafe {
        at.write(mover("batch"));
        &mut *at
    };
    match mover.move_range(region.range(), 0, &relocate()) {
        Err(MoveError::OwnMemory { range, what }) => {
            assert!(
                range.contains(&region.addr) && what.contains("mover"),
                "{what}"
            );
        }
        other => panic!("{other:?}"),
    }
    // SAFETY: written above, not used again.
    unsafe { std::ptr::drop_in_place(at) };
}

#[test]
fn an_absent_node_is_named() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let frames = pfns(&region.range());
    for absent in [999, u32::MAX] {
        for migrator in MIGRATORS {
            match mover(migrator).move_range(region.range(), absent, &relocate()) {
                Err(MoveError::BadNode { node, .. }) => assert_eq!(node, absent),
                other => panic!("{migrator}: {other:?}"),
            }
        }
    }
    assert!(matches!(
        mover("batch").prefill(999, PAGE, HUGE),
        Err(MoveError::BadNode { node: 999, .. })
    ));
    assert_pages_stayed(&frames, &region.range(), "nothing moves");
}

#[test]
fn a_wrong_batch_size_is_named() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let frames = pfns(&region.range());
    for wrong in [1, PAGE + 1, PAGE / 2, HUGE + PAGE, usize::MAX] {
        for migrator in MIGRATORS {
            let options = relocate().batch_bytes(wrong);
            match mover(migrator).move_range(region.range(), 0, &options) {
                Err(MoveError::BadOption { name, value, .. }) => {
                    assert_eq!((name, value), ("batch_bytes", wrong));
                }
                other => panic!("{migrator}: {other:?}"),
            }
        }
    }
    assert!(matches!(
        mover("batch").prefill(0, 3 * PAGE, HUGE),
        Err(MoveError::BadOption {
            name: "page_bytes",
            ..
        })
    ));
    assert_pages_stayed(&frames, &region.range(), "nothing moves");
}

#[test]
fn a_rate_of_nothing_is_named() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let frames = pfns(&region.range());
    for migrator in MIGRATORS {
        let moved = mover(migrator).move_range(region.range(), 0, &relocate().bytes_per_second(0));
        match moved {
            Err(MoveError::BadOption { name, value, .. }) => {
                assert_eq!((name, value), ("bytes_per_second", 0));
            }
            other => panic!("{migrator}: {other:?}"),
        }
    }
    assert_pages_stayed(&frames, &region.range(), "nothing moves");
}

#[test]
fn a_range_that_another_userfaultfd_watches_is_refused() {
    let region = Region::filled(1 << 20, Kind::Base, 1);
    let watcher = watch(&region.range());
    match refusal(region.range(), &region) {
        MoveError::Watched { range } => assert_eq!(range, region.range()),
        other => panic!("{other:?}"),
    }
    drop(watcher);
    assert_filled(region.addr, region.len, 1, "refused");
    move_whole(&mover("batch"), &region.range(), &relocate(), "free again");
}

#[test]
fn a_range_that_is_watched_in_part_is_refused_as_a_whole() {
    let region = Region::filled(4 << 20, Kind::Base, 1);
    let part = region.addr + (2 << 20)..region.addr + (3 << 20);
    let watcher = watch(&part);
    assert!(matches!(
        refusal(region.range(), &region),
        MoveError::Watched { .. }
    ));
    drop(watcher);
    assert_filled(region.addr, region.len, 1, "refused");
}

#[test]
fn the_error_that_ended_a_later_part_is_in_the_result() {
    const PART: usize = 1 << 30;
    let region = Region::new(PART + 2 * HUGE, Kind::Base);
    fill(region.addr, 4 * PAGE, 3);
    fill(region.addr + PART, 4 * PAGE, 4);
    let later = region.addr + PART + HUGE;
    let _other = watch(&(later..later + PAGE));
    let moved = move_all(&mover("batch"), &region.range(), &relocate());
    assert_eq!(moved.moved.bytes, 4 * PAGE as u64);
    let error = moved.error.expect("the second part is watched by another");
    assert!(matches!(*error, MoveError::Watched { .. }), "{error}");
    assert_filled(region.addr, 4 * PAGE, 3, "the first part");
    assert_filled(region.addr + PART, 4 * PAGE, 4, "the second part");
}
