// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd check`: whether the configuration is right, and what each group matches now.

use memferry_daemon::Config;
use memferry_daemon::members::{self, Matches};
use memferry_output::failure::Failure;
use memferry_output::file::Content;
use memferry_output::printable::printable;
use memferry_output::results::Results;
use memferry_output::units::about;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::CheckArgs;
use crate::page::processes;

/// A configuration without a mistake, and what it matches now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DaemonCheckFile")]
pub struct Right {
    /// Its file.
    config: String,
    groups: usize,
    /// Whether the daemon moves pages, or only watches.
    act: bool,
    /// What each group matches now.
    matches: Vec<Matches>,
    /// Keys that this version does not know, with their lines; of a file for a newer version alone.
    ignored: Vec<String>,
}

impl Content for Right {
    const SCHEMA: &'static str = "memferry-daemon-check/1";
}

impl Right {
    fn text(&self) -> String {
        let does = if self.act { "acts" } else { "only watches" };
        let mut text = format!("{}: {} groups, {does}\n", self.config, self.groups);
        text.extend(self.matches.iter().map(line));
        for key in &self.ignored {
            text += &format!("ignored, as the file is for a newer version of memferry: {key}\n");
        }
        text
    }
}

/// What a group matches now, for a line.
fn line(of: &Matches) -> String {
    let (small, least) = (processes(of.small), about(of.min_size));
    let what = match (of.processes, of.small) {
        (0, 0) => "matches nothing now".to_owned(),
        (0, _) => format!("{small}, left alone: less than {least} each"),
        (all, _) => {
            let names = printable(&of.names.join(", "));
            let rest = match of.small {
                0 => String::new(),
                _ => format!("; {small} of less than {least} left alone"),
            };
            format!(
                "{}, {} in memory: {names}{rest}",
                processes(all),
                about(of.resident)
            )
        }
    };
    format!("  {}: {what}\n", of.group)
}

/// Checks the configuration.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let wrong = |error| crate::told("the configuration is not right", &error);
    let config = Config::read(&args.config.file).map_err(wrong)?;
    let right = Right {
        config: args.config.file.display().to_string(),
        groups: config.groups.len(),
        act: config.act,
        matches: members::matches(&args.shown.root, &config).map_err(wrong)?,
        ignored: config.ignored,
    };
    let results = Results::open(&args.shown.json, &[])?;
    results.tell(&args.shown.root, &right, || right.text())
}
