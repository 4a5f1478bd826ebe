// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the series as files that `git send-email` sends and `git am` applies: for each part a
//! folder with a cover letter and a mail per change. git makes them, in a temporary repository of only those files of Linux
//! that the series touches. The same inputs give the same bytes.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cache::write_if_changed;
use crate::command;
use crate::mail::Mail;
use crate::source::{self, Source};
use crate::tree::{self, Files, Series};
use crate::ui::step;

/// Stands in hooks to MAINTAINERS for the one who sends the mails.
const MAINTAINER: &str = "+M:\tSENDER\n";

/// Whom the mails are from when git does not know. Nobody can sign off with that.
const NOBODY: [&str; 2] = ["Memferry", "nobody@memferry.invalid"];

/// Who sends.
pub struct Sender {
    pub name: String,
    pub address: String,
    /// Whether it is a person, so that the mails get a `Signed-off-by`.
    pub signs: bool,
}

impl Sender {
    /// Who git says is working in the checkout `root`.
    pub fn of(root: &Path) -> Self {
        let get = |key| {
            let mut command = Command::new("git");
            command.arg("-C").arg(root).args(["config", key]);
            command::first_line(&mut command).unwrap_or_default()
        };
        let (name, address) = (get("user.name"), get("user.email"));
        if name.is_empty() || address.is_empty() {
            return Self {
                name: NOBODY[0].to_owned(),
                address: NOBODY[1].to_owned(),
                signs: false,
            };
        }
        Self {
            name,
            address,
            signs: true,
        }
    }
}

/// Linux's own files that the mails change, as they are before.
pub struct Originals {
    files: Files,
    /// "6.12.117".
    version: String,
    /// Where they are from: a name for readers.
    origin: String,
}

impl Originals {
    /// Takes what `series` changes out of `source`.
    pub fn extract(source: &Source, series: &Series) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let tarball = &source.tarball;
        step!("reading {}", tarball.display());
        let mut paths = series.hooked();
        paths.push("Makefile".into());
        let mut extract = Command::new("tar");
        extract
            .args([
                "-x",
                "--strip-components=1",
                "--occurrence=1",
                "--wildcards",
            ])
            .args(["--no-wildcards-match-slash", "-f"])
            .arg(tarball)
            .arg("-C")
            .arg(folder.path())
            // All are in one folder.
            .args(paths.iter().map(|path| Path::new("*").join(path)));
        command::output(&mut extract, "")
            .with_context(|| format!("{} is not made for this series", tarball.display()))?;
        let origin = tarball.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            version: source::version(folder.path())?,
            files: tree::files_in(folder.path())?,
            origin: origin.into_owned(),
        })
    }
}

/// What was written, in order.
pub struct Written {
    pub covers: Vec<PathBuf>,
    pub mails: Vec<PathBuf>,
}

/// Writes the mails of `series`, that of the checkout `root`, to folders of the folder `output` that are named after
/// the parts, in place of earlier ones.
pub fn write_mails(
    root: &Path,
    series: &Series,
    base: &Originals,
    sender: &Sender,
    output: &Path,
) -> Result<Written> {
    let git = Git {
        folder: tempfile::tempdir()?,
        sender,
        date: date(root, &series.hooks)?,
    };
    git.run(&["init", "--quiet", "--initial-branch=series"], "")?;
    for (path, content) in &base.files {
        write_if_changed(&git.folder.path().join(path), content)?;
    }
    git.run(&["add", "--all"], "")?;
    git.run(&["commit", "--quiet", "-m", &base.origin], "")?;
    let mut written = Written {
        covers: Vec::new(),
        mails: Vec::new(),
    };
    for part in series.mails.chunk_by(|one, next| one.part == next.part) {
        for mail in part {
            git.commit(mail, series, base)?;
        }
        let name = &part[0].part;
        let cover = root.join(&series.hooks).join(format!("cover-{name}.txt"));
        let cover = fs::read_to_string(&cover)?;
        let mut list = git.format(&cover, part.len(), base, &output.join(name))?;
        written.covers.extend(list.drain(..1));
        written.mails.extend(list);
    }
    Ok(written)
}

/// The log of a commit.
fn log(mail: &Mail, sender: &Sender) -> String {
    let mut log = format!("{}\n\n{}\n", mail.subject, mail.text);
    if sender.signs {
        log += &format!("\nSigned-off-by: {} <{}>\n", sender.name, sender.address);
    }
    log
}

