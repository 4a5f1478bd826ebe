// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipelines whose lanes change while pages are away, and what a chooser is told of their spans.

use super::*;

const COLD_BASE: Kind = Kind {
    huge: false,
    warm: false,
};

#[test]
fn every_byte_comes_back_while_lanes_come_and_go() {
    for span in [PAGE, 300 << 10, 1 << 20] {
        for lanes in 1..=4 {
            for ask_nodes in [false, true] {
                let setup = Setup {
                    span: Some(span),
                    batch_bytes: 64 << 10,
                    lanes,
                    ask_nodes,
                    slots: lanes + 2,
                    ..Setup::default()
                };
                setup.run_pipeline().assert_all_moved(&setup);
            }
        }
    }
}

fn base_pages(segments: usize, span: usize) -> Setup {
    Setup {
        segments: vec![Filled::Pages; segments],
        span: Some(span),
        batch_bytes: 256 << 10,
        recycle: false,
        pool_limit: 0,
        ask_nodes: false,
        ..Setup::default()
    }
}

#[test]
fn on_one_lane_each_whole_span_is_told_and_the_last_part_is_not() {
    let ended = base_pages(4, 3 << 20).run_pipeline();
    let told = |span| (span, COLD_BASE, 3 << 20);
    assert_eq!(ended.learnt, [told(0), told(1)]);
}

#[test]
fn a_move_of_less_than_a_span_is_told_as_a_whole() {
    let ended = base_pages(2, SEGMENT * 8).run_pipeline();
    assert_eq!(ended.learnt, [(0, COLD_BASE, 2 * SEGMENT as u64)]);
}

#[test]
fn a_span_of_two_kinds_is_not_told() {
    let setup = Setup {
        segments: vec![Filled::Pages, Filled::Pages, Filled::Huge, Filled::Pages],
        ..base_pages(0, 3 << 20)
    };
    let spans: Vec<usize> = setup.run_pipeline().learnt.iter().map(|of| of.0).collect();
    assert_eq!(spans, [0]);
}

#[test]
fn a_span_with_a_batch_that_went_back_is_not_told() {
    let setup = Setup {
        script: vec![inject(Site::Fill, 0, 1, Fault::Errno(libc::ENOMEM))],
        ..base_pages(2, 1 << 20)
    };
    let ended = setup.run_pipeline();
    assert_eq!(ended.result.no_memory.bytes, 256 << 10);
    let spans: Vec<usize> = ended.learnt.iter().map(|told| told.0).collect();
    assert_eq!(spans, [1, 2, 3]);
}

#[test]
fn after_a_change_of_lanes_only_what_left_its_place_later_is_measured() {
    // 32 batches in spans of one: the first batch of the new lanes starts the clock, the next one is measured.
    let setup = Setup {
        lanes: 2,
        slots: 4,
        ..base_pages(4, 256 << 10)
    };
    let learnt = setup.run_pipeline().learnt.len();
    assert!((2..=16).contains(&learnt), "{learnt}");
}

#[test]
fn a_move_that_is_over_begins_no_further_span() {
    for (segments, span) in [(1, SEGMENT), (4, SEGMENT), (2, 4 * SEGMENT)] {
        let ended = base_pages(segments, span).run_pipeline();
        assert_eq!(
            ended.chosen,
            (segments * SEGMENT).div_ceil(span),
            "{segments} {span}"
        );
    }
}

#[test]
fn a_batch_of_which_nothing_leaves_has_ended() {
    // All pages of the first of eight batches stay, and the others fill a span.
    let batch = 256 << 10;
    let setup = Setup {
        script: vec![inject(
            Site::Unmap,
            0,
            batch / PAGE,
            Fault::Errno(libc::EBUSY),
        )],
        ..base_pages(1, SEGMENT - batch)
    };
    let ended = setup.run_pipeline();
    assert_eq!(ended.result.busy.bytes, batch as u64);
    assert_eq!(ended.chosen, 1);
}

#[test]
fn spans_of_four_batches_are_measured_after_eight_lanes_too() {
    let setup = Setup {
        lanes: 8,
        slots: 10,
        batch_bytes: SEGMENT,
        ..base_pages(64, 4 * SEGMENT)
    };
    let ended = setup.run_pipeline();
    let spans = ended.learnt.len();
    assert!(spans + 1 >= ended.chosen, "{spans} of {}", ended.chosen);
}
