// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/results: every data file is complete, and tables have their figures from the files that they name.
//!
//! The comment `<!-- from FILE… -->` above a table says where its figures are. A row's first cell is the beginning of a line's
//! name: a line of `memferry report --text`, of a kept log, or of what [`lines`] makes of other files. Each number of the
//! row, rounded as it is written, must be one of those lines'; cells that begin with a letter are words. Of a fenced block
//! below such a comment every line is one of the report's. A table without a file says why: `<!-- no file: … -->`. Figures
//! in sentences are not looked at.

mod command;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use command::{done, memferry};
use serde_json::Value;

/// Pages without data files, with the reason.
const WITHOUT_DATA: [(&str, &str); 3] = [
    (
        "2026-11-22-lab-defaults.md",
        "guest tests and `cargo xtask compare` print these; no file was kept",
    ),
    (
        "2026-11-23-lab-hint-faults.md",
        "guest tests print these from the kernel's trace; no file was kept",
    ),
    (
        "2026-11-24-lab-free-cost.md",
        "the guest program pghot_free prints these; the text that it printed is kept",
    ),
];

/// All data files together, bytes.
const MOST_BYTES: u64 = 2_500_000;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8")
}

/// The data files, each in the folder of its page.
fn data_files() -> Vec<PathBuf> {
    let folders = entries(&docs().join("results")).into_iter();
    let files = folders
        .filter(|path| path.is_dir())
        .flat_map(|path| entries(&path));
    files.collect()
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the command prints of a file.
fn report(path: &Path) -> String {
    done(&memferry(&format!(
        "report --text --anatomy {}",
        path.display()
    )))
}

fn is_of_report(file: &Value) -> bool {
    let schema = file["schema"].as_str().expect("schema");
    ["memferry-bench/", "memferry-promote/", "memferry-gain/"]
        .iter()
        .any(|of| schema.starts_with(of))
}

#[test]
fn every_file_is_complete() {
    let files = data_files();
    for path in files
        .iter()
        .filter(|path| path.extension().is_some_and(|of| of == "json"))
    {
        let (file, shown) = (json(path), path.display());
        assert_eq!(file["complete"], true, "{shown}");
        assert!(
            file["version"]
                .as_str()
                .is_some_and(|version| !version.is_empty()),
            "{shown}"
        );
        let date = file["date"].as_str().expect("date");
        assert!(date.starts_with("20") && date.len() >= 10, "{shown}");
        if is_of_report(&file) {
            let text = report(path);
            for mark in [
                "NOT COMPLETE",
                "Ended by a failure",
                "Stopped by the user",
                "--quick",
            ] {
                assert!(!text.contains(mark), "{shown}: {mark}");
            }
        }
    }
    let bytes: u64 = files
        .iter()
        .map(|path| fs::metadata(path).expect("file").len())
        .sum();
    assert!(
        bytes < MOST_BYTES,
        "{bytes} bytes: thin the timelines, or leave out what no page draws"
    );
}

/// Names and numbers of a file, line by line.
type Lines = Vec<(String, Vec<f64>)>;

fn lines(path: &Path) -> Lines {
    if path.extension().is_none_or(|of| of != "json") {
        return of_text(&fs::read_to_string(path).expect("file"));
    }
    let file = json(path);
    match file["schema"].as_str() {
        Some("memferry-replay/1") => of_replay(&file),
        Some("memferry-guest/1") => of_guest(&file),
        _ => [of_text(&report(path)), runs(&file)].concat(),
    }
}

/// A line is `name  figures`, of TAP `# name: figures`.
fn of_text(text: &str) -> Lines {
    let line = |line: &str| {
        let tap = line
            .strip_prefix("# ")
            .and_then(|line| line.split_once(": "));
        let (name, figures) = tap.or_else(|| line.split_once("  "))?;
        Some((
            name.to_owned(),
            numbers(figures).into_iter().map(|of| of.0).collect(),
        ))
    };
    text.lines().filter_map(line).collect()
}

/// `TRACE, SHARE%`: what the policies came to, and ours against the oracle.
fn of_replay(file: &Value) -> Lines {
    let mut lines: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut shares: BTreeMap<(String, String), f64> = BTreeMap::new();
    for row in file["rows"].as_array().expect("rows") {
        let number = |field: &str| row[field].as_f64().expect("number");
        let trace = row["trace"]
            .as_str()
            .expect("trace")
            .trim_end_matches(".trace");
        let share = number("top_tier_bytes") / number("footprint_bytes") * 100.0;
        let name = format!("{trace}, {share:.0}%");
        let figures = [
            "slowdown",
            "promoted_pages",
            "demoted_pages",
            "wasted_pages",
        ]
        .map(number);
        let line = lines.entry(name.clone()).or_default();
        line.extend(figures);
        line.push(number("top_share") * 100.0);
        let policy = row["policy"].as_str().expect("policy").to_owned();
        shares.insert((name, policy), number("top_share"));
    }
    for (name, line) in &mut lines {
        let of = |policy: &str| shares.get(&(name.clone(), policy.to_owned()));
        line.extend(
            of("ours")
                .zip(of("oracle"))
                .map(|(ours, oracle)| ours / oracle),
        );
    }
    lines.into_iter().collect()
}

/// `COUNT x SIZE`: how often faster than without a migrator, and the CPU time against that without.
fn of_guest(file: &Value) -> Lines {
    let rows = file["rows"].as_array().expect("rows");
    let line = |row: &Value| {
        let number = |row: &Value, field: &str| row[field].as_f64().expect("number");
        let same = |of: &&Value| {
            ["folios", "folio_bytes"]
                .iter()
                .all(|field| of[*field] == row[*field])
                && of["migrator"] == "none"
        };
        let none = rows.iter().find(same).expect("none");
        let size = match number(row, "folio_bytes") / 1024.0 {
            kib if kib >= 1024.0 => format!("{} MiB", kib / 1024.0),
            kib => format!("{kib} KiB"),
        };
        let cpu = number(row, "cpu_ns") / number(none, "cpu_ns");
        (
            format!("{} x {size}", row["folios"]),
            vec![number(row, "of_none"), cpu],
        )
    };
    rows.iter().map(line).collect()
}

/// `CASE, runs` of `bench promote`: what the report does not print, each run and the medians.
fn runs(file: &Value) -> Lines {
    let mut cases: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for row in file["rows"].as_array().expect("rows") {
        if let Some(mode) = row["mode"].as_str() {
            let source = row["source"].as_str().map(|source| format!(" {source}"));
            let case = mode.to_owned() + &source.unwrap_or_default();
            cases.entry(case).or_default().push(row);
        }
    }
    let line = |(case, rows): (String, Vec<&Value>)| {
        let each = |field: &str| -> Vec<f64> {
            rows.iter().filter_map(|row| row[field].as_f64()).collect()
        };
        let medians = ["seconds", "hot_in_top_95_s"].map(|field| median(each(field)));
        let counts = ["promoted_pages", "demoted_pages", "precision"].map(each);
        let shares = each("top_share").into_iter().map(|share| share * 100.0);
        let figures = medians
            .into_iter()
            .flatten()
            .chain(counts.concat())
            .chain(shares);
        (format!("{case}, runs"), figures.collect())
    };
    cases.into_iter().map(line).collect()
}

fn median(mut runs: Vec<f64>) -> Option<f64> {
    runs.sort_by(f64::total_cmp);
    let below = runs.get(runs.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*below, *runs.get(runs.len() / 2)?))
}

