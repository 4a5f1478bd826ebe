// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sentence and the few figures at the top of the report, computed from the files.

use super::figures::is_baseline;
use crate::html::Fact;
use crate::schema::cache::CacheRow;
use crate::schema::compaction::CompactionRow;
use crate::schema::gain::GainRow;
use crate::schema::promote::PromoteRow;
use crate::schema::{BenchFile, MoveRow, Rows, StallRow};
use crate::spread::{Spread, groups};
use crate::table::{VANILLA, series};
use crate::units::{about, decimal, lanes, long, short, time};

/// What the report says first, in one sentence.
pub fn sentence<'a>(files: impl Iterator<Item = &'a BenchFile> + Clone) -> String {
    let small = |file| best_small(file).map(|found| (file, found));
    if let Some((file, (best, baseline))) = files.clone().find_map(small) {
        // The seconds of an emulator mean nothing by themselves.
        if let (true, Some(baseline)) = (file.host.emulated, baseline) {
            return format!(
                "{} pages move {:.1} times as fast with {} as with {} (emulated).",
                long(best.folio_bytes as u64),
                best.gbps / baseline.gbps,
                series(best),
                series(baseline)
            );
        }
        let mut text = format!(
            "{} pages move at {:.1} GB/s",
            long(best.folio_bytes as u64),
            best.gbps
        );
        if best.of_ceiling > 0.0 {
            text += &format!(
                ", {:.0}% of what this memory can copy",
                best.of_ceiling * 100.0
            );
        }
        if let Some(baseline) = baseline {
            let times = best.gbps / baseline.gbps;
            text += &format!("; {times:.1} times {}", one_by_one(baseline));
        }
        return text + ".";
    }
    if let Some(row) = files.clone().find_map(fair_stall) {
        return format!(
            "While {} pages move at {:.1} GB/s, 99 of 100 accesses that meet one wait less than {}.",
            long(row.folio_bytes as u64),
            row.gbps,
            time(row.stall_ns.p99)
        );
    }
    if let Some(text) = files.clone().find_map(arrival) {
        return text;
    }
    if let Some((case, share)) = files.clone().find_map(best_served) {
        let percent = share * 100.0;
        return format!(
            "The top tier served {percent:.0}% of the accesses to hot pages with {case}."
        );
    }
    if let Some(text) = files.clone().find_map(most_gained) {
        return text;
    }
    let largest = (files.clone())
        .flat_map(|file| file.rows.moves())
        .max_by(|a, b| a.gbps.total_cmp(&b.gbps));
    if let Some(row) = largest {
        return format!(
            "{} folios of {} move at {:.1} GB/s, {:.0}% of what this memory can copy.",
            row.folios.unwrap_or(1),
            long(row.folio_bytes as u64),
            row.gbps,
            row.of_ceiling * 100.0
        );
    }
    let other = files
        .clone()
        .find_map(lost)
        .or_else(|| files.clone().find_map(compacted));
    other.unwrap_or_else(|| "Nothing was measured.".to_owned())
}

/// The large figures below the sentence.
pub fn facts<'a>(files: impl Iterator<Item = &'a BenchFile> + Clone) -> Vec<Fact> {
    let mut facts = Vec::new();
    let small = files.clone().find_map(best_small);
    if let Some((best, baseline)) = small {
        facts.push(throughput(best));
        if let Some(baseline) = baseline {
            facts.push(Fact {
                value: format!("{:.1}×", best.gbps / baseline.gbps),
                label: format!(
                    "{}, which moves {} pages at {:.1} GB/s",
                    one_by_one(baseline),
                    short(best.folio_bytes as u64),
                    baseline.gbps
                ),
            });
        }
    }
    let rows = files.clone().flat_map(|file| file.rows.moves());
    let large = rows
        .filter(|row| row.destination == "warm" && row.folios.is_none() && !is_baseline(row))
        .max_by(|a, b| (a.folio_bytes.cmp(&b.folio_bytes)).then(a.gbps.total_cmp(&b.gbps)));
    if let Some(row) =
        large.filter(|row| small.is_none_or(|(s, _)| s.folio_bytes < row.folio_bytes))
    {
        facts.push(throughput(row));
    }
    if let Some(row) = files.clone().find_map(fair_stall) {
        facts.push(Fact {
            value: time(row.stall_ns.p99),
            label: format!(
                "p99 wait of an access that meets a moving page, batches of {} at {:.1} GB/s",
                long(row.batch_bytes as u64),
                row.gbps
            ),
        });
    }
    let verified = files.flat_map(|file| file.rows.verified_bytes());
    let verified = verified.fold(0, u64::saturating_add);
    if verified > 0 {
        facts.push(Fact {
            value: decimal(verified),
            label: "compared byte by byte after the moves".to_owned(),
        });
    }
    facts
}

/// What the baseline is called.
fn one_by_one(row: &MoveRow) -> &'static str {
    match row.is_kernels() {
        true => VANILLA,
        false => "the one-by-one way",
    }
}

