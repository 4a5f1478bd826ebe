// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of `cargo xtask timed --report`: how long an operation takes by workload and mode, and what of the best placement's
//! gain a mode brings, over the seeds. Running the cells is for `matrix`.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::Value;

/// 0.975 quantiles of Student's t for 1 to 20 degrees of freedom (any table, such as Abramowitz and Stegun 26.10).
const T_975: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

/// Values of rows by their path, in the order of the table's columns.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("ns per operation", &["ns_per_op"]),
    ("in the last quarter", &["ns_last", "ns_per_op_last"]),
    ("gain", &["gain_run"]),
    ("gain in the last quarter", &["gain_last"]),
    ("operations/s", &["operations_per_s"]),
    ("p50, ns", &["latency_ns/p50"]),
    ("p99, ns", &["latency_ns/p99"]),
];

/// What the runs of a case have for each column.
type Samples = [Vec<f64>; COLUMNS.len()];

/// The rows of all cells of a matrix.
#[derive(Default)]
pub struct Gains {
    /// By the model's parameters, workload, and mode.
    cases: BTreeMap<(String, String, String), Samples>,
}

impl Gains {
    /// Takes in the rows of the JSON file of a cell with these `parameters`.
    pub fn add(&mut self, parameters: &str, file: &Value) {
        for row in rows(file) {
            let word = |name: &str| row.get(name).and_then(Value::as_str);
            let (Some(workload), Some(mode)) = (word("workload"), word("mode")) else {
                continue;
            };
            let words = [Some(mode), word("source"), word("record")];
            let mode: Vec<_> = words.into_iter().flatten().collect();
            let case = (parameters.to_owned(), workload.to_owned(), mode.join(" "));
            let samples = self.cases.entry(case).or_default();
            for (column, (_, names)) in samples.iter_mut().zip(COLUMNS) {
                let value = names
                    .iter()
                    .find_map(|name| row.pointer(&format!("/{name}"))?.as_f64());
                column.extend(value);
            }
        }
    }

    /// Means, and where there are several runs the 95% confidence of them.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        let header = ["parameters", "workload", "mode", "runs"].into_iter();
        table.set_header(header.chain(COLUMNS.map(|column| column.0)));
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for ((parameters, workload, mode), samples) in &self.cases {
            let [ns, ns_last, gain, gain_last, rate, p50, p99] = samples;
            table.add_row([
                parameters.clone(),
                workload.clone(),
                mode.clone(),
                ns.len().to_string(),
                mean(ns, 1),
                mean(ns_last, 1),
                mean(gain, 2),
                mean(gain_last, 2),
                mean(rate, 0),
                mean(p50, 0),
                mean(p99, 0),
            ]);
        }
        table
    }
}

/// The objects that have a workload and a mode, wherever they are in `file`.
fn rows(file: &Value) -> Vec<&Value> {
    match file {
        Value::Array(values) => values.iter().flat_map(rows).collect(),
        Value::Object(fields) if fields.contains_key("workload") && fields.contains_key("mode") => {
            vec![file]
        }
        Value::Object(fields) => fields.values().flat_map(rows).collect(),
        _ => Vec::new(),
    }
}

/// The mean of `values` with so many `digits`, and behind it the 95% confidence if they are several.
fn mean(values: &[f64], digits: usize) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    match values.len() {
        0 => "-".to_owned(),
        1 => format!("{mean:.digits$}"),
        several => {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let t = T_975.get(several - 2).copied().unwrap_or(1.96);
            let half = t * (squares / (count - 1.0) / count).sqrt();
            format!("{mean:.digits$} ± {half:.digits$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_found_wherever_they_are_and_whatever_they_lack() {
        let mut gains = Gains::default();
        let row = |ns: f64| json!({"workload": "zipf", "mode": "pghot", "source": "pgtscan", "ns_per_op": ns, "gain_run": 0.5});
        gains.add("as they are", &json!({"result": {"rows": [row(1.0), 7]}}));
        gains.add(
            "as they are",
            &json!([row(3.0), {"workload": "zipf", "mode": "none"}]),
        );
        let lines: Vec<_> = gains.table().lines().collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[2].contains("none") && lines[2].contains('-'),
            "{lines:?}"
        );
        assert!(lines[3].contains("pghot pgtscan"), "{lines:?}");
        // Two values 1 and 3: sd is the root of 2, t is 12.706.
        assert!(lines[3].contains("2.0 ± 12.7"), "{lines:?}");
        assert!(lines[3].contains("0.50 ± 0.00"), "{lines:?}");
    }
}
