// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hot-page tracking in `memferry kernel`: its part of `status`, and `heat`, schema `memferry-heat/1`.
use std::cmp::Reverse;
use std::collections::BTreeMap;

use memferry_linux::kernel::Absence;
use memferry_linux::kernel::pghot::{Heat, Pghot, SECTION_PAGES, SectionHeat};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::kernel::HeatArgs;
use crate::failure::{Failure, OrFail};
use crate::file::Content;
use crate::results::Results;
use crate::table::text::{Align, draw, paragraphs};
use crate::table::{Table, counted, or_dash, setting};
use crate::ui::Ui;
use crate::units::about;

/// Hot-page tracking as `memferry kernel status --json` has it.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Tracking {
    available: bool,
    /// Null if available; else the reason.
    why: Option<String>,
    /// Null if available; else what to do.
    next: Option<String>,
    sources: Vec<String>,
    target_node: Option<i64>,
    rate_limit_mbps: Option<u64>,
    /// After how long without an access a page counts as not in use.
    window_ms: Option<u64>,
    /// Of the records; null if debugfs does not tell.
    format: Option<String>,
    /// Memory that they take; null likewise.
    record_bytes: Option<u64>,
    /// Files of debugfs, each of one value.
    tuning: BTreeMap<String, String>,
    /// What the file of debugfs of this name says.
    status: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
}

impl Tracking {
    /// The tracking, or why there is none.
    pub fn new(found: &Result<Pghot, Absence>) -> Self {
        match found {
            Err(absence) => Self {
                why: Some(absence.to_string()),
                next: Some(absence.hint()),
                ..Self::default()
            },
            Ok(of) => Self {
                available: true,
                why: None,
                next: None,
                sources: of.enabled(),
                target_node: Some(of.target_node),
                rate_limit_mbps: Some(of.rate_limit_mbps),
                window_ms: of.window_ms,
                format: of.format().map(str::to_owned),
                record_bytes: of.record_bytes(),
                tuning: of.tuning.iter().cloned().collect(),
                status: of.status.clone(),
                counters: of.counters.clone(),
            },
        }
    }
}

/// The part of `memferry kernel status`.
pub fn text(found: &Result<Pghot, Absence>, columns: usize) -> String {
    let of = match found {
        Ok(of) => of,
        Err(absence) => {
            let lines = [
                format!("no hot-page tracking: {absence}."),
                format!("to have it: {}", absence.hint()),
                "without it: kernel.numa_balancing=2 promotes by hint faults, page by page (`memferry bench promote` says how \
                 soon)."
                    .to_owned(),
            ];
            return paragraphs(lines, columns);
        }
    };
    let mut text = draw(&settings(of), columns, Align::Left);
    let counters = (of.counters.iter()).map(|(name, count)| (name.clone(), count.to_string()));
    let told = (of.status.iter())
        .filter(|(name, _)| !["format", "record_bytes"].contains(&name.as_str()))
        .map(|(name, count)| (name.clone(), count.clone()));
    let counters: Vec<Vec<String>> = (counters.chain(told))
        .filter(|(_, count)| count != "0")
        .map(|(name, count)| vec![name, count])
        .collect();
    match counters.is_empty() {
        true => text += "Nothing was recorded, promoted or demoted yet.\n",
        false => {
            let table = Table::new(
                "what was recorded and promoted",
                "/proc/vmstat and debugfs pghot/status; counters of zero are left out",
                &["counter", "since boot"],
                counters,
            );
            text += &draw(&table, columns, Align::Right);
        }
    }
    if of.sources == 0 {
        let hint = "no source is on: `memferry kernel set --pghot-sources pgtscan` lets the kernel look for hot pages";
        text += &paragraphs([hint], columns);
    }
    if of.tuning.is_empty() {
        let hint = "debugfs pghot/ cannot be read: be root, and mount debugfs on /sys/kernel/debug";
        text += &paragraphs([hint], columns);
    }
    text
}