/// When the series was last changed, in seconds since 1970: the mails' date.
fn date(root: &Path, hooks: &str) -> Result<String> {
    if let Ok(given) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let mut last = Command::new("git");
    last.arg("-C").arg(root).args([
        "log",
        "-1",
        "--format=%ct",
        "--",
        hooks,
        "kernel/tree",
        "core",
    ]);
    let date = command::first_line(&mut last).unwrap_or_default();
    if date.is_empty() {
        bail!(
            "when was the series last changed? {} has no git history; set SOURCE_DATE_EPOCH to \
             seconds since 1970",
            root.display()
        );
    }
    Ok(date)
}

/// A temporary repository.
struct Git<'a> {
    folder: tempfile::TempDir,
    sender: &'a Sender,
    date: String,
}

impl Git<'_> {
    /// Commits what `mail` of `series` changes.
    fn commit(&self, mail: &Mail, series: &Series, base: &Originals) -> Result<()> {
        let sender = format!("+M:\t{} <{}>\n", self.sender.name, self.sender.address);
        let diff = mail.diff.replace(MAINTAINER, &sender);
        tree::apply(self.folder.path(), series, mail, &diff, &base.version)?;
        for path in &mail.adds {
            write_if_changed(&self.folder.path().join(path), &series.files[path])?;
        }
        self.run(&["add", "--all"], "")?;
        let log = log(mail, self.sender);
        self.run(
            &["commit", "--quiet", "--cleanup=verbatim", "--file=-"],
            &log,
        )?;
        Ok(())
    }

    /// Writes the last `count` commits and the letter `cover` to `output`. Returns the files, the
    /// letter first.
    fn format(
        &self,
        cover: &str,
        count: usize,
        base: &Originals,
        output: &Path,
    ) -> Result<Vec<PathBuf>> {
        let cover = format!(
            "{}\n\nBase: Linux {} ({}). The mails are made from that\nrelease's source, so they name no commit of a public repository.",
            cover.trim(),
            base.version,
            base.origin
        );
        self.run(&["config", "branch.series.description", &cover], "")?;
        clear(output)?;
        let list = self.run(
            &[
                "format-patch",
                "--cover-letter",
                "--cover-from-description=subject",
                "--no-signature",
                "--abbrev=12",
                "--summary",
                "--stat=72",
                "-o",
                &output.to_string_lossy(),
                &format!("-{count}"),
            ],
            "",
        )?;
        Ok(list.lines().map(PathBuf::from).collect())
    }

    /// Runs git with `input`; returns what it prints.
    fn run(&self, args: &[&str], input: &str) -> Result<String> {
        let date = format!("@{} +0000", self.date);
        let mut command = command::git(self.folder.path());
        command
            .args(args)
            .env("GIT_AUTHOR_NAME", &self.sender.name)
            .env("GIT_AUTHOR_EMAIL", &self.sender.address)
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_NAME", &self.sender.name)
            .env("GIT_COMMITTER_EMAIL", &self.sender.address)
            .env("GIT_COMMITTER_DATE", &date)
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8");
        command::output(&mut command, input).with_context(|| format!("git {}", args[0]))
    }
}

