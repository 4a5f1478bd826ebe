// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's half as text for a terminal.

use memferry_linux::kernel::{
    AUTO, Absence, DEFAULT, Learnt, MTCOPY, Migration, NO_MIGRATOR, NotTold, ReasonChoice,
    Statistics,
};

use super::description::{Change, Changes, Kept};
use super::persist::Persisted;
use crate::restore::Left;
use crate::table::text::{Align, draw, paragraphs, wrap};
use crate::table::{Table, setting};
use crate::units::{about, short};

/// The settings and what was copied.
pub fn status(
    kernel: &str,
    of: &Migration,
    learnt: &Result<Vec<Learnt>, NotTold>,
    columns: usize,
) -> String {
    let mut text = format!("Linux {kernel}, with batch migration\n\n");
    text += &draw(&settings(of), columns, Align::Left);
    let channels = of.dcbm.iter().flat_map(|dcbm| &dcbm.channels);
    text += &paragraphs(channels, columns);
    text += &draw(&reasons(of), columns, Align::Left);
    text += &draw(&statistics(of), columns, Align::Right);
    if let Some(rows) = learnt.as_ref().ok().filter(|rows| !rows.is_empty()) {
        text += &draw(&of_auto(rows), columns, Align::Left);
    }
    text + &paragraphs(hints(of, learnt), columns)
}

/// What is missing, and what works without it.
pub fn absence(kernel: &str, absence: Absence, columns: usize) -> String {
    let lines = [
        format!("Linux {kernel}: no batch migration in this kernel: {absence}."),
        format!("to have it: {}", absence.hint()),
        "without it: the kernel copies the pages that it migrates one by one, on one CPU. The mover in userspace works \
         (`memferry topology` says how well, `memferry bench move` how fast), and so does `memferry move --pid` on a \
         machine with two memory nodes."
            .to_owned(),
    ];
    paragraphs(lines, columns)
}

/// What was set, one file a line; then what was written for the next boot.
pub fn changes(of: &Changes) -> String {
    if of.steps.is_empty() && of.files.is_empty() {
        return "Nothing to do: everything is set so already.\n".to_owned();
    }
    let would = if of.dry_run { "would set " } else { "" };
    let line = |step: &Change| {
        let (before, after) = (on_one_line(step.before), on_one_line(step.after));
        format!("{would}{}: {before} -> {after}\n", step.file)
    };
    let steps: String = of.steps.iter().map(line).collect();
    let file = |file: &Kept| match (file.text, of.dry_run) {
        (Some(text), true) => format!("would write {}:\n{text}", file.path),
        (Some(_), false) => format!("wrote {}\n", file.path),
        (None, true) => format!("would remove {}\n", file.path),
        (None, false) => format!("removed {}\n", file.path),
    };
    of.files
        .iter()
        .map(file)
        .fold(steps, |all, line| all + &line)
}

/// Lines of `reasons` with commas between.
fn on_one_line(text: &str) -> String {
    text.replace('\n', ", ")
}

/// What a benchmark changed and has not set back.
pub fn left(of: &Left, columns: usize) -> String {
    let by = of.arguments.join(" ");
    let what = match of.running {
        true => "runs and has changed settings; it sets them back at its end.",
        false => {
            "was killed and left settings changed; `memferry kernel set --restore` sets them back:"
        }
    };
    let mut text = wrap(&format!("`memferry {by}` {what}"), columns, "  ");
    for step in &of.steps {
        let (now, before) = (on_one_line(&step.now), on_one_line(&step.before));
        text += &format!("\n  {}: {now}, before {before}", step.file);
    }
    text + "\n\n"
}

/// Whether the settings come back at boot.
pub fn persisted(of: Persisted, columns: usize) -> String {
    let line = match of {
        Persisted::Yes => "persisted: the settings come back at boot as they are now",
        Persisted::Otherwise => {
            "persisted otherwise: not all settings come back at boot as they are now; `memferry kernel set --persist --dry-run` \
             shows what is missing, and without --dry-run mends it"
        }
        Persisted::No => {
            "not persisted: the settings last until the next boot; `memferry kernel set --persist` has them come back"
        }
    };
    paragraphs([line], columns)
}

