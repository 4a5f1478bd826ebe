// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry daemon`: the library does it; this reads the options and writes the log to stderr, where the journal takes it.

use std::path::Path;

use memferry_daemon::members::{self, Matches};
use memferry_daemon::{Config, DaemonError, Options};
use schemars::JsonSchema;
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::daemon::{DaemonArgs, Log, Only};
use crate::failure::{Cause, Failure};
use crate::file::{Content, File};
use crate::results::Results;
use crate::signals;
use crate::top::{StatusFile, text};
use crate::units::about;

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

/// The head of a history, before the records of a daemon: which memferry writes it, when it began, and on which machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DaemonHistoryHead")]
pub struct History {}

impl Content for History {
    const SCHEMA: &'static str = "memferry-history/1";

    /// Records follow.
    fn is_complete(&self) -> bool {
        false
    }
}

/// One line.
fn head(root: &Path) -> String {
    // A head of texts and numbers is always JSON.
    serde_json::to_string(&File::now(root, History {})).unwrap_or_default()
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
    let small = text::processes(of.small);
    let what = match (of.processes, of.small) {
        (0, 0) => "matches nothing now".to_owned(),
        (0, _) => format!("{small}, left alone: less than 16 MiB each"),
        (all, _) => {
            let names = of.names.join(", ");
            let rest = match of.small {
                0 => String::new(),
                _ => format!("; {small} of less than 16 MiB left alone"),
            };
            format!(
                "{}, {} in memory: {names}{rest}",
                text::processes(all),
                about(of.resident)
            )
        }
    };
    format!("  {}: {what}\n", of.group)
}

/// Runs the daemon, or checks its configuration.
pub fn run(args: &DaemonArgs) -> Result<(), Failure> {
    if matches!(args.only, Some(Only::Check)) {
        let wrong = |error| told("the configuration is not right", &error);
        let config = Config::read(&args.config).map_err(wrong)?;
        let right = Right {
            config: args.config.display().to_string(),
            groups: config.groups.len(),
            act: config.act,
            matches: members::matches(&args.shown.root, &config).map_err(wrong)?,
            ignored: config.ignored,
        };
        let results = Results::open(&args.shown.json, &[])?;
        return results.tell(&args.shown.root, &right, || right.text());
    }
    // The daemon handles signals itself: its settings come back before it ends.
    signals::end_the_command(false);
    let results = match args.once {
        true => Some(Results::open(&args.shown.json, &[])?),
        false => None,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level(args.log))
        .with_target(false)
        // They would be told on stderr as well, and a full disk behind it would end the daemon.
        .log_internal_errors(false)
        .with_ansi(false);
    // The journal has the time of each line.
    log.without_time().init();
    let options = Options {
        config: args.config.clone(),
        root: args.shown.root.clone(),
        dry_run: args.dry_run,
        once: args.once,
        head,
    };
    let status =
        memferry_daemon::run(&options).map_err(|error| told("the daemon ended", &error))?;
    signals::end_the_command(true);
    results.map_or(Ok(()), |results| {
        results.tell(&args.shown.root, &StatusFile { status: &status }, || {
            text::page(&status, None, &text::View::default())
        })
    })
}

fn level(log: Log) -> LevelFilter {
    match log {
        Log::Error => LevelFilter::ERROR,
        Log::Warn => LevelFilter::WARN,
        Log::Info => LevelFilter::INFO,
        Log::Debug => LevelFilter::DEBUG,
    }
}

/// What the daemon says, in this command's form.
pub fn told(what: &str, error: &DaemonError) -> Failure {
    let cause = match error {
        DaemonError::Config { .. } | DaemonError::ConfigFile { .. } | DaemonError::Names { .. } => {
            Cause::Configuration
        }
        DaemonError::OneTier | DaemonError::NoSource { .. } => Cause::Machine,
        _ => Cause::Other,
    };
    Failure::new(what, error, error.hint()).because_of(cause)
}
