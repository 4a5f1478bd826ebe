// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a DMA channel takes to set up, in a row of `bench move` or `bench count`, and the lines that fit such rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MoveRow;

/// The median round of the DMA channels, by the tracepoint `migrator_channel_round`. A round is what a channel has mapped at a time:
/// its share of a batch, or 1024 mappings of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DmaRound {
    /// Rounds that were traced.
    pub rounds: u64,
    /// Pieces of memory that were mapped for the device, on each side: folios, cut where lanes or descriptors end.
    pub mappings: u64,
    /// Descriptors that the engine was given.
    pub descriptors: u64,
    /// Bytes that it copied.
    pub bytes: u64,
    /// Filling tables, mapping them, cutting descriptors, nanoseconds.
    pub map_ns: u64,
    /// From there until the engine has as many descriptors as it takes at once, nanoseconds.
    pub submit_ns: u64,
    /// From there to its last answer, nanoseconds: the first byte is not seen.
    pub copy_ns: u64,
    /// Unmapping, nanoseconds.
    pub unmap_ns: u64,
}

/// Straight lines through the rounds of rows with as many lanes. A value is `None` where the rows do not differ enough to tell it, or
/// where it is too small to be seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DmaSetUp {
    /// Lanes that were asked for.
    pub lanes: usize,
    /// Mapping, submitting and unmapping a round whatever its size, nanoseconds.
    pub round_ns: Option<f64>,
    /// The same for each mapping more, nanoseconds.
    pub mapping_ns: Option<f64>,
    /// From submission to the answer for a round without bytes, nanoseconds: the engine's start and its interrupt.
    pub first_byte_ns: Option<f64>,
    /// The same for each 4 KiB more, nanoseconds.
    pub page_ns: Option<f64>,
}

impl DmaRound {
    /// What the CPU does for the round.
    pub fn set_up_ns(&self) -> u64 {
        self.map_ns + self.submit_ns + self.unmap_ns
    }
}

/// The lines of each number of lanes.
pub fn set_up(rows: &[MoveRow]) -> Vec<DmaSetUp> {
    let with_rounds = rows.iter().filter(|row| row.dma_round.is_some());
    let by_lanes = crate::spread::groups(with_rounds, |row| row.lanes).into_iter();
    by_lanes
        .map(|(lanes, rows)| {
            let points = |x: fn(&DmaRound) -> u64, y: fn(&DmaRound) -> u64| {
                let rounds = rows.iter().filter_map(|row| row.dma_round);
                line(&Vec::from_iter(
                    rounds.map(|of| (x(&of) as f64, y(&of) as f64)),
                ))
            };
            let (round_ns, mapping_ns) = points(|of| of.mappings, DmaRound::set_up_ns);
            let (first_byte_ns, byte_ns) = points(|of| of.bytes, |of| of.copy_ns);
            DmaSetUp {
                lanes,
                round_ns,
                mapping_ns,
                first_byte_ns,
                page_ns: byte_ns.map(|ns| ns * 4096.0),
            }
        })
        .collect()
}

/// The line that fits points best by their relative errors, as deviations of times grow with them: its value at 0, and its slope.
fn line(points: &[(f64, f64)]) -> (Option<f64>, Option<f64>) {
    let points = points.iter().filter(|(_, y)| *y > 0.0);
    let mut sums = [0.0; 5];
    for (x, y) in points {
        let weight = 1.0 / (y * y);
        let parts = [1.0, *x, x * x, *y, x * y];
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += weight * part);
    }
    let [n, x, xx, y, xy] = sums;
    let spread = n * xx - x * x;
    // Of equal sizes it is zero but for rounding.
    if spread <= 1e-9 * n * xx {
        return (None, None);
    }
    let slope = (n * xy - x * y) / spread;
    let seen = |value: f64| (value > 0.0).then_some(value);
    (seen((y - slope * x) / n), seen(slope))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lanes: usize, mappings: u64, set_up_ns: u64, copy_ns: u64) -> MoveRow {
        MoveRow {
            lanes,
            dma_round: Some(DmaRound {
                mappings,
                bytes: mappings << 12,
                map_ns: set_up_ns / 2,
                submit_ns: set_up_ns - set_up_ns / 2,
                copy_ns,
                ..DmaRound::default()
            }),
            ..MoveRow::default()
        }
    }

    #[test]
    fn the_time_of_a_round_is_told_from_that_of_its_mappings_and_bytes() {
        let of = |lanes, mappings: u64| {
            row(lanes, mappings, 3000 + 50 * mappings, 7000 + 400 * mappings)
        };
        let rows = [
            of(1, 64),
            of(1, 512),
            of(2, 64),
            MoveRow::default(),
            of(1, 1024),
        ];
        let found = set_up(&rows);
        assert_eq!(found.len(), 2);
        let close = |found: Option<f64>, expected: f64| {
            (found.expect("seen") / expected - 1.0).abs() < 1e-6
        };
        assert!(
            close(found[0].round_ns, 3000.0) && close(found[0].mapping_ns, 50.0),
            "{found:?}"
        );
        assert!(
            close(found[0].first_byte_ns, 7000.0) && close(found[0].page_ns, 400.0),
            "{found:?}"
        );
        // One size makes no line.
        assert_eq!((found[1].round_ns, found[1].page_ns), (None, None));
    }

    #[test]
    fn what_is_too_small_to_be_seen_has_no_value() {
        let [found] = set_up(&[row(1, 64, 640, 64), row(1, 512, 6000, 512)])[..] else {
            panic!("one");
        };
        assert_eq!(found.round_ns, None);
        assert!(found.mapping_ns > Some(10.0), "{found:?}");
    }
}
