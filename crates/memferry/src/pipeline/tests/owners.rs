// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners that drop, replace and remap parts of the range while pages are away, and what the kernel tells of it.

use super::*;
use crate::sys::memory::remap;

/// A thread that the end of the pipeline has let go.
#[derive(Default)]
struct Helper(Mutex<Option<std::thread::JoinHandle<()>>>);

impl Drop for Helper {
    fn drop(&mut self) {
        if let Some(thread) = self.0.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }
}

/// Lets `act` run on a thread of its own from call `n` of `site` on, and holds the pipeline up until the kernel has told
/// it, or the thread is through. The thread has ended when the hook is dropped.
fn meanwhile(site: Site, n: usize, act: impl FnOnce() + Send + 'static) -> Hook<'static> {
    hold_up(site, n, |kernel| kernel.live.pending(), act)
}

/// The same, held up until `told`.
fn hold_up(
    site: Site,
    n: usize,
    told: impl Fn(&Faulty<'_>) -> bool + Sync + 'static,
    act: impl FnOnce() + Send + 'static,
) -> Hook<'static> {
    let act = Mutex::new(Some(act));
    let helper = Helper::default();
    Box::new(move |kernel, at, number, _| {
        if at == site && number == n {
            let act = act.lock().unwrap().take().unwrap();
            let thread = std::thread::spawn(act);
            while !told(kernel) && !thread.is_finished() {
                std::thread::yield_now();
            }
            *helper.0.lock().unwrap() = Some(thread);
        }
    })
}

/// Replaces pages by a new mapping that holds `byte`.
fn replace(range: &Range<usize>, byte: u8) {
    map_nothing(range);
    // SAFETY: the new mapping is the test's own.
    unsafe { std::ptr::write_bytes(range.start as *mut u8, byte, range.len()) };
}

/// Throws pages away.
fn throw_away(range: &Range<usize>) {
    // SAFETY: the range is the test's own.
    unsafe { memory::discard(range.start, range.len()).unwrap() };
}

/// Asserts that each page holds `byte`, and is there.
fn assert_holds(range: Range<usize>, byte: u8) {
    let mut regions = [Region::default(); 64];
    let (count, _) = Pagemap::open()
        .unwrap()
        .scan(range.start, range.end, &mut regions)
        .unwrap();
    let there: u64 = regions[..count].iter().map(|r| r.end - r.start).sum();
    assert_eq!(
        there as usize,
        range.len(),
        "pages of another mapping are lost"
    );
    // SAFETY: mapped, and nobody writes to it.
    let bytes = unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) };
    assert!(bytes.iter().all(|b| *b == byte));
}

/// Lets an owner do something to a part of the range, and to as much memory elsewhere, at each of the first calls that take pages
/// out or bring them back.
fn at_each_call(act: fn(&Range<usize>, usize), check: impl Fn(&Memory, &Range<usize>, usize)) {
    for site in [Site::Unmap, Site::Remap] {
        for n in 0..4 {
            for ask_nodes in [false, true] {
                let setup = Setup {
                    segments: vec![Filled::Pages, Filled::Pages],
                    dropped: 10..900,
                    ask_nodes,
                    ..Setup::default()
                };
                let elsewhere = Mapping::new(SEGMENT * 2, SEGMENT).unwrap();
                let to = elsewhere.addr();
                setup.run_and_check(
                    &|memory| {
                        let range = memory.pages(&setup.dropped);
                        meanwhile(site, n, move || act(&range, to))
                    },
                    &|memory| check(memory, &setup.dropped, to),
                );
            }
        }
    }
}

#[test]
fn a_mapping_that_replaces_a_part_of_the_range_is_left_alone() {
    at_each_call(
        |range, _| replace(range, 0xAB),
        |memory, pages, _| assert_holds(memory.pages(pages), 0xAB),
    );
}

#[test]
fn a_mapping_at_addresses_that_mremap_left_is_left_alone() {
    at_each_call(
        |range, to| {
            remap(range, to);
            replace(range, 0xCD);
        },
        |memory, pages, to| {
            assert_holds(memory.pages(pages), 0xCD);
            assert_came(memory, pages, to);
        },
    );
}

