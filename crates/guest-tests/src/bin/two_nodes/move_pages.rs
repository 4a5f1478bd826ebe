// SPDX-License-Identifier: MIT OR Apache-2.0
//! The move_pages backend: callers, processes, and pages that one call gives up on.

use crate::backends::on_target;
use crate::machine;
use crate::memory::{PAGE, Region, THP, assert_accounted, assert_all_moved, nodes_of, summary};
use memferry::{Backend, MoveError, MoveOptions, Outcome, Unmovable, move_pages};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

pub const CASES: &[(&str, fn())] = &[
    ("own process, one and two callers", own_process),
    ("another process", other_process),
    ("THPs stay THPs and count once", huge),
    ("a THP at the edges of the range", huge_edges),
    ("busy pages leave the others alone", busy),
    ("a busy THP leaves the others alone", busy_huge),
    ("pages shared after fork are busy", shared_after_fork),
    ("relocate says that pages stay", relocate),
    ("ranges that cannot be", bad_ranges),
    ("processes that cannot be", bad_process),
    ("shared and file memory moves too", shared_memory),
    ("hugetlb memory moves too", hugetlb),
    ("prefill takes nothing", prefill),
];

/// The hidden argument of the process whose pages are moved from outside.
pub const SERVE: &str = "--serve";

fn own_process() {
    let bytes = 16 << 20;
    for callers in [1, 2, 5] {
        for pid in [0, std::process::id() as i32] {
            let region = Region::on(0, bytes);
            for to in [1, machine::last_node(), 0] {
                let result = move_pages::move_range(
                    pid,
                    region.range(),
                    to,
                    callers,
                    &MoveOptions::default(),
                )
                .unwrap();
                let unmoved = if result.already_there.bytes > 0 {
                    bytes
                } else {
                    0
                };
                assert_eq!(unmoved, 0, "{}", summary(&result));
                assert_all_moved(&result, bytes, bytes / PAGE);
                region.assert_on(to);
                region.verify(0);
            }
        }
    }
}

/// A process that holds a region and verifies it when asked.
struct Served {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    range: Range<usize>,
}

