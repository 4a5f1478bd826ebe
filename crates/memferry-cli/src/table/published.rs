// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures as tables in the shape of ours, each naming its source and system.

use super::{Table, groups, throughput};
use crate::published::{Figure, figures};
use crate::units::{lanes, long, short};

/// The tables of `bench` on an otherwise idle machine, or under every load.
pub fn tables(bench: &str, every_load: bool) -> Vec<Table> {
    let of_bench =
        |figure: &&Figure| figure.bench == bench && (every_load || figure.load == "idle");
    let key = |figure: &'static Figure| {
        let size = figure.folios.map(|_| figure.folio_bytes);
        (&figure.source, &figure.load, size)
    };
    let tables = groups(figures().iter().filter(of_bench), key).into_iter();
    tables.map(|(_, figures)| table(&figures)).collect()
}

fn table(figures: &[&Figure]) -> Table {
    let first = figures[0];
    let counted = first.folios.is_some();
    let column = |figure: &Figure| match figure.folios {
        Some(folios) => folios as u64,
        None => figure.folio_bytes,
    };
    let baseline = |value: u64| {
        let mut baselines = figures.iter().filter(|figure| figure.is_baseline());
        baselines
            .find(|figure| column(figure) == value)
            .map(|figure| figure.gbps)
    };
    let (corner, size) = match counted {
        true => ("folios", format!(", folios of {}", long(first.folio_bytes))),
        false => ("folio", String::new()),
    };
    Table {
        title: format!(
            "published: {}, {}{size}, {}",
            first.source, first.bench, first.load
        ),
        caption: format!(
            "{}; GB/s{}",
            first.system,
            if figures.iter().any(|figure| figure.is_baseline()) {
                ", and the multiple of its own kernel baseline"
            } else {
                "; it gives no kernel baseline"
            }
        ),
        ..Table::pivot(
            corner,
            figures,
            |figure| format!("{}, {}", figure.migrator, lanes(figure.lanes)),
            column,
            |value| {
                if counted {
                    value.to_string()
                } else {
                    short(value)
                }
            },
            |figure| cell(figure, baseline(column(figure))),
        )
    }
}

fn cell(figure: &Figure, baseline: Option<f64>) -> String {
    let mut text = match figure.gbps_sd {
        Some(sd) => throughput(figure.gbps, sd),
        None => format!("{:.1}", figure.gbps),
    };
    if let Some(baseline) = baseline {
        text += &format!(" {:>3.1}x", figure.gbps / baseline);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_named_with_its_system() {
        let moves = tables("move", false);
        assert_eq!(moves.len(), 3);
        for table in &moves {
            assert!(table.title.contains("RFC"), "{}", table.title);
            assert!(table.caption.contains("EPYC Zen 3"), "{}", table.caption);
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        }
        assert_eq!(tables("count", false).len(), 5);
        assert_eq!(tables("count", true).len(), 9);
    }

    #[test]
    fn every_figure_has_its_cell() {
        let benches = ["move", "count", "topology-spread", "topology-fill"];
        let cells = benches
            .iter()
            .flat_map(|bench| tables(bench, true))
            .flat_map(|table| table.rows)
            .flat_map(|row| row.into_iter().skip(1))
            .filter(|cell| !cell.is_empty())
            .count();
        assert_eq!(cells, 666);
    }
}
