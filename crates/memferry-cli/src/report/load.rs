// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads benchmark files and refuses what the report cannot draw, saying what to do about it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::results::file_name;
use crate::schema::gain::{GAIN_SCHEMA, GainRow};
use crate::schema::promote::{PROMOTE_SCHEMA, PromoteRow};
use crate::schema::{BENCH_SCHEMA, BenchFile, MoveRow, Rows};

/// A benchmark file is some kilobytes; a larger file is something else (a disk image, /dev/zero).
const LARGEST_BYTES: u64 = 64 << 20;

/// How to make a file that can be read.
const MAKE_ONE: &str =
    "give a file that `memferry bench … --json=FILE` wrote, or the history of a daemon";

/// A benchmark file and where it came from.
pub struct Loaded {
    /// The file's name without its folder, its path as given where another file of the report has the same name.
    pub name: String,
    /// What it holds, checked.
    pub file: BenchFile,
}

/// Reads the files of a report.
pub fn load(paths: &[&PathBuf]) -> Result<Vec<Loaded>, Failure> {
    let names: Vec<String> = paths.iter().map(|path| file_name(path)).collect();
    let named = |(path, name): (&&PathBuf, &String)| {
        let same = names.iter().filter(|of| *of == name).count();
        let name = match same {
            1 => name.clone(),
            _ => path.display().to_string(),
        };
        let file = read(path)?;
        Ok(Loaded { name, file })
    };
    paths.iter().zip(&names).map(named).collect()
}

fn read(path: &Path) -> Result<BenchFile, Failure> {
    let shown = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            let next = if missing {
                "check the name, or measure first: memferry bench move --json=FILE"
            } else {
                MAKE_ONE
            };
            Failure::new(format!("cannot read {shown}"), error, next)
        })?;
    if text.len() as u64 > LARGEST_BYTES {
        return Err(Failure::new(
            format!("{shown} is not a benchmark file"),
            "it is larger than 64 MiB",
            MAKE_ONE,
        ));
    }
    parse(&text).map_err(|(why, next)| Failure::new(format!("cannot use {shown}"), why, next))
}

/// Why a text is refused, and what to try.
type Refusal = (String, String);

fn parse(text: &str) -> Result<BenchFile, Refusal> {
    let refuse = |why: String| (why, MAKE_ONE.to_owned());
    let value: Value =
        serde_json::from_str(text).map_err(|error| refuse(format!("it is not JSON: {error}")))?;
    let Some(schema) = value.get("schema").and_then(Value::as_str) else {
        return Err(refuse(
            "it is JSON, but no benchmark file: it has no \"schema\"".to_owned(),
        ));
    };
    if ![BENCH_SCHEMA, PROMOTE_SCHEMA, GAIN_SCHEMA].contains(&schema) {
        let why = format!(
            "its schema is {schema:?}; this memferry draws {BENCH_SCHEMA:?}, {PROMOTE_SCHEMA:?} and {GAIN_SCHEMA:?}"
        );
        let versions = ["memferry-bench/", "memferry-promote/", "memferry-gain/"];
        let next = if versions.iter().any(|of| schema.starts_with(of)) {
            "draw it with the version of memferry that wrote it, or measure again with this one"
        } else {
            MAKE_ONE
        };
        return Err((why, next.to_owned()));
    }
    // Straight from the text: its errors name the line, those from a Value do not.
    let file: BenchFile = serde_json::from_str(text)
        .map_err(|error| refuse(format!("it does not fit {schema}: {error}")))?;
    if file.rows.schema() != schema {
        return Err(refuse(format!("its rows are not those of {schema}")));
    }
    check(&file).map_err(|why| {
        let next = "measure again; if memferry wrote this file, report it as a bug";
        (why, next.to_owned())
    })?;
    Ok(file)
}

