// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the time of a page goes: the steps of `bench move` by folio size, destination and lanes, and of the kernel's calls by
//! its tracepoints.

use super::{Table, groups, or_dash, series, sized};
use crate::schema::{KernelSteps, MoveRow, Steps};
use crate::units::{long, time};

/// What a figure is for: bytes.
const UNIT: f64 = 4096.0;

/// A table per destination and folio size, with a column for each migrator and its lanes. Rows without steps have none.
pub fn tables(rows: &[MoveRow]) -> Vec<Table> {
    let rows = rows.iter().filter(|row| row.steps.is_some());
    let destinations = groups(rows, |row| row.destination.as_str()).into_iter();
    destinations
        .flat_map(|(destination, rows)| {
            let sizes = groups(rows, |row| row.folio_bytes).into_iter();
            sizes.map(move |(size, rows)| {
                let size = long(size as u64);
                let title = format!("anatomy, folios of {size}, destination {destination}");
                one(title, &rows)
            })
        })
        .collect()
}

/// The kernel's calls, and what a batch takes beside the lanes' copying; none where no row has steps of the kernel.
pub fn kernel(rows: &[MoveRow]) -> Option<Table> {
    let row = |row: &MoveRow| {
        let of: KernelSteps = row.kernel_steps?;
        // The traced run has the bytes of a counted one.
        let units = row.bytes as f64 / UNIT;
        let size = sized(row.folios, row.folio_bytes as u64);
        let mut cells = vec![format!("{size}, {}", series(row))];
        cells.extend(of.in_order().map(|ns| figure(ns as f64 / units)));
        let a_batch = |ns: u64| ns.checked_div(of.batches).map(time);
        cells.push(or_dash(a_batch(of.copy_ns)));
        // The kernel's own copy has no lanes.
        let beside = (of.lane_ns > 0).then(|| of.copy_ns.saturating_sub(of.lane_ns));
        cells.push(or_dash(beside.and_then(a_batch)));
        Some(cells)
    };
    let rows: Vec<Vec<String>> = rows.iter().filter_map(row).collect();
    let head = [
        "folios",
        "unmap",
        "flush",
        "copy",
        "remap",
        "plain",
        "rest",
        "a batch",
        "beside lanes",
    ];
    let caption = "nanoseconds for each 4 KiB that moved, by tracepoints in a run that does not count; plain: flush, copy and remap by \
                   Linux itself. The copy of a batch, and what of it is beside its longest lane: waking lanes, claiming DMA channels, \
                   collecting results";
    (!rows.is_empty()).then(|| Table::new("anatomy of the kernel's calls", caption, &head, rows))
}

fn one(title: String, rows: &[&MoveRow]) -> Table {
    let mut head = vec!["step".to_owned()];
    head.extend(rows.iter().map(|row| series(row)));
    let units = |row: &MoveRow| row.bytes as f64 / UNIT;
    let mut body = Vec::new();
    let steps = |row: &MoveRow| row.steps.unwrap_or_default();
    for (index, (name, _)) in Steps::default().in_order().iter().enumerate() {
        let ns = |row: &MoveRow| steps(row).in_order()[index].1;
        if rows.iter().all(|row| ns(row) == 0) {
            continue;
        }
        let mut line = vec![(*name).to_owned()];
        line.extend(rows.iter().map(|row| figure(ns(row) as f64 / units(row))));
        body.push(line);
    }
    let mut sum = |name: &str, cell: &dyn Fn(&MoveRow) -> String| {
        let mut line = vec![name.to_owned()];
        line.extend(rows.iter().map(|row| cell(row)));
        body.push(line);
    };
    sum("all steps", &|row| {
        figure(steps(row).all_ns() as f64 / units(row))
    });
    // Lanes with unequal work, or one that the others wait for, show here.
    for (name, of) in [
        ("a lane's work", worked as fn(&Steps) -> u64),
        ("a lane's wait", |steps| steps.wait_ns),
    ] {
        sum(name, &|row| {
            between(row.lane_steps.iter().map(of), units(row))
        });
    }
    sum("EAGAIN", &|row| steps(row).eagains.to_string());
    sum("other retries", &|row| steps(row).retries.to_string());
    sum("GB/s", &|row| format!("{:.1}", row.gbps));
    sum("GB/s without waiting", &|row| {
        format!("{:.1}", without_waiting(row))
    });
    Table {
        title,
        caption: "nanoseconds of all lanes together for each 4 KiB that moved, mean of the runs; set up counts once"
            .to_owned(),
        head,
        rows: body,
    }
}

