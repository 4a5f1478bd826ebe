// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures that ours stand beside: `data/published.csv`, one row per figure.
//!
//! They were measured by others on other machines: shapes and ratios compare, GB/s do not.

pub mod promotion;
pub mod tables;

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::spread::groups;

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The posting, with its date.
    pub source: String,
    /// The machine and kernel that it was measured on.
    pub system: String,
    /// `move`, `count`, `topology-spread` or `topology-fill`.
    pub bench: String,
    /// `kernel` (one by one, the baseline), `mtcopy` or `dcbm`.
    pub migrator: String,
    /// Threads or DMA channels.
    pub lanes: usize,
    /// Bytes of a folio.
    pub folio_bytes: u64,
    /// Folios of one move, in `count`.
    pub folios: Option<usize>,
    /// Bytes of one move as the source words it, in `move`.
    pub total: Option<String>,
    /// Mean, GB/s.
    pub gbps: f64,
    /// Standard deviation, GB/s, where the source gives it.
    pub gbps_sd: Option<f64>,
    /// What else the machine did.
    pub load: String,
}

impl Figure {
    /// Whether it is the source's own way without batching or extra lanes.
    pub fn is_baseline(&self) -> bool {
        self.migrator == "kernel"
    }
}

/// All published figures, in the order of the file.
pub fn figures() -> &'static [Figure] {
    static FIGURES: OnceLock<Vec<Figure>> = OnceLock::new();
    FIGURES.get_or_init(|| rows(include_bytes!("../../data/published.csv")))
}

/// The sources that have figures of `bench` on an otherwise idle machine, each with its figures.
pub fn idle(bench: &str) -> Vec<Vec<&'static Figure>> {
    let of_bench = |figure: &&Figure| figure.bench == bench && figure.load == "idle";
    let sources = groups(figures().iter().filter(of_bench), |figure| &figure.source);
    sources.into_iter().map(|(_, figures)| figures).collect()
}

/// The rows of a file that is compiled in; a test counts them, so none is lost here.
fn rows<T: for<'a> Deserialize<'a>>(file: &[u8]) -> Vec<T> {
    let rows = csv::Reader::from_reader(file).into_deserialize();
    rows.filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        assert_eq!(figures().len(), 666);
        for row in figures() {
            assert!(
                row.gbps > 0.0 && row.lanes > 0 && row.folio_bytes >= 4096,
                "{row:?}"
            );
            assert_eq!(row.folios.is_some(), row.bench == "count", "{row:?}");
        }
    }

    #[test]
    fn every_source_is_whole() {
        let counts: Vec<(&str, usize)> = groups(figures(), |figure| figure.source.as_str())
            .into_iter()
            .map(|(source, figures)| (source, figures.len()))
            .collect();
        assert_eq!(
            counts,
            [
                ("RFC V2 2025-03-19", 116),
                ("RFC V3 2025-09-23", 131),
                ("RFC v4 2026-03-09", 62),
                ("Zi Yan RFC 2025-01-03", 357),
            ]
        );
    }

    #[test]
    fn moves_and_counts_are_found() {
        assert_eq!(idle("move").len(), 3);
        assert_eq!(idle("count").len(), 4);
        assert!(idle("stall").is_empty());
    }
}
