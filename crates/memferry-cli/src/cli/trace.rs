// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use memferry_replay::trace::Cache;
use memferry_replay::trace::source::Span;

use super::JsonArgs;
use crate::units::{Size, bytes_or_none};

/// Where a trace goes if nothing is said.
const OUTPUT: &str = "memferry.trace";

/// Where a reduced trace goes if nothing is said.
const REDUCED: &str = "memferry-reduced.trace";

/// Ways and line size of the modelled cache: what last-level caches of servers have.
const WAYS: u32 = 16;
const LINE_BYTES: u32 = 64;

/// What can be done with traces.
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Run a command and record which memory it accesses
    #[command(after_help = RECORD_HELP)]
    Record(RecordArgs),
    /// Make a trace from what lackey, perf or DAMON wrote
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Make a smaller trace from a larger one: the same accesses in longer windows
    Reduce(ReduceArgs),
    /// Show what a trace has in it, and whether it is whole
    Info(InfoArgs),
}

const RECORD_HELP: &str = "\
The command runs in valgrind (tool lackey), some hundred times slower. Its own output goes where it always goes. \
Processes that it starts are not traced; threads are.\n\
What a cache would have served never reaches memory: --cache says how large a cache is assumed, and only what misses \
it is recorded. Time counts accesses, those served by the cache among them.\n\
Ctrl-C ends the command; the trace up to there is whole.\n\
Exit status: 0 the command ended with status 0 or as many accesses were recorded as --max-accesses allows, 1 anything \
else (the trace is written all the same, unless the message says that it is not), 2 wrong usage.";

const IMPORT_HELP: &str = "\
lackey: valgrind --tool=lackey --trace-mem=yes --log-file=FILE COMMAND\n\
perf:   perf mem record COMMAND; perf script -F pid,tid,time,event,addr,data_src > FILE\n\
damon:  damo record PID; damo report access --raw_form > FILE\n\
\u{20}       or: perf record -e damon:damon_aggregated; perf script > FILE\n\
--cache, --window, --data-only, --skip and --max-accesses are for lackey, which tells every access; --only is for perf \
and damon, --sampling for perf.";

/// Options of `memferry trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = OUTPUT, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// What to call the trace [default: the command line]
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// What is left out and merged.
    #[command(flatten)]
    pub reduction: Reduction,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND",
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Options of `memferry trace import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What wrote the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Format,
    /// The text to read; - is stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = OUTPUT, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// What to call the trace [default: the name of FILE]
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// perf, damon: only this process (its pid), or this target (its target_id)
    #[arg(long, value_name = "ID")]
    pub only: Option<u64>,
    /// perf: accesses that one sample stands for (what perf record -c was given) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sampling: Option<u32>,
    /// What is left out and merged.
    #[command(flatten)]
    pub reduction: Reduction,
}

/// Options of `memferry trace reduce`.
#[derive(Debug, Args)]
pub struct ReduceArgs {
    /// The trace; - is stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The file to write, another than the trace that is read
    #[arg(short, long, value_name = "FILE", default_value = REDUCED, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Merge accesses to one page within so many of the program's accesses: a multiple of what the trace has
    #[arg(long, value_name = "N", value_parser = window, required = true)]
    pub window: u64,
}

/// Options of `memferry trace info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The trace; - is stdin
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
}

/// What a trace of every access is reduced to.
#[derive(Debug, Args)]
pub struct Reduction {
    /// Leave out what a cache of this size serves (16 ways, lines of 64 bytes); 0: nothing [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub cache: Option<u64>,
    /// Merge accesses to one page within so many of the program's accesses; 0: none [default: 4096]
    #[arg(long, value_name = "N", value_parser = window)]
    pub window: Option<u64>,
    /// Leave out instruction fetches
    #[arg(long)]
    pub data_only: bool,
    /// Leave out the first so many accesses; they fill the cache
    #[arg(long, value_name = "N", value_parser = count)]
    pub skip: Option<u64>,
    /// End after so many accesses: 500000, 20M (millions)
    #[arg(long, value_name = "N", value_parser = count)]
    pub max_accesses: Option<u64>,
    /// Bytes of a page, 4K to 1G
    #[arg(long, value_name = "SIZE", value_parser = page_size, default_value = "4K")]
    pub page: Size,
}

