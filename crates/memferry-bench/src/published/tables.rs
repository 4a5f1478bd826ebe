// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published tables by name: which rows of `data/` each one has, and what a machine needs to repeat it.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::{Figure, figures, rows};

/// A published table.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What `memferry bench reproduce` calls it.
    pub name: &'static str,
    /// The posting, as its rows begin.
    source: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// What it measures.
    pub experiment: Experiment,
}

/// What a table measures.
#[derive(Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Rows of `published.csv`: throughput.
    Throughput {
        /// As in the column `bench`.
        bench: &'static str,
        /// As in the column `migrator`.
        migrators: &'static [&'static str],
        /// As in the column `load`.
        load: &'static str,
        /// Bytes of a folio, where a source has one table for each size.
        folio: Option<u64>,
    },
    /// `published-share.csv`: the part of a migration that its copy is.
    Share,
    /// `published-compaction.csv`.
    Compaction,
    /// `published-promotion*.csv`: a scenario of `bench promote --like`.
    Promotion(&'static str),
}

/// The column `migrator` of Linux as it is.
pub const VANILLA: &str = "kernel";

const IDLE: &str = "idle";
const UNBOUND: &str = "busy, unbound workqueue";
const HIGH: &str = "busy, highpri workqueue";

const fn table_of(
    name: &'static str,
    source: &'static str,
    shows: &'static str,
    experiment: Experiment,
) -> Table {
    Table {
        name,
        source,
        shows,
        experiment,
    }
}

const fn throughput(
    name: &'static str,
    source: &'static str,
    shows: &'static str,
    bench: &'static str,
    migrators: &'static [&'static str],
) -> Table {
    let experiment = Experiment::Throughput {
        bench,
        migrators,
        load: IDLE,
        folio: None,
    };
    table_of(name, source, shows, experiment)
}

const fn yan(name: &'static str, shows: &'static str, folio_kib: u64, load: &'static str) -> Table {
    let experiment = Experiment::Throughput {
        bench: "count",
        migrators: &["kernel", "mtcopy"],
        load,
        folio: Some(folio_kib << 10),
    };
    table_of(name, "Zi Yan RFC 2025-01-03", shows, experiment)
}

const V2: &str = "RFC V2 2025-03-19";
const V3: &str = "RFC V3 2025-09-23";
const V4: &str = "RFC v4 2026-03-09";
const V6: &str = "pghot v6 2026-03-23";

/// All of them.
#[rustfmt::skip]
pub const TABLES: &[Table] = &[
    throughput("garg-v2-1a", V2, "mtcopy threads by folio size", "move", &["mtcopy"]),
    throughput("garg-v2-1b", V2, "dcbm channels by folio size", "move", &["dcbm"]),
    throughput("garg-v2-2a", V2, "2 MiB folios a move, mtcopy", "count", &["mtcopy"]),
    throughput("garg-v2-2b", V2, "2 MiB folios a move, dcbm", "count", &["dcbm"]),
    throughput("garg-v2-3a", V2, "threads spread over caches", "topology-spread", &["mtcopy"]),
    throughput("garg-v2-3b", V2, "threads that fill a cache first", "topology-fill", &["mtcopy"]),
    table_of("garg-v3-share", V3, "the copy's part of a migration", Experiment::Share),
    throughput("garg-v3-1a", V3, "Linux as it is, by folio size", "move", &["kernel"]),
    throughput("garg-v3-1b", V3, "mtcopy threads by folio size", "move", &["mtcopy"]),
    throughput("garg-v3-1c", V3, "dcbm channels by folio size", "move", &["dcbm"]),
    throughput("garg-v3-2", V3, "2 MiB folios a move", "count", &["kernel", "mtcopy", "dcbm"]),
    throughput("garg-v4-1a", V4, "Linux as it is, by folio size", "move", &["kernel"]),
    throughput("garg-v4-1b", V4, "dcbm channels by folio size", "move", &["dcbm"]),
    throughput("garg-v4-2", V4, "2 MiB folios a move", "count", &["kernel", "dcbm"]),
    table_of("garg-v4-compaction", V4, "compaction on an idle and on a busy CPU", Experiment::Compaction),
    yan("yan-64k", "64 KiB folios a move", 64, IDLE),
    yan("yan-2m", "2 MiB folios a move", 2048, IDLE),
    yan("yan-64k-busy", "64 KiB folios, all CPUs busy", 64, UNBOUND),
    yan("yan-2m-busy", "2 MiB folios, all CPUs busy", 2048, UNBOUND),
    yan("yan-64k-busy-high", "64 KiB folios, busy, high priority", 64, HIGH),
    yan("yan-2m-busy-high", "2 MiB folios, busy, high priority", 2048, HIGH),
    table_of("rao-v6-1", V6, "promotion into a top tier with room", Experiment::Promotion("pghot-v6-1")),
    table_of("rao-v6-2", V6, "promotion into a full top tier", Experiment::Promotion("pghot-v6-2")),
    table_of("rao-v6-rate", V6, "pages promoted over time, with room", Experiment::Promotion("pghot-v6-1")),
];

