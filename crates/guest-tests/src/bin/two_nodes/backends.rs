// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be the same whichever way the pages go.

use crate::memory::{
    PAGE, Region, THP, allocate_on, assert_accounted, assert_all_moved, fill_node, summary,
};
use crate::{Needs, machine};
use memferry::{
    Backend, Batch, MoveError, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, Outcome,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Check = fn(Backend);

/// What both backends must pass.
pub const BOTH: &[(&str, Check)] = &[
    ("mixed range", mixed),
    ("a list of ranges", list),
    ("memory bound to another node", bound),
    ("the target is full", |backend| full(backend, false)),
    ("the target is full, THPs", |backend| full(backend, true)),
    ("a node without CPUs", no_cpu),
    ("writers lose nothing", |backend| writers(backend, false)),
    ("writers lose nothing, THPs", |backend| {
        writers(backend, true)
    }),
    ("nodes that cannot be", bad_node),
    ("cancelled before it began", cancelled),
];

pub const CASES: &[(&str, Needs, fn())] = &[
    (
        "auto: anonymous, hugetlb, memfd and file memory in one list",
        Needs::MovePages,
        each_mapping,
    ),
    (
        "userfaultfd: prefill of a full node",
        Needs::Userfaultfd,
        full_prefill,
    ),
];

pub fn mover(backend: Backend, lanes: usize, pool_bytes: usize) -> Mover {
    let migrator: Box<dyn memferry::Migrator> = if lanes == 1 {
        Box::new(Batch::default())
    } else {
        Box::new(MtCopy::new(MtCopyOptions::default().lanes(lanes)).unwrap())
    };
    let mover = Mover::new(
        MoverOptions::new(migrator)
            .backend(backend)
            .pool_bytes(pool_bytes)
            .allow_huge_pages(true),
    )
    .unwrap();
    assert_eq!(mover.backend(), backend);
    mover
}

/// Whether a page lies on the target now.
pub fn on_target(told: Option<Outcome>) -> bool {
    matches!(told, Some(Outcome::Moved | Outcome::AlreadyThere))
}

fn listing() -> MoveOptions {
    MoveOptions::default().list_pages(true)
}

/// Source, there already, hole, zero page, and a third node where there is one, by turns.
fn mixed(backend: Backend) {
    let last = machine::last_node();
    let pages = 5 * 600;
    for lanes in [1, 2] {
        let region = Region::new((pages * PAGE).next_multiple_of(THP), false);
        for page in 0..pages {
            match page % 5 {
                0 => allocate_on(Some(0)),
                1 => allocate_on(Some(1)),
                2 => continue,
                3 => {
                    // SAFETY: the page is mapped and readable; reading maps the zero page.
                    unsafe { (region.page(page) as *const u64).read_volatile() };
                    continue;
                }
                _ => allocate_on(Some(last)),
            }
            region.fill_page(page, 7);
        }
        allocate_on(None);
        let range = region.page(0)..region.page(0) + pages * PAGE;
        let mover = mover(backend, lanes, 16 << 20);
        let result = mover.move_range(range, 1, &listing()).unwrap();
        let (each, size) = (pages as u64 / 5, PAGE as u64);
        let there = if last == 1 { 2 * each } else { each };
        assert_eq!(
            result.moved.folios,
            3 * each - there,
            "{}",
            summary(&result)
        );
        assert_eq!(result.moved.bytes, (3 * each - there) * size);
        assert_eq!(result.already_there.folios, there);
        assert_eq!(result.already_there.bytes, there * size);
        assert_eq!(result.not_present.folios, 2 * each);
        assert_eq!(result.left_bytes(), 0);
        assert_accounted(&result, pages * PAGE);
        let listed = result.pages.unwrap();
        assert_eq!(listed.len(), pages);
        for (page, (&told, node)) in listed.iter().zip(region.nodes()).enumerate() {
            let expected = match page % 5 {
                2 => machine::hole(),
                3 => -libc::EFAULT,
                _ => 1,
            };
            assert_eq!(node, expected, "page {page}");
            assert_eq!(on_target(told), node == 1, "page {page}: {told:?}");
            assert_eq!(told == Some(Outcome::NotPresent), node < 0, "page {page}");
            if expected == 1 {
                region.verify_page(page, 7);
            }
        }
    }
}

/// Scattered ranges in no order go, each with an account of its own; the pages between them stay.
fn list(backend: Backend) {
    let region = Region::on(0, 16 << 20);
    let pages = region.pages();
    let there = Region::on(1, 4 * PAGE);
    // Three of every seven pages, and a range that lies on the target.
    let mut list: Vec<_> = (0..pages / 7)
        .map(|index| index * 31 % (pages / 7) * 7)
        .map(|page| region.page(page)..region.page(page) + 3 * PAGE)
        .collect();
    list.insert(list.len() / 2, there.range());
    let mover = mover(backend, 2, 16 << 20);
    for to in [1, 0] {
        let result = mover.move_pages(&list, to, &listing()).unwrap();
        for (range, of) in list.iter().zip(&result.ranges) {
            assert_accounted(of, range.len());
            let stays = *range == there.range() && to == 1;
            let (moved, stayed) = if stays {
                (0, 4)
            } else {
                (range.len() / PAGE, 0)
            };
            let folios = (of.moved.folios, of.already_there.folios);
            assert_eq!(folios, (moved as u64, stayed), "{}", summary(of));
            let listed = of.pages.as_ref().unwrap();
            assert_eq!(listed.len(), range.len() / PAGE);
            assert!(listed.iter().all(|&told| on_target(told)));
        }
        assert_eq!(result.total.left_bytes(), 0, "{}", summary(&result.total));
        for (page, node) in region.nodes().into_iter().enumerate() {
            let listed = page % 7 < 3 && page / 7 < pages / 7;
            assert_eq!(node, if listed { to as i32 } else { 0 }, "page {page}");
        }
        there.assert_on(to);
        region.verify(0);
    }
}

/// What a virtual machine monitor has: its own heap, its guest's memory in a memfd and in hugetlb pages, and a
/// file that it has changed pages of.
fn each_mapping() {
    let bytes = 4 << 20;
    machine::reserve_hugetlb();
    let kinds = [
        Region::with_flags(bytes, 0),
        Region::with_flags(bytes, libc::MAP_HUGETLB),
        Region::memfd(bytes),
        Region::file(bytes),
    ];
    kinds.iter().for_each(|region| region.fill_on(0, 2));
    let mover = Mover::new(MoverOptions::new(Batch::default())).unwrap();
    println!("# anonymous memory goes by {:?}", mover.backend());
    let list: Vec<_> = kinds.iter().map(Region::range).collect();
    let result = mover.move_pages(&list, 1, &listing()).unwrap();
    for (region, of) in kinds.iter().zip(&result.ranges) {
        assert_eq!(of.moved.bytes, bytes as u64, "{}", summary(of));
        assert_accounted(of, bytes);
        region.assert_on(1);
        region.verify(2);
    }
    // One call for a range across two kinds does the same; userfaultfd alone refuses it.
    let refused = Mover::new(MoverOptions::new(Batch::default()).backend(Backend::Userfaultfd));
    if let Ok(alone) = refused {
        for region in &kinds[1..] {
            let refused = alone.move_range(region.range(), 0, &listing());
            assert!(
                matches!(refused, Err(MoveError::Unmovable { .. })),
                "{refused:?}"
            );
        }
    }
}

/// The owner's mempolicy says node 0; a move to node 1 is explicit and wins, and the policy stays for new pages.
fn bound(backend: Backend) {
    let bytes = 4 << 20;
    let region = Region::new(bytes, false);
    region.bind(0);
    (0..region.pages() - 1).for_each(|page| region.fill_page(page, 3));
    let mover = mover(backend, 2, bytes);
    let result = mover
        .move_range(region.range(), 1, &MoveOptions::default())
        .unwrap();
    let moved = (bytes - PAGE) as u64;
    assert_eq!(
        (result.moved.bytes, result.not_present.bytes),
        (moved, PAGE as u64),
        "{}",
        summary(&result)
    );
    let last = region.pages() - 1;
    region.fill_page(last, 3);
    let nodes = region.nodes();
    assert!(nodes[..last].iter().all(|&n| n == 1), "{nodes:?}");
    assert_eq!(nodes[last], 0, "the new page obeys the owner's policy");
    region.verify(3);
}

fn full(backend: Backend, huge: bool) {
    let target = machine::last_node();
    let bytes = 32 << 20;
    let make = if huge { Region::huge_on } else { Region::on };
    let region = make(0, bytes);
    let taken = fill_node(target);
    let mover = mover(backend, 2, bytes);
    for round in 0..2 {
        let result = mover
            .move_range(region.range(), target, &listing())
            .unwrap();
        println!(
            "# round {round}: {:?} moved, {:?} not",
            result.moved, result.no_memory
        );
        assert!(result.no_memory.bytes > 0, "{}", summary(&result));
        // A THP that finds no room is split; the kernel may have one in use just then.
        let busy = result.busy.bytes;
        assert!(
            busy <= if huge { 2 << 20 } else { 0 },
            "{}",
            summary(&result)
        );
        assert_eq!(result.left_bytes(), result.no_memory.bytes + busy);
        assert_accounted(&result, bytes);
        let listed = result.pages.unwrap();
        let there = listed.iter().filter(|&&told| on_target(told)).count();
        assert_eq!(
            (there * PAGE) as u64,
            result.moved.bytes + result.already_there.bytes
        );
        for (page, (&told, node)) in listed.iter().zip(region.nodes()).enumerate() {
            let expected = if on_target(told) { target as i32 } else { 0 };
            assert_eq!(node, expected, "page {page}: {told:?}");
            let stayed = matches!(told, Some(Outcome::NoMemory | Outcome::Busy));
            assert!(on_target(told) || stayed, "page {page}: {told:?}");
        }
        region.verify(0);
    }
    // With memory again, the rest follows.
    drop(taken);
    let result = mover
        .move_range(region.range(), target, &MoveOptions::default())
        .unwrap();
    assert_eq!(result.left_bytes(), 0, "{}", summary(&result));
    region.assert_on(target);
    region.verify(0);
}

fn full_prefill() {
    let target = machine::last_node();
    let _taken = fill_node(target);
    let mover = mover(Backend::Userfaultfd, 1, 64 << 20);
    for page in [PAGE, THP] {
        let refused = mover.prefill(target, page, 64 << 20).unwrap_err();
        assert!(
            matches!(&refused, MoveError::System { source, .. }
                if source.raw_os_error() == Some(libc::ENOMEM)),
            "{refused}"
        );
    }
}

fn no_cpu(backend: Backend) {
    let node = machine::node_without_cpu().expect("this case needs a node without CPUs");
    let bytes = 8 << 20;
    let region = Region::on(0, bytes);
    let mover = mover(backend, 2, bytes);
    for to in [node, 0, node, 1] {
        region.assert_moves(&mover, to, &MoveOptions::default(), bytes / PAGE, 0);
    }
}

/// Two threads count in every page, each in a word of its own, while the pages go there and back.
fn writers(backend: Backend, huge: bool) {
    const WRITERS: usize = 2;
    let (bytes, rounds) = if huge { (8 << 20, 10) } else { (4 << 20, 20) };
    let make = if huge { Region::huge_on } else { Region::on };
    let region = make(0, bytes);
    // SAFETY: as above; every access from here on is to these atomics.
    let counter = |page: usize, writer: usize| unsafe {
        AtomicU64::from_ptr((region.page(page) as *mut u64).add(100 * writer))
    };
    for page in 0..region.pages() {
        (0..WRITERS).for_each(|w| counter(page, w).store(0, Ordering::Relaxed));
    }
    let stop = AtomicBool::new(false);
    let passes: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let mover = mover(backend, 2, bytes);
    std::thread::scope(|scope| {
        for (writer, passes) in passes.iter().enumerate() {
            let (stop, counter, pages) = (&stop, &counter, region.pages());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for page in 0..pages {
                        // Not an atomic increment: a copy that is taken too early must show.
                        let seen = counter(page, writer).load(Ordering::Relaxed);
                        counter(page, writer).store(seen + 1, Ordering::Relaxed);
                    }
                    passes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..rounds {
            while passes.iter().any(|p| p.load(Ordering::Relaxed) < round) {
                std::thread::yield_now();
            }
            let to = if round % 2 == 0 { 1 } else { 0 };
            let options = match backend {
                Backend::Userfaultfd => crate::userfaultfd::recycling(),
                _ => MoveOptions::default(),
            };
            let result = mover.move_range(region.range(), to, &options).unwrap();
            assert_accounted(&result, bytes);
            if backend == Backend::Userfaultfd {
                let unit = if huge { THP } else { PAGE };
                assert_all_moved(&result, bytes, bytes / unit);
                region.assert_on(to);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for page in 0..region.pages() {
        for (writer, passes) in passes.iter().enumerate() {
            let (found, made) = (
                counter(page, writer).load(Ordering::Relaxed),
                passes.load(Ordering::Relaxed),
            );
            assert_eq!(found, made, "page {page}, writer {writer}");
        }
    }
    if huge {
        assert_eq!(region.thp_bytes(), bytes);
    }
}

fn bad_node(backend: Backend) {
    let region = Region::on(0, 1 << 20);
    let mover = mover(backend, 1, 1 << 20);
    for node in [machine::last_node() + 1, 63, 1023, 1024, u32::MAX] {
        let refused = mover
            .move_range(region.range(), node, &MoveOptions::default())
            .unwrap_err();
        assert!(
            matches!(refused, MoveError::BadNode { node: n, .. } if n == node),
            "{refused}"
        );
        assert_eq!(refused.errno(), libc::ENODEV);
        let refused = mover.prefill(node, PAGE, 1 << 20).unwrap_err();
        assert!(matches!(refused, MoveError::BadNode { .. }), "{refused}");
    }
    region.assert_on(0);
    region.verify(0);
}

fn cancelled(backend: Backend) {
    let region = Region::on(0, 4 << 20);
    let mover = mover(backend, 2, 4 << 20);
    let options = listing().cancel(std::sync::Arc::new(AtomicBool::new(true)));
    let result = mover.move_range(region.range(), 1, &options).unwrap();
    assert_eq!(result.cancelled_bytes, 4 << 20, "{}", summary(&result));
    assert!(result.pages.unwrap().iter().all(Option::is_none));
    region.assert_on(0);
    region.verify(0);
}
