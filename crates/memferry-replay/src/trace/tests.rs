// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that come back as they went, and files that do not.

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::event::{Clock, Event, Trace};

/// A trace of these pages and events (time, page, reads, writes).
pub fn trace(pages: &[u64], events: &[(u64, u32, u32, u32)]) -> Trace {
    let event = |&(time, page, reads, writes): &(u64, u32, u32, u32)| Event {
        time,
        page,
        reads,
        writes,
    };
    Trace {
        name: "a test".to_owned(),
        clock: Clock::Accesses,
        page_bytes: 4096,
        sampling: 1,
        pages: pages.to_vec(),
        events: events.iter().map(event).collect(),
    }
}

fn file(trace: &Trace) -> Vec<u8> {
    let header = Header::new("", "made by hand", trace.clock);
    write(Vec::new(), &header, trace).expect("write")
}

/// A small trace with everything in it.
fn small() -> Trace {
    trace(
        &[0, 0x400, 0x401, 0x7fff_ffff_f000, u64::MAX],
        &[
            (0, 2, 1, 0),
            (1, 2, 0, 1),
            (1, 0, 700, 3),
            (90, 4, 1, 1),
            (1 << 40, 1, u32::MAX, u32::MAX),
        ],
    )
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let pages = prop::collection::btree_set(
        prop_oneof![0..100u64, any::<u64>(), 0x7000_0000..0x7000_0100u64],
        1..50,
    );
    let events = prop::collection::vec(
        (
            prop_oneof![0..5u64, any::<u32>().prop_map(u64::from)],
            any::<u32>(),
            prop_oneof![1..9u32, 1..=u32::MAX],
            0..9u32,
        ),
        0..300,
    );
    (pages, events, any::<bool>(), 6..31u32, 1..=u32::MAX).prop_map(
        |(pages, events, accesses, page, sampling)| {
            let pages: Vec<u64> = pages.into_iter().collect();
            let mut time = 0;
            let mut made = trace(&pages, &[]);
            for (step, page, reads, writes) in events {
                time += step;
                let page = page % pages.len() as u32;
                made.events.push(Event {
                    time,
                    page,
                    reads,
                    writes,
                });
            }
            made.page_bytes = 1 << page;
            made.sampling = sampling;
            if !accesses {
                made.clock = Clock::Nanoseconds;
            }
            made
        },
    )
}

proptest! {
    #[test]
    fn a_trace_comes_back_as_it_went(trace in any_trace()) {
        prop_assert_eq!(read(&file(&trace)[..]).expect("read"), trace);
    }
}

#[test]
fn more_events_and_pages_than_a_block_come_back() {
    let pages: Vec<u64> = (0..200_000).map(|page| page * 3).collect();
    let event = |at: u32| Event {
        time: u64::from(at) * 7,
        page: at.wrapping_mul(2_654_435_761) % 150_000,
        reads: 1 + at % 3,
        writes: at % 2,
    };
    let mut whole = trace(&pages, &[]);
    whole.events = (0..300_000).map(event).collect();
    let bytes = file(&whole);
    assert_eq!(read(&bytes[..]).expect("read"), whole);

    // Block by block, and no more than is allowed.
    let mut reader = Reader::new(&bytes[..], Limits::default()).expect("header");
    let (mut blocks, mut events) = (0, Vec::new());
    while reader.block(&mut events).expect("block") {
        blocks += 1;
        events.clear();
    }
    assert!(blocks >= 5, "{blocks}");
    assert_eq!(reader.totals().events, 300_000);
    assert_eq!(reader.totals().pages, 200_000);
    let few = Limits {
        pages: 1 << 20,
        events: 100_000,
    };
    let error = Reader::new(&bytes[..], few).and_then(Reader::trace);
    let error = error.expect_err("limit");
    assert!(
        matches!(error, Error::TooLarge { limit: 100_000, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("100000 events"), "{error}");
}

#[test]
fn merged_events_come_dealt_and_always_alike() {
    let pages: Vec<u64> = (0..1000).collect();
    let events: Vec<_> = (0..3000)
        .map(|at| (u64::from(at / 1000), at % 1000, 1, 0))
        .collect();
    let sorted = trace(&pages, &events);
    let header = Header {
        window: 4096,
        ..Header::new("", "", Clock::Accesses)
    };
    let bytes = write(Vec::new(), &header, &sorted).expect("write");
    let dealt = read(&bytes[..]).expect("read");
    assert_ne!(dealt, sorted);
    assert_eq!(read(&bytes[..]).expect("read"), dealt);
    let mut again = dealt.clone();
    again
        .events
        .sort_unstable_by_key(|event| (event.time, event.page));
    assert_eq!(again, sorted);
    // What is the same from one window to the next costs next to nothing.
    assert!(bytes.len() < 1000, "{}", bytes.len());
}

#[test]
fn a_file_that_ends_early_says_where() {
    let bytes = file(&small());
    for end in 0..bytes.len() {
        let error = read(&bytes[..end]).expect_err("truncated");
        match end {
            0..8 => assert!(matches!(error, Error::Foreign), "{end}: {error}"),
            8..10 => assert_eq!(error.at(), Some(8), "{end}: {error}"),
            _ => {
                assert!(matches!(error, Error::Truncated { .. }), "{end}: {error}");
                assert_eq!(error.at(), Some(end as u64), "{error}");
            }
        }
    }
}

#[test]
fn every_changed_bit_is_found() {
    let good = file(&small());
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            let error = read(&bytes[..]).expect_err("changed");
            assert!(
                error.at().expect("byte") <= at.max(good.len()) as u64,
                "{at}: {error}"
            );
            assert!(!error.next().is_empty());
        }
    }
}