impl Served {
    fn start(bytes: usize) -> Served {
        let me = std::env::current_exe().unwrap();
        let mut child = Command::new(me)
            .args([SERVE, &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let start: usize = line.trim().parse().unwrap();
        Served {
            child,
            stdin,
            stdout,
            range: start..start + bytes,
        }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn verify(&mut self) {
        writeln!(self.stdin, "verify").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "intact");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: half base pages, half THPs, all on node 0.
pub fn serve(bytes: usize) -> ExitCode {
    let region = Region::new(bytes, false);
    region.advise(region.pages() / 2..region.pages(), libc::MADV_HUGEPAGE);
    crate::memory::allocate_on(Some(0));
    region.fill(9);
    println!("{}", region.range().start);
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "verify");
        region.verify(9);
        println!("intact");
    }
    ExitCode::SUCCESS
}

fn other_process() {
    let bytes = 16 << 20;
    for callers in [1, 2] {
        let mut served = Served::start(bytes);
        for to in [1, machine::last_node(), 0] {
            let result = move_pages::move_range(
                served.pid(),
                served.range.clone(),
                to,
                callers,
                &MoveOptions::default().list_pages(true),
            )
            .unwrap();
            let folios = if machine::has_pagemap_scan() {
                bytes / 2 / PAGE + bytes / 2 / THP
            } else {
                bytes / PAGE
            };
            assert_all_moved(&result, bytes, folios);
            assert!(result.pages.unwrap().into_iter().all(on_target));
            let nodes = nodes_of(served.pid(), served.range.start, bytes / PAGE);
            assert!(nodes.iter().all(|&node| node == to as i32), "{nodes:?}");
            served.verify();
        }
    }
}

/// What a THP counts as: one folio, where the kernel tells THPs from base pages.
fn thp_folios() -> usize {
    if machine::has_pagemap_scan() {
        1
    } else {
        THP / PAGE
    }
}

fn huge() {
    let bytes = 16 << 20;
    for callers in [1, 2] {
        let region = Region::huge_on(0, bytes);
        let mover = crate::backends::mover(Backend::MovePages, callers, 0);
        for to in [1, 0] {
            let options = MoveOptions::default().list_pages(true);
            let result = mover.move_range(region.range(), to, &options).unwrap();
            assert_all_moved(&result, bytes, bytes / THP * thp_folios());
            assert!(result.pages.unwrap().into_iter().all(on_target));
            let again = mover.move_range(region.range(), to, &options).unwrap();
            assert_eq!(again.already_there, result.moved);
            assert_eq!(region.thp_bytes(), bytes);
            region.assert_on(to);
            region.verify(0);
        }
    }
}

/// move_pages(2) moves a folio whole, also when the range names a part of it; only the part is counted.
fn huge_edges() {
    let region = Region::huge_on(0, 8 << 20);
    let range = region.page(100)..region.page(1536 + 10);
    let bytes = range.end - range.start;
    let result = move_pages::move_range(0, range, 1, 1, &MoveOptions::default()).unwrap();
    assert_eq!(result.moved.bytes, bytes as u64, "{}", summary(&result));
    assert_eq!(result.left_bytes(), 0, "{}", summary(&result));
    if machine::has_pagemap_scan() {
        assert_eq!(result.moved.folios, 4, "{}", summary(&result));
    }
    region.assert_on(1);
    region.verify(0);
    assert_eq!(region.thp_bytes(), region.len());
}

/// A reference that keeps a page where it is for as long as the pipe lives.
struct Pinned {
    pipe: [i32; 2],
}

impl Pinned {
    fn new(addr: usize, len: usize) -> Pinned {
        let mut pipe = [0; 2];
        // SAFETY: the kernel writes two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let vec = libc::iovec {
            iov_base: addr as *mut _,
            iov_len: len,
        };
        // SAFETY: the range is mapped; the pipe only refers to it.
        let ret = unsafe { libc::vmsplice(pipe[1], &raw const vec, 1, 0) };
        assert_eq!(
            ret,
            len as isize,
            "vmsplice: {}",
            std::io::Error::last_os_error()
        );
        Pinned { pipe }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: both descriptors are ours.
        self.pipe.iter().for_each(|&end| unsafe {
            libc::close(end);
        });
    }
}

/// The kernel gives up the rest of a call at the first group of pages that has a busy one.
fn busy() {
    let bytes = 6 << 20;
    for callers in [1, 2] {
        let region = Region::on(0, bytes);
        let pinned = [5, 20, 21, 700, 1023, 1024, 1535];
        let holes = [10, 30, 31, 600, 1100];
        let pins: Vec<Pinned> = pinned
            .iter()
            .map(|&page| Pinned::new(region.page(page), PAGE))
            .collect();
        holes
            .iter()
            .for_each(|&page| region.advise(page..page + 1, libc::MADV_DONTNEED));
        let options = MoveOptions::default().list_pages(true);
        let result = move_pages::move_range(0, region.range(), 1, callers, &options).unwrap();
        let nodes = region.nodes();
        let listed = result.pages.clone().unwrap();
        for page in 0..region.pages() {
            let (told, node) = (listed[page], nodes[page]);
            if pinned.contains(&page) {
                assert_eq!((told, node), (Some(Outcome::Busy), 0), "page {page}");
            } else if holes.contains(&page) {
                let hole = (Some(Outcome::NotPresent), machine::hole());
                assert_eq!((told, node), hole, "page {page}");
            } else {
                assert_eq!((told, node), (Some(Outcome::Moved), 1), "page {page}");
            }
            if !holes.contains(&page) {
                region.verify_page(page, 0);
            }
        }
        assert_eq!(result.busy.folios, pinned.len() as u64);
        assert_eq!(result.not_present.folios, holes.len() as u64);
        assert_accounted(&result, bytes);
        drop(pins);
        let rest = move_pages::move_range(0, region.range(), 1, callers, &options).unwrap();
        assert_eq!(
            (rest.moved.folios, rest.left_bytes()),
            (pinned.len() as u64, 0)
        );
    }
}

fn busy_huge() {
    let bytes = 8 << 20;
    let region = Region::huge_on(0, bytes);
    let pin = Pinned::new(region.page(600), PAGE);
    let options = MoveOptions::default().list_pages(true);
    let result = move_pages::move_range(0, region.range(), 1, 1, &options).unwrap();
    assert_accounted(&result, bytes);
    assert_eq!(
        result.moved.bytes as usize,
        bytes - THP,
        "{:?}",
        result.busy
    );
    assert_eq!(result.busy.bytes as usize, THP);
    for (page, node) in region.nodes().into_iter().enumerate() {
        assert_eq!(
            node,
            if (512..1024).contains(&page) { 0 } else { 1 },
            "page {page}"
        );
    }
    region.verify(0);
    drop(pin);
    let result = move_pages::move_range(0, region.range(), 1, 1, &options).unwrap();
    assert_eq!((result.moved.bytes as usize, result.left_bytes()), (THP, 0));
    region.assert_on(1);
    region.verify(0);
}

fn shared_after_fork() {
    let bytes = 4 << 20;
    let region = Region::on(0, bytes);
    // SAFETY: the child only waits for its end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: no memory is touched.
            unsafe { libc::pause() };
        }
    }
    // Every other page is the parent's own again.
    (0..region.pages()).step_by(2).for_each(|page| {
        crate::memory::allocate_on(Some(0));
        region.fill_page(page, 0)
    });
    crate::memory::allocate_on(None);
    let options = MoveOptions::default().list_pages(true);
    let result = move_pages::move_range(0, region.range(), 1, 2, &options).unwrap();
    // SAFETY: the child is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: the child is ours; its status is not asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let half = bytes as u64 / 2;
    assert_eq!(
        (result.moved.bytes, result.busy.bytes),
        (half, half),
        "{:?}",
        result.elapsed
    );
    let nodes = region.nodes();
    for (page, &told) in result.pages.unwrap().iter().enumerate() {
        let expected = if page % 2 == 0 {
            (Some(Outcome::Moved), 1)
        } else {
            (Some(Outcome::Busy), 0)
        };
        assert_eq!((told, nodes[page]), expected, "page {page}");
    }
    region.verify(0);
}

