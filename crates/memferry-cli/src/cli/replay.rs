// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry replay`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use memferry_replay::machine::Top;
use memferry_replay::policy::Kind;

use super::JsonArgs;
use crate::units::Size;

/// Options of `memferry replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: names with -default have records of one byte, those with -precise and ours of \
                  four; -faults: hint faults feed them in place of the source.\nThe same trace, policy and seed give the same figures on every machine, but for the tracker's time, which is \
                  measured."
)]
pub struct ReplayArgs {
    /// Files that `memferry trace` wrote; - is stdin
    #[arg(required = true, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub traces: Vec<PathBuf>,
    /// Policies to compare, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all", value_parser = policies())]
    pub policy: Vec<String>,
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
        let chosen = |kind: &Kind| {
            let mut names = self.policy.iter();
            names.any(|name| name == "all" || name == kind.name())
        };
        Kind::ALL.into_iter().filter(chosen).collect()
    }
}

/// The names of policies, and one for all of them.
fn policies() -> PossibleValuesParser {
    ["all"].into_iter().chain(Kind::ALL.map(Kind::name)).into()
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
}