#[test]
fn pages_that_their_owner_drops_stay_dropped_and_waiters_are_woken() {
    for (site, n) in [(Site::Unmap, 1), (Site::Remap, 0), (Site::Remap, 2)] {
        for ask_nodes in [false, true] {
            let setup = Setup {
                segments: vec![Filled::Pages, Filled::Huge],
                dropped: 3..700,
                ask_nodes,
                ..Setup::default()
            };
            let ended = setup.run_and_check(
                &|memory| {
                    let range = memory.pages(&setup.dropped);
                    meanwhile(site, n, move || throw_away(&range))
                },
                &|memory| {
                    let Range { start, end } = memory.pages(&setup.dropped);
                    // SAFETY: mapped, and nobody writes to it.
                    let now =
                        unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
                    assert!(
                        now.iter().all(|b| *b == 0),
                        "a page came back from the dead"
                    );
                },
            );
            assert!(!ended.woken.is_empty());
        }
    }
}

#[test]
fn pages_that_leave_after_a_neighbour_was_dropped_come_back() {
    for ask_nodes in [false, true] {
        for recycle in [false, true] {
            // Seven pages leave, the owner drops the last two of them, and the rest of the batch follows.
            let setup = Setup {
                segments: vec![Filled::Pages],
                script: vec![inject(Site::Unmap, 0, 1, Fault::Partial(7))],
                dropped: 5..7,
                ask_nodes,
                recycle,
                ..Setup::default()
            };
            let ended = setup.run_with(&|memory| {
                let range = memory.pages(&setup.dropped);
                meanwhile(Site::Unmap, 1, move || throw_away(&range))
            });
            let moved = ended.result.count(Outcome::Moved).bytes as usize;
            assert_eq!(moved, SEGMENT - setup.dropped.len() * PAGE);
        }
    }
}

#[test]
fn a_fork_that_touches_a_hole_meets_no_deadlock() {
    for lanes in [1, 3] {
        let setup = Setup {
            segments: vec![Filled::Pages, Filled::Sieve(2), Filled::Pages],
            lanes,
            ..Setup::default()
        };
        setup.run_with(&|memory| {
            let hole = memory.pages(&(512..513)).start;
            let refused = |_: &Faulty<'_>| Away::try_begin().is_none();
            hold_up(Site::Remap, 3, refused, move || {
                crate::forkgate::tests::as_if_forking(|| {
                    // SAFETY: the page is mapped and never written.
                    assert_eq!(unsafe { std::ptr::read_volatile(hole as *const u8) }, 0);
                });
            })
        });
    }
}

#[test]
fn word_of_an_unmapping_that_failed_or_came_late_loses_nothing() {
    for ask_nodes in [false, true] {
        for lanes in [1, 3] {
            // The message is read while pages are away.
            let back = way_back(ask_nodes);
            let setup = Setup {
                ask_nodes,
                lanes,
                script: vec![inject(back, 0, 1, Fault::Errno(libc::EAGAIN))],
                ..Setup::default()
            };
            let ended = setup.run_with(&|memory| {
                let Range { start, end } = memory.range();
                tell(back, 0, Message::Unmap { start, end })
            });
            let moved = ended.result.moved.bytes;
            assert!(moved > 0, "what was away came back");
        }
    }
}

/// Asserts that the contents of some pages of `memory` are at `at`.
fn assert_came(memory: &Memory, pages: &Range<usize>, at: usize) {
    let bytes = &memory.bytes[pages.start * PAGE..pages.end * PAGE];
    // SAFETY: mapped, and nobody writes to it.
    let now = unsafe { std::slice::from_raw_parts(at as *const u8, bytes.len()) };
    assert!(now == bytes, "pages are lost");
}

/// The first call that brings pages back.
fn way_back(ask_nodes: bool) -> Site {
    if ask_nodes { Site::Remap } else { Site::Fill }
}