fn settings(of: &Pghot) -> Table {
    let sources = match of.enabled() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(" "),
    };
    let (target, limit) = (of.target_node.to_string(), of.rate_limit_mbps.to_string());
    let nowhere = "where pages go of which no better node is known";
    let mut rows = vec![
        setting("enabled_sources", sources, "what reports accesses"),
        setting("target_nid", target, nowhere),
        setting("promote_rate_limit_MBps", limit, "promoted at most"),
    ];
    if let Some(ms) = of.window_ms {
        let meaning = "without an access: not in use";
        rows.push(setting("promote_freq_window_ms", ms.to_string(), meaning));
    }
    if let Some(format) = of.format() {
        rows.push(setting("format", format, "of the records, set at boot"));
    }
    if let Some(bytes) = of.record_bytes() {
        rows.push(setting("records", about(bytes), "memory that they take"));
    }
    rows.extend(of.tuning.iter().map(|(name, text)| {
        let text = if text.is_empty() { "none" } else { text };
        setting(name, text, "debugfs")
    }));
    Table::new(
        "hot-page tracking",
        "vm.pghot_*, which `memferry kernel set` changes, and debugfs pghot/",
        &["setting", "value", "meaning"],
        rows,
    )
}

/// `memferry kernel heat`.
pub fn heat(args: &HeatArgs) -> Result<(), Failure> {
    let results = Results::open(&args.shown.json, &[])?;
    let root = &args.shown.root;
    let read = Heat::read_from(root).or_fail(
        "cannot read the heat of memory",
        "be root; if the text is not understood, use the memferry of this kernel's series",
    )?;
    let Some(mut heat) = read else {
        return Err(absent(args)?);
    };
    heat.sections
        .retain(|section| args.node.is_none_or(|node| node == section.node));
    let file = HeatFile { heat };
    results.tell(root, &file, || {
        heat_text(file.heat.clone(), args.most, Ui::columns())
    })
}

/// Why there is no summary.
fn absent(args: &HeatArgs) -> Result<Failure, Failure> {
    let what = "this kernel tells no heat of memory";
    let pghot = Pghot::read_from(&args.shown.root).map_err(super::unreadable)?;
    Ok(match pghot {
        Err(absence) => Failure::new(what, absence, absence.hint()),
        Ok(_) => Failure::new(
            what,
            "it tracks hot pages, but debugfs pghot/heat is not there",
            "be root, and mount debugfs: mount -t debugfs debugfs /sys/kernel/debug",
        ),
    })
}

/// The per-section summary, debugfs `pghot/heat`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Heat")]
pub struct HeatFile {
    #[serde(flatten)]
    heat: Heat,
}

impl Content for HeatFile {
    const SCHEMA: &'static str = "memferry-heat/1";
}

fn heat_text(mut heat: Heat, most: usize, columns: usize) -> String {
    if heat.sections.is_empty() {
        return "No section of memory has records: no source is on, or no such node has any.\n"
            .to_owned();
    }
    heat.sections
        .sort_by_key(|of| (Reverse((of.hot, of.known)), of.section));
    let sum = |figure: fn(&SectionHeat) -> u64| heat.sections.iter().map(figure).sum::<u64>();
    let (hot, known) = (sum(|of| of.hot), sum(|of| of.known));
    let total = heat.sections.len();
    let percent = |pages: u64| pages as f64 * 100.0 / SECTION_PAGES as f64;
    let line = |of: &SectionHeat| {
        let mut line = vec![
            format!("{:#x}", of.section << 27),
            of.node.to_string(),
            format!("{} ({:.0}%)", of.hot, percent(of.hot)),
            format!("{} ({:.0}%)", of.known, percent(of.known)),
            or_dash(of.majority_node),
        ];
        line.extend(of.by_frequency.iter().map(u64::to_string));
        line
    };
    let mut head = vec!["address", "node", "hot", "known", "used from"];
    head.extend(heat.frequencies.iter().map(String::as_str));
    let table = Table::new(
        format!(
            "{} with records: {hot} hot pages, {known} of which an access is known",
            counted(total, "section")
        ),
        "a section is 128 MiB of physical memory; used from: the node that most accesses come from",
        &head,
        heat.sections.iter().take(most).map(line).collect(),
    );
    let mut text = draw(&table, columns, Align::Right);
    if total > most {
        text += &format!("{} more: --most {total}\n", total - most);
    }
    text
}
