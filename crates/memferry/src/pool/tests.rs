// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool that loses and lends no address twice, whatever is asked of it.

use super::*;
use crate::sys::page_size;
use crate::sys::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Message};
use memferry_linux::pagemap::Pagemap;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

impl PagePool {
    /// Asserts that every address of every mapping lies in exactly one piece, that full pieces hold a page at each
    /// address and the others none, and that the count of kept bytes is right.
    pub(crate) fn audit(&self, pagemap: &Pagemap) {
        let lists = self.lock();
        let mut kept = 0;
        for free_list in lists.lists.iter() {
            let full: usize = free_list.full.iter().map(|p| p.len).sum();
            assert_eq!(full, free_list.full.bytes());
            kept += full;
            let empty = free_list.empty.iter().chain(free_list.fresh.iter());
            let mut pieces: Vec<(&Piece, bool)> =
                free_list.full.iter().map(|p| (p, true)).collect();
            pieces.extend(empty.map(|p| (p, false)));
            assert!(
                free_list.empty.iter().all(|p| p.staging)
                    && free_list.fresh.iter().all(|p| !p.staging)
            );
            pieces.sort_by_key(|(p, _)| p.addr);
            let mut mappings: Vec<_> = free_list
                .mappings
                .iter()
                .map(|chunk| (chunk.mapping.addr(), chunk.mapping.range().end))
                .collect();
            mappings.sort_unstable();
            let mut pieces = pieces.into_iter().peekable();
            for (start, end) in mappings {
                let mut at = start;
                while let Some((piece, full)) = pieces.next_if(|(p, _)| p.addr < end) {
                    assert_eq!(piece.addr, at, "a piece is missing or handed out twice");
                    assert!(piece.len > 0 && piece.addr / SEGMENT == (piece.end() - 1) / SEGMENT);
                    let expected = if full { piece.len } else { 0 };
                    assert_eq!(
                        pages_in(pagemap, piece),
                        expected,
                        "pages in {piece:x?}, full: {full}"
                    );
                    at = piece.end();
                }
                assert_eq!(at, end, "the last piece of a mapping is missing");
            }
            assert!(pieces.next().is_none(), "a piece outside all mappings");
        }
        assert!(kept <= self.limit);
    }
}

/// Bytes of pages that a piece holds.
fn pages_in(pagemap: &Pagemap, piece: &Piece) -> usize {
    let mut regions = vec![Default::default(); 1024];
    let (count, _) = pagemap.scan(piece.addr, piece.end(), &mut regions).unwrap();
    let there: u64 = regions[..count].iter().map(|r| r.end - r.start).sum();
    there as usize
}

const CLASSES: [PageClass; 3] = [class(0, false), class(1, false), class(0, true)];

const fn class(node: u32, huge: bool) -> PageClass {
    PageClass {
        node,
        huge,
        locked: false,
    }
}

#[derive(Clone, Debug)]
enum Op {
    TakeFull(usize, usize),
    TakeEmpty(usize, usize, bool),
    /// Gives a held piece back: full, or discarded.
    PutFull(usize),
    Discard(usize),
    /// Gives a part of a held empty piece back.
    PutEmpty(usize, usize),
    Populate(usize),
    Trim(usize),
}

fn any_op() -> impl Strategy<Value = Op> {
    let class = 0usize..CLASSES.len();
    prop_oneof![
        (class.clone(), 1usize..513).prop_map(|(s, p)| Op::TakeFull(s, p)),
        (class, 1usize..513, any::<bool>()).prop_map(|(s, p, g)| Op::TakeEmpty(s, p, g)),
        any::<usize>().prop_map(Op::PutFull),
        any::<usize>().prop_map(Op::Discard),
        (any::<usize>(), any::<usize>()).prop_map(|(i, p)| Op::PutEmpty(i, p)),
        any::<usize>().prop_map(Op::Populate),
        (0usize..1024).prop_map(Op::Trim),
    ]
}