/// `range` goes to `to` while it is away, and from then on the `n`-th look for messages finds `message`.
fn remapped_and_told(
    back: Site,
    range: Range<usize>,
    to: usize,
    n: usize,
    message: Message,
) -> Hook<'static> {
    let first = AtomicUsize::new(usize::MAX);
    let remapped = meanwhile(back, 0, move || remap(&range, to));
    Box::new(move |kernel, site, number, range| {
        remapped(kernel, site, number, range);
        if site == back && number == 0 {
            let calls = kernel.calls.lock().unwrap();
            let looks = calls.get(&Site::Messages).copied();
            first.store(looks.unwrap_or(0), Ordering::Relaxed);
        }
        if site == Site::Messages && number == first.load(Ordering::Relaxed).saturating_add(n) {
            kernel.stale.lock().unwrap().push(message);
        }
    })
}

#[test]
fn of_two_mremaps_at_once_the_kernel_tells_which_was_first() {
    for ask_nodes in [false, true] {
        let setup = Setup {
            segments: vec![Filled::Pages],
            batch_bytes: SEGMENT,
            dropped: 0..512,
            ask_nodes,
            ..Setup::default()
        };
        let (there, elsewhere) = (
            Mapping::new(SEGMENT, SEGMENT).unwrap(),
            Mapping::new(SEGMENT, SEGMENT).unwrap(),
        );
        // Somebody's mapping left the place before the segment came there, and word of it comes after.
        let late = Message::Remap {
            from: there.addr(),
            to: elsewhere.addr(),
            len: SEGMENT,
        };
        setup.run_and_check(
            &|memory| remapped_and_told(way_back(ask_nodes), memory.range(), there.addr(), 1, late),
            &|memory| assert_came(memory, &(0..512), there.addr()),
        );
    }
}

#[test]
fn a_fault_where_a_mapping_came_that_is_not_told_yet_ends_no_watch() {
    for ask_nodes in [false, true] {
        let setup = Setup {
            segments: vec![Filled::Pages, Filled::Nothing],
            batch_bytes: SEGMENT,
            dropped: 0..1024,
            ask_nodes,
            ..Setup::default()
        };
        setup.run_and_check(
            &|memory| {
                let to = memory.range().start + SEGMENT;
                let fault = Message::Fault {
                    addr: to,
                    thread: 0,
                };
                // First comes word of what made room.
                remapped_and_told(way_back(ask_nodes), memory.range().start..to, to, 1, fault)
            },
            &|memory| assert_came(memory, &(0..512), memory.range().start + SEGMENT),
        );
    }
}

#[test]
fn a_mapping_that_another_userfaultfd_watches_gets_no_page() {
    for ask_nodes in [false, true] {
        let setup = Setup {
            segments: vec![Filled::Pages, Filled::Pages],
            dropped: 10..900,
            ask_nodes,
            ..Setup::default()
        };
        let back = way_back(ask_nodes);
        let other = Mutex::new(None);
        let (other, done) = (&other, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            setup.run_and_check(
                &|memory| {
                    let range = memory.pages(&setup.dropped);
                    Box::new(move |kernel, site, n, _| {
                        if site == back && n == 0 {
                            let range = range.clone();
                            scope.spawn(move || {
                                map_nothing(&range);
                                let stranger = Uffd::open(0).unwrap();
                                stranger.register(range.start, range.len()).unwrap();
                                *other.lock().unwrap() = Some(stranger);
                                done.store(true, Ordering::Release);
                            });
                            while !kernel.live.pending() {
                                std::thread::yield_now();
                            }
                        } else if matches!(site, Site::Fill | Site::Watches)
                            && !kernel.live.pending()
                        {
                            while !done.load(Ordering::Acquire) {
                                std::thread::yield_now();
                            }
                        }
                    })
                },
                &|memory| {
                    assert!(done.load(Ordering::Acquire));
                    let range = memory.pages(&setup.dropped);
                    let there = Pagemap::open().unwrap().first(range.start, range.end);
                    assert_eq!(
                        there.unwrap(),
                        None,
                        "a page in a mapping of another, {ask_nodes}"
                    );
                },
            );
        });
    }
}

