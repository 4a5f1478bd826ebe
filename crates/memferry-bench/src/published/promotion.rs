// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published micro-benchmark of promotion: what each scenario is, and what came out.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::rows;

/// A published scenario, a row of `data/published-promotion-scenarios.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Published {
    /// What `--like` calls it.
    pub name: String,
    /// The posting, with its date.
    pub source: String,
    /// The machine.
    pub system: String,
    /// Its number there and here.
    pub scenario: u32,
    /// Threads that access.
    pub threads: usize,
    /// Regions of the lower tier that become hot one after another.
    pub regions: usize,
    /// Bytes of all regions.
    pub hot_bytes: u64,
    /// Idle bytes in the top tier.
    pub idle_bytes: u64,
    /// Runs that the figures are the mean of.
    pub runs: usize,
    /// MiB that NUMA balancing scans in a second, the kernel's default.
    pub scan_mib: u64,
}

impl Published {
    /// Bytes of one region at a scale, whole huge pages.
    pub fn region_bytes(&self, scale: Scale) -> u64 {
        let region = ((self.hot_bytes / self.regions as u64) as f64 * scale.0).round();
        region as u64 / crate::schema::THP_BYTES as u64 * crate::schema::THP_BYTES as u64
    }

    /// The scale that whole huge pages come to.
    pub fn fitted(&self, scale: Scale) -> Scale {
        let hot = self.region_bytes(scale) * self.regions as u64;
        Scale(hot as f64 / self.hot_bytes as f64)
    }

    /// Idle bytes in the top tier at a scale: as many times the hot ones as published.
    pub fn idle_bytes(&self, scale: Scale) -> u64 {
        let hot = self.region_bytes(scale) * self.regions as u64;
        (u128::from(hot) * u128::from(self.idle_bytes) / u128::from(self.hot_bytes)) as u64
    }

    /// MiB to scan in a second at a scale.
    pub fn scan_mib(&self, scale: Scale) -> u64 {
        ((self.scan_mib as f64 * scale.0).round() as u64).max(1)
    }

    /// What came out, in the order of the file.
    pub fn results(&self) -> impl Iterator<Item = &'static Outcome> {
        let of = (self.source.clone(), self.scenario);
        outcomes()
            .iter()
            .filter(move |row| (&row.source, row.scenario) == (&of.0, of.1))
    }

    /// Seconds of the unpatched kernel while nothing promotes.
    pub fn seconds(&self) -> Option<f64> {
        self.results()
            .find(|row| row.kernel == "vanilla" && row.heat == "none")
            .map(Outcome::seconds)
    }

    /// Pages promoted over time, of the unpatched kernel and of pghot; empty where nobody published that.
    pub fn timelines(&self) -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let rows = || {
            let all = rates().iter();
            all.filter(|row| (&row.source, row.scenario) == (&self.source, self.scenario))
        };
        if rows().next().is_none() {
            return Vec::new();
        }
        let vanilla = rows().map(|row| (row.seconds, row.pages_promoted_vanilla));
        let pghot = rows().map(|row| (row.seconds, row.pages_promoted_pghot));
        vec![("numab2", vanilla.collect()), ("pghot", pghot.collect())]
    }
}

/// What a published run came to, a row of `data/published-promotion.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Outcome {
    source: String,
    scenario: u32,
    /// The format of pghot's records, `default` or `precise`; empty for the unpatched kernel.
    pub format: String,
    /// What reports accesses: `none` or `hintfaults`.
    #[serde(rename = "source_of_heat")]
    pub heat: String,
    /// `vanilla` or `pghot`.
    pub kernel: String,
    time_us: u64,
    /// Pages promoted.
    pub pages_promoted: u64,
}

impl Outcome {
    /// How long the accesses took.
    pub fn seconds(&self) -> f64 {
        self.time_us as f64 / 1e6
    }

    /// The case here that it compares with, as [`PromoteRow::case`](crate::schema::promote::PromoteRow::case) names it; pghot with
    /// no source on is none here.
    pub fn case(&self) -> String {
        match (&*self.kernel, &*self.heat) {
            ("vanilla", "none") => "none".to_owned(),
            ("vanilla", "hintfaults") => "numab2".to_owned(),
            ("pghot", "hintfaults") => format!("pghot hintfaults, {}", self.format),
            _ => format!("pghot, {}, no source", self.format),
        }
    }
}

