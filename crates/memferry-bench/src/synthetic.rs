// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic benchmark files for the tests, plausible, measured by nobody, and invented machines.

pub use memferry_linux::invented::{MIGRATION, change, listed, machine, migrators, put};

use crate::cpu_time::CpuTicks;
use crate::promote::like::like;
use crate::published::promotion::{Scale, scenario};
use crate::schema::cache::CacheRow;
use crate::schema::compaction::CompactionRow;
use crate::schema::gain::{GainRow, Phase, Truth};
use crate::schema::promote::{Like, PromoteRow};
use crate::schema::reproduced::{
    Cell, Compacted, CompactionCell, LanesCell, LeftOut, Measured, Reproduced, ShareCell,
    StepPercents,
};
use crate::schema::{
    BenchFile, Ceiling, Envelope, FromTo, Host, MoveRow, Quantiles, Rows, StallRow,
};

/// All names of [`file`].
pub const FILES: [&str; 8] = [
    "move",
    "count",
    "stall",
    "cache",
    "promote",
    "gain",
    "compaction",
    "reproduce",
];

/// The synthetic file of a benchmark.
pub fn file(bench: &str) -> BenchFile {
    let ceiling = |page_bytes, lanes, gbps, gbps_sd| Ceiling {
        lanes,
        page_bytes,
        gbps,
        gbps_sd,
        runs_gbps: Vec::new(),
    };
    let base = [ceiling(4096, 1, 12.8, 0.1), ceiling(4096, 2, 24.5, 0.2)];
    let huge = [
        ceiling(2 << 20, 1, 13.1, 0.1),
        ceiling(2 << 20, 2, 25.2, 0.1),
    ];
    let (rows, ceiling, like) = match bench {
        "move" => (Rows::Move(moves()), [base, huge].concat(), None),
        "count" => (Rows::Count(counts()), huge.to_vec(), None),
        "cache" => (Rows::Cache(caches()), Vec::new(), None),
        "compaction" => (Rows::Compaction(compactions()), Vec::new(), None),
        "reproduce" => (Rows::Move(moves()), [base, huge].concat(), None),
        "promote" => {
            let rows = promotions();
            let like = liked(&rows);
            (Rows::Promote(rows), Vec::new(), Some(like))
        }
        "gain" => (Rows::Gain(gains()), Vec::new(), None),
        _ => (Rows::Stall(stalls()), Vec::new(), None),
    };
    let tiers = ["promote", "gain"].contains(&bench);
    let mut notes = vec!["Synthetic: these figures were invented for the tests.".to_owned()];
    if bench == "count" {
        let left_out = "2048 folios did not fit in memory and were left out.";
        notes.insert(0, left_out.to_owned());
    }
    let mut file = BenchFile {
        schema: rows.schema().to_owned(),
        envelope: Envelope {
            version: "0.0.0-synthetic".to_owned(),
            date: "2026-11-21T12:00:00Z".to_owned(),
            arguments: vec!["bench".to_owned(), bench.to_owned()],
            complete: true,
            ..Envelope::default()
        }
        .with(
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never",
        ),
        host: Host {
            cpu: "Synthetic CPU (invented for tests)".to_owned(),
            cpus: 2,
            kernel: "6.12.0-synthetic".to_owned(),
            nodes: if tiers { 3 } else { 1 },
            page_size: 4096,
            thp_bytes: 2 << 20,
            memory_bytes: 8_385_540_096,
            hypervisor: Some("KVM".to_owned()),
            emulated: false,
            copy: (!tiers).then(|| "nt64x2".to_owned()),
        },
        ceiling,
        rows,
        like,
        reproduces: (bench == "reproduce").then(reproduced),
        notes,
    };
    let mut rows = std::mem::replace(&mut file.rows, Rows::Stall(Vec::new()));
    if let Rows::Move(rows) | Rows::Count(rows) = &mut rows {
        for row in rows {
            let ceiling = file.ceiling_of(row.lanes, row.folio_bytes);
            row.of_ceiling = row.gbps / ceiling.expect("ceiling").gbps;
        }
    }
    file.rows = rows;
    file
}