fn throughput(row: &MoveRow) -> Fact {
    Fact {
        value: format!("{:.1} GB/s", row.gbps),
        label: format!(
            "{} pages, {} destination, {}: {:.0}% of the ceiling",
            short(row.folio_bytes as u64),
            row.destination,
            lanes(row.lanes),
            row.of_ceiling * 100.0
        ),
    }
}

/// The fastest way for the smallest folios of `bench move`, warm if that was measured, and the
/// one-by-one way beside it.
fn best_small(file: &BenchFile) -> Option<(&MoveRow, Option<&MoveRow>)> {
    let Rows::Move(rows) = &file.rows else {
        return None;
    };
    let smallest = rows.iter().map(|row| row.folio_bytes).min()?;
    let warm = rows.iter().any(|row| row.destination == "warm");
    let of = |row: &&MoveRow| {
        row.folio_bytes == smallest
            && (!warm || row.destination == "warm")
            && !is_baseline(row)
            && row.is_by_name()
    };
    let best = rows
        .iter()
        .filter(of)
        .max_by(|a, b| a.gbps.total_cmp(&b.gbps))?;
    let baseline = rows.iter().find(|row| {
        row.is_one_by_one() && row.folio_bytes == smallest && row.destination == best.destination
    });
    Some((best, baseline.filter(|_| !best.is_one_by_one())))
}

/// Of `bench promote`, scenario 1: the mode with which the hot set arrives soonest, when, and how many times as soon as with
/// numab2.
fn soonest(file: &BenchFile) -> Option<(String, f64, Option<f64>)> {
    let Rows::Promote(rows) = &file.rows else {
        return None;
    };
    // Runs in which it never arrived have no time, so a case with one of them has no mean.
    let known = means(rows, 1, |row| row.hot_in_top_95_s);
    let (case, soon) = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?.clone();
    let numab2 = known
        .iter()
        .find(|(name, _)| name == "numab2" && case != "numab2");
    let times = numab2.map(|(_, of)| of / soon);
    Some((case, soon, times))
}

/// How soon the hot set arrives, in words. The seconds of an emulator mean nothing by themselves.
fn arrival(file: &BenchFile) -> Option<String> {
    let (case, soon, than_numab2) = soonest(file)?;
    let times = than_numab2.map(|times| format!("{times:.1} times as soon"));
    Some(match (times, file.host.emulated) {
        (None, true) => return None,
        (Some(times), true) => {
            format!("95% of a hot set is in the top tier {times} with {case} as with numab2.")
        }
        (None, false) => {
            format!("95% of a hot set is in the top tier after {soon:.1} s with {case}.")
        }
        (Some(times), false) => format!(
            "95% of a hot set is in the top tier after {soon:.1} s with {case}, {times} as with numab2."
        ),
    })
}

/// Of `bench promote`: the mode with which the top tier served most accesses, and their share, whether the hot set arrived as a
/// whole or not. The first scenario speaks.
fn best_served(file: &BenchFile) -> Option<(String, f64)> {
    let Rows::Promote(rows) = &file.rows else {
        return None;
    };
    let shares = means(rows, rows.first()?.scenario, |row| Some(row.top_share));
    shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Of `bench promote --workload`: the mode that gains most in the first workload, in the last quarter. A baseline is none.
fn most_gained(file: &BenchFile) -> Option<String> {
    let Rows::Gain(rows) = &file.rows else {
        return None;
    };
    let workload = &rows.first()?.workload;
    let modes = rows.iter().filter(|row| {
        row.workload == *workload && !["none", "dram", "fill", "oracle"].contains(&&*row.mode)
    });
    let gain = |(case, rows): (String, Vec<&GainRow>)| {
        let gains: Option<Vec<f64>> = rows.into_iter().map(|row| row.gain_last).collect();
        Some((case, Spread::of(&gains?)?.mean))
    };
    let gains = groups(modes, |row| row.case()).into_iter().filter_map(gain);
    let (case, gain) = gains.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "With {workload} the best mode, {case}, has {gain:.2} of what the best placement gains, at the end."
    ))
}

/// The mean of a figure in a scenario, for each mode whose runs all have it.
fn means(
    rows: &[PromoteRow],
    scenario: u32,
    figure: fn(&PromoteRow) -> Option<f64>,
) -> Vec<(String, f64)> {
    let rows = rows.iter().filter(|row| row.scenario == scenario);
    let mean = |(case, rows): (String, Vec<&PromoteRow>)| {
        let values: Option<Vec<f64>> = rows.into_iter().map(figure).collect();
        Some((case, Spread::of(&values?)?.mean))
    };
    let cases = groups(rows, PromoteRow::case).into_iter();
    cases.filter_map(mean).collect()
}

/// The row of `bench stall` with the smallest batch that moves nearly (90%) as much as the best:
/// larger ones only let accesses wait longer.
fn fair_stall(file: &BenchFile) -> Option<&StallRow> {
    let Rows::Stall(rows) = &file.rows else {
        return None;
    };
    let best = rows.iter().map(|row| row.gbps).fold(0.0, f64::max);
    rows.iter()
        .filter(|row| row.gbps >= 0.9 * best)
        .min_by_key(|row| (row.batch_bytes, row.stall_ns.p99))
}

