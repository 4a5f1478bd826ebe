// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a deal promises, for batches of any shape.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memferry_core::{Deal, DealError, Dealt, Extent, GRANULE_DEFAULT, GRANULE_MIN};
use proptest::prelude::*;

const SOURCE: u64 = 1 << 32;
const DESTINATION: u64 = 1 << 44;

/// Extents of these sizes, with gaps, in two separate ranges of addresses.
fn batch(sizes: &[u64]) -> Vec<Extent> {
    let mut at = 0;
    let lay = |(index, &bytes): (usize, &u64)| {
        let extent = Extent {
            src: SOURCE + at,
            dst: DESTINATION + at,
            bytes,
        };
        at += bytes + [0, 1, 4096][index % 3];
        extent
    };
    sizes.iter().enumerate().map(lay).collect()
}

fn folio() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..10_u32).prop_map(|order| 4096 << order),
        1 => 1..300_000_u64,
        1 => Just(1),
    ]
}

fn deals() -> impl Strategy<Value = (Vec<Extent>, Deal)> {
    let sizes = prop::collection::vec(folio(), 1..80);
    (sizes, 1..40_usize, 0..8_u32).prop_map(|(sizes, lanes, order)| {
        (
            batch(&sizes),
            Deal::new(lanes, GRANULE_MIN << order).unwrap(),
        )
    })
}

/// The pieces put together again where one continues the other within an extent.
fn rejoin(dealt: &Dealt, extents: &[Extent]) -> Vec<Extent> {
    let mut whole: Vec<Extent> = Vec::new();
    for piece in dealt.lanes().flatten() {
        let begun = whole.len();
        match whole.last_mut() {
            Some(last) if last.bytes < extents[begun - 1].bytes => {
                assert_eq!(piece.src, last.src + last.bytes);
                assert_eq!(piece.dst, last.dst + last.bytes);
                last.bytes += piece.bytes;
            }
            _ => whole.push(*piece),
        }
        assert!(whole.len() <= extents.len());
    }
    whole
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_byte_is_dealt_once_and_in_order((extents, deal) in deals()) {
        let dealt = deal.deal(&extents).unwrap();
        prop_assert_eq!(rejoin(&dealt, &extents), extents);
    }

    #[test]
    fn loads_differ_by_a_granule_at_most((extents, deal) in deals()) {
        let dealt = deal.deal(&extents).unwrap();
        let loads: Vec<u64> = dealt.lanes().map(|lane| lane.iter().map(|e| e.bytes).sum()).collect();
        prop_assert_eq!(loads.len(), deal.lanes());
        prop_assert!(loads.iter().enumerate().all(|(lane, &load)| load == dealt.lane_bytes(lane)));
        let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
        prop_assert!(spread <= deal.granule(), "{:?}", loads);
    }

    #[test]
    fn cuts_are_few_and_at_granules((extents, deal) in deals()) {
        let dealt = deal.deal(&extents).unwrap();
        let mut pieces = 0;
        for piece in dealt.lanes().flatten() {
            let of = extents.iter().rfind(|extent| extent.src <= piece.src).unwrap();
            prop_assert_eq!((piece.src - of.src) % deal.granule(), 0);
            prop_assert!(of.bytes > deal.granule() || piece == of);
            pieces += 1;
        }
        prop_assert!(pieces < extents.len() + deal.lanes());
    }

    #[test]
    fn as_many_folios_as_lanes_stay_whole(
        lanes in 1..40_usize, each in 1..20_usize, order in 0..14_u32, granule in 0..8_u32,
    ) {
        let extents = batch(&vec![4096 << order; lanes * each]);
        let dealt = Deal::new(lanes, GRANULE_MIN << granule).unwrap().deal(&extents).unwrap();
        for (lane, folios) in dealt.lanes().zip(extents.chunks(each)) {
            prop_assert_eq!(lane, folios);
        }
    }

    /// Reuse leaves nothing behind: batch after batch is dealt as if it were the first.
    #[test]
    fn a_reused_deal_equals_a_fresh_one(batches in prop::collection::vec(deals(), 1..4)) {
        let deal = batches[0].1;
        let mut reused = Dealt::new(deal);
        for (extents, _) in &batches {
            reused.deal_into(extents).unwrap();
            let fresh = deal.deal(extents).unwrap();
            prop_assert!(reused.lanes().eq(fresh.lanes()));
        }
    }

    /// One extent of a good batch is moved onto another range, or loses its bytes.
    #[test]
    fn a_refused_batch_leaves_every_lane_empty(
        (extents, deal) in deals(), victim in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(), wrong in 0..4,
    ) {
        let (victim, other) = (victim.index(extents.len()), other.index(extents.len()));
        let mut bad = extents.clone();
        match wrong {
            0 => bad[victim].bytes = 0,
            1 => bad[victim].dst = u64::MAX - bad[victim].bytes + 1,
            2 => bad[victim].dst = bad[other].src,
            _ => bad.push(Extent { src: 0, dst: bad[other].dst + bad[other].bytes - 1, bytes: 1 }),
        }
        let mut dealt = deal.deal(&extents).unwrap();
        let error = dealt.deal_into(&bad).unwrap_err();
        match wrong {
            0 => prop_assert_eq!(error, DealError::Empty { index: victim }),
            1 => prop_assert_eq!(error, DealError::Address { index: victim, extent: bad[victim] }),
            _ => {
                let DealError::Overlap { first, second } = error else { panic!("{error}") };
                let culprit = if wrong == 2 { victim } else { bad.len() - 1 };
                prop_assert!(first == culprit || second == culprit);
            }
        }
        prop_assert!(dealt.lanes().all(<[Extent]>::is_empty));
    }
}

#[test]
fn a_read_twice_is_fine_a_write_twice_is_not() {
    let deal = Deal::new(2, GRANULE_DEFAULT).unwrap();
    let replicas = [
        Extent {
            src: 0,
            dst: 4096,
            bytes: 4096,
        },
        Extent {
            src: 0,
            dst: 8192,
            bytes: 4096,
        },
    ];
    assert!(deal.deal(&replicas).is_ok());
    let error = deal.deal(&[replicas[0], replicas[0]]).unwrap_err();
    assert_eq!(
        error,
        DealError::Overlap {
            first: 0,
            second: 1
        }
    );
}

#[test]
fn numbers_out_of_range_are_named() {
    for lanes in [0, 1025, usize::MAX] {
        assert_eq!(Deal::new(lanes, 4096), Err(DealError::Lanes { lanes }));
    }
    for granule in [0, 2048, 4097, 3 << 12, 1 << 31] {
        let error = Deal::new(1, granule).unwrap_err();
        assert_eq!(error, DealError::Granule { granule });
        assert!(
            error
                .to_string()
                .contains(&format!("granule of {granule} bytes"))
        );
    }
    let huge = Extent {
        src: 0,
        dst: 1 << 63,
        bytes: (1 << 62) + 1,
    };
    let error = Deal::new(1, 4096).unwrap().deal(&[huge]).unwrap_err();
    assert_eq!(error, DealError::TooLarge { extents: 1 });
}

#[test]
fn an_empty_batch_gives_empty_lanes() {
    let dealt = Deal::new(3, 4096).unwrap().deal(&[]).unwrap();
    assert_eq!(
        dealt.lanes().map(<[Extent]>::len).collect::<Vec<_>>(),
        [0, 0, 0]
    );
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_lane_that_is_not_there_panics() {
    Deal::new(3, 4096).unwrap().deal(&[]).unwrap().lane(3);
}
