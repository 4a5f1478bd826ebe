// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask series --check`: whether the mails could be sent. checkpatch, lints, and that a
//! kernel builds after each mail, so that a bisection finds one wherever it stops.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::build;
use crate::cache::{Cache, write_if_changed};
use crate::checkpatch;
use crate::host::{self, Need};
use crate::lint::Lint;
use crate::machine::Machine;
use crate::mail::{self, Mail};
use crate::mailbox::{self, Base, Sender};
use crate::profile::Profile;
use crate::source::Source;
use crate::tree::{HOOKS, Series, Tree};
use crate::ui::Ui;

/// What the lints need besides what builds a kernel.
const NEEDS: [Need; 2] = [("git", "git"), ("sparse", "sparse")];

/// The fragment with the series' own options.
const FRAGMENT: &str = "kernel/configs/memferry.config";

/// Prints what is found. Returns whether nothing is.
pub fn run(
    root: &Path,
    machine: &Machine,
    source: &Source,
    series: &Series,
    mails: &[Mail],
    quick: bool,
    ui: &Ui,
) -> Result<bool> {
    host::require(root, &NEEDS)?;
    let cache = Cache::open()?;
    let place = source.tree(&cache, &machine.kernel.arch, "check");
    let mut good = true;
    {
        let _lock = cache.lock(&place.file_name().unwrap_or_default().to_string_lossy(), ui)?;
        let tree = Tree::new(&place);
        if !tree.linux.exists() {
            source.unpack(&tree.linux, ui)?;
        }
        tree.set(&Series::none())?;
        let base = Base::copy(&tree.linux, source, series)?;
        let sender = Sender::of(root);
        let output = place.join("mails");
        let written = mailbox::write_mails(root, series, mails, &base, &sender, &output)?;
        ui.step("checkpatch");
        let findings = checkpatch::findings(root, &tree.linux, &written.mails, sender.signs)?;
        let signed = if sender.signs {
            ""
        } else {
            " (git knows no user.name and user.email, so they are not signed off)"
        };
        good &= report(
            &format!("checkpatch, {} mails{signed}", mails.len()),
            &findings,
        );

        let lint = Lint {
            root,
            tree: &tree,
            machine,
            series,
            ui,
        };
        good &= report(
            "sparse, W=1, kernel-doc, and symbols with the options off",
            &lint.findings()?,
        );
    }
    if !quick {
        let findings = builds(root, &cache, machine, source, series, mails, ui)?;
        good &= report("a kernel after each mail", &findings);
    }
    Ok(good)
}

/// Prints what the check `name` found; returns whether it is nothing.
fn report(name: &str, findings: &[String]) -> bool {
    if findings.is_empty() {
        println!("ok      {name}");
    } else {
        println!("FAILED  {name}");
        for finding in findings {
            println!("        {finding}");
        }
    }
    findings.is_empty()
}

/// The mails after which no kernel builds, with the reasons.
fn builds(
    root: &Path,
    cache: &Cache,
    machine: &Machine,
    source: &Source,
    series: &Series,
    mails: &[Mail],
    ui: &Ui,
) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (at, mail) in mails.iter().enumerate() {
        let count = at + 1;
        ui.step(&format!("a kernel after mail {count} of {}", mails.len()));
        let part = checkout_of(root, &mail::first(series, mails, count))?;
        // The last one is the release kernel of the lab.
        let from = if count == mails.len() {
            root
        } else {
            part.path()
        };
        if let Err(error) = build::image(cache, from, machine, Profile::Release, source, ui) {
            if crate::command::interrupted() {
                return Err(error);
            }
            findings.push(format!("after {HOOKS}/{}: {error:#}", mail.name));
        }
    }
    Ok(findings)
}

/// A folder that looks like the checkout `root` when it had but `series`.
fn checkout_of(root: &Path, series: &Series) -> Result<tempfile::TempDir> {
    let part = tempfile::tempdir()?;
    let place = part.path();
    for folder in ["core", "kernel/tree", HOOKS, "kernel/configs"] {
        fs::create_dir_all(place.join(folder))?;
    }
    for (path, content) in &series.files {
        write_if_changed(&place.join("kernel/tree").join(path), content)?;
    }
    let mut list = String::new();
    for hook in &series.hooks {
        write_if_changed(&place.join(HOOKS).join(&hook.name), &hook.text)?;
        list += &format!("[{}]\n{}\n", hook.part, hook.name);
    }
    fs::write(place.join(HOOKS).join("series"), list)?;
    let configs = root.join("kernel/configs");
    for entry in fs::read_dir(&configs).with_context(|| format!("list {}", configs.display()))? {
        let entry = entry?;
        fs::copy(
            entry.path(),
            place.join("kernel/configs").join(entry.file_name()),
        )?;
    }
    let text =
        fs::read_to_string(root.join(FRAGMENT)).with_context(|| format!("read {FRAGMENT}"))?;
    fs::write(place.join(FRAGMENT), known(&text, series))?;
    Ok(part)
}

/// The lines of the fragment `text` whose options `series` has already.
fn known(text: &str, series: &Series) -> String {
    let mut options = Vec::new();
    let hooks = series.hooks.iter().map(|hook| &hook.text);
    for content in hooks.chain(series.files.values()) {
        for line in String::from_utf8_lossy(content).lines() {
            let line = line.strip_prefix('+').unwrap_or(line);
            if let Some(name) = line.strip_prefix("config ") {
                options.push(name.trim().to_owned());
            }
        }
    }
    text.lines()
        .filter(|line| {
            line.strip_prefix("CONFIG_")
                .and_then(|rest| rest.split_once('='))
                .is_some_and(|(name, _)| options.iter().any(|option| option == name))
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Hook;

    #[test]
    fn a_kernel_in_between_is_asked_only_for_what_it_has() {
        let mut series = Series::none();
        let hook =
            b"x\n\nx\n\n--- a/mm/Kconfig\n+++ b/mm/Kconfig\n@@ -1 +1,2 @@\n config A\n+config B\n";
        series.hooks.push(Hook {
            part: "part".to_owned(),
            name: "01.patch".to_owned(),
            text: hook.to_vec(),
        });
        let kconfig = b"config C\n\tbool\n".to_vec();
        series.files.insert("lib/x/Kconfig".into(), kconfig);
        let text = "# all\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=y\n";
        assert_eq!(known(text, &series), "CONFIG_B=y\nCONFIG_C=m\n");
    }
}
