// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's half as text for a terminal.

use memferry::kernel::{Absence, MTCOPY, Migration, NO_MIGRATOR, Plan, REASONS};

use super::description::Status;
use crate::table::Table;
use crate::table::text::{Align, draw, wrap};
use crate::units::{about, short};

/// The settings and what was copied.
pub fn status(status: &Status, of: &Migration, columns: usize) -> String {
    let mut text = format!("Linux {}, with batch migration\n\n", status.kernel);
    text += &draw(&settings(of), columns, Align::Left);
    if let Some(dcbm) = &of.dcbm {
        for channel in &dcbm.channels {
            text += &(wrap(channel, columns, "  ") + "\n");
        }
    }
    match status.statistics.is_empty() {
        true => text += "No migrator has copied anything yet.\n",
        false => text += &draw(&statistics(status), columns, Align::Right),
    }
    for hint in hints(of) {
        text += &(wrap(&hint, columns, "  ") + "\n");
    }
    text
}

/// What is missing, and what works without it.
pub fn absence(status: &Status, absence: Absence, columns: usize) -> String {
    let lines = [
        format!(
            "Linux {}: no batch migration in this kernel: {absence}.",
            status.kernel
        ),
        format!("to have it: {}", absence.hint()),
        "without it: the kernel copies the pages that it migrates one by one, on one CPU. The mover in userspace works \
         (`memferry topology` says how well, `memferry bench move` how fast), and so does `memferry move --pid` on a \
         machine with two memory nodes."
            .to_owned(),
    ];
    let wrapped = lines.map(|line| wrap(&line, columns, "  ") + "\n");
    wrapped.concat()
}

/// What was set, one file a line.
pub fn changes(plan: &Plan, dry_run: bool) -> String {
    if plan.steps.is_empty() {
        return "Nothing to do: everything is set so already.\n".to_owned();
    }
    let lines = plan.steps.iter().map(|step| match (&step.before, dry_run) {
        (Some(before), false) => format!("{}: {before} -> {}\n", step.file, step.after),
        (Some(before), true) => format!("would set {}: {before} -> {}\n", step.file, step.after),
        (None, false) => format!("{}: cleared\n", step.file),
        (None, true) => format!("would clear {}\n", step.file),
    });
    lines.collect()
}

fn settings(of: &Migration) -> Table {
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let bracketed = |names: &[String], active: &str| {
        let name = |name: &String| match name == active {
            true => format!("[{name}]"),
            false => name.clone(),
        };
        names.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    let (min, max) = (of.min_batch_bytes, of.max_batch_bytes);
    let mut rows = vec![
        (
            "migrator",
            bracketed(&of.migrators.names, &of.migrators.active),
            "copies batches; none: folio by folio",
        ),
        ("reasons", of.reasons.to_string(), "for which it copies"),
        (
            "min_batch_bytes",
            short(min),
            "smaller ones are copied folio by folio",
        ),
        ("max_batch_bytes", short(max), "unmapped together at most"),
    ];
    if let Some(mtcopy) = &of.mtcopy {
        let choice =
            |choice: &memferry::topology::parse::Choice| bracketed(&choice.names, &choice.active);
        rows.extend([
            (
                "mtcopy lanes",
                mtcopy.lanes.to_string(),
                "parallel copiers, the caller included",
            ),
            (
                "mtcopy priority",
                choice(&mtcopy.priority),
                "of the other lanes",
            ),
            (
                "mtcopy placement",
                choice(&mtcopy.placement),
                "of lanes over last-level caches",
            ),
            (
                "mtcopy nontemporal",
                switch(mtcopy.nontemporal),
                "stores around the caches",
            ),
            (
                "mtcopy idle_only",
                switch(mtcopy.idle_only),
                "other lanes on idle CPUs only",
            ),
        ]);
    }
    if let Some(dcbm) = &of.dcbm {
        rows.extend([
            (
                "dcbm lanes",
                dcbm.lanes.to_string(),
                "DMA channels of a batch at most",
            ),
            (
                "dcbm timeout_ms",
                dcbm.timeout_ms.to_string(),
                "then a channel is not used any more",
            ),
            (
                "dcbm poll_below_bytes",
                short(dcbm.poll_below_bytes),
                "smaller ones are waited for awake",
            ),
        ]);
    }
    let rows = rows.into_iter();
    Table {
        title: "settings".to_owned(),
        caption: "/sys/kernel/mm/migration; `memferry kernel set` changes them".to_owned(),
        head: ["setting", "value", "meaning"].map(str::to_owned).to_vec(),
        rows: rows
            .map(|(name, value, meaning)| vec![name.to_owned(), value, meaning.to_owned()])
            .collect(),
    }
}

fn statistics(status: &Status) -> Table {
    let rows = status.statistics.iter().map(|row| {
        vec![
            format!("{}, {}", row.migrator, row.reason),
            row.batches.to_string(),
            row.folios.to_string(),
            about(row.bytes),
            row.fallbacks.to_string(),
            row.declined.to_string(),
        ]
    });
    Table {
        title: "what was copied".to_owned(),
        caption: "fallbacks: folios left to the plain copy; declined: batches refused whole; rows of zeros are left out"
            .to_owned(),
        head: ["migrator, reason", "batches", "folios", "bytes", "fallbacks", "declined"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    }
}

/// What could be done next.
fn hints(of: &Migration) -> Vec<String> {
    let mut hints = Vec::new();
    if of.migrators.active == NO_MIGRATOR {
        hints.push(
            "no migrator is active: `memferry kernel set --migrator kernel` copies whole batches in the calling task"
                .to_owned(),
        );
    }
    if !of.has(MTCOPY) {
        hints.push(
            "mtcopy, which copies on several CPUs, is not loaded: modprobe mtcopy (CONFIG_MIGRATOR_MTCOPY)".to_owned(),
        );
    }
    if of.quarantined_bytes > 0 {
        hints.push(format!(
            "{} bytes are kept from use, because a DMA channel does not answer and may still write there",
            of.quarantined_bytes
        ));
    }
    hints.push(format!("reasons there are: {}", REASONS.join(" ")));
    hints
}
