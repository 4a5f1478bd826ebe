// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry replay`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use memferry_replay::machine::Top;
use memferry_replay::policy::Kind;

use super::JsonArgs;
use crate::units::{Size, positive};

/// Options of `memferry replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: none, lru, numab2, pghot-default, pghot-precise, pghot-default-faults, pghot-precise-faults, \
                  ours-default, ours, oracle-static, oracle-sampled, oracle. -default has records of one byte, -precise and ours of \
                  four; -faults is fed by hint faults in place of the source.\nThe same trace, policy and seed give the same figures on every machine, but for the tracker's time, which is \
                  measured."
)]
pub struct ReplayArgs {
    /// Files that `memferry trace` wrote; - is stdin
    #[arg(required = true, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub traces: Vec<PathBuf>,
    /// Policies to compare, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all", value_parser = policies)]
    pub policy: Vec<Policies>,
    /// Sizes of the top tier: shares of the trace's pages, or bytes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "25%,50%", value_parser = top)]
    pub top: Vec<Top>,
    /// Where the source's random numbers start
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// The source of pghot and ours walks the page tables so often, in ms; 0: never [default: 250]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub walk: Option<u32>,
    /// The source also reports one cache miss in N; 0: none [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub sample: Option<u32>,
    /// Accesses that make a page hot for pghot and ours: 1 to 3, for records of four bytes 1 to 7 [default: 2]
    #[arg(long, value_name = "N")]
    pub threshold: Option<u32>,
    /// Replays at a time [default: the CPUs]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// How the tables are shown.
    #[command(flatten)]
    pub json: JsonArgs,
    /// Write a page with charts over time and heatmaps
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

impl ReplayArgs {
    /// The chosen policies, each once, in the order in which they are shown.
    pub fn kinds(&self) -> Vec<Kind> {
        let chosen: Vec<Kind> = self
            .policy
            .iter()
            .flat_map(|policies| policies.0.clone())
            .collect();
        Kind::ALL
            .into_iter()
            .filter(|kind| chosen.contains(kind))
            .collect()
    }
}

/// What one name of `--policy` stands for.
#[derive(Clone, Debug)]
pub struct Policies(Vec<Kind>);

fn policies(text: &str) -> Result<Policies, String> {
    match text {
        "all" => Ok(Policies(Kind::ALL.to_vec())),
        name => name
            .parse()
            .map(|kind| Policies(vec![kind]))
            .map_err(|error| format!("{error}")),
    }
}

/// Parses the size of the top tier: `25%`, `12.5%`, `64M`.
fn top(text: &str) -> Result<Top, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return text.parse().map(|Size(bytes)| Top::Bytes(bytes));
    };
    let allowed = || "a share is 0.1% to 100%, in steps of 0.1%".to_owned();
    let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let (Ok(whole), Ok(tenth)) = (whole.parse::<u32>(), tenths.parse::<u32>()) else {
        return Err(allowed());
    };
    if tenths.len() != 1 || !digits(percent.replacen('.', "", 1).as_str()) || whole > 100 {
        return Err(allowed());
    }
    match whole * 10 + tenth {
        thousandths @ 1..=1000 => Ok(Top::Share(thousandths)),
        _ => Err(allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_tier_is_a_share_or_bytes() {
        assert_eq!(top("25%"), Ok(Top::Share(250)));
        assert_eq!(top("12.5%"), Ok(Top::Share(125)));
        assert_eq!(top("100%"), Ok(Top::Share(1000)));
        assert_eq!(top("64M"), Ok(Top::Bytes(64 << 20)));
        for text in [
            "0%",
            "0.0%",
            "100.1%",
            "101%",
            "-5%",
            "+5%",
            "1.25%",
            "%",
            "5.%",
            ".5%",
            "99999999999%",
        ] {
            let error = top(text).expect_err(text);
            assert!(error.contains("0.1% to 100%"), "{text}: {error}");
        }
        assert!(top("0").is_err());
    }

    #[test]
    fn an_unknown_policy_is_told_the_known_ones() {
        let error = policies("best").expect_err("unknown");
        assert!(error.contains("numab2, pghot-default"), "{error}");
        assert_eq!(policies("all").expect("all").0.len(), Kind::ALL.len());
    }
}