fn relocate() {
    let bytes = 4 << 20;
    let region = Region::on(1, bytes);
    let before = region.frames();
    let mover = crate::backends::mover(Backend::MovePages, 1, 0);
    let options = MoveOptions::default().relocate(true);
    let result = mover.move_range(region.range(), 1, &options).unwrap();
    assert_eq!(
        result.already_there.bytes,
        bytes as u64,
        "{}",
        summary(&result)
    );
    assert_eq!(before, region.frames());
}

fn bad_ranges() {
    let region = Region::on(0, 4 << 20);
    let at = region.page(0);
    let refuse =
        |range| move_pages::move_range(0, range, 1, 1, &MoveOptions::default()).unwrap_err();
    for range in [at..at, at + PAGE..at, at + 1..at + PAGE, at..at + 100] {
        let refused = refuse(range.clone());
        assert!(
            matches!(&refused, MoveError::BadRange { range: r, .. } if *r == range),
            "{refused}"
        );
    }
    let top = usize::MAX / PAGE * PAGE;
    let refused = refuse(top - (8 << 20)..top);
    assert!(matches!(refused, MoveError::BadRange { .. }), "{refused}");
    let refused = refuse(0..PAGE);
    assert!(
        matches!(
            refused,
            MoveError::Unmovable {
                what: Unmovable::Unmapped,
                ..
            }
        ),
        "{refused}"
    );
    // SAFETY: the part is ours.
    unsafe { libc::munmap(region.page(100) as *mut _, 10 * PAGE) };
    let refused = refuse(region.range());
    assert!(
        matches!(&refused, MoveError::Unmovable { what: Unmovable::Unmapped, range, .. }
            if *range == (region.page(100)..region.page(110))),
        "{refused}"
    );
    assert!(region.nodes()[..100].iter().all(|&node| node == 0));
}

fn bad_process() {
    let region = Region::on(0, 1 << 20);
    let to = |pid, node| {
        move_pages::move_range(pid, region.range(), node, 2, &MoveOptions::default()).unwrap_err()
    };
    assert_eq!(to(i32::MAX, 1).errno(), libc::ESRCH, "{}", to(i32::MAX, 1));
    assert_eq!(to(-1, 1).errno(), libc::ESRCH, "{}", to(-1, 1));
    for node in [machine::last_node() + 1, 1024, u32::MAX] {
        let refused = to(0, node);
        assert!(
            matches!(refused, MoveError::BadNode { node: n, .. } if n == node),
            "{refused}"
        );
    }
    // Nothing to move is no excuse for a node that is not there.
    let empty = Region::new(1 << 20, false);
    let refused = move_pages::move_range(0, empty.range(), 1000, 1, &MoveOptions::default());
    assert!(
        matches!(refused, Err(MoveError::BadNode { .. })),
        "{refused:?}"
    );
    // Not ours: another user may not look at it.
    let served = Served::start(1 << 20);
    let (pid, range) = (served.pid(), served.range.clone());
    crate::fallback::as_nobody(|| {
        let refused =
            move_pages::move_range(pid, range, 1, 1, &MoveOptions::default()).unwrap_err();
        assert!(
            matches!(refused.errno(), libc::EPERM | libc::EACCES),
            "{refused}"
        );
        assert!(refused.to_string().contains("same user"), "{refused}");
    });
    region.assert_on(0);
}

fn shared_memory() {
    let bytes = 4 << 20;
    let kinds = [
        Region::with_flags(bytes, libc::MAP_SHARED),
        Region::memfd(bytes),
        Region::file(bytes),
    ];
    kinds.iter().for_each(|region| region.fill_on(0, 5));
    for region in &kinds {
        let options = MoveOptions::default();
        let result = move_pages::move_range(0, region.range(), 1, 2, &options).unwrap();
        assert_all_moved(&result, bytes, bytes / PAGE);
        region.assert_on(1);
        region.verify(5);
    }
}

fn hugetlb() {
    let bytes = 4 << 20;
    machine::reserve_hugetlb();
    let region = Region::with_flags(bytes, libc::MAP_HUGETLB);
    region.fill_on(0, 4);
    let result = move_pages::move_range(0, region.range(), 1, 1, &MoveOptions::default()).unwrap();
    assert_all_moved(&result, bytes, bytes / THP * thp_folios());
    region.assert_on(1);
    region.verify(4);
}

/// The kernel finds the pages itself; free pages of ours would lie idle.
fn prefill() {
    let mover = crate::backends::mover(Backend::MovePages, 1, 16 << 20);
    let before = crate::memory::resident_on(1);
    assert_eq!(mover.prefill(1, PAGE, 16 << 20).unwrap(), 0);
    assert_eq!(mover.pool_bytes(), 0);
    let taken = crate::memory::resident_on(1).saturating_sub(before);
    assert!(taken < 1 << 20, "{taken} bytes");
}
