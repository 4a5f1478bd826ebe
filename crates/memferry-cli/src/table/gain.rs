// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of `bench promote --workload` as tables: for each workload what the modes gain, and what a timed machine counted.

use std::iter::once;

use super::promote::{self, spread};
use super::{Table, counted, distinct, groups};
use crate::schema::gain::GainRow;
use crate::units::about;

type Figure = promote::Figure<GainRow>;

/// The tables of a file, workload by workload.
pub fn tables(rows: &[GainRow]) -> Vec<Table> {
    let workloads = groups(rows, |row| row.workload.as_str()).into_iter();
    workloads
        .flat_map(|(workload, rows)| {
            let halves = rows.iter().any(|row| row.phases.len() > 1);
            let served = rows.iter().any(|row| row.latency_ns.is_some());
            once(gained(workload, &rows))
                .chain(halves.then(|| phases(workload, &rows)))
                .chain(served.then(|| latency(workload, &rows)))
                .chain(Some(cost(workload, &rows)))
        })
        .collect()
}

fn gained(workload: &str, rows: &[&GainRow]) -> Table {
    let columns: [(&str, Figure); 8] = [
        ("ns", |row| Some(row.ns_per_op)),
        ("last ns", |row| Some(row.ns_last)),
        ("gain", |row| row.gain_run),
        ("last gain", |row| row.gain_last),
        ("above fill", |row| row.above_fill_last),
        ("promoted", |row| Some(row.promoted_pages as f64)),
        ("churn", |row| row.churn),
        ("top share %", |row| Some(row.top_share * 100.0)),
    ];
    let title = format!("bench promote, {workload}: {}", what(rows));
    let caption = format!(
        "{}; mean ± standard deviation (± half the 95% confidence interval of the mean); ns: time of an operation, in the whole run and in \
         its last quarter; gain: (none - mode) / (none - oracle) of it; above fill: the same from fill on, last quarter; churn: pages \
         promoted for each that stayed ten seconds; top share: of the accesses{}",
        counted(distinct(rows, |row| row.run).len(), "run"),
        oracle(rows)
    );
    spread(title, &caption, rows, GainRow::case, &columns)
}

/// How the oracle ranked the pages.
fn oracle(rows: &[&GainRow]) -> String {
    let by = rows.iter().find_map(|row| row.oracle_by.as_ref());
    by.map_or_else(String::new, |by| {
        format!("; the oracle places pages by {by}")
    })
}

fn phases(workload: &str, rows: &[&GainRow]) -> Table {
    let columns: [(&str, Figure); 6] = [
        ("first ns", |row| Some(row.phases.first()?.ns_per_op)),
        ("gain", |row| row.phases.first()?.gain_run),
        ("last gain", |row| row.phases.first()?.gain_last),
        ("second ns", |row| Some(row.phases.get(1)?.ns_per_op)),
        ("gain", |row| row.phases.get(1)?.gain_run),
        ("last gain", |row| row.phases.get(1)?.gain_last),
    ];
    let title = format!("halves, {workload}");
    let caption =
        "time of an operation and gain in each half, and the gain in the half's last quarter";
    spread(title, caption, rows, GainRow::case, &columns)
}

fn latency(workload: &str, rows: &[&GainRow]) -> Table {
    let mut columns: Vec<(&str, Figure)> = vec![
        ("p50, us", |row| Some(row.latency_ns?.p50 as f64 / 1e3)),
        ("p99", |row| Some(row.latency_ns?.p99 as f64 / 1e3)),
        ("p99.9", |row| Some(row.latency_ns?.p999 as f64 / 1e3)),
        ("last p50", |row| {
            Some(row.latency_last_ns?.p50 as f64 / 1e3)
        }),
        ("last p99", |row| {
            Some(row.latency_last_ns?.p99 as f64 / 1e3)
        }),
        ("last p99.9", |row| {
            Some(row.latency_last_ns?.p999 as f64 / 1e3)
        }),
    ];
    let title = format!("latency, {workload}");
    if rows.iter().any(|row| row.operations_per_s.is_some()) {
        columns.insert(0, ("operations/s", |row| row.operations_per_s));
        let caption = "from a request to its answer, in the whole run and in its last quarter, with requests always under way";
        return spread(title, caption, rows, GainRow::case, &columns);
    }
    let caption = "from the time that an operation was to begin at to its end, in the whole run and in its last quarter";
    spread(title, caption, rows, GainRow::case, &columns)
}

fn cost(workload: &str, rows: &[&GainRow]) -> Table {
    let columns: [(&str, Figure); 8] = [
        ("0.8 after, s", |row| row.phases.first()?.until_80_s),
        ("pages", |row| {
            Some(row.phases.first()?.until_80_pages? as f64)
        }),
        ("in top", |row| Some(row.pages_in_top as f64)),
        ("demoted", |row| Some(row.demoted_pages as f64)),
        ("tracker, s", |row| Some(row.tracker_cpu_s)),
        ("migration, s", |row| row.migration_cpu_s),
        ("demotion, s", |row| Some(row.demotion_cpu_s)),
        ("in kernel, s", |row| Some(row.access_system_s)),
    ];
    let title = format!("what it took, {workload}");
    let caption = "0.8 after: until an operation was faster by 0.8 of what it was in the last quarter, and the pages promoted until \
                   then; in top: pages there at the end; CPU seconds of what finds hot pages, of kmigrated or the daemon, of kswapd, and of \
                   the accessing threads in the kernel; numab2 migrates there, and its tracker is that time";
    spread(title, caption, rows, GainRow::case, &columns)
}

/// What is accessed: `1 GiB of base pages, 1 thread, room for 384 MiB`.
fn what(rows: &[&GainRow]) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let memory = match row.memory.as_str() {
        "base" => "base pages",
        "thp" => "THPs",
        "shared" => "shared memory",
        "file" => "a mapped file",
        "program" => "a program's own memory",
        other => other,
    };
    let spread = if row.start == "spread" {
        ", begun spread"
    } else {
        ""
    };
    let skew = row.skew.map(|skew| format!("skew {skew}, "));
    let rate = row
        .rate
        .map(|rate| format!("{rate} operations/s of each, "));
    let room = rows.iter().map(|row| row.room_bytes).min().unwrap_or(0);
    format!(
        "{}{}{} of {memory}, {}, room for {}{spread}",
        skew.unwrap_or_default(),
        rate.unwrap_or_default(),
        about(row.bytes),
        counted(row.threads, "thread"),
        about(room)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::gains;

    #[test]
    fn each_workload_has_its_gains_and_one_with_two_halves_their_own() {
        let tables = tables(&gains());
        let titles: Vec<&str> = tables.iter().map(|of| of.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "bench promote, zipf: skew 0.99, 1 GiB of base pages, 1 thread, room for 384 MiB",
                "what it took, zipf",
                "bench promote, hotset: 1 GiB of base pages, 1 thread, room for 384 MiB",
                "halves, hotset",
                "what it took, hotset",
            ]
        );
        assert!(
            tables[0].caption.contains("by misses"),
            "{}",
            tables[0].caption
        );
        let numab2 = &tables[3].rows[1];
        assert_eq!(numab2[..2], ["numab2", "140.0"]);
        assert_eq!(numab2[5], "-0.08", "it lost in the second half");
    }
}
