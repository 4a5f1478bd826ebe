// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published table and this machine's figures in one chart, and what they come to in one sentence.

use crate::chart::{Chart, Point, STYLES, Series, Style, X};
use crate::schema::reproduced::{Cell, Measured, Reproduced};
use crate::spread::groups;
use crate::table::reproduced::published_name;
use crate::table::{folios_of, or_dash};
use crate::units::lanes;

/// Both lines of each migrator with its fewest and most lanes: the published one dashed, ours bold. None where nothing of the
/// table was measured here.
pub fn chart(of: &Reproduced) -> Option<Chart> {
    let ours = of.cells.iter().any(|cell| cell.ours.is_some());
    let sizes = groups(&of.cells, |cell| (cell.folio_bytes, cell.folios));
    if !ours || sizes.len() < 2 {
        return None;
    }
    let one = |multiple: Option<f64>| multiple.is_none_or(|of| (of - 1.0).abs() < f64::EPSILON);
    // Where the table is the baseline itself, figures are multiples of their line's first.
    let over_first = of.cells.iter().all(|cell| one(cell.published.of_baseline));
    let counted = of.cells.iter().any(|cell| cell.folios.is_some());
    let ways = groups(&of.cells, |cell| (cell.migrator.as_str(), cell.lanes));
    let ends = ways.iter().filter(|((migrator, count), cells)| {
        let same = ways.iter().filter(|(way, _)| way.0 == *migrator);
        let has_ours = |cells: &[&Cell]| cells.iter().any(|cell| cell.ours.is_some());
        let here = same.clone().filter(|(_, cells)| has_ours(cells));
        let least = same.map(|(way, _)| way.1).min();
        let most = here.map(|(way, _)| way.1).max();
        let end = Some(*count) == least || Some(*count) == most;
        // A baseline is one in its own line.
        end && (over_first || cells.iter().any(|cell| !one(cell.published.of_baseline)))
    });
    let lines = ends
        .take(STYLES)
        .enumerate()
        .flat_map(|(index, ((migrator, count), cells))| {
            let name = format!("{}, {}", published_name(migrator), lanes(*count));
            let line = |whose: &str, style, measured: fn(&Cell) -> Option<Measured>| {
                let name = format!("{whose}: {name}");
                let points = points(&name, cells, over_first, measured);
                Series::new(name, style, points)
            };
            [
                line("published", Style::Dashed(index + 1), |cell| {
                    Some(cell.published)
                }),
                line("ours", Style::Ours(index + 1), |cell| cell.ours),
            ]
        });
    let lines: Vec<Series> = lines.filter(|line| !line.points.is_empty()).collect();
    let baseline = match over_first {
        false => of.baseline.as_deref().unwrap_or("the baseline"),
        true => "its own first figure",
    };
    let axis = match counted {
        true => (X::Count, "folios in one move"),
        false => (X::Bytes, "folio size"),
    };
    Some(Chart {
        title: format!("{}: published and ours", of.name),
        note: format!(
            "Each as a multiple of {baseline} on its own machine. Dashed: {}.",
            of.posting
        ),
        ..Chart::new(axis, "times", lines)
    })
}

fn points(
    name: &str,
    cells: &[&Cell],
    over_first: bool,
    measured: fn(&Cell) -> Option<Measured>,
) -> Vec<Point> {
    let first = cells.iter().find_map(|cell| measured(cell));
    let point = |cell: &&Cell| {
        let of = measured(cell)?;
        let times = match over_first {
            false => of.of_baseline?,
            true => of.gbps / first?.gbps,
        };
        let x = (cell.folios).map_or(cell.folio_bytes as f64, |folios| folios as f64);
        let tip = format!(
            "{times:.2} times, {:.2} GB/s, {name}, {}",
            of.gbps,
            folios_of(cell.folios, cell.folio_bytes)
        );
        Some(Point::new(x, times, tip))
    };
    cells.iter().filter_map(point).collect()
}

