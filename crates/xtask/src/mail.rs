// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mail of the series: what its file of `kernel/hooks` says, and whether it would survive being one; and that every file
//! that the series adds is in exactly one mail. Writing them out is for `mailbox`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::tree::Series;

/// The longest line that Linux's maintainers want in a log.
const COLUMNS: usize = 75;

/// One mail.
#[derive(Clone, Debug)]
pub struct Mail {
    /// The `[PART]` of `series` that it belongs to, which is posted with a cover letter of its own.
    pub part: String,
    /// Its file in the folder of hooks.
    pub name: String,
    /// All of that file.
    pub file: String,
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
    /// Takes the content of the file `name` apart.
    pub fn new(part: &str, name: &str, file: String) -> Self {
        let mut lines = file.lines();
        let subject = lines.next().unwrap_or_default().trim().to_owned();
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
        let diff = file.find("\n--- a/").map_or("", |at| &file[at + 1..]);
        Self {
            part: part.to_owned(),
            name: name.to_owned(),
            subject,
            text: text.join("\n").trim().to_owned(),
            adds,
            diff: diff.to_owned(),
            file,
        }
    }

    /// Refuses what would not survive being a mail.
    fn check_text(&self, hooks: &str) -> Result<()> {
        let name = &self.name;
        if self.subject.is_empty() {
            bail!("{hooks}/{name}: the first line is empty; it must be the mail's subject");
        }
        if self.text.is_empty() {
            bail!("{hooks}/{name}: a subject but no text; say below it why the change is wanted");
        }
        for line in [self.subject.as_str()].into_iter().chain(self.text.lines()) {
            let columns = line.chars().count();
            if columns > COLUMNS {
                bail!(
                    "{hooks}/{name}: {columns} columns in the log, and {COLUMNS} are allowed: {line}"
                );
            }
            // `git am` takes these for the end of the log and the begin of the diff.
            if ["---", "+++ ", "@@ ", "diff -", "Index: "]
                .iter()
                .any(|start| line.starts_with(start))
            {
                bail!("{hooks}/{name}: part of a diff in the log: {line}");
            }
        }
        if self.diff.is_empty() && self.adds.is_empty() {
            bail!("{hooks}/{name}: neither a diff nor an `Adds:` line; it changes nothing");
        }
        Ok(())
    }
}

/// Refuses a series that cannot be sent: each mail must survive being one, and every file that is added be in exactly
/// one of them.
pub fn check(series: &Series) -> Result<()> {
    let hooks = &series.hooks;
    let mut owners: BTreeMap<&PathBuf, &str> = BTreeMap::new();
    for mail in &series.mails {
        let name = &mail.name;
        mail.check_text(hooks)?;
        for path in &mail.adds {
            if !series.files.contains_key(path) {
                bail!(
                    "{hooks}/{name} adds {}, which neither kernel/tree nor the core has; \
                     add the file or drop the line",
                    path.display()
                );
            }
            if let Some(other) = owners.insert(path, name) {
                bail!(
                    "{hooks}/{name} adds {}, and so does {other}; leave it in one",
                    path.display()
                );
            }
        }
    }
    let forgotten: Vec<_> = series
        .files
        .keys()
        .filter(|path| !owners.contains_key(path))
        .map(|path| path.display().to_string())
        .collect();
    if !forgotten.is_empty() {
        bail!(
            "no mail of {hooks} adds {}; write an `Adds:` line for it",
            forgotten.join(", ")
        );
    }
    if series.mails.is_empty() {
        bail!("{hooks}/series names no mail");
    }
    Ok(())
}

/// The series up to and with its mail number `count`.
pub fn first(series: &Series, count: usize) -> Series {
    let mails = series.mails[..count].to_vec();
    let adds = mails.iter().flat_map(|mail| &mail.adds);
    let files = adds.map(|path| (path.clone(), series.files[path].clone()));
    Series {
        files: files.collect(),
        mails,
        hooks: series.hooks.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::Base;

    const GOOD: &str = "mm: Do it\n\nBecause.\n\nAdds: mm/new.c\n\n--- a/mm/old.c\n+++ b/mm/old.c\n@@ -1 +1 @@\n-a\n+b\n";

    fn series(hooks: &[(&str, &str)], files: &[&str]) -> Series {
        let mut series = Series::none();
        for (name, text) in hooks {
            let mail = Mail::new("part", name, (*text).to_owned());
            series.mails.push(mail);
        }
        for path in files {
            series.files.insert(PathBuf::from(path), Vec::new());
        }
        series
    }

    fn error(hooks: &[(&str, &str)], files: &[&str]) -> String {
        check(&series(hooks, files)).unwrap_err().to_string()
    }

    #[test]
    fn a_mail_is_taken_apart() {
        let series = series(&[("01-it.patch", GOOD)], &["mm/new.c"]);
        check(&series).unwrap();
        let mails = series.mails;
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
        check(&series).unwrap();
        let part = first(&series, 1);
        assert_eq!(part.mails.len(), 1);
        assert_eq!(
            part.files.keys().collect::<Vec<_>>(),
            [Path::new("mm/new.c")]
        );
    }

    #[test]
    fn the_mails_of_this_checkout_are_complete() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for base in fs_err::read_dir(root.join("kernel/hooks")).unwrap() {
            let name = base.unwrap().file_name().into_string().unwrap();
            check(&Series::read(&root, &Base::read(&root, &name).unwrap()).unwrap()).unwrap();
        }
    }
}