/// What the lanes would reach if none ever waited for another and all had equal work.
fn without_waiting(row: &MoveRow) -> f64 {
    let steps = row.steps.unwrap_or_default();
    let ns = steps.set_up_ns as f64 + worked(&steps) as f64 / row.lanes as f64;
    row.bytes as f64 / ns.max(1.0)
}

/// Time of lanes that did something.
fn worked(steps: &Steps) -> u64 {
    steps.all_ns() - steps.set_up_ns - steps.wait_ns
}

/// Least and most of the lanes, `120 to 140`; one figure where there is one lane.
fn between(ns: impl Iterator<Item = u64> + Clone, units: f64) -> String {
    let cell = |ns: Option<u64>| ns.map_or_else(String::new, |ns| figure(ns as f64 / units));
    match (cell(ns.clone().min()), cell(ns.max())) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    }
}

fn figure(ns: f64) -> String {
    match ns {
        ns if ns >= 99.5 => format!("{ns:.0}"),
        ns => format!("{ns:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_batch_of_the_kernel_has_what_its_lanes_do_not_take() {
        let mut file = synthetic::file("count");
        let rows = synthetic::move_rows(&mut file);
        assert!(kernel(rows).is_none(), "rows without steps");
        let pages = rows[0].bytes / 4096;
        rows[0].kernel_steps = Some(KernelSteps {
            unmap_ns: 200 * pages,
            copy_ns: 100 * pages,
            lane_ns: 60 * pages,
            batches: pages / 32,
            ..KernelSteps::default()
        });
        let table = kernel(rows).expect("steps");
        let [row] = &table.rows[..] else {
            panic!("{:?}", table.rows);
        };
        assert_eq!((row[1].as_str(), row[3].as_str()), ("200", "100"));
        assert_eq!(row[7..], ["3.2 µs", "1.3 µs"]);
    }

    #[test]
    fn steps_are_told_for_each_page_and_waiting_is_taken_off() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        assert!(tables(rows).is_empty(), "rows without steps");
        rows.retain(|row| row.lanes == 2 && row.folio_bytes == 4096);
        let row = &mut rows[0];
        let pages = row.bytes / 4096;
        row.steps = Some(Steps {
            set_up_ns: 100 * pages,
            copy_ns: 400 * pages,
            wait_ns: 600 * pages,
            eagains: 2,
            retries: 3,
            ..Steps::default()
        });
        row.lane_steps = [100, 300]
            .map(|ns| Steps {
                copy_ns: ns * pages,
                wait_ns: (400 - ns) * pages,
                ..Steps::default()
            })
            .to_vec();
        let tables = tables(rows);
        assert_eq!(tables.len(), 1);
        assert_eq!(
            tables[0].title,
            "anatomy, folios of 4 KiB, destination warm"
        );
        let line = |name: &str| {
            let found = tables[0].rows.iter().find(|row| row[0] == name);
            found.map(|row| row[1].clone())
        };
        assert_eq!(line("copy").as_deref(), Some("400"));
        assert_eq!(line("all steps").as_deref(), Some("1100"));
        assert_eq!(line("EAGAIN").as_deref(), Some("2"));
        assert_eq!(line("other retries").as_deref(), Some("3"));
        assert_eq!(line("a lane's work").as_deref(), Some("100 to 300"));
        assert_eq!(line("a lane's wait").as_deref(), Some("100 to 300"));
        // 100 ns of setting up, and 400 of copying on two lanes.
        assert_eq!(line("GB/s without waiting").as_deref(), Some("13.7"));
        assert_eq!(line("fill"), None);
    }
}
