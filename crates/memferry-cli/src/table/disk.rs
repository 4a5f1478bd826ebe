// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves and a disk lose beside each other.

use super::{Table, or_dash, series, sized, throughput};
use crate::schema::MoveRow;

/// The table; none where no run was beside a disk.
pub fn table(rows: &[MoveRow]) -> Option<Table> {
    let percent = |part: f64| format!("{:.0}", part * 100.0);
    let line = |row: &MoveRow| {
        let of = row.beside_disk.as_ref()?;
        let by = of
            .copied_bytes
            .map(|bytes| bytes as f64 / of.verified_bytes as f64);
        Some(vec![
            format!(
                "{}, {}",
                sized(row.folios, row.folio_bytes as u64),
                series(row)
            ),
            throughput(row.gbps, row.gbps_sd),
            throughput(of.gbps, of.gbps_sd),
            percent(of.lost),
            or_dash(by.map(percent)),
            format!("{:.3}", of.disk_alone_gbps),
            format!("{:.3}", of.disk_gbps),
            percent(of.disk_lost),
        ])
    };
    let rows = Vec::from_iter(rows.iter().filter_map(line));
    let head = [
        "folios",
        "moves alone",
        "beside it",
        "lost, %",
        "by it, %",
        "disk alone",
        "beside moves",
        "lost, %",
    ];
    let caption = "GB/s; each run is repeated beside a thread that writes blocks to the disk and reads them back past the page cache; by it: bytes that \
                   the named migrator copied meanwhile";
    (!rows.is_empty()).then(|| Table::new("beside a disk", caption, &head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::disk::BesideDisk;

    #[test]
    fn both_losses_and_who_copied_are_told() {
        let row = MoveRow {
            backend: "kernel".to_owned(),
            migrator: "dcbm".to_owned(),
            lanes: 2,
            folio_bytes: 4096,
            gbps: 4.0,
            beside_disk: Some(BesideDisk {
                gbps: 3.0,
                lost: 0.25,
                copied_bytes: Some(100),
                verified_bytes: 100,
                disk_alone_gbps: 1.0,
                disk_gbps: 0.5,
                disk_lost: 0.5,
                ..BesideDisk::default()
            }),
            ..MoveRow::default()
        };
        assert!(table(&[MoveRow::default()]).is_none());
        let found = table(&[row]).expect("table");
        let expected = [
            "4K, dcbm, 2 lanes",
            "4.0",
            "3.0",
            "25",
            "100",
            "1.000",
            "0.500",
            "50",
        ];
        assert_eq!(found.rows, [expected]);
    }
}