/// The numbers of a text, each with its decimals. `1,024` is one number, `1, 024` two.
fn numbers(text: &str) -> Vec<(f64, usize)> {
    let mut numbers = Vec::new();
    for word in text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',') {
        let word = word.trim_matches(|c| c == '.' || c == ',');
        let decimals = word
            .split_once('.')
            .map_or(0, |(_, decimals)| decimals.len());
        if let Ok(number) = word.replace(',', "").parse() {
            numbers.push((number, decimals));
        }
    }
    numbers
}

/// What stands above a table or a block.
enum Mark {
    From(Vec<PathBuf>),
    NoFile,
}

fn mark(line: &str, folder: &Path) -> Option<Mark> {
    let comment = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    if let Some(files) = comment.strip_prefix("from ") {
        return Some(Mark::From(
            files.split(' ').map(|file| folder.join(file)).collect(),
        ));
    }
    let reason = comment
        .strip_prefix("no file: ")
        .filter(|reason| !reason.is_empty());
    reason.map(|_| Mark::NoFile)
}

/// Why a row of a table is not from these lines.
fn wrong(row: &str, lines: &Lines) -> Option<String> {
    let mut cells = row
        .trim_matches('|')
        .split('|')
        .map(|cell| cell.replace(['*', '`'], ""));
    let first = cells.next()?;
    let name = first.split(" (").next()?.trim();
    let figures: Vec<f64> = (lines.iter())
        .filter(|line| line.0.starts_with(name))
        .flat_map(|line| line.1.clone())
        .collect();
    let is_word = |cell: &String| cell.trim().starts_with(char::is_alphabetic);
    let written = cells.filter(|cell| !is_word(cell));
    written
        .flat_map(|cell| numbers(&cell))
        .find_map(|(number, decimals)| {
            let half = 0.5 * 0.1_f64.powi(decimals as i32) + 1e-9;
            let is_there = figures.iter().any(|figure| (figure - number).abs() <= half);
            (!is_there).then(|| format!("{name}: {number} is not among {figures:?}"))
        })
}

