// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that every program has alike, and how a command line is read.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, ValueHint};

/// How a result is shown.
#[derive(Debug, Args)]
pub struct JsonArgs {
    /// Write JSON instead of text; with =FILE, JSON into that file besides the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-",
          value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

impl JsonArgs {
    /// The file, if JSON goes to one.
    pub fn file(&self) -> Option<&PathBuf> {
        self.json.as_ref().filter(|path| path.as_os_str() != "-")
    }
}

/// Options of what shows a machine.
#[derive(Debug, Args)]
pub struct ShownArgs {
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
    /// The folder that holds sys and proc
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// Reads a command line.
pub fn read<P: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<P, clap::Error> {
    let args = Vec::from_iter(args);
    P::try_parse_from(&args).map_err(|error| with_file_of_json(error, &args))
}

/// Says how `--json` takes the file, where that stands after a space as if it were an argument.
fn with_file_of_json(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_file = |two: &[OsString]| two[0] == "--json" && two[1] == *unexpected.as_str();
    if error.kind() == ErrorKind::UnknownArgument && args.windows(2).any(is_file) {
        let advice = format!("write --json={unexpected}");
        let advice = ContextValue::StyledStrs(vec![advice.into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

/// Wrong usage that clap alone does not see; without the line `Usage:`, for which the command would have to be named.
pub fn wrong(why: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n"))
}
