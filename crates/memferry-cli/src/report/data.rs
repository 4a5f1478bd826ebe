// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of every row as a table, in the file's own words and order, for those who check or recompute.

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use crate::schema::{BenchFile, Rows};
use crate::table::{Table, distinct, or_dash};

/// The whole content of a file: its rows, then its ceilings if it has any.
pub fn tables(name: &str, file: &BenchFile) -> Vec<Table> {
    let rows = match &file.rows {
        Rows::Move(rows) | Rows::Count(rows) => fields(rows),
        Rows::Stall(rows) => fields(rows),
        Rows::Cache(rows) => fields(rows),
        Rows::Promote(rows) => fields(rows),
        Rows::Gain(rows) => fields(rows),
        Rows::Compaction(rows) => fields(rows),
    };
    let rows = table(
        format!("All rows of {name}"),
        "Units: bytes, GB/s of 1e9 bytes, nanoseconds unless the name says seconds (s), CPU time in ticks of 10 ms. Lists are only in the file.",
        &rows,
    );
    let ceilings = table(
        format!("Ceilings of {name}"),
        "page_bytes: the pages that mapped the copied memory. Units: bytes, GB/s of 1e9 bytes.",
        &fields(&file.ceiling),
    );
    [rows, ceilings, settings(name, file)]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// How the file was made, and under which settings.
fn settings(name: &str, file: &BenchFile) -> Table {
    let of = &file.envelope;
    let head = [
        ("command line", of.arguments.join(" ")),
        ("version", of.version.clone()),
        ("date", of.date.clone()),
        ("kernel", file.host.kernel.clone()),
    ];
    let head = head.map(|(name, value)| vec![name.to_owned(), value]);
    let settings = of.settings.iter();
    let settings = settings.map(|(name, value)| vec![name.clone(), value.clone()]);
    Table::new(
        format!("Settings of {name}"),
        "As they were outside of the runs; files of the kernel by their paths.",
        &["what", "value"],
        head.into_iter().chain(settings).collect(),
    )
}

/// Names and values of a row. A field of the field `a` is `a/b`; lists have none.
type Fields = IndexMap<String, String>;

fn fields(rows: &[impl Serialize]) -> Vec<Fields> {
    let read = |row| {
        // Nothing that was read from JSON fails to be JSON again. A `Value` would have it in the order of the alphabet.
        let text = serde_json::to_string(row).unwrap_or_default();
        let row: IndexMap<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        let mut fields = Fields::new();
        for (name, value) in row {
            add(&mut fields, name, value);
        }
        fields
    };
    rows.iter().map(read).collect()
}

fn add(fields: &mut Fields, name: String, value: Value) {
    let text = match value {
        Value::Object(inner) => {
            for (of, value) in inner {
                add(fields, format!("{name}/{of}"), value);
            }
            return;
        }
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => format!("{number:.3}"),
            None => number.to_string(),
        },
        Value::String(text) => text,
        _ => return,
    };
    fields.insert(name, text);
}

/// A column for each name, in the order of first sight.
fn table(title: String, caption: &str, rows: &[Fields]) -> Table {
    let head = distinct(rows.iter().flat_map(Fields::keys), |name| name.as_str());
    let line = |row: &Fields| head.iter().map(|name| or_dash(row.get(*name))).collect();
    Table::new(title, caption, &head, rows.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn every_row_fills_every_column() {
        for bench in synthetic::FILES {
            let tables = tables("x.json", &synthetic::file(bench));
            let has_ceilings = ["move", "count", "reproduce"].contains(&bench);
            assert_eq!(tables.len(), 2 + usize::from(has_ceilings));
            for table in tables {
                assert!(!table.rows.is_empty());
                assert!(
                    table.rows.iter().all(|row| row.len() == table.head.len()),
                    "{bench}"
                );
            }
        }
    }

    #[test]
    fn columns_are_the_fields_in_their_order_without_lists() {
        let mut file = synthetic::file("count");
        let rows = synthetic::move_rows(&mut file);
        rows[1].of_none = Some(1.25);
        let [rows, ceilings, _] = &tables("x.json", &file)[..] else {
            panic!("rows and ceilings");
        };
        assert_eq!(
            rows.head[..4],
            ["backend", "migrator", "lanes", "folio_bytes"]
        );
        let column = rows.head.iter().position(|name| name == "of_none");
        let cells = column.map(|at| [&*rows.rows[0][at], &*rows.rows[1][at]]);
        assert_eq!(cells, Some(["–", "1.250"]));
        assert!(!rows.head.iter().any(|name| name.starts_with("runs_gbps")));
        assert_eq!(ceilings.head[..2], ["lanes", "page_bytes"]);
        let stalls = tables("x.json", &synthetic::file("stall"));
        assert!(stalls[0].head.contains(&"stall_ns/p999".to_owned()));
    }
}
