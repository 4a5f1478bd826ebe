// SPDX-License-Identifier: MIT OR Apache-2.0
//! What DMA channels take to set up: the median round of each row, and the lines that fit the rounds.

use super::{Table, or_dash, series, sized};
use crate::schema::MoveRow;
use crate::schema::dma::set_up;
use crate::units::{lanes, short, time};

/// Both tables; none where no DMA channel copied.
pub fn tables(rows: &[MoveRow]) -> Vec<Table> {
    let line = |row: &MoveRow| {
        let of = row.dma_round?;
        let size = sized(row.folios, row.folio_bytes as u64);
        let counts = [of.rounds, of.mappings, of.descriptors].map(|count| count.to_string());
        let times = [of.map_ns, of.submit_ns, of.copy_ns, of.unmap_ns].map(time);
        let cells = [vec![format!("{size}, {}", series(row))], counts.to_vec()];
        Some([cells.concat(), vec![short(of.bytes)], times.to_vec()].concat())
    };
    let rounds = Vec::from_iter(rows.iter().filter_map(line));
    if rounds.is_empty() {
        return Vec::new();
    }
    let head = [
        "folios",
        "rounds",
        "mappings",
        "descriptors",
        "bytes",
        "map",
        "submit",
        "copy",
        "unmap",
    ];
    let of_rounds = Table::new(
        "DMA set-up",
        "the median round, by tracepoints in a run that does not count; a round is what a channel has mapped at a time, a batch's share or a \
         part of it. map: filling tables, mapping, cutting descriptors; submit: until the engine has them; copy: from there to its last answer",
        &head,
        rounds,
    );
    let nanoseconds = |ns: Option<f64>| or_dash(ns.map(|ns| time(ns.round() as u64)));
    let fits = set_up(rows).into_iter().map(|of| {
        let values = [of.round_ns, of.mapping_ns, of.first_byte_ns, of.page_ns];
        std::iter::once(format!("dcbm, {}", lanes(of.lanes)))
            .chain(values.map(nanoseconds))
            .collect()
    });
    let fitted = Table::new(
        "DMA set-up, straight lines through these rounds",
        "map, submit and unmap by mappings, which are folios or parts of them; copy by bytes: without bytes it is what the engine takes to start \
         and to answer. –: the rows do not differ enough, or it is too little to be seen",
        &[
            "channels",
            "a round",
            "a mapping",
            "first byte and answer",
            "4 KiB",
        ],
        fits.collect(),
    );
    vec![of_rounds, fitted]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::dma::DmaRound;

    #[test]
    fn rounds_and_what_they_cost_are_told() {
        let row = |mappings: u64| MoveRow {
            backend: "kernel".to_owned(),
            migrator: "dcbm".to_owned(),
            lanes: 1,
            folio_bytes: 4096,
            folios: Some(mappings as usize),
            dma_round: Some(DmaRound {
                rounds: 8,
                mappings,
                descriptors: mappings / 2,
                bytes: mappings << 12,
                map_ns: 2000 + 30 * mappings,
                submit_ns: 20 * mappings,
                copy_ns: 5000 + 400 * mappings,
                unmap_ns: 0,
            }),
            ..MoveRow::default()
        };
        assert!(tables(&[MoveRow::default()]).is_empty());
        let found = tables(&[row(64), row(512)]);
        let first = &found[0].rows[0];
        assert_eq!(
            first[..5],
            ["64 of 4K, dcbm, 1 lane", "8", "64", "32", "256K"]
        );
        assert_eq!(
            found[1].rows,
            [["dcbm, 1 lane", "2.0 µs", "50 ns", "5.0 µs", "400 ns"]]
        );
    }
}
