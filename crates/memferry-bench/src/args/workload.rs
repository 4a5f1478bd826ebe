// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of the workloads of `memferry bench promote`.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::distinct;
use super::program::Program;
use crate::units::Size;

/// What `--workload` names, and what belongs to it.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// What programs do, and what of the best placement's speed each mode brings them: zipf (flat out), served (zipf operations
    /// at a fixed rate), hotset (2 MiB pieces, others from half time on), chase (a tree), stream, uniform
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true, group = "of_gain")]
    #[arg(conflicts_with_all = ["scenario", "like", "regions", "accesses"])]
    workload: Vec<Workload>,
    /// Programs that must be installed, under a client on another CPU: redis, memcached, sqlite. The size is that of their values
    /// [default: 160MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(hide_possible_values = true, group = "of_gain")]
    #[arg(conflicts_with_all = ["workload", "scenario", "like", "regions", "accesses", "threads"])]
    program: Vec<Program>,
    /// With --workload zipf and served, and --program: the exponent of Zipf's law
    #[arg(long, value_name = "S", requires = "of_gain", default_value_t = 0.99, value_parser = skew)]
    pub skew: f64,
    /// With --workload served: operations a second of each thread
    #[arg(
        long,
        value_name = "N",
        requires = "workload",
        default_value_t = 50_000
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: u64,
    /// With --workload: base (pages), thp, shared (memory of a memfd), file (in the folder of temporary files, mapped read-only, so
    /// that nothing is stored)
    #[arg(long, value_name = "KIND", requires = "workload", value_enum, default_value_t = Memory::Base)]
    #[arg(hide_possible_values = true)]
    pub memory: Memory,
    /// With --workload or --program: bytes of the top tier that are to be had; the rest is locked [default: 3/8 of the size]
    #[arg(long, value_name = "SIZE", requires = "of_gain")]
    pub room: Option<Size>,
    /// With --workload: whether all pages begin in the lower tier (slow), or random ones in the room of the top tier (spread)
    #[arg(long, value_name = "PLACE", requires = "workload", value_enum, default_value_t = Start::Slow)]
    #[arg(hide_possible_values = true)]
    pub start: Start,
    /// With --workload or --program: what the accesses are made from; each further run takes the next number
    #[arg(long, value_name = "N", requires = "of_gain", default_value_t = 1)]
    pub seed: u64,
}

impl WorkloadArgs {
    /// The programs, each once.
    pub fn programs(&self) -> Vec<Program> {
        distinct(&self.program)
    }

    /// The workloads, each once.
    pub fn workloads(&self) -> Vec<Workload> {
        distinct(&self.workload)
    }
}

fn skew(text: &str) -> Result<f64, String> {
    let skew = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.0..=4.0).contains(&skew) {
        true => Ok(skew),
        false => Err("not between 0 and 4".to_owned()),
    }
}

/// What is accessed, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Pages by Zipf's law, flat out
    Zipf,
    /// The same in operations of eight lines, at a fixed rate
    Served,
    /// Nine tenths of the accesses to a quarter of the pieces of 2 MiB
    Hotset,
    /// From the root of a tree to a leaf
    Chase,
    /// Everything in its order
    Stream,
    /// Everything alike
    Uniform,
}

/// What memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Base pages
    Base,
    /// THPs
    Thp,
    /// Shared memory
    Shared,
    /// A file mapped read-only
    File,
}

/// Where the pages begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// In the lower tier
    Slow,
    /// Random ones in the room of the top tier
    Spread,
}

/// The name of a value on the command line.
pub fn name_of(value: impl ValueEnum) -> String {
    let named = value.to_possible_value();
    named.map_or_else(String::new, |of| of.get_name().to_owned())
}
