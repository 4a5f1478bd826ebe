// SPDX-License-Identifier: MIT OR Apache-2.0
//! The geometry of a replay's pictures: shares over time as lines, accesses by address and time as a heatmap with the border
//! of the top tier. `page.html` writes them as SVG.

use memferry_replay::outcome::Outcome;
use memferry_replay::policy::Kind;
use memferry_replay::tiers::{BANDS, band};
use memferry_replay::truth::SLICES;
use serde::Serialize;

use super::text::percent;
use super::{Case, Loaded};

/// Slices that one column of a picture sums: more columns than that no eye tells apart.
const PER_COLUMN: usize = 2;
/// Columns of a picture.
const COLUMNS: usize = SLICES / PER_COLUMN;
/// Shades of a heatmap; the first is no access.
const SHADES: usize = 9;

/// Where the frame of a chart of lines lies in its 560 by 300 units.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 552.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 256.0;

/// Shares over time.
#[derive(Serialize)]
pub struct Course {
    pub description: String,
    pub lines: Vec<Line>,
    pub y_ticks: Vec<Tick>,
    pub x_ticks: Vec<Tick>,
    /// Where phases change.
    pub changes: Vec<String>,
}

/// One policy's line.
#[derive(Serialize)]
pub struct Line {
    pub name: &'static str,
    pub class: String,
    pub path: String,
    /// Its share of all accesses.
    pub share: String,
}

/// A mark on an axis.
#[derive(Serialize)]
pub struct Tick {
    pub at: String,
    pub label: String,
}

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
pub fn course(case: &Case) -> Course {
    let shares: Vec<(Kind, Vec<f64>, f64)> = case
        .outcomes
        .iter()
        .map(|outcome| (outcome.policy, shares(outcome), outcome.top_share))
        .collect();
    let y_at = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    let x_at = |column: f64| LEFT + column / COLUMNS as f64 * (RIGHT - LEFT);
    let line = |(kind, shares, share): &(Kind, Vec<f64>, f64)| {
        let points = shares.iter().enumerate();
        let path: Vec<String> = points
            .map(|(column, &share)| format!("{:.1},{:.1}", x_at(column as f64 + 0.5), y_at(share)))
            .collect();
        Line {
            name: kind.name(),
            class: class(*kind),
            path: format!("M{}", path.join("L")),
            share: percent(*share),
        }
    };
    let accesses = case.loaded.truth.accesses as f64;
    let quarter = |part: u32| {
        let part = f64::from(part) / 4.0;
        Tick {
            at: format!("{:.1}", LEFT + part * (RIGHT - LEFT)),
            label: super::text::count((accesses * part) as u64),
        }
    };
    let level = |tenth: u32| {
        let share = f64::from(tenth) / 10.0;
        Tick {
            at: format!("{:.1}", y_at(share)),
            label: format!("{}%", tenth * 10),
        }
    };
    let said = shares
        .iter()
        .map(|(kind, _, share)| format!("{kind} {}", percent(*share)));
    let changes = case.loaded.truth.changes();
    Course {
        description: format!(
            "Share of accesses served by the top tier over time; over the whole trace: {}.",
            said.collect::<Vec<_>>().join(", ")
        ),
        lines: shares.iter().map(line).collect(),
        y_ticks: (0..=5).map(|step| level(step * 2)).collect(),
        x_ticks: (0..=4).map(quarter).collect(),
        changes: changes
            .iter()
            .map(|&slice| format!("{:.1}", x_at(slice as f64 / PER_COLUMN as f64)))
            .collect(),
    }
}

/// The colour of a policy; ours is bold.
fn class(kind: Kind) -> String {
    let index = match kind {
        Kind::None => 0,
        Kind::Ours | Kind::OursDefault => 1,
        Kind::Numab2 => 2,
        Kind::PghotPrecise | Kind::PghotPreciseFaults => 3,
        Kind::PghotDefault | Kind::PghotDefaultFaults => 4,
        Kind::Lru => 5,
        Kind::OracleStatic => 6,
        Kind::OracleSampled | Kind::Oracle => 7,
    };
    match kind {
        Kind::Ours => format!("s{index} ours"),
        Kind::Oracle | Kind::OracleStatic => format!("s{index} oracle"),
        Kind::OursDefault
        | Kind::PghotDefaultFaults
        | Kind::PghotPreciseFaults
        | Kind::OracleSampled => format!("s{index} variant"),
        _ => format!("s{index}"),
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
        class: class(outcome.policy),
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