/// The published gain that is largest among those that were measured here, and what it is here.
pub fn sentence(of: &Reproduced) -> Option<String> {
    if let Some(cell) = of.shares.iter().rfind(|cell| cell.ours_percent.is_some()) {
        return Some(format!(
            "{}: the copy is {:.0}% of moving {} here, {}% as published.",
            of.name,
            cell.ours_percent?,
            folios_of(Some(cell.folios), cell.folio_bytes),
            cell.published_percent
        ));
    }
    if let Some(cell) = of
        .compactions
        .iter()
        .rfind(|cell| cell.mode != "vanilla" && cell.ours.is_some())
    {
        let times = |of: Option<f64>| or_dash(of.map(|of| format!("{of:.2}")));
        return Some(format!(
            "{}: {} compacts {} times as fast as vanilla on a CPU that is {} here, {} as published.",
            of.name,
            cell.mode,
            times(cell.ours?.of_baseline),
            if cell.load == "idle" { "idle" } else { "busy" },
            times(cell.published.of_baseline)
        ));
    }
    let both = of.cells.iter().filter_map(|cell| {
        let (ours, published) = (cell.ours?.of_baseline?, cell.published.of_baseline?);
        Some((cell, ours, published))
    });
    let (cell, ours, published) = both.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let baseline = of.baseline.as_deref().unwrap_or("the baseline");
    let who = format!(
        "{}, {}, {}",
        published_name(&cell.migrator),
        lanes(cell.lanes),
        folios_of(cell.folios, cell.folio_bytes)
    );
    Some(match (ours - 1.0).abs() + (published - 1.0).abs() < 1e-9 {
        true => format!("{}: {who}, the baseline itself.", of.name),
        false => format!(
            "{}: {who}: {ours:.2} times {baseline} here, {published:.2} times as published.",
            of.name
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reproduced(cells: Vec<Cell>) -> Reproduced {
        Reproduced {
            name: "garg-v3-1b".to_owned(),
            baseline: Some("Linux as it is".to_owned()),
            cells,
            ..Reproduced::default()
        }
    }

    fn cell(
        migrator: &str,
        lanes: usize,
        folio_bytes: u64,
        published: f64,
        ours: Option<f64>,
    ) -> Cell {
        let measured = |times: f64| Measured {
            gbps: 2.0 * times,
            gbps_sd: None,
            of_baseline: Some(times),
        };
        Cell {
            migrator: migrator.to_owned(),
            lanes,
            folio_bytes,
            folios: None,
            published: measured(published),
            ours: ours.map(measured),
        }
    }

    #[test]
    fn both_lines_of_the_most_lanes_that_are_here_stand_in_one_chart() {
        let of = reproduced(vec![
            cell("mtcopy", 1, 4096, 1.1, Some(1.0)),
            cell("mtcopy", 1, 2 << 20, 1.2, Some(1.1)),
            cell("mtcopy", 2, 4096, 1.3, Some(1.2)),
            cell("mtcopy", 2, 2 << 20, 1.9, Some(1.7)),
            cell("mtcopy", 16, 4096, 2.0, None),
            cell("mtcopy", 16, 2 << 20, 10.0, None),
        ]);
        let chart = chart(&of).expect("chart");
        let names: Vec<&str> = chart.series.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "published: mtcopy, 1 lane",
                "ours: mtcopy, 1 lane",
                "published: mtcopy, 2 lanes",
                "ours: mtcopy, 2 lanes"
            ]
        );
        assert!((chart.series[3].points[1].y - 1.7).abs() < 1e-9);
        assert_eq!(
            sentence(&of).expect("sentence"),
            "garg-v3-1b: mtcopy, 2 lanes, folios of 2M: 1.70 times Linux as it is here, 1.90 times as published."
        );
    }

    #[test]
    fn a_table_that_is_the_baseline_is_drawn_over_its_first_figure_as_vanilla() {
        let mut of = reproduced(vec![
            cell("kernel", 1, 4096, 1.0, Some(1.0)),
            cell("kernel", 1, 2 << 20, 1.0, Some(1.0)),
        ]);
        of.cells[1].published.gbps = 6.0;
        let drawn = chart(&of).expect("chart");
        assert_eq!(drawn.series[0].name, "published: vanilla, 1 lane");
        assert!((drawn.series[0].points[1].y - 3.0).abs() < 1e-9);
        assert!(sentence(&of).expect("sentence").contains("baseline itself"));
        of.cells.iter_mut().for_each(|cell| cell.ours = None);
        assert!(chart(&of).is_none() && sentence(&of).is_none());
    }
}