/// Which program wrote a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// valgrind --tool=lackey --trace-mem=yes
    Lackey,
    /// perf script
    Perf,
    /// damo report access --raw_form, or the tracepoint damon_aggregated
    Damon,
}

impl Reduction {
    /// The cache to assume.
    pub fn cache(&self) -> Option<Cache> {
        let bytes = self.cache.unwrap_or(1 << 20);
        (bytes > 0).then_some(Cache {
            bytes,
            ways: WAYS,
            line_bytes: LINE_BYTES,
        })
    }

    /// Accesses of a window.
    pub fn window(&self) -> u64 {
        self.window.unwrap_or(4096)
    }

    /// The part to record.
    pub fn span(&self) -> Span {
        Span {
            skip: self.skip.unwrap_or(0),
            most: self.max_accesses.unwrap_or(u64::MAX),
        }
    }

    /// The first option that is for lackey only.
    fn of_lackey(&self) -> Option<&'static str> {
        [
            (self.cache.is_some(), "--cache"),
            (self.window.is_some(), "--window"),
            (self.data_only, "--data-only"),
            (self.skip.is_some(), "--skip"),
            (self.max_accesses.is_some(), "--max-accesses"),
        ]
        .into_iter()
        .find_map(|(is_given, name)| is_given.then_some(name))
    }
}

impl ImportArgs {
    /// Whether every option is for this format; the error names the one that is not.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |name: &str, of: &str| Err(format!("{name} is for --format {of}"));
        let sampling = self.sampling.is_some();
        match self.format {
            Format::Lackey if self.only.is_some() => wrong("--only", "perf and damon"),
            Format::Lackey | Format::Damon if sampling => wrong("--sampling", "perf"),
            Format::Lackey => Ok(()),
            Format::Perf | Format::Damon => match self.reduction.of_lackey() {
                Some(name) => wrong(name, "lackey"),
                None => Ok(()),
            },
        }
    }
}

/// Parses a number of accesses: digits, with K, M or G for thousands, millions and milliards.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g']) {
        Some(digits) => match text.as_bytes()[text.len() - 1].to_ascii_uppercase() {
            b'K' => (digits, 1_000),
            b'M' => (digits, 1_000_000),
            _ => (digits, 1_000_000_000),
        },
        None => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    match number.and_then(|number| number.checked_mul(unit)) {
        Some(0) | None => Err("not a number of accesses: 1 or more, as 500000, 20M, 1G".to_owned()),
        Some(count) => Ok(count),
    }
}

fn window(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        _ => match count(text)? {
            accesses if accesses > 1 << 31 => {
                Err("a window is 2147483648 accesses at most".to_owned())
            }
            accesses => Ok(accesses),
        },
    }
}

fn cache_size(text: &str) -> Result<u64, String> {
    let bytes = bytes_or_none(text)?;
    match bytes == 0 || (4 << 10..=1 << 30).contains(&bytes) && bytes.is_power_of_two() {
        true => Ok(bytes),
        false => Err("a cache is a power of two from 4K to 1G, or 0 for none".to_owned()),
    }
}

fn page_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match (4 << 10..=1 << 30).contains(&size.0) && size.0.is_power_of_two() {
        true => Ok(size),
        false => Err("a page is a power of two from 4K to 1G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_decimal() {
        for (text, accesses) in [
            ("1", 1),
            ("500000", 500_000),
            ("20M", 20_000_000),
            ("2k", 2000),
        ] {
            assert_eq!(count(text), Ok(accesses), "{text}");
        }
        for text in ["0", "", "M", "-1", "1.5M", "1T", "99999999999G"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert!(window("3G").is_err() && window("0") == Ok(0));
    }

    #[test]
    fn every_cache_that_is_accepted_can_be_built() {
        for text in ["4K", "64K", "1M", "1G"] {
            let cache = Cache {
                bytes: cache_size(text).expect(text),
                ways: WAYS,
                line_bytes: LINE_BYTES,
            };
            assert!(cache.is_possible(), "{text}");
        }
        assert!(cache_size("3M").is_err() && cache_size("2K").is_err());
        assert!(page_size("2K").is_err() && page_size("12K").is_err());
    }
}