/// A row of `data/published-promotion-rate.csv`.
#[derive(Debug, Deserialize)]
struct Rate {
    source: String,
    scenario: u32,
    seconds: f64,
    pages_promoted_vanilla: f64,
    pages_promoted_pghot: f64,
}

/// All published scenarios, in the order of the file.
pub fn scenarios() -> &'static [Published] {
    static ROWS: OnceLock<Vec<Published>> = OnceLock::new();
    ROWS.get_or_init(|| {
        rows(include_bytes!(
            "../../data/published-promotion-scenarios.csv"
        ))
    })
}

fn outcomes() -> &'static [Outcome] {
    static ROWS: OnceLock<Vec<Outcome>> = OnceLock::new();
    ROWS.get_or_init(|| rows(include_bytes!("../../data/published-promotion.csv")))
}

fn rates() -> &'static [Rate] {
    static ROWS: OnceLock<Vec<Rate>> = OnceLock::new();
    ROWS.get_or_init(|| rows(include_bytes!("../../data/published-promotion-rate.csv")))
}

/// The scenario of this name.
pub fn scenario(name: &str) -> Result<&'static Published, String> {
    let mut all = scenarios().iter();
    all.find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<&str> = scenarios().iter().map(|row| row.name.as_str()).collect();
        format!("not a published scenario; there are {}", names.join(", "))
    })
}

/// The part of the published sizes that a run has, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scale(pub f64);

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        let scale = match (above.parse::<f64>(), below.parse::<f64>()) {
            (Ok(above), Ok(below)) => above / below,
            _ => f64::NAN,
        };
        if scale > 0.0 && scale <= 1.0 {
            return Ok(Self(scale));
        }
        Err("a part of the published sizes, above 0 and at most 1 (0.01, 1/128)".to_owned())
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = (1.0 / self.0).round();
        match below {
            1.0 => f.write_str("1"),
            _ if (below * self.0 - 1.0).abs() < 1e-9 => write!(f, "1/{below}"),
            _ => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        text.trim_end().lines().count() - 1
    }

    #[test]
    fn every_row_is_read() {
        let read = [scenarios().len(), outcomes().len(), rates().len()];
        let there = [
            lines(include_str!("../../data/published-promotion-scenarios.csv")),
            lines(include_str!("../../data/published-promotion.csv")),
            lines(include_str!("../../data/published-promotion-rate.csv")),
        ];
        assert_eq!(read, there);
        for of in scenarios() {
            assert_eq!(of.results().count(), 6, "{}", of.name);
            assert!(of.seconds().is_some(), "{}", of.name);
        }
    }

    #[test]
    fn the_first_scenario_alone_has_a_published_course() {
        let first = scenario("pghot-v6-1").expect("known").timelines();
        let ends: Vec<_> = first.iter().map(|(name, of)| (*name, of.last())).collect();
        // 8 GiB of base pages.
        let end = Some(&(64.0, 2_097_152.0));
        assert_eq!(ends, [("numab2", end), ("pghot", end)]);
        assert!(
            scenario("pghot-v6-2")
                .expect("known")
                .timelines()
                .is_empty()
        );
        assert!(scenario("pghot").expect_err("none").contains("pghot-v6-1"));
    }

    #[test]
    fn a_scale_keeps_the_proportions() {
        let second = scenario("pghot-v6-2").expect("known");
        for text in ["1", "1/128", "0.01", "1/160"] {
            let scale: Scale = text.parse().expect(text);
            let hot = second.region_bytes(scale) * 40;
            assert_eq!(second.idle_bytes(scale), 3 * hot, "{text}");
            assert_eq!(scale.to_string(), text.replace("0.01", "1/100"));
            let fitted = second.fitted(scale);
            assert_eq!(second.region_bytes(fitted), second.region_bytes(scale));
        }
        let part: Scale = "1/128".parse().expect("scale");
        // 10.24 MiB are 10.
        assert_eq!(second.fitted(Scale(0.01)), Scale(10.0 / 1024.0));
        assert_eq!(
            (second.region_bytes(part), second.scan_mib(part)),
            (8 << 20, 2)
        );
        let tiny: Scale = "1/4096".parse().expect("scale");
        assert_eq!((second.region_bytes(tiny), second.scan_mib(tiny)), (0, 1));
        for text in ["0", "-1", "2", "1/0", "x", "1/x", "nan", "0/0"] {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }
}
