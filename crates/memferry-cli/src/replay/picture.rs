// SPDX-License-Identifier: MIT OR Apache-2.0
//! A replay's pictures: shares over time as lines, accesses by address and time as a heatmap with the border of the top
//! tier. `page.html` writes the latter as SVG.

use memferry_replay::outcome::Outcome;
use memferry_replay::policy::Kind;
use memferry_replay::tiers::{BANDS, band};
use memferry_replay::truth::SLICES;
use serde::Serialize;

use super::text::{count, percent};
use super::{Case, Loaded};
use crate::chart::{Chart, Point, Series, Style, X, Y};

/// Slices that one column of a picture sums: more columns than that no eye tells apart.
const PER_COLUMN: usize = 2;
/// Columns of a picture.
const COLUMNS: usize = SLICES / PER_COLUMN;
/// Shades of a heatmap; the first is no access.
const SHADES: usize = 9;

/// Accesses by address and time.
#[derive(Serialize)]
pub struct Heat {
    /// The cells of each shade but the first, as one path.
    pub shades: Vec<String>,
    pub columns: usize,
    pub bands: usize,
}

/// Which part of a heatmap lay in the top tier.
#[derive(Serialize)]
pub struct Border {
    pub policy: &'static str,
    pub class: String,
    pub share: String,
    pub promoted: u64,
    /// Outline of the cells that lie mostly in the top tier.
    pub path: String,
}

/// The share of each policy over time.
pub fn course(case: &Case) -> Chart {
    let truth = &case.loaded.truth;
    let at = |column: f64| truth.accesses as f64 * column / COLUMNS as f64;
    let lines = case.outcomes.iter().map(|outcome| {
        let points = shares(outcome).into_iter().enumerate();
        let point =
            |(column, share)| Point::new(at(column as f64 + 0.5), share * 100.0, String::new());
        let name = format!("{} {}", outcome.policy, percent(outcome.top_share));
        Series::new(name, style(outcome.policy), points.map(point))
    });
    let changes = truth.changes();
    let changes = changes
        .iter()
        .map(|&slice| at(slice as f64 / PER_COLUMN as f64));
    let changes: Vec<f64> = changes.collect();
    let dotted = match changes.is_empty() {
        true => "",
        false => "; dotted lines: the trace changes its phase",
    };
    Chart {
        title: "Over time".to_owned(),
        note: format!("Share of accesses that the top tier served{dotted}."),
        y: Y::Percent,
        changes,
        ..Chart::new(
            (X::Even(|accesses| count(accesses as u64)), "accesses"),
            "served by the top tier",
            lines,
        )
    }
}

/// How a policy looks; ours is bold.
fn style(kind: Kind) -> Style {
    match kind {
        Kind::None => Style::Number(0),
        Kind::Ours => Style::Ours(1),
        Kind::OursDefault => Style::Dotted(1),
        Kind::Numab2 => Style::Number(2),
        Kind::PghotPrecise => Style::Number(3),
        Kind::PghotPreciseFaults => Style::Dotted(3),
        Kind::PghotDefault => Style::Number(4),
        Kind::PghotDefaultFaults => Style::Dotted(4),
        Kind::Lru => Style::Number(5),
        Kind::OracleStatic => Style::Dashed(6),
        Kind::OracleSampled => Style::Dotted(7),
        Kind::Oracle => Style::Dashed(7),
    }
}

fn shares(outcome: &Outcome) -> Vec<f64> {
    let mut last = 0.0;
    let columns = outcome.slices.chunks(PER_COLUMN).map(|column| {
        let all: u64 = column.iter().map(|slice| slice.accesses).sum();
        let top: u64 = column.iter().map(|slice| slice.top).sum();
        if all > 0 {
            last = top as f64 / all as f64;
        }
        last
    });
    columns.collect()
}

/// The trace's accesses, the same for every policy.
pub fn heat(loaded: &Loaded) -> Heat {
    let pages = loaded.trace.pages.len();
    let mut cells = vec![[0u64; BANDS]; COLUMNS];
    for (slice, uses) in loaded.truth.slices.iter().enumerate() {
        for used in uses {
            cells[slice / PER_COLUMN][band(used.page, pages)] += used.accesses;
        }
    }
    let most = cells.iter().flatten().copied().max().unwrap_or(0).max(1);
    // Each shade is a factor: the coldest that is drawn has a few thousandths of the hottest.
    let shade = |accesses: u64| {
        let steps = (most as f64 / accesses as f64).log2() * 0.8;
        (SHADES - 1).saturating_sub(steps as usize).max(1)
    };
    let mut shades = vec![String::new(); SHADES - 1];
    for (column, bands) in cells.iter().enumerate() {
        for (band, &accesses) in bands.iter().enumerate() {
            if accesses > 0 {
                // The lowest address is at the bottom.
                shades[shade(accesses) - 1] += &format!("M{column},{}h1v1h-1z", BANDS - 1 - band);
            }
        }
    }
    Heat {
        shades,
        columns: COLUMNS,
        bands: BANDS,
    }
}

/// Where the top tier lay under each policy.
pub fn borders(case: &Case) -> Vec<Border> {
    let mut members = [0u32; BANDS];
    let pages = case.loaded.trace.pages.len();
    for page in 0..pages as u32 {
        members[band(page, pages)] += 1;
    }
    let border = |outcome: &Outcome| Border {
        policy: outcome.policy.name(),
        class: style(outcome.policy).class(),
        share: percent(outcome.top_share),
        promoted: outcome.account.promoted,
        path: outline(outcome, &members),
    };
    case.outcomes.iter().map(border).collect()
}

fn outline(outcome: &Outcome, members: &[u32; BANDS]) -> String {
    let up = |column: usize, band: usize| {
        let slice = &outcome.slices[(column + 1) * PER_COLUMN - 1];
        members[band] > 0 && slice.bands[band] * 2 >= members[band]
    };
    let mut path = String::new();
    for band in 0..=BANDS {
        let y = BANDS - band;
        for column in 0..COLUMNS {
            let below = band > 0 && up(column, band - 1);
            let above = band < BANDS && up(column, band);
            if below != above {
                path += &format!("M{column},{y}h1");
            }
            if band < BANDS && column > 0 && up(column, band) != up(column - 1, band) {
                path += &format!("M{column},{y}v-1");
            }
        }
    }
    path
}