struct Held {
    piece: Piece,
    full: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_address_is_lost_or_given_out_twice(ops in prop::collection::vec(any_op(), 1..80)) {
        let (page, pagemap) = (page_size(), Pagemap::open().unwrap());
        let pool = PagePool::new(1024 * page, false);
        let mut held: Vec<Held> = vec![];
        for op in ops {
            match op {
                Op::TakeFull(s, pages) => {
                    let before = pool.kept();
                    if let Some(piece) = pool.take_full(CLASSES[s], pages * page) {
                        prop_assert!(piece.len <= pages * page && piece.len > 0);
                        prop_assert_eq!(pool.kept(), before - piece.len);
                        prop_assert_eq!(piece.class, CLASSES[s]);
                        held.push(Held { piece, full: true });
                    } else {
                        prop_assert_eq!(pool.kept_on(CLASSES[s]), 0);
                    }
                }
                Op::TakeEmpty(s, pages, staging) => {
                    let pages = if CLASSES[s].huge { 512 } else { pages };
                    let piece = pool
                        .take_empty(CLASSES[s], pages * page, staging)
                        .unwrap();
                    prop_assert!(piece.len <= pages * page && piece.len * 2 >= pages * page);
                    prop_assert!(!CLASSES[s].huge || piece.len == SEGMENT);
                    prop_assert_eq!(piece.staging, staging);
                    held.push(Held { piece, full: false });
                }
                Op::PutFull(i) | Op::Discard(i) | Op::PutEmpty(i, _) | Op::Populate(i) if !held.is_empty() => {
                    let index = i % held.len();
                    let Held { piece, full } = held.swap_remove(index);
                    match op {
                        Op::PutFull(_) if full => pool.put_full(piece),
                        Op::Discard(_) => pool.discard(piece),
                        Op::PutEmpty(_, pages) if !full => {
                            let bytes = pages % (piece.len / page + 1) * page;
                            let (part, piece) = piece.cut(bytes);
                            pool.put_empty(part);
                            if piece.len > 0 {
                                held.push(Held { piece, full });
                            }
                        }
                        Op::Populate(_) if !full && !piece.staging && (!piece.class.huge || piece.len == SEGMENT) => {
                            pool.populate(&piece).unwrap();
                            if pages_in(&pagemap, &piece) == piece.len {
                                held.push(Held { piece, full: true });
                            } else {
                                // The kernel had no THP, or the page table of parts that were discarded is in its way.
                                prop_assert!(piece.class.huge);
                                pool.reset(piece);
                            }
                        }
                        _ => held.push(Held { piece, full }),
                    }
                }
                Op::Trim(pages) => {
                    pool.trim(pages * page);
                    prop_assert!(pool.kept() <= pages * page);
                }
                _ => {}
            }
            prop_assert!(pool.kept() <= pool.limit());
            let mut pieces: Vec<_> = held.iter().map(|h| &h.piece).collect();
            pieces.sort_by_key(|p| p.addr);
            prop_assert!(pieces.windows(2).all(|w| w[0].end() <= w[1].addr), "held twice");
        }
        for Held { piece, full } in held {
            if full {
                pool.put_full(piece);
            } else {
                pool.put_empty(piece);
            }
        }
        pool.audit(&pagemap);
        pool.trim(0);
        prop_assert_eq!(pool.kept(), 0);
        pool.audit(&pagemap);
    }
}

#[test]
fn a_locked_free_list_locks_no_more_than_it_uses() {
    let pool = PagePool::new(0, false);
    for locked in [false, true] {
        let class = PageClass {
            locked,
            ..class(0, false)
        };
        for staging in [false, true] {
            let _piece = pool.take_empty(class, page_size(), staging).unwrap();
        }
    }
    let mut lengths: Vec<usize> = pool.lock().extents().map(|range| range.len()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [SEGMENT, SEGMENT, CHUNK, CHUNK]);
}