/// Checks a page; says how many tables and blocks it has from files, and all that is wrong.
fn check(page: &Path, strict: bool) -> (usize, Vec<String>) {
    let text = fs::read_to_string(page).expect("page");
    let folder = page.parent().expect("folder");
    let (mut checked, mut told) = (0, Vec::new());
    let mut pending = None;
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        if let Some(mark) = mark(line, folder) {
            pending = Some(mark);
        } else if line == "```" {
            let block: Vec<&str> = rest.by_ref().take_while(|line| *line != "```").collect();
            if let Some(Mark::From(files)) = pending.take() {
                checked += 1;
                let reports: String = files.iter().map(|file| report(file)).collect();
                let known: Vec<&str> = reports.lines().collect();
                told.extend(
                    block
                        .iter()
                        .filter(|line| !known.contains(line))
                        .map(ToString::to_string),
                );
            } else if strict {
                told.push(format!("a block without a mark: {block:?}"));
            }
        } else if line.starts_with('|') {
            // The head; the line below it; the rows.
            let mut rows = Vec::new();
            while let Some(row) = rest.next_if(|line| line.starts_with('|')) {
                rows.push(row);
            }
            match pending.take() {
                Some(Mark::From(files)) => {
                    checked += 1;
                    let lines: Lines = files.iter().flat_map(|file| lines(file)).collect();
                    told.extend(rows.iter().skip(1).filter_map(|row| wrong(row, &lines)));
                }
                None if strict => told.push(format!("a table without a mark: {line}")),
                _ => {}
            }
        }
    }
    (checked, told)
}

#[test]
fn tables_have_their_figures_from_the_files_that_they_name() {
    let mut wrong = Vec::new();
    for page in entries(&docs().join("results")) {
        if page.extension().is_none_or(|of| of != "md") {
            continue;
        }
        let without = WITHOUT_DATA.iter().any(|(of, _)| *of == name(&page));
        let (checked, told) = check(&page, !without);
        assert_eq!(checked == 0, without, "{}", page.display());
        wrong.extend(told.into_iter().map(|of| format!("{}: {of}", name(&page))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_figure_that_no_line_has_is_found() {
    let lines = of_text(
        "numab2  18.2 ±15.5 (±11.1)  2.84 ±1.00\npghot pgtscan, default  14.7 ±2.5\n# delays: 1000 calls",
    );
    assert_eq!(
        wrong(
            "| numab2 | 18.2, 15.5, ±11.1 | 2.8 | in the tracker 7 |",
            &lines
        ),
        None
    );
    assert_eq!(wrong("| pghot pgtscan | **15** |", &lines), None);
    assert_eq!(wrong("| delays | ordered | 1,000 |", &lines), None);
    for row in [
        "| numab2 | 18.3 |",
        "| numab2 | 14.7 |",
        "| numab3 | 18.2 |",
    ] {
        assert!(wrong(row, &lines).is_some(), "{row}");
    }
}
