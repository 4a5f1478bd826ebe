// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of `bench promote` as tables: for each scenario what promotion achieved, and what it took.

use super::{Table, counted, distinct};
use crate::schema::promote::PromoteRow;
use crate::spread::Spread;
use crate::units::about;

/// The tables of a file, scenario by scenario.
pub fn tables(rows: &[PromoteRow]) -> Vec<Table> {
    let all: Vec<&PromoteRow> = rows.iter().collect();
    let of_scenario = |scenario: u32| {
        let rows: Vec<&PromoteRow> = all
            .iter()
            .copied()
            .filter(|row| row.scenario == scenario)
            .collect();
        [achieved(scenario, &rows), cost(scenario, &rows)]
    };
    let scenarios = distinct(&all, |row| row.scenario);
    scenarios.into_iter().flat_map(of_scenario).collect()
}

/// A figure of a run, if it has it.
type Figure = fn(&PromoteRow) -> Option<f64>;

fn achieved(scenario: u32, rows: &[&PromoteRow]) -> Table {
    let columns: [(&str, Figure); 5] = [
        ("seconds", |row| Some(row.seconds)),
        ("95% arrived, s", |row| row.hot_in_top_95_s),
        ("top share %", |row| Some(row.top_share * 100.0)),
        ("precision %", |row| row.precision.map(|of| of * 100.0)),
        ("recall %", |row| Some(row.recall * 100.0)),
    ];
    let mut table = spread(rows, &columns);
    table.title = format!("bench promote, scenario {scenario}: {}", what(rows));
    table.caption = format!(
        "{}; mean ± standard deviation (± half the 95% confidence interval of the mean); 95% arrived: until so much of the \
         hot set was in the top tier, with the number of runs in which it was if not in all; top share: of the accesses; \
         precision: promoted pages that were hot; recall: hot pages in the top tier at the end",
        counted(rounds(rows), "run")
    );
    table
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
    let mut table = spread(rows, &columns);
    table.title = format!("what it took, scenario {scenario}");
    table.caption = "pages, and CPU seconds of a run: of what finds hot pages, of kmigrated, of kswapd, and of the accessing \
                     threads while they were in the kernel; numab2 migrates there, and its tracker is that time"
        .to_owned();
    table
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
    let idle = match row.fill_bytes {
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

fn rounds(rows: &[&PromoteRow]) -> usize {
    distinct(rows, |row| row.run).len()
}

fn spread(rows: &[&PromoteRow], columns: &[(&str, Figure)]) -> Table {
    let line = |case: String| {
        let of: Vec<&PromoteRow> = rows
            .iter()
            .copied()
            .filter(|row| row.case() == case)
            .collect();
        let cells = columns.iter().map(|(_, figure)| {
            let values: Vec<f64> = of.iter().filter_map(|row| figure(row)).collect();
            cell(Spread::of(&values), of.len())
        });
        std::iter::once(case.clone()).chain(cells).collect()
    };
    let mut head = vec!["mode".to_owned()];
    head.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
    Table {
        title: String::new(),
        caption: String::new(),
        head,
        rows: distinct(rows, |row| row.case())
            .into_iter()
            .map(line)
            .collect(),
    }
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
    use crate::schema::Rows;
    use crate::synthetic;

    fn rows() -> Vec<PromoteRow> {
        match synthetic::file("promote").rows {
            Rows::Promote(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_scenario_has_what_it_achieved_and_what_it_took() {
        let tables = tables(&rows());
        let titles: Vec<&str> = tables.iter().map(|table| table.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "bench promote, scenario 1: 64 MiB of node 2 accessed by 1 thread on node 0",
                "what it took, scenario 1",
                "bench promote, scenario 2: 4 times 16 MiB of node 2 accessed by 1 thread on node 0, 1.6 GiB idle in the top tier",
                "what it took, scenario 2"
            ]
        );
        let names: Vec<&str> = tables[0].rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["none", "numab2", "pghot pgtscan, default"]);
        assert!(
            tables[0].caption.starts_with("2 runs;"),
            "{}",
            tables[0].caption
        );
    }

    #[test]
    fn a_figure_that_some_runs_lack_says_how_many_have_it() {
        let mut rows = rows();
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
