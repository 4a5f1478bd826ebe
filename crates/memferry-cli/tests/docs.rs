// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each link of a page to another file of the repository, or to a heading, leads there; and text has lines that a terminal shows whole.
//! Addresses of the internet are not looked at.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 5] = ["", "docs", "docs/design", "docs/measuring", "docs/results"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let of_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).expect("folder");
        let paths = entries.map(|entry| entry.expect("entry").path());
        paths.filter(is_page).collect::<Vec<_>>()
    };
    let mut pages: Vec<_> = FOLDERS.into_iter().flat_map(of_folder).collect();
    pages.push(root().join("lab/README.md"));
    pages
}

/// Targets of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// The name by which a heading is linked to: lower case, spaces as dashes, of the other signs only dashes and underscores.
fn anchor(heading: &str) -> String {
    let shown: String = heading.chars().filter(|c| !"`*#".contains(*c)).collect();
    let lower = shown.trim().to_lowercase().replace(' ', "-");
    let is_kept = |c: &char| c.is_alphanumeric() || "-_".contains(*c);
    lower.chars().filter(is_kept).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let (mut seen, mut dead) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("page");
        for link in links(&text) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("folder").join(file),
            };
            let is_there = match heading {
                "" => target.exists(),
                heading => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading))
                }
            };
            if !is_there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(seen > 300, "{seen} links found");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Results, the changelog and what the command generates have other rules.
#[test]
fn text_has_lines_of_120_characters_at_most() {
    let generated = ["CHANGELOG.md", "command.md", "memferryd.md"];
    let mut long = Vec::new();
    for page in pages() {
        let name = page.file_name().expect("name").to_string_lossy();
        if generated.contains(&&*name) || page.parent().expect("folder").ends_with("results") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("page");
        let mut is_fenced = false;
        // Rows of tables cannot be divided, and commands are copied.
        let lines = text.lines().filter(|line| {
            is_fenced ^= line.trim_start().starts_with("```");
            !is_fenced && !line.starts_with('|') && !line.starts_with("    ")
        });
        let lines = lines.filter(|line| line.chars().count() > 120);
        long.extend(lines.map(|line| format!("{}: {line}", page.display())));
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn headings_are_linked_to_as_they_are_shown() {
    for (heading, name) in [
        ("## Kernels and machines", "kernels-and-machines"),
        ("### THPs before Linux 7.2", "thps-before-linux-72"),
        (
            "# Tiering by itself: `memferryd`",
            "tiering-by-itself-memferryd",
        ),
    ] {
        assert_eq!(anchor(heading), name);
    }
}
