// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the kernel, copies and huge pages that fail, pools of all sizes, and a move that is cancelled.

use super::*;

#[test]
fn every_byte_comes_back_whatever_the_batch_and_the_lanes() {
    for batch_bytes in [PAGE, 64 << 10, 300 << 10 & !(PAGE - 1), 1 << 20, SEGMENT] {
        for lanes in 1..=4 {
            for ask_nodes in [false, true] {
                for recycle in [false, true] {
                    let setup = Setup {
                        batch_bytes,
                        lanes,
                        ask_nodes,
                        recycle,
                        slots: lanes + 2,
                        ..Setup::default()
                    };
                    let ended = setup.run_pipeline();
                    assert_eq!(ended.result.cancelled_bytes, 0, "{setup:?}");
                    assert_eq!(ended.result.not_present.folios, 171, "{setup:?}");
                    ended.assert_all_moved(&setup);
                }
            }
        }
    }
}

const ERRNOS: [i32; 7] = [
    libc::EAGAIN,
    libc::EINTR,
    libc::EEXIST,
    libc::ENOENT,
    libc::ENOMEM,
    libc::EBUSY,
    libc::EINVAL,
];
const SITES: [Site; 10] = [
    Site::Unmap,
    Site::Remap,
    Site::Fill,
    Site::Zero,
    Site::Release,
    Site::Wake,
    Site::Pending,
    Site::Messages,
    Site::Scan,
    Site::Nodes,
];

