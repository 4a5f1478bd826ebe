// SPDX-License-Identifier: MIT OR Apache-2.0
//! The userfaultfd backend between nodes: cold, warm and prefilled pools, base pages and THPs.

use crate::machine;
use crate::memory::{PAGE, Region, THP, assert_all_moved, resident_on, summary};
use memferry::{
    Backend, Batch, Migrator, MoveError, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions,
    SourcePages,
};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub const CASES: &[(&str, fn())] = &[
    ("there and back, recycled pages", there_and_back),
    ("cold pages come from the target", cold),
    ("prefilled pages lie on their node", prefilled),
    ("prefill ends at any pool limit", odd_pool_limits),
    ("THPs stay THPs, there and back", huge),
    ("prefilled THPs are THPs", huge_prefilled),
    ("THPs and base pages in one range", huge_and_base),
    (
        "recycled pages of two sources keep their nodes",
        two_sources,
    ),
    ("relocate moves what is there already", relocate),
    ("locked memory", locked),
    ("a refused move ends nobody's watch", watched_by_another),
    ("a THP that cannot be split loses nothing", spliced),
];

/// Every migrator, with as many lanes as it has here.
pub fn migrators() -> Vec<Box<dyn Migrator>> {
    vec![
        Box::new(Batch::default()),
        Box::new(MtCopy::new(MtCopyOptions::default()).unwrap()),
    ]
}

/// A mover through userfaultfd.
pub fn mover(migrator: Box<dyn Migrator>, pool_bytes: usize) -> Mover {
    let mover = Mover::new(
        MoverOptions::new(migrator)
            .backend(Backend::Userfaultfd)
            .pool_bytes(pool_bytes)
            .allow_huge_pages(true),
    )
    .unwrap();
    assert_eq!(mover.backend(), Backend::Userfaultfd);
    mover
}

/// Keeps the source pages.
pub fn recycling() -> MoveOptions {
    // SAFETY: nothing of the cases that use it is under vmsplice or in a zero-copy transmission.
    let source = unsafe { SourcePages::keep() };
    MoveOptions::default().source(source)
}

/// Attempts of a case that needs pages to stay where they are: kcompactd moves some in the background after others have filled
/// memory.
const ATTEMPTS: usize = 10;

fn there_and_back() {
    for migrator in migrators() {
        let name = migrator.name();
        let mover = mover(migrator, THERE_AND_BACK);
        let recycled = (0..ATTEMPTS).any(|_| is_recycled(&mover));
        assert!(recycled, "{name}: the kernel migrated pages each time");
    }
}

const THERE_AND_BACK: usize = 16 << 20;

/// Whether the pages that node 0 lent are those that came back; false where the kernel migrated some meanwhile.
fn is_recycled(mover: &Mover) -> bool {
    let (bytes, name) = (THERE_AND_BACK, mover.migrator().name());
    let region = Region::on(0, bytes);
    let (begun, before) = (machine::migrated_pages(), region.frames());
    let mut stayed = true;
    for round in 0..4u64 {
        region.fill(round);
        let to = if round % 2 == 0 { 1 } else { 0 };
        region.assert_moves(mover, to, &recycling(), bytes / PAGE, round);
        assert!(
            mover.pool_bytes() <= bytes,
            "{name}: {}",
            mover.pool_bytes()
        );
        if round == 1 {
            let mut frames = [before.clone(), region.frames()];
            frames.iter_mut().for_each(|f| f.sort_unstable());
            stayed = machine::migrated_pages() == begun;
            let common = frames[0] == frames[1];
            assert!(common || !stayed, "{name}: not recycled");
        }
    }
    stayed
}

fn cold() {
    let bytes = 16 << 20;
    for migrator in migrators() {
        let region = Region::on(0, bytes);
        let mover = mover(migrator, 0);
        for (round, to) in [(1, 1), (2, machine::last_node()), (3, 0)] {
            region.fill(round);
            region.assert_moves(&mover, to, &MoveOptions::default(), bytes / PAGE, round);
            assert_eq!(mover.pool_bytes(), 0);
        }
    }
}