#[test]
fn a_byte_too_many_is_found() {
    let mut bytes = file(&small());
    bytes.push(0);
    let error = read(&bytes[..]).expect_err("longer");
    assert_eq!(error.at(), Some(bytes.len() as u64 - 1), "{error}");
}

#[test]
fn other_formats_and_versions_are_named() {
    let error = read(&b"I  0401ab70,3\nI  0401ab73,5\n"[..]).expect_err("text");
    assert!(matches!(error, Error::Foreign), "{error}");
    let mut newer = file(&small());
    newer[8] = 2;
    let error = read(&newer[..]).expect_err("newer");
    assert!(error.to_string().contains("version 2"), "{error}");
    assert!(error.next().contains("newer"), "{}", error.next());
}

#[test]
fn what_is_not_sound_is_not_written() {
    let header = Header::new("", "", Clock::Accesses);
    let backwards = trace(&[1], &[(5, 0, 1, 0), (4, 0, 1, 0)]);
    assert!(write(Vec::new(), &header, &backwards).is_err());
    let mut writer = Writer::new(Vec::new(), &header).expect("header");
    writer.push(5, 1, 1, 0).expect("event");
    assert!(matches!(
        writer.push(4, 1, 1, 0),
        Err(Error::TimeGoesBack { before: 5, .. })
    ));
    assert!(matches!(
        writer.push(5, 1, 0, 0),
        Err(Error::NoAccess { event: 1 })
    ));
    // What was refused left nothing behind.
    let (bytes, totals) = writer.finish(9, 100).expect("end");
    assert_eq!((totals.events, totals.end, totals.seen), (1, 9, 100));
    assert_eq!(read(&bytes[..]).expect("read").events.len(), 1);
}

#[test]
fn a_page_met_twice_is_damage() {
    let mut before = block::Before::default();
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    let header = Header::new("", "", Clock::Accesses).encode();
    chunk::write(&mut bytes, chunk::HEADER, &header).expect("header");
    let one = Event {
        time: 0,
        page: 0,
        reads: 1,
        writes: 0,
    };
    let contents = block::encode(&[7, 8], &[one], &mut before);
    chunk::write(&mut bytes, chunk::EVENTS, &contents).expect("events");
    let second = bytes.len() as u64;
    let contents = block::encode(&[9, 7], &[], &mut before);
    chunk::write(&mut bytes, chunk::EVENTS, &contents).expect("events");
    let totals = Totals {
        pages: 4,
        events: 1,
        reads: 1,
        ..Totals::default()
    };
    chunk::write(&mut bytes, chunk::END, &totals.encode()).expect("end");
    let error = read(&bytes[..]).expect_err("twice");
    assert_eq!(error.at(), Some(second), "{error}");
}

#[test]
fn millions_of_accesses_fit_a_megabyte() {
    // Pages in no order at all, which is the worst there is, ten accesses each time.
    let pages: Vec<u64> = (0x1000..0x1000 + 8192).collect();
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    let mut worst = trace(&pages, &[]);
    worst.events = (0..100_000)
        .map(|at| Event {
            time: at * 10,
            page: (random() % 8192) as u32,
            reads: 1 + (random() % 16) as u32,
            writes: (random() % 4) as u32,
        })
        .collect();
    let accesses: u64 = (worst.events.iter())
        .map(|event| u64::from(event.reads + event.writes))
        .sum();
    let bytes = file(&worst).len() as u64;
    assert!(
        accesses * 1_000_000 / bytes > 3_000_000,
        "{accesses} in {bytes}"
    );
}