/// Removes earlier mails from `folder`, and creates it.
fn clear(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for path in tree::files_ending(folder, "patch")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.len() > 5 && name.bytes().take(4).all(|byte| byte.is_ascii_digit()) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail;

    const HOOK: &str = "mm: Do it\n\nBecause.\n\nAdds: mm/new.c\n\n--- a/mm/old.c\n+++ b/mm/old.c\n\
                        @@ -1 +1 @@\n-a\n+b\n";

    const SECOND: &str = "mm: Own it\n\nSo.\n\n--- a/MAINTAINERS\n+++ b/MAINTAINERS\n@@ -1 +1,2 @@\n \
                          NEW\n+M:\tSENDER\n";

    /// A checkout with a history, a source, and a series of two parts with a mail each.
    struct World {
        root: tempfile::TempDir,
        linux: tempfile::TempDir,
        series: Series,
    }

    fn world() -> World {
        let root = tempfile::tempdir().unwrap();
        for part in ["one", "two"] {
            let cover = root.path().join("hooks").join(format!("cover-{part}.txt"));
            let text = format!("mm: Part {part}\n\nWhy it is wanted.\n");
            write_if_changed(&cover, text.as_bytes()).unwrap();
        }
        let sender = sender(true);
        let git = Git {
            folder: root,
            sender: &sender,
            date: "1700000000".to_owned(),
        };
        git.run(&["init", "--quiet"], "").unwrap();
        git.run(&["add", "--all"], "").unwrap();
        git.run(&["commit", "--quiet", "-m", "x"], "").unwrap();
        let linux = tempfile::tempdir().unwrap();
        let makefile = b"VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 7\n";
        write_if_changed(&linux.path().join("linux/Makefile"), makefile).unwrap();
        write_if_changed(&linux.path().join("linux/mm/old.c"), b"a\n").unwrap();
        write_if_changed(&linux.path().join("linux/MAINTAINERS"), b"NEW\n").unwrap();
        let mut series = Series::none();
        series.hooks = "hooks".to_owned();
        for (part, name, text) in [
            ("one", "01-it.patch", HOOK),
            ("two", "02-own.patch", SECOND),
        ] {
            series.mails.push(Mail::new(part, name, text.to_owned()));
        }
        series
            .files
            .insert("mm/new.c".into(), b"int new;\n".to_vec());
        World {
            root: git.folder,
            linux,
            series,
        }
    }

    fn sender(signs: bool) -> Sender {
        Sender {
            name: "A Person".to_owned(),
            address: "person@example.org".to_owned(),
            signs,
        }
    }

    /// The texts, the cover letters first.
    fn mails(world: &World, signs: bool, output: &Path) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let source = Source {
            tarball: folder.path().join("linux-x.tar"),
            id: "1".to_owned(),
        };
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(world.linux.path()).arg("-cf");
        pack.args([source.tarball.as_path(), Path::new("linux")]);
        command::output(&mut pack, "")?;
        mail::check(&world.series)?;
        let base = Originals::extract(&source, &world.series)?;
        let sender = sender(signs);
        let root = world.root.path();
        let written = write_mails(root, &world.series, &base, &sender, output)?;
        written
            .covers
            .iter()
            .chain(&written.mails)
            .map(|path| fs::read_to_string(path).with_context(|| path.display().to_string()))
            .collect()
    }

    #[test]
    fn the_same_series_gives_the_same_bytes() {
        let world = world();
        let output = tempfile::tempdir().unwrap();
        fs::create_dir(output.path().join("two")).unwrap();
        let old = output.path().join("two/0009-of-an-earlier-series.patch");
        let other = output.path().join("two/notes.txt");
        fs::write(&old, "").unwrap();
        fs::write(&other, "").unwrap();
        let first = mails(&world, true, output.path()).unwrap();
        let second = mails(&world, true, output.path()).unwrap();
        assert_eq!(first, second);
        assert!(!old.exists() && other.exists());
        let [cover, second_cover, mail, second] = first.as_slice() else {
            panic!("{first:?}")
        };
        assert!(
            cover.contains("Subject: [PATCH 0/1] mm: Part one\n"),
            "{cover}"
        );
        assert!(
            second_cover.contains("Subject: [PATCH 0/1] mm: Part two\n"),
            "{second_cover}"
        );
        assert!(
            second.contains("+M:\tA Person <person@example.org>\n"),
            "{second}"
        );
        assert!(cover.contains("Linux 6.12.7 (linux-x.tar)"), "{cover}");
        assert!(mail.contains("Subject: [PATCH 1/1] mm: Do it\n"), "{mail}");
        assert!(
            mail.contains("Date: Tue, 14 Nov 2023 22:13:20 +0000\n"),
            "{mail}"
        );
        assert!(
            mail.contains("Because.\n\nSigned-off-by: A Person <person@example.org>\n---\n"),
            "{mail}"
        );
        assert!(
            mail.contains("+int new;\n") && mail.contains("-a\n+b\n"),
            "{mail}"
        );
        assert!(!mail.contains("Adds:"), "{mail}");
    }

    #[test]
    fn nobody_signs_off() {
        let output = tempfile::tempdir().unwrap();
        let mails = mails(&world(), false, output.path()).unwrap();
        assert!(!mails.concat().contains("Signed-off-by"));
    }

    #[test]
    fn a_hook_for_another_linux_is_named() {
        let world = world();
        fs::write(world.linux.path().join("linux/mm/old.c"), "z\n").unwrap();
        let output = tempfile::tempdir().unwrap();
        let error = mails(&world, true, output.path()).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("01-it.patch") && error.contains("6.12.7") && error.contains("--source"),
            "{error}"
        );
    }
}