fn prefilled() {
    let bytes = 16 << 20;
    for node in machine::nodes() {
        let region = Region::on((node + 1) % 2, bytes);
        let mover = mover(migrators().remove(1), bytes);
        let before = resident_on(node);
        assert_eq!(mover.prefill(node, PAGE, bytes).unwrap(), bytes);
        assert_eq!(mover.pool_bytes(), bytes);
        let taken = resident_on(node).saturating_sub(before);
        // The mover's own lists are memory, too.
        assert!(
            (bytes..bytes + (1 << 20)).contains(&taken),
            "node {node} gave {taken} bytes"
        );
        let before = resident_on(node);
        region.assert_moves(&mover, node, &MoveOptions::default(), bytes / PAGE, 0);
        assert_eq!(mover.pool_bytes(), 0, "the move did not use the free pages");
        let taken = resident_on(node).saturating_sub(before);
        assert!(
            taken < 1 << 20,
            "the move took {taken} bytes of node {node} besides"
        );
    }
}

fn odd_pool_limits() {
    for limit in [0, PAGE, THP - PAGE, THP + PAGE, 5 << 20] {
        for page in [PAGE, THP] {
            let mover = mover(migrators().remove(1), limit);
            let kept = mover.prefill(1, page, 64 << 20).unwrap();
            assert_eq!(kept, limit / page * page, "limit {limit}, pages of {page}");
        }
    }
}

fn huge() {
    let bytes = 8 << 20;
    for (index, migrator) in migrators().into_iter().enumerate() {
        let recycle = index != 1;
        let region = Region::huge_on(0, bytes);
        let mover = mover(migrator, bytes);
        let options = if recycle {
            recycling()
        } else {
            MoveOptions::default()
        };
        for round in 0..4u64 {
            region.fill(round);
            let to = if round % 2 == 0 { 1 } else { 0 };
            region.assert_moves(&mover, to, &options, bytes / THP, round);
            assert_eq!(region.thp_bytes(), bytes, "a THP was split");
        }
    }
}

fn huge_prefilled() {
    let bytes = 8 << 20;
    let mover = mover(migrators().pop().unwrap(), bytes);
    assert_eq!(mover.prefill(1, THP, bytes).unwrap(), bytes);
    let region = Region::huge_on(0, bytes);
    let result = mover
        .move_range(region.range(), 1, &MoveOptions::default())
        .unwrap();
    assert_all_moved(&result, bytes, bytes / THP);
    assert_eq!((region.thp_bytes(), mover.pool_bytes()), (bytes, 0));
    region.assert_on(1);
    region.verify(0);
}

/// Base pages, THPs and holes by turns.
fn huge_and_base() {
    let bytes = 12 << 20;
    for migrator in migrators() {
        let region = Region::huge_on(0, bytes);
        // Emptying a part of a THP splits its mapping into base pages.
        region.advise(512 + 7..512 + 9, libc::MADV_DONTNEED);
        region.advise(1536..2048, libc::MADV_DONTNEED);
        let holes = 2 + 512;
        let mover = mover(migrator, bytes);
        for to in [1, 0] {
            let result = mover.move_range(region.range(), to, &recycling()).unwrap();
            assert_eq!(
                result.moved.bytes as usize,
                bytes - holes * PAGE,
                "{}",
                summary(&result)
            );
            assert_eq!(
                result.moved.folios as usize,
                4 + 510,
                "{}",
                summary(&result)
            );
            assert_eq!(
                result.not_present.folios as usize,
                holes,
                "{}",
                summary(&result)
            );
            assert_eq!(region.thp_bytes(), 4 * THP);
            for (page, node) in region.nodes().into_iter().enumerate() {
                let hole = (519..521).contains(&page) || (1536..2048).contains(&page);
                assert_eq!(
                    node,
                    if hole { machine::hole() } else { to as i32 },
                    "page {page}"
                );
                if !hole {
                    region.verify_page(page, 0);
                }
            }
        }
    }
}

/// One move takes pages from two nodes; the free pages that it leaves behind belong to two nodes.
fn two_sources() {
    let last = machine::last_node();
    let bytes = 4 << 20;
    let (a, b) = (Region::on(0, bytes), Region::on(last, bytes));
    let mover = mover(migrators().remove(1), 8 << 20);
    for region in [&a, &b] {
        let result = mover.move_range(region.range(), 1, &recycling()).unwrap();
        assert_all_moved(&result, bytes, bytes / PAGE);
    }
    assert_eq!(mover.pool_bytes(), 2 * bytes);
    for (region, to) in [(&a, last), (&b, 0)] {
        region.assert_moves(&mover, to, &recycling(), bytes / PAGE, 0);
    }
}

