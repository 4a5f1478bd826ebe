// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's checkpatch.pl on every mail. What it finds and we mean to leave is listed with reasons
//! in `checkpatch.exceptions` beside them; an exception that is not needed any more is a finding.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

/// The file of the exceptions, beside the mails.
const LIST: &str = "checkpatch.exceptions";

/// A complaint.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    /// What checkpatch calls it: `LONG_LINE`.
    kind: String,
    /// The file, or nothing if it is about the log.
    path: String,
    /// All that it says, with the place.
    text: String,
}

/// A complaint that we do not heed.
#[derive(Debug)]
struct Exception {
    kind: String,
    /// `*`: whatever file; `-`: the log.
    path: String,
}

impl Exception {
    fn covers(&self, complaint: &Complaint) -> bool {
        let place = match self.path.as_str() {
            "*" => true,
            "-" => complaint.path.is_empty(),
            path => complaint.path == path,
        };
        place && self.kind == complaint.kind
    }
}

/// What checkpatch of the source tree `linux` finds in `mails`, but for the exceptions in the folder `hooks`. `signed`
/// tells whether they are signed off.
pub fn findings(
    hooks: &Path,
    linux: &Path,
    mails: &[PathBuf],
    signed: bool,
) -> Result<Vec<String>> {
    let list = hooks.join(LIST);
    let text = fs::read_to_string(&list)?;
    let exceptions = exceptions(&text)?;
    let mut used = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for mail in mails {
        let output = Command::new("perl")
            .arg(linux.join("scripts/checkpatch.pl"))
            .arg(format!("--root={}", linux.display()))
            .args([
                "--strict",
                "--terse",
                "--showfile",
                "--show-types",
                "--no-summary",
            ])
            .args(["--color=never", "--patch"])
            .arg(mail)
            // It would read a .checkpatch.conf there.
            .current_dir(linux)
            .output()
            .context("run perl; try: sudo apt-get install -y perl")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = parse(&said);
        // It ends with status 1 when it complains; anything else is an accident.
        let clean = output.status.success();
        if clean != complaints.is_empty() || !matches!(output.status.code(), Some(0 | 1)) {
            bail!(
                "checkpatch.pl on {} ended with {} and said: {}{}",
                mail.display(),
                output.status,
                said.trim(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        for complaint in complaints {
            if complaint.kind == "MISSING_SIGN_OFF" && !signed {
                continue;
            }
            let mut covered = false;
            for (exception, used) in exceptions.iter().zip(&mut used) {
                if exception.covers(&complaint) {
                    *used = true;
                    covered = true;
                }
            }
            if !covered {
                let name = mail.file_name().unwrap_or_default().to_string_lossy();
                findings.push(format!("{name}: {}", complaint.text));
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        findings.push(format!(
            "{LIST}: nothing needs the exception {} {}; remove it",
            exception.kind, exception.path
        ));
    }
    Ok(findings)
}

/// Reads the list: `KIND PATH REASON...`, one a line.
fn exceptions(text: &str) -> Result<Vec<Exception>> {
    let mut exceptions = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        if words.len() < 3 {
            bail!("{LIST}: KIND PATH REASON are wanted, and this lacks some: {line}");
        }
        exceptions.push(Exception {
            kind: words[0].to_owned(),
            path: words[1].to_owned(),
        });
    }
    Ok(exceptions)
}

/// Takes checkpatch's lines apart: `PATH:LINE: WARNING:KIND: TEXT`.
fn parse(text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for line in text.lines() {
        let Some((place, rest)) = ["ERROR:", "WARNING:", "CHECK:"]
            .iter()
            .find_map(|level| line.split_once(level))
        else {
            continue;
        };
        complaints.push(Complaint {
            kind: rest.split(':').next().unwrap_or_default().to_owned(),
            path: place
                .split(':')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            text: line.to_owned(),
        });
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "mm/migrator.c:12: WARNING:LONG_LINE: line length of 101 exceeds 100 columns\n\
                        :10: ERROR:MISSING_SIGN_OFF: Missing Signed-off-by: line(s)\n\
                        mm/pghot.c:7: CHECK:SPACING: No space is necessary after a cast\n\
                        total: 1 errors\n";

    #[test]
    fn complaints_have_a_kind_and_a_place() {
        let complaints = parse(SAID);
        assert_eq!(complaints.len(), 3);
        assert_eq!(complaints[0].kind, "LONG_LINE");
        assert_eq!(complaints[0].path, "mm/migrator.c");
        assert_eq!(complaints[1].kind, "MISSING_SIGN_OFF");
        assert_eq!(complaints[1].path, "");
        assert_eq!(complaints[2].kind, "SPACING");
    }

    #[test]
    fn an_exception_covers_its_kind_and_place_only() {
        let list = "# why\nLONG_LINE mm/migrator.c because\nMISSING_SIGN_OFF - because\n";
        let exceptions = exceptions(list).unwrap();
        let complaints = parse(SAID);
        assert!(exceptions[0].covers(&complaints[0]) && !exceptions[0].covers(&complaints[1]));
        assert!(exceptions[1].covers(&complaints[1]) && !exceptions[1].covers(&complaints[0]));
    }

    #[test]
    fn an_exception_needs_a_reason() {
        let error = exceptions("LONG_LINE mm/migrator.c\n").unwrap_err();
        assert!(error.to_string().contains("REASON"), "{error}");
    }
}
