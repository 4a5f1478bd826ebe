// SPDX-License-Identifier: MIT OR Apache-2.0
//! A published scenario beside the runs that repeat it: results, and promotion over time.

use crate::published::promotion::{Published, Scale};
use crate::schema::promote::{Both, Like, LikeRate, LikeResult, PromoteRow};
use crate::spread::{Spread, groups, value_at};

/// Seconds of an interval of promotion over time: what lies between the published points.
const INTERVAL_S: f64 = 4.0;

/// What a file says of the scenario that its rows repeat.
pub fn like(of: &Published, scale: Scale, rows: &[PromoteRow]) -> Like {
    let cases = groups(rows, PromoteRow::case);
    let results = results(of, &cases);
    Like {
        name: of.name.clone(),
        source: of.source.clone(),
        system: of.system.clone(),
        scale: scale.0,
        scan_mib: of.scan_mib(scale),
        hintfaults_over_numab2: over_numab2(&results),
        results,
        rates: rates(of, scale, &cases),
    }
}

/// The runs of a case.
type Case<'a> = (String, Vec<&'a PromoteRow>);

fn mean(rows: &[&PromoteRow], figure: impl Fn(&PromoteRow) -> f64) -> Option<f64> {
    let values: Vec<f64> = rows.iter().map(|row| figure(row)).collect();
    Spread::of(&values).map(|of| of.mean)
}

/// The published cases in their order, then those that only we have.
fn results(of: &Published, cases: &[Case]) -> Vec<LikeResult> {
    let result = |case: String, published: Option<(f64, u64)>| {
        let ours = cases.iter().find(|(name, _)| *name == case);
        let ours = ours.map_or(&[][..], |(_, rows)| rows);
        LikeResult {
            seconds: Both {
                published: published.map(|of| of.0),
                ours: mean(ours, |row| row.seconds),
            },
            pages: Both {
                published: published.map(|of| of.1 as f64),
                ours: mean(ours, |row| row.promoted_pages as f64),
            },
            case,
        }
    };
    let published = of.results();
    let mut results: Vec<LikeResult> = published
        .map(|row| result(row.case(), Some((row.seconds(), row.pages_promoted))))
        .collect();
    for (case, _) in cases {
        if results.iter().all(|known| known.case != *case) {
            results.push(result(case.clone(), None));
        }
    }
    results
}

/// Of the format of records that was measured; of the default one, if none was.
fn over_numab2(results: &[LikeResult]) -> Both {
    let numab2 = results.iter().find(|of| of.case == "numab2");
    let mut tracked: Vec<&LikeResult> = results
        .iter()
        .filter(|of| of.case.starts_with("pghot hintfaults"))
        .collect();
    tracked.sort_by_key(|of| of.pages.ours.is_none());
    let over = |figure: fn(&Both) -> Option<f64>| {
        let below = figure(&numab2?.pages).filter(|pages| *pages > 0.0)?;
        Some(figure(&tracked.first()?.pages)? / below)
    };
    Both {
        published: over(|of| of.published),
        ours: over(|of| of.ours),
    }
}

fn rates(of: &Published, scale: Scale, cases: &[Case]) -> Vec<LikeRate> {
    let published = of.timelines().into_iter().map(|(case, timeline)| LikeRate {
        case: case.to_owned(),
        published: true,
        pages_per_s: (rate(&timeline).into_iter())
            .map(|(at, pages)| (at, pages * scale.0))
            .collect(),
    });
    let ours = cases.iter().map(|(case, rows)| {
        let runs: Vec<Vec<(f64, f64)>> = rows.iter().map(|row| rate(&counts(row))).collect();
        let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
        let point = |at: usize| {
            let values: Vec<f64> = runs
                .iter()
                .filter_map(|run| run.get(at))
                .map(|of| of.1)
                .collect();
            (
                (at + 1) as f64 * INTERVAL_S,
                Spread::of(&values).map_or(0.0, |of| of.mean),
            )
        };
        LikeRate {
            case: case.clone(),
            published: false,
            pages_per_s: (0..longest).map(point).collect(),
        }
    });
    published.chain(ours).collect()
}

fn counts(row: &PromoteRow) -> Vec<(f64, f64)> {
    let points = row.timeline.iter();
    points.map(|&(at, count)| (at, count as f64)).collect()
}

/// The rise of a count per second, interval by interval, the last one cut where the count ends.
fn rate(timeline: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some(&(end, _)) = timeline.last() else {
        return Vec::new();
    };
    let at = |time| value_at(timeline, time).unwrap_or(0.0);
    let mut from = (0.0, at(0.0));
    let mut rates = Vec::new();
    while from.0 < end {
        let to = from.0 + INTERVAL_S;
        let count = at(to);
        rates.push((to, (count - from.1) / (to.min(end) - from.0)));
        from = (to, count);
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::promotion::scenario;

    fn of(name: &str, number: u32) -> Like {
        let mut rows = crate::synthetic::promotions();
        rows.retain(|row| row.scenario == number);
        let mut hintfaults = rows.clone();
        hintfaults.retain_mut(|row| {
            row.source = Some("hintfaults".to_owned());
            row.promoted_pages *= 2;
            row.mode == "pghot"
        });
        rows.extend(hintfaults);
        like(scenario(name).expect("known"), Scale(0.5), &rows)
    }

    #[test]
    fn published_cases_come_first_and_have_ours_beside_them() {
        let like = of("pghot-v6-2", 2);
        let cases: Vec<&str> = like.results.iter().map(|of| of.case.as_str()).collect();
        assert_eq!(
            cases,
            [
                "none",
                "pghot, default, no source",
                "pghot, precise, no source",
                "numab2",
                "pghot hintfaults, default",
                "pghot hintfaults, precise",
                "pghot pgtscan, default"
            ]
        );
        let has = |at: usize| {
            let Both { published, ours } = like.results[at].pages;
            (published.is_some(), ours.is_some())
        };
        assert_eq!(
            [has(1), has(3), has(6)],
            [(true, false), (true, true), (false, true)]
        );
        let ratio = like.hintfaults_over_numab2;
        // 1,070,842 of 26,546; ours has twice as many as the scan of page tables.
        assert!((ratio.published.expect("published") - 40.339).abs() < 0.001);
        let ours = |at: usize| like.results[at].pages.ours.expect("ours");
        assert!((ratio.ours.expect("ours") - 2.0 * ours(6) / ours(3)).abs() < 1e-9);
    }

    #[test]
    fn published_rates_are_scaled_and_ours_are_not() {
        let like = of("pghot-v6-1", 1);
        let line = |case: &str, published: bool| {
            let mut rates = like.rates.iter();
            let line = rates.find(|of| of.case == case && of.published == published);
            line.expect(case).pages_per_s.clone()
        };
        // 262,144 pages from second 28 to 32, at half the size.
        let numab2 = line("numab2", true);
        assert_eq!(numab2.len(), 16);
        assert_eq!(numab2[6..8], [(28.0, 0.0), (32.0, 32_768.0)]);
        let rows = line("numab2", false);
        let pages: f64 = rows.iter().map(|of| of.1).sum();
        assert!(pages > 0.0, "{rows:?}");
        assert!(of("pghot-v6-2", 2).rates.iter().all(|of| !of.published));
    }

    #[test]
    fn a_rate_is_of_the_time_that_there_was() {
        let rates = rate(&[(0.5, 0.0), (4.0, 70.0), (6.0, 80.0)]);
        assert_eq!(rates, [(4.0, 17.5), (8.0, 5.0)]);
        assert!(rate(&[]).is_empty());
    }
}
