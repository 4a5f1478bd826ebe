// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mails of the series: what each file of `HOOKS` says, which files of `kernel/tree`
//! and the core it adds, and whether every such file is in exactly one mail. Writing them out is
//! for `mailbox`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::tree::{HOOKS, Hook, Series};

/// The longest line that Linux's maintainers want in a log.
const COLUMNS: usize = 75;

/// One mail.
#[derive(Debug)]
pub struct Mail {
    /// The part of the series that it is posted with.
    pub part: String,
    /// Its file in `HOOKS`.
    pub name: String,
    /// The subject, without `[PATCH]`.
    pub subject: String,
    /// The text below it, without a sign-off.
    pub text: String,
    /// Files that Linux gains, at their paths there.
    pub adds: Vec<PathBuf>,
    /// What changes in Linux's own files.
    pub diff: String,
}

impl Mail {
    fn parse(hook: &Hook) -> Result<Self> {
        let name = &hook.name;
        let content = std::str::from_utf8(&hook.text)
            .with_context(|| format!("{HOOKS}/{name} is not UTF-8"))?;
        let mut lines = content.lines();
        let subject = lines.next().unwrap_or_default().trim().to_owned();
        if subject.is_empty() {
            bail!("{HOOKS}/{name}: the first line is empty; it must be the mail's subject");
        }
        let mut text = Vec::new();
        let mut adds = Vec::new();
        for line in lines {
            if line.starts_with("--- a/") || line.starts_with("diff ") {
                break;
            }
            if let Some(path) = line.strip_prefix("Adds:") {
                adds.push(PathBuf::from(path.trim()));
            } else {
                text.push(line);
            }
        }
        let diff = content
            .find("\n--- a/")
            .map_or("", |at| &content[at + 1..])
            .to_owned();
        let mail = Self {
            part: hook.part.clone(),
            name: name.clone(),
            subject,
            text: text.join("\n").trim().to_owned(),
            adds,
            diff,
        };
        mail.check_text()?;
        Ok(mail)
    }

    /// Refuses what would not survive being a mail.
    fn check_text(&self) -> Result<()> {
        let name = &self.name;
        if self.text.is_empty() {
            bail!("{HOOKS}/{name}: a subject but no text; say below it why the change is wanted");
        }
        for line in [self.subject.as_str()].into_iter().chain(self.text.lines()) {
            let columns = line.chars().count();
            if columns > COLUMNS {
                bail!(
                    "{HOOKS}/{name}: {columns} columns in the log, and {COLUMNS} are allowed: {line}"
                );
            }
            // `git am` takes these for the end of the log and the begin of the diff.
            if ["---", "+++ ", "@@ ", "diff -", "Index: "]
                .iter()
                .any(|start| line.starts_with(start))
            {
                bail!("{HOOKS}/{name}: part of a diff in the log: {line}");
            }
        }
        if self.diff.is_empty() && self.adds.is_empty() {
            bail!("{HOOKS}/{name}: neither a diff nor an `Adds:` line; it changes nothing");
        }
        Ok(())
    }
}

/// The mails of `series`, in order, with every file that it adds in exactly one of them.
pub fn read(series: &Series) -> Result<Vec<Mail>> {
    let mut mails = Vec::new();
    let mut owners: BTreeMap<PathBuf, String> = BTreeMap::new();
    for hook in &series.hooks {
        let name = &hook.name;
        let mail = Mail::parse(hook)?;
        for path in &mail.adds {
            if !series.files.contains_key(path) {
                bail!(
                    "{HOOKS}/{name} adds {}, which neither kernel/tree nor the core has; \
                     add the file or drop the line",
                    path.display()
                );
            }
            if let Some(other) = owners.insert(path.clone(), name.clone()) {
                bail!(
                    "{HOOKS}/{name} adds {}, and so does {other}; leave it in one",
                    path.display()
                );
            }
        }
        mails.push(mail);
    }
    let forgotten: Vec<_> = series
        .files
        .keys()
        .filter(|path| !owners.contains_key(*path))
        .map(|path| path.display().to_string())
        .collect();
    if !forgotten.is_empty() {
        bail!(
            "no mail of {HOOKS} adds {}; write an `Adds:` line for it",
            forgotten.join(", ")
        );
    }
    if mails.is_empty() {
        bail!("{HOOKS}/series names no mail");
    }
    Ok(mails)
}