#[test]
fn a_thp_is_never_offered_a_part_of_a_segment() {
    let (pool, thp) = (PagePool::new(0, false), class(0, true));
    let whole = pool.take_empty(thp, SEGMENT, false).unwrap();
    // All segments of the first mapping, and one page of one of them back.
    let mut pieces: Vec<_> = (1..CHUNK / SEGMENT)
        .map(|_| pool.take_empty(thp, SEGMENT, false).unwrap())
        .collect();
    let (part, _rest) = pieces.pop().unwrap().cut(SEGMENT - page_size());
    pool.put_empty(part);
    assert_eq!(pool.take_empty(thp, SEGMENT, false).unwrap().len, SEGMENT);
    assert_eq!(whole.len, SEGMENT);
}

/// Who empties a watched range waits until a lane has read of it, and may be the lane that would.
fn assert_reset_is_not_told(keep: bool) {
    let (pool, thp) = (PagePool::new(0, false), class(0, true));
    let uffd = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
    let staged = pool.take_empty(thp, SEGMENT, true).unwrap();
    let (over, mut told) = (AtomicBool::new(false), 0);
    let is_over = || over.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                pool.reset(pool.take_empty(thp, SEGMENT, true).unwrap());
            }
            over.store(true, Ordering::Release);
        });
        // Another lane.
        scope.spawn(|| {
            while !is_over() {
                drop(pool.stage(&uffd, &staged, keep).unwrap());
            }
        });
        let mut messages = [Message::Other; 16];
        while !is_over() {
            told += uffd.read(&mut messages).unwrap();
            std::thread::yield_now();
        }
    });
    pool.end_staging();
    assert_eq!(told, 0);
}

#[test]
fn a_range_that_is_reset_is_not_watched() {
    assert_reset_is_not_told(true);
    assert_reset_is_not_told(false);
}

/// The kernel moves pages to one mapping at a time. Linux 6.12 does not join parts again that had no page before they were watched.
#[test]
fn parts_that_were_watched_one_by_one_take_pages_together() {
    let (pool, base) = (PagePool::new(0, false), class(0, false));
    let uffd = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
    let pages = Mapping::new(SEGMENT, SEGMENT).unwrap();
    let fill_and_discard = |piece: Piece| {
        memory::populate(pages.addr(), pages.len()).unwrap();
        let staging = pool.stage(&uffd, &piece, false).unwrap();
        // SAFETY: nobody refers to the pages.
        let progress = unsafe { uffd.move_pages(piece.addr, pages.addr(), piece.len) };
        drop(staging);
        let done = (
            progress.done,
            progress.stopped.map(|error| sys::errno(&error)),
        );
        assert_eq!(done, (piece.len, None));
        pool.discard(piece);
    };
    let (first, second) = pool
        .take_empty(base, SEGMENT, true)
        .unwrap()
        .cut(SEGMENT / 4);
    fill_and_discard(second);
    fill_and_discard(first);
    fill_and_discard(pool.take_empty(base, SEGMENT, true).unwrap());
}
/// The page table of a THP that was given back in parts stays, and hides that the segment is empty.
#[test]
fn a_segment_that_was_discarded_in_parts_holds_a_thp_again_after_one_refusal() {
    let (pool, pagemap) = (PagePool::new(SEGMENT, false), Pagemap::open().unwrap());
    let thp = class(0, true);
    let allocate = || pool.allocate(thp, SEGMENT, |piece| pages_in(&pagemap, piece) == SEGMENT);
    let whole = allocate().unwrap();
    let addr = whole.addr;
    pool.put_full(whole);
    for len in [page_size(), SEGMENT] {
        pool.discard(pool.take_full(thp, len).unwrap());
    }
    let again = allocate().or_else(|_| allocate());
    assert_eq!(again.unwrap().addr, addr);
}