#[test]
fn a_failure_at_any_call_leaves_every_page_in_place() {
    for ask_nodes in [false, true] {
        for site in SITES {
            // UFFDIO_ZEROPAGE says EFAULT for a THP before Linux 6.12.
            let errnos = ERRNOS
                .into_iter()
                .chain((site == Site::Zero).then_some(libc::EFAULT));
            let faults = errnos
                .map(Fault::Errno)
                .chain([0, 1, 7, 63].map(Fault::Partial));
            for fault in faults {
                for (first, count) in [(0, 1), (3, 5), (1, 8)] {
                    let setup = Setup {
                        lanes: 2,
                        ask_nodes,
                        script: vec![inject(site, first, count, fault)],
                        stale: vec![0, 511, 600, 1024, 1025],
                        ..Setup::default()
                    };
                    let ended = setup.run_pipeline();
                    assert_eq!(
                        ended.error.is_some(),
                        ended.result.cancelled_bytes > 0,
                        "{setup:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_place_that_keeps_refusing_is_filled() {
    for errno in [libc::EBUSY, libc::EINVAL, libc::EEXIST, libc::EAGAIN] {
        let setup = Setup {
            segments: vec![Filled::Pages],
            batch_bytes: SEGMENT,
            script: vec![inject(Site::Remap, 0, usize::MAX / 2, Fault::Errno(errno))],
            ..Setup::default()
        };
        let ended = setup.run_pipeline();
        assert_eq!(ended.result.moved.bytes as usize, SEGMENT, "{errno}");
    }
}

#[test]
fn a_place_that_is_refused_for_a_while_is_not_given_up() {
    let script = (0..40)
        .map(|n| inject(Site::Fill, n * 10, 8, Fault::Errno(libc::ENOENT)))
        .chain([inject(
            Site::Remap,
            0,
            usize::MAX / 2,
            Fault::Errno(libc::EINVAL),
        )])
        .collect();
    let setup = Setup {
        segments: vec![Filled::Pages],
        script,
        ..Setup::default()
    };
    let ended = setup.run_pipeline();
    assert_eq!(ended.result.moved.bytes as usize, SEGMENT);
}

#[test]
fn a_place_that_got_a_guard_is_given_up() {
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    let probe = Mapping::new(PAGE, PAGE).unwrap();
    // SAFETY: the page is the test's own.
    if unsafe { memory::madvise(probe.addr(), PAGE, MADV_GUARD_INSTALL) }.is_err() {
        // Linux 6.13 has it.
        return;
    }
    let setup = Setup {
        segments: vec![Filled::Pages],
        dropped: 5..8,
        ..Setup::default()
    };
    let ended = setup.run_with(&|memory| {
        let guarded = memory.pages(&setup.dropped);
        Box::new(move |_, site, n, _| {
            if site == Site::Remap && n == 0 {
                // SAFETY: the range is the test's own, and empty.
                unsafe {
                    memory::madvise(guarded.start, guarded.len(), MADV_GUARD_INSTALL).unwrap()
                };
            }
        })
    });
    assert_eq!(ended.result.not_present.folios, 3);
    assert_eq!(ended.result.moved.folios, 509);
    assert_eq!(ended.woken.iter().map(|w| w.len()).sum::<usize>(), 3 * PAGE);
}

#[test]
fn pages_that_stay_are_booked_with_their_reason() {
    let reasons = [
        (libc::ENOENT, Outcome::NotPresent),
        (libc::ENOMEM, Outcome::NoMemory),
        (libc::EINVAL, Outcome::Unsupported),
        (libc::EBUSY, Outcome::Busy),
        (libc::EAGAIN, Outcome::Busy),
    ];
    for (errno, outcome) in reasons {
        let setup = Setup {
            // A thousand attempts for each base page would take long.
            segments: vec![
                if errno == libc::EAGAIN {
                    Filled::Huge
                } else {
                    Filled::Pages
                },
                Filled::Huge,
            ],
            batch_bytes: SEGMENT,
            script: vec![inject(Site::Unmap, 0, usize::MAX / 2, Fault::Errno(errno))],
            ..Setup::default()
        };
        let ended = setup.run_pipeline();
        assert_eq!(
            ended.result.count(outcome).bytes as usize,
            2 * SEGMENT,
            "{:?}",
            ended.result
        );
        assert_eq!(ended.result.moved.bytes, 0);
    }
}

#[test]
fn a_huge_page_that_splits_under_way_is_booked_once() {
    for errno in ERRNOS {
        let setup = Setup {
            segments: vec![Filled::Huge, Filled::Huge],
            script: vec![
                inject(Site::Unmap, 0, 1, Fault::Partial(40)),
                inject(Site::Unmap, 1, 1, Fault::Errno(errno)),
                inject(Site::Unmap, 2, 1, Fault::Partial(3)),
                inject(Site::Unmap, 4, 3, Fault::Errno(errno)),
            ],
            ..Setup::default()
        };
        setup.run_pipeline();
    }
}

#[test]
fn a_huge_page_that_splits_under_way_splits_no_other() {
    for recycle in [false, true] {
        for pool_limit in [0, 8 << 20] {
            let huge = 6;
            let setup = Setup {
                segments: vec![Filled::Huge; huge],
                script: vec![inject(Site::Unmap, 0, 1, Fault::Partial(40))],
                recycle,
                pool_limit,
                slots: 1,
                ..Setup::default()
            };
            let no_khugepaged = |memory: &Memory| -> Hook<'static> {
                // It could make the pages a huge page again before they are looked at.
                let (addr, len) = (memory.mapping.addr(), memory.mapping.len());
                memory::advise_thps(addr, len, false).unwrap();
                Box::new(|_, _, _, _| {})
            };
            let ended = setup.run_and_check(&no_khugepaged, &|memory| {
                let pagemap = Pagemap::open().unwrap();
                let is_huge = |n: &usize| {
                    let addr = memory.range().start + n * SEGMENT;
                    pagemap.is_huge(addr, SEGMENT).unwrap()
                };
                let left: Vec<usize> = (0..huge).filter(is_huge).collect();
                assert_eq!(left, [1, 2, 3, 4, 5], "recycle {recycle}, {pool_limit}");
            });
            assert_eq!(ended.result.moved.bytes as usize, huge * SEGMENT);
        }
    }
}

#[test]
fn a_copy_that_panics_sends_its_batch_back() {
    for lanes in 1..=4 {
        for panics in [0..1, 1..3, 2..7, 0..usize::MAX] {
            for recycle in [false, true] {
                let setup = Setup {
                    lanes,
                    slots: lanes + 2,
                    recycle,
                    panics: panics.clone(),
                    ..Setup::default()
                };
                let ended = setup.run_pipeline();
                assert!(ended.result.busy.bytes > 0, "{setup:?}");
                if panics.end == usize::MAX {
                    assert_eq!(ended.result.moved.bytes, 0, "{setup:?}");
                }
            }
        }
    }
}

#[test]
fn a_pool_of_any_size_and_odd_remains_serves_every_batch() {
    for pool_limit in [0, PAGE, 900 << 10, 2 << 20, 64 << 20] {
        for prefill in [0, 900 << 10, 6 << 20] {
            for recycle in [false, true] {
                let setup = Setup {
                    pool_limit,
                    prefill,
                    recycle,
                    lanes: 2,
                    ask_nodes: prefill == 0,
                    ..Setup::default()
                };
                setup.run_pipeline().assert_all_moved(&setup);
            }
        }
    }
}

#[test]
fn a_cancelled_move_ends_with_every_page_in_place() {
    for site in [
        Site::Unmap,
        Site::Remap,
        Site::Fill,
        Site::Scan,
        Site::Nodes,
    ] {
        for n in [0, 1, 5] {
            for lanes in [1, 3] {
                for ask_nodes in [false, true] {
                    let setup = Setup {
                        lanes,
                        slots: lanes + 2,
                        ask_nodes,
                        batch_bytes: 64 << 10,
                        ..Setup::default()
                    };
                    let cancel = AtomicBool::new(false);
                    let hook = |_: &Memory| -> Hook<'_> {
                        let cancel = &cancel;
                        Box::new(move |_: &Faulty<'_>, at, number, _| {
                            if at == site && number == n {
                                cancel.store(true, Ordering::Relaxed);
                            }
                        })
                    };
                    let ended = setup.run_until(&cancel, &hook, &|_| {});
                    assert!(ended.error.is_none());
                    // Pages are filled, and THPs looked at, near the end too.
                    let early = !matches!(site, Site::Scan | Site::Fill);
                    assert!(
                        !early
                            || !cancel.load(Ordering::Relaxed)
                            || ended.result.cancelled_bytes > 0,
                        "{setup:?} {site:?}"
                    );
                }
            }
        }
    }
}

/// A pipeline none of whose THPs or base pages leaves, and the call at which the second batch is refused.
fn nothing_leaves() -> [(Setup, Site, usize); 2] {
    let all = |site, first, errno| {
        let script = vec![inject(site, first, usize::MAX / 2, Fault::Errno(errno))];
        Setup {
            script,
            stale: vec![0],
            ..Setup::default()
        }
    };
    // The first look finds all, the others are for THPs where copies would go: two for each.
    let full = Setup {
        segments: vec![Filled::Huge; 4],
        ..all(Site::Scan, 1, libc::ENOMEM)
    };
    let refused = Setup {
        segments: vec![Filled::Pages],
        ..all(Site::Unmap, 0, libc::EBUSY)
    };
    let batch = refused.batch_bytes / PAGE;
    [(full, Site::Scan, 3), (refused, Site::Unmap, batch)]
}

#[test]
fn messages_are_answered_and_a_move_can_be_cancelled_while_nothing_leaves() {
    for (setup, site, second) in nothing_leaves() {
        let [cancel, read, in_time] = [const { AtomicBool::new(false) }; 3];
        let hook = |_: &Memory| -> Hook<'_> {
            let (cancel, read, in_time) = (&cancel, &read, &in_time);
            Box::new(move |_: &Faulty<'_>, at, number, _| {
                read.fetch_or(at == Site::Messages, Ordering::Relaxed);
                if at == site && number == second {
                    in_time.store(read.load(Ordering::Relaxed), Ordering::Relaxed);
                    cancel.store(true, Ordering::Relaxed);
                }
            })
        };
        let ended = setup.run_until(&cancel, &hook, &|_| {});
        assert!(in_time.into_inner(), "{site:?}");
        assert_ne!(ended.result.cancelled_bytes, 0, "{site:?}");
        assert_eq!(ended.result.moved.bytes, 0);
    }
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => prop::sample::select(&ERRNOS[..]).prop_map(Fault::Errno),
        1 => (0usize..200).prop_map(Fault::Partial),
    ]
}