fn relocate() {
    let bytes = 8 << 20;
    for huge in [false, true] {
        let make = if huge { Region::huge_on } else { Region::on };
        let region = make(1, bytes);
        let mover = mover(migrators().remove(1), bytes);
        let unit = if huge { THP } else { PAGE };
        let stay = mover
            .move_range(region.range(), 1, &MoveOptions::default())
            .unwrap();
        assert_eq!(
            (stay.already_there.bytes, stay.already_there.folios),
            (bytes as u64, (bytes / unit) as u64)
        );
        let before = region.frames();
        let options = MoveOptions::default().relocate(true);
        region.assert_moves(&mover, 1, &options, bytes / unit, 0);
        let same = before
            .iter()
            .zip(region.frames())
            .filter(|(a, b)| **a == *b)
            .count();
        // A page given back early in the move may be taken late in it, at another place than before.
        assert!(same < before.len() / 2, "{same} pages are the same frames");
    }
}

fn locked() {
    let bytes = 4 << 20;
    for migrator in migrators() {
        let region = Region::on(0, bytes);
        // SAFETY: locking changes no contents.
        let ret = unsafe { libc::mlock(region.range().start as *const _, bytes) };
        assert_eq!(ret, 0, "mlock: {}", std::io::Error::last_os_error());
        let mover = mover(migrator, bytes);
        for to in [1, 0] {
            region.assert_moves(&mover, to, &recycling(), bytes / PAGE, 0);
        }
    }
}

/// A userfaultfd of somebody else's that watches a range.
fn watch(watched: &Range<usize>) -> OwnedFd {
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    let mut api = [0xAAu64, 0, 0];
    let mut register = [watched.start as u64, watched.len() as u64, 1, 0];
    // SAFETY: a fresh descriptor; the kernel reads and writes the two structures, which are laid out as `uffdio_api`
    // and `uffdio_register`.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        assert!(fd >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        assert_eq!(libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api), 0);
        assert_eq!(
            libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register),
            0
        );
        fd
    }
}

/// Before Linux 6.17 whoever ends a watch ends that of others, too: the second move would not be refused.
fn watched_by_another() {
    let region = Region::on(0, 4 << 20);
    let _watcher = watch(&region.range());
    let mover = mover(migrators().remove(1), 0);
    for _ in 0..2 {
        let refused = mover.move_range(region.range(), 1, &MoveOptions::default());
        assert!(
            matches!(refused, Err(MoveError::Watched { .. })),
            "{refused:?}"
        );
    }
    region.assert_on(0);
    region.verify(0);
}

/// A page of a pipe keeps the kernel from splitting the THP that it belongs to, and UFFDIO_MOVE has to split one that is mapped
/// page by page. The kernel of the lab tries on until the pipe is gone, later ones refuse.
fn spliced() {
    let region = Region::huge_on(0, 2 * THP);
    let mut pipe = [-1; 2];
    // SAFETY: the kernel writes two numbers.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: fresh descriptors.
    let [read, write] = pipe.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let page = libc::iovec {
        iov_base: region.page(8) as *mut libc::c_void,
        iov_len: PAGE,
    };
    // SAFETY: the kernel takes a reference to a page of ours; of the mapping only its protection changes, to and fro.
    unsafe {
        let spliced = libc::vmsplice(write.as_raw_fd(), &raw const page, 1, 0);
        assert_eq!(spliced, PAGE as isize);
        for prot in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            assert_eq!(libc::mprotect(region.page(0) as *mut _, PAGE, prot), 0);
        }
    }
    let mover = mover(migrators().remove(0), 0);
    let moving = mover.move_range_async(region.range(), 1, &MoveOptions::default());
    let (moving, begun) = (moving.unwrap(), Instant::now());
    while !moving.is_over() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let what = if moving.is_over() {
        "refused"
    } else {
        "tried until the pipe was closed"
    };
    println!("# pages that cannot be split: {what}");
    drop((read, write));
    let result = moving.wait().unwrap();
    println!("# {}", summary(&result));
    let bytes = result.moved.bytes + result.left_bytes();
    assert_eq!(bytes, 2 * THP as u64, "{result:?}");
    region.verify(0);
}