/// Reads a name.
///
/// # Errors
/// There is no such table; the message says where the names are.
pub fn table(name: &str) -> Result<&'static Table, String> {
    let found = TABLES.iter().find(|table| table.name == name);
    found.ok_or_else(|| "no such table; `memferry bench reproduce --list` has all names".to_owned())
}

impl Table {
    /// Its rows, if it is one of throughput.
    pub fn figures(&self) -> Vec<&'static Figure> {
        figures().iter().filter(|figure| self.has(figure)).collect()
    }

    fn has(&self, figure: &Figure) -> bool {
        let Experiment::Throughput {
            bench,
            migrators,
            load,
            folio,
        } = &self.experiment
        else {
            return false;
        };
        figure.source.starts_with(self.source)
            && (figure.bench == *bench && figure.load == *load)
            && migrators.contains(&figure.migrator.as_str())
            && folio.is_none_or(|folio| figure.folio_bytes == folio)
    }

    /// The published figure that one of its figures is a multiple of: Linux as it is, else one lane of the same migrator.
    pub fn baseline(&self, of: &Figure) -> Option<&'static Figure> {
        let alike = |other: &&Figure| {
            (&other.source, &other.bench, &other.load) == (&of.source, &of.bench, &of.load)
                && (other.folio_bytes, other.folios) == (of.folio_bytes, of.folios)
        };
        let mut same = figures().iter().filter(alike);
        (same.clone().find(|figure| figure.is_baseline()))
            .or_else(|| same.find(|figure| figure.lanes == 1 && figure.migrator == of.migrator))
    }

    /// Author, version and date of the posting.
    pub fn posting(&self) -> &'static str {
        match self.source {
            V2 => "Garg V2, 2025-03-19",
            V3 => "Garg V3, 2025-09-23",
            V4 => "Garg v4, 2026-03-09",
            V6 => "Rao v6, 2026-03-23",
            _ => "Yan RFC, 2025-01-03",
        }
    }

    /// The machine that was measured.
    pub fn system(&self) -> &'static str {
        match &self.experiment {
            Experiment::Throughput { .. } => (self.figures().first()).map_or("", |of| &of.system),
            Experiment::Share => shares().first().map_or("", |of| &of.system),
            Experiment::Compaction => compactions().first().map_or("", |of| &of.system),
            Experiment::Promotion(name) => {
                super::promotion::scenario(name).map_or("", |of| of.system.as_str())
            }
        }
    }

    /// What a machine needs for all of it: memory on each of two nodes, CPUs that copy, DMA channels, and more.
    pub fn needs(&self) -> String {
        let figures = self.figures();
        let mut needs = match &self.experiment {
            Experiment::Throughput { .. } => {
                let bytes = figures
                    .iter()
                    .map(|of| of.folio_bytes * of.folios.unwrap_or(0) as u64);
                let gib = bytes.max().unwrap_or(0).max(1 << 30).div_ceil(1 << 30);
                vec![format!("{gib} GiB")]
            }
            Experiment::Share => vec![
                "1 GiB".to_owned(),
                "the series or --backend user".to_owned(),
            ],
            Experiment::Compaction => vec!["2 nodes".to_owned()],
            Experiment::Promotion(_) => vec!["2 tiers, pghot".to_owned()],
        };
        for (migrator, lane) in [("mtcopy", "CPU"), ("dcbm", "DMA")] {
            let of = figures.iter().filter(|of| of.migrator == migrator);
            needs.extend(
                of.map(|of| of.lanes)
                    .max()
                    .map(|lanes| format!("{lanes} {lane}")),
            );
        }
        needs.join(", ")
    }
}

