// SPDX-License-Identifier: MIT OR Apache-2.0
//! A move of a process's pages as text for a terminal.

use super::description::{Description, OnNode, OneProcess, Pages};
use crate::table::Table;
use crate::table::text::{Align, draw, paragraphs};
use crate::units::about;
use memferry_output::printable::printable;

/// Where the pages lie, or what became of them.
pub fn account(of: &Description, columns: usize) -> String {
    let whose = match (&of.cgroup, &of.processes[..]) {
        (None, [one]) => format!("process {} ({})", one.pid, name(one)),
        (cgroup, all) => {
            let cgroup = cgroup.as_deref().unwrap_or_default();
            let plural = if all.len() == 1 { "" } else { "es" };
            format!(
                "cgroup {}, {} process{plural}",
                printable(cgroup),
                all.len()
            )
        }
    };
    let mut text = format!(
        "{whose}: {} present in {} mappings\n",
        about(of.resident_bytes),
        of.mappings
    );
    if of.processes.len() > 1 {
        text += &("\n".to_owned() + &draw(&processes(of), columns, Align::Left) + "\n");
    }
    for one in &of.refused {
        text += &format!("process {} is not in this account: {}\n", one.pid, one.why);
    }
    if of.dry_run {
        return text + "\n" + &draw(&nodes(of), columns, Align::Left);
    }
    let seconds = of.seconds.unwrap_or(0.0);
    let speed = of.moved.bytes as f64 / seconds.max(1e-9) / 1e9;
    let mut lines = vec![format!(
        "moved to node {}: {}, in {seconds:.2} s, {speed:.2} GB/s",
        of.to,
        pages(&of.moved)
    )];
    lines.push(format!("already there: {}", pages(&of.already_there)));
    if of.elsewhere.bytes > 0 {
        lines.push(format!(
            "left alone on other nodes: {}",
            pages(&of.elsewhere)
        ));
    }
    text += &paragraphs(lines, columns);
    if !of.stayed.is_empty() {
        text += &("\n".to_owned() + &draw(&stayed(of), columns, Align::Left));
    }
    text
}

/// A name is the process's own choice.
fn name(of: &OneProcess) -> String {
    printable(of.name.as_deref().unwrap_or("?"))
}

fn processes(of: &Description) -> Table {
    let row = |one: &OneProcess| {
        let mut row = vec![one.pid.to_string(), name(one), about(one.resident_bytes)];
        if !of.dry_run {
            row.extend([about(one.moved_bytes), about(one.stayed_bytes)]);
            row.push(one.end.unwrap_or_default().to_owned());
        }
        row
    };
    let head = ["pid", "name", "present", "moved", "stayed", "ended early"];
    Table::new(
        "its processes",
        "a page that two of them map counts twice",
        &head[..if of.dry_run { 3 } else { 6 }],
        of.processes.iter().map(row).collect(),
    )
}

fn pages(of: &Pages) -> String {
    format!("{} ({} pages)", about(of.bytes), of.pages)
}

fn nodes(of: &Description) -> Table {
    let what = |node| match (node == of.to, of.from) {
        (true, _) => "there already".to_owned(),
        (false, Some(from)) if node != from => "left alone".to_owned(),
        _ => format!("would move to node {}", of.to),
    };
    let row = |of: &OnNode| {
        vec![
            of.node.to_string(),
            about(of.all.bytes),
            of.all.pages.to_string(),
            what(of.node),
        ]
    };
    Table::new(
        "where its pages lie",
        "a THP counts as one page",
        &["node", "bytes", "pages", ""],
        of.nodes.iter().map(row).collect(),
    )
}

fn stayed(of: &Description) -> Table {
    let rows = of.stayed.iter().map(|row| {
        let name = match row.errno {
            "errno" => format!("errno {}", row.number),
            name => name.to_owned(),
        };
        vec![
            name,
            row.all.pages.to_string(),
            about(row.all.bytes),
            row.why.to_owned(),
        ]
    });
    Table::new(
        "what stayed on a wrong node",
        "by what move_pages(2) said of the page",
        &["errno", "pages", "bytes", "why"],
        rows.collect(),
    )
}
