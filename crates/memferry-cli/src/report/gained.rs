// SPDX-License-Identifier: MIT OR Apache-2.0
//! The charts of `bench promote --workload`: the time of an operation as the run goes on, one line per mode, the mean of its runs.

use super::promoted::mean;
use crate::chart::{Chart, STYLES, Series, Style, X};
use crate::schema::gain::GainRow;
use crate::spread::groups;

/// The charts of a file, workload by workload.
pub fn charts(rows: &[GainRow]) -> Vec<Chart> {
    let workloads = groups(rows, |row| row.workload.as_str()).into_iter();
    workloads
        .map(|(workload, rows)| chart(workload, &rows))
        .collect()
}

fn chart(workload: &str, rows: &[&GainRow]) -> Chart {
    let cases = groups(rows.iter().copied(), |row| row.case());
    let series = cases.iter().take(STYLES).enumerate();
    let series = series.map(|(index, (case, rows))| {
        let line = |row: &&GainRow| row.timeline.iter().map(|of| (of.0, of.1)).collect();
        let runs: Vec<Vec<(f64, f64)>> = rows.iter().map(line).collect();
        let points = mean(&runs, case, "ns");
        Series::new(case.clone(), Style::Number(index), points)
    });
    let left_out = match cases.len().saturating_sub(STYLES) {
        0 => String::new(),
        more => format!(" {more} more modes are only in the table."),
    };
    Chart {
        title: format!("Time of an operation, {workload}"),
        note: format!(
            "Lower is better. Mean of the runs; bars are one standard deviation.{left_out}"
        ),
        ..Chart::new((X::SECONDS, "seconds"), "ns", series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::gains;

    #[test]
    fn each_workload_has_a_line_of_each_mode() {
        let charts = charts(&gains());
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Time of an operation, zipf", "Time of an operation, hotset"]
        );
        let names: Vec<&str> = charts[0].series.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names[..2], ["none", "dram"]);
        let point = &charts[1].series[0].points[3];
        assert!((point.y - 200.0).abs() < 1e-9, "{}", point.y);
    }
}