/// A row of `published-share.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The posting.
    pub source: String,
    /// The machine.
    pub system: String,
    /// Bytes of a folio.
    pub folio_bytes: u64,
    /// Folios of one move.
    pub folios: usize,
    /// The copy's part of the time, percent; may begin with `<`.
    pub copy_percent: String,
}

/// All rows of `published-share.csv`.
pub fn shares() -> &'static [Share] {
    static ROWS: OnceLock<Vec<Share>> = OnceLock::new();
    ROWS.get_or_init(|| rows(include_bytes!("../../data/published-share.csv")))
}

/// A row of `published-compaction.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// The posting.
    pub source: String,
    /// The machine.
    pub system: String,
    /// `vanilla` or `dcbm`.
    pub mode: String,
    /// `idle`, or `hog`: a process that never sleeps shares the CPU.
    pub load: String,
    /// Time of all allocations, milliseconds.
    pub wall_ms: f64,
    /// Base pages that compaction moved.
    pub pages_migrated: u64,
    /// Base pages that DMA copied.
    pub dma_pages: Option<u64>,
    /// How far the hog came meanwhile.
    pub hog_iterations: Option<u64>,
    /// Of the CPU's time, in user mode.
    pub user_percent: f64,
    /// In the kernel.
    pub sys_percent: f64,
    /// Without work.
    pub idle_percent: f64,
}

/// All rows of `published-compaction.csv`.
pub fn compactions() -> &'static [Compaction] {
    static ROWS: OnceLock<Vec<Compaction>> = OnceLock::new();
    ROWS.get_or_init(|| rows(include_bytes!("../../data/published-compaction.csv")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_row_belongs_to_one_name_and_every_name_has_rows() {
        for figure in figures() {
            let names: Vec<&str> = (TABLES.iter().filter(|table| table.has(figure)))
                .map(|table| table.name)
                .collect();
            assert_eq!(names.len(), 1, "{figure:?}: {names:?}");
        }
        for table in TABLES {
            match table.experiment {
                Experiment::Throughput { .. } => {
                    assert!(!table.figures().is_empty(), "{}", table.name)
                }
                Experiment::Share => assert!(shares().iter().all(|of| of.source == table.source)),
                Experiment::Compaction => {
                    assert!(
                        compactions()
                            .iter()
                            .all(|of| of.source.starts_with(table.source))
                    );
                }
                Experiment::Promotion(name) => {
                    let of = super::super::promotion::scenario(name).expect("known");
                    assert_eq!(of.source, table.source);
                    let timelines = of.timelines();
                    assert_eq!(table.name == "rao-v6-2", timelines.is_empty());
                }
            }
            assert!(!table.system().is_empty() && !table.needs().is_empty());
        }
        let lines = |text: &str| text.lines().count() - 1;
        assert_eq!(
            shares().len(),
            lines(include_str!("../../data/published-share.csv"))
        );
        assert_eq!(
            compactions().len(),
            lines(include_str!("../../data/published-compaction.csv"))
        );
    }

    #[test]
    fn ratios_are_to_linux_as_it_is_where_that_was_published() {
        let of = |name: &str, lanes: usize, folio: u64| {
            let table = table(name).expect("known");
            let rows = table.figures();
            let row = rows
                .iter()
                .find(|of| of.lanes == lanes && of.folio_bytes == folio);
            let baseline = table.baseline(row.expect("row")).expect("baseline");
            (
                baseline.migrator.as_str(),
                baseline.lanes,
                baseline.folio_bytes,
            )
        };
        assert_eq!(of("garg-v3-1b", 16, 4096), ("kernel", 1, 4096));
        assert_eq!(of("garg-v2-1b", 16, 2 << 20), ("dcbm", 1, 2 << 20));
        assert_eq!(of("yan-2m-busy", 8, 2 << 20), ("kernel", 1, 2 << 20));
    }
}