fn settings(of: &Migration) -> Table {
    let name = |name: &String| match *name == of.migrators.active {
        true => format!("[{name}]"),
        false => name.clone(),
    };
    let migrators: Vec<String> = of.migrators.names.iter().map(name).collect();
    let lanes =
        |name, lanes: Option<u64>, meaning| Some(setting(name, lanes?.to_string(), meaning));
    let dcbm = of.dcbm.as_ref().map(|dcbm| dcbm.lanes);
    let rows = [
        Some(setting(
            "migrator",
            migrators.join(" "),
            "copies batches; none: folio by folio",
        )),
        Some(setting(
            "max_batch_bytes",
            short(of.max_batch_bytes),
            "unmapped together at most",
        )),
        lanes(
            "mtcopy lanes",
            of.lanes,
            "CPUs of a batch at most, the caller's included",
        ),
        lanes("dcbm lanes", dcbm, "DMA channels of a batch at most"),
    ];
    Table::new(
        "settings",
        "/sys/kernel/mm/migration; `memferry kernel set` changes them",
        &["setting", "value", "meaning"],
        rows.into_iter().flatten().collect(),
    )
}

fn reasons(of: &Migration) -> Table {
    let row = |row: &ReasonChoice| {
        let copies = match &*row.choice {
            DEFAULT => of.migrators.active.clone(),
            _ => row.words(),
        };
        vec![row.reason.clone(), row.choice.clone(), copies]
    };
    Table::new(
        "what copies for each reason to migrate",
        "`memferry kernel set --reason REASON=CHOICE` changes it; default: what migrator says; only: no CPU copies instead",
        &["reason", "choice", "copies"],
        of.reasons.iter().map(row).collect(),
    )
}

fn of_auto(rows: &[Learnt]) -> Table {
    let row = |row: &Learnt| {
        vec![
            row.reason.clone(),
            row.folio.clone(),
            short(row.bytes),
            row.choice.clone(),
            format!("{:.2}x", row.gain),
            row.batches.to_string(),
            format!(
                "{:.0}%",
                row.plain as f64 * 100.0 / row.batches.max(1) as f64
            ),
        ]
    };
    Table::new(
        "what auto has learnt",
        "bytes: batches of at most so many; gain: how many times faster than the plain copy; plain: share of the batches that were \
         copied plainly",
        &[
            "reason", "folio", "bytes", "choice", "gain", "batches", "plain",
        ],
        rows.iter().map(row).collect(),
    )
}

fn statistics(of: &Migration) -> Table {
    let row = |row: &Statistics| {
        vec![
            row.migrator.clone(),
            row.folios.to_string(),
            about(row.bytes),
            row.fallbacks.to_string(),
            row.declined.to_string(),
            row.refused.to_string(),
        ]
    };
    Table::new(
        "what was copied",
        "fallbacks: folios left to the plain copy; declined: batches refused whole; refused: folios that stay, as no CPU may copy \
         them",
        &[
            "migrator",
            "folios",
            "bytes",
            "fallbacks",
            "declined",
            "refused",
        ],
        of.statistics.iter().map(row).collect(),
    )
}

/// What could be done next.
fn hints(of: &Migration, learnt: &Result<Vec<Learnt>, NotTold>) -> Vec<String> {
    let mut hints = Vec::new();
    let copies = |row: &ReasonChoice, name: &str| match &*row.choice {
        DEFAULT => of.migrators.active == name,
        choice => choice == name,
    };
    if of.reasons.iter().all(|row| copies(row, NO_MIGRATOR)) {
        hints.push(
            "no migrator is active: `memferry kernel set --migrator auto` copies each batch by what is fastest here"
                .to_owned(),
        );
    }
    if of.reasons.iter().any(|row| copies(row, AUTO)) {
        match learnt {
            Err(why) => hints.push(format!(
                "what auto has learnt is not shown: {why}; to see it: {}",
                why.hint()
            )),
            Ok(rows) if rows.is_empty() => hints.push("auto has learnt nothing yet".to_owned()),
            Ok(_) => {}
        }
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
    hints
}
