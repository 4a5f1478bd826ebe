// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of `bench promote` as tables: for each scenario what promotion achieved, and what it took.

use std::iter::once;

use super::{Table, counted, distinct, groups, or_dash};
use crate::published::promotion::{self, Scale};
use crate::schema::promote::{Like, LikeRate, LikeResult, PromoteRow};
use crate::spread::Spread;
use crate::units::about;

/// The tables of a file, scenario by scenario.
pub fn tables(rows: &[PromoteRow]) -> Vec<Table> {
    let scenarios = groups(rows, |row| row.scenario).into_iter();
    scenarios
        .flat_map(|(scenario, rows)| [achieved(scenario, &rows), cost(scenario, &rows)])
        .collect()
}

/// A published scenario beside ours: what came out, and promotion over time.
pub fn alike(like: &Like) -> Vec<Table> {
    vec![results(like), rates(like)]
}

/// The published figures of the scenarios of these rows.
pub fn published(rows: &[PromoteRow]) -> Vec<Table> {
    let of = promotion::scenarios().iter();
    let there = of.filter(|of| rows.iter().any(|row| row.scenario == of.scenario));
    let table = |of: &promotion::Published| {
        let line = |row: &promotion::Outcome| {
            let seconds = format!("{:.1}", row.seconds());
            vec![row.case(), seconds, row.pages_promoted.to_string()]
        };
        Table::new(
            format!("published: {}, scenario {}", of.source, of.scenario),
            format!(
                "{}; mean of {}; `bench promote --like {}` repeats it",
                of.system,
                counted(of.runs, "run"),
                of.name
            ),
            &["mode", "seconds", "promoted"],
            of.results().map(line).collect(),
        )
    };
    there.map(table).collect()
}

fn results(like: &Like) -> Table {
    let scale = Scale(like.scale);
    let figure =
        |value: Option<f64>, digits: usize| or_dash(value.map(|value| format!("{value:.digits$}")));
    let line = |of: &LikeResult| {
        let scaled = of.pages.published.map(|pages| pages * like.scale);
        vec![
            of.case.clone(),
            figure(of.seconds.published, 1),
            figure(of.pages.published, 0),
            figure(scaled, 0),
            figure(of.seconds.ours, 1),
            figure(of.pages.ours, 0),
        ]
    };
    let mut rows: Vec<Vec<String>> = like.results.iter().map(line).collect();
    let times = |value: Option<f64>| figure(value, 1) + if value.is_some() { "x" } else { "" };
    let ratio = like.hintfaults_over_numab2;
    rows.push(vec![
        "pghot hintfaults / numab2".to_owned(),
        String::new(),
        times(ratio.published),
        times(ratio.published),
        String::new(),
        times(ratio.ours),
    ]);
    Table::new(
        format!("{} at scale {scale}, published and ours", like.name),
        format!(
            "published: {}, {}; ours: NUMA balancing scans {} MiB a second; seconds of other machines do not compare, their order does",
            like.source, like.system, like.scan_mib
        ),
        &[
            "mode",
            "published, s",
            "promoted",
            &format!("times {scale}"),
            "ours, s",
            "promoted",
        ],
        rows,
    )
}

/// Intervals after the last one in which anything was promoted are left out.
fn rates(like: &Like) -> Table {
    let promotes = |of: &LikeRate| of.pages_per_s.iter().rposition(|point| point.1 > 0.0);
    let used = like.rates.iter().filter_map(promotes).max();
    let name = |of: &LikeRate| match of.published {
        true => format!("{}, published", of.case),
        false => of.case.clone(),
    };
    let row = |at: usize| {
        let ends = like.rates.iter().find_map(|of| of.pages_per_s.get(at));
        let cell = |of: &LikeRate| {
            let point = of.pages_per_s.get(at);
            point.map_or_else(String::new, |point| format!("{:.0}", point.1))
        };
        let cells = like.rates.iter().map(cell);
        once(ends.map_or_else(String::new, |point| format!("{:.0}", point.0)))
            .chain(cells)
            .collect()
    };
    let published = like.rates.iter().any(|of| of.published);
    Table {
        title: format!("{}: pages promoted per second", like.name),
        caption: match published {
            true => format!(
                "by the second in which an interval ends; ours: mean of the runs; published: {}, times {}",
                like.source,
                Scale(like.scale)
            ),
            false => format!(
                "by the second in which an interval ends; mean of the runs; {} has none for this scenario",
                like.source
            ),
        },
        head: once("second".to_owned())
            .chain(like.rates.iter().map(name))
            .collect(),
        rows: used.map_or_else(Vec::new, |last| (0..=last).map(row).collect()),
    }
}

/// A figure of a run, if it has it.
pub type Figure<R = PromoteRow> = fn(&R) -> Option<f64>;