/// Refuses figures that no measurement gives and no axis can hold.
fn check(file: &BenchFile) -> Result<(), String> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let move_row = |row: &MoveRow| {
        row.lanes > 0 && row.folio_bytes > 0 && row.folios != Some(0) && positive(row.gbps)
    };
    let promote_row = |row: &PromoteRow| {
        let shares = [row.top_share, row.recall];
        let times = row.timeline.iter().map(|point| point.0);
        let mut times = times.chain(row.hot_timeline.iter().map(|point| point.0));
        let sound = |value: f64| value.is_finite() && value >= 0.0;
        row.regions > 0
            && row.threads > 0
            && positive(row.seconds)
            && shares.iter().all(|share| (0.0..=1.0).contains(share))
            && times.all(sound)
    };
    let gain_row = |row: &GainRow| {
        let mut points = row.timeline.iter();
        row.threads > 0
            && positive(row.seconds)
            && positive(row.ns_per_op)
            && positive(row.ns_last)
            && (0.0..=1.0).contains(&row.top_share)
            && points.all(|of| of.0.is_finite() && of.0 >= 0.0 && positive(of.1))
    };
    match &file.rows {
        Rows::Gain(rows) => check_rows(rows, gain_row),
        Rows::Move(rows) => check_rows(rows, move_row),
        Rows::Count(rows) => check_rows(rows, |row| move_row(row) && row.folios.is_some()),
        Rows::Stall(rows) => check_rows(rows, |row| {
            row.lanes > 0 && row.folio_bytes > 0 && row.batch_bytes > 0 && positive(row.gbps)
        }),
        Rows::Cache(rows) => check_rows(rows, |row| {
            positive(row.gbps) && row.runs > 0 && row.lost.is_finite()
        }),
        Rows::Compaction(rows) => check_rows(rows, |row| positive(row.wall_ms) && row.runs > 0),
        Rows::Promote(rows) => check_rows(rows, promote_row),
    }?;
    if file
        .ceiling
        .iter()
        .any(|ceiling| ceiling.lanes == 0 || !positive(ceiling.gbps))
    {
        return Err("its ceiling has an entry without lanes or throughput".to_owned());
    }
    Ok(())
}

/// Refuses a list without rows, and the first row that is not sound.
fn check_rows<R>(rows: &[R], is_sound: impl Fn(&R) -> bool) -> Result<(), String> {
    match rows.iter().position(|row| !is_sound(row)) {
        None if rows.is_empty() => Err("it has no rows".to_owned()),
        None => Ok(()),
        Some(bad) => Err(format!(
            "row {} of {} has a figure that cannot be: no size, lanes, folios, time or throughput, or a share above 1",
            bad + 1,
            rows.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn files_of_one_name_are_told_apart() {
        let folder = tempfile::tempdir().expect("folder");
        let paths = ["a/move.json", "b/move.json", "count.json"].map(|of| folder.path().join(of));
        for path in &paths {
            std::fs::create_dir_all(path.parent().expect("folder")).expect("folder");
            std::fs::write(path, synthetic::text("move")).expect("write");
        }
        let loaded = load(&paths.each_ref()).expect("files");
        let names: Vec<&str> = loaded.iter().map(|of| of.name.as_str()).collect();
        let shown = |at: usize| paths[at].to_str().expect("path");
        assert_eq!(names, [shown(0), shown(1), "count.json"]);
    }

    #[test]
    fn figures_that_no_axis_holds_are_refused() {
        let text = synthetic::text("move");
        for (from, to) in [
            ("\"lanes\": 2", "\"lanes\": 0"),
            ("\"folio_bytes\": 16384", "\"folio_bytes\": 0"),
            ("\"gbps\": ", "\"gbps\": -"),
        ] {
            assert!(text.contains(from));
            assert!(parse(&text.replace(from, to)).is_err(), "{to}");
        }
        let mut file = synthetic::file("stall");
        file.rows = Rows::Stall(Vec::new());
        assert_eq!(check(&file), Err("it has no rows".to_owned()));
    }
}