/// The rows of a file of moves.
pub fn move_rows(file: &mut BenchFile) -> &mut Vec<MoveRow> {
    match &mut file.rows {
        Rows::Move(rows) | Rows::Count(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// The rows of a file of promotion.
pub fn promote_rows(file: &mut BenchFile) -> &mut Vec<PromoteRow> {
    match &mut file.rows {
        Rows::Promote(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// The text of [`file`].
pub fn text(bench: &str) -> String {
    serde_json::to_string_pretty(&file(bench)).expect("JSON")
}

/// A row of one file size by the throughput of its runs; its share of the ceiling comes later.
fn row(destination: &str, (migrator, lanes): (&str, usize), bytes: usize, gbps: f64) -> MoveRow {
    MoveRow {
        backend: "user".to_owned(),
        migrator: migrator.to_owned(),
        lanes,
        folio_bytes: 2 << 20,
        destination: destination.to_owned(),
        bytes: bytes as u64,
        runs: 5,
        gbps,
        gbps_sd: gbps / 64.0,
        verified_bytes: 5 * bytes as u64,
        ..MoveRow::default()
    }
}

const PER_FOLIO: (&str, usize) = ("per-folio", 1);
const BATCH: (&str, usize) = ("batch", 1);
const ONE_LANE: (&str, usize) = ("mtcopy", 1);
const TWO_LANES: (&str, usize) = ("mtcopy", 2);

/// GB/s of folios of 4K, 16K, 64K, 128K … 2M.
fn moves() -> Vec<MoveRow> {
    #[rustfmt::skip]
    let lines = [
        ("warm", PER_FOLIO, [1.41, 2.51, 3.96, 4.71, 5.42, 6.04, 6.55, 6.95]),
        ("warm", BATCH, [11.02, 11.81, 12.22, 12.34, 12.42, 12.48, 12.51, 12.57]),
        ("warm", ONE_LANE, [11.45, 12.04, 12.34, 12.42, 12.48, 12.52, 12.55, 12.59]),
        ("warm", TWO_LANES, [20.2, 22.13, 23.15, 23.45, 23.67, 23.81, 23.91, 24.05]),
        ("cold", PER_FOLIO, [1.11, 1.89, 2.82, 3.27, 3.66, 3.99, 4.26, 4.46]),
        ("cold", BATCH, [5.4, 6.47, 7.12, 7.33, 7.47, 7.58, 7.65, 7.75]),
        ("cold", ONE_LANE, [5.94, 6.82, 7.32, 7.47, 7.57, 7.65, 7.7, 7.77]),
        ("cold", TWO_LANES, [9.34, 11.68, 13.23, 13.73, 14.1, 14.36, 14.55, 14.8]),
    ];
    let sizes = [4, 16, 64, 128, 256, 512, 1024, 2048];
    let line = |(destination, who, figures): (&'static str, _, [f64; 8])| {
        sizes
            .into_iter()
            .zip(figures)
            .map(move |(kib, gbps)| MoveRow {
                folio_bytes: kib << 10,
                extra_rss_bytes: Some(24 << 20),
                ..row(destination, who, 1 << 30, gbps)
            })
    };
    lines.into_iter().flat_map(line).collect()
}

/// GB/s of 1, 8, 16, 32, 64, 256 and 512 folios.
fn counts() -> Vec<MoveRow> {
    #[rustfmt::skip]
    let lines = [
        ("warm", PER_FOLIO, [6.91, 6.94, 6.94, 6.95, 6.95, 6.95, 6.95]),
        ("warm", BATCH, [8.89, 11.95, 12.25, 12.41, 12.49, 12.55, 12.56]),
        ("warm", ONE_LANE, [8.9, 11.97, 12.27, 12.42, 12.5, 12.57, 12.58]),
        ("warm", TWO_LANES, [13.43, 21.89, 22.92, 23.47, 23.76, 23.98, 24.01]),
        ("cold", PER_FOLIO, [4.44, 4.46, 4.46, 4.46, 4.46, 4.46, 4.46]),
        ("cold", BATCH, [6.18, 7.51, 7.63, 7.69, 7.72, 7.74, 7.75]),
        ("cold", ONE_LANE, [6.19, 7.53, 7.65, 7.71, 7.74, 7.77, 7.77]),
        ("cold", TWO_LANES, [9.96, 13.96, 14.37, 14.58, 14.69, 14.78, 14.79]),
    ];
    let line = |(destination, who, figures): (&'static str, _, [f64; 7])| {
        let counts = [1, 8, 16, 32, 64, 256, 512].into_iter();
        counts.zip(figures).map(move |(count, gbps)| MoveRow {
            folios: Some(count),
            ..row(destination, who, count << 21, gbps)
        })
    };
    lines.into_iter().flat_map(line).collect()
}

/// Batches of 64K to 2M.
fn stalls() -> Vec<StallRow> {
    let lines = [
        (4.95, [9449, 52_588, 219_657, 3_071_178]),
        (6.51, [13_207, 61_930, 231_442, 2_914_003]),
        (7.78, [19_797, 75_353, 248_631, 2_776_492]),
        (8.55, [34_120, 108_904, 291_077, 2_502_310]),
        (9.07, [61_188, 166_414, 364_526, 2_425_828]),
        (9.31, [117_630, 296_310, 540_871, 2_810_455]),
    ];
    let line = |(power, (gbps, stall)): (usize, (f64, [u64; 4]))| {
        let [p50, p99, p999, max] = stall;
        StallRow {
            backend: "user".to_owned(),
            migrator: "mtcopy".to_owned(),
            batch_bytes: (64 << 10) << power,
            folio_bytes: 4096,
            lanes: 1,
            threads: 1,
            gbps,
            stall_ns: Quantiles {
                p50,
                p99,
                p999,
                max,
            },
            access_ns: Quantiles {
                p50: 82,
                p99: 310,
                p999: 6614,
                max,
            },
            accesses: 75_006_470,
            stalled: 193_430,
            verified_bytes: 256 << 20,
            ..StallRow::default()
        }
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// Through the cache and past it.
fn caches() -> Vec<CacheRow> {
    let row = |(copy, bypasses_cache, gbps, lost): (&str, _, f64, f64)| CacheRow {
        backend: "user".to_owned(),
        migrator: "mtcopy".to_owned(),
        copy: copy.to_owned(),
        bypasses_cache,
        lanes: 1,
        folio_bytes: 4096,
        bytes: 256 << 20,
        working_set_bytes: 8 << 20,
        cache_bytes: Some(32 << 20),
        cpu: 1,
        nodes: None,
        runs: 2,
        gbps,
        gbps_sd: gbps / 64.0,
        lost,
        lost_sd: 0.01,
        runs_lost: vec![lost - 0.01, lost + 0.01],
        lost_copying: lost / 2.0,
        alone_reads_per_s: 1.5e8,
        verified_bytes: 512 << 20,
    };
    let rows = [("memcpy", false, 10.5, 0.4), ("nt64x2", true, 11.5, 0.125)];
    rows.map(row).to_vec()
}

/// Without a migrator and with one, beside a thread that never sleeps.
fn compactions() -> Vec<CompactionRow> {
    let row = |(migrator, wall_ms, pages): (&str, f64, Option<u64>)| CompactionRow {
        migrator: migrator.to_owned(),
        load: "hog".to_owned(),
        gather: None,
        node: 2,
        cpu: 1,
        bytes: 512 << 20,
        runs: 2,
        wall_ms,
        wall_ms_sd: 2.0,
        runs_wall_ms: vec![wall_ms - 2.0, wall_ms + 2.0],
        pages_migrated: 65_536,
        own_pages: Some(64_000),
        migrator_pages: pages,
        lanes_used: pages.map(|_| 2.0),
        mean_batch_bytes: pages.map(|_| 1 << 20),
        hog_iterations: Some(50_000_000),
        cpu_ticks: CpuTicks {
            user: 40,
            system: 58,
            idle: 2,
        },
        verified_bytes: 512 << 20,
    };
    let rows = [("none", 400.0, None), ("dcbm", 250.0, Some(60_000))];
    rows.map(row).to_vec()
}

/// A table with a cell of each kind.
fn reproduced() -> Reproduced {
    let measured = |gbps: f64, times: f64| Measured {
        gbps,
        gbps_sd: Some(0.1),
        of_baseline: Some(times),
    };
    let cell = |lanes, published, ours| Cell {
        migrator: "mtcopy".to_owned(),
        lanes,
        folio_bytes: 4096,
        folios: Some(512),
        published,
        ours,
    };
    let compacted = |wall_ms: f64| Compacted {
        wall_ms,
        of_baseline: Some(400.0 / wall_ms),
        pages_migrated: 65_536,
        by_migrator: Some(0.9),
        hog_per_s: Some(2e8),
        cpu_percent: [40.0, 58.0, 2.0],
    };
    Reproduced {
        name: "synthetic-1".to_owned(),
        posting: "nobody's".to_owned(),
        system: "a machine invented for tests".to_owned(),
        shows: "threads".to_owned(),
        scale: 0.5,
        line: "move --folio 4K".to_owned(),
        baseline: Some("Linux as it is".to_owned()),
        cells: vec![
            cell(2, measured(4.0, 2.0), Some(measured(20.0, 2.5))),
            cell(16, measured(20.0, 10.0), None),
        ],
        shares: vec![ShareCell {
            folio_bytes: 4096,
            folios: 512,
            published_percent: "38-40".to_owned(),
            ours_percent: Some(35.0),
            why_not: None,
            steps: vec![StepPercents {
                migrator: "mtcopy".to_owned(),
                unmap: 30.0,
                flush: Some(5.0),
                copy: Some(35.0),
                remap: Some(20.0),
                plain: None,
                rest: 10.0,
            }],
            lanes: vec![LanesCell {
                migrator: "mtcopy".to_owned(),
                lanes: 2,
                predicted: 1.25,
                measured: 1.2,
            }],
        }],
        compactions: vec![CompactionCell {
            mode: "dcbm".to_owned(),
            load: "hog".to_owned(),
            published: compacted(200.0),
            ours: Some(compacted(250.0)),
        }],
        left_out: vec![LeftOut {
            what: "mtcopy, 16 lanes".to_owned(),
            why: "this machine has 2 CPUs".to_owned(),
        }],
    }
}

/// Two runs of three modes in both scenarios. The second run takes a little longer.
pub fn promotions() -> Vec<PromoteRow> {
    let mut rows = Vec::new();
    for run in 1..=2 {
        for scenario in 1..=2 {
            rows.extend(["none", "numab2", "pghot"].map(|mode| {
                let mut row = promotion(scenario, mode);
                row.run = run;
                if run == 2 {
                    row.seconds += 0.2;
                    let part = if mode == "pghot" { 0.05 } else { 0.2 };
                    row.hot_in_top_95_s = row.hot_in_top_95_s.map(|at| at + part);
                }
                row
            }));
        }
    }
    rows
}

/// The first run of a mode.
fn promotion(scenario: u32, mode: &str) -> PromoteRow {
    let full = scenario == 2;
    let (regions, region_bytes, fill_bytes) = match full {
        false => (1, 64 << 20, 0),
        true => (4, 16 << 20, 1_717_986_918),
    };
    let none = PromoteRow {
        scenario,
        mode: mode.to_owned(),
        run: 1,
        seconds: 10.0,
        migration_cpu_s: Some(0.0),
        access_system_s: 0.01,
        threads: 1,
        accesses: 40_000_000,
        region_bytes,
        regions,
        fill_bytes,
        nodes: FromTo { from: 2, to: 0 },
        verified_bytes: 64 << 20 | fill_bytes,
        timeline: vec![(0.0, 0), (5.0, 0), (10.0, 0)],
        hot_timeline: vec![(0.0, 0.0), (5.0, 0.0), (10.0, 0.0)],
        ..PromoteRow::default()
    };
    let promoted = |all: u64, hot: u64| PromoteRow {
        promoted_pages: all,
        promoted_hot_pages: hot,
        precision: Some(hot as f64 / all as f64),
        counters: [("pgpromote_success".to_owned(), all)].into(),
        ..none.clone()
    };
    let numab2 = |row: PromoteRow| PromoteRow {
        migration_cpu_s: None,
        access_system_s: row.tracker_cpu_s,
        ..row
    };
    let pghot = |row: PromoteRow| PromoteRow {
        source: Some("pgtscan".to_owned()),
        record: Some("default".to_owned()),
        access_system_s: 0.02,
        ..row
    };
    match (mode, full) {
        ("numab2", false) => numab2(PromoteRow {
            seconds: 9.1,
            hot_in_top_95_s: Some(2.9),
            top_share: 0.75,
            recall: 1.0,
            tracker_cpu_s: 0.9,
            hint_faults: 16_384,
            timeline: vec![(0.0, 0), (2.0, 4000), (3.0, 16_384), (9.0, 16_384)],
            hot_timeline: vec![(0.0, 0.0), (2.0, 0.25), (3.0, 1.0), (9.0, 1.0)],
            ..promoted(16_384, 16_384)
        }),
        ("numab2", true) => numab2(PromoteRow {
            seconds: 10.2,
            demoted_pages: 2900,
            top_share: 0.04,
            recall: 0.09,
            tracker_cpu_s: 0.6,
            demotion_cpu_s: 0.1,
            hint_faults: 9000,
            timeline: vec![(0.0, 0), (5.0, 1000), (10.0, 3000)],
            hot_timeline: vec![(0.0, 0.0), (5.0, 0.1), (10.0, 0.05)],
            ..promoted(3000, 1500)
        }),
        ("pghot", false) => pghot(PromoteRow {
            seconds: 8.6,
            hot_in_top_95_s: Some(0.6),
            top_share: 0.95,
            recall: 1.0,
            tracker_cpu_s: 0.3,
            migration_cpu_s: Some(0.2),
            timeline: vec![(0.0, 0), (0.5, 12_000), (1.0, 16_384), (8.5, 16_384)],
            hot_timeline: vec![(0.0, 0.0), (0.5, 0.73), (1.0, 1.0), (8.5, 1.0)],
            ..promoted(16_384, 16_384)
        }),
        ("pghot", true) => pghot(PromoteRow {
            seconds: 9.4,
            hot_in_top_95_s: Some(0.8),
            demoted_pages: 15_900,
            top_share: 0.7,
            recall: 0.98,
            tracker_cpu_s: 0.4,
            migration_cpu_s: Some(0.3),
            demotion_cpu_s: 0.2,
            timeline: vec![(0.0, 0), (5.0, 8000), (10.0, 16_000)],
            hot_timeline: vec![(0.0, 0.0), (5.0, 0.9), (10.0, 0.95)],
            ..promoted(16_000, 15_200)
        }),
        _ => none,
    }
}

/// The first scenario beside the published one of half its size, with hint faults that promote twice as much as the scan.
fn liked(rows: &[PromoteRow]) -> Like {
    let mut rows = rows.to_vec();
    rows.retain(|row| row.scenario == 1);
    let mut hintfaults = rows.clone();
    hintfaults.retain(|row| row.mode == "pghot");
    for row in &mut hintfaults {
        row.source = Some("hintfaults".to_owned());
        row.promoted_pages *= 2;
    }
    rows.extend(hintfaults);
    let published = scenario("pghot-v6-1").expect("known");
    Like {
        source: "synthetic".to_owned(),
        system: "invented for tests".to_owned(),
        ..like(published, Scale(0.5), &rows)
    }
}

/// Two runs of some modes with `zipf`, and one of `hotset`, in whose second half NUMA balancing is too late.
pub fn gains() -> Vec<GainRow> {
    let mut rows = Vec::new();
    for run in 1..=2 {
        let slower = (run - 1) as f64;
        for (mode, ns, promoted) in [
            ("none", 150.0, 0),
            ("dram", 60.0, 0),
            ("fill", 130.0, 0),
            ("numab2", 110.0, 50_000),
            ("pghot", 95.0, 70_000),
            ("oracle", 70.0, 0),
        ] {
            rows.push(gain("zipf", run, mode, &[ns + slower], promoted));
        }
    }
    for (mode, halves, promoted) in [
        ("none", [200.0, 200.0], 0),
        ("numab2", [140.0, 210.0], 30_000),
        ("oracle", [80.0, 80.0], 0),
    ] {
        rows.push(gain("hotset", 1, mode, &halves, promoted));
    }
    rows
}

fn gain(workload: &str, run: usize, mode: &str, phases: &[f64], promoted: u64) -> GainRow {
    let ns = phases.iter().sum::<f64>() / phases.len() as f64;
    let (worst, best) = if workload == "zipf" {
        (150.0, 70.0)
    } else {
        (200.0, 80.0)
    };
    let slower = (run - 1) as f64;
    let of = |ns: f64| Some((worst + slower - ns) / (worst - best));
    let phase = |&ns: &f64| Phase {
        ns_per_op: ns,
        quarters_ns: [ns; 4],
        gain_run: of(ns),
        gain_last: of(ns),
        until_80_s: (promoted > 0).then_some(4.5),
        until_80_pages: (promoted > 0).then_some(promoted / 2),
    };
    let is_oracle = mode == "oracle";
    let operations = (30e9 / ns) as u64;
    let above_fill = (workload == "zipf").then(|| (130.0 + slower - ns) / 60.0);
    GainRow {
        workload: workload.to_owned(),
        skew: (workload == "zipf").then_some(0.99),
        memory: "base".to_owned(),
        start: "slow".to_owned(),
        mode: mode.to_owned(),
        source: (mode == "pghot").then(|| "hintfaults".to_owned()),
        record: (mode == "pghot").then(|| "default".to_owned()),
        run,
        seed: run as u64,
        threads: 1,
        bytes: 1 << 30,
        room_bytes: 384 << 20,
        locked_bytes: 900 << 20,
        nodes: FromTo { from: 2, to: 0 },
        seconds: 30.0,
        operations,
        busy_ns: 30_000_000_000,
        ns_per_op: ns,
        ns_last: ns,
        gain_run: of(ns),
        gain_last: of(ns),
        above_fill_run: above_fill,
        above_fill_last: above_fill,
        phases: phases.iter().map(phase).collect(),
        promoted_pages: promoted,
        stayed_pages: promoted / 2,
        churn: (promoted > 0).then_some(2.0),
        top_share: 0.75,
        pages_in_top: 90_000,
        oracle_by: is_oracle.then(|| "misses".to_owned()),
        placed_pages: is_oracle.then_some(98_304),
        kept_pages: is_oracle.then_some(98_304),
        migration_cpu_s: (mode != "numab2").then_some(0.5),
        verified_bytes: 1 << 30,
        truth: Some(Truth {
            cpus: 2,
            time_ns: 30_000_000_000,
            misses: vec![10_000_000, 0, 5_000_000],
            written_back_bytes: vec![64_000_000, 0, 32_000_000],
            ..Truth::default()
        }),
        timeline: (1..=30)
            .map(|at| (f64::from(at), ns, promoted * at as u64 / 30, 0.75))
            .collect(),
        ..GainRow::default()
    }
}

/// The schema's own test stands here, beside the files that it needs.
#[test]
fn a_file_that_is_written_again_is_the_same() {
    for bench in FILES {
        let before: serde_json::Value = serde_json::from_str(&text(bench)).expect("JSON");
        let read: BenchFile = serde_json::from_str(&text(bench)).expect("file");
        let after = serde_json::to_value(read).expect("JSON");
        assert_eq!(before, after, "{bench}");
    }
}

/// The fields of each kind of file and their order; a change is one of the schema.
#[test]
fn the_fields_of_a_file() {
    for bench in FILES {
        let mut file = file(bench);
        file.ceiling.truncate(1);
        match &mut file.rows {
            Rows::Move(rows) | Rows::Count(rows) => {
                rows.truncate(1);
                rows[0].runs_gbps = vec![1.0, 3.0];
            }
            Rows::Stall(rows) => rows.truncate(1),
            Rows::Cache(rows) => rows.truncate(1),
            Rows::Compaction(rows) => rows.truncate(1),
            Rows::Gain(rows) => {
                rows.retain(|row| row.mode == "oracle");
                rows.truncate(1);
                rows[0].timeline.truncate(2);
            }
            Rows::Promote(rows) => {
                rows.truncate(1);
                rows[0].timeline.truncate(2);
                rows[0].hot_timeline.truncate(2);
            }
        }
        if let Some(like) = &mut file.like {
            like.results.truncate(1);
            like.rates.truncate(1);
            like.rates[0].pages_per_s.truncate(2);
        }
        insta::assert_json_snapshot!(bench, file);
    }
}