fn any_injection() -> impl Strategy<Value = Injection> {
    let site = prop::sample::select(&SITES[..]);
    // Eight refusals in a row at one place count as a mapping that is gone.
    (site, 0usize..60, 1usize..8, any_fault()).prop_map(|(site, first, count, fault)| Injection {
        site,
        first,
        count,
        fault,
    })
}

fn any_segment() -> impl Strategy<Value = Filled> {
    prop_oneof![
        3 => Just(Filled::Pages),
        2 => (2usize..40).prop_map(Filled::Sieve),
        2 => Just(Filled::Huge),
        1 => Just(Filled::Nothing),
        1 => Just(Filled::Zeroes),
    ]
}

prop_compose! {
    fn any_setup()(
        segments in prop::collection::vec(any_segment(), 1..4),
        lanes in 1usize..5,
        span in prop::option::of(1usize..4 << 20),
        batch_pages in prop_oneof![Just(1usize), Just(16), Just(256), Just(512), 1usize..513],
        pool_limit in prop_oneof![Just(0usize), 0usize..(8 << 20)],
        prefill in prop_oneof![Just(0usize), 0usize..(4 << 20)],
        recycle: bool,
        ask_nodes: bool,
        slots in 1usize..6,
        script in prop::collection::vec(any_injection(), 0..8),
        panic_at in 0usize..100,
        panic_count in 0usize..4,
        stale in prop::collection::vec(0usize..2048, 0..6),
    ) -> Setup {
        // Refusals of several rules may meet at one place; one rule keeps `fill` below the limit.
        let mut script = script;
        let mut fills = 0;
        script.retain(|i| i.site != Site::Fill || { fills += 1; fills == 1 });
        Setup {
            segments, lanes, span, batch_bytes: batch_pages * PAGE, pool_limit, prefill, recycle, ask_nodes, slots,
            script, panics: panic_at..panic_at + panic_count, stale, dropped: 0..0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_script_of_failures_loses_a_byte(setup in any_setup()) {
        setup.run_pipeline();
    }
}

/// Nobody tells the pool when the kernel demotes its free pages.
#[test]
fn free_pages_that_lie_on_another_node_by_now_are_not_used() {
    for (elsewhere, any_warm) in [(0, true), (usize::MAX, false)] {
        for filled in [Filled::Pages, Filled::Huge] {
            let setup = Setup {
                segments: vec![filled; 4],
                span: Some(SEGMENT),
                prefill: 2 * SEGMENT,
                script: vec![inject(Site::AreOn, 0, elsewhere, Fault::Errno(libc::EIO))],
                ..Setup::default()
            };
            let ended = setup.run_pipeline();
            ended.assert_all_moved(&setup);
            let warm = ended.learnt.iter().any(|(_, kind, _)| kind.warm);
            // The pool holds base pages at first, and with `recycle` gets those that have moved out.
            assert_eq!(warm, any_warm, "{filled:?}");
        }
    }
}