fn achieved(scenario: u32, rows: &[&PromoteRow]) -> Table {
    let columns: [(&str, Figure); 5] = [
        ("seconds", |row| Some(row.seconds)),
        ("95% arrived, s", |row| row.hot_in_top_95_s),
        ("top share %", |row| Some(row.top_share * 100.0)),
        ("precision %", |row| row.precision.map(|of| of * 100.0)),
        ("recall %", |row| Some(row.recall * 100.0)),
    ];
    let title = format!("bench promote, scenario {scenario}: {}", what(rows));
    let caption = format!(
        "{}; mean ± standard deviation (± half the 95% confidence interval of the mean); 95% arrived: until so much of the \
         hot set was in the top tier, with the number of runs in which it was if not in all; top share: of the accesses; \
         precision: promoted pages that were hot; recall: hot pages in the top tier at the end",
        counted(distinct(rows, |row| row.run).len(), "run")
    );
    spread(title, &caption, rows, PromoteRow::case, &columns)
}

fn cost(scenario: u32, rows: &[&PromoteRow]) -> Table {
    let columns: [(&str, Figure); 7] = [
        ("promoted", |row| Some(row.promoted_pages as f64)),
        ("demoted", |row| Some(row.demoted_pages as f64)),
        ("hint faults", |row| Some(row.hint_faults as f64)),
        ("tracker, s", |row| Some(row.tracker_cpu_s)),
        ("migration, s", |row| row.migration_cpu_s),
        ("demotion, s", |row| Some(row.demotion_cpu_s)),
        ("in kernel, s", |row| Some(row.access_system_s)),
    ];
    let title = format!("what it took, scenario {scenario}");
    let caption = "pages, and CPU seconds of a run: of what finds hot pages, of kmigrated or the daemon, of kswapd, and of the \
                   accessing threads while they were in the kernel; numab2 migrates there, and its tracker is that time";
    spread(title, caption, rows, PromoteRow::case, &columns)
}

/// What happens in a scenario: `64 MiB on node 2, 1 thread on node 0`.
fn what(rows: &[&PromoteRow]) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let hot = match row.regions {
        1 => about(row.region_bytes),
        count => format!("{count} times {}", about(row.region_bytes)),
    };
    let idle = match row.fill_bytes - row.locked_bytes.min(row.fill_bytes) {
        0 => String::new(),
        bytes => format!(", {} idle in the top tier", about(bytes)),
    };
    format!(
        "{hot} of node {} accessed by {} on node {}{idle}",
        row.nodes.from,
        counted(row.threads, "thread"),
        row.nodes.to
    )
}

/// A table of runs, a line for each case.
pub fn spread<R>(
    title: String,
    caption: &str,
    rows: &[&R],
    case: impl Fn(&R) -> String,
    columns: &[(&str, Figure<R>)],
) -> Table {
    let line = |(case, rows): (String, Vec<&R>)| {
        let cells = columns.iter().map(|(_, figure)| {
            let values: Vec<f64> = rows.iter().filter_map(|row| figure(row)).collect();
            cell(Spread::of(&values), rows.len())
        });
        once(case).chain(cells).collect()
    };
    let cases = groups(rows.iter().copied(), case).into_iter();
    let head = columns.iter().map(|(name, _)| *name);
    let head: Vec<&str> = once("mode").chain(head).collect();
    Table::new(title, caption, &head, cases.map(line).collect())
}

/// `12.3 ±0.4 (±0.9)`, and in how many of so many runs if not in all; a dash where no run has it.
fn cell(spread: Option<Spread>, runs: usize) -> String {
    let Some(of) = spread else {
        return "–".to_owned();
    };
    if of.runs == runs && of.mean.abs() + of.sd < f64::EPSILON {
        return "0".to_owned();
    }
    let digits = match of.mean.abs() {
        mean if mean >= 1000.0 => 0,
        mean if mean >= 10.0 => 1,
        _ => 2,
    };
    let sure = of
        .ci95
        .map(|half| format!(" ±{:.digits$} (±{half:.digits$})", of.sd));
    let some = (of.runs < runs).then(|| format!(", {} of {runs}", of.runs));
    format!(
        "{:.digits$}{}{}",
        of.mean,
        sure.unwrap_or_default(),
        some.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::promotions;

    #[test]
    fn published_figures_are_of_the_scenarios_that_were_run() {
        let mut rows = promotions();
        assert_eq!(published(&rows).len(), 2);
        rows.retain(|row| row.scenario == 2);
        let tables = published(&rows);
        assert_eq!((tables.len(), tables[0].rows.len()), (1, 6));
        assert!(
            tables[0].caption.contains("--like pghot-v6-2"),
            "{}",
            tables[0].caption
        );
    }

    #[test]
    fn a_figure_that_some_runs_lack_says_how_many_have_it() {
        let mut rows = promotions();
        rows.retain(|row| row.scenario == 1 && row.mode == "numab2");
        assert_eq!(tables(&rows)[0].rows[0][2], "3.00 ±0.14 (±1.27)");
        rows[0].hot_in_top_95_s = None;
        assert_eq!(tables(&rows)[0].rows[0][2], "3.10, 1 of 2");
        rows[1].hot_in_top_95_s = None;
        assert_eq!(tables(&rows)[0].rows[0][2], "–");
        assert_eq!(tables(&rows)[1].rows[0][5], "–", "numab2 has no kmigrated");
        assert_eq!(
            tables(&rows)[1].rows[0][6],
            "0",
            "nothing was demoted in any run"
        );
    }
}
