// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic benchmark files for the tests: plausible, measured by nobody.

use crate::schema::BenchFile;
#[cfg(test)]
use crate::schema::Rows;

/// The synthetic file of a benchmark: `move`, `count`, `promote` or `stall`.
pub fn file(bench: &str) -> BenchFile {
    serde_json::from_str(text(bench)).expect("synthetic file")
}

/// The text of [`file`].
pub fn text(bench: &str) -> &'static str {
    match bench {
        "move" => include_str!("../tests/synthetic/move.json"),
        "count" => include_str!("../tests/synthetic/count.json"),
        "promote" => include_str!("../tests/synthetic/promote.json"),
        _ => include_str!("../tests/synthetic/stall.json"),
    }
}

/// The schema's own test stands here, beside the files that it needs.
#[test]
fn a_file_that_is_written_again_is_the_same() {
    for bench in ["move", "count", "stall", "promote"] {
        let before: serde_json::Value = serde_json::from_str(text(bench)).expect("JSON");
        let after = serde_json::to_value(file(bench)).expect("JSON");
        assert_eq!(before, after, "{bench}");
        assert_eq!(after["bench"], bench);
    }
}

/// The fields of each kind of file and their order; a change is one of the schema.
#[test]
fn the_fields_of_a_file() {
    for bench in ["move", "count", "stall", "promote"] {
        let mut file = file(bench);
        file.ceiling.truncate(1);
        match &mut file.rows {
            Rows::Move(rows) | Rows::Count(rows) => {
                rows.truncate(1);
                rows[0].runs_gbps = vec![1.0, 3.0];
            }
            Rows::Stall(rows) => rows.truncate(1),
            Rows::Compaction(rows) => rows.truncate(1),
            Rows::Promote(rows) => {
                rows.truncate(1);
                rows[0].timeline.truncate(2);
                rows[0].hot_timeline.truncate(2);
            }
        }
        if let Some(like) = &mut file.like {
            like.results.truncate(1);
            like.rates.truncate(1);
            like.rates[0].pages_per_s.truncate(2);
        }
        insta::assert_json_snapshot!(bench, file);
    }
}

/// Every share is of the ceiling that the tables show above it.
#[test]
fn shares_are_of_the_ceiling_with_the_same_lanes_and_pages() {
    for bench in ["move", "count"] {
        let file = file(bench);
        let (Rows::Move(rows) | Rows::Count(rows)) = &file.rows else {
            panic!("{bench}");
        };
        for row in rows {
            let ceiling = file
                .ceiling_of(row.lanes, row.folio_bytes)
                .expect("ceiling");
            assert!(
                (row.gbps / ceiling.gbps - row.of_ceiling).abs() < 0.001,
                "{row:?}"
            );
        }
    }
}