/// Of `bench cache`: what the thread loses with the routine past the caches that takes least from it, and with memcpy.
fn lost(file: &BenchFile) -> Option<String> {
    let Rows::Cache(rows) = &file.rows else {
        return None;
    };
    let past =
        (rows.iter().filter(|row| row.bypasses_cache)).min_by(|a, b| a.lost.total_cmp(&b.lost));
    let through = rows.iter().find(|row| row.copy == "memcpy");
    let first = past.or(through).or(rows.first())?;
    // Noise may have it read more than alone.
    let percent = |row: &CacheRow| format!("{:.0}%", row.lost.max(0.0) * 100.0);
    let than_memcpy = through.filter(|_| past.is_some());
    let than_memcpy = than_memcpy.map(|row| format!("; with memcpy {}", percent(row)));
    Some(format!(
        "While pages move with {}, a thread whose data fits the cache loses {} of its reads{}.",
        first.copy,
        percent(first),
        than_memcpy.unwrap_or_default()
    ))
}

/// Of `bench compaction`: the migrator that gains most over none under the same load. Without such a pair, the time of a case.
fn compacted(file: &BenchFile) -> Option<String> {
    let Rows::Compaction(rows) = &file.rows else {
        return None;
    };
    let is_none = |row: &&CompactionRow| row.migrator == "none";
    let migrators = rows.iter().filter(|row| !is_none(row));
    let times = migrators.filter_map(|row| {
        let none = rows.iter().filter(is_none).find(|of| of.load == row.load)?;
        Some((row, none.wall_ms / row.wall_ms))
    });
    let best = times.max_by(|a, b| a.1.total_cmp(&b.1));
    let (row, how) = match best {
        Some((row, times)) => (row, format!("{times:.2} times as fast as with none")),
        None => {
            let row = rows.first()?;
            (row, format!("in {:.0} ms", row.wall_ms))
        }
    };
    Some(format!(
        "{} of a fragmented node are compacted with {} {how}, on {} CPU.",
        about(row.bytes),
        row.migrator,
        if row.load == "idle" {
            "an idle"
        } else {
            "a busy"
        }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn the_sentence_comes_from_the_smallest_warm_folios() {
        let file = synthetic::file("move");
        assert_eq!(
            sentence(std::iter::once(&file)),
            "4 KiB pages move at 20.2 GB/s, 82% of what this memory can copy; 14.3 times the \
             one-by-one way."
        );
    }

    #[test]
    fn without_a_baseline_nothing_is_claimed_over_it() {
        let mut file = synthetic::file("move");
        let rows = synthetic::move_rows(&mut file);
        rows.retain(|row| row.migrator == "batch");
        assert!(!sentence(std::iter::once(&file)).contains("one-by-one"));
        assert!(
            facts(std::iter::once(&file))
                .iter()
                .all(|fact| !fact.value.contains('×'))
        );
    }

    #[test]
    fn an_emulator_tells_no_seconds() {
        let mut file = synthetic::file("promote");
        let real = sentence(std::iter::once(&file));
        assert!(real.contains(" s with pghot"), "{real}");
        file.host.emulated = true;
        let emulated = sentence(std::iter::once(&file));
        assert!(
            emulated.contains("times as soon with pghot") && !emulated.contains(" s "),
            "{emulated}"
        );
        let rows = synthetic::promote_rows(&mut file);
        rows.retain(|row| row.mode != "numab2");
        let alone = sentence(std::iter::once(&file));
        assert!(alone.starts_with("The top tier served"), "{alone}");
    }

    #[test]
    fn a_hot_set_that_never_arrived_has_its_share() {
        let mut file = synthetic::file("promote");
        let rows = synthetic::promote_rows(&mut file);
        for row in rows {
            row.hot_in_top_95_s = None;
        }
        assert_eq!(
            sentence(std::iter::once(&file)),
            "The top tier served 95% of the accesses to hot pages with pghot pgtscan, default."
        );
    }

    #[test]
    fn every_benchmark_alone_has_a_sentence() {
        for (bench, part) in [
            ("count", "folios of 2 MiB"),
            ("stall", "99 of 100"),
            (
                "cache",
                "with nt64x2, | loses 12% of its reads; with memcpy 40%.",
            ),
            (
                "compaction",
                "512 MiB of | with dcbm 1.60 times as fast as with none, on a busy CPU.",
            ),
            (
                "promote",
                "after 0.6 s with pghot pgtscan, default, 4.8 times",
            ),
            (
                "gain",
                "With zipf the best mode, pghot hintfaults, default, has 0.69 of",
            ),
        ] {
            let file = synthetic::file(bench);
            let text = sentence(std::iter::once(&file));
            assert!(part.split(" | ").all(|part| text.contains(part)), "{text}");
            assert!(!facts(std::iter::once(&file)).is_empty());
        }
    }
}
