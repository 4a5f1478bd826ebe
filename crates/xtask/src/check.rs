// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask series --check`: whether the mails could be sent. checkpatch, lints, and that a
//! kernel builds after each mail, so that a bisection finds one wherever it stops.

use anyhow::Result;

use crate::build::{self, Inputs};
use crate::checkpatch;
use crate::command;
use crate::host::{self, Need};
use crate::lab::Lab;
use crate::lint::Lint;
use crate::mail;
use crate::mailbox::{self, Originals, Sender};
use crate::profile::Profile;
use crate::tree::{Files, Series, Tree};
use crate::ui::step;

/// What the lints need besides what builds a kernel.
const NEEDS: [Need; 3] = [
    ("sparse", "sparse"),
    ("sphinx-build", "python3-sphinx"),
    ("/usr/lib/python3/dist-packages/yaml", "python3-yaml"),
];

/// The fragment with the series' own options.
const FRAGMENT: &str = "memferry";

/// Prints what is found. Returns whether nothing is.
pub fn run(lab: &Lab, series: &Series, quick: bool) -> Result<bool> {
    let root = &lab.root;
    host::require(root, &NEEDS)?;
    let mut good = true;
    {
        let tree = Tree::open(lab, "check")?;
        tree.set(&Series::none())?;
        let base = Originals::extract(&lab.source, series)?;
        let sender = Sender::of(root);
        let output = tree.state.with_file_name("mails");
        let written = mailbox::write_mails(root, series, &base, &sender, &output)?;
        step!("checkpatch");
        let findings = checkpatch::findings(
            &root.join(&series.hooks),
            &tree.linux,
            &written.mails,
            sender.signs,
        )?;
        let signed = if sender.signs {
            ""
        } else {
            " (git knows no user.name and user.email, so they are not signed off)"
        };
        good &= report(
            &format!("checkpatch, {} mails{signed}", series.mails.len()),
            &findings,
        );

        let lint = Lint {
            root,
            base: &lab.base,
            tree: &tree,
            machine: &lab.machine,
            series,
        };
        good &= report(
            "sparse, W=1, kernel-doc, htmldocs, and symbols with the options off",
            &lint.findings()?,
        );
    }
    if !quick {
        let findings = builds(lab, series)?;
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
fn builds(lab: &Lab, series: &Series) -> Result<Vec<String>> {
    let fragment = build::fragment(&lab.root, FRAGMENT)?;
    let mut findings = Vec::new();
    for (at, mail) in series.mails.iter().enumerate() {
        let count = at + 1;
        step!("a kernel after mail {count} of {}", series.mails.len());
        let built = if count == series.mails.len() {
            // The release kernel of the lab.
            build::image(lab, Profile::Release)
        } else {
            let series = mail::first(series, count);
            let mut options = build::options(&lab.root, &lab.base, &lab.machine, Profile::Vanilla)?;
            build::parse(&known(&fragment, &series), &mut options);
            let inputs = Inputs {
                series,
                options,
                modules: Files::new(),
            };
            // In the tree of Linux as it is, which the first mails change little of.
            build::image_of(lab, Profile::Vanilla, &inputs)
        };
        if let Err(error) = built {
            if command::interrupted() {
                return Err(error);
            }
            findings.push(format!("after {}/{}: {error:#}", series.hooks, mail.name));
        }
    }
    Ok(findings)
}

/// The lines of the fragment `text` whose options `series` has already.
fn known(text: &str, series: &Series) -> String {
    let mut options = Vec::new();
    let diffs = series.mails.iter().map(|mail| mail.diff.as_bytes());
    for content in diffs.chain(series.files.values().map(Vec::as_slice)) {
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
    use crate::mail::Mail;

    #[test]
    fn a_kernel_in_between_is_asked_only_for_what_it_has() {
        let mut series = Series::none();
        let hook =
            "x\n\nx\n\n--- a/mm/Kconfig\n+++ b/mm/Kconfig\n@@ -1 +1,2 @@\n config A\n+config B\n";
        series
            .mails
            .push(Mail::new("part", "01.patch", hook.to_owned()));
        let kconfig = b"config C\n\tbool\n".to_vec();
        series.files.insert("lib/x/Kconfig".into(), kconfig);
        let text = "# all\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=y\n";
        assert_eq!(known(text, &series), "CONFIG_B=y\nCONFIG_C=m\n");
    }
}