/// The series up to and with its mail number `count`.
pub fn first(series: &Series, mails: &[Mail], count: usize) -> Series {
    let mut part = Series::none();
    part.hooks = series.hooks[..count].to_vec();
    for path in mails[..count].iter().flat_map(|mail| &mail.adds) {
        part.files.insert(path.clone(), series.files[path].clone());
    }
    part
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const GOOD: &str = "mm: Do it\n\nBecause.\n\nAdds: mm/new.c\n\n--- a/mm/old.c\n+++ b/mm/old.c\n@@ -1 +1 @@\n-a\n+b\n";

    fn series(hooks: &[(&str, &str)], files: &[&str]) -> Series {
        let mut series = Series::none();
        for (name, text) in hooks {
            series.hooks.push(Hook {
                part: "part".to_owned(),
                name: (*name).to_owned(),
                text: text.as_bytes().to_vec(),
            });
        }
        for path in files {
            series.files.insert(PathBuf::from(path), Vec::new());
        }
        series
    }

    fn error(hooks: &[(&str, &str)], files: &[&str]) -> String {
        read(&series(hooks, files)).unwrap_err().to_string()
    }

    #[test]
    fn a_mail_is_taken_apart() {
        let mails = read(&series(&[("01-it.patch", GOOD)], &["mm/new.c"])).unwrap();
        assert_eq!(mails.len(), 1);
        assert_eq!(mails[0].subject, "mm: Do it");
        assert_eq!(mails[0].text, "Because.");
        assert_eq!(mails[0].adds, [Path::new("mm/new.c")]);
        assert!(mails[0].diff.starts_with("--- a/mm/old.c\n+++ b/"));
        assert!(mails[0].diff.ends_with("+b\n"));
    }

    #[test]
    fn every_added_file_is_in_exactly_one_mail() {
        let one = [("01-it.patch", GOOD)];
        let text = error(&one, &["mm/new.c", "mm/forgotten.c"]);
        assert!(text.contains("mm/forgotten.c"), "{text}");
        let text = error(&one, &[]);
        assert!(text.contains("01-it.patch adds mm/new.c"), "{text}");
        let text = error(&[one[0], ("02-again.patch", GOOD)], &["mm/new.c"]);
        assert!(
            text.contains("02-again.patch") && text.contains("01-it.patch"),
            "{text}"
        );
    }

    #[test]
    fn a_log_that_a_mail_cannot_carry_is_refused() {
        let long = format!("mm: Do it\n\n{}\n\n--- a/x\n", "x".repeat(76));
        let text = error(&[("01-it.patch", &long)], &[]);
        assert!(text.contains("76 columns"), "{text}");
        let text = error(
            &[("01-it.patch", "mm: Do it\n\nSo:\n@@ -1 +1 @@\n\n--- a/x\n")],
            &[],
        );
        assert!(text.contains("part of a diff"), "{text}");
        let text = error(&[("01-it.patch", "mm: Do it\n\n--- a/x\n")], &[]);
        assert!(text.contains("no text"), "{text}");
    }

    #[test]
    fn the_first_mails_bring_only_their_own_files() {
        let second = "mm: More\n\nBecause.\n\nAdds: mm/more.c\n";
        let series = series(
            &[("01-it.patch", GOOD), ("02-more.patch", second)],
            &["mm/new.c", "mm/more.c"],
        );
        let mails = read(&series).unwrap();
        let part = first(&series, &mails, 1);
        assert_eq!(part.hooks.len(), 1);
        assert_eq!(
            part.files.keys().collect::<Vec<_>>(),
            [Path::new("mm/new.c")]
        );
    }

    #[test]
    fn the_mails_of_this_checkout_are_complete() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        read(&Series::read(&root).unwrap()).unwrap();
    }
}