/// Replaces pages by a mapping of a file in memory that can never be written to.
fn map_read_only_file(range: &Range<usize>) {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the range is the test's own memory, and nothing else refers to it.
    unsafe {
        let file = libc::memfd_create(c"ferry".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert_eq!(libc::ftruncate(file, range.len() as i64), 0);
        assert_eq!(libc::fcntl(file, libc::F_ADD_SEALS, libc::F_SEAL_WRITE), 0);
        let (place, len) = (range.start as *mut _, range.len());
        let addr = libc::mmap(place, len, libc::PROT_READ, flags, file, 0);
        assert_eq!(addr as usize, range.start);
        libc::close(file);
    }
}

#[test]
fn a_mapping_that_userfaultfd_refuses_gets_no_page() {
    at_each_call(
        |range, _| map_read_only_file(range),
        |memory, pages, _| {
            let range = memory.pages(pages);
            let there = Pagemap::open().unwrap().first(range.start, range.end);
            assert_eq!(there.unwrap(), None, "a page in a file's mapping");
        },
    );
}

/// Replaces pages by an untouched mapping.
fn map_nothing(range: &Range<usize>) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the range is the test's own memory, and nothing else refers to it.
    let addr = unsafe { libc::mmap(range.start as *mut _, range.len(), prot, flags, -1, 0) };
    assert_eq!(addr as usize, range.start);
}

#[test]
fn a_place_in_doubt_that_became_read_only_is_filled() {
    for ask_nodes in [false, true] {
        let back = way_back(ask_nodes);
        let setup = Setup {
            segments: vec![Filled::Pages],
            ask_nodes,
            script: vec![inject(back, 0, 1, Fault::Errno(libc::EAGAIN))],
            ..Setup::default()
        };
        setup.run_with(&|memory| {
            let Range { start, end } = memory.range();
            let unmapped = tell(back, 0, Message::Unmap { start, end });
            Box::new(move |kernel: &Faulty<'_>, at, number, range| {
                unmapped(kernel, at, number, range);
                if at == back && number == 0 {
                    // SAFETY: the range is the test's own.
                    let done =
                        unsafe { libc::mprotect(start as *mut _, end - start, libc::PROT_READ) };
                    assert_eq!(done, 0);
                }
            })
        });
    }
}

/// The kernel tells of faults before all else, and who waits at a hole faults again as soon as he is woken.
#[test]
fn an_owner_is_heard_beside_threads_at_holes_that_fault_again_at_once() {
    const MOST: usize = 10_000;
    for ask_nodes in [false, true] {
        let setup = Setup {
            segments: vec![Filled::Pages, Filled::Sieve(3)],
            dropped: 10..20,
            ask_nodes,
            ..Setup::default()
        };
        let asked = AtomicUsize::new(0);
        let hook = |memory: &Memory| -> Hook<'_> {
            let dropped = memory.pages(&setup.dropped);
            let hole = memory.pages(&(SEGMENT / PAGE..SEGMENT / PAGE + 1)).start;
            let back = if ask_nodes { Site::Remap } else { Site::Fill };
            let empties = meanwhile(back, 0, move || throw_away(&dropped));
            let asked = &asked;
            Box::new(move |kernel, site, number, range| {
                empties(kernel, site, number, range.clone());
                let begins = site == back && number == 0;
                let again = site == Site::Wake && range.contains(&hole);
                if begins || again && asked.fetch_add(1, Ordering::Relaxed) < MOST {
                    let (addr, thread) = (hole, 0);
                    kernel
                        .stale
                        .lock()
                        .unwrap()
                        .push(Message::Fault { addr, thread });
                }
            })
        };
        setup.run_and_check(&hook, &|_| {});
        let asked = asked.into_inner();
        assert!(
            asked < 100,
            "asked {asked} times before the owner was heard"
        );
    }
}
